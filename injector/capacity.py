"""A warning for pods that are larger than any node they could go to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

import numpy as np

from cluster.cache import NotSyncedError, SnapshotSource
from injector.facts import PodFacts
from injector.quantities import format_quantity
from injector.review import read_pod
from scoring.objects import Request
from scoring.pod_request import effective_request
from scoring.resources import (
    BYTE_RESOURCES,
    STANDARD_RESOURCES,
    Remembered,
    ResourceScope,
    scale_of,
)
from scoring.snapshot import Snapshot

_BINARY: Final = frozenset(BYTE_RESOURCES)
_MAX_KNOWN: Final = 1024


@dataclass(frozen=True, slots=True)
class _Largest:
    """What the nodes with so many GPUs offer at most, in one snapshot.

    Attributes
    ----------
    generation : int
    by_gpus : dict
        GPU resources and counts -> standard resource -> amount; None for no such node.
    """

    generation: int
    by_gpus: dict[Request, Mapping[str, int] | None] = field(default_factory=dict)


class CapacityCheck:
    """Compares a pod with what the nodes that have its GPUs offer at most.

    It never refuses: a larger node may be on its way. Cordoned nodes and nodes that are
    not ready count, too. Any thread may call it.

    Parameters
    ----------
    source : SnapshotSource
    scope : ResourceScope
    """

    def __init__(self, source: SnapshotSource, scope: ResourceScope) -> None:
        self._source = source
        self._is_tracked = Remembered(scope.is_tracked).__getitem__
        self._is_gpu = Remembered(scope.is_gpu).__getitem__
        # PERF: the nodes change seldom, and pods ask alike.
        self._largest = _Largest(-1)

    def apply(self, pod: dict[str, Any], facts: PodFacts) -> tuple[str, ...]:
        """Return the warnings; change nothing."""
        del facts
        try:
            snapshot = self._source.current()
        except NotSyncedError:
            return ()
        request = effective_request(
            read_pod(pod).spec, self._is_tracked, lambda _path, _error: None
        )
        gpus = tuple(item for item in request if self._is_gpu(item[0]))
        most = self._most(snapshot, gpus) if gpus else None
        if most is None:
            return ()
        asked = dict(request)
        return tuple(
            f"{name} {_said(name, asked[name])} is more than the"
            f" {_said(name, offered)} that the largest node with {_listed(gpus)} offers"
            for name, offered in most.items()
            if asked.get(name, 0) > offered
        )

    def _most(self, snapshot: Snapshot, gpus: Request) -> Mapping[str, int] | None:
        """Return the most that a node with these GPUs offers, None if there is none."""
        largest = self._largest
        if largest.generation != snapshot.generation:
            largest = self._largest = _Largest(snapshot.generation)
        if gpus in largest.by_gpus:
            return largest.by_gpus[gpus]
        most = _most_offered(snapshot, gpus)
        if len(largest.by_gpus) < _MAX_KNOWN:
            largest.by_gpus[gpus] = most
        return most


def _most_offered(snapshot: Snapshot, gpus: Request) -> Mapping[str, int] | None:
    """Return standard resource -> the most of it beside so many GPUs."""
    fitting = np.ones(len(snapshot.nodes.names), dtype=np.bool_)
    for name, count in gpus:
        row = snapshot.row_of(name)
        if row is None:
            return None
        fitting &= snapshot.allocatable[row] >= count
    if not fitting.any():
        return None
    rows = {name: snapshot.row_of(name) for name in STANDARD_RESOURCES}
    return {
        name: int(snapshot.allocatable[row][fitting].max())
        for name, row in rows.items()
        if row is not None
    }


def _listed(gpus: Request) -> str:
    """Return counts and names as text."""
    return ", ".join(f"{count} {name}" for name, count in gpus)


def _said(resource: str, amount: int) -> str:
    """Return base units of `resource` as text."""
    return format_quantity(
        Fraction(amount, scale_of(resource)), is_binary=resource in _BINARY
    )
