"""The note on a pod of what was filled in, for the review after another webhook's turn.

The API server has a pod reviewed again when another webhook has changed it. Where what
is set is kept, the second review must know what was set by the first: only that may
follow the pod as it has become.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from injector.containers import LIMITS, REQUESTS

FILLED_ANNOTATION: Final = "gpu-extender.io/filled"
# container -> `requests` or `limits` -> resource -> quantity
Filled: TypeAlias = dict[str, dict[str, dict[str, str]]]


def note_of(filled: Filled) -> str:
    """Return the value of the annotation."""
    return msgspec.json.encode(filled).decode()


def still_filled(
    containers: Sequence[Mapping[str, Any]], annotations: Mapping[str, str]
) -> frozenset[tuple[str, str, str]]:
    """Return what an earlier review filled in and nobody has changed since.

    Parameters
    ----------
    containers : sequence of mapping
        The regular ones as decoded from JSON.
    annotations : mapping
        Of the pod. A note that cannot be read says nothing.

    Returns
    -------
    frozenset of (str, str, str)
        Container name, ``requests`` or ``limits``, resource.
    """
    text = annotations.get(FILLED_ANNOTATION)
    if not text:
        return frozenset()
    try:
        note = msgspec.json.decode(text, type=Filled)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return frozenset()
    return frozenset(
        (name, side, resource)
        for container in containers
        for name in [container.get("name", "")]
        # What it asks is looked up in the note: containers of one name share an entry.
        for side, amounts in _asked(container).items()
        for resource, quantity in amounts.items()
        if quantity is not None
        and note.get(name, {}).get(side, {}).get(resource) == quantity
    )


def _asked(container: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what a container asks now, as `Filled` has it."""
    resources = container.get("resources") or {}
    return {side: resources.get(side) or {} for side in (REQUESTS, LIMITS)}
