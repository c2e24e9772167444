"""`create_app`: all routes over their collaborators; it reads nothing itself."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import falcon

from cluster.cache import NotSyncedError, SnapshotCell
from extender.disagreements import Disagreements
from extender.http import (
    FilterResource,
    PrioritizeResource,
    reject_malformed,
    reject_unsynced,
)
from extender.memo import Memo
from extender.verbs import VerbOptions
from extender.wire import WireError
from injector.http import MutateResource, is_under_review
from injector.http import reject_malformed as reject_malformed_review
from injector.review import ReviewError
from service.cluster_page import ClusterResource
from service.frame import (
    FILTER_PATH,
    MUTATE_PATH,
    PRIORITIZE_PATH,
    RequestFrame,
)
from service.health import Health, HealthResource, ReadinessResource
from service.metrics import Metrics, MetricsResource

logger = logging.getLogger(__name__)


class LastHandler:
    """Falcon's handler of whatever no other one takes: a fault of our own."""

    def __init__(self, webhook: MutateResource) -> None:
        self._webhook = webhook

    def __call__(
        self,
        req: falcon.Request,
        resp: falcon.Response,
        error: Exception,
        params: dict[str, object],
    ) -> None:
        """Answer a review with its own UID, anything else with 500, and log it."""
        if is_under_review(req):
            self._webhook.answer_fault(req, resp, error, params)
            return
        if isinstance(error, OSError):  # of reading the body: nothing else does I/O
            raise falcon.HTTPError(
                falcon.HTTP_408, description="the request's body did not arrive"
            ) from error
        logger.error("request failed", exc_info=error)
        raise falcon.HTTPInternalServerError(
            description="a fault of gpu-extender"
        ) from error


@dataclass(frozen=True, slots=True)
class Collaborators:
    """What the routes are built over.

    Attributes
    ----------
    cell : SnapshotCell
    options : callable
        Returns what the settings say of the verbs at this moment.
    webhook : MutateResource
    metrics : Metrics
    health : Health
    relist : callable
        Has all pods listed anew, for a reason; nothing for a cluster from files.
    """

    cell: SnapshotCell
    options: Callable[[], VerbOptions]
    webhook: MutateResource
    metrics: Metrics
    health: Health
    relist: Callable[[str], object] = lambda _reason: None


def create_app(
    parts: Collaborators,
) -> falcon.App[falcon.Request, falcon.Response]:
    """Return the WSGI application."""
    cell, options, metrics = parts.cell, parts.options, parts.metrics
    webhook, health = parts.webhook, parts.health
    app = falcon.App()
    app.add_middleware(RequestFrame(metrics, health))
    app.add_error_handler(Exception, LastHandler(webhook))
    app.add_error_handler(WireError, reject_malformed)
    app.add_error_handler(ReviewError, reject_malformed_review)
    app.add_error_handler(NotSyncedError, reject_unsynced)
    memo = Memo(cell)
    app.add_route(
        FILTER_PATH,
        FilterResource(cell, options, metrics, memo, Disagreements(parts.relist)),
    )
    app.add_route(PRIORITIZE_PATH, PrioritizeResource(cell, options, metrics, memo))
    app.add_route(MUTATE_PATH, webhook)
    app.add_route("/healthz", HealthResource())
    app.add_route("/readyz", ReadinessResource(health.obstacles))
    app.add_route("/readyz/extender", ReadinessResource(health.extender_obstacles))
    app.add_route("/metrics", MetricsResource(metrics))
    app.add_route("/cluster", ClusterResource(cell))
    return app
