"""Bound pods with what they hold, and pods that came or went lately."""

from collections import deque
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, Generic, TypeVar

import msgspec

from cluster.decode.objects import NodeRecord, OwnerReference, PodConstraints, PodRecord
from cluster.ledger.columns import GpuUse
from scoring.gpu.models import normal_name
from scoring.packing.learning import (
    MIN_SHIFT,
    NOBODY_EXPECTED,
    WINDOW,
    ExpectedPods,
    ExpectedShape,
    ShapeCounts,
    shift,
)
from scoring.packing.mig import read_state
from scoring.packing.shapes import (
    Shape,
    Told,
    free_thousandths,
    is_possible,
    shape_of,
    shared_gpus,
    told_shares,
)
from scoring.resources import NVIDIA_GPU, Request, is_whole_gpu
from scoring.topology.devices import CONTRADICTED, NOT_TOLD, free_set, has_unknown_ids

# Above this many changed pods the base of the overlay is built again.
MAX_OVERLAY: Final = 2048


_Value = TypeVar("_Value")


class OverlaidMap(Mapping[str, _Value]):
    """An immutable mapping: a large base under a small overlay.

    Publishing copies the overlay alone. In the overlay, None stands for an entry that
    is gone.
    """

    __slots__ = ("_base", "_overlay")

    def __init__(
        self, base: Mapping[str, _Value], overlay: Mapping[str, _Value | None]
    ) -> None:
        self._base = base
        self._overlay = overlay

    def __getitem__(self, key: str) -> _Value:
        value = self._overlay[key] if key in self._overlay else self._base[key]
        if value is None:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[str]:
        for key in self._base:
            if key not in self._overlay:
                yield key
        for key, value in self._overlay.items():
            if value is not None:
                yield key

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Overlaid(Generic[_Value]):
    """The mapping in the making; None stands for an entry that is gone."""

    def __init__(self) -> None:
        self._base: dict[str, _Value] = {}
        self.overlay: dict[str, _Value | None] = {}

    def publish(self) -> OverlaidMap[_Value]:
        """Return the mapping as it is now."""
        if len(self.overlay) > MAX_OVERLAY:
            self._base = dict(OverlaidMap(self._base, self.overlay))
            self.overlay = {}
        return OverlaidMap(self._base, dict(self.overlay))


