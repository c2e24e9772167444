"""``GET /explain`` of pods that the verbs refuse to judge, or make room for."""

import json
from typing import Any, Final

import pytest

from tests.builders import make_node, make_pod
from tests.extender_app import FILTER, PREEMPT, PRIORITIZE, ExtenderApp

TYPE: Final = "gpu-extender.io/gpu-type"


def explained(app: ExtenderApp) -> Any:
    """Return the explanation of the pod of the cluster."""
    query = "namespace=default&pod=pod-1&nodes=true"
    return app.client.simulate_get("/explain", query_string=query).json


@pytest.mark.parametrize(
    ("path", "candidates"),
    [
        pytest.param(FILTER, {"NodeNames": ["a"]}, id="filter"),
        pytest.param(PRIORITIZE, {"NodeNames": ["a"]}, id="prioritize"),
        pytest.param(PREEMPT, {"NodeNameToMetaVictims": {}}, id="preempt"),
    ],
)
def test_a_call_that_the_pods_own_words_had_refused_is_among_the_last_answers(
    path: str, candidates: dict[str, Any]
) -> None:
    pod = make_pod(gpus=1, annotations={TYPE: "H100;A100"})
    app = ExtenderApp(nodes=[make_node(name="a", gpus=4)], pods=[pod])

    answer = app.send(path, json.dumps({"Pod": pod, **candidates}).encode())

    ((verb, call),) = explained(app)["lastAnswers"].items()
    assert answer.status_code == 400
    assert verb == path.rpartition("/")[2]
    assert call.keys() == {"at", "fault"}
    assert call["fault"] == answer.json["description"]
    assert f"Pod.metadata.annotations[{TYPE!r}]: wanted" in call["fault"]


def test_a_fault_of_the_call_is_nobodys_last_answer() -> None:
    pod = make_pod(gpus=1)
    app = ExtenderApp(nodes=[make_node(name="a", gpus=4)], pods=[pod])

    answer = app.send(FILTER, json.dumps({"Pod": pod, "NodeNames": [1]}).encode())

    assert answer.status_code == 400
    assert explained(app)["lastAnswers"] == {}


def test_the_nominated_node_of_a_pending_pod_is_exempt_from_the_count() -> None:
    holders = [
        make_pod(name=f"holder-{name}", gpus=4, node_name=name) for name in ("a", "b")
    ]
    pod = make_pod(gpus=1, status={"nominatedNodeName": "b"})
    nodes = [make_node(name=name, gpus=4) for name in ("a", "b")]
    app = ExtenderApp(nodes=nodes, pods=[*holders, pod])

    shown = {
        node["name"]: node["verdict"]["feasible"] for node in explained(app)["nodes"]
    }

    assert shown == {"a": False, "b": True}
    assert json.loads(app.call(FILTER, pod, ["a", "b"]))["NodeNames"] == ["b"]


@pytest.mark.parametrize(
    ("namespaces", "end"),
    [
        pytest.param([], "managed resource", id="nowhere"),
        pytest.param(["ml"], "; ml has one of that name", id="one"),
        pytest.param(["ml", "a"], "; a and ml have one of that name", id="two"),
        pytest.param(
            list("gfedcba"),
            "; a, b, c, d, e and 2 more have one of that name",
            id="many",
        ),
    ],
)
def test_a_pod_of_another_namespace_is_told_by_that(
    namespaces: list[str], end: str
) -> None:
    pods = [make_pod(name="pod-1", namespace=name, gpus=1) for name in namespaces]
    app = ExtenderApp(nodes=[make_node(name="a", gpus=4)], pods=pods)

    answer = app.client.simulate_get(
        "/explain", query_string="namespace=default&pod=pod-1"
    )

    assert answer.status_code == 404
    assert answer.json["description"].startswith("no pod default/pod-1 among the ")
    assert answer.json["description"].endswith(end)
