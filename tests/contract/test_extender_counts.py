"""Whose count decides: exemptions, trust, unknown amounts; and scores on the wire."""

import json

import pytest

from tests.builders import make_node, make_pod
from tests.contract.mixed_cluster import NODES, PODS, answer_of
from tests.extender_app import FILTER, PRIORITIZE, ExtenderApp


@pytest.fixture(scope="module")
def app() -> ExtenderApp:
    return ExtenderApp(nodes=NODES, pods=PODS)


def test_the_nominated_node_is_exempt_from_the_free_count_alone(
    app: ExtenderApp,
) -> None:
    def nominated(node: str) -> bytes:
        pod = make_pod(gpus=4, status={"nominatedNodeName": node})
        return app.call(FILTER, pod, ["busy", "small", "idle"])

    assert nominated("busy") == answer_of(
        '"busy","idle"', "", '"small":"Too few GPUs on the node"'
    )
    assert nominated("small") == answer_of(
        '"idle"',
        '"busy":"Insufficient GPUs"',
        '"small":"Too few GPUs on the node"',
    )


def test_the_asking_pod_does_not_count_against_itself(app: ExtenderApp) -> None:
    holder = make_pod(name="holder", gpus=6)
    other = make_pod(name="other", gpus=6)

    assert app.call(FILTER, holder, ["busy"]) == answer_of('"busy"', "", "")
    assert app.call(FILTER, other, ["busy"]) == answer_of(
        "", '"busy":"Insufficient GPUs"', ""
    )


def test_under_trust_the_count_refuses_nobody_and_scores_as_full() -> None:
    app = ExtenderApp(
        nodes=NODES, pods=PODS, settings={"extender": {"counts": "trust"}}
    )
    names = ["busy", "small", "idle"]

    filtered = app.call(FILTER, make_pod(gpus=4), names)
    scored = app.call(PRIORITIZE, make_pod(gpus=4), names)

    assert filtered == answer_of(
        '"busy","idle"', "", '"small":"Too few GPUs on the node"'
    )
    # topology 50 each; busy as full u 1 -> 80; small as full u 1 -> 80; idle u 0 -> 80
    assert [entry["Score"] for entry in json.loads(scored)] == [10, 10, 10]
    assert b"gpu_extender_scheduler_count_disagreements_total 1.0" in (
        app.client.simulate_get("/metrics").content
    )


def test_a_resource_of_a_device_class_passes_with_a_neutral_score() -> None:
    app = ExtenderApp(
        nodes=[make_node(name="dra"), make_node(name="plugin", gpus=8)],
        device_class_resources=["nvidia.com/gpu"],
    )

    filtered = app.call(FILTER, make_pod(gpus=2), ["dra", "plugin", "ghost"])
    scored = app.call(PRIORITIZE, make_pod(gpus=1), ["dra", "plugin", "ghost"])

    assert filtered == answer_of(
        '"dra","plugin"', "", '"ghost":"Node is not known to gpu-extender"'
    )
    # dra: neutral utilization 50 -> 20 -> 115; plugin: u 0 -> 95; ghost takes no part
    assert [entry["Score"] for entry in json.loads(scored)] == [10, 0, 0]


def test_an_unknown_node_scores_0_and_takes_no_part(app: ExtenderApp) -> None:
    got = app.call(PRIORITIZE, make_pod(gpus=1), ["ghost", "idle", "idle-too"])

    # idle is the only one that takes part: all equal, so it has the top
    assert got == (
        b'[{"Host":"ghost","Score":0},{"Host":"idle","Score":10},'
        b'{"Host":"idle-too","Score":0}]'
    )


def test_scores_are_bare_integers_up_to_the_set_maximum() -> None:
    app = ExtenderApp(nodes=NODES, pods=PODS, settings={"scoring": {"maxScore": 100}})

    got = app.call(PRIORITIZE, make_pod(gpus=1), ["idle", "busy", "shared"])

    # 95, 135 and, without the resource, 95
    assert got == (
        b'[{"Host":"idle","Score":0},{"Host":"busy","Score":100},'
        b'{"Host":"shared","Score":0}]'
    )
