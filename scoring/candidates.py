"""`Candidates`: the columns of a snapshot that one request asks about."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np

from scoring.gpu.node_gpus import NO_GPUS, NodeGpus
from scoring.gpu.requirements import NO_GPU_REQUIREMENTS, GpuRequirements
from scoring.packing.learning import ExpectedPods
from scoring.packing.mig import without_pod
from scoring.packing.shapes import MAX_CPU, MAX_DEVICES, WHOLE, Shape, shape_of
from scoring.packing.workload import FreeCapacity
from scoring.protocols import BoundPod
from scoring.resources import (
    CPU,
    MIG_PREFIX,
    NVIDIA_GPU,
    Request,
    ResourceScope,
    is_of_gpus,
    is_part,
    is_whole_gpu,
    vendor_of,
)
from scoring.snapshot import (
    BoolArray,
    Float64Array,
    GpuSupply,
    IndexArray,
    Int64Array,
    LabelColumn,
    ObjectArray,
    Snapshot,
    build_node_index,
    read_only,
)
from scoring.topology.devices import UNKNOWN_LINKS, LinkKind, held_set

# GPUs of the asked vendor under names of parts; other GPUs, or GPUs of others; a label
# that tells of GPUs of the asked vendor.
PARTS: Final = 1

OTHERS: Final = 2

LABELLED: Final = 4

# Pods that differ in nothing else get the same results.
RequestKey: TypeAlias = tuple[Request, str, str | None, GpuRequirements, int | None]


@dataclass(frozen=True, slots=True)
class PodRequest:
    """Request of one pod, as nodes are judged by it.

    Attributes
    ----------
    uid : str
        Namespace and name for a pod without one, empty for one without a name, too.
    request : tuple of (str, int)
        The managed part of its effective request.
    primary : str
        Its own GPU resource; empty where it asks for nothing that we manage.
    accelerator : str or None
        ``nodeSelector.accelerator``.
    nominated_node : str
        ``status.nominatedNodeName``; empty for none.
    gpu_requirements : GpuRequirements
        What it wants of the GPUs themselves.
    job : str
        That of its siblings, as in `Snapshot.jobs`; empty for none. Not in
        `request_key`: it matters on nodes alone that `Candidates.nearness` tells apart.
    cpu : int or None
        Millicores, where a score goes by them; else None.
    """

    uid: str
    request: Request
    primary: str
    accelerator: str | None
    nominated_node: str
    gpu_requirements: GpuRequirements = NO_GPU_REQUIREMENTS
    job: str = ""
    cpu: int | None = None

    @property
    def amount(self) -> int:
        """Requested amount of the pod's own GPU resource, in base units."""
        return dict(self.request).get(self.primary, 0)

    @property
    def request_key(self) -> RequestKey:
        """Key of results: equal for pods that are judged alike."""
        return (
            self.request,
            self.primary,
            self.accelerator,
            self.gpu_requirements,
            self.cpu,
        )

    def shape(self, unit: int) -> Shape:
        """Return its shape, where a share is so many thousandths of a GPU."""
        return shape_of((*self.request, (CPU, self.cpu or 0)), unit)

    @property
    def gpus(self) -> int:
        """Number of whole GPUs that the pod requests."""
        return self.amount if is_whole_gpu(self.primary) else 0

    @property
    def reads_gpus(self) -> bool:
        """Whether results depend on the kind of a node's GPUs."""
        return self.gpu_requirements.names_gpus or self.gpus > 1

    @property
    def reads_links(self) -> bool:
        """Whether results depend on which of a node's GPUs are free."""
        return self.primary == NVIDIA_GPU and self.amount > 0

    @property
    def mig_instances(self) -> Request:
        """Profiles of the MIG instances that the pod requests, and how many of each."""
        return tuple(
            (name.removeprefix(MIG_PREFIX), amount)
            for name, amount in self.request
            if name.startswith(MIG_PREFIX)
        )


