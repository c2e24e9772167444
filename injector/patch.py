"""The JSON patch between a pod as it came and as it shall be."""

import json
from typing import Any

import jsonpatch

from cluster.decode import Fault
from injector.review import ReviewError


def json_patch(before: Any, after: Any) -> list[dict[str, Any]]:
    """Return the RFC 6902 operations that turn `before` into `after`.

    Each operation stands by itself: `optimization`, which would join a removal and an
    addition to a move, is off, so that a reader of the audit log sees the values.
    Equal input gives equal operations in equal order.
    Raises `ReviewError` if the documents are nested too deeply to compare.
    """
    try:
        patch: list[dict[str, Any]] = jsonpatch.JsonPatch.from_diff(
            before, after, optimization=False
        ).patch
    except RecursionError as error:
        raise ReviewError([Fault("request.object", "nested too deeply")]) from error
    return patch


def encode_patch(operations: list[dict[str, Any]]) -> bytes:
    """Return the bytes of a patch; none when nothing changes."""
    if not operations:
        return b""
    # Not msgspec: it refuses the integers above 64 bits that it decodes.
    return json.dumps(operations, separators=(",", ":")).encode()
