"""The page on metrics and the code name the same ones."""

import re
from pathlib import Path
from typing import Final

from cluster.ledger.writer import SnapshotCell
from extender.explain.pending import PendingClass
from scoring.resources import ResourceScope
from service.collectors import (
    CacheCollector,
    ClusterCollector,
    FaceCollector,
    OfferCollector,
    WatchMetrics,
)
from service.doctor.offers import OfferWatch
from service.metrics import Metrics

PAGE: Final = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_each_metric_is_on_the_page_with_its_type_and_labels() -> None:
    metrics = Metrics()
    WatchMetrics(metrics.registry)
    metrics.registry.register(CacheCollector(SnapshotCell(), dict, dict))
    metrics.registry.register(ClusterCollector(SnapshotCell()))
    metrics.registry.register(FaceCollector({}, None))
    offers = OfferWatch(SnapshotCell(), ResourceScope((), ()), None, lambda: 0)
    metrics.registry.register(OfferCollector(offers))
    rows = {
        name: (
            kind,
            frozenset(re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", labels))),
        )
        for name, kind, labels in re.findall(
            r"^\| `(\w+)` \| (\w+) \|([^|]*)\|", PAGE.read_text(), re.MULTILINE
        )
    }

    found = {
        family.name + ("_total" if family.type == "counter" else ""): family.type
        for family in metrics.registry.collect()
    }

    if "process_open_fds" not in found:  # it takes /proc
        rows = {name: row for name, row in rows.items() if "process_" not in name}
    assert {name: kind for name, (kind, _) in rows.items()} == found
    labels = {
        "gpu_extender_request_duration_seconds": {"verb"},
        "gpu_extender_requests_total": {"verb", "outcome"},
        "gpu_extender_requests_refused_total": {"face"},
        "gpu_extender_requests_in_flight": {"face"},
        "gpu_extender_scheduler_rejections_total": {"reason"},
        "gpu_extender_cache_watch_restarts_total": {"kind", "reason"},
        "gpu_extender_uncalled_bindings_total": {"resource"},
        "gpu_extender_unsent_resources": {"resource"},
        "gpu_extender_node_failing": {"node"},
        "gpu_extender_pending_gpu_pods": {"class"},
    }
    assert {name: set(rows[name][1]) for name in labels} == labels


def test_each_class_of_pending_pods_is_on_the_page() -> None:
    _, _, rows = PAGE.read_text().partition("| `class` of pending pods |")
    rows, _, _ = rows.partition("\n\n")

    assert re.findall(r"^\| `(\w+)` \|", rows, re.MULTILINE) == list(PendingClass)
