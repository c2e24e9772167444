"""`create_app`: all routes over their collaborators; it reads nothing itself."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import falcon
from falcon.app_helpers import default_serialize_error

from cluster.ledger.writer import NotSyncedError, SnapshotCell
from extender.explain.http import ExplainResource
from extender.explain.pod import Admit
from extender.http import (
    FilterListener,
    FilterResource,
    MalformedHandler,
    PreemptResource,
    PrioritizeResource,
    reject_too_large,
    reject_unsynced,
)
from extender.tracking.assumed_pods import AssumedPods
from extender.tracking.count_mismatches import CountMismatches
from extender.tracking.last_answers import LastAnswers
from extender.verbs.fresh_snapshot import DeadlineError
from extender.verbs.options import VerbOptions
from extender.verbs.reuse import FilterMemo
from extender.wire.fields import TooLargeError
from extender.wire.filter import WireError
from injector.http import MutateResource, is_under_review, reject_malformed
from injector.review import ReviewError
from service.cluster_link import ClusterLink
from service.doctor.self_check import SelfCheck
from service.http.health import (
    Health,
    HealthResource,
    Liveness,
    ReadinessResource,
    ask_scheduler,
    filter_ourselves,
)
from service.http.middleware import (
    DOCTOR_PATH,
    EXPLAIN_PATH,
    FILTER_PATH,
    MUTATE_PATH,
    PREEMPT_PATH,
    PRIORITIZE_PATH,
    RequestMiddleware,
)
from service.http.pages import ClusterResource, DoctorResource, MetricsResource
from service.metrics import Metrics

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
        _params: dict[str, object],
    ) -> None:
        """Answer a review with its own UID, anything else with 500, and log it."""
        is_late = isinstance(error, DeadlineError)
        if is_under_review(req):
            self._webhook.answer_fault(req, resp, error, is_late=is_late)
            return
        if is_late:
            resp.status = falcon.HTTP_504  # with nothing in it: nobody reads it
            return
        if isinstance(error, OSError):  # of reading the body: nothing else does I/O
            raise falcon.HTTPError(
                falcon.HTTP_408, description="the request's body did not arrive"
            ) from error
        logger.error("request failed", exc_info=error)
        raise falcon.HTTPInternalServerError(
            description="a fault of gpu-extender"
        ) from error


def write_error(
    req: falcon.Request, resp: falcon.Response, error: falcon.HTTPError
) -> None:
    """Write an error as falcon does, and as a line to who takes text but no JSON."""
    if req.client_accepts(falcon.MEDIA_JSON) or not req.client_accepts("text/plain"):
        default_serialize_error(req, resp, error)
        return
    words = [error.title or error.status, error.description]
    resp.text = ": ".join(str(word) for word in words if word) + "\n"
    resp.content_type = falcon.MEDIA_TEXT


def create_app(  # noqa: PLR0913 - each is one thing that routes are built over
    cell: SnapshotCell,
    options: Callable[[], VerbOptions],
    webhook: MutateResource,
    metrics: Metrics,
    health: Health,
    *,
    answered: LastAnswers,
    link: ClusterLink | None = None,
    deadline_seconds: Mapping[str, float] = MappingProxyType({}),
    slow_seconds: float = float("inf"),
    is_stuck: Callable[[], bool] = lambda: False,
    self_check: SelfCheck | None = None,
    admit: Admit | None = None,
    begun: Callable[[], int] = lambda: 0,
    scheduler_health_url: str | None = None,
) -> falcon.App[falcon.Request, falcon.Response]:
    """Return the WSGI application.

    Parameters
    ----------
    options
        Returns what the settings say of the verbs at this moment.
    link
        None for a cluster from files.
    deadline_seconds
        face -> age of a request at which the work on it stops; none if it has none
    slow_seconds
        A verb's call that took longer is logged.
    is_stuck
        Whether every call that the extender may work on has passed its deadline.
    self_check
        None for an application that is not examined.
    admit
        Has a pod reviewed for an explanation.
    begun
        Returns how many requests of the extender's face were begun.
    scheduler_health_url
        Of the kube-scheduler in the same pod, None where there is none.
    """
    app = falcon.App()
    app.set_error_serializer(write_error)
    app.add_middleware(
        RequestMiddleware(metrics, health, deadline_seconds, slow_seconds)
    )
    app.add_error_handler(Exception, LastHandler(webhook))
    app.add_error_handler(WireError, MalformedHandler(answered.note_fault))
    app.add_error_handler(TooLargeError, reject_too_large)
    app.add_error_handler(ReviewError, reject_malformed)
    app.add_error_handler(NotSyncedError, reject_unsynced)
    # The same call about a cluster from files has the same answer.
    assumed = AssumedPods(is_counting=False) if link is None else link.assumed_pods
    _add_verbs(app, cell, options, metrics, answered, assumed, link)
    app.add_route(MUTATE_PATH, webhook)
    app.add_route(
        EXPLAIN_PATH,
        ExplainResource(
            cell,
            options,
            answered,
            assumed.by_node,
            health.age_seconds,
            admit=admit,
            begun=begun,
        ),
    )
    app.add_route("/cluster", ClusterResource(cell, health.age_seconds))
    if self_check is not None:
        app.add_route(DOCTOR_PATH, DoctorResource(self_check))
    app.add_route("/metrics", MetricsResource(metrics))
    liveness = Liveness(
        cell,
        lambda: filter_ourselves(cell.current(), options()),
        is_stuck,
        ask_scheduler=(
            None
            if scheduler_health_url is None
            else partial(ask_scheduler, scheduler_health_url)
        ),
    )
    _add_probes(app, health, liveness)
    return app


def _add_verbs(  # noqa: PLR0913, PLR0917 - as `create_app`
    app: falcon.App[falcon.Request, falcon.Response],
    cell: SnapshotCell,
    options: Callable[[], VerbOptions],
    metrics: Metrics,
    answered: LastAnswers,
    assumed: AssumedPods,
    link: ClusterLink | None,
) -> None:
    """Add the routes of kube-scheduler's verbs, with all who are told of answers."""
    memo = FilterMemo(cell)
    filter_listeners: list[FilterListener] = [
        memo.filtered,
        assumed.filtered,
        metrics.filtered,
    ]
    if link is not None:
        filter_listeners.append(CountMismatches(link.relist).filtered)
    filter_listeners.append(answered.filtered)
    if link is not None and link.waker is not None:
        filter_listeners.append(link.waker.filtered)
    prioritize_listeners = (
        assumed.prioritized,
        metrics.prioritized,
        answered.prioritized,
    )
    snapshot_wait = None if link is None else link.snapshot_wait
    app.add_route(
        FILTER_PATH,
        FilterResource(cell, options, snapshot_wait, assumed, filter_listeners),
    )
    app.add_route(
        PRIORITIZE_PATH,
        PrioritizeResource(cell, options, memo, assumed, prioritize_listeners),
    )
    app.add_route(PREEMPT_PATH, PreemptResource(cell, options, [metrics.preempted]))


def _add_probes(
    app: falcon.App[falcon.Request, falcon.Response], health: Health, liveness: Liveness
) -> None:
    """Add the routes of the kubelet's probes, and of those beside kube-scheduler."""
    app.add_route("/healthz", HealthResource())
    app.add_route("/readyz", ReadinessResource(health.not_ready_reasons))
    app.add_route(
        "/readyz/extender", ReadinessResource(health.extender_not_ready_reasons)
    )
    app.add_route("/livez/extender", ReadinessResource(liveness.not_ready_reasons))
