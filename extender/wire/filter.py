"""The kube-scheduler extender's v1 requests, decoded.

Keys are the Go field names, since the extender's types carry no JSON tags. Go matches
them in any case, so we do, too.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import msgspec

from cluster.decode.faults import convert_with_faults
from cluster.decode.objects import Node, Pod
from extender.wire.fields import (
    DECODE_ERRORS,
    MAX_FAULTS,
    MAX_KEYS,
    MAX_TREE_BYTES,
    TooLargeError,
    check_count,
    check_objects,
    decode_message,
    decode_pod,
    fold_object,
    lacks_of,
    present,
    read_tree,
    split_list,
)
from scoring.faults import Fault
from scoring.quantity import shorten

MAX_SHOWN_FAULTS: Final = 20

MAX_FAULT_LENGTH: Final = 240


class WireError(ValueError):
    """A body that kube-scheduler would not send.

    Attributes
    ----------
    faults : tuple of Fault
        Every fault found, each with its path.
    pod_uid : str
        Of the pod that cannot be judged; empty if the fault is the call's.
    """

    def __init__(self, faults: Sequence[Fault], pod_uid: str = "") -> None:
        shown = [_cut(str(fault)) for fault in faults[:MAX_SHOWN_FAULTS]]
        if len(faults) > MAX_SHOWN_FAULTS:
            more: int | str = len(faults) - MAX_SHOWN_FAULTS
            shown.append(f"and {'many' if len(faults) >= MAX_FAULTS else more} more")
        super().__init__("; ".join(shown))
        self.faults = tuple(faults)
        self.pod_uid = pod_uid


def _cut(text: str) -> str:
    """Return the text, without its middle where a key in it is very long."""
    half = MAX_FAULT_LENGTH // 2
    return text if len(text) <= 2 * half else f"{text[:half]}...{text[-half:]}"


@dataclass(frozen=True, slots=True)
class ExtenderArgs:
    """One filter or prioritize call.

    Attributes
    ----------
    pod : Pod
    names : sequence of str
        The candidates, in the order of the request.
    nodes : mapping of str to msgspec.Raw, or None
        The candidates' objects byte for byte; None in the form of names alone.
    names_at : int
        Where the list of names begins in a body as kube-scheduler writes it; it ends
        one byte before the body. 0 for every other body.
    is_literal : bool
        Whether the names stand in the body as they are, between quotes.
    """

    pod: Pod
    names: Sequence[str]
    nodes: dict[str, msgspec.Raw] | None = None
    names_at: int = 0
    is_literal: bool = False


class _NamesBody(
    msgspec.Struct, frozen=True, rename="pascal", forbid_unknown_fields=True
):
    """The common form, with ``nodeCacheCapable: true``.

    Unknown keys are refused here only to send every unusual body, other casings
    among them, through the slower way.
    """

    pod: msgspec.Raw
    node_names: list[str]
    nodes: None = None


class _NamedObject(msgspec.Struct, frozen=True):
    """As much of a Node as its name takes."""

    class Metadata(msgspec.Struct, frozen=True):
        """``metadata`` of a Node."""

        name: str

    metadata: Metadata


# How kube-scheduler begins a body, up to the pod, and how it goes on after it.
POD_HEAD: Final = b'{"Pod":'

_NAMES_HEAD: Final = b',"Nodes":null,"NodeNames":'

_NAMES_DECODER: Final = msgspec.json.Decoder(_NamesBody)

_POD_DECODER: Final = msgspec.json.Decoder(Pod)

_NAMED_DECODER: Final = msgspec.json.Decoder(list[_NamedObject])

_LIST_DECODER: Final = msgspec.json.Decoder(list[str])

_NAME_DECODER: Final = msgspec.json.Decoder(_NamedObject)


def decode_args(body: bytes, max_nodes: int = MAX_KEYS) -> ExtenderArgs:
    """Read the body of a filter or prioritize call.

    Parameters
    ----------
    body : bytes
        With either ``NodeNames`` or ``Nodes``, keys in any casing.
    max_nodes : int
        More of them than any cluster has.

    Raises
    ------
    WireError
        With every fault and its path.
    TooLargeError
        If it names more nodes than that, before anything is made of them.
    """
    if body.count(b",") >= max_nodes:  # of which the pod may have many, too
        return _decode_unusual(body, max_nodes)
    try:
        parts = _NAMES_DECODER.decode(body)
        if len(parts.pod) > MAX_TREE_BYTES:
            return _decode_unusual(body, max_nodes)  # which says so
        pod = _POD_DECODER.decode(parts.pod)
    except DECODE_ERRORS:
        return _decode_unusual(body, max_nodes)
    raw_pod = bytes(parts.pod)
    if not _is_plain(body, raw_pod) or lacks_of(pod):
        return _decode_unusual(body, max_nodes)
    names_at = len(POD_HEAD) + len(raw_pod) + len(_NAMES_HEAD)
    is_literal = body.find(b"\\", names_at) < 0
    return ExtenderArgs(pod, parts.node_names, names_at=names_at, is_literal=is_literal)


def _is_plain(body: bytes, pod: bytes) -> bool:
    """Whether a decoded body is written as kube-scheduler writes it.

    The decoder takes the last of two values of one key. Here there is no room for a
    second one: the first value is the decoded pod, and the list of names that follows
    it runs up to the end. (A name with a bracket takes the slower way.)
    """
    names = len(POD_HEAD) + len(pod)
    return (
        body.startswith(POD_HEAD)
        and body.startswith(pod, len(POD_HEAD))
        and body.startswith(_NAMES_HEAD, names)
        and body.find(b"]", names) == len(body) - 2
    )


def _decode_unusual(body: bytes, max_nodes: int) -> ExtenderArgs:
    """Read any legal body, and name all faults of an illegal one."""
    faults: list[Fault] = []
    parts = fold_object(body, "body", faults)
    if parts is None:
        raise WireError(faults)
    pod = decode_pod(parts.get("pod"), faults)
    raw_names, raw_nodes = present(parts, "nodenames"), present(parts, "nodes")
    names: Sequence[str] = ()
    nodes = None
    if (raw_names is None) == (raw_nodes is None):
        got = "neither" if raw_names is None else "both"
        faults.append(
            Fault("NodeNames", f"wanted either NodeNames or Nodes, got {got}")
        )
    elif raw_names is not None:
        check_count(raw_names, b",", max_nodes - 1, f"{max_nodes} nodes")
        names = _read_names(raw_names, faults)
    elif raw_nodes is not None:
        # The list has one, too.
        wanted = f"{max_nodes} nodes"
        check_objects(raw_nodes, max_nodes + 1, wanted)
        nodes = _read_nodes(raw_nodes, faults)
        names = tuple(nodes)
        if len(names) > max_nodes:
            raise TooLargeError(f"wanted at most {wanted}, got more")
    if pod is None or faults:
        raise WireError(faults)
    return ExtenderArgs(pod, names, nodes)


def _read_names(raw: msgspec.Raw, faults: list[Fault]) -> Sequence[str]:
    """Return the candidates' names; add what is wrong with them to `faults`."""
    with contextlib.suppress(*DECODE_ERRORS):  # else as a tree, to tell all faults
        return _LIST_DECODER.decode(raw)
    known = len(faults)
    names = read_tree(raw, "NodeNames", faults)
    if len(faults) > known:
        return ()
    if not isinstance(names, list):
        faults.append(Fault("NodeNames", f"wanted a list, got {shorten(names)}"))
        return ()
    wrong = (
        Fault(f"NodeNames[{index}]", f"wanted text, got {shorten(name)}")
        for index, name in enumerate(names)
        if not isinstance(name, str)
    )
    faults += islice(wrong, MAX_FAULTS)
    return ()


