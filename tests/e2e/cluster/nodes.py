"""Nodes of a cluster: those of a file, and others beside them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import yaml

from tests.e2e.harness.builders import JsonObject, make_node

CONTROL_PLANE: Final = "node-role.kubernetes.io/control-plane"
WORKERS: Final = 2


class NodesError(ValueError):
    """A file that has no nodes."""


def make_nodes(path: Path, control_planes: int) -> Sequence[JsonObject]:
    """Return the nodes of a file, workers, and nodes of the control plane."""
    taint = {"key": CONTROL_PLANE, "effect": "NoSchedule"}
    return [
        *(
            make_node(
                name, cpu="8", memory="32Gi", labels={CONTROL_PLANE: ""}, taints=[taint]
            )
            for name in control_plane_names(control_planes)
        ),
        *(make_node(f"worker-{n}", cpu="16") for n in range(1, WORKERS + 1)),
        *read_nodes(path),
    ]


def control_plane_names(count: int) -> Sequence[str]:
    """Return the names of the nodes of the control plane."""
    return [f"control-plane-{number}" for number in range(1, count + 1)]


def read_nodes(path: Path) -> Sequence[JsonObject]:
    """Return the nodes of a file as `kubectl get nodes -o yaml` prints it.

    Labels, annotations, taints and amounts count; all nodes are ready.
    """
    found = [_as_new(item) for item in _items(path) if item.get("kind") == "Node"]
    if not found:
        raise NodesError(
            f"{path}: wanted nodes as `kubectl get nodes -o yaml` prints them, got none"
        )
    return found


def _items(path: Path) -> Iterator[JsonObject]:
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
        if isinstance(document, dict):
            yield from document.get("items", [document])


def _as_new(node: JsonObject) -> JsonObject:
    metadata, spec, status = node["metadata"], node.get("spec") or {}, node["status"]
    made = make_node(
        metadata["name"],
        labels=metadata.get("labels"),
        annotations=metadata.get("annotations"),
        taints=spec.get("taints", ()),
        unschedulable=spec.get("unschedulable", False),
    )
    amounts = {key: status[key] for key in ("capacity", "allocatable") if key in status}
    made["status"] |= amounts
    return made
