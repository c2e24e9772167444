"""A cluster from files, as ``kubectl get nodes,pods -A -o yaml`` (or json) prints it.

One file or several; one object, a list or several documents in each.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from cluster.decode.faults import convert_with_faults
from cluster.decode.limit_ranges import (
    LimitRange,
    LimitRangeRecord,
    limit_range_record,
)
from cluster.decode.objects import DeviceClass, Node, NodeRecord, Pod, PodRecord
from cluster.decode.records import RecordBuilder
from cluster.ledger.changes import (
    Change,
    DeviceClassesListed,
    LimitRangesListed,
    NodesListed,
    PodsListed,
)
from cluster.yaml_text import (
    UNREADABLE,
    check_unique_json,
    describe_unreadable,
    parse_all,
)
from scoring.faults import Fault, FaultsError, list_faults
from scoring.quantity import shorten

logger = logging.getLogger(__name__)

# PyYAML takes about a second per megabyte; JSON is fifty times faster.
LARGE_YAML_BYTES: Final = 20_000_000

# Stands for the kind of a list that does not say that it is one.
CUT_SHORT: Final = "items without the kind of a list"

MAX_SHOWN_FAULTS: Final = 100


class DumpError(FaultsError):
    """A dump that cannot be used, with every fault found in it."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        message = list_faults("cluster dump", faults, MAX_SHOWN_FAULTS)
        super().__init__(faults, message)


@dataclass(slots=True)
class _Contents:
    """Contents of all files read so far."""

    nodes: dict[str, NodeRecord] = field(default_factory=dict)
    pods: dict[str, PodRecord] = field(default_factory=dict)
    device_class_resources: set[str] = field(default_factory=set)
    limit_ranges: list[LimitRangeRecord] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)


def load_dump(paths: Sequence[Path], builder: RecordBuilder) -> tuple[Change, ...]:
    """Read a cluster from files.

    Parameters
    ----------
    paths : sequence of Path
        ``.json`` is read as JSON, anything else as YAML.

    Returns
    -------
    tuple of Change
        Complete lists, to be applied together.

    Raises
    ------
    DumpError
        With every fault of all files, each with file and path.
    """
    contents = _Contents()
    for path in paths:
        try:
            documents = read_documents(path)
        except UNREADABLE as error:
            contents.faults.append(Fault(str(path), describe_unreadable(error)))
            continue
        if not documents:
            # A file that is just being written, or a command that failed into it.
            contents.faults.append(
                Fault(str(path), "wanted objects, got an empty file")
            )
        for where, item, kind in list_items(documents):
            _add(contents, f"{path.name}: {where}", item, kind, builder)
    if not contents.faults and not contents.nodes and not contents.pods:
        names = ", ".join(path.name for path in paths)
        contents.faults.append(Fault(names, "wanted nodes and pods, got none"))
    if contents.faults:
        raise DumpError(contents.faults)
    return (
        NodesListed(tuple(contents.nodes.values())),
        PodsListed(tuple(contents.pods.values())),
        DeviceClassesListed(frozenset(contents.device_class_resources)),
        LimitRangesListed.of(contents.limit_ranges),
    )


def read_documents(path: Path, *, is_unique: bool = False) -> list[Any]:
    """Return the documents of one file as plain trees; raise of `UNREADABLE`.

    With `is_unique` a key that stands twice in a mapping is a fault, as for kubectl.
    """
    data = path.read_bytes()
    if path.suffix == ".json":
        tree = msgspec.json.decode(data)
        if is_unique:
            check_unique_json(data)
        return [tree]
    if len(data) > LARGE_YAML_BYTES:
        logger.warning(
            "large YAML dump read",
            extra={"fields": {"path": str(path), "bytes": len(data), "better": "json"}},
        )
    return [
        document
        for document in parse_all(data, is_unique=is_unique)
        if document is not None
    ]


