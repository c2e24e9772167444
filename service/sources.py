"""Where a cluster is read from: dumps, or an API server."""

import logging
from pathlib import Path
from typing import Final

from cluster.api.protocol import Api
from cluster.decode.records import RecordBuilder
from cluster.dump import load_dump
from cluster.ledger.ledger import Ledger
from cluster.ledger.writer import LedgerWriter, SnapshotCell
from cluster.watch.cluster_watch import ClusterWatch
from scoring.snapshot import Snapshot
from service.settings.process import ClusterSettings

logger = logging.getLogger(__name__)


# A large cluster takes a few seconds.
READ_ONCE_SECONDS: Final = 20.0


class NoClusterError(ValueError):
    """The cluster could not be read in time."""


def connect_to(settings: ClusterSettings, folder: Path) -> Api:
    """Return the API server that the settings name; raise `ValueError` if none."""
    # Half a second and 100 MB that a cluster from files need not pay.
    from cluster.api.server import connect  # noqa: PLC0415 - see above

    kubeconfig = None if settings.kubeconfig is None else folder / settings.kubeconfig
    return connect(
        kubeconfig,
        settings.context,
        read_timeout_seconds=settings.read_timeout_seconds,
    )


class _Unobserved:
    """A watch observer for a command that reads the cluster once."""

    def __init__(self) -> None:
        self._said: set[tuple[str, str]] = set()

    def listed(self, kind: str, count: int) -> None:
        """Take no notice."""

    def events(self, kind: str, event_type: str, count: int) -> None:
        """Take no notice."""

    def decode_fault(self, kind: str) -> None:
        """Say it on stderr, through the log."""
        logger.warning("object not fully decoded", extra={"fields": {"kind": kind}})

    def watch_restarted(self, kind: str, reason: str) -> None:
        """Say why it takes so long, once."""
        if (kind, reason) not in self._said:
            self._said.add((kind, reason))
            fields = {"kind": kind, "reason": reason}
            logger.warning(
                "list or watch ended, trying again", extra={"fields": fields}
            )


def read_once(
    settings: ClusterSettings,
    folder: Path,
    builder: RecordBuilder,
    ledger: Ledger,
    timeout_seconds: float = READ_ONCE_SECONDS,
) -> Snapshot:
    """Return the cluster as it is now.

    Raises
    ------
    ValueError
        `DumpError` with all faults of the dumps, `NoClusterError` if the API server
        does not answer in time, or a faulty kubeconfig.
    """
    if settings.source == "file":
        for change in load_dump([folder / name for name in settings.files], builder):
            ledger.apply(change)
        return ledger.build()
    cell = SnapshotCell()
    writer = LedgerWriter(ledger, cell, lambda: None)
    watch = ClusterWatch(
        connect_to(settings, folder), writer.submit, builder, _Unobserved()
    )
    writer.start()
    watch.start()
    try:
        if not cell.wait_newer(0, timeout_seconds):
            raise NoClusterError(f"cluster: not read within {timeout_seconds:.0f} s")
        return cell.current()
    finally:
        watch.stop()
        writer.stop()
