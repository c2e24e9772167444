"""Warnings for GPU resources that no node has, or not as many, large or linked."""

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from cluster.decode.gpu_requirements import GpuRequirementsReader
from cluster.ledger.writer import NotSyncedError, SnapshotSource
from injector.admitted_pod import AdmittedPod
from scoring.quantity import shorten, show_bytes
from scoring.resources import Remembered, ResourceScope, is_part
from scoring.snapshot import Snapshot

_MAX_SHOWN: Final = 3

_MAX_WARNINGS: Final = 4


@dataclass(frozen=True, slots=True)
class _Offers:
    """The managed resources that nodes of one snapshot offer, and the most of each."""

    generation: int
    most: dict[str, int]


class OfferCheck:
    """Says that no node has what a pod asks, and what is near or what there is.

    It never refuses: such a node may be on its way. Any thread may call it.
    """

    def __init__(
        self,
        source: SnapshotSource,
        scope: ResourceScope,
        gpu_reader: GpuRequirementsReader,
    ) -> None:
        self._source = source
        self._gpu_reader = gpu_reader
        self._is_managed = Remembered(scope.is_managed).__getitem__
        # PERF: the nodes change more seldom than pods come.
        self._offers = _Offers(-1, {})

    def apply(self, pod: AdmittedPod) -> tuple[str, ...]:
        """Return the warnings; change nothing."""
        try:
            snapshot = self._source.current()
        except NotSyncedError:
            return ()
        if not snapshot.nodes.names:
            return ()
        asked = [item for item in pod.request if self._is_managed(item[0])]
        if not asked:
            return ()
        most = self._most(snapshot)
        found: list[str] = []
        for name, count in asked[:_MAX_WARNINGS]:
            if name in snapshot.device_class_resources:
                continue
            if name not in most:
                found.append(_not_offered(name, most))
            elif count > most[name]:
                found.append(
                    f"no node has {count} {name}: the largest has {most[name]}; ask for"
                    " fewer in one pod"
                )
            else:
                found += self._never_linked(name, pod)
                found += self._too_small(snapshot, name, pod)
        return tuple(found)

    def _most(self, snapshot: Snapshot) -> dict[str, int]:
        """Return resource -> the most that one node has of it."""
        offers = self._offers
        if offers.generation != snapshot.generation:
            most = {
                name: int(snapshot.allocatable[row].max())
                for row, name in enumerate(snapshot.resources)
                if self._is_managed(name) and snapshot.offered[row].any()
            }
            offers = self._offers = _Offers(snapshot.generation, most)
        return offers.most

    def _never_linked(self, name: str, pod: AdmittedPod) -> Iterator[str]:
        """Yield that parts of GPUs are wanted linked."""
        requirements = self._gpu_reader.read_kept(pod.annotations).gpu_requirements
        is_required = requirements.linked == "required"
        if is_part(name) and is_required and requirements.wants_whole_gpus:
            yield (
                f"annotation {self._gpu_reader.annotations.linked}: {shorten(name)} are"
                " parts of GPUs, which are never linked: no node will do"
            )

    def _too_small(
        self, snapshot: Snapshot, name: str, pod: AdmittedPod
    ) -> Iterator[str]:
        """Yield that no node's GPUs have the memory that is wanted."""
        requirements = self._gpu_reader.read_kept(pod.annotations).gpu_requirements
        row = snapshot.row_of(name)
        if not requirements.min_memory or row is None:
            return
        codes = np.unique(snapshot.gpus.codes[snapshot.offered[row]])
        largest = max(snapshot.gpus.kinds[code].memory_of(name).high for code in codes)
        if largest < requirements.min_memory:
            annotation = self._gpu_reader.annotations.min_memory
            yield (
                f"annotation {annotation}: no node has {name} of"
                f" {show_bytes(requirements.min_memory)}, the largest have"
                f" {show_bytes(largest)}"
            )


def _not_offered(name: str, most: dict[str, int]) -> str:
    """Return the warning of a resource that no node offers."""
    said = f"no node offers {shorten(name)}"
    near = difflib.get_close_matches(name[:128], list(most), 1, 0.8)
    if near:
        return f"{said}; did you mean {near[0]}?"
    if not most:
        return f"{said}, nor any other GPU resource"
    shown = ", ".join(sorted(most)[:_MAX_SHOWN])
    more = ", ..." if len(most) > _MAX_SHOWN else ""
    return f"{said}; there are {shown}{more}"
