"""`Deadline`: the moment from which nobody waits for an answer any more."""

import time
from collections.abc import Callable


class DeadlineError(RuntimeError):
    """A call whose caller has given up: to compute on would only delay the next."""


class Deadline:
    """When the work on one request ends.

    Parameters
    ----------
    at_seconds : float
        On the clock `monotonic`.
    monotonic : callable
    """

    __slots__ = ("_at_seconds", "_monotonic")

    def __init__(
        self, at_seconds: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._at_seconds = at_seconds
        self._monotonic = monotonic

    def check(self) -> None:
        """Raise `DeadlineError` from the deadline on; called between two stages."""
        late_seconds = self._monotonic() - self._at_seconds
        if late_seconds >= 0:
            raise DeadlineError(f"deadline: passed {late_seconds:.3f} s ago")


# For a call that nobody limits.
NO_DEADLINE = Deadline(float("inf"))
