"""`Snapshot` and `NodeIndex`: the immutable state of all nodes at one moment."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from scoring.gpu.node_gpus import NO_GPUS, NodeGpus
from scoring.packing.learning import NOBODY_EXPECTED, ExpectedPods
from scoring.protocols import (
    Binding,
    BoundPod,
    ExcludingPod,
    FailingNode,
    LimitDefaults,
    LimitMaxima,
    NodeFacts,
    PendingPod,
    RecentPod,
)
from scoring.resources import Request
from scoring.topology.devices import NOT_TOLD, UNKNOWN_LINKS, LinkKind

Int64Array: TypeAlias = NDArray[np.int64]

Float64Array: TypeAlias = NDArray[np.float64]

BoolArray: TypeAlias = NDArray[np.bool_]

IndexArray: TypeAlias = NDArray[np.intp]

ObjectArray: TypeAlias = NDArray[np.object_]

_Scalar = TypeVar("_Scalar", bound=np.generic)

# Stands for a column that is not given: all False.
_NOT_GIVEN: Final[BoolArray] = np.zeros(0, dtype=np.bool_)

_NOT_GIVEN.setflags(write=False)


class SnapshotError(ValueError):
    """A snapshot was built from arrays that do not fit: a mistake of our own."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeIndex:
    """Node names and their columns; reused until the set of nodes changes.

    Attributes
    ----------
    names : tuple of str, length N
    column_of : mapping
        node name -> column
    order : int64 array, shape (N,)
        Rank of each name in alphabetical order, which settles ties.
    """

    names: tuple[str, ...]
    column_of: Mapping[str, int]
    order: Int64Array


