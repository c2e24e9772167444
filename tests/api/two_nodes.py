"""A cluster of two nodes from a file: node a is idle, of b 3 of 4 GPUs are in use."""

import json
from pathlib import Path
from typing import Any, Final

from tests.builders import make_node, make_pod
from tests.service_process import PATIENT, ServiceProcess

FILTER: Final = "/scheduler/filter"
PRIORITIZE: Final = "/scheduler/prioritize"
QUESTION: Final = json.dumps(
    {"Pod": make_pod(gpus=2), "Nodes": None, "NodeNames": ["a", "b"]}
).encode()


def write_dump(path: Path, *items: dict[str, Any]) -> None:
    """Put a dump in the place of `path` at once, as a careful writer does."""
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps({"kind": "List", "items": list(items)}))
    draft.replace(path)


def write_two_nodes(path: Path) -> None:
    """Write the dump of the two nodes."""
    write_dump(
        path,
        make_node(name="a", gpus=4),
        make_node(name="b", gpus=4),
        make_pod(name="holder", gpus=3, node_name="b"),
    )


def file_config(**more: Any) -> dict[str, Any]:
    """Return a configuration over ``dump.json``, looked at often."""
    cluster = {"source": "file", "files": ["dump.json"], "pollSeconds": 0.05}
    return {"cluster": cluster, "extender": PATIENT, **more}


def fitting(service: ServiceProcess) -> list[str]:
    """Return which of the nodes a and b the process lets pass."""
    names: list[str] = service.request("POST", FILTER, QUESTION).json()["NodeNames"]
    return names


def scores(service: ServiceProcess) -> list[int]:
    """Return the scores of the nodes a and b."""
    answer = service.request("POST", PRIORITIZE, QUESTION).json()
    return [entry["Score"] for entry in answer]
