"""Unschedulable pods, and groups of one class that are judged together."""

from dataclasses import dataclass, field
from math import ceil
from typing import Final

from cluster.decode.objects import PodRecord
from extender.wakeup.feasible_nodes import FeasibleNodes, PodClass
from scoring.eligibility import MIN_FEASIBLE_NODES
from scoring.snapshot import IndexArray, Snapshot

# kube-scheduler tries a refused pod by itself when an event reaches it, mostly at about
# the time at which our watch sees the same. So long it is given to do so.
SETTLE_SECONDS: Final = 0.1

# Samples start where the last one ended. So often they may go round all nodes before a
# pod that fits one of them, and is refused, is given pauses.
FREE_ROUNDS: Final = 2

# Seconds; as kube-scheduler's own back-off.
FIRST_PAUSE_SECONDS: Final = 1.0

LONGEST_PAUSE_SECONDS: Final = 10.0

MAX_PAUSES: Final = 5


@dataclass(slots=True, eq=False)
class UnschedulablePod:
    """A pod that was refused; owned by one thread.

    Attributes
    ----------
    generation : int
        Of the snapshot that the refusal was computed from; 0 where it is not known.
    offered : int
        How many nodes the refused call named.
    noted_at : float
        When it was refused, in seconds of the monotonic clock, like all other times.
    record : PodRecord or None
        None until the watch has shown the pod.
    due_at : float or None
        When it is to be woken; None while there is no reason to.
    is_woken : bool
        Whether it was woken since it was refused.
    woken_at : float
        When it was woken last.
    has_come_back : bool
        Whether the refusal followed a wake-up and has not led to a decision yet.
    fruitless_tries : int
        Wake-ups that ended in a refusal although a node fitted: kube-scheduler did not
        offer it.
    failures : int
        Patches that were not taken since the pod was woken last.
    not_before : float
        When the next one may be sent after that.
    """

    uid: str
    generation: int = 0
    offered: int = 0
    nominated_node: str = ""
    noted_at: float = 0.0
    record: PodRecord | None = None
    pod_class: PodClass | None = None
    due_at: float | None = None
    is_woken: bool = False
    woken_at: float = float("-inf")
    has_come_back: bool = False
    fruitless_tries: int = 0
    failures: int = 0
    not_before: float = float("-inf")

    def refuse(
        self, generation: int, offered: int, nominated_node: str, now: float
    ) -> None:
        """Take in that the pod was refused, for the first time or again."""
        self.has_come_back |= self.is_woken
        self.is_woken = False
        self.due_at = None
        self.generation = generation
        self.offered = offered
        self.nominated_node = nominated_node
        self.noted_at = now

    def schedule_wakeup(
        self, changes: tuple[int, int] | None, node_count: int, now: float
    ) -> None:
        """Decide whether the pod is to be woken, and when.

        Parameters
        ----------
        changes : tuple of (int, int), or None
            Generations in which, of the nodes that would take the pod, the first and
            the last one changed; None without such a node.
        node_count : int
            How many nodes there are.

        Notes
        -----
        A node that changed since the refusal is a reason to wake. One that did not was
        there when the pod was refused, so kube-scheduler did not offer it: it showed
        us a sample of the nodes, or refuses the node itself, for a reason that is not
        modelled here. In the first case trying again helps, after as many tries as it
        takes to go round all nodes; in the second case nothing does. So tries are
        given pauses, and end, until a node changes.
        """
        if changes is None:
            self.due_at = None
            self.has_come_back = False
            self.fruitless_tries = 0
            return
        oldest, newest = changes
        if self.has_come_back and oldest <= self.generation:
            self.fruitless_tries += 1
        self.has_come_back = False
        pauses = self.fruitless_tries - self._free_tries(node_count)
        may_try = self._is_sampled(node_count) and pauses < MAX_PAUSES
        if newest <= self.generation and not may_try:
            self.due_at = None
        elif self.due_at is None:
            pause = 0.0
            if pauses >= 0:
                full = FIRST_PAUSE_SECONDS * 2.0 ** min(pauses, MAX_PAUSES)
                pause = min(full, LONGEST_PAUSE_SECONDS)
            soonest = max(self.woken_at + pause, self.not_before)
            self.due_at = max(now + SETTLE_SECONDS, soonest)

    def postpone(self, until: float) -> None:
        """Try again at that time, whatever happens to nodes before it."""
        self.due_at = self.not_before = until

    def _is_sampled(self, node_count: int) -> bool:
        """Whether kube-scheduler may have left out nodes that pass its checks."""
        return MIN_FEASIBLE_NODES <= self.offered < node_count

    def _free_tries(self, node_count: int) -> int:
        """Return how many tries go without a pause."""
        rounds = ceil(node_count / self.offered) if self._is_sampled(node_count) else 1
        return FREE_ROUNDS * rounds


@dataclass(slots=True, eq=False)
class PodGroup:
    """Unschedulable pods of one class; owned by one thread.

    Attributes
    ----------
    record : PodRecord
        One of them, for the constraints that they share.
    generation : int
        Of the snapshot that it was judged on; -1 before that.
    is_partial : bool
        Whether some nodes of that were not looked at yet.
    complete : int
        Generation of the last snapshot of which all nodes were; -1 before that.
    has_feasible : bool
        Whether some node would take them.
    has_news : bool
        Whether a pod came, or was refused again, since it was judged.
    """

    record: PodRecord
    pods: dict[str, UnschedulablePod] = field(default_factory=dict)
    generation: int = -1
    is_partial: bool = False
    complete: int = -1
    has_feasible: bool = False
    has_news: bool = True

    def is_judged(self, snapshot: Snapshot) -> bool:
        """Whether it was judged on `snapshot`, with all its pods."""
        return not self.has_news and self.generation == snapshot.generation

    def is_due(self, snapshot: Snapshot) -> bool:
        """Whether it is to be judged, or judged further."""
        return self.is_partial or not self.is_judged(snapshot)

    def judge(
        self,
        feasible_nodes: FeasibleNodes,
        pod_class: PodClass,
        snapshot: Snapshot,
        all_changed_at: int,
        now: float,
    ) -> None:
        """Find nodes for the pods in a snapshot, and schedule their wake-ups."""
        # Where no node would take them, only what has changed since can take them now.
        since = -1 if self.has_feasible else self.complete
        found = feasible_nodes.of(snapshot, pod_class, self.record.constraints, since)
        self.generation = snapshot.generation
        self.is_partial = found.is_partial
        self.has_feasible = bool(len(found.columns))
        self.has_news = False
        if not found.is_partial:
            self.complete = snapshot.generation
        elif not self.has_feasible:
            return  # nothing is known of its pods yet
        changes = _changes(snapshot, found.columns, all_changed_at)
        for pod in self.pods.values():
            if not pod.is_woken:
                pod.schedule_wakeup(changes, len(snapshot.nodes.names), now)


def _changes(
    snapshot: Snapshot, columns: IndexArray, all_changed_at: int
) -> tuple[int, int] | None:
    """Return when the first and the last of some nodes changed; None without any."""
    if not len(columns):
        return None
    if snapshot.changed_at is None:
        return snapshot.generation, snapshot.generation
    changed_at = snapshot.changed_at.take(columns)
    oldest, newest = int(changed_at.min()), int(changed_at.max())
    return max(oldest, all_changed_at), max(newest, all_changed_at)
