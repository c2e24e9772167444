"""The copy of a pod that steps change, and the JSON patch back from it."""

import json
from collections.abc import Callable
from typing import Any, TypeAlias

import jsonpatch
import msgspec

from injector.review import ReviewError, copy_of
from scoring.faults import Fault

Operation: TypeAlias = dict[str, Any]


def json_patch(before: Any, after: Any) -> list[Operation]:
    """Return the RFC 6902 operations that turn `before` into `after`.

    Each operation stands by itself: no removal and addition are joined to a move, so
    that a reader of the audit log sees the values.
    Equal input gives equal operations in equal order.
    Raises `ReviewError` if the documents are nested too deeply to compare.

    Notes
    -----
    PERF: jsonpatch compares every value of both documents, at ten times the cost of
    the whole rest of a review (`bench/injector/test_reviews.py`). Its operations and
    their order are kept; it is asked where lists are to be matched up. Python's ``==``
    decides what has changed: no step writes a number in place of an equal one, or of a
    bool.
    """
    found: list[Operation] = []
    try:
        if before != after:
            _compare("", before, after, found)
    except RecursionError as error:
        raise ReviewError([Fault("request.object", "nested too deeply")]) from error
    return found


def encode_patch(operations: list[Operation]) -> bytes:
    """Return the bytes of a patch; none when nothing changes."""
    if not operations:
        return b""
    try:
        return msgspec.json.encode(operations)
    except (OverflowError, UnicodeEncodeError):
        # Integers above 64 bits, half of a surrogate pair in a rule's annotation.
        return json.dumps(operations, separators=(",", ":")).encode()


def _compare(path: str, old: Any, new: Any, found: list[Operation]) -> None:
    """Add the operations at and under `path` to `found`; the two values differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        _compare_objects(path, old, new, found)
    elif isinstance(old, list) and isinstance(new, list):
        _compare_lists(path, old, new, found)
    else:
        found.append({"op": "replace", "path": path, "value": new})


def _compare_objects(
    path: str, old: dict[str, Any], new: dict[str, Any], found: list[Operation]
) -> None:
    """Add removals, additions, then what has changed inside, as jsonpatch does."""
    if old.keys() != new.keys():
        found += [
            {"op": "remove", "path": _pointer_to(path, key)}
            for key in old
            if key not in new
        ]
        found += [
            {"op": "add", "path": _pointer_to(path, key), "value": value}
            for key, value in new.items()
            if key not in old
        ]
    for key, value in old.items():
        changed = new.get(key, value)
        if changed is not value and changed != value:
            _compare(_pointer_to(path, key), value, changed, found)


def _compare_lists(
    path: str, old: list[Any], new: list[Any], found: list[Operation]
) -> None:
    """Add the operations of two lists; containers stay in their places."""
    common = len(old)
    if len(new) >= common and all(map(_is_paired, old, new)):
        for index, item in enumerate(old):
            if item != new[index]:
                _compare(f"{path}/{index}", item, new[index], found)
        found += [
            {"op": "add", "path": f"{path}/{index}", "value": new[index]}
            for index in range(common, len(new))
        ]
        return
    matched = jsonpatch.JsonPatch.from_diff(old, new, optimization=False).patch
    found += [{**operation, "path": path + operation["path"]} for operation in matched]


def _is_paired(old: Any, new: Any) -> bool:
    """Whether two items of a list are one and the same, changed or not."""
    if isinstance(old, dict) and isinstance(new, dict):
        return bool(old.get("name") == new.get("name"))
    return bool(old == new)


def _pointer_to(path: str, key: str) -> str:
    """Return the pointer to a member of an object."""
    if "/" in key or "~" in key:
        key = key.replace("~", "~0").replace("/", "~1")
    return f"{path}/{key}"


def draft_of(pod: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a pod that shares with it what no step changes.

    A draft has its own metadata and annotations, and of the spec its own affinity,
    tolerations and resources, those of containers, too.

    Parameters
    ----------
    pod : dict
        One that `decode_pod` takes.

    Notes
    -----
    PERF: what is shared is neither copied nor compared for the patch;
    `bench/injector/test_reviews.py`.
    """
    return _copied(pod, metadata=_draft_metadata, spec=_draft_spec)


def _draft_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    return _copied(metadata, annotations=dict)


def _draft_spec(spec: dict[str, Any]) -> dict[str, Any]:
    return _copied(
        spec,
        containers=_draft_containers,
        initContainers=_draft_containers,
        resources=_draft_resources,
        affinity=copy_of,
        tolerations=list,
    )


def _draft_containers(containers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [_copied(container, resources=_draft_resources) for container in containers]


def _draft_resources(resources: dict[str, Any]) -> dict[str, Any]:
    return _copied(resources, requests=dict, limits=dict)


def _copied(parent: dict[str, Any], **copies: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a copy of an object, with copies of those members that are named."""
    copied = dict(parent)
    for key, copy in copies.items():
        if parent.get(key) is not None:
            copied[key] = copy(parent[key])
    return copied


def member_of(parent: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the object under `key`, made if it is absent or null."""
    if parent.get(key) is None:
        parent[key] = {}
    member: dict[str, Any] = parent[key]
    return member
