import datetime as dt
import importlib.metadata
import platform
from dataclasses import replace
from functools import partial
from typing import Any, Final

import falcon
import falcon.testing
import numpy as np
import prometheus_client
import pytest

from cluster.ledger.writer import SnapshotCell
from extender.explain.pending import PendingClasses
from scoring.feasibility import Verdict
from scoring.protocols import FailingNode
from scoring.snapshot import Snapshot, read_only
from service.collectors import (
    CLUSTER_GAUGES,
    MAX_FAILING,
    CacheCollector,
    ClusterCollector,
    WatchMetrics,
)
from service.http.health import Health
from service.http.middleware import FACE_OF_PATH, FILTER_PATH, RequestMiddleware
from service.http.pages import MetricsResource
from service.http.waitress_channel import ARRIVED_KEY
from service.metrics import Metrics, outcome_of_status
from service.runtime import build_verb_options
from tests.builders import make_node, make_pod, make_snapshot
from tests.extender_app import make_settings
from tests.fakes.outcomes import make_filter_outcome, make_prioritize_outcome


def value_of(metrics: Metrics, name: str, **labels: str) -> float | None:
    """Return the value of one series, None if there is no such series."""
    return metrics.registry.get_sample_value(f"gpu_extender_{name}", labels)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ("200 OK", "ok"),
        ("400 Bad Request", "bad_request"),
        ("405 Method Not Allowed", "bad_request"),
        ("413 Content Too Large", "bad_request"),
        ("500 Internal Server Error", "error"),
        ("503 Service Unavailable", "unavailable"),
    ],
)
def test_a_status_has_an_outcome(status: str, outcome: str) -> None:
    assert outcome_of_status(status) == outcome


def test_series_are_there_before_anything_happens() -> None:
    metrics = Metrics()

    for verb in ("filter", "prioritize", "preempt", "mutate"):
        assert value_of(metrics, "request_duration_seconds_count", verb=verb) == 0
        for outcome in ("ok", "bad_request", "unavailable", "error"):
            assert value_of(metrics, "requests_total", verb=verb, outcome=outcome) == 0
    for face in FACE_OF_PATH.values():
        assert value_of(metrics, "requests_refused_total", face=face) == 0
    assert (
        value_of(
            metrics,
            "scheduler_rejections_total",
            reason="Insufficient GPUs",
        )
        == 0
    )


def test_a_filter_call_counts_candidates_and_reasons() -> None:
    metrics = Metrics()
    verdicts = [
        Verdict.FEASIBLE,
        Verdict.NO_GPU,
        Verdict.INSUFFICIENT,
        Verdict.INSUFFICIENT,
    ]

    metrics.filtered(
        make_filter_outcome(verdicts, mismatched=[True, True, True, False])
    )
    metrics.filtered(make_filter_outcome([Verdict.FEASIBLE, Verdict.FEASIBLE]))

    assert value_of(metrics, "scheduler_candidates_sum", verb="filter", stage="in") == 6
    assert (
        value_of(metrics, "scheduler_candidates_sum", verb="filter", stage="out") == 3
    )
    assert (
        value_of(
            metrics,
            "scheduler_candidates_count",
            verb="filter",
            stage="out",
        )
        == 2
    )
    assert (
        value_of(metrics, "scheduler_rejections_total", reason="Node has no GPU") == 1
    )
    assert (
        value_of(
            metrics,
            "scheduler_rejections_total",
            reason="Insufficient GPUs",
        )
        == 2
    )
    assert (
        value_of(
            metrics,
            "scheduler_rejections_total",
            reason="GPUs are not ready",
        )
        == 0
    )
    assert value_of(metrics, "scheduler_count_disagreements_total") == 3


def test_a_prioritize_call_counts_candidates() -> None:
    metrics = Metrics()

    metrics.prioritized(make_prioritize_outcome(list("abcdefg"), [0] * 7))

    assert (
        value_of(
            metrics,
            "scheduler_candidates_sum",
            verb="prioritize",
            stage="in",
        )
        == 7
    )
    assert (
        value_of(
            metrics,
            "scheduler_candidates_sum",
            verb="prioritize",
            stage="out",
        )
        == 7
    )


def test_reloads_and_faults_of_our_own_are_shown() -> None:
    metrics = Metrics()

    metrics.reloaded("cluster", is_ok=True)
    metrics.reloaded("rules", is_ok=False)
    metrics.ledger_failed()

    assert value_of(metrics, "config_reload_ok", file="cluster") == 1
    assert value_of(metrics, "config_reload_ok", file="rules") == 0
    assert value_of(metrics, "cache_apply_errors_total") == 1


