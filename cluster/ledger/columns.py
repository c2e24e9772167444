"""Arrays of a snapshot in the making: written column by column, then frozen."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from cluster.decode.objects import NodeRecord
from scoring.gpu.node_gpus import NO_GPUS, NodeGpus
from scoring.packing.mig import MigGpus
from scoring.packing.shapes import MAX_DEVICES, shared_gpus
from scoring.packing.workload import build_supply
from scoring.quantity import MAX_QUANTITY
from scoring.resources import is_whole_gpu
from scoring.snapshot import (
    BoolArray,
    GpuColumns,
    GpuSupply,
    Int64Array,
    LabelColumn,
    ObjectArray,
    Snapshot,
)
from scoring.topology.devices import NOT_TOLD, LinkKind
from scoring.topology.tables import prepare

# Kinds of links whose tables are computed before a pod asks: more than clusters have,
# and few enough that nodes which all differ do not hold the ledger up for long.
MAX_PREPARED: Final = 64

_Scalar = TypeVar("_Scalar", bound=np.generic)


def copy_on_write(array: NDArray[_Scalar]) -> NDArray[_Scalar]:
    """Return the array, or a copy of it if it belongs to a snapshot already."""
    return array if array.flags.writeable else array.copy()


def put(array: NDArray[_Scalar], column: int, value: int) -> NDArray[_Scalar]:
    """Return an array of shape (N,) with `value` in a column."""
    if array[column] == value:
        return array
    array = copy_on_write(array)
    array[column] = value
    return array


def put_column(
    table: NDArray[_Scalar], column: int, values: list[int] | list[bool]
) -> NDArray[_Scalar]:
    """Return a table of shape (R, N) with R `values` in a column."""
    if table[:, column].tolist() == values:
        return table
    table = copy_on_write(table)
    table[:, column] = values
    return table


class GpuUse(NamedTuple):
    """What pods hold of a node's GPUs.

    Attributes
    ----------
    pods, exclusive : int
        Number of GPU pods, and of those that want to be alone.
    free_set : int
        As `GpuColumns.free_sets`.
    free_shares : tuple of int
        Free thousandths of each GPU that the node shares.
    mig : MigGpus or None
        As `GpuColumns.mig`.
    """

    pods: int
    exclusive: int
    free_set: int
    free_shares: tuple[int, ...] = ()
    mig: MigGpus | None = None


@dataclass(slots=True)
class GpuColumnsBuilder:
    """Arrays in the making; shapes as in `GpuColumns`.

    Attributes
    ----------
    units : int64 array, shape (N,)
        Thousandths that one share is; 0 for a node that shares none.
    code_of : dict
        kind of GPUs -> its code, in the order of the codes
    link_code_of : dict
        kind of links -> its code, likewise
    """

    code_of: dict[NodeGpus, int]
    codes: Int64Array
    gpu_pods: Int64Array
    exclusive_gpu_pods: Int64Array
    link_code_of: dict[LinkKind, int]
    link_codes: Int64Array
    free_sets: Int64Array
    share_counts: Int64Array
    units: Int64Array
    free_shares: Int64Array
    mig: ObjectArray

    @classmethod
    def fresh(cls, nodes: int) -> Self:
        """Return columns of nodes of which nothing is known."""
        codes, pods, exclusive, link_codes, counts, units = np.zeros(
            (6, nodes), dtype=np.int64
        )
        not_told = np.full(nodes, NOT_TOLD, dtype=np.int64)
        no_shares = np.zeros((0, nodes), dtype=np.int64)
        return cls(
            {},
            codes,
            pods,
            exclusive,
            {},
            link_codes,
            not_told,
            counts,
            units,
            no_shares,
            np.full(nodes, None),
        )

    @classmethod
    def upon(cls, last: GpuColumns) -> Self:
        """Return the columns of a snapshot; `write` copies what it changes."""
        return cls(
            {kind: code for code, kind in enumerate(last.kinds)},
            last.codes,
            last.gpu_pods,
            last.exclusive_gpu_pods,
            {kind: code for code, kind in enumerate(last.link_kinds)},
            last.link_codes,
            last.free_sets,
            last.share_counts,
            last.share_units,
            last.free_shares,
            last.mig,
        )

    def write(self, column: int, node: NodeRecord) -> None:
        """Write what a node has."""
        code = self.code_of.setdefault(node.gpus, len(self.code_of))
        self.codes = put(self.codes, column, code)
        kind = LinkKind(node.links.layout, node.links.is_measured)
        link_code = self.link_code_of.get(kind)
        if link_code is None:
            link_code = self._new_link_code(column, kind)
        self.link_codes = put(self.link_codes, column, link_code)
        shared = shared_gpus(node.allocatable, node.gpus.replicas)
        self.share_counts = put(self.share_counts, column, shared.count)
        self.units = put(self.units, column, shared.unit)

    def _new_link_code(self, column: int, kind: LinkKind) -> int:
        """Return the code of a kind of links that no node had, which one has now.

        It is that of a kind that no other node has any more, if there is one.
        """
        count = len(self.link_code_of)
        if kind.layout is not None and count < MAX_PREPARED:
            prepare(kind.layout)
        nodes = np.bincount(self.link_codes, minlength=count)
        nodes[self.link_codes[column]] -= 1
        unused = np.flatnonzero(nodes[:count] == 0)
        code = int(unused[0]) if len(unused) else count
        kinds = [*self.link_code_of, kind]
        kinds[code] = kind
        self.link_code_of = {
            one: at for at, one in enumerate(kinds[: max(count, code + 1)])
        }
        return code

    def write_use(self, column: int, use: GpuUse) -> None:
        """Write which GPU pods a node has, and which GPUs they leave."""
        self.gpu_pods = put(self.gpu_pods, column, use.pods)
        self.exclusive_gpu_pods = put(self.exclusive_gpu_pods, column, use.exclusive)
        self.free_sets = put(self.free_sets, column, use.free_set)
        depth = len(self.free_shares)
        if len(use.free_shares) > depth:
            more = len(use.free_shares) - depth
            self.free_shares = np.pad(self.free_shares, ((0, more), (0, 0)))
        if len(self.free_shares):
            missing = len(self.free_shares) - len(use.free_shares)
            free = [*use.free_shares, *[0] * missing]
            self.free_shares = put_column(self.free_shares, column, free)
        if self.mig[column] != use.mig:
            self.mig = copy_on_write(self.mig)
            self.mig[column] = use.mig

    def supply(self, whole_gpus: Int64Array, last: GpuSupply) -> GpuSupply:
        """Return what GPUs there are; `last` if they are the same.

        Parameters
        ----------
        whole_gpus : int64 array, shape (N,)
            Whole GPUs that each node offers.
        """
        counts = np.where(self.share_counts > 0, self.share_counts, whole_gpus)
        supply = build_supply(
            tuple(self.code_of) or (NO_GPUS,),
            self.codes,
            np.minimum(counts, MAX_DEVICES),
            self.units,
        )
        return last if supply.is_like(last) else supply

    def publish(self, supply: GpuSupply) -> GpuColumns:
        """Return the columns, read-only from now on."""
        found = GpuColumns(
            self.codes,
            tuple(self.code_of),
            self.gpu_pods,
            self.exclusive_gpu_pods,
            self.link_codes,
            tuple(self.link_code_of),
            self.free_sets,
            self.share_counts,
            self.units,
            self.free_shares,
            supply,
            self.mig,
        )
        for array in (
            found.codes,
            found.gpu_pods,
            found.exclusive_gpu_pods,
            found.link_codes,
            found.free_sets,
            found.share_counts,
            found.share_units,
            found.free_shares,
            found.mig,
        ):
            array.setflags(write=False)
        return found


@dataclass(slots=True)
class Columns:
    """Arrays of a snapshot in the making; shapes as in `Snapshot`."""

    allocatable: Int64Array
    requested: Int64Array
    offered: BoolArray
    schedulable: BoolArray
    faulted: BoolArray
    failing: BoolArray
    changed_at: Int64Array
    gpus: GpuColumnsBuilder
    label_codes: dict[str, Int64Array]
    code_of: dict[str, dict[str, int]]

    @classmethod
    def fresh(cls, rows: int, nodes: int, label_keys: Iterable[str]) -> Self:
        """Return columns of zeros."""
        shape = (rows, nodes)
        return cls(
            allocatable=np.zeros(shape, dtype=np.int64),
            requested=np.zeros(shape, dtype=np.int64),
            offered=np.zeros(shape, dtype=np.bool_),
            schedulable=np.zeros(nodes, dtype=np.bool_),
            faulted=np.zeros(nodes, dtype=np.bool_),
            failing=np.zeros(nodes, dtype=np.bool_),
            changed_at=np.zeros(nodes, dtype=np.int64),
            gpus=GpuColumnsBuilder.fresh(nodes),
            label_codes={key: np.zeros(nodes, dtype=np.int64) for key in label_keys},
            code_of={key: {} for key in label_keys},
        )

    @classmethod
    def upon(cls, last: Snapshot) -> Self:
        """Return the columns of a snapshot; `write` copies what it changes.

        PERF: most changes are bindings, which leave all but `requested` as it was;
        ``bench.cluster.cache``
        """
        return cls(
            allocatable=last.allocatable,
            requested=last.requested,
            offered=last.offered,
            schedulable=last.schedulable,
            faulted=last.faulted,
            failing=last.failing,
            changed_at=(
                np.zeros(len(last.nodes.names), dtype=np.int64)
                if last.changed_at is None
                else last.changed_at
            ),
            gpus=GpuColumnsBuilder.upon(last.gpus),
            label_codes={key: col.codes for key, col in last.labels.items()},
            code_of={key: dict(col.code_of) for key, col in last.labels.items()},
        )

    def carry_over(self, last: Snapshot, names: Iterable[str]) -> None:
        """Take from a snapshot of another layout when each of its nodes changed."""
        if last.changed_at is None:
            return
        changed_at = last.changed_at.tolist()
        for column, name in enumerate(names):
            before = last.nodes.column_of.get(name)
            if before is not None:
                self.changed_at[column] = changed_at[before]

    def write(
        self,
        column: int,
        node: NodeRecord,
        row_of: Mapping[str, int],
    ) -> None:
        """Write what a node says of itself into its column."""
        rows = len(self.allocatable)
        allocatable, offered = [0] * rows, [False] * rows
        for name, _ in node.capacity:
            offered[row_of[name]] = True
        for name, amount in node.allocatable:
            offered[row_of[name]] = True
            allocatable[row_of[name]] = amount
        self.allocatable = put_column(self.allocatable, column, allocatable)
        self.offered = put_column(self.offered, column, offered)
        is_schedulable = node.is_ready and not node.is_cordoned
        self.schedulable = put(self.schedulable, column, is_schedulable)
        self.faulted = put(self.faulted, column, node.is_faulted)
        for key, codes in self.label_codes.items():
            value = node.labels.get(key)
            known = self.code_of[key]
            code = 0 if value is None else known.setdefault(value, len(known) + 1)
            self.label_codes[key] = put(codes, column, code)
        self.gpus.write(column, node)

    def write_use(
        self,
        column: int,
        requested: Mapping[str, int],
        row_of: Mapping[str, int],
        use: GpuUse,
        *,
        is_failing: bool,
    ) -> None:
        """Write what pods take of a node, and whether they fail there.

        A resource without a row is one that no node has.
        """
        held = [0] * len(self.requested)
        for name, amount in requested.items():
            row = row_of.get(name)
            if row is not None:
                held[row] = min(amount, MAX_QUANTITY)
        self.requested = put_column(self.requested, column, held)
        self.failing = put(self.failing, column, is_failing)
        self.gpus.write_use(column, use)

    def mark(self, columns: Sequence[int], generation: int) -> None:
        """Note in which generation some columns were written."""
        if columns:
            self.changed_at = copy_on_write(self.changed_at)
            self.changed_at[columns] = generation

    def freeze(self) -> None:
        """Make all arrays read-only: they are part of a snapshot from now on."""
        for array in (
            self.allocatable,
            self.requested,
            self.offered,
            self.schedulable,
            self.faulted,
            self.failing,
            self.changed_at,
            *self.label_codes.values(),
        ):
            array.setflags(write=False)

    def whole_gpus(self, row_of: Mapping[str, int]) -> Int64Array:
        """Return how many whole GPUs each node offers, shape (N,)."""
        rows = [row for name, row in row_of.items() if is_whole_gpu(name)]
        # Amounts may be senseless, and must not add up to something else.
        found: Int64Array = np.minimum(self.allocatable[rows], MAX_DEVICES).sum(axis=0)
        return found

    def labels(self) -> Mapping[str, LabelColumn]:
        """Return the label columns, read-only."""
        return MappingProxyType(
            {
                key: LabelColumn(codes, MappingProxyType(self.code_of[key]))
                for key, codes in self.label_codes.items()
            }
        )
