"""The kube-scheduler extender's v1 requests, decoded.

Keys are the Go field names, since the extender's types carry no JSON tags. Go matches
them in any case, so we do, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from cluster.decode import Fault, convert_with_faults
from cluster.objects import Node, Pod
from scoring.resources import shorten

MAX_SHOWN_FAULTS: Final = 20
MAX_FAULT_LENGTH: Final = 240


class WireError(ValueError):
    """A body that kube-scheduler would not send.

    Attributes
    ----------
    faults : tuple of Fault
        Every fault found, each with its path.
    """

    def __init__(self, faults: Sequence[Fault]) -> None:
        shown = [_cut(str(fault)) for fault in faults[:MAX_SHOWN_FAULTS]]
        if len(faults) > MAX_SHOWN_FAULTS:
            shown.append(f"and {len(faults) - MAX_SHOWN_FAULTS} more")
        super().__init__("; ".join(shown))
        self.faults = tuple(faults)


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
    """

    pod: Pod
    names: Sequence[str]
    nodes: dict[str, msgspec.Raw] | None = None


class _NamesBody(
    msgspec.Struct, frozen=True, rename="pascal", forbid_unknown_fields=True
):
    """The common form, with ``nodeCacheCapable: true``.

    Unknown keys are refused here only to send every unusual body, other casings
    among them, through the slower way.
    """

    pod: Pod
    node_names: list[str]
    nodes: None = None


class _NamesParts(
    msgspec.Struct, frozen=True, rename="pascal", forbid_unknown_fields=True
):
    """The common form, its values left as JSON."""

    pod: msgspec.Raw
    node_names: msgspec.Raw
    nodes: None = None


class _NamedObject(msgspec.Struct, frozen=True):
    """As much of a Node as its name takes."""

    class Metadata(msgspec.Struct, frozen=True):
        """``metadata`` of a Node."""

        name: str

    metadata: Metadata


# How kube-scheduler begins a body, up to the pod.
POD_HEAD: Final = b'{"Pod":'
_NAMES_DECODER: Final = msgspec.json.Decoder(_NamesBody)
_NAMES_PARTS_DECODER: Final = msgspec.json.Decoder(_NamesParts)
_PARTS_DECODER: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS_DECODER: Final = msgspec.json.Decoder(list[msgspec.Raw])
_NAME_DECODER: Final = msgspec.json.Decoder(_NamedObject)
_DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def decode_args(body: bytes) -> ExtenderArgs:
    """Read the body of a filter or prioritize call.

    Parameters
    ----------
    body : bytes
        With either ``NodeNames`` or ``Nodes``, keys in any casing.

    Returns
    -------
    ExtenderArgs

    Raises
    ------
    WireError
        With every fault and its path.
    """
    try:
        args = _NAMES_DECODER.decode(body)
    except _DECODE_ERRORS:
        return _decode_unusual(body)
    return ExtenderArgs(args.pod, args.node_names)


def split_names_body(body: bytes) -> tuple[bytes, bytes] | None:
    """Return pod and names of a body in the common form as JSON, else None."""
    try:
        parts = _NAMES_PARTS_DECODER.decode(body)
    except _DECODE_ERRORS:
        return None
    return bytes(parts.pod), bytes(parts.node_names)


def _decode_unusual(body: bytes) -> ExtenderArgs:
    """Read any legal body, and name all faults of an illegal one."""
    parts = _split(body, "body")
    faults: list[Fault] = []
    pod = _read_pod(parts.get("pod"), faults)
    raw_names, raw_nodes = _present(parts, "nodenames"), _present(parts, "nodes")
    names: Sequence[str] = ()
    nodes = None
    if (raw_names is None) == (raw_nodes is None):
        got = "neither" if raw_names is None else "both"
        faults.append(
            Fault("NodeNames", f"wanted either NodeNames or Nodes, got {got}")
        )
    elif raw_names is not None:
        names = _read_names(raw_names, faults)
    elif raw_nodes is not None:
        nodes = _read_nodes(raw_nodes, faults)
        names = tuple(nodes)
    if pod is None or faults:
        raise WireError(faults)
    return ExtenderArgs(pod, names, nodes)


