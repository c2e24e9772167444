"""``/cluster``, ``/metrics`` and ``/doctor``: what is known, done and amiss."""

import time
from collections.abc import Callable
from typing import Any, Final

import falcon
import msgspec
import prometheus_client

from cluster.ledger.writer import SnapshotSource
from extender.explain.http import refuse_unknown_parameters, unknown_node
from extender.wire.fields import DECODE_ERRORS, decode_message
from extender.wire.filter import WireError
from scoring.faults import Fault
from scoring.gpu.node_gpus import NodeGpus
from scoring.resources import is_part, is_whole_gpu
from scoring.snapshot import Snapshot
from service.doctor.callers_view import SentObjects, with_sent
from service.doctor.scheduler import SchedulerConfigError
from service.doctor.self_check import SelfCheck
from service.metrics import Metrics

DEFAULT_LIMIT: Final = 500

MAX_LIMIT: Final = 5000


class ClusterResource:
    """``GET /cluster``: nodes with their amounts, in pages.

    Query parameters: ``limit``, ``continue`` (the last name of the page before),
    ``name`` (one node), ``resource`` (nodes that offer it).

    Parameters
    ----------
    age_seconds : callable
        Returns the time since the last contact with the cluster.
    """

    def __init__(
        self,
        source: SnapshotSource,
        age_seconds: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._source = source
        self._age_seconds = age_seconds

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer with one page."""
        refuse_unknown_parameters(req, ("limit", "continue", "name", "resource"))
        snapshot = self._source.current()
        name = req.get_param("name")
        if name is not None and name not in snapshot.nodes.column_of:
            raise unknown_node(name)
        limit = req.get_param_as_int(
            "limit", min_value=1, max_value=MAX_LIMIT, default=DEFAULT_LIMIT
        )
        after = req.get_param("continue", default="")
        chosen = sorted(_choose(snapshot, name, req.get_param("resource")))
        rest = [(name, column) for name, column in chosen if name > after]
        page = rest[:limit]
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(
            {
                "generation": snapshot.generation,
                "nodeCount": len(snapshot.nodes.names),
                "pendingPods": len(snapshot.pending),
                "failingNodes": sorted(snapshot.failing_nodes),
                "ageSeconds": self._age_seconds(),
                "nodes": [describe_node(snapshot, column) for _, column in page],
                "continue": page[-1][0] if len(rest) > len(page) else None,
            }
        )


def _choose(
    snapshot: Snapshot, name: str | None, resource: str | None
) -> list[tuple[str, int]]:
    """Return name and column of each node that the query is about."""
    row = None if resource is None else snapshot.row_of(resource)
    if resource is not None and row is None:
        return []
    return [
        (node, column)
        for node, column in snapshot.nodes.column_of.items()
        if (name is None or node == name)
        and (row is None or snapshot.offered[row, column])
    ]


def describe_node(snapshot: Snapshot, column: int) -> dict[str, Any]:
    """Return one node as plain values; amounts in base units."""
    amounts: dict[str, dict[str, Any]] = {}
    gpus = snapshot.gpus.kinds[snapshot.gpus.codes[column]]
    for row, resource in enumerate(snapshot.resources):
        allocatable = int(snapshot.allocatable[row, column])
        requested = int(snapshot.requested[row, column])
        if snapshot.offered[row, column] or requested:
            amounts[resource] = {
                "allocatable": allocatable,
                "requested": requested,
                "free": max(allocatable - requested, 0),
            }
            unit = unit_of(resource, gpus)
            if unit:
                amounts[resource]["unit"] = unit
    return {
        "name": snapshot.nodes.names[column],
        "type": gpus.model,
        "schedulable": bool(snapshot.schedulable[column]),
        "gpusReady": not snapshot.faulted[column],
        "failing": bool(snapshot.failing[column]),
        "gpuPods": int(snapshot.gpus.gpu_pods[column]),
        "resources": amounts,
    }


def unit_of(resource: str, gpus: NodeGpus) -> str:
    """Return what one of `resource` is on a node; empty where it is no GPU.

    >>> unit_of("nvidia.com/gpu", NodeGpus(is_shared=True, replicas=4))
    'share'
    >>> unit_of("nvidia.com/mig-1g.10gb", NodeGpus()), unit_of("cpu", NodeGpus())
    ('slice', '')
    """
    is_whole = is_whole_gpu(resource)
    if resource.endswith(".shared") or (is_whole and gpus.is_shared):
        return "share"
    if "/mig-" in resource or (is_whole and gpus.profile):
        return "slice"
    if is_part(resource) or (is_whole and gpus.is_part):
        return "part"
    return "gpu" if is_whole else ""


class MetricsResource:
    """``GET /metrics``: the text format of Prometheus."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """Answer with all metrics."""
        resp.content_type = prometheus_client.CONTENT_TYPE_LATEST
        resp.data = self._metrics.render()


class DoctorResource:
    """``GET /doctor``: findings, what was not checked, and the facts behind, as JSON.

    ``POST`` adds what objects show that the caller has read: see `SentObjects`. The
    only requests that wait for the API server: `self_check.ASK_SECONDS` for all
    rights, and five seconds for each of a few other questions, at most.
    """

    def __init__(
        self, self_check: SelfCheck, clock: Callable[[], float] = time.time
    ) -> None:
        self._self_check = self_check
        self._clock = clock

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Examine, and answer."""
        refuse_unknown_parameters(req, ())
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(self._self_check.examine())

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Examine, judge the objects in the body, too, and answer."""
        refuse_unknown_parameters(req, ())
        try:
            sent = msgspec.json.decode(req.bounded_stream.read(), type=SentObjects)
        except DECODE_ERRORS as error:
            raise WireError([Fault("body", decode_message(error))]) from error
        try:
            page = with_sent(self._self_check.examine(), sent, self._clock())
        except SchedulerConfigError as error:
            raise WireError([Fault("schedulerConfig", str(error))]) from error
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(page)