def primary_resource(request: Request, scope: ResourceScope) -> str:
    """Return the pod's own GPU resource: whole GPUs first, then by name.

    A pod without any takes the first other managed resource; with none of those
    either, the empty string.
    """
    names = [name for name, _ in request]
    gpus = [name for name in names if scope.is_gpu(name)]
    whole = [name for name in gpus if is_whole_gpu(name)]
    return next(iter(whole or gpus or names), "")


@dataclass(frozen=True, slots=True, eq=False)
class Capacity:
    """What C candidates have for a pod of one shape and for those that come after it.

    Attributes
    ----------
    units : int64 array, shape (C,)
        Thousandths of a GPU that a share is on each node; where it shares none, on most
        nodes that do.
    shapes : mapping
        unit -> shape of the pod there, of each unit in `units`
    free : FreeCapacity
        C nodes; the asking pod's own share is free.
    allocatable_cpu : int64 array, shape (C,)
        Millicores.
    device_count : int64 array, shape (C,)
        GPUs of each node.
    supply : GpuSupply
        Of the cluster.
    expected : ExpectedPods
        As learned.
    """

    units: Int64Array
    shapes: Mapping[int, Shape]
    free: FreeCapacity
    allocatable_cpu: Int64Array
    device_count: Int64Array
    supply: GpuSupply
    expected: ExpectedPods

    def shape_at(self, index: int) -> Shape:
        """Return the shape of the pod on one candidate."""
        return self.shapes[int(self.units[index])]

    def by_shape(self) -> Iterator[tuple[Shape, slice | IndexArray]]:
        """Yield each shape that the pod has on some candidate, and on which."""
        found = sorted(set(self.shapes.values()), key=lambda shape: shape.total)
        if len(found) == 1:  # PERF: as nearly always
            yield found[0], slice(None)
            return
        for shape in found:
            units = [unit for unit, one in self.shapes.items() if one == shape]
            yield shape, np.flatnonzero(np.isin(self.units, units))


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Columns of C candidates, as far as one pod's request needs them.

    The rows of the tables are the pod's Q requested resources, in its order. The
    asking pod's own request is already taken out of `requested`.

    Attributes
    ----------
    known : bool array, shape (C,)
        False where the snapshot has no such node; the other arrays mean nothing there.
    columns : index array, shape (C,)
        Column of each node in the snapshot.
    allocatable, requested : int64 array, shape (Q, C)
        In base units.
    offered : bool array, shape (Q, C)
        True where capacity or allocatable is above 0, or a DeviceClass carries it.
    claimed : bool array, shape (Q, C)
        True where only a DeviceClass carries the resource: no amounts are known.
    faulted : bool array, shape (C,)
    failing : bool array, shape (C,)
        True for nodes on which pods of several owners failed before they ran.
    type_codes : int64 array, shape (C,)
        Code of the node's ``accelerator`` label in `type_names`; 0 for none. Read only
        for a pod that asks a type.
    type_names : sequence of str
        Code -> label value; entry 0 is the empty string.
    linked : bool array, shape (C,)
        True where the node says that its GPUs are joined by NVLink, and neither cuts
        nor shares them. Read only for a pod that asks several.
    nominated : bool array, shape (C,)
        True for the pod's nominated node.
    gpu_codes : int64 array, shape (C,)
        Index of the node's GPUs in `gpu_kinds`. Read only for a pod that wants
        something of the GPUs, or asks several.
    instead : int64 array, shape (C,)
        What a node that lacks a resource has instead, in bits: `PARTS`, `OTHERS`,
        `LABELLED`. 0 for a node that lacks none.
    gpu_pods, exclusive_gpu_pods : int64 array, shape (C,)
        How many other pods with a managed resource are on the node, and how many of
        them want to be alone.
    link_codes : int64 array, shape (C,)
        Index of the node's links in `link_kinds`. Read only for a pod that asks
        ``nvidia.com/gpu``.
    free_sets : int64 array, shape (C,)
        Bit mask of the node's free GPUs; below 0 where nobody knows which are free.
    nearness : float64 array, shape (C,)
        How near the node is to the pod's siblings, 0 to 1; `scoring.topology.domains`.
        0 everywhere in columns that were just taken, as for a pod without siblings.
    capacity : Capacity or None
        None for a pod whose cpu no score goes by.
    mig : object array, shape (C,)
        `MigGpus` of the node, None where they are not known. Read only for a pod that
        asks a MIG profile.
    """

    known: BoolArray
    columns: IndexArray
    allocatable: Int64Array
    requested: Int64Array
    offered: BoolArray
    claimed: BoolArray
    faulted: BoolArray
    failing: BoolArray
    type_codes: Int64Array
    type_names: Sequence[str]
    linked: BoolArray
    nominated: BoolArray
    gpu_codes: Int64Array
    gpu_kinds: Sequence[NodeGpus]
    instead: Int64Array
    gpu_pods: Int64Array
    exclusive_gpu_pods: Int64Array
    link_codes: Int64Array
    link_kinds: tuple[LinkKind, ...]
    free_sets: Int64Array
    nearness: Float64Array
    capacity: Capacity | None
    mig: ObjectArray


@dataclass(frozen=True, slots=True)
class LabelKeys:
    """Node labels that the score terms read.

    Attributes
    ----------
    accelerator : str
        Names the GPU type, for ``nodeSelector.accelerator``.
    interconnect : str
        ``nvlink`` where the GPUs of the node are joined.
    domains : tuple of str
        Name what the pods of a job had better share, the nearest first.
    """

    accelerator: str = "accelerator"
    interconnect: str = "gpu-interconnect"
    domains: tuple[str, ...] = ()

    def columns(self) -> tuple[str, ...]:
        """Return all of them, each once: those that need a column in snapshots."""
        every = (self.accelerator, self.interconnect, *self.domains)
        return tuple(dict.fromkeys(every))


def _one_node() -> Snapshot:
    """Return a snapshot of one node that offers nothing."""
    nothing = read_only(np.zeros((0, 1), dtype=np.int64))
    no = read_only(np.zeros((0, 1), dtype=np.bool_))
    off = read_only(np.zeros(1, dtype=np.bool_))
    nodes = build_node_index(("",))
    return Snapshot(0, nodes, (), nothing, nothing, no, schedulable=off, faulted=off)


_ONE_NODE: Final = _one_node()

_NOWHERE: Final[BoolArray] = np.zeros(0, dtype=np.bool_)


def take_columns(
    snapshot: Snapshot, found: IndexArray, pod_request: PodRequest, keys: LabelKeys
) -> Candidates:
    """Select nodes of `snapshot`.

    Parameters
    ----------
    found : index array, shape (C,)
        Their columns, as `find_columns` returns them; -1 for a node that it lacks. One
        that is repeated is a candidate as often.
    """
    known = found >= 0
    if not snapshot.nodes.names:  # nothing to take columns from
        snapshot = _ONE_NODE
    columns = np.maximum(found, 0)
    allocatable, requested, offered = _take_tables(snapshot, columns, pod_request)
    gpu_pods = snapshot.gpus.gpu_pods.take(columns)
    exclusive_gpu_pods = snapshot.gpus.exclusive_gpu_pods.take(columns)
    link_codes, link_kinds, free_sets = _take_links(snapshot, columns, pod_request)
    bound_pod = snapshot.bound_pods.get(pod_request.uid) if pod_request.uid else None
    here = _NOWHERE
    if bound_pod is not None:
        here = found == snapshot.nodes.column_of.get(bound_pod.node_name, -2)
        _take_out_own_request(snapshot, bound_pod, here, pod_request, requested)
        gpu_pods[here] -= 1
        exclusive_gpu_pods[here] -= bound_pod.gpu_requirements.is_exclusive
        if pod_request.reads_links:
            free_sets[here] = with_devices(snapshot, columns[here], [bound_pod])
    claimed = np.zeros_like(offered)
    for row, (resource, _) in enumerate(pod_request.request):
        if resource in snapshot.device_class_resources:
            claimed[row] = ~offered[row]
    nominated = linked = np.zeros(len(found), dtype=np.bool_)
    if pod_request.nominated_node:
        nominated = found == snapshot.nodes.column_of.get(
            pod_request.nominated_node, -2
        )
    type_codes, type_names = _take_types(snapshot, columns, pod_request, keys)
    gpu_codes, gpu_kinds = _take_gpus(snapshot, columns, pod_request)
    if pod_request.gpus > 1 and keys.interconnect in snapshot.labels:
        whole = np.array([kind.is_whole for kind in gpu_kinds])[gpu_codes]
        linked = whole & _linked(snapshot.labels[keys.interconnect], columns)
    return Candidates(
        known=known,
        columns=columns,
        allocatable=allocatable,
        requested=requested,
        offered=offered | claimed,
        claimed=claimed,
        faulted=snapshot.faulted.take(columns),
        failing=snapshot.failing.take(columns),
        type_codes=type_codes,
        type_names=type_names,
        linked=linked,
        nominated=nominated,
        gpu_codes=gpu_codes,
        gpu_kinds=gpu_kinds,
        instead=_found_instead(snapshot, columns, pod_request, offered | claimed),
        gpu_pods=gpu_pods,
        exclusive_gpu_pods=exclusive_gpu_pods,
        link_codes=link_codes,
        link_kinds=link_kinds,
        free_sets=free_sets,
        nearness=np.zeros(len(found)),
        capacity=(
            None
            if pod_request.cpu is None
            else _take_capacity(snapshot, columns, pod_request, bound_pod, here)
        ),
        mig=_take_mig(snapshot, columns, pod_request, bound_pod, here),
    )


def _take_mig(
    snapshot: Snapshot,
    columns: IndexArray,
    pod_request: PodRequest,
    own: BoundPod | None,
    here: BoolArray,
) -> ObjectArray:
    """Return GPUs that are cut on demand, if they matter to the pod.

    `own` and `here` as for `_take_capacity`.
    """
    if not pod_request.mig_instances:
        # PERF: all None, at a tenth of what `np.full` takes; bench/scoring.
        return np.empty(len(columns), dtype=np.object_)
    mig = snapshot.gpus.mig.take(columns)
    if own is not None and own.devices is not None:
        names = [name for name, _ in own.devices.shares]
        for index in np.flatnonzero(here):
            mig[index] = without_pod(mig[index], names)
    return mig


def _take_capacity(
    snapshot: Snapshot,
    columns: IndexArray,
    pod_request: PodRequest,
    own: BoundPod | None,
    here: BoolArray,
) -> Capacity:
    """Return what nodes have for the pod.

    `own` is the pod where it is bound already, `here` True for its node, shape (C,).
    """
    gpus = snapshot.gpus
    supply = gpus.supply
    cpu_rows, gpu_rows = _rows_of_capacity(snapshot.resources)
    allocatable_cpu, used_cpu = _sum_rows(snapshot, columns, cpu_rows)
    offered, used = _sum_rows(snapshot, columns, gpu_rows)
    places = np.arange(supply.most, dtype=np.int64)[:, np.newaxis]
    devices = (places < offered - used) * np.int64(WHOLE)
    counts = np.minimum(offered, MAX_DEVICES)
    if len(gpus.free_shares):
        shared = gpus.share_counts.take(columns)
        free_shares = np.zeros_like(devices)
        depth = min(len(devices), len(gpus.free_shares))
        free_shares[:depth] = gpus.free_shares[:depth].take(columns, axis=1)
        devices = np.where(shared > 0, free_shares, devices)
        counts = np.where(shared > 0, shared, counts)
    # PERF: a third of what `np.clip` takes for one node; bench/extender/packing.py
    free_cpu = np.minimum(np.maximum(allocatable_cpu - used_cpu, 0), MAX_CPU)
    free = FreeCapacity(
        devices, free_cpu, supply.model_of.take(gpus.codes.take(columns))
    )
    units = gpus.share_units.take(columns)
    units[units == 0] = supply.unit
    if own is not None:
        for index in np.flatnonzero(here).tolist():
            held = shape_of(own.request, int(units[index]))
            free.give_back(index, held, int(counts[index]))
    return Capacity(
        units,
        {unit: pod_request.shape(unit) for unit in {supply.unit, *units.tolist()}},
        free,
        allocatable_cpu,
        counts,
        supply,
        snapshot.expected,
    )


@lru_cache(maxsize=64)
def _rows_of_capacity(
    resources: tuple[str, ...],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the rows of cpu, and those of whole GPUs."""
    rows = list(enumerate(resources))
    return (
        tuple(row for row, name in rows if name == CPU),
        tuple(row for row, name in rows if is_whole_gpu(name)),
    )


