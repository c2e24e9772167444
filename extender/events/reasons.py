"""`Reasons`: why a pod of the cache is pending, as an explanation of it begins."""

from collections.abc import Callable
from typing import Final

from cluster.decode.objects import PodRecord
from extender.events.plan import Told
from extender.explain.explain import explain
from extender.explain.pod import subject_of_record
from extender.explain.summary import note_of, summarize
from extender.explain.table import printable
from extender.verbs.fresh_snapshot import NO_DEADLINE, GivingWay
from extender.verbs.options import VerbOptions
from extender.wire.filter import WireError
from scoring.snapshot import Snapshot

UNREADABLE: Final = "unreadable"


class Reasons:
    """Describes pods; one thread calls it.

    Parameters
    ----------
    options : callable
        Returns what the settings say of the verbs at this moment.
    giving_way : GivingWay, optional
        Rests where verbs are called meanwhile.
    """

    def __init__(
        self,
        options: Callable[[], VerbOptions],
        giving_way: GivingWay | None = None,
    ) -> None:
        self._options = options
        self._giving_way = giving_way or GivingWay()

    def __call__(self, record: PodRecord, snapshot: Snapshot) -> Told:
        """Return what is told of a pending pod."""
        options = self._options()
        try:
            subject = subject_of_record(record, options)
        except WireError as error:
            return Told(f"The pod cannot be judged: {error}.", frozenset({UNREADABLE}))
        self._giving_way.start()
        deadline = NO_DEADLINE.giving_way(self._giving_way)
        explanation = explain(subject, snapshot, options, deadline=deadline)
        summary = summarize(explanation, deadline=deadline)
        note, classes = note_of(summary)
        return Told(printable(note), classes, is_warning=not summary.fits)
