"""Parts of a request's body, read with every fault and its path.

Keys are the Go field names, since the extender's types carry no JSON tags. Go matches
them in any case, so we do, too. Of a key that stands twice, one decoder takes the first
value and another the last: such an object says nothing.
"""

import itertools
import re
from typing import Any, Final

import msgspec

from cluster.decode.faults import convert_with_faults
from cluster.decode.objects import Pod
from scoring.faults import Fault
from scoring.quantity import shorten

# More of them help nobody, and a body may be all faults.
MAX_FAULTS: Final = 1000

# Of what is read into plain objects: those of a body of the largest size take seconds
# and gigabytes. The API server's own limit of an object is 3 MiB.
MAX_TREE_BYTES: Final = 7 * 2**20

DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class TooLargeError(RuntimeError):
    """A call about more than a cluster can have; no ``ValueError``, for decoders."""


class _Key:
    """One occurrence of a key; equal to no other, so that a dict keeps them all."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


def _make_key(_kind: type, text: Any) -> _Key:
    return _Key(text)


_DECODER: Final = msgspec.json.Decoder(dict[_Key, msgspec.Raw], dec_hook=_make_key)

# More nodes than any cluster has. In so many bytes there can be too many keys.
MAX_KEYS: Final = 100_000

_COUNTED_BYTES: Final = 2**19

# What a key or a name takes, with its quotes and a comma.
_LEAST_BYTES: Final = 4


def _counting_decoder(
    max_nodes: int,
) -> msgspec.json.Decoder[dict[_Key, msgspec.Raw]]:
    """Return a decoder of one object that ends at too many keys.

    Millions of them take a minute, in which nobody else computes.
    """
    numbers = itertools.count(1)

    def make_key(kind: type, text: Any) -> _Key:
        number = next(numbers)
        if number > max_nodes:
            raise TooLargeError(f"wanted at most {max_nodes} nodes, got more")
        if number > MAX_KEYS:
            raise ValueError(f"wanted at most {MAX_KEYS} keys")
        return _make_key(kind, text)

    return msgspec.json.Decoder(dict[_Key, msgspec.Raw], dec_hook=make_key)


def split_object(
    raw: bytes | msgspec.Raw,
    path: str,
    faults: list[Fault],
    max_nodes: int = 2 * MAX_KEYS,
) -> list[tuple[str, msgspec.Raw]] | None:
    """Return keys and values of an object, in their order, repeated keys, too.

    None and a fault for what is no object; more than `max_nodes` keys, where they are
    names of nodes, raise `TooLargeError`.

    >>> pairs = split_object(b'{"a":1,"a":[2]}', "body", [])
    >>> [(key, bytes(value)) for key, value in pairs]
    [('a', b'1'), ('a', b'[2]')]
    """
    is_small = len(raw) < min(_COUNTED_BYTES, _LEAST_BYTES * max_nodes)
    decoder = _DECODER if is_small else _counting_decoder(max_nodes)
    try:
        return [(key.text, value) for key, value in decoder.decode(raw).items()]
    except DECODE_ERRORS as error:
        faults.append(Fault(path, decode_message(error)))
        return None


def fold_object(
    raw: bytes | msgspec.Raw, path: str, faults: list[Fault]
) -> dict[str, msgspec.Raw] | None:
    """Return the values of an object by lower-case key.

    None and a fault for what is no object, or has a key twice.
    """
    pairs = split_object(raw, path, faults)
    if pairs is None:
        return None
    folded = {key.lower(): value for key, value in pairs}
    if len(folded) != len(pairs):
        keys = ", ".join(key for key, _ in pairs)
        faults.append(Fault(path, f"wanted each key once, got {shorten(keys)}"))
        return None
    return folded


def check_count(raw: bytes | msgspec.Raw, mark: bytes, marks: int, wanted: str) -> None:
    """Raise `TooLargeError` if a mark stands there more often than `marks` times.

    PERF: counted in the bytes, before objects are made of all that they hold.
    """
    if len(raw) > marks and bytes(raw).count(mark) > marks:
        raise TooLargeError(f"wanted at most {wanted}, got more")


_METADATA: Final = b'"metadata"'

# The same key with any of its letters as an escape, which is as legal.
_ESCAPED_METADATA: Final = re.compile(
    b'"%b"' % b"".join(rb"(?:%c|\\u00(?i:%x))" % (c, c) for c in b"metadata")
)

# How the escape of a small letter begins; those that Go writes begin otherwise.
_ESCAPED_LETTERS: Final = (rb"\u006", rb"\u007")


def check_objects(raw: bytes | msgspec.Raw, most: int, wanted: str) -> None:
    """Raise `TooLargeError` if more than `most` objects have metadata.

    PERF: as `check_count`; only where letters are escaped, key by key.
    """
    check_count(raw, _METADATA, most, wanted)
    data = bytes(raw)
    if not any(start in data for start in _ESCAPED_LETTERS):
        return
    found = _ESCAPED_METADATA.finditer(data)
    if next(itertools.islice(found, most, None), None) is not None:
        raise TooLargeError(f"wanted at most {wanted}, got more")


def split_list(
    raw: msgspec.Raw,
    first: msgspec.json.Decoder[Any],
    path: str,
    faults: list[Fault],
) -> list[msgspec.Raw]:
    """Return the items of a list; none and a fault for what is no list.

    Parameters
    ----------
    first : msgspec.json.Decoder
        Of a list of what each item must have. A list of very many values is read by
        that first, which ends at the first item without it.
    """
    try:
        if bytes(raw).count(b",") > MAX_KEYS:
            first.decode(raw)
        return _ITEMS_DECODER.decode(raw)
    except DECODE_ERRORS as error:
        faults.append(Fault(path, decode_message(error)))
        return []


_ITEMS_DECODER: Final = msgspec.json.Decoder(list[msgspec.Raw])


def present(parts: dict[str, msgspec.Raw], key: str) -> msgspec.Raw | None:
    """Return a value, None where it is absent or null."""
    raw = parts.get(key)
    return None if raw is None or bytes(raw).strip() == b"null" else raw


def decode_message(error: Exception) -> str:
    """Return a decoder's message in the form of our own."""
    text = (str(error) or type(error).__name__).replace("`", "").removesuffix(" - at $")
    if text[:2].istitle():  # a sentence, not an acronym
        text = text[:1].lower() + text[1:]
    return text.replace("expected", "wanted", 1)


