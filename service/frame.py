"""What is done around each request: id, time, limit, and notice of the end."""

import itertools
import time
from collections.abc import Mapping
from typing import Final

import falcon

from extender.deadline import Deadline
from service.closing import ARRIVED_KEY
from service.health import Health
from service.logs import REQUEST_ID
from service.metrics import Metrics

FILTER_PATH: Final = "/scheduler/filter"
PRIORITIZE_PATH: Final = "/scheduler/prioritize"
PREEMPT_PATH: Final = "/scheduler/preempt"
MUTATE_PATH: Final = "/mutate"
EXPLAIN_PATH: Final = "/explain"
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
}
# Two objects of 3 MiB, etcd's and the API server's limit, and some room.
MAX_REVIEW_BYTES: Final = 7 * 2**20
# Paths that take one object of the API server or two. Larger bodies are read into trees
# for seconds, in which no verb computes.
_OBJECT_PATHS: Final = frozenset({MUTATE_PATH, EXPLAIN_PATH})


class RequestFrame:
    """Falcon middleware around every request.

    PERF: one and not four, since each costs a call about 8 us; bench/http.py

    Parameters
    ----------
    metrics : Metrics
    health : Health
    deadline_seconds : mapping
        face -> age of a request at which the work on it stops; none if it has none
    """

    def __init__(
        self,
        metrics: Metrics,
        health: Health,
        deadline_seconds: Mapping[str, float] | None = None,
    ) -> None:
        self._metrics = metrics
        self._health = health
        # path -> age of a request at which the work on it stops
        self._deadline_seconds = {
            path: (deadline_seconds or {}).get(face, float("inf"))
            for path, face in FACE_OF_PATH.items()
        }
        self._numbers = itertools.count(1)
        self._start = f"{time.time_ns():x}"

    def process_request(self, req: falcon.Request, _resp: falcon.Response) -> None:
        """Note the time, name the request for its log lines, refuse giants."""
        arrived = req.env.get(ARRIVED_KEY) or time.monotonic()
        req.context.arrived = arrived
        limit = self._deadline_seconds.get(req.path)
        if limit is not None:
            req.context.deadline = Deadline(arrived + limit)
        given = req.env.get("HTTP_X_REQUEST_ID")
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
        """Count a verb's request; while draining, have the client connect anew."""
        verb = VERB_OF_PATH.get(req.path)
        if verb is not None:
            seconds = time.monotonic() - req.context.arrived
            self._metrics.request_answered(verb, str(resp.status), seconds)
        if self._health.is_draining:
            resp.set_header("Connection", "close")
        REQUEST_ID.set("")  # the thread's next lines are not this request's
