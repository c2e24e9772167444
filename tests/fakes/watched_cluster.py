"""The real watch, ledger and snapshot cell, over any API server."""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Self

from cluster.api.server import connect
from cluster.ledger.ledger import Ledger
from cluster.ledger.writer import LedgerWriter, SnapshotCell
from cluster.watch.backoff import Pace
from cluster.watch.cluster_watch import ClusterWatch
from scoring.snapshot import Snapshot
from tests.builders import BUILDER, GPU, LABEL_KEYS

DEADLINE_SECONDS: Final = 60.0
LONGEST_WAIT_SECONDS: Final = 0.05


class RecordingObserver:
    """Counts what a `WatchObserver` is told; any thread may call it."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        # (what, kind, detail) -> how often
        self.counts: Counter[tuple[str, str, str]] = Counter()

    def listed(self, kind: str, count: int) -> None:
        self._count("listed", kind, str(count))

    def events(self, kind: str, event_type: str, count: int) -> None:
        self._count("events", kind, event_type, count)

    def decode_fault(self, kind: str) -> None:
        self._count("decode_fault", kind, "")

    def watch_restarted(self, kind: str, reason: str) -> None:
        self._count("watch_restarted", kind, reason)

    def _count(self, what: str, kind: str, detail: str, number: int = 1) -> None:
        with self.changed:
            self.counts[what, kind, detail] += number
            self.changed.notify_all()

    def wait_for(self, what: str, kind: str, detail: str = "", count: int = 1) -> None:
        """Wait until something was told so often."""
        with self.changed:
            came = self.changed.wait_for(
                lambda: self.counts[what, kind, detail] >= count, DEADLINE_SECONDS
            )
        assert came, f"waited in vain for {what} {kind} {detail}: {self.counts}"


class WatchedCluster:
    """Lists and watches from entry to exit.

    Delays between attempts are noted, and cut short: a test need not sit through them.

    Attributes
    ----------
    delays : list of float
        Seconds that the reflectors meant to wait, in order.
    skew_seconds : float
        Added to the clock.
    """

    def __init__(
        self,
        kubeconfig: Path,
        *,
        page_size: int = 2,
        read_timeout_seconds: float = DEADLINE_SECONDS,
        longest_wait_seconds: float = LONGEST_WAIT_SECONDS,
    ) -> None:
        self.observer = RecordingObserver()
        self.delays: list[float] = []
        self.skew_seconds = 0.0
        self.errors = 0
        self._longest_wait_seconds = longest_wait_seconds
        self.cell = SnapshotCell()
        self.ledger = Ledger(LABEL_KEYS)
        self.writer = LedgerWriter(self.ledger, self.cell, self._failed)
        self.watch = ClusterWatch(
            connect(kubeconfig, read_timeout_seconds=read_timeout_seconds),
            self.writer.submit,
            BUILDER,
            self.observer,
            Pace(page_size, self._monotonic, self._wait),
        )

    def __enter__(self) -> Self:
        self.writer.start()
        self.watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.watch.stop()
        self.writer.stop()
        assert not self.errors

    def _failed(self) -> None:
        self.errors += 1

    def _monotonic(self) -> float:
        return time.monotonic() + self.skew_seconds

    def _wait(self, stopping: threading.Event, seconds: float) -> bool:
        self.delays.append(seconds)
        return stopping.wait(min(seconds, self._longest_wait_seconds))

    @contextlib.contextmanager
    def synced(self) -> Iterator[Self]:
        """Start, wait until nodes and pods are counted, and stop in the end."""
        with self:
            self.wait_synced()
            yield self

    def wait_synced(self) -> None:
        """Wait until nodes and pods are counted."""
        assert self.cell.wait_newer(0, DEADLINE_SECONDS), "waited in vain for the sync"

    def wait_for(self, is_so: Callable[[Snapshot], bool], what: str) -> Snapshot:
        """Wait for a snapshot of which something is true."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        generation = 0
        while self.cell.wait_newer(generation, max(0.0, deadline - time.monotonic())):
            snapshot = self.cell.current()
            if is_so(snapshot):
                return snapshot
            generation = snapshot.generation
        message = f"waited in vain: {what}"
        raise AssertionError(message)

    def wait_free(self, **gpus: int | None) -> None:
        """Wait until nodes have so many free GPUs; None for a node that is gone."""
        self.wait_for(
            lambda snapshot: all(
                free_gpus(snapshot, name) == count for name, count in gpus.items()
            ),
            f"free GPUs {gpus}",
        )


def free_gpus(snapshot: Snapshot, node: str) -> int | None:
    """Return the free GPUs of a node; None if the node is not known."""
    column = snapshot.nodes.column_of.get(node)
    return None if column is None else int(snapshot.free(GPU)[column])