def build_node_index(names: tuple[str, ...]) -> NodeIndex:
    """Return the index of `names`, which must be unique."""
    column_of = {name: column for column, name in enumerate(names)}
    if len(column_of) != len(names):
        raise SnapshotError("node names: wanted unique names, got a duplicate")
    order = np.empty(len(names), dtype=np.int64)
    order[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    order.setflags(write=False)
    # PERF: behind a MappingProxyType each look-up takes twice as long, and a call
    # makes thousands; bench/scoring/test_kernels.py
    return NodeIndex(names, column_of, order)


@dataclass(frozen=True, slots=True, eq=False)
class LabelColumn:
    """One label of all nodes, its values numbered.

    Attributes
    ----------
    codes : int64 array, shape (N,)
        0 where the node lacks the label.
    code_of : mapping
        label value -> code, from 1
    """

    codes: Int64Array
    code_of: Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class GpuSupply:
    """GPUs of a cluster, by model; the same one until they change.

    Attributes
    ----------
    models : tuple of NodeGpus, length K
        One kind of each model.
    model_of : int64 array
        Kind, as in `GpuColumns.kinds` -> index of its model.
    counts : int64 array, shape (K,)
        GPUs of each model.
    unit : int
        Thousandths of a GPU that a share is on most nodes that share theirs; 0 where
        none does.
    most : int
        GPUs of the node that has most.
    """

    models: tuple[NodeGpus, ...]
    model_of: Int64Array
    counts: Int64Array
    unit: int
    most: int

    def is_like(self, other: "GpuSupply") -> bool:
        """Whether it says the same."""
        return (
            (self.models, self.unit, self.most)
            == (other.models, other.unit, other.most)
            and np.array_equal(self.model_of, other.model_of)
            and np.array_equal(self.counts, other.counts)
        )


def _no_supply() -> GpuSupply:
    nothing = np.zeros(1, dtype=np.int64)
    nothing.setflags(write=False)
    return GpuSupply((NO_GPUS,), nothing, nothing, 0, 0)


NO_SUPPLY: Final = _no_supply()


@dataclass(frozen=True, slots=True, eq=False)
class GpuColumns:
    """GPUs of the nodes, and the number of pods that use them.

    Attributes
    ----------
    codes : int64 array, shape (N,)
        Index of each node's GPUs in `kinds`.
    gpu_pods : int64 array, shape (N,)
        Bound pods that hold a managed resource.
    exclusive_gpu_pods : int64 array, shape (N,)
        Those of them that want no other such pod beside them.
    link_codes : int64 array, shape (N,)
        Index of each node's links in `link_kinds`.
    free_sets : int64 array, shape (N,)
        Bit mask of the free GPUs; below 0 where nobody knows which are free.
    share_counts : int64 array, shape (N,)
        GPUs that pods share; 0 for a node that shares none.
    share_units : int64 array, shape (N,)
        Thousandths that one share is; 0 likewise.
    free_shares : int64 array, shape (D, N)
        Free thousandths of each of these, 0 where a node has fewer.
    supply : GpuSupply
    mig : object array, shape (N,)
        `MigGpus` with the instances that are there, where they are made on demand and
        their places are known; None elsewhere.
    """

    codes: Int64Array
    kinds: tuple[NodeGpus, ...]
    gpu_pods: Int64Array
    exclusive_gpu_pods: Int64Array
    link_codes: Int64Array
    link_kinds: tuple[LinkKind, ...]
    free_sets: Int64Array
    share_counts: Int64Array
    share_units: Int64Array
    free_shares: Int64Array
    supply: GpuSupply
    mig: ObjectArray


def no_gpu_columns(count: int) -> GpuColumns:
    """Return the columns of `count` nodes of which nothing is known."""
    nothing = np.zeros(count, dtype=np.int64)
    not_told = np.full(count, NOT_TOLD, dtype=np.int64)
    no_shares = np.zeros((0, count), dtype=np.int64)
    none = np.full(count, None)
    for array in (nothing, not_told, no_shares, none):
        array.setflags(write=False)
    return GpuColumns(
        codes=nothing,
        kinds=(NO_GPUS,),
        gpu_pods=nothing,
        exclusive_gpu_pods=nothing,
        link_codes=nothing,
        link_kinds=(UNKNOWN_LINKS,),
        free_sets=not_told,
        share_counts=nothing,
        share_units=nothing,
        free_shares=no_shares,
        supply=NO_SUPPLY,
        mig=none,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """Immutable state of all nodes at one moment.

    N is the number of nodes and R the number of resources. Column
    ``i`` of an array is the node ``nodes.names[i]``; row ``r`` of a table is
    the resource ``resources[r]``. Quantities are int64 base units: millicores
    for ``cpu``, bytes for memory and storage, counts for the rest.

    Attributes
    ----------
    generation : int
        Greater in each snapshot than in the one before.
    nodes : NodeIndex, length N
    resources : tuple of str, length R
        Those that some node mentions or a DeviceClass carries; no node has what pods
        alone name.
    allocatable : int64 array, shape (R, N)
        What the node offers to pods; 0 where it lacks the resource.
    requested : int64 array, shape (R, N)
        Sum over the pods bound to the node; can exceed `allocatable`.
    offered : bool array, shape (R, N)
        True where capacity or allocatable is above 0.
    schedulable : bool array, shape (N,)
        False for cordoned and not-ready nodes.
    faulted : bool array, shape (N,)
        True where a fault signal says that the node's GPUs are not ready.
    failing : bool array, shape (N,)
        True where pods of several owners failed lately before they ran. All False if
        it is not given.
    changed_at : int64 array, shape (N,)
        Generation in which the node's column last changed. Without it, all columns
        count as new.
    labels : mapping
        label key -> its column, for the keys that scoring reads
    gpus : GpuColumns
        Nothing is known of any node's GPUs if it is not given.
    facts : tuple of NodeFacts, length N
    bound_pods : mapping
        pod UID -> a bound pod with a managed resource
    jobs : mapping
        job -> node name -> how many of its bound pods with a managed resource are there
    expected : ExpectedPods
        The mix of the pods that came so far; the same one until it has changed much.
    excluding : tuple of ExcludingPod
        Bound pods that keep others from their nodes, or from nodes near.
    recent_pods : tuple of RecentPod
        The most recent ones, oldest first.
    device_class_resources : frozenset of str
        Extended resources that a DeviceClass carries.
    departed : frozenset of str
        UIDs of pods with a managed resource that lately ended or were deleted.
    bindings : tuple of Binding
        The most recent ones, oldest first.
    failing_nodes : mapping
        name of a failing node -> since when, and which pods failed on it
    limit_maxima : mapping
        namespace -> what its LimitRanges allow at most; others set no maximum.
    limit_defaults : mapping
        namespace -> what its LimitRanges give containers and want of them at least.

    Raises
    ------
    SnapshotError
        If a shape or dtype is off, or an array is writeable.
    """

    generation: int
    nodes: NodeIndex
    resources: tuple[str, ...]
    allocatable: Int64Array
    requested: Int64Array
    offered: BoolArray
    schedulable: BoolArray
    faulted: BoolArray
    failing: BoolArray = field(default_factory=lambda: _NOT_GIVEN)
    changed_at: Int64Array | None = None
    labels: Mapping[str, LabelColumn] = field(
        default_factory=lambda: MappingProxyType({})
    )
    gpus: GpuColumns = field(default_factory=lambda: no_gpu_columns(0))
    facts: tuple[NodeFacts, ...] = ()
    bound_pods: Mapping[str, BoundPod] = field(
        default_factory=lambda: MappingProxyType({})
    )
    jobs: Mapping[str, Mapping[str, int]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    expected: ExpectedPods = NOBODY_EXPECTED
    excluding: tuple[ExcludingPod, ...] = ()
    pending: tuple[PendingPod, ...] = ()
    recent_pods: tuple[RecentPod, ...] = ()
    device_class_resources: frozenset[str] = frozenset()
    departed: frozenset[str] = frozenset()
    bindings: tuple[Binding, ...] = ()
    failing_nodes: Mapping[str, FailingNode] = field(
        default_factory=lambda: MappingProxyType({})
    )
    limit_maxima: Mapping[str, LimitMaxima] = field(
        default_factory=lambda: MappingProxyType({})
    )
    limit_defaults: Mapping[str, LimitDefaults] = field(
        default_factory=lambda: MappingProxyType({})
    )

    def __post_init__(self) -> None:
        n, r = len(self.nodes.names), len(self.resources)
        _check("allocatable", self.allocatable, np.int64, (r, n))
        _check("requested", self.requested, np.int64, (r, n))
        _check("offered", self.offered, np.bool_, (r, n))
        _check("schedulable", self.schedulable, np.bool_, (n,))
        _check("faulted", self.faulted, np.bool_, (n,))
        if self.failing is _NOT_GIVEN:
            nowhere = read_only(np.zeros(n, dtype=np.bool_))
            object.__setattr__(self, "failing", nowhere)
        _check("failing", self.failing, np.bool_, (n,))
        if not len(self.gpus.codes):
            object.__setattr__(self, "gpus", no_gpu_columns(n))
        _check("gpus.codes", self.gpus.codes, np.int64, (n,))
        _check("gpus.gpu_pods", self.gpus.gpu_pods, np.int64, (n,))
        _check("gpus.exclusive_gpu_pods", self.gpus.exclusive_gpu_pods, np.int64, (n,))
        _check("gpus.link_codes", self.gpus.link_codes, np.int64, (n,))
        _check("gpus.free_sets", self.gpus.free_sets, np.int64, (n,))
        _check("gpus.share_counts", self.gpus.share_counts, np.int64, (n,))
        _check("gpus.share_units", self.gpus.share_units, np.int64, (n,))
        shares = self.gpus.free_shares
        _check("gpus.free_shares", shares, np.int64, (len(shares), n))
        _check("gpus.mig", self.gpus.mig, np.object_, (n,))
        if self.changed_at is not None:
            _check("changed_at", self.changed_at, np.int64, (n,))
        for key, column in self.labels.items():
            _check(f"labels[{key!r}]", column.codes, np.int64, (n,))
        if len(self.facts) not in (0, n):
            raise SnapshotError(f"facts: wanted {n} nodes, got {len(self.facts)}")

    def with_nominated(self, priority: int, uid: str) -> "Snapshot":
        """Return this with what kube-scheduler keeps free for pods that it nominated.

        Parameters
        ----------
        priority, uid : int, str
            Of the pod that is looked at. Room is kept from it for other pods of its
            priority or a higher one.

        Notes
        -----
        ``addNominatedPods`` in ``pkg/scheduler/framework/runtime/framework.go``.
        """
        shares = [
            (pod.nominated_node, pod.request)
            for pod in self.pending
            if pod.nominated_node in self.nodes.column_of
            and pod.priority >= priority
            and pod.uid != uid
        ]
        if not shares:
            return self
        return replace(self, requested=self.requested_with(shares))

    def requested_with(
        self, shares: Iterable[tuple[str, Request]], *, sign: int = 1
    ) -> Int64Array:
        """Return `requested` with the shares of some pods added (+1) or taken (-1).

        Parameters
        ----------
        shares : iterable of (str, Request)
            Node name and amounts. What no node has, or whose node is not here, is left
            out.

        Returns
        -------
        int64 array, shape (R, N)
            Read-only.
        """
        requested = self.requested.copy()
        row_of = {resource: row for row, resource in enumerate(self.resources)}
        for node_name, request in shares:
            column = self.nodes.column_of.get(node_name)
            for resource, amount in request if column is not None else ():
                if resource in row_of:
                    requested[row_of[resource], column] += sign * amount
        return read_only(requested)

    def changed_since(self, generation: int) -> IndexArray:
        """Return the columns that changed after `generation`, in their order."""
        if self.changed_at is None:
            return np.arange(len(self.nodes.names), dtype=np.intp)
        return np.flatnonzero(self.changed_at > generation)

    def row_of(self, resource: str) -> int | None:
        """Return the row of `resource`, or None where nobody offers or asks it."""
        try:
            return self.resources.index(resource)
        except ValueError:
            return None

    def free(self, resource: str) -> Int64Array:
        """Return what is left of `resource` on each node, not below 0, shape (N,)."""
        row = self.row_of(resource)
        if row is None:
            return np.zeros(len(self.nodes.names), dtype=np.int64)
        free: Int64Array = np.maximum(self.allocatable[row] - self.requested[row], 0)
        return free


def find_columns(snapshot: Snapshot, names: Sequence[str]) -> IndexArray:
    """Return the column of each name, -1 for one that is unknown, shape (C,)."""
    return np.fromiter(
        map(snapshot.nodes.column_of.get, names, repeat(-1)), np.intp, len(names)
    )


def has_repeats(
    names: Sequence[str], columns: IndexArray | None, node_count: int
) -> bool:
    """Whether a name stands in `names` more than once.

    `columns` are those of the names, None where some of them have none.
    PERF: by columns, a third of what a set of names takes; bench/extender/test_verbs.py
    """
    if columns is None:
        return len(set(names)) < len(names)
    seen = np.zeros(node_count, dtype=np.bool_)
    seen[columns] = True
    return int(np.count_nonzero(seen)) < len(names)


def _check(
    name: str, array: NDArray[Any], dtype: type[np.generic], shape: tuple[int, ...]
) -> None:
    """Raise `SnapshotError` unless `array` is read-only and of that dtype and shape."""
    if array.dtype != dtype or array.shape != shape:
        raise SnapshotError(
            f"{name}: wanted {dtype.__name__} {shape}, got {array.dtype} {array.shape}"
        )
    if array.flags.writeable:
        raise SnapshotError(f"{name}: wanted a read-only array, got a writeable one")


def read_only(array: NDArray[_Scalar]) -> NDArray[_Scalar]:
    """Return a C-ordered copy of `array` that nobody can write to."""
    copy = np.array(array, order="C", copy=True)
    copy.setflags(write=False)
    return copy