def test_nodes_that_pass_by_a_device_class_are_counted() -> None:
    metrics = Metrics()

    before = value_of(metrics, "scheduler_device_class_passes_total")
    metrics.filtered(make_filter_outcome([Verdict.FEASIBLE] * 3, claimed_count=3))

    assert before == 0
    assert value_of(metrics, "scheduler_device_class_passes_total") == 3


def cache_metrics(*, is_synced: bool, failing: tuple[bool, ...] = ()) -> Metrics:
    """Return metrics of a cache."""
    metrics, cell = Metrics(), SnapshotCell()
    if is_synced:
        nodes = [make_node(name=str(number)) for number in range(len(failing))]
        cell.publish(
            replace(make_snapshot(nodes=nodes), failing=read_only(np.array(failing)))
            if failing
            else make_snapshot()
        )
    metrics.registry.register(
        CacheCollector(cell, lambda: {"pods": 1.5}, lambda: {"nodes": 3})
    )
    metrics.registry.register(ClusterCollector(cell))
    return metrics


def test_the_cache_is_read_when_scraped() -> None:
    metrics = cache_metrics(is_synced=True)

    assert value_of(metrics, "cache_synced") == 1
    assert value_of(metrics, "cache_snapshot_generation") == 1
    assert value_of(metrics, "cache_objects", kind="nodes") == 3
    age = value_of(metrics, "cache_snapshot_age_seconds", kind="pods")
    assert age == 1.5


def test_failing_nodes_are_shown() -> None:
    metrics = cache_metrics(is_synced=True, failing=(True, False, True))

    assert value_of(metrics, "failing_nodes") == 2


@pytest.mark.parametrize(
    ("is_speaker", "count", "named"),
    [(True, 2, 2), (False, 2, 0), (True, MAX_FAILING + 3, MAX_FAILING)],
)
def test_one_replica_names_failing_nodes_but_not_too_many(
    is_speaker: bool, count: int, named: int
) -> None:
    names = [f"node-{number}" for number in range(count)]
    failing = {name: FailingNode(0.0, ("ml/a", "ml/b")) for name in names}
    snapshot = make_snapshot(nodes=[make_node(name=name) for name in names])
    metrics, cell = Metrics(), SnapshotCell()
    cell.publish(replace(snapshot, failing_nodes=failing))
    metrics.registry.register(ClusterCollector(cell, lambda: is_speaker))

    found = metrics.render().decode().count("\ngpu_extender_node_failing{")
    assert found == named


def test_pending_pods_are_judged_by_the_replica_that_tells_it_alone() -> None:
    cell, counted = SnapshotCell(), list[int]()
    cell.publish(make_snapshot())

    def count(snapshot: Snapshot) -> dict[str, int]:
        counted.append(snapshot.generation)
        return {"full": 3}

    for is_speaker, shown in ((False, None), (True, 3)):
        metrics = Metrics()
        collector = ClusterCollector(
            cell, partial(bool, is_speaker), count_pending=count
        )
        metrics.registry.register(collector)
        assert value_of(metrics, "pending_gpu_pods", **{"class": "full"}) == shown
    assert len(counted) == 1


@pytest.mark.parametrize("is_synced", [False, True])
def test_what_is_so_for_the_whole_cluster_is_told_by_one_replica(
    is_synced: bool,
) -> None:
    cell = SnapshotCell()
    if is_synced:
        cell.publish(make_snapshot(nodes=[make_node(gpus=1)]))
    shown = []
    for is_speaker in (True, False):
        metrics = Metrics()
        metrics.registry.register(ClusterCollector(cell, partial(bool, is_speaker)))
        lines = metrics.render().decode().splitlines()
        shown.append({line.split()[0] for line in lines}.intersection(CLUSTER_GAUGES))

    assert shown == [set(CLUSTER_GAUGES), set()]


def test_gpus_and_pending_pods_of_the_whole_cluster_are_shown() -> None:
    label = {"nvidia.com/gpu.product": "Tesla-T4"}
    slices = {"nvidia.com/mig-1g.10gb": "7"}
    nodes = [
        make_node(name="a", gpus=8, labels=label),
        make_node(name="b", gpus=4, labels=label, is_cordoned=True),
        make_node(name="c", labels={}, resources=slices),
    ]
    old, young = make_pod(name="old", gpus=1), make_pod(name="young", gpus=1)
    old["metadata"]["creationTimestamp"] = "2026-11-28T10:00:00Z"
    young["metadata"]["creationTimestamp"] = "2026-11-28T10:30:00Z"
    pods = [old, young, make_pod(name="runs", gpus=3, node_name="a")]
    metrics, cell = Metrics(), SnapshotCell()
    cell.publish(make_snapshot(nodes=nodes, pods=pods))
    now = dt.datetime(2026, 11, 28, 11, tzinfo=dt.UTC).timestamp()
    options = build_verb_options(make_settings())
    classes = PendingClasses(lambda: options)
    metrics.registry.register(
        ClusterCollector(cell, lambda: True, lambda: now, count_pending=classes.count)
    )

    def count(model: str, resource: str) -> list[float | None]:
        return [
            value_of(
                metrics, "gpus", type=model, resource=resource, pool="", state=state
            )
            for state in ("allocatable", "requested", "free")
        ]

    assert count("T4", "nvidia.com/gpu") == [12, 3, 5]
    assert count("", "nvidia.com/mig-1g.10gb") == [7, 0, 7]
    assert count("", "cpu") == [None, None, None]
    assert value_of(metrics, "pending_gpu_pods", **{"class": "fits"}) == 2
    assert value_of(metrics, "pending_gpu_pods", **{"class": "full"}) == 0
    assert value_of(metrics, "oldest_pending_gpu_pod_seconds") == 3600