def read_tree(raw: msgspec.Raw, path: str, faults: list[Fault]) -> Any:
    """Return a value as plain objects; None and a fault if it is too large or deep."""
    size = len(raw)
    if size > MAX_TREE_BYTES:
        said_of_size = f"wanted at most {MAX_TREE_BYTES} bytes, got {size}"
        faults.append(Fault(path, said_of_size))
        return None
    try:
        return msgspec.json.decode(raw)
    except DECODE_ERRORS as error:
        faults.append(Fault(path, decode_message(error)))
        return None


def decode_pod(raw: msgspec.Raw | None, faults: list[Fault]) -> Pod | None:
    """Return the pod; add what is wrong with it to `faults`."""
    known = len(faults)
    tree = None if raw is None else read_tree(raw, "Pod", faults)
    if not isinstance(tree, dict):
        if len(faults) == known:
            got = "none" if raw is None else shorten(tree)
            faults.append(Fault("Pod", f"wanted an object, got {got}"))
        return None
    pod, found = convert_with_faults(tree, Pod)
    if pod is not None:
        found += [
            lack
            for lack in lacks_of(pod)
            if not any(_is_within(lack.path, fault.path) for fault in found)
        ]
    faults += [Fault(f"Pod.{fault.path}", fault.message) for fault in found]
    return pod


def lacks_of(pod: Pod) -> list[Fault]:
    """Return what every pod of an API server has and this one has not.

    Such a pod is some mistake of the caller. As one that asks for nothing it would
    pass on all nodes.
    """
    meta = pod.metadata
    if meta.name and meta.uid and pod.spec.containers:  # as always
        return []
    wanted = [
        ("metadata.name", "wanted a name, got none", meta.name),
        ("metadata.uid", "wanted a UID, got none", meta.uid),
        ("spec.containers", "wanted containers, got none", pod.spec.containers),
    ]
    return [Fault(path, text) for path, text, value in wanted if not value]


def _is_within(path: str, other: str) -> bool:
    """Whether one of two paths leads to the other."""
    return path.startswith(other) or other.startswith(path)
