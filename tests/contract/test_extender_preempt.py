"""Preempt on the wire: what stays, in which form, and what is refused."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from cluster.dump import load_dump
from cluster.ledger.ledger import Ledger
from tests.builders import BUILDER, LABEL_KEYS, make_node, make_pod
from tests.extender_app import ExtenderApp
from tests.service_process import ServiceProcess

PREEMPT: Final = "/scheduler/preempt"
CAPTURES: Final = Path(__file__).parent / "captures"
BODIES: Final = [
    path
    for path in sorted(CAPTURES.glob("*/scheduler-*-preempt.*.json"))
    if not path.name.endswith(".response.json")
]
LOW: Final = make_pod(name="low", uid="low", gpus=6, node_name="busy")
NODES: Final = [
    make_node(name="busy", gpus=8),  # 2 free
    make_node(name="small", gpus=2),
    make_node(name="idle", gpus=8),
]


def preempt(
    app: ExtenderApp, pod: dict[str, Any], key: str, victims: dict[str, Any]
) -> bytes:
    """Return the answer to a call."""
    verb_call = {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": None}
    result = app.send(PREEMPT, json.dumps({**verb_call, key: victims}).encode())
    assert result.status_code == 200, result.text
    assert result.headers["content-type"] == "application/json"
    return result.content


@pytest.mark.parametrize("counts", ["enforce", "trust"])
def test_uids_and_whole_pods_are_answered_alike_with_uids(counts: str) -> None:
    app = ExtenderApp(
        nodes=NODES, pods=[LOW], settings={"extender": {"counts": counts}}
    )
    pod = make_pod(name="high", gpus=8)

    def call(key: str, victim: dict[str, Any]) -> bytes:
        one = {"Pods": [victim], "NumPDBViolations": 1}
        none = {"Pods": None, "NumPDBViolations": 0}
        victims = {"busy": one, "small": one, "ghost": one, "idle": none}
        return preempt(app, pod, key, victims)

    expected = (
        b'{"NodeNameToMetaVictims":{"busy":{"Pods":[{"UID":"low"}],'
        b'"NumPDBViolations":1},"idle":{"Pods":[],"NumPDBViolations":0}}}'
    )
    assert call("NodeNameToMetaVictims", {"UID": "low"}) == expected
    assert call("NodeNameToVictims", LOW) == expected


def test_a_whole_pod_that_we_have_not_seen_frees_nothing_of_what_we_count() -> None:
    app = ExtenderApp(nodes=NODES, pods=[LOW])
    unseen = make_pod(name="unseen", gpus=6, node_name="busy")

    def kept(gpus: int) -> list[str]:
        victims = {"busy": {"Pods": [unseen], "NumPDBViolations": 0}}
        answer = preempt(app, make_pod(gpus=gpus), "NodeNameToVictims", victims)
        return list(json.loads(answer)["NodeNameToMetaVictims"])

    assert kept(2) == ["busy"]
    assert kept(3) == []


def test_a_pod_without_gpu_gets_everything_back() -> None:
    app = ExtenderApp(nodes=NODES)
    victims = {"ghost": {"Pods": [{"UID": "x"}], "NumPDBViolations": 2}}

    answer = preempt(app, make_pod(cpu="1"), "NodeNameToMetaVictims", victims)

    assert json.loads(answer) == {"NodeNameToMetaVictims": victims}


def test_under_trust_every_captured_candidate_stays() -> None:
    ledger = Ledger(LABEL_KEYS)
    for change in load_dump([CAPTURES / "1.36" / "cluster-dump.yaml"], BUILDER):
        ledger.apply(change)
    app = ExtenderApp(is_synced=False, settings={"extender": {"counts": "trust"}})
    app.cell.publish(ledger.build())

    for path in BODIES:
        verb_call = json.loads(path.read_bytes())
        sent = verb_call["NodeNameToMetaVictims"] or {
            name: {
                "Pods": [{"UID": pod["metadata"]["uid"]} for pod in victims["Pods"]],
                "NumPDBViolations": victims["NumPDBViolations"],
            }
            for name, victims in verb_call["NodeNameToVictims"].items()
        }

        answer = app.send(PREEMPT, path.read_bytes()).json

        assert answer == {"NodeNameToMetaVictims": sent}


def test_there_are_bodies_of_both_forms_and_three_versions() -> None:
    assert len(BODIES) == 6


def test_an_unsynced_cluster_is_an_error() -> None:
    app = ExtenderApp(is_synced=False)

    answer = app.send(PREEMPT, BODIES[0].read_bytes())

    assert answer.status_code == 503
    assert "NodeNameToMetaVictims" not in answer.text


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        pytest.param(b"null", "body: wanted object, got null", id="null"),
        pytest.param(
            b'{"Pod":{},"NodeNameToMetaVictims":{"a":null}}',
            "Pod.metadata.name: wanted a name, got none;"
            " Pod.metadata.uid: wanted a UID, got none;"
            " Pod.spec.containers: wanted containers, got none;"
            " NodeNameToMetaVictims['a']: wanted object, got null",
            id="all faults at once",
        ),
        pytest.param(
            json.dumps(
                {"Pod": make_pod(gpus="1.2.3"), "NodeNameToMetaVictims": {}}
            ).encode(),
            "Pod.spec.containers[0].resources.limits['nvidia.com/gpu']: quantity",
            id="a quantity",
        ),
    ],
)
def test_a_bad_body_is_refused(
    captured_cluster: ServiceProcess, body: bytes, complaint: str
) -> None:
    answer = captured_cluster.request("POST", PREEMPT, body)

    assert answer.status == 400
    assert answer.json()["description"].startswith(complaint)


def test_a_wrong_method_is_refused(captured_cluster: ServiceProcess) -> None:
    assert captured_cluster.request("GET", PREEMPT).status == 405


def test_a_call_is_logged_at_debug_level_without_the_victims(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG", "extender.http")
    app = ExtenderApp(nodes=NODES, pods=[LOW])
    victims: dict[str, Any] = {"busy": {"Pods": []}, "idle": {"Pods": []}}

    preempt(app, make_pod(uid="u", gpus=8), "NodeNameToMetaVictims", victims)

    (record,) = caplog.records
    assert vars(record)["fields"] == {
        "verb": "preempt",
        "pod_uid": "u",
        "candidates": 2,
        "feasible": 1,
        "disagreements": 0,
    }


def test_calls_are_counted() -> None:
    app = ExtenderApp(nodes=NODES, pods=[LOW])
    victims: dict[str, Any] = {"busy": {"Pods": []}, "idle": {"Pods": []}}

    preempt(app, make_pod(gpus=8), "NodeNameToMetaVictims", victims)
    app.send(PREEMPT, b"")

    def value(name: str, **labels: str) -> float | None:
        return app.metrics.registry.get_sample_value(f"gpu_extender_{name}", labels)

    assert value("requests_total", verb="preempt", outcome="ok") == 1
    assert value("requests_total", verb="preempt", outcome="bad_request") == 1
    assert value("scheduler_candidates_sum", verb="preempt", stage="in") == 2
    assert value("scheduler_candidates_sum", verb="preempt", stage="out") == 1
