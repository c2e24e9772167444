"""Wait for something to become true, with a deadline and no blind sleep."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

POLL_SECONDS: Final = 0.03


class DeadlineError(AssertionError):
    """What a test waited for did not come in time."""


def wait_for(
    probe: Callable[[], T | None],
    *,
    timeout_seconds: float,
    what: str,
    poll_seconds: float = POLL_SECONDS,
    ignoring: tuple[type[Exception], ...] = (),
) -> T:
    """Return the first truthy answer of `probe`.

    Exceptions named in `ignoring` count as "not yet"; the last of them becomes the
    cause of the `DeadlineError`.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        last: object = None
        fault: Exception | None = None
        try:
            last = answer = probe()
            if answer:
                return answer
        except ignoring as error:
            fault = error
        if time.monotonic() >= deadline:
            seen = repr(fault) if fault is not None else repr(last)
            raise DeadlineError(
                f"{what}: wanted within {timeout_seconds} s, last seen {seen[:500]}"
            ) from fault
        time.sleep(poll_seconds)


def stays_true(probe: Callable[[], bool], *, for_seconds: float, what: str) -> None:
    """Fail as soon as `probe` is false; return when it held all the time."""
    end = time.monotonic() + for_seconds
    while time.monotonic() < end:
        if not probe():
            raise DeadlineError(f"{what}: wanted to hold for {for_seconds} s, did not")
        time.sleep(POLL_SECONDS)
