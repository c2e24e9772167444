"""`SnapshotWait` for a newer snapshot before a refusal, and a request's `Deadline`.

`GivingWay` is for work that nobody waits for as kube-scheduler waits for its answers.
"""

import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from scoring.snapshot import Snapshot

# kube-scheduler places one pod at a time: with waits of 20 ms, a storm of pods that are
# refused takes a tenth of its time at most, and five of our threads.
WAITS_PER_SECOND: Final = 5.0

MAX_SAVED_WAITS: Final = 5.0

# While the verbs are called, an explanation rests so long between its stages: a worker
# computes at the cost of another, and kube-scheduler waits for its answers.
REST_SECONDS: Final = 0.02

# So much work may come before a rest: less is over before another thread, which waits
# 5 ms for the interpreter, would have asked for it.
WORK_SECONDS: Final = 0.004


class NewerSnapshots(Protocol):
    """Published snapshots; `SnapshotCell` is one."""

    def current(self) -> Snapshot:
        """Return the newest snapshot."""
        ...

    def wait_newer(self, generation: int, timeout_seconds: float) -> bool:
        """Wait for a snapshot newer than `generation`; return whether there is one."""
        ...


class SnapshotWait:
    """Lets refusals wait for the next snapshot; any thread may call it.

    Waits are few: `WAITS_PER_SECOND` on average, `MAX_SAVED_WAITS` at once. A refusal
    beyond that stands as it is, and is mended by a wake-up.

    Parameters
    ----------
    wait_seconds : float
        The longest wait; 0 for none.
    """

    def __init__(
        self,
        source: NewerSnapshots,
        wait_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._wait_seconds = wait_seconds
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._saved = MAX_SAVED_WAITS
        self._saved_at = monotonic()

    def wait_for_newer(self, seen: Snapshot) -> Snapshot | None:
        """Return a newer snapshot than the one `seen`, None if none comes in time."""
        if not self._wait_seconds:
            return None
        # One that is there already costs no wait.
        if not self._source.wait_newer(seen.generation, 0.0) and not (
            self._may_wait()
            and self._source.wait_newer(seen.generation, self._wait_seconds)
        ):
            return None
        return self._source.current()

    def _may_wait(self) -> bool:
        """Take one wait from what is saved, if there is one."""
        with self._lock:
            now = self._monotonic()
            gained = (now - self._saved_at) * WAITS_PER_SECOND
            self._saved = min(self._saved + gained, MAX_SAVED_WAITS)
            self._saved_at = now
            if self._saved < 1.0:
                return False
            self._saved -= 1.0
            return True


class DeadlineError(RuntimeError):
    """A call whose caller has given up: to compute on would only delay the next."""


class Deadline:
    """The time at which the work on one request ends.

    Parameters
    ----------
    at_seconds : float
        On the clock `monotonic`.
    give_way : callable, optional
        Lets more urgent work go first; called between two stages, too.
    """

    __slots__ = ("_at_seconds", "_give_way", "_monotonic")

    def __init__(
        self,
        at_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
        give_way: Callable[[], None] | None = None,
    ) -> None:
        self._at_seconds = at_seconds
        self._monotonic = monotonic
        self._give_way = give_way

    def giving_way(self, give_way: Callable[[], None]) -> "Deadline":
        """Return the same deadline, of work that lets other work go first."""
        return Deadline(self._at_seconds, self._monotonic, give_way)

    def check(self) -> None:
        """Raise `DeadlineError` from the deadline on; called between two stages."""
        if self._give_way is not None:
            self._give_way()
        late_seconds = self._monotonic() - self._at_seconds
        if late_seconds >= 0:
            raise DeadlineError(f"deadline: passed {late_seconds:.3f} s ago")


class GivingWay:
    """Rests after some work where a verb was called meanwhile; one thread calls it.

    Parameters
    ----------
    begun : callable
        Returns how many requests of the extender's face were begun since the start.
    rest : callable
        Waits so many seconds.
    busy : callable
        Returns the seconds that this thread has worked.
    """

    def __init__(
        self,
        begun: Callable[[], int] = lambda: 0,
        rest: Callable[[float], None] = time.sleep,
        busy: Callable[[], float] = time.thread_time,
    ) -> None:
        self._begun = begun
        self._rest = rest
        self._busy = busy
        self._seen = 0
        self._rest_from = float("-inf")

    def start(self) -> None:
        """Begin with some work: calls until now do not count."""
        self._seen = self._begun()
        self._rest_from = self._busy() + WORK_SECONDS

    def __call__(self) -> None:
        """Rest, if there was enough work and a call since this was last asked."""
        if self._busy() < self._rest_from:
            return
        begun = self._begun()
        if begun != self._seen:
            self._seen = begun
            self._rest(REST_SECONDS)
        self._rest_from = self._busy() + WORK_SECONDS


# For a call that nobody limits.
NO_DEADLINE = Deadline(float("inf"))


def deadline_of(context: object) -> Deadline:
    """Return the deadline in a request's context; there may be none."""
    deadline: Deadline = getattr(context, "deadline", NO_DEADLINE)
    return deadline
