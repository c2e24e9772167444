"""The writer's mutable table: applies changes, builds a `Snapshot`.

A pod counts once, by UID, on ``spec.nodeName``, until its phase is terminal or it is
deleted. ``deletionTimestamp`` frees nothing, and any scheduler's pods count.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec
import numpy as np

from cluster.objects import NodeRecord, PodRecord
from scoring.objects import Request
from scoring.resources import MAX_QUANTITY
from scoring.snapshot import (
    BoolArray,
    Int64Array,
    LabelColumn,
    NodeIndex,
    Snapshot,
    build_node_index,
)

# More than come in the seconds that an admission can be in flight.
MAX_ARRIVALS: Final = 4096
# Above this many changed shares the base of the overlay is made anew.
MAX_OVERLAY: Final = 2048


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node was added or changed.

    Attributes
    ----------
    is_partial : bool
        Whether a part of it did not decode; a record kept before then stays.
    """

    record: NodeRecord
    is_partial: bool = False


@dataclass(frozen=True, slots=True)
class NodeGone:
    """A node was deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class NodesListed:
    """A complete list: it replaces, it does not merge.

    Attributes
    ----------
    partial : frozenset of str
        Names of nodes of which a part did not decode; records kept before stay.
    """

    records: tuple[NodeRecord, ...]
    partial: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PodSeen:
    """A pod was added or changed; `is_partial` as in `NodeSeen`."""

    record: PodRecord
    is_partial: bool = False


@dataclass(frozen=True, slots=True)
class PodGone:
    """A pod was deleted."""

    uid: str


@dataclass(frozen=True, slots=True)
class PodsListed:
    """A complete list, as `NodesListed`; `partial` holds UIDs."""

    records: tuple[PodRecord, ...]
    partial: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DeviceClassesListed:
    """The extended resources that DeviceClasses carry, all of them."""

    resources: frozenset[str]


Change: TypeAlias = (
    NodeSeen
    | NodeGone
    | NodesListed
    | PodSeen
    | PodGone
    | PodsListed
    | DeviceClassesListed
)


class PodArrival(msgspec.Struct, frozen=True, gc=False):
    """A pod with a managed resource, as it was first seen."""

    sequence: int
    namespace: str
    name: str
    generate_name: str
    owner_uid: str
    request: Request


class ShareMap(Mapping[str, PodRecord]):
    """An immutable mapping: a large base under a small overlay.

    Publishing copies the overlay alone. In the overlay, None stands for a share that
    is gone.
    """

    __slots__ = ("_base", "_overlay")

    def __init__(
        self, base: Mapping[str, PodRecord], overlay: Mapping[str, PodRecord | None]
    ) -> None:
        self._base = base
        self._overlay = overlay

    def __getitem__(self, uid: str) -> PodRecord:
        record = self._overlay[uid] if uid in self._overlay else self._base[uid]
        if record is None:
            raise KeyError(uid)
        return record

    def __iter__(self) -> Iterator[str]:
        for uid in self._base:
            if uid not in self._overlay:
                yield uid
        for uid, record in self._overlay.items():
            if record is not None:
                yield uid

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Ledger:
    """Owns the cluster's state; only the ledger thread may call it.

    Parameters
    ----------
    label_keys : iterable of str
        Labels that get a column in each snapshot.
    """

    def __init__(self, label_keys: Iterable[str] = ()) -> None:
        self._label_keys = tuple(label_keys)
        self._generation = 0
        self._nodes: dict[str, NodeRecord] = {}
        self._pods: dict[str, PodRecord] = {}
        # node name -> resource -> requested; nodes not seen yet have theirs, too
        self._requested: dict[str, dict[str, int]] = {}
        self._pending: dict[str, PodRecord] = {}
        self._share_base: dict[str, PodRecord] = {}
        self._share_overlay: dict[str, PodRecord | None] = {}
        self._arrivals: deque[PodArrival] = deque(maxlen=MAX_ARRIVALS)
        self._arrival_count = 0
        self._device_class_resources: frozenset[str] = frozenset()
        self._has_nodes = False
        self._has_pods = False
        self._dirty: set[str] = set()
        self._is_layout_stale = True
        self._has_changes = True
        # resource -> row of the last snapshot
        self._rows: dict[str, int] = {}
        self._last: Snapshot | None = None

    @property
    def is_synced(self) -> bool:
        """Whether nodes and pods have both been listed and counted."""
        return self._has_nodes and self._has_pods

    @property
    def has_changes(self) -> bool:
        """Whether a snapshot built now would differ from the last one."""
        return self._has_changes

    def counts(self) -> dict[str, int]:
        """Return how many objects are held, by kind."""
        return {"nodes": len(self._nodes), "pods": len(self._pods)}

    def node(self, name: str) -> NodeRecord | None:
        """Return the record kept of a node."""
        return self._nodes.get(name)

    def pod(self, uid: str) -> PodRecord | None:
        """Return the record kept of a pod."""
        return self._pods.get(uid)

    def apply(self, change: Change) -> None:
        """Apply one change."""
        match change:
            case PodSeen(record, is_partial):
                self._apply_pod(record, is_partial=is_partial)
            case PodGone(uid):
                self._remove_pod(uid)
            case NodeSeen(record, is_partial):
                self._apply_node(record, is_partial=is_partial)
            case NodeGone(name):
                self._remove_node(name)
            case NodesListed(records, partial):
                self._replace_nodes(records, partial)
            case PodsListed(records, partial):
                self._replace_pods(records, partial)
            case DeviceClassesListed(resources):
                self._has_changes |= resources != self._device_class_resources
                self._device_class_resources = resources

    def _replace_nodes(
        self, records: tuple[NodeRecord, ...], partial: frozenset[str]
    ) -> None:
        for name in self._nodes.keys() - {record.name for record in records}:
            self._remove_node(name)
        for record in records:
            self._apply_node(record, is_partial=record.name in partial)
        self._has_nodes = True

    def _replace_pods(
        self, records: tuple[PodRecord, ...], partial: frozenset[str]
    ) -> None:
        for uid in self._pods.keys() - {record.uid for record in records}:
            self._remove_pod(uid)
        for record in records:
            self._apply_pod(record, is_partial=record.uid in partial)
        self._has_pods = True

    def _apply_node(self, record: NodeRecord, *, is_partial: bool) -> None:
        previous = self._nodes.get(record.name)
        if previous is not None and (is_partial or previous == record):
            return
        if previous is None or not _resources_of(record) <= self._rows.keys():
            self._is_layout_stale = True
        self._nodes[record.name] = record
        self._dirty.add(record.name)
        self._has_changes = True

    def _remove_node(self, name: str) -> None:
        if self._nodes.pop(name, None) is not None:
            self._is_layout_stale = True
            self._has_changes = True

    def _apply_pod(self, record: PodRecord, *, is_partial: bool) -> None:
        """Take the pod's old share out before its new one goes in."""
        previous = self._pods.get(record.uid)
        if previous is not None and (is_partial or previous == record):
            return  # most events change nothing that we keep
        if previous is not None:
            self._count(previous, -1)
        elif self._has_pods and record.is_managed and not record.is_terminal:
            self._note_arrival(record)
        self._pods[record.uid] = record
        self._count(record, +1)

    def _remove_pod(self, uid: str) -> None:
        record = self._pods.pop(uid, None)
        if record is not None:
            self._count(record, -1)

    def _note_arrival(self, record: PodRecord) -> None:
        self._arrival_count += 1
        self._arrivals.append(
            PodArrival(
                self._arrival_count,
                record.namespace,
                record.name,
                record.generate_name,
                record.owner_uid,
                record.request,
            )
        )

    def _count(self, record: PodRecord, sign: int) -> None:
        """Add (+1) or take out (-1) what a pod holds, or that it is pending."""
        if record.is_terminal:
            return
        self._has_changes = True
        if not record.node_name:
            if record.is_managed and sign > 0:
                self._pending[record.uid] = record
            else:
                self._pending.pop(record.uid, None)
            return
        held = self._requested.setdefault(record.node_name, {})
        for name, amount in record.request:
            if name not in self._rows:
                self._is_layout_stale = True
            held[name] = held.get(name, 0) + sign * amount
        if not any(held.values()):
            del self._requested[record.node_name]
        self._dirty.add(record.node_name)
        if record.is_managed:
            self._share_overlay[record.uid] = record if sign > 0 else None

    def build(self) -> Snapshot:
        """Return the state as a snapshot with a new generation."""
        self._generation += 1
        last = self._last
        if last is None or self._is_layout_stale:
            snapshot = self._build_anew()
        else:
            snapshot = self._build_upon(last)
        self._dirty.clear()
        self._is_layout_stale = False
        self._has_changes = False
        self._last = snapshot
        return snapshot

    def _build_anew(self) -> Snapshot:
        """Lay out all arrays for the present nodes and resources."""
        last = self._last
        names = tuple(self._nodes)
        index = (
            last.nodes
            if last is not None and last.nodes.names == names
            else build_node_index(names)
        )
        resources = sorted(
            {name for held in self._requested.values() for name in held}.union(
                *(_resources_of(node) for node in self._nodes.values())
            )
        )
        shape = (len(resources), len(names))
        draft = _Draft(
            allocatable=np.zeros(shape, dtype=np.int64),
            requested=np.zeros(shape, dtype=np.int64),
            offered=np.zeros(shape, dtype=np.bool_),
            schedulable=np.zeros(len(names), dtype=np.bool_),
            faulted=np.zeros(len(names), dtype=np.bool_),
            label_codes={
                key: np.zeros(len(names), dtype=np.int64) for key in self._label_keys
            },
            code_of={key: {} for key in self._label_keys},
            facts=[],
        )
        draft.facts.extend(self._nodes.values())
        return self._finish(draft, index, tuple(resources), names)

    def _build_upon(self, last: Snapshot) -> Snapshot:
        """Copy the last arrays and write the changed nodes' columns."""
        draft = _Draft(
            allocatable=last.allocatable.copy(),
            requested=last.requested.copy(),
            offered=last.offered.copy(),
            schedulable=last.schedulable.copy(),
            faulted=last.faulted.copy(),
            label_codes={key: col.codes.copy() for key, col in last.labels.items()},
            code_of={key: dict(col.code_of) for key, col in last.labels.items()},
            facts=list(self._nodes.values()),
        )
        changed = [name for name in self._dirty if name in self._nodes]
        return self._finish(draft, last.nodes, last.resources, changed)

    def _finish(
        self,
        draft: "_Draft",
        index: NodeIndex,
        resources: tuple[str, ...],
        changed: Iterable[str],
    ) -> Snapshot:
        """Write the `changed` columns of `draft` and freeze it."""
        self._rows = {name: row for row, name in enumerate(resources)}
        for name in changed:
            draft.write(
                index.column_of[name],
                self._nodes[name],
                self._requested.get(name, {}),
                self._rows,
            )
        return Snapshot(
            generation=self._generation,
            nodes=index,
            resources=resources,
            allocatable=_frozen(draft.allocatable),
            requested=_frozen(draft.requested),
            offered=_frozen(draft.offered),
            schedulable=_frozen(draft.schedulable),
            faulted=_frozen(draft.faulted),
            labels=MappingProxyType(
                {
                    key: LabelColumn(
                        _frozen(codes), MappingProxyType(draft.code_of[key])
                    )
                    for key, codes in draft.label_codes.items()
                }
            ),
            facts=tuple(draft.facts),
            shares=self._shares(),
            pending=tuple(self._pending.values()),
            arrivals=tuple(self._arrivals),
            device_class_resources=self._device_class_resources,
        )

    def _shares(self) -> ShareMap:
        if len(self._share_overlay) > MAX_OVERLAY:
            self._share_base = dict(ShareMap(self._share_base, self._share_overlay))
            self._share_overlay = {}
        return ShareMap(self._share_base, dict(self._share_overlay))


