"""A warning for pods that are larger than any node they could go to."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np

from cluster.cache import NotSyncedError, SnapshotSource
from injector.facts import PodFacts
from injector.quantities import format_quantity
from injector.review import read_pod
from scoring.pod_request import effective_request
from scoring.resources import (
    BYTE_RESOURCES,
    STANDARD_RESOURCES,
    ResourceScope,
    scale_of,
)
from scoring.snapshot import Snapshot

_Request = dict[str, int]
_BINARY: Final = frozenset(BYTE_RESOURCES)


@dataclass(frozen=True, slots=True)
class CapacityCheck:
    """Compares a pod with what the nodes that have its GPUs offer at most.

    It never refuses: a larger node may be on its way. Cordoned nodes and nodes that are
    not ready count, too.

    Attributes
    ----------
    source : SnapshotSource
    scope : ResourceScope
    """

    source: SnapshotSource
    scope: ResourceScope

    def apply(self, pod: dict[str, Any], facts: PodFacts) -> tuple[str, ...]:
        """Return the warnings; change nothing."""
        del facts
        try:
            snapshot = self.source.current()
        except NotSyncedError:
            return ()
        request: _Request = dict(
            effective_request(
                read_pod(pod).spec, self.scope.is_tracked, lambda _path, _error: None
            )
        )
        gpus = {name: request[name] for name in request if self.scope.is_gpu(name)}
        return tuple(_warnings(snapshot, request, gpus)) if gpus else ()


def _warnings(snapshot: Snapshot, request: _Request, gpus: _Request) -> Iterator[str]:
    """Yield a warning for each resource of which no node offers enough."""
    rows = {name: snapshot.row_of(name) for name in (*gpus, *STANDARD_RESOURCES)}
    fitting = np.ones(len(snapshot.nodes.names), dtype=np.bool_)
    for name, count in gpus.items():
        row = rows[name]
        if row is None:
            return
        fitting &= snapshot.allocatable[row] >= count
    if not fitting.any():
        return
    wanted = ", ".join(f"{count} {name}" for name, count in gpus.items())
    for name in STANDARD_RESOURCES:
        row = rows[name]
        if row is None or name not in request:
            continue
        most = int(snapshot.allocatable[row][fitting].max())
        if request[name] > most:
            yield (
                f"{name} {_said(name, request[name])} is more than the"
                f" {_said(name, most)} that the largest node with {wanted} offers"
            )


def _said(resource: str, amount: int) -> str:
    """Return base units of `resource` as text."""
    return format_quantity(
        Fraction(amount, scale_of(resource)), is_binary=resource in _BINARY
    )
