"""Arrays of a snapshot in the making: written column by column, then frozen."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

import numpy as np

from cluster.arrays import put, put_column, writeable
from cluster.card_columns import CardTable
from cluster.objects import NodeRecord
from scoring.resources import MAX_QUANTITY
from scoring.snapshot import BoolArray, Int64Array, LabelColumn, Snapshot


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
    cards: CardTable
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
            cards=CardTable.fresh(nodes),
            label_codes={key: np.zeros(nodes, dtype=np.int64) for key in label_keys},
            code_of={key: {} for key in label_keys},
        )

    @classmethod
    def upon(cls, last: Snapshot) -> Self:
        """Return the columns of a snapshot; `write` copies what it changes.

        PERF: most changes are bindings, which leave all but `requested` as it was;
        ``bench.cache``
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
            cards=CardTable.upon(last.cards),
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
        self.cards.write(column, node.cards)

    def write_use(
        self,
        column: int,
        requested: Mapping[str, int],
        row_of: Mapping[str, int],
        tenants: tuple[int, int],
        *,
        is_failing: bool,
    ) -> None:
        """Write what pods take of a node, and whether they fail there.

        `tenants` are its GPU pods, and how many of them are exclusive. A resource
        without a row is one that no node has.
        """
        held = [0] * len(self.requested)
        for name, amount in requested.items():
            row = row_of.get(name)
            if row is not None:
                held[row] = min(amount, MAX_QUANTITY)
        self.requested = put_column(self.requested, column, held)
        self.failing = put(self.failing, column, is_failing)
        self.cards.write_tenants(column, tenants)

    def mark(self, columns: Sequence[int], generation: int) -> None:
        """Note in which generation some columns were written."""
        if columns:
            self.changed_at = writeable(self.changed_at)
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

    def labels(self) -> Mapping[str, LabelColumn]:
        """Return the label columns, read-only."""
        return MappingProxyType(
            {
                key: LabelColumn(codes, MappingProxyType(self.code_of[key]))
                for key, codes in self.label_codes.items()
            }
        )