class BoundPods:
    """Bound pods with a managed resource, and where those of each job are."""

    def __init__(self) -> None:
        self._pods = _Overlaid[PodRecord]()
        self._jobs = _Overlaid[Mapping[str, int]]()
        # node name -> the pods that are there, by UID
        self._on_node: dict[str, dict[str, PodRecord]] = {}
        # job -> node name -> how many of its pods are there
        self._of_job: dict[str, dict[str, int]] = {}
        self._changed_jobs: set[str] = set()

    def count(self, record: PodRecord, sign: int) -> None:
        """Take up (+1) or forget (-1) what a pod holds."""
        pods = self._on_node.setdefault(record.node_name, {})
        if sign > 0:
            pods[record.uid] = record
        else:
            pods.pop(record.uid, None)
        if not pods:
            del self._on_node[record.node_name]
        self._pods.overlay[record.uid] = record if sign > 0 else None
        if record.job:
            nodes = self._of_job.setdefault(record.job, {})
            nodes[record.node_name] = nodes.get(record.node_name, 0) + sign
            if not nodes[record.node_name]:
                del nodes[record.node_name]
            if not nodes:
                del self._of_job[record.job]
            self._changed_jobs.add(record.job)

    def use_of(self, node: NodeRecord) -> GpuUse:
        """Return which of the pods are on a node, and which GPUs they leave."""
        pods = self._on_node.get(node.name, {}).values()
        exclusive = sum(pod.gpu_requirements.is_exclusive for pod in pods)
        free = NOT_TOLD
        if node.links.layout is not None:
            free = free_set(
                node.links,
                dict(node.allocatable).get(NVIDIA_GPU, 0),
                ((dict(pod.request).get(NVIDIA_GPU, 0), pod.devices) for pod in pods),
            )
        mig = None
        if node.mig is not None:
            mig, is_contradicted = read_state(
                node.mig, ((pod.request, pod.devices) for pod in pods)
            )
            free = CONTRADICTED if is_contradicted else free
        free_shares, is_contradicted = self._free_shares_of(node)
        free = CONTRADICTED if is_contradicted else free
        return GpuUse(len(pods), exclusive, free, free_shares, mig)

    def _free_shares_of(self, node: NodeRecord) -> tuple[tuple[int, ...], bool]:
        """Return what is free of each GPU that a node shares.

        And whether what some pod is said to hold cannot be: it counts as not told.
        """
        shared = shared_gpus(node.allocatable, node.gpus.replicas)
        if not shared.count:
            return (), False
        holders: list[tuple[int, Told | None]] = []
        is_contradicted = False
        for pod in self._on_node.get(node.name, {}).values():
            held = shape_of(pod.request, shared.unit).total
            told = told_shares(pod.devices, node.links.ids)
            if (
                held
                and pod.devices is not None
                and not has_unknown_ids(pod.devices, node.links.ids)
            ):
                is_sound = told is not None and is_possible(told, pod.request, shared)
                told = told if is_sound else None
                is_contradicted |= not is_sound
            holders.append((held, told))
        return free_thousandths(shared.count, holders), is_contradicted

    def publish(self) -> Mapping[str, PodRecord]:
        """Return all of them as they are now, by UID."""
        return self._pods.publish()

    def publish_jobs(self) -> Mapping[str, Mapping[str, int]]:
        """Return how many pods of each job are on which nodes, as they are now."""
        for job in self._changed_jobs:
            nodes = self._of_job.get(job)
            # A copy: what is published stays as it is.
            self._jobs.overlay[job] = (
                None if nodes is None else MappingProxyType(dict(nodes))
            )
        self._changed_jobs.clear()
        return self._jobs.publish()


# More than come in the seconds that an admission can be in flight.
MAX_RECENT_PODS: Final = 4096

# More than kube-scheduler binds between two looks at them.
MAX_BINDINGS: Final = 1024


class BindingRecord(msgspec.Struct, frozen=True, gc=False):
    """A pod with a managed resource that was seen to get its node.

    ``sequence`` numbers the bindings of one ledger from 1.
    """

    sequence: int
    uid: str
    scheduler_name: str
    request: Request
    created: float = 0.0


class Bindings:
    """The latest bindings, numbered; owned by the ledger."""

    def __init__(self) -> None:
        self._latest: deque[BindingRecord] = deque(maxlen=MAX_BINDINGS)
        self._count = 0
        self._published: tuple[BindingRecord, ...] | None = ()

    def note(self, record: PodRecord) -> None:
        """Note a pod that had no node before."""
        self._count += 1
        self._latest.append(
            BindingRecord(
                self._count,
                record.uid,
                record.scheduler_name,
                record.request,
                record.created,
            )
        )
        self._published = None

    def publish(self) -> tuple[BindingRecord, ...]:
        """Return the bindings as they are now, oldest first."""
        if self._published is None:
            self._published = tuple(self._latest)
        return self._published


# More than go in the seconds for which a pod is assumed.
MAX_DEPARTED: Final = 1024


class RecentPodRecord(msgspec.Struct, frozen=True, gc=False):
    """A pod with a managed resource, as it was first seen.

    ``constraints`` are empty, and ``owner`` is None, for one that had a node already.
    """

    sequence: int
    namespace: str
    name: str
    generate_name: str
    owner_uid: str
    request: Request
    constraints: PodConstraints
    uid: str = ""
    owner: OwnerReference | None = None


