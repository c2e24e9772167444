"""The writer's mutable table: applies changes, builds a `Snapshot`.

A pod counts once, by UID, on ``spec.nodeName``, until its phase is terminal or it is
deleted. ``deletionTimestamp`` frees nothing, and any scheduler's pods count.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

import msgspec

from cluster.changes import (
    Change,
    DeviceClassesListed,
    NodeGone,
    NodeSeen,
    NodesListed,
    PodGone,
    PodSeen,
    PodsListed,
)
from cluster.columns import Columns
from cluster.objects import NodeRecord, PodRecord
from cluster.shares import Shares
from scoring.objects import Request
from scoring.snapshot import NodeIndex, Snapshot, build_node_index

# More than come in the seconds that an admission can be in flight.
MAX_ARRIVALS: Final = 4096
MIN_LOST_PLACES: Final = 1024


class PodArrival(msgspec.Struct, frozen=True, gc=False):
    """A pod with a managed resource, as it was first seen."""

    sequence: int
    namespace: str
    name: str
    generate_name: str
    owner_uid: str
    request: Request


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
        self._lost_places = 0  # removed since that dict was made
        # node name -> resource -> requested; nodes not seen yet have theirs, too
        self._requested: dict[str, dict[str, int]] = {}
        self._pending: dict[str, PodRecord] = {}
        self._shares = Shares()
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
        if record is None:
            return
        self._count(record, -1)
        # PERF: a dict grows before it uses the places of lost keys again; a copy has
        # none. ``bench.cache`` shows it in the memory after a million events.
        self._lost_places += 1
        if self._lost_places > MIN_LOST_PLACES + len(self._pods) // 4:
            self._pods = dict(self._pods)
            self._lost_places = 0

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
            if sign > 0:
                self._shares.put(record)
            else:
                self._shares.drop(record.uid)

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
        columns = Columns.fresh(len(resources), len(names), self._label_keys)
        if last is not None:
            columns.carry_over(last, names)
        return self._finish(columns, index, tuple(resources), names)

    def _build_upon(self, last: Snapshot) -> Snapshot:
        """Copy the last arrays and write the changed nodes' columns."""
        changed = [name for name in self._dirty if name in self._nodes]
        return self._finish(Columns.upon(last), last.nodes, last.resources, changed)

    def _finish(
        self,
        columns: Columns,
        index: NodeIndex,
        resources: tuple[str, ...],
        changed: Iterable[str],
    ) -> Snapshot:
        """Write the `changed` nodes and freeze all."""
        self._rows = {name: row for row, name in enumerate(resources)}
        for name in changed:
            columns.write(
                index.column_of[name],
                self._nodes[name],
                self._requested.get(name, {}),
                self._rows,
            )
        dirty = [index.column_of[n] for n in self._dirty if n in index.column_of]
        columns.changed_at[dirty] = self._generation
        columns.freeze()
        return Snapshot(
            generation=self._generation,
            nodes=index,
            resources=resources,
            allocatable=columns.allocatable,
            requested=columns.requested,
            offered=columns.offered,
            schedulable=columns.schedulable,
            faulted=columns.faulted,
            changed_at=columns.changed_at,
            labels=columns.labels(),
            facts=tuple(self._nodes.values()),
            shares=self._shares.publish(),
            pending=tuple(self._pending.values()),
            arrivals=tuple(self._arrivals),
            device_class_resources=self._device_class_resources,
        )


def _resources_of(node: NodeRecord) -> set[str]:
    """Return the names of the resources that a node mentions."""
    return {name for name, _ in node.allocatable} | {name for name, _ in node.capacity}