@dataclass(slots=True)
class _Draft:
    """Arrays of a snapshot in the making; shapes as in `Snapshot`."""

    allocatable: Int64Array
    requested: Int64Array
    offered: BoolArray
    schedulable: BoolArray
    faulted: BoolArray
    label_codes: dict[str, Int64Array]
    code_of: dict[str, dict[str, int]]
    facts: list[NodeRecord]

    def write(
        self,
        column: int,
        node: NodeRecord,
        requested: Mapping[str, int],
        row_of: Mapping[str, int],
    ) -> None:
        """Write all that is known of one node into its column."""
        self.allocatable[:, column] = 0
        self.requested[:, column] = 0
        self.offered[:, column] = False
        for name, _ in node.capacity:
            self.offered[row_of[name], column] = True
        for name, amount in node.allocatable:
            self.offered[row_of[name], column] = True
            self.allocatable[row_of[name], column] = amount
        for name, amount in requested.items():
            self.requested[row_of[name], column] = min(amount, MAX_QUANTITY)
        self.schedulable[column] = node.is_ready and not node.is_cordoned
        self.faulted[column] = node.is_faulted
        for key, codes in self.label_codes.items():
            value = node.labels.get(key)
            known = self.code_of[key]
            codes[column] = (
                0 if value is None else known.setdefault(value, len(known) + 1)
            )


def _frozen(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array


def _resources_of(node: NodeRecord) -> set[str]:
    """Return the names of the resources that a node mentions."""
    return {name for name, _ in node.allocatable} | {name for name, _ in node.capacity}
