"""`EventPlan`: what is to be told of which pending pod, and in which order.

Pure but for its own memory: no I/O, no clock, no thread.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from cluster.decode.objects import PodRecord
from extender.events.event import NORMAL, WARNING, Event, Regarding, key_of
from extender.events.notices import MAX_PODS_OF_OWNER, NoticeQueue
from extender.explain.pending import kind_key
from scoring.neighbours import labels_of_repelled
from scoring.protocols import FailingNode
from scoring.snapshot import Snapshot

# Before that, kube-scheduler may just not have come to it.
PENDING_SECONDS: Final = 30.0

# For so long a kind of pod is told the same, whatever happens to nodes.
KIND_SECONDS: Final = 5.0

# Between two looks at which pods are pending.
FOLLOW_SECONDS: Final = 1.0

# After a description that ended in a fault of our own.
FAULT_SECONDS: Final = 60.0

PENDING: Final = "GPUPodPending"

FAILING: Final = "GPUPodsFailing"

SCHEDULING: Final = "Scheduling"


class Told(NamedTuple):
    """Why a pod is pending: a sentence, and the classes of all reasons in it.

    Attributes
    ----------
    is_warning : bool
        Not of a pod that fits: it only has to wait for kube-scheduler's next try.
    """

    note: str
    classes: frozenset[str]
    is_warning: bool = True


# Says why a pod is pending.
Describe: TypeAlias = Callable[[PodRecord, Snapshot], Told]


@dataclass(slots=True, eq=False)
class _Kind:
    """Pods that are told the same; `told` is None before, and after a fault."""

    record: PodRecord
    told: Told | None = None
    generation: int = -1
    described_at: float = float("-inf")
    not_before: float = float("-inf")


@dataclass(slots=True, eq=False)
class _Owner:
    """Several pods' controller, and what was told of it: the key of each Event."""

    regarding: Regarding
    told: set[str] = field(default_factory=set)
    pods: dict[str, "_Pod"] = field(default_factory=dict)
    told_pods: set[str] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class _Pod:
    """A pending pod, and what was told of it: the key of each Event."""

    record: PodRecord
    kind: _Kind
    owner: _Owner | None
    told: set[str] = field(default_factory=set)

    @property
    def regarding(self) -> Regarding:
        record = self.record
        return Regarding("v1", "Pod", record.namespace, record.name, record.uid)


