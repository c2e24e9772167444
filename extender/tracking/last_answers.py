"""`LastAnswers` to kube-scheduler, about each pod."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from extender.tracking.deferred import DeferredMetrics
from extender.verbs.call import FilterOutcome, PrioritizeOutcome
from extender.wire.answers import shown_text
from scoring.bounded import BoundedDict
from scoring.snapshot import Int64Array

MAX_PODS: Final = 1024

MAX_BEST: Final = 5

FILTER: Final = "filter"

PRIORITIZE: Final = "prioritize"


class LastAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """One call and its answer, in numbers; the last two of prioritize only.

    Attributes
    ----------
    at : float
        Seconds since the epoch.
    fault : str
        The field of the pod that cannot be read; the call was answered 400, and no
        other number is set.
    generation : int
        Of the snapshot that the answer was computed from.
    offered : int
        How many nodes the call named.
    passed : int
        How many nodes the answer let pass; of filter only, like the next.
    shown : str
        The text that all refused nodes carried; empty unless every node was refused.
    best : tuple of msgspec.Raw
        Names of some of the nodes with the highest priority, as JSON strings.
    best_score : int
        That priority.
    """

    at: float
    fault: str | msgspec.UnsetType = msgspec.UNSET
    generation: int | msgspec.UnsetType = msgspec.UNSET
    offered: int | msgspec.UnsetType = msgspec.UNSET
    passed: int | msgspec.UnsetType = msgspec.UNSET
    shown: str | msgspec.UnsetType = msgspec.UNSET
    best: tuple[msgspec.Raw, ...] | msgspec.UnsetType = msgspec.UNSET
    best_score: int | msgspec.UnsetType = msgspec.UNSET


class LastAnswers:
    """The last answer to each verb, for the pods asked about last; any thread may call.

    Calls are noted by their arrays, and worked in later.

    Parameters
    ----------
    clock : callable
        Returns seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._filter_count = 0
        # pod UID -> verb -> its last answer; the pod asked about last stands last
        self._calls = BoundedDict[str, dict[str, LastAnswer]](MAX_PODS)
        self.deferred = DeferredMetrics(lambda note, *values: note(*values))

    def filtered(self, outcome: FilterOutcome) -> None:
        """Note an answered filter call."""
        verb_call = outcome.verb_call
        self.deferred.add(
            self._note_filter,
            verb_call.pod_request.uid,
            self._clock(),
            verb_call.snapshot.generation,
            outcome.result.verdicts,
            len(outcome.answer.indexes),
        )

    def _note_filter(
        self,
        pod_uid: str,
        at: float,
        generation: int,
        verdicts: Int64Array,
        passed: int,
    ) -> None:
        self._filter_count += 1
        self._note(
            pod_uid,
            FILTER,
            LastAnswer(
                at=at,
                generation=generation,
                offered=len(verdicts),
                passed=passed,
                shown=shown_text(verdicts),
            ),
        )

    def prioritized(self, outcome: PrioritizeOutcome) -> None:
        """Note an answered prioritize call."""
        verb_call = outcome.verb_call
        self.deferred.add(
            self._note_prioritize,
            verb_call.pod_request.uid,
            self._clock(),
            verb_call.snapshot.generation,
            outcome.literals,
            outcome.priorities,
        )

    def _note_prioritize(
        self,
        pod_uid: str,
        at: float,
        generation: int,
        literals: Sequence[str],
        priorities: Int64Array,
    ) -> None:
        highest = int(priorities.max()) if len(priorities) else 0
        indexes = np.flatnonzero(priorities == highest)[:MAX_BEST]
        self._note(
            pod_uid,
            PRIORITIZE,
            LastAnswer(
                at=at,
                generation=generation,
                offered=len(priorities),
                best=tuple(
                    msgspec.Raw(f'"{literals[index]}"'.encode())
                    for index in indexes.tolist()
                ),
                best_score=highest,
            ),
        )

    def note_fault(self, pod_uid: str, verb: str, fault: str) -> None:
        """Note a call that was refused for what its pod says."""
        self.deferred.add(self._note_fault, pod_uid, verb, self._clock(), fault)

    def _note_fault(self, pod_uid: str, verb: str, at: float, fault: str) -> None:
        self._note(pod_uid, verb, LastAnswer(at=at, fault=fault))

    def of(self, pod_uid: str) -> Mapping[str, LastAnswer]:
        """Return the last answers about a pod, by verb; empty for a forgotten one."""
        self.deferred.flush()
        return dict(self._calls.get(pod_uid, {}))

    def uids(self) -> frozenset[str]:
        """Return the UIDs of all pods that are remembered."""
        self.deferred.flush()
        with self._lock:
            return frozenset(self._calls)

    def filter_calls(self) -> tuple[int, int]:
        """Return how many filter calls there were, and the most nodes of one lately."""
        self.deferred.flush()
        with self._lock:
            offered = [
                call.offered
                for calls in self._calls.values()
                if (call := calls.get(FILTER)) is not None
                and isinstance(call.offered, int)
            ]
            return self._filter_count, max(offered, default=0)

    def _note(self, pod_uid: str, verb: str, call: LastAnswer) -> None:
        if not pod_uid:
            return
        with self._lock:
            calls = {**self._calls.get(pod_uid, {}), verb: call}
            self._calls.keep_newest(pod_uid, calls)
