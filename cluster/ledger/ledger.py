"""`Ledger`: the writer's mutable table, which applies changes and builds snapshots."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from cluster.decode.objects import NodeRecord, PodRecord
from cluster.ledger.changes import (
    Change,
    DeviceClassesListed,
    GpuModelsChanged,
    LimitRangesListed,
    NodeGone,
    NodeSeen,
    NodesListed,
    PodGone,
    PodSeen,
    PodsListed,
)
from cluster.ledger.columns import Columns
from cluster.ledger.failures import NO_LIMITS, Failures
from cluster.ledger.pods import (
    Bindings,
    BoundPods,
    Departures,
    RecentPods,
    Workload,
)
from scoring.protocols import FailingNode, LimitDefaults, LimitMaxima
from scoring.snapshot import NO_SUPPLY, NodeIndex, Snapshot, build_node_index

MIN_LOST_KEYS: Final = 1024


class Ledger:
    """Owns the cluster's state; only the ledger thread may call it.

    Parameters
    ----------
    label_keys : iterable of str
        Labels that get a column in each snapshot.
    """

    def __init__(
        self, label_keys: Iterable[str] = (), failures: Failures | None = None
    ) -> None:
        self._label_keys = tuple(label_keys)
        self._generation = 0
        self._nodes: dict[str, NodeRecord] = {}
        self._pods: dict[str, PodRecord] = {}
        self._lost_keys = 0  # keys removed since that dict was made
        # namespace -> name of a pod -> its UID: a name is one pod's at a time
        self._uids: dict[str, dict[str, str]] = {}
        # node name -> resource -> requested; nodes not seen yet have theirs, too
        self._requested: dict[str, dict[str, int]] = {}
        self._pending: dict[str, PodRecord] = {}
        # What a snapshot has of nodes and pending pods; None if that is out of date.
        self._facts: tuple[NodeRecord, ...] | None = None
        self._waiting: tuple[PodRecord, ...] | None = None
        # bound pods that keep others away, by UID, and what a snapshot has of them
        self._excluding: dict[str, PodRecord] = {}
        self._excluded: tuple[PodRecord, ...] | None = None
        self._bound_pods = BoundPods()
        self._recent_pods = RecentPods()
        self._bindings = Bindings()
        self._departures = Departures()
        self._failures = failures or Failures(NO_LIMITS)
        self._workload = Workload()
        self._device_class_resources: frozenset[str] = frozenset()
        self._limit_maxima: Mapping[str, LimitMaxima] = MappingProxyType({})
        self._limit_defaults: Mapping[str, LimitDefaults] = MappingProxyType({})
        self._has_nodes = False
        self._has_pods = False
        self._dirty: set[str] = set()
        self._rewritten: set[str] = set()  # nodes whose own record changed
        self._is_layout_stale = True
        self._has_changes = True
        self._rows: dict[str, int] = {}  # resource -> row of the last snapshot
        self._last: Snapshot | None = None

    @property
    def is_synced(self) -> bool:
        """Whether nodes and pods have both been listed and counted."""
        return self._has_nodes and self._has_pods

    @property
    def has_changes(self) -> bool:
        """Whether a snapshot built now would differ from the last one."""
        return self._has_changes

    def seconds_to_expiry(self) -> float | None:
        """Seconds until `expire` has something to do, None for never."""
        return self._failures.seconds_to_expiry()

    def expire(self) -> None:
        """Let nodes count as sound again whose failures are too long ago."""
        for name in self._failures.expire():
            self._mark(name)

    def counts(self) -> dict[str, int]:
        """Return how many objects are held, by kind."""
        return {"nodes": len(self._nodes), "pods": len(self._pods)}

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
            case GpuModelsChanged():
                for seen in change.reread(self._nodes.values(), self._pods.values()):
                    self.apply(seen)
            case _:
                self._replace_beside(change)

    def _replace_beside(self, change: DeviceClassesListed | LimitRangesListed) -> None:
        """Replace what is kept beside nodes and pods."""
        if isinstance(change, LimitRangesListed):
            new = change.maxima, change.defaults
            self._has_changes |= new != (self._limit_maxima, self._limit_defaults)
            self._limit_maxima, self._limit_defaults = new
            return
        self._has_changes |= change.resources != self._device_class_resources
        self._is_layout_stale |= not change.resources <= self._rows.keys()
        self._device_class_resources = change.resources

    def _replace_nodes(
        self, records: tuple[NodeRecord, ...], partial: frozenset[str]
    ) -> None:
        for name in self._nodes.keys() - {node.name for node in records} - partial:
            self._remove_node(name)
        for record in records:
            self._apply_node(record, is_partial=record.name in partial)
        self._has_nodes = True

    def _replace_pods(
        self, records: tuple[PodRecord, ...], partial: frozenset[str]
    ) -> None:
        for uid in self._pods.keys() - {pod.uid for pod in records} - partial:
            self._remove_pod(uid)
        # Failures are to be noted in the order of their times.
        for record in sorted(records, key=lambda record: record.failed_at or 0):
            self._apply_pod(record, is_partial=record.uid in partial)
        self._has_pods = True

    def _apply_node(self, record: NodeRecord, *, is_partial: bool) -> None:
        previous = self._nodes.get(record.name)
        if previous is not None and (
            previous == record or (is_partial and previous.uid == record.uid)
        ):
            return
        if previous is None or not record.mentioned() <= self._rows.keys():
            self._is_layout_stale = True
        if previous is not None and previous.uid != record.uid:
            self._failures.forget(record.name)
        self._nodes[record.name] = record
        self._facts = None
        self._rewritten.add(record.name)
        self._mark(record.name)

    def _remove_node(self, name: str) -> None:
        if self._nodes.pop(name, None) is not None:
            self._facts = None
            self._failures.forget(name)
            self._is_layout_stale = True
            self._has_changes = True

    def _apply_pod(self, record: PodRecord, *, is_partial: bool) -> None:
        """Take the pod's old share out before its new one goes in."""
        previous = self._pods.get(record.uid)
        if previous is not None and (is_partial or previous == record):
            return  # most events change nothing that we keep
        if previous is not None:
            self._count(previous, -1)
            if record.is_terminal:
                self._departures.note(previous)
            elif record.is_managed and record.node_name and not previous.node_name:
                self._bindings.note(record)
        else:
            self._take_name(record)
            if not record.is_terminal:
                self._workload.note(record)
            if self._has_pods and record.is_managed and not record.is_terminal:
                self._recent_pods.note(record)
        self._pods[record.uid] = record
        self._count(record, +1)
        if record.failed_at is not None:
            owner = record.owner_uid or record.uid
            pod = f"{record.namespace}/{record.name}"
            if self._failures.note(record.node_name, owner, record.failed_at, pod):
                self._mark(record.node_name)

    def _take_name(self, record: PodRecord) -> None:
        """Give a name to a new pod: the one that had it is gone, seen or not."""
        if not record.name:
            return
        names = self._uids.setdefault(record.namespace, {})
        former = names.get(record.name)
        if former is not None:
            self._remove_pod(former)
        self._uids.setdefault(record.namespace, names)[record.name] = record.uid

    def _remove_pod(self, uid: str) -> None:
        record = self._pods.pop(uid, None)
        if record is None:
            return
        names = self._uids.get(record.namespace, {})
        if names.get(record.name) == uid:
            del names[record.name]
            if not names:
                del self._uids[record.namespace]
        self._count(record, -1)
        self._departures.note(record)
        # PERF: a dict grows before it reuses the slots of lost keys; a copy has
        # none. ``bench.cluster.cache`` shows it in the memory after a million events.
        self._lost_keys += 1
        if self._lost_keys > MIN_LOST_KEYS + len(self._pods) // 4:
            self._pods = dict(self._pods)
            self._lost_keys = 0

    def _mark(self, node_name: str) -> None:
        """Have a node's column written again."""
        self._dirty.add(node_name)
        self._has_changes = True

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
            self._waiting = None
            return
        held = self._requested.setdefault(record.node_name, {})
        for name, amount in record.request:
            held[name] = held.get(name, 0) + sign * amount
        if not any(held.values()):
            del self._requested[record.node_name]
        self._dirty.add(record.node_name)
        if record.is_managed:
            self._bound_pods.count(record, sign)
        if record.exclusions is not None:
            if sign > 0:
                self._excluding[record.uid] = record
            else:
                self._excluding.pop(record.uid, None)
            self._excluded = None

    def build(self) -> Snapshot:
        """Return the state as a snapshot with a new generation."""
        self._generation += 1
        last = self._last
        if last is None or self._is_layout_stale:
            snapshot = self._build_layout()
        else:
            changed = self._dirty & self._nodes.keys()
            columns = Columns.upon(last)
            snapshot = self._finish(columns, last.nodes, last.resources, changed)
        self._dirty.clear()
        self._rewritten.clear()
        self._is_layout_stale = False
        self._has_changes = False
        self._last = snapshot
        return snapshot

    def _build_layout(self) -> Snapshot:
        """Lay out all arrays for the present nodes and resources."""
        last = self._last
        names = tuple(self._nodes)
        index = (
            last.nodes
            if last is not None and last.nodes.names == names
            else build_node_index(names)
        )
        # No node has what pods alone name, and they may name thousands.
        resources = sorted(
            self._device_class_resources.union(
                *(node.mentioned() for node in self._nodes.values())
            )
        )
        columns = Columns.fresh(len(resources), len(names), self._label_keys)
        self._rewritten.update(names)
        if last is not None:
            columns.carry_over(last, names)
        return self._finish(columns, index, tuple(resources), names)

    def _finish(
        self,
        columns: Columns,
        index: NodeIndex,
        resources: tuple[str, ...],
        changed: Iterable[str],
    ) -> Snapshot:
        """Write the `changed` nodes and freeze all."""
        self._rows = {name: row for row, name in enumerate(resources)}
        has_new_nodes = self._last is None or bool(self._rewritten)
        self._write(columns, index, changed)
        supply = NO_SUPPLY if self._last is None else self._last.gpus.supply
        if has_new_nodes:
            supply = columns.gpus.supply(columns.whole_gpus(self._rows), supply)
        # PERF: tuples are built again when they change alone; `bench.cluster.cache`
        if self._facts is None:
            self._facts = tuple(self._nodes.values())
        if self._waiting is None:
            self._waiting = tuple(self._pending.values())
        if self._excluded is None:
            self._excluded = tuple(self._excluding.values())
        return Snapshot(
            generation=self._generation,
            nodes=index,
            resources=resources,
            allocatable=columns.allocatable,
            requested=columns.requested,
            offered=columns.offered,
            schedulable=columns.schedulable,
            faulted=columns.faulted,
            failing=columns.failing,
            changed_at=columns.changed_at,
            labels=columns.labels(),
            gpus=columns.gpus.publish(supply),
            facts=self._facts,
            bound_pods=self._bound_pods.publish(),
            jobs=self._bound_pods.publish_jobs(),
            excluding=self._excluded,
            pending=self._waiting,
            expected=self._workload.publish(supply.unit),
            recent_pods=self._recent_pods.publish(),
            device_class_resources=self._device_class_resources,
            departed=self._departures.publish(),
            bindings=self._bindings.publish(),
            failing_nodes=self._failing_nodes(),
            limit_maxima=self._limit_maxima,
            limit_defaults=self._limit_defaults,
        )

    def _failing_nodes(self) -> Mapping[str, FailingNode]:
        """Return the failing nodes that there are."""
        failing = [name for name in self._failures.nodes if name in self._nodes]
        return MappingProxyType({n: self._failures.describe(n) for n in failing})

    def _write(
        self, columns: Columns, index: NodeIndex, changed: Iterable[str]
    ) -> None:
        """Write the columns of the `changed` nodes, and freeze all arrays."""
        for name in changed:
            column, node = index.column_of[name], self._nodes[name]
            # PERF: most nodes change in what pods take of them alone;
            # ``bench.cluster.cache``
            if name in self._rewritten:
                columns.write(column, node, self._rows)
            held = self._requested.get(name, {})
            use = self._bound_pods.use_of(node)
            is_failing = name in self._failures.nodes
            columns.write_use(column, held, self._rows, use, is_failing=is_failing)
        dirty = [index.column_of[n] for n in self._dirty if n in index.column_of]
        columns.mark(dirty, self._generation)
        columns.freeze()