def _sum_rows(
    snapshot: Snapshot, columns: IndexArray, rows: tuple[int, ...]
) -> tuple[Int64Array, Int64Array]:
    """Return what nodes offer of some resources, and what is taken, shape (C,).

    What pods hold of one that is not there takes nothing of another.
    """
    if not rows:
        nothing = np.zeros(len(columns), dtype=np.int64)
        return nothing, nothing
    first, *others = rows
    offered = snapshot.allocatable[first].take(columns)
    used = snapshot.requested[first].take(columns)
    if others:
        used *= offered > 0
    for row in others:
        more = snapshot.allocatable[row].take(columns)
        offered += more
        used += snapshot.requested[row].take(columns) * (more > 0)
    return offered, used


def free_gpus(candidates: Candidates, pod_request: PodRequest) -> Int64Array:
    """Return how many of the pod's own GPU resource are free, shape (C,)."""
    names = [name for name, _ in pod_request.request]
    row = names.index(pod_request.primary)
    free: Int64Array = candidates.allocatable[row] - candidates.requested[row]
    return free


def with_devices(
    snapshot: Snapshot, columns: IndexArray, pods: Sequence[BoundPod]
) -> Int64Array:
    """Return the sets of free GPUs of nodes as they are without some of their pods.

    Where it is not known which are free, it is not known then.
    """
    free_sets = snapshot.gpus.free_sets.take(columns)
    for index, column in enumerate(columns.tolist()):
        for pod in pods:
            if free_sets[index] >= 0 and pod.devices is not None and snapshot.facts:
                held = held_set(pod.devices, snapshot.facts[column].links)
                free_sets[index] |= max(held, 0)
    return free_sets


