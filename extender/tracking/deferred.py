"""`DeferredMetrics`: notes of calls, worked in by batches after the answers are out.

PERF: numbers that only operators read take a quarter of a call if they go into
metrics and tables at once, with code that is cold by then; bench/extender/http.py
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

logger = logging.getLogger(__name__)

MAX_PENDING: Final = 1024

FLUSH_SECONDS: Final = 0.25


class DeferredMetrics:
    """Keeps notes until they are flushed; any thread may call it.

    A reader of what the notes become calls `flush` first.

    Parameters
    ----------
    handle : callable
        Works one note in.
    """

    def __init__(self, handle: Callable[..., None]) -> None:
        self._handle = handle
        self._pending: deque[tuple[Any, ...]] = deque()
        self._lock = threading.Lock()

    def add(self, *note: Any) -> None:
        """Keep a note."""
        self._pending.append(note)
        if len(self._pending) > MAX_PENDING:
            self.flush()

    def flush(self) -> None:
        """Work all notes in that were there when it was called."""
        with self._lock:
            for _ in range(len(self._pending)):
                self._handle(*self._pending.popleft())


class DeferredThread:
    """Flushes notes a few times a second, on a thread of its own."""

    def __init__(self, flush: Sequence[Callable[[], None]]) -> None:
        self._flush = tuple(flush)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flush", daemon=True)

    def start(self) -> None:
        """Start flushing."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; what is added from then on is flushed by its reader."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(FLUSH_SECONDS):
            for flush in self._flush:
                try:
                    flush()
                except Exception:  # a fault of our own must not end the thread
                    logger.exception("notes could not be settled")
