"""`Backoff`: delays after failures, and `Pace`, the time of a reflector."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

FIRST_DELAY_SECONDS: Final = 0.2

FACTOR: Final = 2.0

# While nothing answers, asking costs nobody anything and an outage must end soon.
UNREACHABLE_CAP_SECONDS: Final = 4.0

# A server that answers with errors is spared.
CAP_SECONDS: Final = 10.0

RETRY_AFTER_CAP_SECONDS: Final = 60.0

RESET_AFTER_SECONDS: Final = 60.0

UNREACHABLE_REASONS: Final = frozenset({"unreachable", "silent", "closed"})


@dataclass(frozen=True, slots=True)
class Pace:
    """Page size, time, chance and waiting; tests pass their own.

    Attributes
    ----------
    page_size : int
        Objects asked for at a time.
    monotonic : callable
        Seconds on a clock that never goes back.
    wait : callable
        Waits for an event, so many seconds at most; says whether it came.
    """

    page_size: int = 500
    monotonic: Callable[[], float] = time.monotonic
    wait: Callable[[threading.Event, float], bool] = threading.Event.wait
    rng: random.Random = field(default_factory=random.Random)


def delay_after(reason: str, failures: int) -> float:
    """Return how many seconds to wait after so many failures before this one."""
    cap = UNREACHABLE_CAP_SECONDS if reason in UNREACHABLE_REASONS else CAP_SECONDS
    # 16 doublings are far beyond every cap
    return float(min(FIRST_DELAY_SECONDS * FACTOR ** min(failures, 16), cap))


class Backoff:
    """Delays that double with each failure of a kind; owned by one thread.

    Each reason has a streak of its own, so that the first error of a server that has
    just come up is not paid for the outage before it. All streaks end when nothing has
    failed for a minute: a watch that breaks soon after each list must not look healthy.
    """

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        # reason -> failures so far
        self._streaks: Counter[str] = Counter()
        self._quiet_from = 0.0

    def delay(self, reason: str, retry_after_seconds: float = 0.0) -> float:
        """Note a failure and return how long to wait, in seconds.

        Half of the delay is random, so that not all clients of a restarted server
        come back together. A Retry-After is a lower bound.
        """
        now = self._pace.monotonic()
        if now - self._quiet_from > RESET_AFTER_SECONDS:
            self._streaks.clear()
        full = delay_after(reason, self._streaks[reason])
        self._streaks[reason] += 1
        delay = full * self._pace.rng.uniform(0.5, 1.0)
        delay += min(retry_after_seconds, RETRY_AFTER_CAP_SECONDS)
        self._quiet_from = now + delay
        return delay

    def is_first(self, reason: str) -> bool:
        """Whether the last failure with that reason was the first of its streak."""
        return self._streaks[reason] == 1
