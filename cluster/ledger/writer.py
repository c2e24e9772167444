"""`LedgerWriter`, the one thread that changes the ledger; its `SnapshotCell`."""

import logging
import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from cluster.ledger.changes import Change
from cluster.ledger.ledger import Ledger
from scoring.snapshot import Snapshot


class NotSyncedError(RuntimeError):
    """There is no snapshot yet: the first list is still being read or counted."""


class SnapshotSource(Protocol):
    """Source of the one snapshot that a request takes."""

    def current(self) -> Snapshot:
        """Return the newest snapshot, or raise `NotSyncedError`."""
        ...


class SnapshotCell:
    """Holds the newest snapshot.

    Only the ledger thread calls `publish`. Readers call `current` once per
    request and pass the result down; a reader that calls it twice can see two
    different clusters.
    """

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self._changed = threading.Condition()

    def current(self) -> Snapshot:
        """Return the newest snapshot, or raise `NotSyncedError`."""
        snapshot = self._snapshot
        if snapshot is None:
            raise NotSyncedError("no snapshot yet: the first list is still running")
        return snapshot

    @property
    def is_synced(self) -> bool:
        """Whether there is a snapshot."""
        return self._snapshot is not None

    def publish(self, snapshot: Snapshot) -> None:
        """Make `snapshot` the current one; its generation must be newer."""
        previous = self._snapshot
        if previous is not None and snapshot.generation <= previous.generation:
            raise ValueError(
                f"generation {snapshot.generation} is not newer"
                f" than {previous.generation}"
            )
        with self._changed:
            self._snapshot = snapshot  # one assignment: readers see old or new
            self._changed.notify_all()

    def wait_newer(self, generation: int, timeout_seconds: float) -> bool:
        """Wait for a snapshot newer than `generation`; say whether there is one."""
        with self._changed:
            return self._changed.wait_for(
                lambda: (
                    self._snapshot is not None
                    and self._snapshot.generation > generation
                ),
                timeout_seconds,
            )


logger = logging.getLogger(__name__)

# Copying the arrays for each single event would keep the GIL from requests.
MIN_PUBLISH_INTERVAL_SECONDS = 0.004


class LedgerWriter:
    """Owns a ledger: any thread may `submit`, the writer's own thread applies.

    Parameters
    ----------
    on_error : callable
        Told that a change could not be applied; the writer goes on.
    before_first : callable
        Called once, when all is counted and before the first snapshot is published.
    """

    def __init__(
        self,
        ledger: Ledger,
        cell: SnapshotCell,
        on_error: Callable[[], None],
        before_first: Callable[[], None] = lambda: None,
    ) -> None:
        self._ledger = ledger
        self._cell = cell
        self._on_error = on_error
        self._before_first = before_first
        self._queue: queue.SimpleQueue[tuple[Change, ...] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="ledger", daemon=True)

    def start(self) -> None:
        """Start the ledger thread."""
        self._thread.start()

    def stop(self) -> None:
        """Apply what was submitted before, then end the thread."""
        self._queue.put(None)
        self._thread.join()

    def submit(self, *changes: Change) -> None:
        """Hand over changes; those of one call are published together."""
        self._queue.put(changes)

    def _run(self) -> None:
        is_running = True
        while is_running:
            published = time.monotonic()
            batch = self._await_changes()
            rest = MIN_PUBLISH_INTERVAL_SECONDS - (time.monotonic() - published)
            if rest > 0:
                time.sleep(rest)  # let a burst gather: it is published once
            while not self._queue.empty():
                batch.append(self._queue.get())
            is_running = None not in batch
            for changes in batch:
                for change in changes or ():
                    self._guard(partial(self._ledger.apply, change))
            self._guard(self._ledger.expire)
            if self._ledger.is_synced and self._ledger.has_changes:
                self._guard(self._publish)

    def _await_changes(self) -> list[tuple[Change, ...] | None]:
        """Wait until there is something to apply, or something of the past to drop."""
        try:
            return [self._queue.get(timeout=self._ledger.seconds_to_expiry())]
        except queue.Empty:
            return []

    def _publish(self) -> None:
        snapshot = self._ledger.build()
        if not self._cell.is_synced:
            self._before_first()
        self._cell.publish(snapshot)

    def _guard(self, step: Callable[[], None]) -> None:
        """Run one step; a fault of our own must not end the thread."""
        try:
            step()
        except Exception:
            logger.exception("a change could not be applied")
            self._on_error()
