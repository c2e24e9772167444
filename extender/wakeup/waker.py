"""`Waker`: the thread that wakes unschedulable pods with a patch of their status.

Any change of a pending pod has kube-scheduler try it again. An annotation is the
smallest one, and with the ``status`` subresource the right to change one is not the
right to change what a pod is.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

import msgspec

from cluster.api.protocol import Api, ApiError
from cluster.ledger.writer import SnapshotCell
from cluster.watch.backoff import FACTOR, RETRY_AFTER_CAP_SECONDS, delay_after
from extender.verbs.call import FilterOutcome
from extender.verbs.options import VerbOptions
from extender.wakeup.queue import Wake, WakeUps

logger = logging.getLogger(__name__)

# How often to look while a refused pod waits; a quarter of the time between two wakes.
TICK_SECONDS: Final = 0.025

# With thousands of refused pods of many classes a look takes milliseconds, in which no
# request has the GIL. So much longer is waited before the next one.
REST_FACTOR: Final = 15.0

# Before the first snapshot.
SYNC_SECONDS: Final = 0.5

# Rights are granted by people, and policies are changed by them.
FORBIDDEN_SECONDS: Final = 60.0

# A patch without an answer has kept all others waiting for as long.
SILENT_SECONDS: Final = 5.0

STOP_SECONDS: Final = 2.0

WOKEN: Final = "woken"

POD_GONE: Final = "gone"

CONFLICT: Final = "conflict"

FORBIDDEN: Final = "forbidden"

FAILED: Final = "failed"

OUTCOMES: Final = (WOKEN, POD_GONE, CONFLICT, FORBIDDEN, FAILED)

# HTTP status -> what became of the patch; whatever stands here is not sent again.
_SETTLED: Final[Mapping[int, str]] = {
    HTTPStatus.NOT_FOUND: POD_GONE,
    HTTPStatus.CONFLICT: CONFLICT,
    HTTPStatus.UNPROCESSABLE_ENTITY: CONFLICT,  # another pod of the same name
}

# Not what was asked, but when or by whom.
_PASSING: Final = frozenset(
    {HTTPStatus.UNAUTHORIZED, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}
)


class Waker:
    """Wakes unschedulable pods; any thread may call `filtered`, `start` and `stop`.

    Parameters
    ----------
    options : callable
        Returns what the settings say of the verbs at this moment.
    woke : callable
        Told what became of each patch, one of `OUTCOMES`.
    annotation : str
        Its name.
    monotonic : callable
        Seconds on a clock that never goes back.
    """

    def __init__(  # noqa: PLR0913 - each is one thing that it works with
        self,
        cell: SnapshotCell,
        options: Callable[[], VerbOptions],
        api: Api,
        woke: Callable[[str], None],
        *,
        annotation: str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cell = cell
        self._options = options
        self._api = api
        self._woke = woke
        self._annotation = annotation
        self._monotonic = monotonic
        self._wake_ups = WakeUps()
        self._roused = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="waker", daemon=True)

    def filtered(self, outcome: FilterOutcome) -> None:
        """Note an answered filter call: the pod was refused on every node, or not."""
        verb_call, is_empty = outcome.verb_call, not len(outcome.answer.indexes)
        self._wake_ups.note(
            verb_call.pod_request,
            verb_call.snapshot.generation,
            len(verb_call.names),
            is_empty=is_empty,
        )
        if is_empty:
            self._roused.set()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, within_seconds: float = STOP_SECONDS) -> None:
        """End the thread; a patch under way is left behind after a while."""
        self._stopping.set()
        self._roused.set()
        self._thread.join(min(within_seconds, STOP_SECONDS))

    def _run(self) -> None:
        """Follow the snapshots while a refused pod waits."""
        cell, wake_ups = self._cell, self._wake_ups
        while not cell.wait_newer(0, SYNC_SECONDS):
            if self._stopping.is_set():
                return
        wake_ups.rebuild(cell.current(), self._monotonic())
        while not self._stopping.is_set():
            look_seconds = 0.0
            try:
                look_seconds = self.step()
            except Exception:
                # A fault of our own must not end the thread.
                logger.exception("wake-up failed")
                self._stopping.wait(SYNC_SECONDS)
            if wake_ups.is_idle:
                self._roused.wait()
                self._roused.clear()
            else:
                to_turn = wake_ups.seconds_to_turn(self._monotonic())
                tick = min(TICK_SECONDS, to_turn) if to_turn else TICK_SECONDS
                self._stopping.wait(max(tick, REST_FACTOR * look_seconds))

    def step(self) -> float:
        """Wake one pod, if one is due; return how many seconds it took to see that."""
        now = self._monotonic()
        snapshot = self._cell.current()
        wake = self._wake_ups.next(snapshot, self._options(), now)
        look_seconds = self._monotonic() - now
        if wake is not None:
            self._wake(wake, snapshot.generation)
        return look_seconds

    def _wake(self, wake: Wake, generation: int) -> None:
        path = f"/api/v1/namespaces/{wake.namespace}/pods/{wake.name}/status"
        # The time makes each patch a change: an equal one would wake nobody.
        value = f"{generation} {datetime.now(UTC).isoformat()}"
        metadata = {"uid": wake.uid, "annotations": {self._annotation: value}}
        outcome = WOKEN
        try:
            self._api.patch(path, msgspec.json.encode({"metadata": metadata}))
        except ApiError as error:
            outcome = self._after(error, wake)
        else:
            self._wake_ups.woken(wake, self._monotonic())
        self._woke(outcome)
        fields = {"pod_uid": wake.uid, "outcome": outcome, "generation": generation}
        logger.debug("pod woken", extra={"fields": fields})

    def _after(self, error: ApiError, wake: Wake) -> str:
        """Have this pod wait after a failed patch, and return the outcome.

        It is only this pod that waits: the next one may be of another namespace, in
        which we have the right and no policy refuses or delays us.
        """
        now = self._monotonic()
        if error.status in _SETTLED:
            self._wake_ups.woken(wake, now)
            return _SETTLED[error.status]
        pause = _pause_after(error, self._wake_ups.failures(wake))
        if self._wake_ups.failed(wake, now + pause):
            fields = {
                "error": str(error),
                "wanted": "patch on pods/status",
                "namespace": wake.namespace,
                "pod": wake.name,
            }
            logger.warning("pods cannot be woken", extra={"fields": fields})
        return FORBIDDEN if error.status == HTTPStatus.FORBIDDEN else FAILED


def _pause_after(error: ApiError, failures: int) -> float:
    """Return seconds until a pod is tried again, of which so many tries had failed."""
    is_refused = (
        HTTPStatus.BAD_REQUEST <= error.status < HTTPStatus.INTERNAL_SERVER_ERROR
    )
    if is_refused and error.status not in _PASSING:
        return FORBIDDEN_SECONDS
    if error.reason == "silent":
        return float(
            min(SILENT_SECONDS * FACTOR ** min(failures, 4), FORBIDDEN_SECONDS)
        )
    asked = min(error.retry_after_seconds, RETRY_AFTER_CAP_SECONDS)
    return delay_after(error.reason, failures) + asked
