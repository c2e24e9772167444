"""`ClusterLink`: the API server of a process, what it watches there and writes."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from cluster.api.protocol import Api, NamedApi, ServerClock
from cluster.ledger.writer import LedgerWriter, SnapshotCell
from cluster.watch.cluster_watch import ClusterWatch
from extender.tracking.assumed_pods import AssumedPods
from extender.verbs.fresh_snapshot import SnapshotWait
from extender.verbs.options import VerbOptions
from extender.wakeup.waker import Waker
from service.collectors import WatchMetrics
from service.metrics import Metrics
from service.settings.policy import ExtenderSettings
from service.settings.process import ClusterSettings


def connect_to(
    settings: ClusterSettings,
    folder: Path,
    exchange_timeout_seconds: float = 5.0,
    clock: ServerClock | None = None,
) -> NamedApi:
    """Return the API server that the settings name; raise `ValueError` if none.

    `exchange_timeout_seconds` is that of requests with a small body on both sides; the
    `clock` is told of the server's time.
    """
    # Half a second and 100 MB that a cluster from files need not pay.
    from cluster.api.server import connect  # noqa: PLC0415 - see above

    kubeconfig = None if settings.kubeconfig is None else folder / settings.kubeconfig
    return connect(
        kubeconfig,
        settings.context,
        read_timeout_seconds=settings.read_timeout_seconds,
        exchange_timeout_seconds=exchange_timeout_seconds,
        clock=clock,
    )


class ClusterLink:
    """Watches nodes and pods, and wakes unschedulable pods; any thread may call it.

    Parameters
    ----------
    options : callable
        Returns what the settings say of the verbs at this moment.

    Attributes
    ----------
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
        self.snapshot_wait = SnapshotWait(cell, settings.freshness_milliseconds / 1000)
        self.assumed_pods = AssumedPods(is_counting=settings.placements_under_way)
        self.waker: Waker | None = None
        if settings.wake_up:
            self.waker = Waker(
                cell, options, api, metrics.woke, annotation=settings.wake_up_annotation
            )

    def start(self) -> None:
        """Start all threads."""
        self._watch.start()
        if self.waker is not None:
            self.waker.start()

    def stop(self, within_seconds: float) -> None:
        """End all threads; those that have not by then are left behind."""
        stop_at = time.monotonic() + within_seconds
        if self.waker is not None:
            self.waker.stop(within_seconds)
        self._watch.stop(max(0.0, stop_at - time.monotonic()))

    def relist(self, reason: str) -> None:
        """Have all pods listed once more: our counts of them do not add up."""
        self._watch.restart_pods(reason)

    def ages(self) -> Mapping[str, float]:
        """Return seconds since the last contact, for nodes and pods."""
        return self._watch.ages()
