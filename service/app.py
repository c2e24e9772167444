"""`create_app`: all routes over their collaborators; it reads nothing itself."""

import logging
import uuid
from collections.abc import Callable
from typing import Final

import falcon

from cluster.cache import NotSyncedError, SnapshotCell
from extender.http import (
    FilterResource,
    PrioritizeResource,
    reject_malformed,
    reject_unsynced,
)
from extender.verbs import VerbOptions
from extender.wire import WireError
from service.cluster_page import ClusterResource
from service.health import DrainNotice, Health, HealthResource, ReadinessResource
from service.logs import REQUEST_ID
from service.metrics import Metrics, MetricsResource, RequestTimer

logger = logging.getLogger(__name__)

FILTER_PATH: Final = "/scheduler/filter"
PRIORITIZE_PATH: Final = "/scheduler/prioritize"
MUTATE_PATH: Final = "/mutate"
# path -> label of the metrics
VERB_OF_PATH: Final = {
    FILTER_PATH: "filter",
    PRIORITIZE_PATH: "prioritize",
    MUTATE_PATH: "mutate",
}


class RequestIds:
    """Falcon middleware that gives each request an id for its log lines."""

    def process_request(self, req: falcon.Request, _resp: falcon.Response) -> None:
        """Take the caller's id, or make one."""
        REQUEST_ID.set(req.get_header("X-Request-Id") or uuid.uuid4().hex[:12])


def answer_fault(
    _req: falcon.Request,
    _resp: falcon.Response,
    error: Exception,
    _params: dict[str, object],
) -> None:
    """Turn a fault of our own into 500, with a traceback in the log."""
    logger.error("request failed", exc_info=error)
    raise falcon.HTTPInternalServerError(
        description="a fault of gpu-extender"
    ) from error


def create_app(
    cell: SnapshotCell,
    options: Callable[[], VerbOptions],
    metrics: Metrics,
    health: Health,
) -> falcon.App[falcon.Request, falcon.Response]:
    """Return the WSGI application.

    Parameters
    ----------
    cell : SnapshotCell
    options : callable
        Returns what the settings say of the verbs at this moment.
    metrics : Metrics
    health : Health
    """
    app = falcon.App()
    app.add_middleware(RequestIds())
    app.add_middleware(RequestTimer(metrics, VERB_OF_PATH))
    app.add_middleware(DrainNotice(health))
    app.add_error_handler(Exception, answer_fault)
    app.add_error_handler(WireError, reject_malformed)
    app.add_error_handler(NotSyncedError, reject_unsynced)
    app.add_route(FILTER_PATH, FilterResource(cell, options, metrics))
    app.add_route(PRIORITIZE_PATH, PrioritizeResource(cell, options, metrics))
    app.add_route("/healthz", HealthResource())
    app.add_route("/readyz", ReadinessResource(health.obstacles))
    app.add_route("/readyz/extender", ReadinessResource(health.extender_obstacles))
    app.add_route("/metrics", MetricsResource(metrics))
    app.add_route("/cluster", ClusterResource(cell))
    return app
