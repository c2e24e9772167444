"""`FilterMemo`: the computation that filter and prioritize of one pod share."""

from collections import deque
from dataclasses import dataclass
from typing import Final

from cluster.ledger.writer import SnapshotSource
from extender.verbs.call import VerbCall, VerbOptions
from scoring.snapshot import IndexArray

# kube-scheduler asks about one pod at a time; each call kept keeps a snapshot alive.
MAX_CALLS: Final = 4


@dataclass(frozen=True, slots=True, eq=False)
class FilterCall:
    """An answered filter call, and what its answer was computed from.

    Attributes
    ----------
    expected_prioritize_body : bytes
        The prioritize call about what passed, as kube-scheduler writes it.
    options : VerbOptions
    verb_call : VerbCall
    places : index array
        Places of the candidates that were answered.
    """

    expected_prioritize_body: bytes
    options: VerbOptions
    verb_call: VerbCall
    places: IndexArray


class FilterMemo:
    """Remembers the last filter calls for the prioritize calls that follow them.

    kube-scheduler asks to prioritize what passed the filter, in the order of the
    answer and with the same bytes for the pod. Any thread may call it. It has no
    effect on answers: whatever differs is computed anew.

    Parameters
    ----------
    source : SnapshotSource
        Its present snapshot is the one that the recalled question is about.
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
            if call.expected_prioritize_body == body:
                return self._brought_up_to_date(call, options)
        return None

    def _brought_up_to_date(
        self, call: FilterCall, options: VerbOptions
    ) -> FilterCall | None:
        """Return the call as if it were about the present snapshot, None if it is not.

        The pod before this one is bound meanwhile, so the snapshot is often a newer
        one. As long as the nodes are the same ones, so are their columns.
        """
        verb_call, snapshot = call.verb_call, self._source.current()
        if (
            call.options is not options
            or verb_call.snapshot.nodes is not snapshot.nodes
        ):
            return None
        if verb_call.snapshot is snapshot:
            return call
        verb_call = VerbCall(
            verb_call.pod_request,
            verb_call.names,
            verb_call.columns,
            snapshot,
            is_literal=verb_call.is_literal,
        )
        return FilterCall(
            call.expected_prioritize_body, options, verb_call, call.places
        )
