"""`Memo`: the computation that filter and prioritize of one pod share."""

from collections import deque
from dataclasses import dataclass
from typing import Final

from cluster.cache import SnapshotSource
from extender.question import Question, VerbOptions
from scoring.snapshot import IndexArray

# kube-scheduler asks about one pod at a time; each call kept keeps a snapshot alive.
MAX_CALLS: Final = 4


@dataclass(frozen=True, slots=True, eq=False)
class FilterCall:
    """An answered filter call, and what its answer was computed from.

    Attributes
    ----------
    next_body : bytes
        The prioritize call about what passed, as kube-scheduler writes it.
    options : VerbOptions
    question : Question
    places : index array
        Places of the candidates that were answered.
    """

    next_body: bytes
    options: VerbOptions
    question: Question
    places: IndexArray


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
        """Return the filter call whose answered candidates `body` asks about."""
        for call in reversed(tuple(self._calls)):
            if call.next_body == body:
                is_valid = (
                    call.options is options
                    and call.question.snapshot is self._source.current()
                )
                return call if is_valid else None
        return None
