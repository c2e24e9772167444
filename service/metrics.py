"""Metrics on a registry of their own, and the methods that update them.

Labels have few, known values; their children are made once and kept.
"""

import platform
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from typing import Final

import numpy as np
import prometheus_client
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from extender.events.writer import OUTCOMES as EVENT_OUTCOMES
from extender.tracking.deferred import DeferredMetrics
from extender.verbs.call import FilterOutcome, PrioritizeOutcome
from extender.verbs.preempt import Preemption
from extender.wakeup.waker import OUTCOMES as WAKE_OUTCOMES
from injector.steps import AdmissionOutcome, AdmissionReason
from scoring.feasibility import REASONS, Feasibility, Verdict

DURATION_BUCKETS: Final = (
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
)  # fmt: skip

# A creation is told in whole seconds.
WAIT_BUCKETS: Final = (
    1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 4 * 3600, 24 * 3600,
)  # fmt: skip

CANDIDATE_BUCKETS: Final = (
    0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000,
)  # fmt: skip

VERBS: Final = ("filter", "prioritize", "preempt", "mutate")

FACES: Final = ("extender", "webhook", "cluster")

OUTCOMES: Final = ("ok", "bad_request", "unavailable", "late", "error")


def outcome_of_status(status: str) -> str:
    """Return the outcome label of an HTTP status line such as ``"400 Bad Request"``."""
    if status.startswith("503"):
        return "unavailable"
    if status.startswith("504"):
        return "late"
    return {"2": "ok", "4": "bad_request"}.get(status[:1], "error")


class _FlushCollector(Collector):
    """Flushes deferred counts whenever metrics are read; has none of its own."""

    def __init__(self, deferred: DeferredMetrics) -> None:
        self._deferred = deferred

    def describe(self) -> Iterable[Metric]:
        """Return no metric; without this, registering would flush."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Flush."""
        self._deferred.flush()
        return ()


