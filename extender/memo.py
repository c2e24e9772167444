"""`Memo`: the computation that filter and prioritize of one pod share."""

from collections import deque
from dataclasses import dataclass
from typing import Final

import numpy as np

from cluster.cache import SnapshotSource
from extender import answers, wire
from extender.verbs import Question, VerbOptions
from scoring.feasibility import Feasibility
from scoring.snapshot import IndexArray, Snapshot

# kube-scheduler asks about one pod at a time; each call kept keeps a snapshot alive.
MAX_CALLS: Final = 4


@dataclass(frozen=True, slots=True, eq=False)
class FilterCall:
    """A filter call with its answer, and what the answer was computed from."""

    body: bytes
    answer: bytes
    snapshot: Snapshot
    options: VerbOptions
    question: Question
    result: Feasibility

    def precedes(self, pod: bytes, names: bytes) -> bool:
        """Say whether a prioritize call with these parts asks about what passed."""
        # By the bytes: whoever writes the same otherwise is answered all the same.
        return self.body.startswith(
            wire.POD_HEAD + pod + b","
        ) and self.answer.startswith(answers.NAMES_HEAD + names)

    def feasible_places(self) -> IndexArray:
        """Return the places of the candidates that passed."""
        return np.flatnonzero(self.result.feasible)


class Memo:
    """Remembers the last filter calls for the prioritize calls that follow them.

    kube-scheduler asks to prioritize what passed the filter, in the order of the
    answer and with the same bytes for the pod. Any thread may call it. It has no
    effect on answers: whatever differs is computed anew.

    Parameters
    ----------
    source : SnapshotSource
        A filter call on another snapshot than the present one is of no use.
    """

    def __init__(self, source: SnapshotSource) -> None:
        self._source = source
        self._calls: deque[FilterCall] = deque(maxlen=MAX_CALLS)

    def keep(self, call: FilterCall) -> None:
        """Remember an answered filter call."""
        self._calls.append(call)

    def recall(self, body: bytes, options: VerbOptions) -> FilterCall | None:
        """Return the filter call whose feasible candidates `body` asks about."""
        parts = wire.split_names_body(body)
        if parts is None:
            return None
        for call in reversed(tuple(self._calls)):
            if call.precedes(*parts):
                is_valid = (
                    call.options is options and call.snapshot is self._source.current()
                )
                return call if is_valid else None
        return None
