"""Warnings for pods that ask more than the largest node or a LimitRange allows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final, TypeAlias

import numpy as np

from cluster.decode.gpu_requirements import GpuRequirementsReader
from cluster.ledger.writer import NotSyncedError, SnapshotSource
from injector.admitted_pod import AdmittedPod
from injector.resources.containers import NOTHING, ContainerAmounts, read_containers
from scoring.gpu.requirements import GpuRequirements
from scoring.gpu.suitability import Suitability, suitability
from scoring.protocols import LimitMaxima
from scoring.quantity import format_quantity, scale_of, shorten
from scoring.resources import (
    BYTE_RESOURCES,
    STANDARD_RESOURCES,
    Remembered,
    Request,
    ResourceScope,
)
from scoring.snapshot import BoolArray, Snapshot

_MAX_KNOWN: Final = 1024

# GPU resources and their counts, and what the pod wants of the GPUs
_Wanted: TypeAlias = tuple[Request, GpuRequirements]


@dataclass(frozen=True, slots=True)
class _Offer:
    """The most of each standard resource that nodes with such GPUs offer.

    Attributes
    ----------
    is_of_kind : bool
        Whether only nodes with the GPUs that are wanted were looked at.
    """

    amounts: Mapping[str, int]
    is_of_kind: bool


@dataclass(frozen=True, slots=True)
class _Largest:
    """Most that the nodes with the GPUs that are wanted offer, in one snapshot.

    Attributes
    ----------
    by_gpus : dict
        What is wanted -> what is offered, where there are such nodes.
    """

    generation: int
    by_gpus: dict[_Wanted, _Offer] = field(default_factory=dict)


class CapacityCheck:
    """Compares a pod with what the nodes that have GPUs as it wants offer at most.

    It never refuses: a larger node may be on its way. Cordoned nodes and nodes that are
    not ready count, too. Any thread may call it.
    """

    def __init__(
        self,
        source: SnapshotSource,
        scope: ResourceScope,
        gpu_reader: GpuRequirementsReader,
    ) -> None:
        self._source = source
        self._gpu_reader = gpu_reader
        self._is_gpu = Remembered(scope.is_gpu).__getitem__
        # PERF: the nodes change seldom, and pods ask alike.
        self._largest = _Largest(-1)

    def apply(self, pod: AdmittedPod) -> tuple[str, ...]:
        """Return the warnings; change nothing."""
        try:
            snapshot = self._source.current()
        except NotSyncedError:
            return ()
        request = pod.request
        gpus = tuple(item for item in request if self._is_gpu(item[0]))
        if not gpus:
            return ()
        gpu_requirements = self._gpu_reader.read_kept(pod.annotations).gpu_requirements
        most = self._most(snapshot, (gpus, gpu_requirements))
        if most is None:
            return ()
        asked = dict(request)
        of_its_kind = " of the kind it wants" if most.is_of_kind else ""
        return tuple(
            f"{name} {_format_whole(name, asked[name])} is more than the"
            f" {_format_whole(name, offered)} that the largest node with"
            f" {_listed(gpus)}{of_its_kind} offers; it will stay pending"
            for name, offered in most.amounts.items()
            if asked.get(name, 0) > offered
        )

    def _most(self, snapshot: Snapshot, wanted: _Wanted) -> _Offer | None:
        """Return the most that a node with these GPUs offers, None if there is none."""
        largest = self._largest
        if largest.generation != snapshot.generation:
            largest = self._largest = _Largest(snapshot.generation)
        try:
            return largest.by_gpus[wanted]
        except KeyError:
            most = _largest_offer(snapshot, *wanted)
        # What no node has may be named at any length, by a pod that nobody has checked.
        if most is not None and len(largest.by_gpus) < _MAX_KNOWN:
            largest.by_gpus[wanted] = most
        return most


def _largest_offer(
    snapshot: Snapshot, gpus: Request, gpu_requirements: GpuRequirements
) -> _Offer | None:
    """Return what the nodes offer that have the type that the pod names.

    Where none is known to have a type that is only preferred, all that will do count.
    """
    named = replace(
        gpu_requirements, types=gpu_requirements.types or gpu_requirements.preferred
    )
    for wanted in dict.fromkeys((named, gpu_requirements)):
        most = _most_offered(snapshot, gpus, wanted)
        if most is not None:
            return _Offer(most, wanted.is_of_gpus)
    return None


def _most_offered(
    snapshot: Snapshot, gpus: Request, gpu_requirements: GpuRequirements
) -> Mapping[str, int] | None:
    """Return standard resource -> the most of it beside so many GPUs."""
    fitting = _suiting(snapshot, gpus, gpu_requirements)
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


def _suiting(
    snapshot: Snapshot, asked: Request, gpu_requirements: GpuRequirements
) -> BoolArray:
    """Return which nodes' GPUs are what is wanted of them, shape (N,)."""
    gpus = snapshot.gpus
    kinds = [suitability(kind, gpu_requirements, asked) for kind in gpus.kinds]
    suits: BoolArray = np.array(kinds) == Suitability.SUITS
    return suits[gpus.codes]


def _listed(gpus: Request) -> str:
    """Return counts and names as text."""
    return ", ".join(f"{count} {name}" for name, count in gpus)


def _format_whole(resource: str, amount: int) -> str:
    """Return base units of `resource` as text."""
    return _format(resource, Fraction(amount, scale_of(resource)))


def _format(resource: str, amount: Fraction) -> str:
    """Return cores, bytes or pieces of `resource` as text."""
    return format_quantity(amount, is_binary=resource in BYTE_RESOURCES)


@dataclass(frozen=True, slots=True)
class LimitCheck:
    """Says with both numbers why LimitRanger will refuse what was injected.

    It never refuses: that is LimitRanger's business, whose check comes after ours.
    """

    source: SnapshotSource
    scope: ResourceScope

    def apply(self, pod: AdmittedPod) -> tuple[str, ...]:
        """Return the warnings; change nothing."""
        try:
            maxima = self.source.current().limit_maxima.get(pod.identity.namespace)
        except NotSyncedError:
            return ()
        if maxima is None:
            return ()
        if not any(map(self.scope.is_gpu, pod.asked_resources())):
            return ()
        containers = read_containers(pod.decoded)
        running = (*containers.regular, *containers.sidecars)
        return tuple(_limit_warnings(running, maxima))


def _limit_warnings(
    containers: Sequence[ContainerAmounts], maxima: LimitMaxima
) -> Iterator[str]:
    """Yield a warning for each maximum that is exceeded."""
    for container in containers:
        amounts = {name: _most(container, name) for name, _ in maxima.container}
        yield from _exceeded(
            f"container {shorten(container.name)}", amounts, maxima.container
        )
    total = {
        name: sum((_most(item, name) for item in containers), NOTHING)
        for name, _ in maxima.pod
    }
    yield from _exceeded("the pod", total, maxima.pod)


def _most(container: ContainerAmounts, resource: str) -> Fraction:
    """Return the larger of request and limit."""
    return max(
        container.requests.get(resource, NOTHING),
        container.limits.get(resource, NOTHING),
    )


def _exceeded(
    what: str, amounts: dict[str, Fraction], maxima: Request
) -> Iterator[str]:
    """Yield a warning for each amount above its maximum."""
    for name, most in maxima:
        limit = Fraction(most, scale_of(name))
        if amounts[name] > limit:
            yield (
                f"{what}: {name} {_format(name, amounts[name])} is more than the"
                f" {_format(name, limit)} that a LimitRange allows; it will be refused:"
                " ask for less, or have its max raised"
            )