def _split(body: bytes, path: str) -> dict[str, msgspec.Raw]:
    """Return the top-level values of the object at `path` by lower-case key."""
    try:
        parts = _PARTS_DECODER.decode(body)
    except _DECODE_ERRORS as error:
        raise WireError([Fault(path, _said(error))]) from error
    folded = {key.lower(): value for key, value in parts.items()}
    if len(folded) != len(parts):
        keys = ", ".join(parts)
        raise WireError([Fault(path, f"wanted each key once, got {shorten(keys)}")])
    return folded


def _said(error: Exception) -> str:
    """Return a decoder's message in the form of our own."""
    text = (str(error) or type(error).__name__).replace("`", "").removesuffix(" - at $")
    if text[:2].istitle():  # a sentence, not an acronym
        text = text[:1].lower() + text[1:]
    return text.replace("expected", "wanted", 1)


def _present(parts: dict[str, msgspec.Raw], key: str) -> msgspec.Raw | None:
    """Return a top-level value, None where it is absent or null."""
    raw = parts.get(key)
    return None if raw is None or bytes(raw).strip() == b"null" else raw


def _tree(raw: msgspec.Raw, path: str, faults: list[Fault]) -> Any:
    """Return a value as plain objects; None and a fault where it nests too deep."""
    try:
        return msgspec.json.decode(raw)
    except _DECODE_ERRORS as error:
        faults.append(Fault(path, _said(error)))
        return None


def _read_pod(raw: msgspec.Raw | None, faults: list[Fault]) -> Pod | None:
    """Return the pod; add what is wrong with it to `faults`."""
    known = len(faults)
    tree = None if raw is None else _tree(raw, "Pod", faults)
    if not isinstance(tree, dict):
        if len(faults) == known:
            got = "none" if raw is None else shorten(tree)
            faults.append(Fault("Pod", f"wanted an object, got {got}"))
        return None
    pod, found = convert_with_faults(tree, Pod)
    faults += [Fault(f"Pod.{fault.path}", fault.message) for fault in found]
    return pod


def _read_names(raw: msgspec.Raw, faults: list[Fault]) -> Sequence[str]:
    """Return the candidates' names; add what is wrong with them to `faults`."""
    known = len(faults)
    names = _tree(raw, "NodeNames", faults)
    if len(faults) > known:
        return ()
    if not isinstance(names, list):
        faults.append(Fault("NodeNames", f"wanted a list, got {shorten(names)}"))
        return ()
    faults += [
        Fault(f"NodeNames[{index}]", f"wanted text, got {shorten(name)}")
        for index, name in enumerate(names)
        if not isinstance(name, str)
    ]
    return [name for name in names if isinstance(name, str)]


def _read_nodes(raw: msgspec.Raw, faults: list[Fault]) -> dict[str, msgspec.Raw]:
    """Return the candidates' objects by name; add what is wrong to `faults`."""
    nodes: dict[str, msgspec.Raw] = {}
    try:
        items = _present(_split(bytes(raw), "Nodes"), "items")
        objects = [] if items is None else _ITEMS_DECODER.decode(items)
    except WireError as error:
        faults += error.faults
        return nodes
    except _DECODE_ERRORS as error:
        faults.append(Fault("Nodes.items", _said(error)))
        return nodes
    for index, item in enumerate(objects):
        try:
            name = _NAME_DECODER.decode(item).metadata.name
        except _DECODE_ERRORS as error:
            faults.append(Fault(f"Nodes.items[{index}]", _said(error)))
        else:
            nodes.setdefault(name, item.copy())
    return nodes


def decode_node(raw: msgspec.Raw, name: str) -> Node:
    """Read the object of a node that is not in the cache; raise `WireError`."""
    try:
        return msgspec.json.decode(raw, type=Node)
    except _DECODE_ERRORS:
        node, faults = convert_with_faults(msgspec.json.decode(raw), Node)
        if node is not None and not faults:  # pragma: no cover  decoders disagree
            return node
        raise WireError(
            [Fault(f"Nodes[{name!r}].{fault.path}", fault.message) for fault in faults]
        ) from None
