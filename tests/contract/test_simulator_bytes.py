"""A replay by functions goes the way of one through the verbs' bytes."""

import json
from typing import Any, Final

import numpy as np
import pytest

from cluster.decode.objects import PodRecord
from cluster.ledger.changes import PodSeen
from scoring.snapshot import IndexArray, Int64Array
from service.runtime import build_verb_options
from simulator.devices import tightest
from simulator.pods import QueuedPod
from simulator.scheduler import SchedulerRules
from simulator.trace import pod_manifest
from tests.extender_app import FILTER, PRIORITIZE, ExtenderApp, make_settings
from tests.simulated import Replay, make_place, make_row, nodes_of, trace_of

ANNOTATION: Final = "gpu-extender.io/gpu-type"
MODELS: Final = ("T4", "G2", "V100M32")


class BytesPolicy:
    """Asks the application as kube-scheduler does."""

    def __init__(self, replay: Replay, scoring: dict[str, Any]) -> None:
        self._replay = replay
        self._app = ExtenderApp(is_synced=False, settings={"scoring": scoring})
        self._app.cell.publish(replay.ledger.build())

    def rate(
        self, pod: QueuedPod, columns: IndexArray
    ) -> tuple[IndexArray, Int64Array]:
        """Send a filter call, and a prioritize call about what it answers."""
        names = [self._replay.cluster.names[column] for column in columns]
        index = int(pod.record.name.rpartition("-")[2])
        row = self._replay.trace.pods[index]
        manifest = pod_manifest(row, pod.record.name, ANNOTATION)
        passed = json.loads(self._app.call(FILTER, manifest, names))["NodeNames"]
        column_of = self._replay.cluster.snapshot.nodes.column_of
        scores = [0] * len(passed)
        if len(passed) > 1:
            answer = json.loads(self._app.call(PRIORITIZE, manifest, passed))
            scores = [entry["Score"] for entry in answer]
            assert [entry["Host"] for entry in answer] == passed
        return (
            np.array([column_of[name] for name in passed], dtype=np.intp),
            np.array(scores, dtype=np.int64),
        )

    def gpu_of(self, pod: QueuedPod, column: int) -> int:
        """Return the GPU with the least free that has the share."""
        return tightest(self._replay.cluster.devices.free[column], pod.share)

    def placed(self, record: PodRecord) -> None:
        """Have the cache see the binding."""
        self._replay.ledger.apply(PodSeen(record))
        if self._replay.ledger.has_changes:
            self._app.cell.publish(self._replay.ledger.build())


FILLING: Final[dict[str, Any]] = {
    "strategy": "binpack",
    "normalize": "rank",
    "typeOrder": "weighted",
}
PACKING: Final[dict[str, Any]] = {
    "profile": "packing",
    "typeOrder": "weighted",
    "expectedPods": [
        {"gpus": 4, "cpuMillicores": 1000},
        {"thousandths": 500, "cpuMillicores": 1000, "weight": 2},
        {"types": ["T4"], "cpuMillicores": 1000},
    ],
}


@pytest.mark.parametrize("scoring", [FILLING, PACKING], ids=["classic", "packing"])
@pytest.mark.parametrize("ties", ["random", "name"])
def test_functions_place_as_bytes_do(ties: str, scoring: dict[str, Any]) -> None:
    random = np.random.default_rng(5)
    nodes = [
        make_place(f"n{i:03}", gpus=int(random.integers(0, 5)), model=MODELS[i % 3])
        for i in range(120)
    ]
    rows = [
        make_row(
            f"p{i}",
            gpus=gpus,
            share=int(random.integers(1, 1000)) if gpus == 1 and i % 2 else 1000,
            models=[MODELS[i % 3]] if i % 4 == 0 else [],
        )
        for i, gpus in enumerate(random.integers(0, 4, 150).tolist())
    ]
    settings = make_settings({"scoring": scoring})
    by_functions, by_bytes = (
        Replay(trace_of(nodes, rows), build_verb_options(settings), settings)
        for _ in range(2)
    )
    rules = SchedulerRules(percentage=40, ties=ties)  # type: ignore[arg-type]

    plain = by_functions.run(by_functions.policy("ours"), rules)
    sent = by_bytes.run(BytesPolicy(by_bytes, scoring), rules)

    assert nodes_of(plain) == nodes_of(sent)
    assert any(node is None for node in nodes_of(plain))
