"""What is asked in which form, and answered in the same, byte for byte."""

import json

import pytest

from tests.builders import make_node, make_pod
from tests.contract.mixed_cluster import (
    NODES,
    PODS,
    answer_of,
)
from tests.extender_app import FILTER, PRIORITIZE, ExtenderApp


@pytest.fixture(scope="module")
def app() -> ExtenderApp:
    return ExtenderApp(nodes=NODES, pods=PODS)


def test_a_pod_without_gpu_passes_everywhere(app: ExtenderApp) -> None:
    pod = make_pod(cpu="1")

    assert app.call(FILTER, pod, ["cpu", "ghost", "sick"]) == answer_of(
        '"cpu","ghost","sick"', "", ""
    )
    assert (
        app.call(PRIORITIZE, pod, ["cpu", "ghost"])
        == b'[{"Host":"cpu","Score":0},{"Host":"ghost","Score":0}]'
    )


def test_no_names_give_an_empty_answer(app: ExtenderApp) -> None:
    assert app.call(FILTER, make_pod(gpus=1), []) == answer_of("", "", "")
    assert app.call(PRIORITIZE, make_pod(gpus=1), []) == b"[]"


def test_a_name_asked_twice_is_answered_once(app: ExtenderApp) -> None:
    names = ["idle", "busy", "idle", "busy"]

    assert app.call(FILTER, make_pod(gpus=4), names) == answer_of(
        '"idle"', '"busy":"Insufficient GPUs"', ""
    )
    # idle: u 0 -> 95; busy: u 0.75 -> 135
    assert (
        app.call(PRIORITIZE, make_pod(gpus=1), names)
        == b'[{"Host":"idle","Score":0},{"Host":"busy","Score":10}]'
    )


def test_names_are_answered_as_they_were_asked() -> None:
    names = ['say "gpu"', "back\\slash", "größe", "节点", "\u2028", "tab\there", "🚀"]
    app = ExtenderApp(nodes=[make_node(name=name, gpus=1) for name in names[:4]])

    got = json.loads(app.call(FILTER, make_pod(gpus=1), names))

    assert got["NodeNames"] == names[:4]
    assert list(got["FailedAndUnresolvableNodes"]) == names[4:]


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param(("Pod", "NodeNames", "Nodes"), id="as Go writes them"),
        pytest.param(("pod", "nodenames", "nodes"), id="lower case"),
        pytest.param(("POD", "NODENAMES", "NODES"), id="upper case"),
        pytest.param(("pod", "nodeNames", "nodes"), id="camel case"),
    ],
)
def test_keys_are_read_in_any_casing(
    app: ExtenderApp, keys: tuple[str, str, str]
) -> None:
    pod, names, nodes = keys
    body = {pod: make_pod(gpus=1), nodes: None, names: ["idle", "cpu"], "Extra": 1}

    got = app.send(FILTER, json.dumps(body).encode())

    assert got.content == answer_of('"idle"', "", '"cpu":"Node has no GPU"')


def test_the_form_of_objects_is_answered_with_the_very_bytes(app: ExtenderApp) -> None:
    idle = b'{ "metadata" : {"name":"idle", "labels":{"b":"\\u00e9","a":"\xc3\xa9"}} }'
    cpu = b'{"metadata":{"name":"cpu"}}'
    pod = json.dumps(make_pod(gpus=1)).encode()
    body = (
        b'{"Pod":' + pod + b',"Nodes":{"metadata":{},"items":[\n'
        b"" + idle + b" , " + cpu + b']},"NodeNames":null}'
    )

    got = app.send(FILTER, body)

    assert got.content == (
        b'{"Nodes":{"metadata":{},"items":[' + idle + b']},"NodeNames":null,'
        b'"FailedNodes":{},"FailedAndUnresolvableNodes":'
        b'{"cpu":"Node has no GPU"},"Error":""}'
    )


def test_the_form_of_objects_without_any_is_answered_in_that_form(
    app: ExtenderApp,
) -> None:
    got = app.call_with_objects(FILTER, make_pod(gpus=1), [])

    assert got == (
        b'{"Nodes":{"metadata":{},"items":[]},"NodeNames":null,'
        b'"FailedNodes":{},"FailedAndUnresolvableNodes":{},"Error":""}'
    )
    assert app.call_with_objects(PRIORITIZE, make_pod(gpus=1), []) == b"[]"


def test_a_node_that_only_the_question_knows_is_judged_from_its_object(
    app: ExtenderApp,
) -> None:
    template = make_node(name="template", gpus=4, labels={"accelerator": "v100"})
    plain = make_node(name="plain-template")
    nodes = [template, plain, make_node(name="busy", gpus=8)]

    fits = json.loads(app.call_with_objects(FILTER, make_pod(gpus=3), nodes))
    scores = json.loads(app.call_with_objects(PRIORITIZE, make_pod(gpus=1), nodes))

    assert [node["metadata"]["name"] for node in fits["Nodes"]["items"]] == ["template"]
    assert fits["FailedAndUnresolvableNodes"] == {"plain-template": "Node has no GPU"}
    assert fits["FailedNodes"] == {"busy": "Insufficient GPUs"}
    # template, no pod on it: u 0 -> 95; plain: no GPU -> 95; busy: u 0.75 -> 135
    assert [entry["Score"] for entry in scores] == [0, 0, 10]


def test_a_node_of_the_cache_is_judged_from_the_cache(app: ExtenderApp) -> None:
    stale = make_node(name="cpu", gpus=8)

    got = json.loads(app.call_with_objects(FILTER, make_pod(gpus=1), [stale]))

    assert got["FailedAndUnresolvableNodes"] == {"cpu": "Node has no GPU"}
