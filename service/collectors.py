"""Metrics of the cache and of the listeners that are read when they are scraped."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import prometheus_client
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cluster.ledger.writer import NotSyncedError, SnapshotSource
from scoring.protocols import NodeFacts
from scoring.resources import Request
from scoring.snapshot import BoolArray, Snapshot
from scoring.topology.devices import CONTRADICTED
from service.certificates.files import ServedCertificate
from service.doctor.offers import MAX_TOLD, OfferWatch
from service.http.middleware import Slots
from service.http.pages import unit_of

# Names of nodes in one metric.
MAX_FAILING: Final = 50

# Types with a resource and a pool in one metric.
MAX_KINDS: Final = 200

STATES: Final = ("allocatable", "requested", "free", "stranded")


class ClusterCollector(Collector):
    """Reads what is so for the whole cluster when it is scraped.

    Parameters
    ----------
    is_speaker : callable
        Whether this replica is the one that tells it; the others have no series.
    clock : callable
        Returns the API server's time in seconds since 1970.
    requests : callable
        Returns what pods ask for these days: free GPUs that serve none are stranded.
    pool_labels : sequence of str
        Labels that name a node's pool; the first that a node has counts.
    count_pending : callable
        Returns how many pods of a snapshot are pending, by class of reasons.
    """

    def __init__(  # noqa: PLR0913 - the last one is named
        self,
        source: SnapshotSource,
        is_speaker: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.time,
        requests: Callable[[], Sequence[Request]] = tuple,
        pool_labels: Sequence[str] = (),
        *,
        count_pending: Callable[[Snapshot], Mapping[str, int]] = lambda _: {},
    ) -> None:
        self._source = source
        self._is_speaker = is_speaker
        self._clock = clock
        self._requests = requests
        self._pool_labels = pool_labels
        self._count_pending = count_pending

    def collect(self) -> list[Metric]:
        """Return the gauges of this moment."""
        families = [
            GaugeMetricFamily(name, text) for name, text in CLUSTER_GAUGES.items()
        ]
        named = GaugeMetricFamily(
            "gpu_extender_node_failing",
            "1 for a node that counts as failing.",
            labels=["node"],
        )
        gpus = GaugeMetricFamily(
            "gpu_extender_gpus",
            "GPUs, shares and slices of them, by type, resource and pool of nodes.",
            labels=["type", "resource", "pool", "state"],
        )
        pending = GaugeMetricFamily(
            "gpu_extender_pending_gpu_pods",
            "Pods that ask for a managed resource and have no node, by what keeps them"
            " from one.",
            labels=["class"],
        )
        if self._is_speaker():
            values: tuple[float, ...] = (0,) * len(families)
            with contextlib.suppress(NotSyncedError):
                snapshot = self._source.current()
                values = _count_whole_cluster(snapshot, self._clock())
                pools = [_pool_of(node, self._pool_labels) for node in snapshot.facts]
                for labels, amount in _sum_gpus(snapshot, pools, self._requests()):
                    gpus.add_metric(labels, amount)
                for name in sorted(snapshot.failing_nodes)[:MAX_FAILING]:
                    named.add_metric([name], 1)
                for name, count in self._count_pending(snapshot).items():
                    pending.add_metric([name], count)
            for family, value in zip(families, values, strict=True):
                family.add_metric([], value)
        return [*families, named, gpus, pending]


# metric -> its text
CLUSTER_GAUGES: Final = {
    "gpu_extender_failing_nodes": (
        "Nodes that score 0 because pods of several owners failed on them."
    ),
    "gpu_extender_unreadable_pending_pods": (
        "Pending pods with an annotation on GPU types that cannot be read."
    ),
    "gpu_extender_unreadable_gpu_memory_nodes": (
        "Nodes with a label that states less memory than any GPU has."
    ),
    "gpu_extender_unreadable_link_nodes": (
        "Nodes whose annotation about links counts for nothing."
    ),
    "gpu_extender_unreadable_device_nodes": (
        "Nodes whose pods' annotations about their GPUs contradict the node."
    ),
    "gpu_extender_oldest_pending_gpu_pod_seconds": (
        "Time since the oldest pod was created that asks for a managed resource and has"
        " no node; gated ones left out, 0 without one."
    ),
}


def _count_whole_cluster(snapshot: Snapshot, now: float) -> tuple[float, ...]:
    """Return the values of `CLUSTER_GAUGES`, in their order; `now` since 1970."""
    created = [pod.created for pod in snapshot.pending if not pod.is_gated]
    is_unread = [gpus.is_memory_unread for gpus in snapshot.gpus.kinds]
    return (
        int(np.count_nonzero(snapshot.failing)),
        sum(not pod.gpu_requirements.is_readable for pod in snapshot.pending),
        int(np.count_nonzero(np.array(is_unread)[snapshot.gpus.codes])),
        sum(bool(node.links.fault) for node in snapshot.facts),
        int(np.count_nonzero(snapshot.gpus.free_sets == CONTRADICTED)),
        max(now - min(created, default=now), 0.0),
    )


def _pool_of(node: NodeFacts, labels: Sequence[str]) -> str:
    """Return the name of a node's pool, empty if nothing names it."""
    return next((node.labels[key] for key in labels if key in node.labels), "")


