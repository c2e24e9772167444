"""`Waker`: the thread that wakes unschedulable pods with a patch of their status.

Any change of a pending pod has kube-scheduler try it again. An annotation is the
smallest one, and with the ``status`` subresource the right to change one is not the
right to change what a pod is.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

import msgspec

from cluster.api.protocol import Api, ApiError
from cluster.ledger.writer import SnapshotCell
from cluster.watch.backoff import Backoff, Pace
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

# Rights are granted by people.
FORBIDDEN_SECONDS: Final = 60.0

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
    pace : Pace
        Its clock, and its chance.
    """

    def __init__(  # noqa: PLR0913 - each is one thing that it works with
        self,
        cell: SnapshotCell,
        options: Callable[[], VerbOptions],
        api: Api,
        woke: Callable[[str], None],
        *,
        annotation: str,
        pace: Pace | None = None,
    ) -> None:
        self._cell = cell
        self._options = options
        self._api = api
        self._woke = woke
        self._annotation = annotation
        pace = pace or Pace()
        self._monotonic = pace.monotonic
        self._backoff = Backoff(pace)
        self._wake_ups = WakeUps()
        self._is_forbidden = False
        self._quiet_until = float("-inf")
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

    def stop(self) -> None:
        """End the thread; a patch under way is left behind after a while."""
        self._stopping.set()
        self._roused.set()
        self._thread.join(STOP_SECONDS)

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
                self._stopping.wait(max(TICK_SECONDS, REST_FACTOR * look_seconds))

    def step(self) -> float:
        """Wake one pod, if one is due; return how many seconds it took to see that."""
        now = self._monotonic()
        if now < self._quiet_until:
            return 0.0
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
            self._is_forbidden = False
        except ApiError as error:
            outcome = self._after(error, wake)
        else:
            self._wake_ups.woken(wake.uid, self._monotonic())
        self._woke(outcome)
        fields = {"pod_uid": wake.uid, "outcome": outcome, "generation": generation}
        logger.debug("pod woken", extra={"fields": fields})

    def _after(self, error: ApiError, wake: Wake) -> str:
        """Decide what a failed patch means, and return its outcome."""
        now = self._monotonic()
        if error.status in _SETTLED:
            self._wake_ups.woken(wake.uid, now)
            return _SETTLED[error.status]
        is_forbidden = error.status == HTTPStatus.FORBIDDEN
        if is_forbidden:
            delay, is_first = FORBIDDEN_SECONDS, not self._is_forbidden
            self._is_forbidden = True
        else:
            delay = self._backoff.delay(error.reason, error.retry_after_seconds)
            is_first = self._backoff.is_first(error.reason)
        self._quiet_until = now + delay
        self._wake_ups.postpone(wake.uid, self._quiet_until)
        if is_first:
            fields = {"error": str(error), "wanted": "patch on pods/status"}
            logger.warning("pods cannot be woken", extra={"fields": fields})
        return FORBIDDEN if is_forbidden else FAILED
