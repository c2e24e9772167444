"""`LastAnswers`: what was last sent to kube-scheduler about each pod."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from extender.tracking.deferred import DeferredMetrics
from scoring.feasibility import REASONS, shown_verdict
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
        What of the pod cannot be read; the call was answered 400, and nothing else is
        said of it.
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
        # pod UID -> verb -> its last answer; the pod asked about last stands last
        self._calls: dict[str, dict[str, LastAnswer]] = {}
        self.later = DeferredMetrics(lambda note, *values: note(*values))

    def note_filter(
        self,
        pod_uid: str,
        generation: int,
        verdicts: Int64Array,
        passed: int | None = None,
    ) -> None:
        """Note an answered filter call.

        Parameters
        ----------
        pod_uid : str
        generation : int
        verdicts : int64 array, shape (C,)
            Values of `Verdict`.
        passed : int, optional
            How many nodes were let pass, where that is not every feasible one.
        """
        self.later.put(
            self._note_filter, pod_uid, self._clock(), generation, verdicts, passed
        )

    def _note_filter(
        self,
        pod_uid: str,
        at: float,
        generation: int,
        verdicts: Int64Array,
        passed: int | None,
    ) -> None:
        count = len(verdicts)
        feasible = count - int(np.count_nonzero(verdicts))
        self._note(
            pod_uid,
            FILTER,
            LastAnswer(
                at=at,
                generation=generation,
                offered=count,
                passed=feasible if passed is None else passed,
                shown=shown_text(verdicts),
            ),
        )

    def note_prioritize(
        self,
        pod_uid: str,
        generation: int,
        literals: Sequence[str],
        priorities: Int64Array,
    ) -> None:
        """Note an answered prioritize call.

        Parameters
        ----------
        pod_uid : str
        generation : int
        literals : sequence of str, length C
            The candidates' names as they stand between quotes in JSON.
        priorities : int64 array, shape (C,)
            As sent.
        """
        self.later.put(
            self._note_prioritize,
            pod_uid,
            self._clock(),
            generation,
            literals,
            priorities,
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
        places = np.flatnonzero(priorities == highest)[:MAX_BEST]
        self._note(
            pod_uid,
            PRIORITIZE,
            LastAnswer(
                at=at,
                generation=generation,
                offered=len(priorities),
                best=tuple(
                    msgspec.Raw(f'"{literals[place]}"'.encode())
                    for place in places.tolist()
                ),
                best_score=highest,
            ),
        )

    def note_fault(self, pod_uid: str, verb: str, fault: str) -> None:
        """Note a call that was refused for what its pod says."""
        self.later.put(self._note_fault, pod_uid, verb, self._clock(), fault)

    def _note_fault(self, pod_uid: str, verb: str, at: float, fault: str) -> None:
        self._note(pod_uid, verb, LastAnswer(at=at, fault=fault))

    def of(self, pod_uid: str) -> Mapping[str, LastAnswer]:
        """Return the last answers about a pod, by verb; empty for a forgotten one."""
        self.later.flush()
        return dict(self._calls.get(pod_uid, {}))

    def _note(self, pod_uid: str, verb: str, call: LastAnswer) -> None:
        if not pod_uid:
            return
        with self._lock:
            calls = {**self._calls.pop(pod_uid, {}), verb: call}
            self._calls[pod_uid] = calls
            if len(self._calls) > MAX_PODS:
                del self._calls[next(iter(self._calls))]


def shown_text(verdicts: Int64Array) -> str:
    """Return the one text that all refused nodes carry, empty where some node passes.

    >>> shown_text(np.array([2, 5])), shown_text(np.array([2, 0]))
    ('Too few GPUs on the node', '')
    """
    verdict = shown_verdict(verdicts)
    return "" if verdict is None else REASONS[verdict].text
