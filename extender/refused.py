"""`RefusedPod`: what is remembered of one pod whose last answer was empty."""

from dataclasses import dataclass
from math import ceil
from typing import Final

from cluster.objects import PodRecord
from extender.takers import Kind

# kube-scheduler tries a refused pod by itself when an event reaches it, mostly at about
# the time at which our watch sees the same. So long it is given to do so.
SETTLE_SECONDS: Final = 0.1
# kube-scheduler stops looking for nodes once it has so many (minFeasibleNodesToFind in
# pkg/scheduler/schedule_one.go of Kubernetes 1.37): a call that names fewer names all
# that pass its own checks.
MIN_SAMPLE: Final = 100
# Samples start where the last one ended. So often they may go round all nodes before a
# pod that fits one of them, and is refused, is given pauses.
FREE_ROUNDS: Final = 2
# Seconds; as kube-scheduler's own back-off.
FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 10.0
MAX_PAUSES: Final = 5


@dataclass(slots=True, eq=False)
class RefusedPod:
    """A pod that was refused; owned by one thread.

    Attributes
    ----------
    uid : str
    generation : int
        Of the snapshot that the refusal was computed from; 0 where it is not known.
    offered : int
        How many nodes the refused call named.
    nominated_node : str
    noted_at : float
        When it was refused, in seconds of the monotonic clock, like all other times.
    record : PodRecord or None
        None until the watch has shown the pod.
    kind : Kind or None
    due_at : float or None
        When it is to be woken; None while there is no reason to.
    is_woken : bool
        Whether it was woken since it was refused.
    woken_at : float
        When it was woken last.
    has_come_back : bool
        Whether the refusal followed a wake-up and is not weighed yet.
    futile : int
        Wake-ups that ended in a refusal although a node fitted: kube-scheduler did not
        offer it.
    """

    uid: str
    generation: int = 0
    offered: int = 0
    nominated_node: str = ""
    noted_at: float = 0.0
    record: PodRecord | None = None
    kind: Kind | None = None
    due_at: float | None = None
    is_woken: bool = False
    woken_at: float = float("-inf")
    has_come_back: bool = False
    futile: int = 0

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

    def weigh(
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
        now : float

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
            self.futile = 0
            return
        oldest, newest = changes
        if self.has_come_back and oldest <= self.generation:
            self.futile += 1
        self.has_come_back = False
        pauses = self.futile - self._free_tries(node_count)
        may_try = self._is_sampled(node_count) and pauses < MAX_PAUSES
        if newest <= self.generation and not may_try:
            self.due_at = None
        elif self.due_at is None:
            pause = 0.0
            if pauses >= 0:
                full = FIRST_PAUSE_SECONDS * 2.0 ** min(pauses, MAX_PAUSES)
                pause = min(full, LONGEST_PAUSE_SECONDS)
            self.due_at = max(now + SETTLE_SECONDS, self.woken_at + pause)

    def _is_sampled(self, node_count: int) -> bool:
        """Say whether kube-scheduler may have left out nodes that pass its checks."""
        return MIN_SAMPLE <= self.offered < node_count

    def _free_tries(self, node_count: int) -> int:
        """Return how many tries go without a pause."""
        rounds = ceil(node_count / self.offered) if self._is_sampled(node_count) else 1
        return FREE_ROUNDS * rounds
