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


def have_own_names(containers: Sequence[Mapping[str, Any]]) -> bool:
    """Say whether a note can tell the containers apart.

    The API server refuses the pod if not, but only once all webhooks have seen it.
    """
    names = [container.get("name") for container in containers]
    return all(names) and len(set(names)) == len(names)


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
    if not text or not have_own_names(containers):
        return frozenset()
    try:
        note = msgspec.json.decode(text, type=Filled)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return frozenset()
    return frozenset(
        (name, side, resource)
        for container in containers
        for name in [container["name"]]
        for side, amounts in _asked(container).items()
        for resource, quantity in amounts.items()
        if quantity is not None
        # A quantity may be a number in a manifest.
        and note.get(name, {}).get(side, {}).get(resource) == str(quantity)
    )


def _asked(container: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what a container asks now, as `Filled` has it."""
    resources = container.get("resources") or {}
    return {side: resources.get(side) or {} for side in (REQUESTS, LIMITS)}