def _read_nodes(raw: msgspec.Raw, faults: list[Fault]) -> dict[str, msgspec.Raw]:
    """Return the candidates' objects by name; add what is wrong to `faults`."""
    nodes: dict[str, msgspec.Raw] = {}
    parts = fold_object(raw, "Nodes", faults)
    if parts is None:
        return nodes
    items = present(parts, "items")
    objects = []
    if items is not None:
        objects = split_list(items, _NAMED_DECODER, "Nodes.items", faults)
    for index, item in enumerate(objects):
        if len(faults) >= MAX_FAULTS:
            break
        try:
            name = _NAME_DECODER.decode(item).metadata.name
        except DECODE_ERRORS as error:
            faults.append(Fault(f"Nodes.items[{index}]", decode_message(error)))
        else:
            nodes.setdefault(name, item.copy())
    return nodes


def decode_node(raw: msgspec.Raw, name: str) -> Node:
    """Read the object of a node that is not in the cache; raise `WireError`."""
    try:
        return msgspec.json.decode(raw, type=Node)
    except DECODE_ERRORS:
        path = f"Nodes[{shorten(name)}]"
        faults: list[Fault] = []
        tree = read_tree(raw, path, faults)
        if faults:  # what was skipped before is no JSON that can be read
            raise WireError(faults) from None
        node, found = convert_with_faults(tree, Node)
        if node is not None and not found:  # pragma: no cover  decoders disagree
            return node
        raise WireError(
            [Fault(f"{path}.{fault.path}", fault.message) for fault in found]
        ) from None
