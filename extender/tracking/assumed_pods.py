"""`AssumedPods`: pods that our answers have just placed, and that are not bound yet."""

import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from extender.verbs.call import FilterOutcome, PrioritizeOutcome, VerbCall
from scoring.bounded import BoundedDict
from scoring.candidates import PodRequest
from scoring.snapshot import Snapshot

# kube-scheduler binds within milliseconds; our watch shows it soon after.
MAX_SECONDS: Final = 2.0

# More than kube-scheduler places in that time.
MAX_PODS: Final = 1024

_NONE: Final[Mapping[str, tuple[PodRequest, ...]]] = MappingProxyType({})


class _AssumedPod(NamedTuple):
    """A node and the pod put there, noted at a time of the monotonic clock."""

    node_name: str
    pod_request: PodRequest
    noted_at: float


class AssumedPods:
    """Pods for which an answer left one best node; any thread may call it.

    kube-scheduler runs ahead of its bindings: without these, a score sends one pod
    after the other to the node that was the best a moment ago. Scores count them,
    verdicts never do.

    Parameters
    ----------
    is_counting : bool
        Without it nothing is noted.
    clock : callable
        A monotonic one.
    """

    def __init__(
        self,
        *,
        is_counting: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._is_counting = is_counting
        self._clock = clock
        self._lock = threading.Lock()
        # pod UID -> its node; the oldest first
        self._assumed_pods = BoundedDict[str, _AssumedPod](MAX_PODS)

    def filtered(self, outcome: FilterOutcome) -> None:
        """Note the only node of a filter answer: no priorities are asked for then."""
        self._note_answer(outcome.verb_call, outcome.only_node)

    def prioritized(self, outcome: PrioritizeOutcome) -> None:
        """Note the best node of a prioritize answer, if it is one alone."""
        self._note_answer(outcome.verb_call, outcome.best_node)

    def _note_answer(self, verb_call: VerbCall, node_name: str | None) -> None:
        if node_name is not None:
            self.note(verb_call.pod_request, node_name)

    def note(self, pod_request: PodRequest, node_name: str) -> None:
        """Note that an answer leaves a pod one best node.

        A pod without UID is not noted: nothing would tell that it is bound.
        """
        if not (self._is_counting and pod_request.uid and pod_request.request):
            return
        with self._lock:
            self._assumed_pods.keep_newest(
                pod_request.uid, _AssumedPod(node_name, pod_request, self._clock())
            )

    def forget(self, uid: str) -> None:
        """Forget where a pod was put: it is asked about again."""
        if self._assumed_pods:  # PERF: most often there is none, and then no lock
            with self._lock:
                self._assumed_pods.pop(uid, None)

    def by_node(
        self, snapshot: Snapshot, asking: str = ""
    ) -> Mapping[str, tuple[PodRequest, ...]]:
        """Return the pods assumed on each node that `snapshot` lacks there.

        Parameters
        ----------
        snapshot : Snapshot
            A pod that it shows as bound, ended or deleted is forgotten.
        asking : str
            UID of the asking pod, which never counts against itself.

        Returns
        -------
        mapping
            node name -> the pods, the oldest first
        """
        if not self._assumed_pods:
            return _NONE
        found: dict[str, list[PodRequest]] = {}
        with self._lock:
            oldest = self._clock() - MAX_SECONDS
            over = [
                uid
                for uid, pod in self._assumed_pods.items()
                if pod.noted_at < oldest
                or uid in snapshot.bound_pods
                or uid in snapshot.departed
            ]
            for uid in over:
                del self._assumed_pods[uid]
            for uid, pod in self._assumed_pods.items():
                if uid != asking:
                    found.setdefault(pod.node_name, []).append(pod.pod_request)
        return {node_name: tuple(pods) for node_name, pods in found.items()}