def test_gpus_are_told_by_pool_of_nodes() -> None:
    nodes = [
        make_node(name="a", gpus=8, labels={"x/pool": "one", "y/pool": "other"}),
        make_node(name="b", gpus=4, labels={"y/pool": "two"}),
        make_node(name="c", gpus=2, labels={"y/pool": "two"}),
        make_node(name="d", gpus=1, labels={}),
    ]
    metrics, cell = Metrics(), SnapshotCell()
    cell.publish(make_snapshot(nodes=nodes))
    collector = ClusterCollector(cell, pool_labels=("x/pool", "y/pool"))
    metrics.registry.register(collector)

    gpus = {"type": "", "resource": "nvidia.com/gpu", "state": "allocatable"}
    counts = [
        value_of(metrics, "gpus", pool=pool, **gpus) for pool in ("one", "two", "")
    ]
    assert counts == [8, 6, 1]


STRANDED: Final = {
    "nobody asks": ([], 0),
    "too few together": ([{"nvidia.com/gpu": 4}], 4),
    "one asks less": ([{"nvidia.com/gpu": 4}, {"nvidia.com/gpu": 2}], 1),
    "no cpu beside them": ([{"nvidia.com/gpu": 1, "cpu": 5000}], 4),
    "no room for a pod": ([{"nvidia.com/gpu": 1, "pods": 2}], 1),
    "what no node offers": ([{"nvidia.com/gpu": 1, "x.io/nic": 1}], 8),
    "another resource": ([{"amd.com/gpu": 1}], 0),
}


@pytest.mark.parametrize(
    ("requests", "stranded"), STRANDED.values(), ids=list(STRANDED)
)
def test_free_gpus_that_no_request_of_late_can_use_are_stranded(
    requests: list[dict[str, int]], stranded: int
) -> None:
    def node(name: str, gpus: int, cpu: str, pods: int = 10) -> dict[str, Any]:
        resources = {"nvidia.com/gpu": str(gpus), "cpu": cpu, "pods": str(pods)}
        return make_node(name=name, resources=resources)

    nodes = [
        node("a", 3, "8"),
        node("b", 4, "4"),
        node("c", 1, "8", pods=1),
        make_node(name="d", gpus=3, is_cordoned=True),
    ]
    metrics, cell = Metrics(), SnapshotCell()
    cell.publish(make_snapshot(nodes=nodes))
    asked = [tuple(sorted(request.items())) for request in requests]
    metrics.registry.register(ClusterCollector(cell, requests=lambda: asked))

    gpus = {"type": "", "resource": "nvidia.com/gpu", "pool": ""}
    assert value_of(metrics, "gpus", state="free", **gpus) == 8
    assert value_of(metrics, "gpus", state="stranded", **gpus) == stranded


def test_nodes_whose_label_states_what_no_gpu_has_are_shown() -> None:
    memory = "nvidia.com/gpu.memory"
    nodes = [
        make_node(name=name, labels={"accelerator": "l4", memory: value})
        for name, value in {"a": "4", "b": "24", "c": "4", "d": "23034"}.items()
    ]
    metrics, cell = Metrics(), SnapshotCell()
    cell.publish(make_snapshot(nodes=nodes))
    metrics.registry.register(ClusterCollector(cell))

    assert value_of(metrics, "unreadable_gpu_memory_nodes") == 2


