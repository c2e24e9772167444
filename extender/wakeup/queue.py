"""`WakeUps`: unschedulable pods, and when each of them is to be woken.

A pod that we refuse waits in kube-scheduler until an event. The event may come before
our watch shows us what it is about, and kube-scheduler may not offer the one node that
fits; then nothing would try the pod again for five minutes. So it is woken.
"""

import threading
from itertools import islice
from typing import Final, NamedTuple

from cluster.decode.objects import PodRecord
from extender.verbs.options import VerbOptions
from extender.wakeup.feasible_nodes import FeasibleNodes, PodClass
from extender.wakeup.pods import PodGroup, UnschedulablePod
from scoring.candidates import PodRequest
from scoring.snapshot import Snapshot

# At most ten a second over all pods.
INTERVAL_SECONDS: Final = 0.1

# Classes that are judged at a time, so that nobody waits for the GIL.
MAX_JUDGED: Final = 16

# A refused pod that the watch does not show by then was deleted before.
UNSEEN_SECONDS: Final = 60.0

MAX_REFUSED: Final = 50_000

# After a try that ended in a fault of our own.
FAULT_SECONDS: Final = 60.0

# A namespace that is still there is tried, and fails again, long before.
FORGOTTEN_SECONDS: Final = 3600.0


class Refusal(NamedTuple):
    """An empty answer: generation of its snapshot, number of nodes offered."""

    generation: int
    offered: int
    nominated_node: str


class Wake(NamedTuple):
    """A pod to be woken."""

    uid: str
    namespace: str
    name: str