class RecentPods:
    """The pods seen first most recently, numbered; owned by the ledger."""

    def __init__(self) -> None:
        self._latest: deque[RecentPodRecord] = deque(maxlen=MAX_RECENT_PODS)
        self._count = 0

    def note(self, record: PodRecord) -> None:
        """Note a pod that is seen for the first time."""
        self._count += 1
        self._latest.append(
            RecentPodRecord(
                self._count,
                record.namespace,
                record.name,
                record.generate_name,
                record.owner_uid,
                record.request,
                record.constraints,
                record.uid,
                record.owner,
            )
        )

    def publish(self) -> tuple[RecentPodRecord, ...]:
        """Return them as they are now, oldest first."""
        return tuple(self._latest)


# Pods after which it is looked whether the mix has changed: so many, or that part of
# those that were counted.
MIN_NEW_PODS: Final = 8

NEW_PART: Final = 1 / 64

# So many times the pods that a mix was learned from make it another one; at the latest
# as many more as count.
SURER: Final = 2


class Workload:
    """The mix of the pods that came, and are expected to come; owned by the ledger.

    A pod counts once, when it is first seen, whether it then finds a node or not.
    """

    def __init__(self) -> None:
        self._counts = ShapeCounts()
        # Those that are not counted yet: what a share is, nodes tell.
        self._new: list[PodRecord] = []
        self._since_renewed = 0
        self._since_published = 0
        self._published = NOBODY_EXPECTED

    def note(self, record: PodRecord) -> None:
        """Note a pod that is seen for the first time."""
        self._new.append(record)

    def publish(self, unit: int) -> ExpectedPods:
        """Return the mix, the same one until it has changed much.

        `unit` is how many thousandths of a GPU a share is.
        """
        for record in self._new:
            self._counts.add(expected_shape(record, unit))
        self._since_renewed += len(self._new)
        self._since_published += len(self._new)
        self._new.clear()
        pods = self._counts.pods
        # PERF: at first after every few pods, then after ever more.
        if self._since_renewed >= max(MIN_NEW_PODS, NEW_PART * pods):
            self._since_renewed = 0
            before, asked = self._published, self._counts.asked()
            parts = self._counts.renewed(before.parts)
            # What few pods say of models counts for little: how many have come, too,
            # is part of a mix that insists on some.
            is_surer = any(kind.is_picky for kind in asked) and (
                self._since_published >= min((SURER - 1) * before.pods, WINDOW)
            )
            is_asked_otherwise = shift(before.asked or {}, asked) > MIN_SHIFT
            if is_surer or is_asked_otherwise or parts is not before.parts:
                self._since_published = 0
                self._published = ExpectedPods(parts, pods, asked)
        return self._published


# Pods without GPUs are all alike to GPUs.
_WITHOUT_GPUS: Final = ExpectedShape(Shape(0, 0))


def expected_shape(record: PodRecord, unit: int) -> ExpectedShape:
    """Return the shape of a pod, and which GPU models it accepts."""
    shape = shape_of(record.request, unit)
    if not shape.gpus:
        return _WITHOUT_GPUS
    wanted = record.gpu_requirements
    return ExpectedShape(
        shape,
        frozenset(map(normal_name, wanted.types or record.selected_models)),
        frozenset(map(normal_name, wanted.excluded)),
        wanted.wants_whole_gpus
        and any(is_whole_gpu(name) for name, _ in record.request),
    )


class Departures:
    """UIDs of the pods that ended or were deleted last; owned by the ledger."""

    def __init__(self) -> None:
        self._latest: deque[str] = deque(maxlen=MAX_DEPARTED)
        self._published: frozenset[str] | None = frozenset()

    def note(self, record: PodRecord) -> None:
        """Note a pod that has ended or is gone, by its last record before that."""
        if record.is_managed and not record.is_terminal:
            self._latest.append(record.uid)
            self._published = None

    def publish(self) -> frozenset[str]:
        """Return the UIDs as they are now."""
        if self._published is None:
            self._published = frozenset(self._latest)
        return self._published