def _linked(label: LabelColumn, columns: IndexArray) -> BoolArray:
    """Return which of the nodes say that their GPUs are joined by NVLink."""
    linked: BoolArray = label.codes.take(columns) == label.code_of.get("nvlink", -1)
    return linked


def _found_instead(
    snapshot: Snapshot,
    columns: IndexArray,
    pod_request: PodRequest,
    offered: BoolArray,
) -> Int64Array:
    """Return what nodes have instead of what they lack, as `Candidates.instead`."""
    instead = np.zeros(len(columns), dtype=np.int64)
    lacking = np.flatnonzero(~np.logical_and.reduce(offered, axis=0))
    if not len(lacking):  # PERF: kube-scheduler offers no others
        return instead
    vendor = vendor_of(pod_request.primary)
    there = columns[lacking]
    has_row = snapshot.offered.take(there, axis=1)
    for bit, rows in zip(
        (PARTS, OTHERS), _rows_of_gpus(snapshot.resources, vendor), strict=True
    ):
        has = np.logical_or.reduce(has_row[list(rows)], axis=0)
        instead[lacking] |= np.where(has, bit, 0)
    labelled = np.array([kind.vendor == vendor for kind in snapshot.gpus.kinds])
    if vendor:
        instead[lacking] |= np.where(labelled[snapshot.gpus.codes[there]], LABELLED, 0)
    return instead