class EventPlan:
    """The pending pods and what they were told; one thread calls it.

    Attributes
    ----------
    described : int
        How often a kind of pod was described.
    notices : NoticeQueue
        What is told as soon as a pod is seen: of controllers first, of pods by turns
        with what is told of pending ones.

    Parameters
    ----------
    describe : callable
        Called once for pods that only differ in their names.
    """

    def __init__(self, describe: Describe) -> None:
        self.described = 0
        self.notices = NoticeQueue()
        self._describe = describe
        self._is_notice_due = True
        # UID of a failing node -> what it was told
        self._told_nodes: dict[str, str] = {}
        self._pods: dict[str, _Pod] = {}
        self._kinds: dict[bytes, _Kind] = {}
        self._owners: dict[str, _Owner] = {}
        self._order: list[_Pod] = []
        self._followed_at = float("-inf")
        self._pending: Sequence[object] | None = None
        self._excluding: Sequence[object] = ()
        # labels of pods that running pods ask for; None where none does
        self._labels_read: frozenset[str] | None = None

    def next(
        self,
        snapshot: Snapshot,
        now: float,
        monotonic: float,
        *,
        may_describe: bool = True,
    ) -> Event | None:
        """Return what is to be told next; it counts as told until `forget`.

        Parameters
        ----------
        now : float
            Seconds since 1970, as the API server counts them.
        monotonic : float
            Seconds of the monotonic clock.
        may_describe : bool
            Whether one more kind of pods may be described.
        """
        if event := self.notices.next_of_owner(monotonic):
            return event
        if event := self._next_failing(snapshot):
            return event
        self._is_notice_due = not self._is_notice_due
        if self._is_notice_due and (event := self.notices.next_of_pod(monotonic)):
            return event
        event = self._next_pending(snapshot, now, monotonic, may_describe=may_describe)
        return event or self.notices.next_of_pod(monotonic)

    def _next_failing(self, snapshot: Snapshot) -> Event | None:
        """Return an Event on the first failing node that was not told of."""
        if not (snapshot.failing_nodes or self._told_nodes):
            return None
        told, self._told_nodes = self._told_nodes, {}
        found = None
        for name, failing in snapshot.failing_nodes.items():
            uid = snapshot.facts[snapshot.nodes.column_of[name]].uid
            # Told by another replica, or before a restart, it is the same.
            key = str(int(failing.since))
            if told.get(uid) != key:
                if found is not None:
                    continue
                node = Regarding("v1", "Node", "", name, uid)
                found = Event(node, FAILING, SCHEDULING, _note_of(failing), key)
            self._told_nodes[uid] = key
        return found

    def _next_pending(
        self, snapshot: Snapshot, now: float, monotonic: float, *, may_describe: bool
    ) -> Event | None:
        """Return what is told next of pods that are pending, and their owners."""
        if monotonic - self._followed_at >= FOLLOW_SECONDS:
            self._followed_at = monotonic
            self._follow(snapshot, now)
        describer = _Describer(self, snapshot, monotonic, may_describe=may_describe)
        if event := self._next_of(self._candidates(now, fresh=True), now, describer):
            return event
        if describer.is_wanted:
            return None  # those that were never told come first
        again = list(self._candidates(now, fresh=False))
        stale = {id(p.kind): p.kind for p in again if describer.is_stale(p.kind)}
        if stale:
            describer.renew(min(stale.values(), key=lambda kind: kind.described_at))
        return self._next_of(again, now, describer)

    def forget(self, event: Event) -> None:
        """Have an Event told once more, which was not written."""
        if event.reason == FAILING:
            self._told_nodes.pop(event.regarding.uid, None)
            return
        if event.reason != PENDING:
            self.notices.put_back(event)
            return
        key, uid = event.key, event.regarding.uid
        if (pod := self._pods.get(uid)) is not None:
            pod.told.discard(key)
            if pod.owner is not None and not pod.told:
                pod.owner.told_pods.discard(uid)
        if (owner := self._owners.get(uid)) is not None:
            owner.told.discard(key)

    def _follow(self, snapshot: Snapshot, now: float) -> None:
        """Bring pods, kinds and owners in step with the pods that are pending."""
        if snapshot.excluding is not self._excluding:
            self._excluding = snapshot.excluding
            labels_read = labels_of_repelled(snapshot)
            if labels_read != self._labels_read:
                self._labels_read = labels_read
                for pod in self._pods.values():
                    pod.kind = self._kind_of(pod.record)
        if snapshot.pending is not self._pending:
            self._pending = snapshot.pending
            records = [p for p in snapshot.pending if isinstance(p, PodRecord)]
            for uid in self._pods.keys() - {record.uid for record in records}:
                self._drop(self._pods.pop(uid))
            for record in records:
                self._take(record)
            kinds = {id(pod.kind) for pod in self._pods.values()}
            self._kinds = {k: v for k, v in self._kinds.items() if id(v) in kinds}
        self._order = list(self._in_order(now))

    def _drop(self, pod: _Pod) -> None:
        owner = pod.owner
        if owner is None:
            return
        owner.pods.pop(pod.record.uid, None)
        owner.told_pods.discard(pod.record.uid)
        if not owner.pods:
            self._owners.pop(owner.regarding.uid, None)

    def _take(self, record: PodRecord) -> None:
        """Take in a pod as it is now."""
        pod = self._pods.get(record.uid)
        if pod is not None and pod.record is record:
            return
        kind = self._kind_of(record)
        if pod is not None:
            pod.record, pod.kind = record, kind
            return
        pod = _Pod(record, kind, self._owner_of(record))
        self._pods[record.uid] = pod
        if pod.owner is not None:
            pod.owner.pods[record.uid] = pod

    def _kind_of(self, record: PodRecord) -> _Kind:
        key = kind_key(record, self._labels_read)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = _Kind(record)
        return kind

    def _owner_of(self, record: PodRecord) -> _Owner | None:
        reference = record.owner
        if reference is None or not (reference.uid and reference.name):
            return None
        owner = self._owners.get(reference.uid)
        if owner is None:
            owner = self._owners[reference.uid] = _Owner(
                Regarding(
                    reference.api_version,
                    reference.kind,
                    record.namespace,
                    reference.name,
                    reference.uid,
                )
            )
        return owner

    def _in_order(self, now: float) -> Iterator[_Pod]:
        """Yield the pods of which something may be told, those of each owner by turns.

        Pods without an owner take their turns one after the other, as those of one.
        """
        due = [p for p in self._pods.values() if self._is_due(p, now)]
        due.sort(key=lambda pod: (pod.record.created, pod.record.uid))
        turns: dict[str, int] = defaultdict(int)
        ranked: list[tuple[int, int, _Pod]] = []
        for pod in due:
            owner = pod.owner
            if owner is None:
                turns[""] += 1
                ranked.append((turns[""], len(ranked), pod))
                continue
            uid = owner.regarding.uid
            if pod.record.uid not in owner.told_pods:
                if turns[uid] + len(owner.told_pods) >= MAX_PODS_OF_OWNER:
                    continue
                turns[uid] += 1
            turn = turns[uid] + len(owner.told_pods)
            ranked.append((turn, len(ranked), pod))
        ranked.sort(key=lambda turn: turn[:2])
        for _, _, pod in ranked:
            yield pod

    def _is_due(self, pod: _Pod, now: float) -> bool:
        """Whether a pod has been pending for long enough."""
        return pod.record.created + PENDING_SECONDS <= now

    def _candidates(self, now: float, *, fresh: bool) -> Iterator[_Pod]:
        """Yield the pods that are due, told before or not, as far as they may be."""
        for pod in self._order:
            if self._is_due(pod, now) and bool(pod.told) is not fresh:
                yield pod

    def _next_of(
        self, pods: Iterable[_Pod], now: float, describer: "_Describer"
    ) -> Event | None:
        """Return the first Event on some pods, describing one kind at most."""
        for pod in pods:
            if describer.is_stale(pod.kind):
                describer.renew(pod.kind)
            told = pod.kind.told
            if told is None or describer.is_stale(pod.kind):
                continue
            key, kind = key_of(told.classes), WARNING if told.is_warning else NORMAL
            if key in pod.told:
                continue
            if pod.owner is not None and key not in pod.owner.told:
                note = f"{told.note} Pods that wait: {self._count(pod, now)}."
                pod.owner.told.add(key)
                return Event(pod.owner.regarding, PENDING, SCHEDULING, note, key, kind)
            pod.told.add(key)
            if pod.owner is not None:
                pod.owner.told_pods.add(pod.record.uid)
            return Event(pod.regarding, PENDING, SCHEDULING, told.note, key, kind)
        return None

    def _count(self, pod: _Pod, now: float) -> int:
        """Return how many pods of the same kind and owner wait, all in all."""
        if pod.owner is None:
            return 1
        pods = pod.owner.pods.values()
        return sum(p.kind is pod.kind and self._is_due(p, now) for p in pods)

    def describe(self, kind: _Kind, snapshot: Snapshot, monotonic: float) -> None:
        """Describe a kind; raise what that raises, and leave it alone for a while."""
        self.described += 1
        kind.described_at = monotonic
        kind.generation = snapshot.generation
        kind.told = None
        kind.not_before = monotonic + FAULT_SECONDS
        kind.told = self._describe(kind.record, snapshot)
        kind.not_before = float("-inf")