def test_nodes_whose_links_or_devices_cannot_be_told_are_shown() -> None:
    links, allocated = "gpu-extender.io/links", "gpu-extender.io/allocated"
    nodes = [
        make_node(name=name, gpus=2, annotations={links: text})
        for name, text in {
            "a": "[[",
            "b": '{"layout": "?"}',
            "c": "[[0,1],[1,0]]",
        }.items()
    ]
    pods = [
        make_pod(name="p", gpus=1, node_name="c", annotations={allocated: "7"}),
        make_pod(name="q", gpus=1, node_name="a", annotations={allocated: "7"}),
    ]
    metrics, cell = Metrics(), SnapshotCell()
    cell.publish(make_snapshot(nodes=nodes, pods=pods))
    metrics.registry.register(ClusterCollector(cell))

    assert value_of(metrics, "unreadable_link_nodes") == 2
    assert value_of(metrics, "unreadable_device_nodes") == 1


def test_an_unsynced_cache_has_generation_0() -> None:
    metrics = cache_metrics(is_synced=False)

    assert value_of(metrics, "cache_synced") == 0
    assert value_of(metrics, "cache_snapshot_generation") == 0
    assert value_of(metrics, "failing_nodes") == 0


def test_lists_and_watches_are_counted() -> None:
    metrics = Metrics()
    watch = WatchMetrics(metrics.registry)

    watch.listed("pods", 500)
    watch.events("pods", "ADDED", 4)
    watch.decode_fault("nodes")
    watch.watch_restarted("pods", "gone")

    assert value_of(metrics, "cache_lists_total", kind="pods") == 1
    assert value_of(metrics, "cache_watch_events_total", kind="pods", type="ADDED") == 4
    assert value_of(metrics, "cache_decode_faults_total", kind="nodes") == 1
    assert (
        value_of(
            metrics,
            "cache_watch_restarts_total",
            kind="pods",
            reason="gone",
        )
        == 1
    )


class FixedAnswer:
    """A resource that answers with one status."""

    def __init__(self, status: str) -> None:
        self._status = status

    def on_post(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """Answer."""
        resp.status = self._status


def test_requests_of_the_verbs_alone_are_timed() -> None:
    metrics = Metrics()
    health = Health(SnapshotCell(), dict, stale_after_seconds=1.0)
    app = falcon.App(middleware=[RequestMiddleware(metrics, health)])
    app.add_route(FILTER_PATH, FixedAnswer(falcon.HTTP_503))
    app.add_route("/other", FixedAnswer(falcon.HTTP_200))
    client = falcon.testing.TestClient(app)

    client.simulate_post(FILTER_PATH)
    client.simulate_get(FILTER_PATH)
    client.simulate_post("/other")

    assert (
        value_of(metrics, "requests_total", verb="filter", outcome="unavailable") == 1
    )
    assert (
        value_of(metrics, "requests_total", verb="filter", outcome="bad_request") == 1
    )
    assert value_of(metrics, "request_duration_seconds_count", verb="filter") == 2


def call_filter(middleware: RequestMiddleware, arrived: float) -> None:
    environ = falcon.testing.create_environ(FILTER_PATH, method="POST", body="{}")
    environ[ARRIVED_KEY] = arrived
    request, response = falcon.Request(environ), falcon.Response()
    middleware.process_request(request, response)
    middleware.process_response(request, response, None, _req_succeeded=True)


def test_slow_calls_are_logged_but_not_all_of_many(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [100.0]
    health = Health(SnapshotCell(), dict, stale_after_seconds=1.0)
    middleware = RequestMiddleware(
        Metrics(), health, slow_seconds=0.5, monotonic=lambda: now[0]
    )

    call_filter(middleware, 99.6)  # not slow
    for _ in range(3):
        call_filter(middleware, 99.0)
    now[0] = 101.0
    call_filter(middleware, 100.0)

    lines = [record.__dict__["fields"] for record in caplog.records]
    assert lines == [
        {
            "verb": "filter",
            "seconds": 1.0,
            "status": "200 OK",
            "body_bytes": 2,
            "others": others,
        }
        for others in (0, 2)
    ]


def test_the_version_and_the_process_are_shown() -> None:
    registry = Metrics().registry

    labels = {
        "version": importlib.metadata.version("gpu-extender"),
        "python": platform.python_version(),
    }
    assert registry.get_sample_value("gpu_extender_build_info", labels) == 1
    assert (registry.get_sample_value("process_resident_memory_bytes") or 0) > 2**20


def test_the_page_is_in_the_text_format_of_prometheus() -> None:
    app = falcon.App()
    app.add_route("/metrics", MetricsResource(Metrics()))

    answer = falcon.testing.TestClient(app).simulate_get("/metrics")

    assert answer.headers["content-type"] == prometheus_client.CONTENT_TYPE_LATEST
    assert "# TYPE gpu_extender_requests_total counter" in answer.text


def test_holds_are_counted_whenever_somebody_reads() -> None:
    metrics = Metrics()
    held = ["pod"]
    metrics.read_holds(lambda: len(held))

    held.append("another pod")

    assert value_of(metrics, "webhook_holds") == 2