@lru_cache(maxsize=64)
def _rows_of_gpus(
    resources: tuple[str, ...], vendor: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the rows of parts of a vendor's GPUs, and those of all other GPUs."""
    parts, others = [], []
    for row, resource in enumerate(resources):
        if is_part(resource) and vendor_of(resource) == vendor:
            parts.append(row)
        elif is_whole_gpu(resource) or is_of_gpus(resource):
            others.append(row)
    return tuple(parts), tuple(others)


def _take_types(
    snapshot: Snapshot, columns: IndexArray, pod_request: PodRequest, keys: LabelKeys
) -> tuple[Int64Array, Sequence[str]]:
    """Return code and names of the GPU types, if the pod asks one."""
    label = snapshot.labels.get(keys.accelerator)
    if label is None or pod_request.accelerator is None:
        return np.zeros(len(columns), dtype=np.int64), ("",)
    return label.codes.take(columns), ("", *label.code_of)


def _take_gpus(
    snapshot: Snapshot, columns: IndexArray, pod_request: PodRequest
) -> tuple[Int64Array, Sequence[NodeGpus]]:
    """Return code and kinds of the GPUs, if they matter to the pod."""
    if not pod_request.reads_gpus:
        return np.zeros(len(columns), dtype=np.int64), (NO_GPUS,)
    return snapshot.gpus.codes.take(columns), snapshot.gpus.kinds


def _take_links(
    snapshot: Snapshot, columns: IndexArray, pod_request: PodRequest
) -> tuple[Int64Array, tuple[LinkKind, ...], Int64Array]:
    """Return code and kinds of the links, and free GPUs, if they matter to the pod."""
    if not pod_request.reads_links:
        nothing = np.zeros(len(columns), dtype=np.int64)
        return nothing, (UNKNOWN_LINKS,), nothing
    gpus = snapshot.gpus
    codes = gpus.link_codes.take(columns)
    return codes, gpus.link_kinds or (UNKNOWN_LINKS,), gpus.free_sets.take(columns)


def _take_tables(
    snapshot: Snapshot, columns: IndexArray, pod_request: PodRequest
) -> tuple[Int64Array, Int64Array, BoolArray]:
    """Return allocatable, requested and offered, shape (Q, C), fresh arrays."""
    shape = (len(pod_request.request), len(columns))
    allocatable = np.zeros(shape, dtype=np.int64)
    requested = np.zeros(shape, dtype=np.int64)
    offered = np.zeros(shape, dtype=np.bool_)
    for row, (resource, _) in enumerate(pod_request.request):
        source = snapshot.row_of(resource)
        if source is not None:
            # PERF: `take` of a contiguous row, and "clip" since numpy writes to a
            # buffer first where it has to check the columns;
            # bench/scoring/test_kernels.py
            for table, taken in (
                (snapshot.allocatable, allocatable),
                (snapshot.requested, requested),
                (snapshot.offered, offered),
            ):
                table[source].take(columns, out=taken[row], mode="clip")
    return allocatable, requested, offered


def _take_out_own_request(
    snapshot: Snapshot,
    bound_pod: BoundPod,
    here: BoolArray,
    pod_request: PodRequest,
    requested: Int64Array,
) -> None:
    """Subtract what the asking pod itself holds: it never counts against itself."""
    held = dict(bound_pod.request)
    for row, (resource, _) in enumerate(pod_request.request):
        if snapshot.row_of(resource) is not None:  # else nothing of it is counted
            requested[row, here] -= held.get(resource, 0)
