"""`BytesPolicy`: our verbs asked as kube-scheduler asks them, by JSON."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import falcon
import falcon.testing
import numpy as np

from cluster.ledger.ledger import Ledger
from cluster.ledger.writer import SnapshotCell
from extender.http import FilterResource, PrioritizeResource
from extender.tracking.assumed_pods import AssumedPods
from extender.verbs.options import VerbOptions
from extender.verbs.reuse import FilterMemo
from scoring.snapshot import IndexArray, Int64Array, Snapshot
from service.commands.simulate import Replays
from simulator.cluster import Cluster
from simulator.pods import QueuedPod
from simulator.trace import Trace, pod_manifest
from simulator.verbs import ExtenderPolicy

FILTER: Final = "/filter"

PRIORITIZE: Final = "/prioritize"


class BytesPolicy(ExtenderPolicy):
    """Sends each pod as an object, and reads nodes and scores out of the answers.

    Parameters
    ----------
    manifest_of : callable
        Returns a pod as kube-scheduler has it.
    """

    def __init__(
        self,
        cluster: Cluster,
        ledger: Ledger,
        options: VerbOptions,
        manifest_of: Callable[[QueuedPod], Mapping[str, Any]],
    ) -> None:
        assumed = AssumedPods(is_counting=True, clock=lambda: 0.0)
        super().__init__(cluster, ledger, options, assumed=assumed)
        self._manifest_of = manifest_of
        self._cell = SnapshotCell()
        self._published: Snapshot | None = None
        memo = FilterMemo(self._cell)
        app = falcon.App()
        app.add_route(
            FILTER,
            FilterResource(
                self._cell,
                lambda: options,
                None,
                assumed,
                [memo.filtered, assumed.filtered],
            ),
        )
        app.add_route(
            PRIORITIZE,
            PrioritizeResource(
                self._cell, lambda: options, memo, assumed, [assumed.prioritized]
            ),
        )
        self._client = falcon.testing.TestClient(app)

    def rate(
        self, pod: QueuedPod, columns: IndexArray
    ) -> tuple[IndexArray, Int64Array]:
        """Send a filter call, and a prioritize call about what it answers."""
        self._show(pod)
        if self.snapshot is not self._published:
            self._published = self.snapshot
            self._cell.publish(self.snapshot)
        names = [self._cluster.names[column] for column in columns.tolist()]
        manifest = self._manifest_of(pod)
        passed = self._call(FILTER, manifest, names)["NodeNames"]
        scores = [0] * len(passed)
        if len(passed) > 1:  # kube-scheduler asks nothing about one alone
            answer = self._call(PRIORITIZE, manifest, passed)
            scores = [entry["Score"] for entry in answer]
            assert [entry["Host"] for entry in answer] == passed
        column_of = self._cluster.snapshot.nodes.column_of
        return (
            np.array([column_of[name] for name in passed], dtype=np.intp),
            np.array(scores, dtype=np.int64),
        )

    def _call(self, path: str, pod: Mapping[str, Any], names: list[str]) -> Any:
        """Return the answer to a call in the form of names."""
        body = {"Pod": pod, "Nodes": None, "NodeNames": names}
        result = self._client.simulate_post(
            path,
            body=json.dumps(body, separators=(",", ":")).encode(),
            headers={"Content-Type": "application/json"},
        )
        assert result.status_code == 200, result.text
        return json.loads(result.content)


@dataclass(frozen=True, slots=True)
class BytesReplays(Replays):
    """Replays of a trace by bytes."""

    trace: Trace

    def _policy(
        self, name: str, cluster: Cluster, ledger: Ledger, _random: np.random.Generator
    ) -> BytesPolicy:
        rows = {row.name: row for row in self.trace.pods}
        annotation = self.verb_options.builder.annotations.gpu_type

        def manifest_of(pod: QueuedPod) -> Mapping[str, Any]:
            # The name of a row, and which pod it is.
            row = rows[pod.record.name.rpartition("-")[0]]
            return pod_manifest(row, pod.record.name, annotation)

        options = self._options_on(cluster, name)
        return BytesPolicy(cluster, ledger, options, manifest_of)
