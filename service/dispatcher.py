"""waitress's threads, of which the one that rested last works first.

PERF: waitress wakes its idle threads in turn. With as many as the faces may need in a
storm, each call then runs on a thread whose memory no processor has at hand: a pair of
calls takes a third more; bench/http.py
"""

import threading

from waitress.task import ThreadedTaskDispatcher


class IdleStack:
    """Stands in for a `threading.Condition`; wakes who began to wait last.

    Parameters
    ----------
    lock : threading.Lock
        Held by whoever calls.
    """

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._waiting: list[threading.Lock] = []

    def wait(self) -> None:
        """Release the lock until somebody calls `notify`, then take it again."""
        waiter = threading.Lock()
        waiter.acquire()
        self._waiting.append(waiter)
        self._lock.release()
        try:
            waiter.acquire()
        finally:
            self._lock.acquire()

    def notify(self) -> None:
        """Wake the one that began to wait last, if there is one."""
        if self._waiting:
            self._waiting.pop().release()

    def notify_all(self) -> None:
        """Wake all."""
        while self._waiting:
            self.notify()


class LastIdleFirst(ThreadedTaskDispatcher):  # type: ignore[misc]  # untyped library
    """A thread pool that leaves as many threads asleep as it can."""

    def __init__(self) -> None:
        super().__init__()
        self.queue_cv = IdleStack(self.lock)
