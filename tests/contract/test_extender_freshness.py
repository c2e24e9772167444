"""A filter call that comes a moment before what it is about, and who is told of it."""

import json
from typing import Any, Final

import falcon
import falcon.testing
import pytest

from cluster.ledger.changes import NodeSeen
from cluster.ledger.writer import SnapshotCell
from extender.http import FilterResource
from extender.tracking.assumed_pods import AssumedPods
from extender.verbs.call import FilterOutcome
from extender.verbs.fresh_snapshot import SnapshotWait
from scoring.snapshot import Snapshot
from service.runtime import build_verb_options
from tests.builders import make_ledger, make_node, make_node_record, make_pod
from tests.extender_app import make_settings

FILTER: Final = "/scheduler/filter"
POD: Final = make_pod(gpus=2)
BUSY: Final = {"nvidia.com/mig.config.state": "pending"}


class LateCluster:
    """A cluster that changes when somebody waits for it, told to whoever listens.

    Attributes
    ----------
    told : list of (int, int, bool)
        Generation, nodes offered and whether the answer was empty, of each call.
    """

    def __init__(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        self._ledger = make_ledger(nodes=[before])
        self._after = after
        self.cell = SnapshotCell()
        self.cell.publish(self._ledger.build())
        self.waits = 0
        self.told: list[tuple[int, int, bool]] = []
        options = build_verb_options(make_settings())
        resource = FilterResource(
            self.cell,
            lambda: options,
            SnapshotWait(self, 0.02),
            AssumedPods(is_counting=False),
            [self.filtered],
        )
        app = falcon.App()
        app.add_route(FILTER, resource)
        self._client = falcon.testing.TestClient(app)

    def current(self) -> Snapshot:
        return self.cell.current()

    def wait_newer(self, generation: int, timeout_seconds: float) -> bool:
        if timeout_seconds:
            self.waits += 1
            self._ledger.apply(NodeSeen(make_node_record(self._after)))
            self.cell.publish(self._ledger.build())
        return self.cell.current().generation > generation

    def filtered(self, outcome: FilterOutcome) -> None:
        verb_call, passed = outcome.verb_call, outcome.answer.indexes
        assert verb_call.pod_request.uid == POD["metadata"]["uid"]
        self.told.append(
            (verb_call.snapshot.generation, len(verb_call.names), not len(passed))
        )

    def passing(self, verb_call: dict[str, Any]) -> list[str]:
        """Return the nodes that pass."""
        body = json.dumps(verb_call).encode()
        answer = self._client.simulate_post(FILTER, body=body).json
        names: list[str] = answer["NodeNames"] or [
            node["metadata"]["name"]
            for node in (answer["Nodes"] or {}).get("items", ())
        ]
        return names


def named(*names: str) -> dict[str, Any]:
    return {"Pod": POD, "Nodes": None, "NodeNames": list(names)}


@pytest.mark.parametrize(
    ("before", "names", "passing"),
    [
        pytest.param(
            make_node(name="a", gpus=4, labels=BUSY), ["a"], ["a"], id="no node passes"
        ),
        pytest.param(
            make_node(name="b", gpus=4), ["a", "b"], ["a", "b"], id="a name is unknown"
        ),
    ],
)
def test_a_call_is_judged_on_the_snapshot_that_it_waited_for(
    before: dict[str, Any], names: list[str], passing: list[str]
) -> None:
    cluster = LateCluster(before, make_node(name="a", gpus=4))

    assert cluster.passing(named(*names)) == passing
    assert cluster.waits == 1
    assert cluster.told == [(2, len(names), False)]


def test_a_call_waits_once_and_is_then_refused() -> None:
    cluster = LateCluster(
        make_node(name="a", gpus=4, labels=BUSY),
        make_node(name="a", gpus=5, labels=BUSY),
    )

    assert cluster.passing(named("a")) == []
    assert cluster.waits == 1
    assert cluster.told == [(2, 1, True)]


@pytest.mark.parametrize(
    "verb_call",
    [
        pytest.param(named("a"), id="a node passes"),
        pytest.param(named(), id="nothing is asked"),
        pytest.param(
            {
                "Pod": POD,
                "NodeNames": None,
                "Nodes": {"items": [make_node(name="template", gpus=1)]},
            },
            id="whole objects",
        ),
    ],
)
def test_other_calls_do_not_wait(verb_call: dict[str, Any]) -> None:
    cluster = LateCluster(make_node(name="a", gpus=4), make_node(name="a", gpus=5))

    cluster.passing(verb_call)

    assert cluster.waits == 0


def test_a_pod_that_asks_for_no_gpu_passes_without_a_wait() -> None:
    cluster = LateCluster(make_node(name="a", gpus=4), make_node(name="a", gpus=5))

    plain = {"Pod": make_pod(cpu="1"), "Nodes": None, "NodeNames": ["ghost"]}

    assert cluster.passing(plain) == ["ghost"]
    assert cluster.waits == 0
