"""Work around each request: id, time, limits on concurrency, notice of the end."""

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import falcon

from extender.verbs.fresh_snapshot import Deadline
from service.http.health import Health
from service.http.waitress_channel import ARRIVED_KEY, WsgiApp
from service.logs import REQUEST_ID
from service.metrics import Metrics
from service.settings.process import ServerSettings, WebhookSettings

logger = logging.getLogger(__name__)

FILTER_PATH: Final = "/scheduler/filter"

PRIORITIZE_PATH: Final = "/scheduler/prioritize"

PREEMPT_PATH: Final = "/scheduler/preempt"

MUTATE_PATH: Final = "/mutate"

EXPLAIN_PATH: Final = "/explain"

DOCTOR_PATH: Final = "/doctor"

# path -> label of the metrics
VERB_OF_PATH: Final = {
    FILTER_PATH: "filter",
    PRIORITIZE_PATH: "prioritize",
    PREEMPT_PATH: "preempt",
    MUTATE_PATH: "mutate",
}

# path -> which limit it counts against; every other path is never refused
FACE_OF_PATH: Final = {
    FILTER_PATH: "extender",
    PRIORITIZE_PATH: "extender",
    PREEMPT_PATH: "extender",
    EXPLAIN_PATH: "extender",
    MUTATE_PATH: "webhook",
    "/cluster": "cluster",
    DOCTOR_PATH: "cluster",
}

# Two objects of 3 MiB, etcd's and the API server's limit, and some room.
MAX_REVIEW_BYTES: Final = 7 * 2**20

# Paths that take one object of the API server or two. Larger bodies are read into trees
# for seconds, in which no verb computes.
_OBJECT_PATHS: Final = frozenset({MUTATE_PATH, EXPLAIN_PATH, DOCTOR_PATH})


# Of a caller's `X-Request-Id`, which each log line of the request repeats.
MAX_REQUEST_ID: Final = 128

# Between two lines about slow calls: when all are slow, logs must not add to it.
SLOW_LINE_SECONDS: Final = 1.0