def _note_of(failing: FailingNode) -> str:
    """Return what is told of a failing node; the pods last, where it may be cut."""
    return (
        "GPU pods of several owners failed on this node before they ran: others are"
        " preferred for a while, so look at its kubelet and device plugin. It was"
        f" {', '.join(failing.pods)}."
    )


class _Describer:
    """Describes one kind at most, by one snapshot.

    Attributes
    ----------
    is_wanted : bool
        Whether it was asked for one more.
    """

    def __init__(
        self,
        plan: EventPlan,
        snapshot: Snapshot,
        monotonic: float,
        *,
        may_describe: bool,
    ) -> None:
        self._plan = plan
        self._snapshot = snapshot
        self._monotonic = monotonic
        self._may_describe = may_describe
        self.is_wanted = False

    def is_stale(self, kind: _Kind) -> bool:
        """Whether a kind is to be described, for the first time or again."""
        if self._monotonic < kind.not_before:
            return False
        if kind.generation == self._snapshot.generation:
            return False
        return self._monotonic - kind.described_at >= KIND_SECONDS

    def renew(self, kind: _Kind) -> None:
        """Describe a kind, unless one was already."""
        if not self._may_describe:
            self.is_wanted = True
            return
        self._may_describe = False
        self._plan.describe(kind, self._snapshot, self._monotonic)
