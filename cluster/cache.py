"""`SnapshotCell`: where the newest snapshot is published and read."""

import threading
from typing import Protocol

from scoring.snapshot import Snapshot


class NotSyncedError(RuntimeError):
    """There is no snapshot yet: the first list is still being read or counted."""


class SnapshotSource(Protocol):
    """Where a request takes its one snapshot from."""

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