class RequestMiddleware:
    """Falcon middleware around every request.

    PERF: one and not four, since each costs a call about 8 us; bench/extender/http.py

    Parameters
    ----------
    deadline_seconds : mapping
        face -> age of a request at which the work on it stops; none if it has none
    slow_seconds : float
        A verb's call that took longer is logged.
    """

    def __init__(
        self,
        metrics: Metrics,
        health: Health,
        deadline_seconds: Mapping[str, float] | None = None,
        slow_seconds: float = float("inf"),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics = metrics
        self._health = health
        # path -> age of a request at which the work on it stops
        self._deadline_seconds = {
            path: (deadline_seconds or {}).get(face, float("inf"))
            for path, face in FACE_OF_PATH.items()
        }
        self._slow_seconds = slow_seconds
        self._monotonic = monotonic
        self._slow_told = -SLOW_LINE_SECONDS
        self._slow_untold = 0
        self._numbers = itertools.count(1)
        self._start = f"{time.time_ns():x}"

    def process_request(self, req: falcon.Request, _resp: falcon.Response) -> None:
        """Note the time, name the request for its log lines, refuse giants."""
        arrived = req.env.get(ARRIVED_KEY) or self._monotonic()
        req.context.arrived = arrived
        limit = self._deadline_seconds.get(req.path)
        if limit is not None:
            req.context.deadline = Deadline(arrived + limit)
        given = _printable(req.env.get("HTTP_X_REQUEST_ID", ""))
        REQUEST_ID.set(given or f"{self._start}-{next(self._numbers)}")
        if (req.content_length or 0) > MAX_REVIEW_BYTES and req.path in _OBJECT_PATHS:
            raise falcon.HTTPContentTooLarge

    def process_response(
        self,
        req: falcon.Request,
        resp: falcon.Response,
        _resource: object,
        _req_succeeded: bool,
    ) -> None:
        """Count a verb's request; while draining, close the connection."""
        verb = VERB_OF_PATH.get(req.path)
        if verb is not None:
            seconds = self._monotonic() - req.context.arrived
            self._metrics.request_answered(verb, str(resp.status), seconds)
            if seconds > self._slow_seconds:
                self._tell_slow(verb, str(resp.status), seconds, req)
        if self._health.is_draining:
            resp.set_header("Connection", "close")
        REQUEST_ID.set("")  # the thread's next lines are not this request's

    def _tell_slow(
        self, verb: str, status: str, seconds: float, req: falcon.Request
    ) -> None:
        """Log a slow call, or count it towards the next line.

        Two threads at once may both log, or one count be lost: it is about when.
        """
        now = self._monotonic()
        if now - self._slow_told < SLOW_LINE_SECONDS:
            self._slow_untold += 1
            return
        self._slow_told, untold = now, self._slow_untold
        self._slow_untold = 0
        fields = {
            "verb": verb,
            "seconds": round(seconds, 3),
            "status": status,
            "body_bytes": req.content_length or 0,
            "others": untold,
        }
        logger.warning("slow call", extra={"fields": fields})


def _printable(request_id: str) -> str:
    """Return what of a caller's request id fits into a log line."""
    looked_at = request_id[: 8 * MAX_REQUEST_ID]
    return "".join(filter(str.isprintable, looked_at))[:MAX_REQUEST_ID]


# Beside both faces' own: probes and metrics are answered however busy those are.
SPARE_THREADS: Final = 4

# Pages of the cluster, for people; fewer than the spare threads.
MAX_CLUSTER_PAGES: Final = 2


class Slots:
    """The requests that one face works on; any thread may call it."""

    def __init__(
        self, limit: int, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.limit = limit
        self._monotonic = monotonic
        self._lock = threading.Lock()
        # number of the request -> when the work on it began
        self._started: dict[int, float] = {}
        self._next = 0

    @property
    def count(self) -> int:
        """Number of requests being worked on."""
        return len(self._started)

    @property
    def begun(self) -> int:
        """Number of requests that work was begun on since the start."""
        return self._next

    def enter(self) -> int | None:
        """Take a slot and return its number, None if there is none."""
        now = self._monotonic()
        with self._lock:
            if len(self._started) >= self.limit:
                return None
            self._next += 1
            self._started[self._next] = now
            return self._next

    def leave(self, number: int) -> None:
        """Give a slot back."""
        with self._lock:
            del self._started[number]

    def is_stuck(self, seconds: float) -> bool:
        """Whether every slot has been taken for longer than `seconds`."""
        latest = self._monotonic() - seconds
        with self._lock:
            return len(self._started) >= self.limit and all(
                started < latest for started in self._started.values()
            )


def build_slots(server: ServerSettings, webhook: WebhookSettings) -> dict[str, Slots]:
    """Return the slots of each face."""
    return {
        "extender": Slots(server.max_in_flight),
        "webhook": Slots(webhook.max_in_flight),
        "cluster": Slots(MAX_CLUSTER_PAGES),
    }


class ConcurrencyLimit:
    """WSGI middleware that refuses what is beyond a face's limit.

    Parameters
    ----------
    slots : mapping
        face -> its slots
    refused : callable
        Told of the face of each request that is refused.
    """

    def __init__(
        self, app: WsgiApp, slots: Mapping[str, Slots], refused: Callable[[str], None]
    ) -> None:
        self._app = app
        self.slots = slots
        self._refused = refused

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        """Pass one request on, or answer 503 with nothing in it."""
        face = FACE_OF_PATH.get(environ.get("PATH_INFO", ""))
        if face is None:
            return self._app(environ, start_response)
        slots = self.slots[face]
        number = slots.enter()
        if number is None:
            self._refused(face)
            # Nobody reads the body of an error, and unread it costs the connection.
            start_response("503 Service Unavailable", [("Content-Length", "0")])
            return [b""]
        try:
            return self._app(environ, start_response)
        finally:
            slots.leave(number)