class WakeUps:
    """The unschedulable pods; `note` may be called by any thread, all else by one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # pod UID -> its newest answer that is not taken in yet, None if not empty
        self._noted: dict[str, Refusal | None] = {}
        self._pods: dict[str, UnschedulablePod] = {}
        # the class that was judged last stands last
        self._groups: dict[PodClass, PodGroup] = {}
        # of the pods that could not be woken -> until when the last one waits;
        # gone when one of the namespace is woken, or an hour after that time
        self._failing_namespaces: dict[str, float] = {}
        self._feasible_nodes: FeasibleNodes | None = None
        self._generation = -1
        self._device_class_resources: frozenset[str] = frozenset()
        # Generation in which what nodes offer changed without a change of their own.
        self._all_changed_at = 0
        self._next_at = float("-inf")

    def note(
        self, pod_request: PodRequest, generation: int, offered: int, *, is_empty: bool
    ) -> None:
        """Note the answer to a filter call.

        Parameters
        ----------
        pod_request : PodRequest
            One for nothing that we manage is not noted.
        generation : int
            Of the snapshot that the answer was computed from.
        offered : int
            How many nodes the call named.
        is_empty : bool
            Whether all of them were refused.
        """
        uid = pod_request.uid
        if not (uid and pod_request.request):
            return
        if not is_empty and uid not in self._pods and uid not in self._noted:
            return  # PERF: as nearly always, and then without the lock
        with self._lock:
            is_full = len(self._pods) + len(self._noted) >= MAX_REFUSED
            if is_empty and not (is_full and uid not in self._pods):
                self._noted[uid] = Refusal(
                    generation, offered, pod_request.nominated_node
                )
            elif not is_empty:
                self._noted[uid] = None

    def rebuild(self, snapshot: Snapshot, now: float) -> None:
        """Take the pods that kube-scheduler calls unschedulable for refused ones.

        What they were refused on before we started is not known, so that every node
        counts as changed since.
        """
        for pod in snapshot.pending:
            if pod.unschedulable_since is not None and pod.uid not in self._pods:
                self._pods[pod.uid] = UnschedulablePod(pod.uid, noted_at=now)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to look at before the next refusal."""
        return not self._noted and all(pod.is_woken for pod in self._pods.values())

    def seconds_to_turn(self, now: float) -> float:
        """Return how long nobody may be woken from now on; 0 if somebody may."""
        return max(0.0, self._next_at - now)

    def next(self, snapshot: Snapshot, options: VerbOptions, now: float) -> Wake | None:
        """Return the pod to wake now, if there is one.

        Parameters
        ----------
        snapshot : Snapshot
            The newest one.
        now : float
            Seconds of the monotonic clock.
        """
        feasible_nodes = self._feasible_nodes
        if feasible_nodes is None or not feasible_nodes.adopt(options):
            feasible_nodes = self._use(options)
        is_new = self._take_notes(now)
        if is_new or snapshot.generation != self._generation:
            self._generation = snapshot.generation
            self._follow(snapshot, feasible_nodes, now)
        self._judge_some(feasible_nodes, snapshot, now)
        if now < self._next_at:
            return None
        pod = self._first_due(snapshot, now)
        if pod is None or pod.record is None:  # it is due, so it has one
            return None
        self._next_at = now + INTERVAL_SECONDS
        pod.postpone(now + FAULT_SECONDS)  # whatever is raised, others come next
        return Wake(pod.uid, pod.record.namespace, pod.record.name)

    def woken(self, wake: Wake, now: float) -> None:
        """Note that a pod was woken: it is not again until it is refused again."""
        self._failing_namespaces.pop(wake.namespace, None)
        pod = self._pods.get(wake.uid)
        if pod is not None:
            pod.is_woken, pod.woken_at, pod.due_at = True, now, None
            pod.failures, pod.not_before = 0, float("-inf")

    def failed(self, wake: Wake, until: float) -> bool:
        """Note that a pod could not be woken; it waits, and nobody else.

        Returns
        -------
        bool
            Whether that is news: of the pod, and of its namespace.
        """
        is_known = wake.namespace in self._failing_namespaces
        pod = self._pods.get(wake.uid)
        if pod is None:
            return False
        self._failing_namespaces[wake.namespace] = until
        pod.failures += 1
        pod.postpone(until)
        is_news = pod.failures == 1 and not is_known
        if is_news:
            self._next_at = float("-inf")  # another takes the turn
        return is_news

    def failures(self, wake: Wake) -> int:
        """Return how many patches of a pod failed since it was woken."""
        pod = self._pods.get(wake.uid)
        return 0 if pod is None else pod.failures

    def _use(self, options: VerbOptions) -> FeasibleNodes:
        """Forget all judgements: other settings may lead to others."""
        feasible_nodes = self._feasible_nodes = FeasibleNodes(options)
        self._groups.clear()
        self._generation = -1
        for pod in self._pods.values():
            pod.record = pod.pod_class = None
            pod.generation = 0
        return feasible_nodes

    def _take_notes(self, now: float) -> bool:
        """Take in what was noted; return whether there was anything."""
        if not self._noted:
            return False
        with self._lock:
            noted, self._noted = self._noted, {}
        for uid, refusal in noted.items():
            if refusal is None:
                self._drop(uid)
                continue
            pod = self._pods.setdefault(uid, UnschedulablePod(uid))
            if pod.nominated_node != refusal.nominated_node:
                self._leave_group(pod)
            pod.refuse(*refusal, now)
            group = None if pod.pod_class is None else self._groups.get(pod.pod_class)
            if group is not None:
                group.has_news = True
        return True

    def _follow(
        self, snapshot: Snapshot, feasible_nodes: FeasibleNodes, now: float
    ) -> None:
        """Bring the refused pods in step with the pending ones."""
        self._forget_namespaces(now)
        if not self._pods:
            return
        if snapshot.device_class_resources != self._device_class_resources:
            self._device_class_resources = snapshot.device_class_resources
            self._all_changed_at = snapshot.generation
            for group in self._groups.values():
                group.generation = group.complete = -1
        seen = {record.uid: record for record in snapshot.pending}
        for uid, pod in list(self._pods.items()):
            record = seen.get(uid)
            if isinstance(record, PodRecord):
                if pod.record is not record:
                    self._join_group(pod, record, feasible_nodes)
            elif pod.record is not None or now - pod.noted_at > UNSEEN_SECONDS:
                self._drop(uid)

    def _forget_namespaces(self, now: float) -> None:
        """Forget where nothing has failed for long: most are deleted by then."""
        failing = self._failing_namespaces
        for namespace in [
            n for n, at in failing.items() if at + FORGOTTEN_SECONDS < now
        ]:
            del failing[namespace]

    def _join_group(
        self, pod: UnschedulablePod, record: PodRecord, feasible_nodes: FeasibleNodes
    ) -> None:
        pod_class = feasible_nodes.class_of(record, pod.nominated_node)
        pod.record = record
        if pod_class == pod.pod_class:
            return
        if (
            pod.pod_class is not None
            and pod_class.pod_request.gpu_requirements
            != pod.pod_class.pod_request.gpu_requirements
        ):
            # By another annotation, of which kube-scheduler knows, or since other
            # models are known: then every node counts as changed since the refusal.
            pod.generation = 0
        self._leave_group(pod)
        pod.record, pod.pod_class = record, pod_class
        group = self._groups.get(pod_class)
        if group is None:
            group = self._groups[pod_class] = PodGroup(record)
        group.pods[pod.uid] = pod
        group.has_news = True

    def _leave_group(self, pod: UnschedulablePod) -> None:
        group = None if pod.pod_class is None else self._groups.get(pod.pod_class)
        if group is not None and pod.pod_class is not None:
            group.pods.pop(pod.uid, None)
            if not group.pods:
                del self._groups[pod.pod_class]
        pod.record = pod.pod_class = None

    def _drop(self, uid: str) -> None:
        pod = self._pods.pop(uid, None)
        if pod is not None:
            self._leave_group(pod)

    def _judge_some(
        self, feasible_nodes: FeasibleNodes, snapshot: Snapshot, now: float
    ) -> None:
        """Judge the classes whose turn it is, as far as they are not up to date."""
        groups = self._groups
        due = (key for key, group in groups.items() if group.is_due(snapshot))
        for pod_class in list(islice(due, MAX_JUDGED)):
            group = groups.pop(pod_class)
            group.judge(feasible_nodes, pod_class, snapshot, self._all_changed_at, now)
            groups[pod_class] = group  # not what cannot be judged: others come next

    def _first_due(self, snapshot: Snapshot, now: float) -> UnschedulablePod | None:
        """Return the pod to wake first, of those that are due.

        Pods that were woken in vain come after the others, and after those the pods of
        namespaces in which patches fail, and the pods themselves that could not be
        patched: the API server may take long to say no.
        """
        failing = self._failing_namespaces
        due = [
            pod
            for group in self._groups.values()
            if group.has_feasible and group.is_judged(snapshot)
            for pod in group.pods.values()
            if pod.due_at is not None and pod.due_at <= now
        ]
        return min(
            due,
            key=lambda pod: (
                pod.failures > 0,
                pod.record is not None and pod.record.namespace in failing,
                pod.fruitless_tries,
                pod.due_at,
                pod.uid,
            ),
            default=None,
        )
