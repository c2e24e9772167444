"""Metric objects on a registry of their own, and who updates them.

Labels have few, known values; their children are made once and kept.
"""

import time
from collections.abc import Callable, Mapping
from typing import Final

import falcon
import prometheus_client
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cluster.cache import NotSyncedError, SnapshotSource
from scoring.feasibility import REASONS, Feasibility

DURATION_BUCKETS: Final = (
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
)  # fmt: skip
CANDIDATE_BUCKETS: Final = (
    0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000,
)  # fmt: skip
VERBS: Final = ("filter", "prioritize", "mutate")
OUTCOMES: Final = ("ok", "bad_request", "unavailable", "error")


def outcome_of(status: str) -> str:
    """Return the outcome label of an HTTP status line such as ``"400 Bad Request"``."""
    if status.startswith("503"):
        return "unavailable"
    return {"2": "ok", "4": "bad_request"}.get(status[:1], "error")


class Metrics:
    """All metrics of one process; any thread may call it."""

    def __init__(self) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        duration = prometheus_client.Histogram(
            "gpu_extender_request_duration_seconds",
            "Time from a request's arrival to its answer.",
            ["verb"],
            buckets=DURATION_BUCKETS,
            registry=self.registry,
        )
        requests = prometheus_client.Counter(
            "gpu_extender_requests",
            "Requests answered.",
            ["verb", "outcome"],
            registry=self.registry,
        )
        candidates = prometheus_client.Histogram(
            "gpu_extender_scheduler_candidates",
            "Nodes that a call asked about (in), and that passed or were scored (out).",
            ["verb", "stage"],
            buckets=CANDIDATE_BUCKETS,
            registry=self.registry,
        )
        rejections = prometheus_client.Counter(
            "gpu_extender_scheduler_rejections",
            "Nodes refused by a filter call.",
            ["reason"],
            registry=self.registry,
        )
        self._disagreements = prometheus_client.Counter(
            "gpu_extender_scheduler_count_disagreements",
            "Nodes passed on kube-scheduler's count where our own is lower.",
            registry=self.registry,
        )
        admissions = prometheus_client.Counter(
            "gpu_extender_webhook_admissions",
            "Pods reviewed, by what was done and why.",
            ["outcome", "reason"],
            registry=self.registry,
        )
        self._admissions = admissions
        self._reloads = prometheus_client.Gauge(
            "gpu_extender_config_reload_ok",
            "1 if the newest contents of a watched file are in use, 0 if they are"
            " faulty and the last good ones are.",
            ["file"],
            registry=self.registry,
        )
        self._ledger_errors = prometheus_client.Counter(
            "gpu_extender_cache_apply_errors",
            "Changes of the cluster that could not be applied: a fault of our own.",
            registry=self.registry,
        )
        self._durations = {verb: duration.labels(verb) for verb in VERBS}
        self._requests = {
            (verb, outcome): requests.labels(verb, outcome)
            for verb in VERBS
            for outcome in OUTCOMES
        }
        self._filter_in = candidates.labels("filter", "in")
        self._filter_out = candidates.labels("filter", "out")
        self._prioritize_in = candidates.labels("prioritize", "in")
        self._prioritize_out = candidates.labels("prioritize", "out")
        self._rejections = {
            verdict: rejections.labels(reason.text)
            for verdict, reason in REASONS.items()
        }

    def request_answered(self, verb: str, status: str, seconds: float) -> None:
        """Count one request."""
        self._durations[verb].observe(seconds)
        self._requests[verb, outcome_of(status)].inc()

    def filtered(self, result: Feasibility) -> None:
        """Count the candidates of an answered filter call."""
        count = len(result.verdicts)
        passed = count
        if result.verdicts.any():
            for verdict, child in self._rejections.items():
                refused = int((result.verdicts == verdict).sum())
                if refused:
                    child.inc(refused)
                    passed -= refused
        self._filter_in.observe(count)
        self._filter_out.observe(passed)
        if result.disagreements:
            self._disagreements.inc(result.disagreements)

    def prioritized(self, count: int) -> None:
        """Count the candidates of an answered prioritize call."""
        self._prioritize_in.observe(count)
        self._prioritize_out.observe(count)

    def admitted(self, outcome: str, reason: str) -> None:
        """Count one reviewed pod."""
        self._admissions.labels(outcome, reason).inc()

    def reloaded(self, name: str, *, is_ok: bool) -> None:
        """Say whether the newest contents of the watched file `name` are in use."""
        self._reloads.labels(name).set(1 if is_ok else 0)

    def ledger_failed(self) -> None:
        """Count a change that could not be applied."""
        self._ledger_errors.inc()

    def render(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return prometheus_client.generate_latest(self.registry)


class CacheCollector(Collector):
    """Reads the cache when it is scraped, so that nobody need keep gauges fresh.

    Parameters
    ----------
    source : SnapshotSource
    ages : callable
        Returns seconds since the last contact, by kind of object.
    counts : callable
        Returns the number of objects held, by kind.
    """

    def __init__(
        self,
        source: SnapshotSource,
        ages: Callable[[], Mapping[str, float]],
        counts: Callable[[], Mapping[str, int]],
    ) -> None:
        self._source = source
        self._ages = ages
        self._counts = counts

    def collect(self) -> list[Metric]:
        """Return the gauges of this moment."""
        try:
            generation = self._source.current().generation
        except NotSyncedError:
            generation = 0
        families: list[Metric] = [
            _gauge(
                "gpu_extender_cache_synced", "1 once all is counted.", generation > 0
            ),
            _gauge(
                "gpu_extender_cache_snapshot_generation",
                "Number of the newest snapshot; 0 before the first.",
                generation,
            ),
        ]
        objects = GaugeMetricFamily(
            "gpu_extender_cache_objects", "Objects held.", labels=["kind"]
        )
        for kind, count in self._counts().items():
            objects.add_metric([kind], count)
        ages = GaugeMetricFamily(
            "gpu_extender_cache_snapshot_age_seconds",
            "Time since the last contact with the source of these objects.",
            labels=["kind"],
        )
        for kind, age in self._ages().items():
            ages.add_metric([kind], age)
        return [*families, objects, ages]


def _gauge(name: str, text: str, value: float) -> Metric:
    family = GaugeMetricFamily(name, text)
    family.add_metric([], value)
    return family


class RequestTimer:
    """Falcon middleware that times the requests of the verbs."""

    def __init__(self, metrics: Metrics, verb_of_path: Mapping[str, str]) -> None:
        self._metrics = metrics
        self._verb_of_path = verb_of_path

    def process_request(self, req: falcon.Request, _resp: falcon.Response) -> None:
        """Note when the request came."""
        req.context.started = time.perf_counter()

    def process_response(
        self,
        req: falcon.Request,
        resp: falcon.Response,
        _resource: object,
        _req_succeeded: bool,
    ) -> None:
        """Count it, if it was for a verb."""
        verb = self._verb_of_path.get(req.path)
        if verb is not None:
            seconds = time.perf_counter() - req.context.started
            self._metrics.request_answered(verb, str(resp.status), seconds)


class MetricsResource:
    """``GET /metrics``: the text format of Prometheus."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """Answer with all metrics."""
        resp.content_type = prometheus_client.CONTENT_TYPE_LATEST
        resp.data = self._metrics.render()
