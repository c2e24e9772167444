"""`EventWriter`: the thread that tells people what they should know of their pods.

One replica writes why pods are pending; what a review said is known to the replica
that made it, and told by that one. What was not taken because it was not allowed, or
too much at once, is not written again: an Event is worth one call, and no more.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

from cluster.api.protocol import Api, ApiError
from cluster.ledger.writer import NotSyncedError, SnapshotSource
from cluster.watch.backoff import RETRY_AFTER_CAP_SECONDS, delay_after
from extender.events.event import Event
from extender.events.notices import NoticedPod
from extender.events.plan import EventPlan

logger = logging.getLogger(__name__)

# At most ten a second, apart from wake-ups.
INTERVAL_SECONDS: Final = 0.1

# How often to look where there is nothing to tell.
TICK_SECONDS: Final = 1.0

# So much longer than a description takes is waited before the next one: no request has
# the GIL meanwhile.
REST_FACTOR: Final = 15.0

LOG_SECONDS: Final = 60.0

STOP_SECONDS: Final = 2.0

WRITTEN: Final = "written"

KNOWN: Final = "known"

DROPPED: Final = "dropped"

GONE: Final = "gone"

REFUSED: Final = "refused"

FAILED: Final = "failed"

OUTCOMES: Final = (WRITTEN, KNOWN, DROPPED, GONE, REFUSED, FAILED)

# HTTP status -> what became of the Event; none of them is sent again.
_SETTLED: Final[Mapping[int, str]] = {
    HTTPStatus.CONFLICT: KNOWN,
    HTTPStatus.TOO_MANY_REQUESTS: DROPPED,
    HTTPStatus.FORBIDDEN: DROPPED,
    HTTPStatus.NOT_FOUND: GONE,
    HTTPStatus.BAD_REQUEST: REFUSED,
    HTTPStatus.UNPROCESSABLE_ENTITY: REFUSED,
}


class EventWriter:
    """Writes Events; any thread may call `start` and `stop`.

    Parameters
    ----------
    wrote : callable
        Told what became of each Event, one of `OUTCOMES`.
    is_writing : callable
        Whether this replica is the one that writes why pods are pending.
    clock : callable
        Returns seconds since 1970, as the API server counts them.
    instance : str
        What this replica is called.
    monotonic : callable
        Seconds on a clock that never goes back.
    busy : callable
        Seconds that this thread has worked: a description that gives way to calls of
        the verbs lasts longer, and holds the GIL no longer.
    """

    def __init__(  # noqa: PLR0913 - each is one thing that it works with
        self,
        source: SnapshotSource,
        api: Api,
        plan: EventPlan,
        *,
        wrote: Callable[[str], None],
        is_writing: Callable[[], bool],
        clock: Callable[[], float],
        instance: str,
        monotonic: Callable[[], float] = time.monotonic,
        busy: Callable[[], float] = time.thread_time,
    ) -> None:
        self._source = source
        self._api = api
        self._plan = plan
        self._wrote = wrote
        self._is_writing = is_writing
        self._clock = clock
        self._instance = instance
        self._monotonic = monotonic
        self._busy = busy
        self._failures = 0
        self._rest_until = float("-inf")
        self._log_from = float("-inf")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, within_seconds: float = STOP_SECONDS) -> None:
        """End the thread; a call under way is left behind after a while."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(min(within_seconds, STOP_SECONDS))

    def _run(self) -> None:
        pause = TICK_SECONDS
        while not self._stopping.wait(pause):
            try:
                pause = self.step()
            except Exception:
                # A fault of our own must not end the thread.
                logger.exception("event failed")
                pause = TICK_SECONDS

    def note(self, noticed: NoticedPod) -> None:
        """Have written what is to be known of a pod that this replica has reviewed."""
        self._plan.notices.add(noticed)

    def step(self) -> float:
        """Write one Event, if one is due; return how long to wait before the next."""
        if not self._is_writing():
            return self._write_notice()
        try:
            snapshot = self._source.current()
        except NotSyncedError:
            return TICK_SECONDS
        begun = self._monotonic()
        busy, described = self._busy(), self._plan.described
        is_rested = begun >= self._rest_until
        event = None
        try:
            event = self._plan.next(
                snapshot, self._clock(), begun, may_describe=is_rested
            )
        finally:
            looked = self._monotonic()
            if self._plan.described != described:
                self._rest_until = looked + REST_FACTOR * (self._busy() - busy)
        if event is not None:
            return max(INTERVAL_SECONDS, self._write(event))
        if looked >= self._rest_until and self._plan.described == described:
            return TICK_SECONDS
        return min(TICK_SECONDS, max(INTERVAL_SECONDS, self._rest_until - looked))

    def _write_notice(self) -> float:
        """Write one Event of what nobody else knows; return how long to wait then."""
        notices, now = self._plan.notices, self._monotonic()
        event = notices.next_of_owner(now) or notices.next_of_pod(now)
        if event is None:
            return TICK_SECONDS
        return max(INTERVAL_SECONDS, self._write(event))

    def _write(self, event: Event) -> float:
        """Write an Event, and return how long the next one has to wait at least."""
        body = event.encode(self._clock(), self._instance)
        outcome, pause = WRITTEN, 0.0
        try:
            self._api.create(event.path, body)
        except ApiError as error:
            outcome = _SETTLED.get(error.status, FAILED)
            if outcome is FAILED:
                self._plan.forget(event)
                asked = min(error.retry_after_seconds, RETRY_AFTER_CAP_SECONDS)
                pause = delay_after(error.reason, self._failures) + asked
                self._failures += 1
            if outcome in {DROPPED, REFUSED, FAILED}:
                self._log(outcome, error)
        if outcome is not FAILED:
            self._failures = 0
        self._wrote(outcome)
        return pause

    def _log(self, outcome: str, error: ApiError) -> None:
        """Say that Events are not taken, but once a minute."""
        now = self._monotonic()
        if now < self._log_from:
            return
        self._log_from = now + LOG_SECONDS
        fields = {"outcome": outcome, "error": str(error)}
        logger.warning("events not written", extra={"fields": fields})
