"""The golden tables of the classic score, to the digit, on the wire of the process."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.builders import make_node, make_pod
from tests.service_process import ServiceProcess

V100: Final = "nvidia-tesla-v100"
A100: Final = "nvidia-tesla-a100"
T4: Final = "nvidia-tesla-t4"
NVLINK: Final = "nvlink"


@dataclass(frozen=True, slots=True)
class Row:
    """A node, and its scores for both pods."""

    name: str
    used: int
    gpus: int
    accelerator: str | None
    link: str | None
    two_of_v100: int  # a pod of 2 GPUs of V100
    one_of_any: int  # a pod of 1 GPU of no type


TABLE: Final = (
    # utilization, typeMatch, topology -> score -> normalised -> wire, per pod
    # 0, 100, 100 -> 110 -> 37 -> 4;   0, 50, 100 -> 95 -> 0 -> 0
    Row("n1", 0, 8, V100, NVLINK, 4, 0),
    # 41, 100, 50 -> 111 -> 39 -> 4;   41, 50, 100 -> 111 -> 40 -> 4
    Row("n2", 2, 8, V100, None, 4, 4),
    # 62, 70, 100 -> 125 -> 60 -> 6;   62, 50, 100 -> 119 -> 60 -> 6
    Row("n3", 3, 8, A100, NVLINK, 6, 6),
    # 100, 100, 100 -> 150 -> 100 -> 10;   100, 50, 100 -> 135 -> 100 -> 10
    Row("n4", 5, 8, V100, NVLINK, 10, 10),
    # 100, 100, 50 -> 135 -> 76 -> 8;   100, 50, 100 -> 135 -> 100 -> 10
    Row("n5", 3, 5, V100, None, 8, 10),
    # 100, 0, 100 -> 120 -> 53 -> 5;   100, 50, 100 -> 135 -> 100 -> 10
    Row("n6", 7, 10, T4, NVLINK, 5, 10),
    # 49, 100, 100 -> 129 -> 67 -> 7;   49, 50, 100 -> 114 -> 47 -> 5
    Row("n7", 9, 10, V100, NVLINK, 7, 5),
    # 62, 0, 50 -> 89 -> 4 -> 0;   62, 50, 100 -> 119 -> 60 -> 6
    Row("n8", 7, 8, None, None, 0, 6),
    # 0, 70, 50 -> 86 -> 0 -> 0;   0, 50, 100 -> 95 -> 0 -> 0
    Row("n9", 4, 4, A100, None, 0, 0),
    # 0, 100, 100 -> 110 -> 37 -> 4;   0, 50, 100 -> 95 -> 0 -> 0
    Row("n10", 0, 0, V100, NVLINK, 4, 0),
)
TWO_OF_V100: Final = make_pod(
    name="asks-two", gpus=2, spec={"nodeSelector": {"accelerator": V100}}
)
ONE_OF_ANY: Final = make_pod(name="asks-one", gpus=1)


def build_node(row: Row) -> dict[str, Any]:
    """Return the node of a row."""
    labels = {"accelerator": row.accelerator, "gpu-interconnect": row.link}
    present = {key: value for key, value in labels.items() if value is not None}
    return make_node(name=row.name, gpus=row.gpus, labels=present)


def holders(row: Row) -> list[dict[str, Any]]:
    """Return bound pods of one GPU each that use what the row says."""
    return [
        make_pod(name=f"{row.name}-holder-{i}", gpus=1, node_name=row.name)
        for i in range(row.used)
    ]


@pytest.fixture(scope="module")
def golden_cluster(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ServiceProcess]:
    """Run the real process over a dump of the table's nodes."""
    folder = tmp_path_factory.mktemp("golden-cluster")
    items = [build_node(row) for row in TABLE]
    items += [pod for row in TABLE for pod in holders(row)]
    (folder / "dump.json").write_text(json.dumps({"kind": "List", "items": items}))
    config = {"cluster": {"source": "file", "files": ["dump.json"]}}
    with ServiceProcess(folder, config) as service:
        service.wait_ready()
        yield service


@pytest.mark.parametrize(
    ("pod", "column"),
    [
        pytest.param(TWO_OF_V100, "two_of_v100", id="two GPUs of one type"),
        pytest.param(ONE_OF_ANY, "one_of_any", id="one GPU of any type"),
    ],
)
@pytest.mark.parametrize("form", ["names", "nodes"])
def test_the_golden_table_holds_on_the_wire(
    golden_cluster: ServiceProcess, form: str, pod: dict[str, Any], column: str
) -> None:
    verb_call: dict[str, Any] = {"Pod": pod, "Nodes": None, "NodeNames": None}
    if form == "names":
        verb_call["NodeNames"] = [row.name for row in TABLE]
    else:
        verb_call["Nodes"] = {"metadata": {}, "items": [build_node(r) for r in TABLE]}

    answer = golden_cluster.post("/scheduler/prioritize", verb_call)

    scores = ",".join(
        f'{{"Host":"{row.name}","Score":{getattr(row, column)}}}' for row in TABLE
    )
    assert answer.status == 200
    assert answer.body == f"[{scores}]".encode()