def list_items(documents: Sequence[Any]) -> Iterator[tuple[str, Any, str]]:
    """Yield path, tree and kind of each object of the documents of a file."""
    for number, document in enumerate(documents):
        where = f"document {number + 1}" if len(documents) > 1 else ""
        if not isinstance(document, dict):
            yield where or "file", document, ""
            continue
        kind = document.get("kind")
        kind = kind if isinstance(kind, str) else ""
        items = document.get("items")
        if not kind.endswith("List"):
            # kubectl writes a list's kind after its items: without it, the end is gone.
            named = kind if items is None else CUT_SHORT
            yield where or "object", document, named
            continue
        if not isinstance(items, list):
            yield f"{where} items".strip(), items, "List"
            continue
        for index, item in enumerate(items):
            own = item.get("kind") if isinstance(item, dict) else None
            yield (
                f"{where} items[{index}]".strip(),
                item,
                own if isinstance(own, str) else kind.removesuffix("List"),
            )


def _add(
    contents: _Contents, where: str, tree: Any, kind: str, builder: RecordBuilder
) -> None:
    """Add one object; its faults go to `contents.faults`."""
    if not isinstance(tree, dict) or kind == "List":
        wanted = "a list" if kind == "List" else "an object"
        contents.faults.append(Fault(where, f"wanted {wanted}, got {shorten(tree)}"))
        return
    adder = _ADDERS.get(kind)
    faults = _strange(tree, kind) if adder is None else adder(contents, tree, builder)
    contents.faults.extend(
        Fault(
            where + ("" if fault.path.startswith("[") else ".") + fault.path,
            fault.message,
        )
        for fault in faults
    )


def _strange(tree: Mapping[str, Any], kind: str) -> list[Fault]:
    """Return the fault of an object of a kind that is not read, if it is one."""
    if kind == CUT_SHORT:
        wanted = "wanted kind List after the items, got none: is the file complete?"
        return [Fault("kind", wanted)]
    if not kind:
        return [Fault("kind", f"wanted text, got {shorten(tree.get('kind'))}")]
    return []


def _add_node(contents: _Contents, tree: Any, builder: RecordBuilder) -> list[Fault]:
    """Add a node; return its faults."""
    node, faults = convert_with_faults(tree, Node)
    if node is not None:
        record, more = builder.node_record(node)
        faults += more + _missing_name(record.name)
        faults += _duplicate(record.name, contents.nodes, "metadata.name")
        contents.nodes[record.name] = record
    return faults


def _add_pod(contents: _Contents, tree: Any, builder: RecordBuilder) -> list[Fault]:
    """Add a pod; return its faults."""
    pod, faults = convert_with_faults(tree, Pod)
    if pod is not None:
        held, more = builder.pod_record(pod)
        faults += more + _missing_name(held.name)
        faults += _duplicate(held.uid, contents.pods, "metadata.uid")
        contents.pods[held.uid] = held
    return faults


def _add_device_class(
    contents: _Contents, tree: Any, _builder: RecordBuilder
) -> list[Fault]:
    """Add the resource of a DeviceClass; return its faults."""
    device_class, faults = convert_with_faults(tree, DeviceClass)
    if device_class is not None and device_class.spec.extended_resource_name:
        contents.device_class_resources.add(device_class.spec.extended_resource_name)
    return faults


def _add_limit_range(
    contents: _Contents, tree: Any, _builder: RecordBuilder
) -> list[Fault]:
    """Add the maxima of a LimitRange; return its faults."""
    limit_range, faults = convert_with_faults(tree, LimitRange)
    if limit_range is not None:
        record, more = limit_range_record(limit_range)
        faults += more
        contents.limit_ranges.append(record)
    return faults


_ADDERS: Final[Mapping[str, Callable[[_Contents, Any, RecordBuilder], list[Fault]]]] = {
    "Node": _add_node,
    "Pod": _add_pod,
    "DeviceClass": _add_device_class,
    "LimitRange": _add_limit_range,
}


def _missing_name(name: str) -> list[Fault]:
    """Return the fault of an object without a name, if it is one."""
    return [] if name else [Fault("metadata.name", "wanted text, got none")]


def _duplicate(key: str, seen: Mapping[str, Any], path: str) -> list[Fault]:
    """Return the fault of a repeated identity, if it is one."""
    is_repeated = bool(key.strip("/")) and key in seen
    return [Fault(path, f"wanted each once, got {key!r} again")] if is_repeated else []