class Metrics:
    """All metrics of one process; any thread may call it.

    What each call of a verb adds is counted a moment later, see `deferred`, or as soon
    as somebody reads the registry.
    """

    def __init__(self) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        self.deferred = DeferredMetrics(lambda count, *values: count(*values))
        # Collected first: what is read after it is up to date.
        self.registry.register(_FlushCollector(self.deferred))
        self._build_requests()
        self._build_verbs()
        self._build_webhook()
        self._build_process()

    def _counter(
        self, name: str, text: str, labels: Sequence[str] = ()
    ) -> prometheus_client.Counter:
        """Return a new counter."""
        return prometheus_client.Counter(name, text, labels, registry=self.registry)

    def _build_requests(self) -> None:
        """Build what is counted of all calls."""
        duration = prometheus_client.Histogram(
            "gpu_extender_request_duration_seconds",
            "Time from a request's arrival to its answer.",
            ["verb"],
            buckets=DURATION_BUCKETS,
            registry=self.registry,
        )
        requests = self._counter(
            "gpu_extender_requests", "Requests answered.", ["verb", "outcome"]
        )
        self._durations = {verb: duration.labels(verb) for verb in VERBS}
        self._requests = {
            (verb, outcome): requests.labels(verb, outcome)
            for verb in VERBS
            for outcome in OUTCOMES
        }

    def _build_verbs(self) -> None:
        """Build what is counted of kube-scheduler's calls, and of wake-ups."""
        candidates = prometheus_client.Histogram(
            "gpu_extender_scheduler_candidates",
            "Nodes that a call asked about (in), and that passed, were scored or stayed"
            " (out).",
            ["verb", "stage"],
            buckets=CANDIDATE_BUCKETS,
            registry=self.registry,
        )
        rejections = self._counter(
            "gpu_extender_scheduler_rejections",
            "Nodes refused by a filter call.",
            ["reason"],
        )
        self._count_mismatches = self._counter(
            "gpu_extender_scheduler_count_disagreements",
            "Nodes passed on kube-scheduler's count where our own is lower.",
        )
        self._claimed = self._counter(
            "gpu_extender_scheduler_device_class_passes",
            "Nodes passed whose resource only a DeviceClass carries: nothing is known"
            " of their amounts, and their score is neutral.",
        )
        self._uncalled = self._counter(
            "gpu_extender_uncalled_bindings",
            "Pods that were bound without a filter call to us, by managed resource.",
            ["resource"],
        )
        self._waits = prometheus_client.Histogram(
            "gpu_extender_pod_wait_seconds",
            "Time from a GPU pod's creation to its binding.",
            buckets=WAIT_BUCKETS,
            registry=self.registry,
        )
        wake_ups = self._counter(
            "gpu_extender_wake_ups",
            "Unschedulable pods that were to be woken, by what became of the patch.",
            ["outcome"],
        )
        events = self._counter(
            "gpu_extender_events",
            "Events that were to be written, by what became of them.",
            ["outcome"],
        )
        self._events = {outcome: events.labels(outcome) for outcome in EVENT_OUTCOMES}
        self._filter_in = candidates.labels("filter", "in")
        self._filter_out = candidates.labels("filter", "out")
        self._prioritize_in = candidates.labels("prioritize", "in")
        self._prioritize_out = candidates.labels("prioritize", "out")
        self._preempt_in = candidates.labels("preempt", "in")
        self._preempt_out = candidates.labels("preempt", "out")
        self._rejections = {
            verdict: rejections.labels(reason.text)
            for verdict, reason in REASONS.items()
        }
        self._wake_ups = {
            outcome: wake_ups.labels(outcome) for outcome in WAKE_OUTCOMES
        }

    def _build_webhook(self) -> None:
        """Build what is counted of reviews."""
        self._admissions = self._counter(
            "gpu_extender_webhook_admissions",
            "Admission requests, by what was done and why.",
            ["outcome", "reason"],
        )
        self._fallbacks = self._counter(
            "gpu_extender_webhook_fallbacks",
            "Pods that the fallback step has seen, by what became of them.",
            ["outcome"],
        )
        self._alone = self._counter(
            "gpu_extender_webhook_decided_alone",
            "Fallbacks chosen by a replica that does not hold the lease.",
        )
        self._holds = prometheus_client.Gauge(
            "gpu_extender_webhook_holds",
            "Admitted pods whose chain was weighed and that are not seen yet.",
            registry=self.registry,
        )

    def _build_process(self) -> None:
        """Build what is counted of the process itself."""
        prometheus_client.ProcessCollector(registry=self.registry)
        build = prometheus_client.Gauge(
            "gpu_extender_build_info",
            "1, with the version of the program and of its Python.",
            ["version", "python"],
            registry=self.registry,
        )
        build.labels(version("gpu-extender"), platform.python_version()).set(1)
        refused = self._counter(
            "gpu_extender_requests_refused",
            "Requests answered 503 at once: the face works on as many as it may.",
            ["face"],
        )
        self._lease_held = prometheus_client.Gauge(
            "gpu_extender_lease_held",
            "1 while this replica holds the lease, by which one answers for all.",
            registry=self.registry,
        )
        self._reloads = prometheus_client.Gauge(
            "gpu_extender_config_reload_ok",
            "1 if the newest contents of a watched file are in use, 0 if they are"
            " faulty and the last good ones are.",
            ["file"],
            registry=self.registry,
        )
        self._ledger_errors = self._counter(
            "gpu_extender_cache_apply_errors",
            "Changes of the cluster that could not be applied: a fault of our own.",
        )
        self._refused = {face: refused.labels(face) for face in FACES}

    def request_answered(self, verb: str, status: str, seconds: float) -> None:
        """Count one request."""
        self.deferred.add(self._count_request, verb, status, seconds)

    def _count_request(self, verb: str, status: str, seconds: float) -> None:
        self._durations[verb].observe(seconds)
        self._requests[verb, outcome_of_status(status)].inc()

    def request_refused(self, face: str) -> None:
        """Count a request beyond what a face works on at a time."""
        self._refused[face].inc()

    def filtered(self, outcome: FilterOutcome) -> None:
        """Count the candidates of an answered filter call."""
        answered = len(outcome.answer.indexes)
        self.deferred.add(self._count_filtered, outcome.result, answered)
        if outcome.claimed_count:
            self._claimed.inc(outcome.claimed_count)

    def _count_filtered(self, result: Feasibility, answered: int) -> None:
        count = len(result.verdicts)
        refused = int(np.count_nonzero(result.verdicts))
        if refused:
            counts = np.bincount(result.verdicts, minlength=len(Verdict)).tolist()
            for verdict, child in self._rejections.items():
                if counts[verdict]:
                    child.inc(counts[verdict])
        self._filter_in.observe(count)
        self._filter_out.observe(answered)
        if result.count_mismatches:
            self._count_mismatches.inc(result.count_mismatches)

    def prioritized(self, outcome: PrioritizeOutcome) -> None:
        """Count the candidates of an answered prioritize call."""
        self.deferred.add(self._count_prioritized, len(outcome.priorities))

    def _count_prioritized(self, count: int) -> None:
        self._prioritize_in.observe(count)
        self._prioritize_out.observe(count)

    def bound_uncalled(self, resource: str) -> None:
        """Count a pod that was bound without a call about it."""
        self._uncalled.labels(resource).inc()

    def bound_after(self, seconds: float) -> None:
        """Count a GPU pod that got its node so long after its creation."""
        self._waits.observe(seconds)

    def preempted(self, preemption: Preemption) -> None:
        """Count the candidates of an answered preempt call."""
        result = preemption.result
        count = len(result.verdicts)
        self._preempt_in.observe(count)
        self._preempt_out.observe(count - int(np.count_nonzero(result.verdicts)))
        if result.count_mismatches:
            self._count_mismatches.inc(result.count_mismatches)

    def woke(self, outcome: str) -> None:
        """Count an unschedulable pod that was to be woken."""
        self._wake_ups[outcome].inc()

    def event_written(self, outcome: str) -> None:
        """Count an Event that was to be written."""
        self._events[outcome].inc()

    def observe_admission(
        self, outcome: AdmissionOutcome, reason: AdmissionReason
    ) -> None:
        """Count one admission request."""
        self._admissions.labels(outcome.value, reason.value).inc()

    def observe_fallback(self, outcome: str) -> None:
        """Count one pod that the fallback step has seen."""
        self._fallbacks.labels(outcome).inc()

    def read_holds(self, count: Callable[[], int]) -> None:
        """Have `count` say how many holds there are whenever somebody reads."""
        self._holds.set_function(count)

    def decided_alone(self) -> None:
        """Count one fallback that is chosen without holding the lease."""
        self._alone.inc()

    def read_lease(self, is_held: Callable[[], bool]) -> None:
        """Have `is_held` say whether the lease is held whenever somebody reads."""
        self._lease_held.set_function(lambda: float(is_held()))

    def reloaded(self, name: str, *, is_ok: bool) -> None:
        """Set whether the newest contents of the watched file `name` are in use."""
        self._reloads.labels(name).set(1 if is_ok else 0)

    def ledger_failed(self) -> None:
        """Count a change that could not be applied."""
        self._ledger_errors.inc()

    def render(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return prometheus_client.generate_latest(self.registry)
