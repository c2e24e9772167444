"""`ClusterLink`: all that a process does with an API server."""

from collections.abc import Callable, Mapping

from cluster.cache import SnapshotCell
from cluster.source import Api
from cluster.watch import ClusterWatch
from cluster.writer import LedgerWriter
from extender.freshness import Freshness
from extender.placements import Placements
from extender.question import VerbOptions
from extender.waker import Waker, WakerParts
from service.cache_metrics import WatchMetrics
from service.metrics import Metrics
from service.policy_settings import ExtenderSettings


class ClusterLink:
    """Watches nodes and pods, and wakes refused pods; any thread may call it.

    Parameters
    ----------
    api : Api
    writer : LedgerWriter
    cell : SnapshotCell
    options : callable
        Returns what the settings say of the verbs at this moment.
    metrics : Metrics
    settings : ExtenderSettings

    Attributes
    ----------
    freshness : Freshness
    placements : Placements
    waker : Waker or None
        None where the settings switch it off.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - each is one thing that is linked
        self,
        api: Api,
        writer: LedgerWriter,
        cell: SnapshotCell,
        options: Callable[[], VerbOptions],
        metrics: Metrics,
        settings: ExtenderSettings,
    ) -> None:
        self._watch = ClusterWatch(
            api, writer.submit, options().builder, WatchMetrics(metrics.registry)
        )
        self.freshness = Freshness(cell, settings.freshness_milliseconds / 1000)
        self.placements = Placements(is_counting=settings.placements_under_way)
        self.waker: Waker | None = None
        if settings.wake_up:
            self.waker = Waker(
                WakerParts(cell, options, api, metrics, settings.wake_up_annotation)
            )

    def start(self) -> None:
        """Start all threads."""
        self._watch.start()
        if self.waker is not None:
            self.waker.start()

    def stop(self) -> None:
        """End all threads."""
        if self.waker is not None:
            self.waker.stop()
        self._watch.stop()

    def relist(self, reason: str) -> None:
        """Have all pods listed anew: our counts of them do not add up."""
        self._watch.restart_pods(reason)

    def ages(self) -> Mapping[str, float]:
        """Return seconds since the last contact, for nodes and pods."""
        return self._watch.ages()