def _sum_gpus(
    snapshot: Snapshot, pools: Sequence[str], requests: Sequence[Request]
) -> list[tuple[tuple[str, str, str, str], int]]:
    """Return type, resource, pool and state of GPUs with their number.

    What is free, or stranded, counts on nodes only that are ready, not cordoned and
    without a fault.
    """
    codes, kinds = snapshot.gpus.codes, snapshot.gpus.kinds
    is_usable = snapshot.schedulable & ~snapshot.faulted
    numbers = {name: number for number, name in enumerate(dict.fromkeys(pools))}
    pool_codes = np.array([numbers[name] for name in pools], dtype=np.int64)
    names = list(numbers)
    sums: dict[tuple[str, str, str], list[int]] = {}
    for row, resource in enumerate(snapshot.resources):
        offered = snapshot.allocatable[row]
        asked = snapshot.requested[row]
        is_there = (offered > 0) | (asked > 0)
        if not any(
            unit_of(resource, kinds[code]) for code in np.unique(codes[is_there])
        ):
            continue
        free = np.where(is_usable, np.maximum(offered - asked, 0), 0)
        stranded = np.where(_serves_any(snapshot, resource, requests), 0, free)
        pairs = np.unique(np.stack([codes, pool_codes])[:, is_there], axis=1)
        for code, pool in pairs.T.tolist():
            if not unit_of(resource, kinds[code]):
                continue
            here = (codes == code) & (pool_codes == pool)
            key = (kinds[code].model, resource, names[pool])
            total = sums.setdefault(key, [0] * len(STATES))
            for index, amounts in enumerate((offered, asked, free, stranded)):
                total[index] += int(amounts[here].sum())
    return [
        ((*key, state), amount)
        for key, total in sorted(sums.items())[:MAX_KINDS]
        for state, amount in zip(STATES, total, strict=True)
    ]


def _serves_any(
    snapshot: Snapshot, resource: str, requests: Sequence[Request]
) -> BoolArray:
    """Return where one of the requests for a resource fits, bool of shape (N,).

    Everywhere if none asks for it: then nothing is known to be in its way.
    """
    rows = {name: row for row, name in enumerate(snapshot.resources)}
    asking = [asked for asked in requests if any(name == resource for name, _ in asked)]
    serves = np.full(len(snapshot.nodes.names), not asking)
    for asked in asking:
        fits = np.ones(len(serves), dtype=np.bool_)
        for name, amount in asked:
            row = rows.get(name)
            if row is None:
                fits[:] = False
                break
            free = snapshot.allocatable[row] - snapshot.requested[row]
            fits &= free >= amount
        serves |= fits
    return serves


class CacheCollector(Collector):
    """Reads the cache when it is scraped, so that nobody need keep gauges fresh.

    Parameters
    ----------
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
        generation = 0
        with contextlib.suppress(NotSyncedError):
            generation = self._source.current().generation
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


class WatchMetrics:
    """Counts what happens to lists and watches; reflectors' threads call it."""

    def __init__(self, registry: prometheus_client.CollectorRegistry) -> None:
        self._lists = prometheus_client.Counter(
            "gpu_extender_cache_lists",
            "Complete lists handed to the ledger.",
            ["kind"],
            registry=registry,
        )
        self._events = prometheus_client.Counter(
            "gpu_extender_cache_watch_events",
            "Watch events received.",
            ["kind", "type"],
            registry=registry,
        )
        self._faults = prometheus_client.Counter(
            "gpu_extender_cache_decode_faults",
            "Objects of which at least a part did not decode.",
            ["kind"],
            registry=registry,
        )
        self._restarts = prometheus_client.Counter(
            "gpu_extender_cache_watch_restarts",
            "Lists and watches that ended and were taken up again.",
            ["kind", "reason"],
            registry=registry,
        )

    def listed(self, kind: str, count: int) -> None:
        """Note that a complete list of so many objects was handed on."""
        del count  # the gauge of objects says it
        self._lists.labels(kind).inc()

    def events(self, kind: str, event_type: str, count: int) -> None:
        """Note events of one type."""
        self._events.labels(kind, event_type).inc(count)

    def decode_fault(self, kind: str) -> None:
        """Note an object of which at least a part did not decode."""
        self._faults.labels(kind).inc()

    def watch_restarted(self, kind: str, reason: str) -> None:
        """Note that a list or watch ended, and why; it is taken up again."""
        self._restarts.labels(kind, reason).inc()


class FaceCollector(Collector):
    """Reads what the faces do, and until when the certificate is valid.

    Parameters
    ----------
    slots : mapping
        face -> its slots
    """

    def __init__(
        self, slots: Mapping[str, Slots], certificate: ServedCertificate | None
    ) -> None:
        self._slots = slots
        self._certificate = certificate

    def collect(self) -> list[Metric]:
        """Return the gauges of this moment."""
        in_flight = GaugeMetricFamily(
            "gpu_extender_requests_in_flight",
            "Requests that are being worked on.",
            labels=["face"],
        )
        for face, slots in self._slots.items():
            in_flight.add_metric([face], slots.count)
        expiry = GaugeMetricFamily(
            "gpu_extender_certificate_expiry_timestamp_seconds",
            "When the certificate in use expires, in seconds since 1970.",
        )
        if self._certificate is not None:
            ends_seconds = self._certificate.ends_seconds
            if ends_seconds is not None:
                expiry.add_metric([], ends_seconds)
        return [in_flight, expiry]


class OfferCollector(Collector):
    """Reads which resources nodes offer that kube-scheduler is not told to send."""

    def __init__(self, offers: OfferWatch) -> None:
        self._offers = offers

    def collect(self) -> list[Metric]:
        """Return one series for each, none where all is well or nothing known."""
        family = GaugeMetricFamily(
            "gpu_extender_unsent_resources",
            "1 for a resource that nodes offer and kube-scheduler's file lacks.",
            labels=["resource"],
        )
        for name in self._offers.lacking[:MAX_TOLD]:
            family.add_metric([name], 1)
        return [family]
