"""What is done around each request: id, time, limit, and notice of the end."""

import itertools
import time
from typing import Final

import falcon

from service.health import Health
from service.logs import REQUEST_ID
from service.metrics import Metrics

FILTER_PATH: Final = "/scheduler/filter"
PRIORITIZE_PATH: Final = "/scheduler/prioritize"
MUTATE_PATH: Final = "/mutate"
# path -> label of the metrics
VERB_OF_PATH: Final = {
    FILTER_PATH: "filter",
    PRIORITIZE_PATH: "prioritize",
    MUTATE_PATH: "mutate",
}
# Two objects of 3 MiB, etcd's and the API server's limit, and some room.
MAX_REVIEW_BYTES: Final = 7 * 2**20


class RequestFrame:
    """Falcon middleware around every request.

    PERF: one and not four, since each costs a call about 8 us; bench/http.py
    """

    def __init__(self, metrics: Metrics, health: Health) -> None:
        self._metrics = metrics
        self._health = health
        self._numbers = itertools.count(1)
        self._start = f"{time.time_ns():x}"

    def process_request(self, req: falcon.Request, _resp: falcon.Response) -> None:
        """Note the time, name the request for its log lines, refuse giants."""
        req.context.started = time.perf_counter()
        given = req.env.get("HTTP_X_REQUEST_ID")
        REQUEST_ID.set(given or f"{self._start}-{next(self._numbers)}")
        if req.path == MUTATE_PATH and (req.content_length or 0) > MAX_REVIEW_BYTES:
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
            seconds = time.perf_counter() - req.context.started
            self._metrics.request_answered(verb, str(resp.status), seconds)
        if self._health.is_draining:
            resp.set_header("Connection", "close")
        REQUEST_ID.set("")  # the thread's next lines are not this request's
