"""Bodies of real kube-schedulers, and some of our own, that mutations begin with."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.builders import make_node, make_pod
from tests.fuzz.mutations import Seed, make_seed

CAPTURES: Final = Path(__file__).parents[1] / "contract" / "captures"
DUMP: Final = CAPTURES / "1.36" / "cluster-dump.yaml"
FILTER: Final = "/scheduler/filter"
PRIORITIZE: Final = "/scheduler/prioritize"
PREEMPT: Final = "/scheduler/preempt"
EXPLAIN: Final = "/explain"
ROUTES: Final = (FILTER, PRIORITIZE, PREEMPT, EXPLAIN)
NAMES: Final = (
    "h100-01", "h100-02", "a100-sxm-01", "a100-pcie-01", "a100-mig-01", "v100-01",
    "l4-01", "t4-01", "t4-shared-01", "cpu-01", "ghost",
)  # fmt: skip
DEMANDS: Final[tuple[dict[str, str], ...]] = (
    {"gpu-extender.io/gpu-type": "H100, A100-80GB, !L4"},
    {"gpu-extender.io/min-gpu-memory": "40Gi", "gpu-extender.io/linked": "required"},
    {"gpu-extender.io/exclusive": "true", "gpu-extender.io/sharing": "allowed"},
)


def captured(verb: str) -> list[bytes]:
    """Return the captured bodies of a verb."""
    return [
        path.read_bytes()
        for path in sorted(CAPTURES.glob(f"*/scheduler-*-{verb}.*.json"))
        if not path.name.endswith(".response.json")
    ]


def _own_pods() -> Iterator[dict[str, Any]]:
    """Yield pods such as the captures have not."""
    for number, gpu_requirements in enumerate(DEMANDS, 1):
        yield make_pod(
            name=f"demanding-{number}", gpus=number, annotations=gpu_requirements
        )
    yield make_pod(name="sliced", requests={"nvidia.com/mig-2g.10gb": "1"})
    yield make_pod(name="plain", cpu="1")
    yield make_pod(
        name="choosy",
        gpus=1,
        spec={"nodeSelector": {"accelerator": "nvidia-tesla-v100"}, "nodeName": "x"},
        status={"nominatedNodeName": "h100-02"},
    )


def _own_questions() -> Iterator[bytes]:
    """Yield questions of both forms about our own pods and the captured cluster."""
    template = make_node(name="template", gpus=8)
    for pod in _own_pods():
        names = {"Pod": pod, "Nodes": None, "NodeNames": NAMES}
        nodes = {"metadata": {}, "items": [template, make_node(name="h100-01")]}
        yield _compact(names)
        yield _compact({"Pod": pod, "Nodes": nodes, "NodeNames": None})


def _own_preemptions() -> Iterator[bytes]:
    """Yield preempt calls about our own pods and the captured cluster."""
    mixed, unseen = "4f11a495-848c-4a6e-a045-085b1bb6f022", "unseen"
    for pod in _own_pods():
        meta = {
            "h100-01": {"Pods": [{"UID": mixed}], "NumPDBViolations": 0},
            "ghost": {"Pods": [{"UID": unseen}, {"UID": mixed}], "NumPDBViolations": 2},
            "t4-01": {"Pods": None, "NumPDBViolations": 0},
        }
        yield _compact(
            {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": meta}
        )


def _own_explained() -> Iterator[bytes]:
    """Yield pods to explain, as they are and as templates."""
    for pod in _own_pods():
        yield _compact(pod)
        template = {"metadata": pod["metadata"], "spec": pod["spec"]}
        yield _compact(
            {
                "kind": "Deployment",
                "metadata": {"name": "d", "namespace": "n"},
                "spec": {"template": template},
            }
        )


def _compact(tree: Any) -> bytes:
    """Return a tree as Go writes it."""
    return json.dumps(tree, separators=(",", ":")).encode()


def build_corpus() -> Mapping[str, tuple[Seed, ...]]:
    """Return the seeds of each route."""
    own = list(_own_questions())
    bodies = {
        FILTER: [*captured("filter"), *own],
        PRIORITIZE: [*captured("prioritize"), *own],
        PREEMPT: [*captured("preempt"), *_own_preemptions()],
        EXPLAIN: [
            *(_compact(json.loads(body)["Pod"]) for body in captured("filter")),
            *_own_explained(),
        ],
    }
    return {route: tuple(map(make_seed, found)) for route, found in bodies.items()}
