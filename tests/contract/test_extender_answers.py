"""Filter's answers byte for byte: every reason, both failure maps, both forms."""

import json
from typing import Any, Final

import pytest

from tests.builders import make_container, make_node, make_pod
from tests.extender_app import FILTER, PRIORITIZE, ExtenderApp

MIG_1G: Final = "nvidia.com/mig-1g.10gb"
MIG_2G: Final = "nvidia.com/mig-2g.20gb"
SHARED: Final = "nvidia.com/gpu.shared"
GPU_MEMORY: Final = "nvidia.com/gpu-memory"

NODES: Final = [
    make_node(name="idle", gpus=8, labels={"accelerator": "v100"}),
    make_node(name="busy", gpus=8),  # 2 free
    make_node(name="small", gpus=2),
    make_node(name="cpu"),
    make_node(name="sick", gpus=0, capacity={"nvidia.com/gpu": "8"}),
    make_node(
        name="changing", gpus=8, labels={"nvidia.com/mig.config.state": "pending"}
    ),
    # the one mig-2g.20gb is held, 2 of 4 mig-1g.10gb, too
    make_node(name="sliced", resources={MIG_1G: "4", MIG_2G: "1"}),
    # 8 of 10 shares held, and 192 of 256 GiB
    make_node(name="shared", resources={SHARED: "10", GPU_MEMORY: "256Gi"}),
]
PODS: Final = [
    make_pod(name="holder", gpus=6, node_name="busy"),
    make_pod(name="slices", requests={MIG_1G: "2", MIG_2G: "1"}, node_name="sliced"),
    make_pod(
        name="shares", requests={SHARED: "8", GPU_MEMORY: "192Gi"}, node_name="shared"
    ),
    make_pod(name="done", gpus=8, node_name="idle", phase="Succeeded"),
]


@pytest.fixture(scope="module")
def app() -> ExtenderApp:
    return ExtenderApp(nodes=NODES, pods=PODS)


def answer_of(kept: str, failed: str, unresolvable: str) -> bytes:
    """Return the whole answer in the form of names."""
    return (
        f'{{"Nodes":null,"NodeNames":[{kept}],"FailedNodes":{{{failed}}},'
        f'"FailedAndUnresolvableNodes":{{{unresolvable}}},"Error":""}}'
    ).encode()


@pytest.mark.parametrize(
    ("pod", "names", "expected"),
    [
        pytest.param(
            make_pod(gpus=8),
            ["idle"],
            b'{"Nodes":null,"NodeNames":["idle"],"FailedNodes":{},'
            b'"FailedAndUnresolvableNodes":{},"Error":""}',
            id="all pass",
        ),
        pytest.param(
            make_pod(gpus=1),
            ["idle", "ghost"],
            b'{"Nodes":null,"NodeNames":["idle"],"FailedNodes":{},'
            b'"FailedAndUnresolvableNodes":'
            b'{"ghost":"Node is not known to gpu-extender"},"Error":""}',
            id="unknown node",
        ),
        pytest.param(
            make_pod(gpus=1),
            ["cpu", "idle"],
            b'{"Nodes":null,"NodeNames":["idle"],"FailedNodes":{},'
            b'"FailedAndUnresolvableNodes":{"cpu":"Node has no GPU"},"Error":""}',
            id="no GPU",
        ),
        pytest.param(
            make_pod(requests={MIG_1G: "1"}),
            ["idle", "sliced"],
            b'{"Nodes":null,"NodeNames":["sliced"],"FailedNodes":{},'
            b'"FailedAndUnresolvableNodes":'
            b'{"idle":"Node does not offer the GPU resource"},"Error":""}',
            id="no such resource",
        ),
        pytest.param(
            make_pod(gpus=1),
            ["sick", "idle", "changing"],
            b'{"Nodes":null,"NodeNames":["idle"],"FailedNodes":{},'
            b'"FailedAndUnresolvableNodes":{"sick":"GPUs are not ready",'
            b'"changing":"GPUs are not ready"},"Error":""}',
            id="not ready",
        ),
        pytest.param(
            make_pod(gpus=4),
            ["small", "idle"],
            b'{"Nodes":null,"NodeNames":["idle"],"FailedNodes":{},'
            b'"FailedAndUnresolvableNodes":'
            b'{"small":"Too few GPUs on the node"},"Error":""}',
            id="too few in total",
        ),
        pytest.param(
            make_pod(gpus=1, spec={"nodeSelector": {"accelerator": "v100"}}),
            ["idle", "small"],
            b'{"Nodes":null,"NodeNames":["idle"],"FailedNodes":{},'
            b'"FailedAndUnresolvableNodes":'
            b'{"small":"GPU type does not match"},"Error":""}',
            id="other type",
        ),
        pytest.param(
            make_pod(gpus=4),
            ["idle", "busy"],
            b'{"Nodes":null,"NodeNames":["idle"],"FailedNodes":'
            b'{"busy":"Insufficient GPUs"},'
            b'"FailedAndUnresolvableNodes":{},"Error":""}',
            id="too few free",
        ),
    ],
)
def test_each_reason(
    app: ExtenderApp, pod: dict[str, Any], names: list[str], expected: bytes
) -> None:
    got = app.ask(FILTER, pod, names)

    assert got == expected


def test_both_maps_are_filled_in_the_order_of_the_question(app: ExtenderApp) -> None:
    got = app.ask(FILTER, make_pod(gpus=4), ["small", "busy", "idle", "cpu", "ghost"])

    assert got == answer_of(
        '"idle"',
        '"busy":"Insufficient GPUs"',
        '"small":"Too few GPUs on the node","cpu":"Node has no GPU",'
        '"ghost":"Node is not known to gpu-extender"',
    )


@pytest.mark.parametrize(
    ("gpus", "names", "failed", "unresolvable"),
    [
        pytest.param(
            4,
            ["cpu", "busy", "small", "ghost"],
            '"busy":"Insufficient GPUs"',
            '"cpu":"Insufficient GPUs","small":"Insufficient GPUs",'
            '"ghost":"Insufficient GPUs"',
            id="one node short of free GPUs",
        ),
        pytest.param(
            9,
            ["ghost", "cpu", "idle"],
            "",
            '"ghost":"Too few GPUs on the node","cpu":"Too few GPUs on the node",'
            '"idle":"Too few GPUs on the node"',
            id="one node short of GPUs in total",
        ),
        pytest.param(
            1,
            ["cpu", "changing"],
            "",
            '"cpu":"GPUs are not ready","changing":"GPUs are not ready"',
            id="one node not ready",
        ),
        pytest.param(
            1,
            ["ghost", "cpu"],
            "",
            '"ghost":"Node has no GPU","cpu":"Node has no GPU"',
            id="one known node without GPU",
        ),
        pytest.param(
            1,
            ["ghost", "spirit"],
            "",
            '"ghost":"Node is not known to gpu-extender",'
            '"spirit":"Node is not known to gpu-extender"',
            id="only unknown nodes",
        ),
    ],
)
def test_an_empty_answer_has_the_one_text_furthest_down_and_keeps_the_maps(
    app: ExtenderApp, gpus: int, names: list[str], failed: str, unresolvable: str
) -> None:
    got = app.ask(FILTER, make_pod(gpus=gpus), names)

    assert got == answer_of("", failed, unresolvable)


@pytest.mark.parametrize(
    ("pod", "kept", "failed", "unresolvable"),
    [
        pytest.param(
            make_pod(requests={MIG_1G: "3"}),
            '"ghost"',
            '"sliced":"Insufficient GPUs"',
            "",
            id="slices of one profile",
        ),
        pytest.param(
            make_pod(requests={MIG_2G: "1"}),
            '"ghost"',
            '"sliced":"Insufficient GPUs"',
            "",
            id="slices of another profile",
        ),
        pytest.param(
            make_pod(requests={SHARED: "3"}),
            '"ghost"',
            '"shared":"Insufficient GPUs"',
            "",
            id="shares",
        ),
        pytest.param(
            make_pod(requests={GPU_MEMORY: "65Gi"}),
            '"ghost"',
            '"shared":"Insufficient GPUs"',
            "",
            id="GPU memory",
        ),
        pytest.param(
            make_pod(requests={SHARED: "1", GPU_MEMORY: "300Gi"}),
            '"ghost"',
            "",
            '"shared":"Too few GPUs on the node"',
            id="one of two resources too large",
        ),
        pytest.param(
            make_pod(gpus=1, requests={MIG_1G: "1"}),
            '"ghost"',
            "",
            '"sliced":"Node has no GPU"',
            id="slices do not stand for the card",
        ),
    ],
)
def test_each_resource_is_counted_for_itself(
    pod: dict[str, Any], kept: str, failed: str, unresolvable: str
) -> None:
    roomy = {MIG_1G: "9", MIG_2G: "9", SHARED: "9", GPU_MEMORY: "900Gi"}
    app = ExtenderApp(
        nodes=[*NODES, make_node(name="ghost", gpus=8, resources=roomy)], pods=PODS
    )
    node = (failed or unresolvable).split('"')[1]

    got = app.ask(FILTER, pod, [node, "ghost"])

    assert got == answer_of(kept, failed, unresolvable)


def test_containers_add_up_before_they_are_judged(app: ExtenderApp) -> None:
    pod = make_pod(
        containers=[
            make_container(name="a", limits={"nvidia.com/gpu": "1"}),
            make_container(name="b", limits={"nvidia.com/gpu": "2"}),
        ]
    )

    got = app.ask(FILTER, pod, ["busy", "idle"])  # busy has 2 free

    assert got == answer_of('"idle"', '"busy":"Insufficient GPUs"', "")


def test_a_pod_without_gpu_passes_everywhere(app: ExtenderApp) -> None:
    pod = make_pod(cpu="1")

    assert app.ask(FILTER, pod, ["cpu", "ghost", "sick"]) == answer_of(
        '"cpu","ghost","sick"', "", ""
    )
    assert (
        app.ask(PRIORITIZE, pod, ["cpu", "ghost"])
        == b'[{"Host":"cpu","Score":0},{"Host":"ghost","Score":0}]'
    )


def test_no_names_give_an_empty_answer(app: ExtenderApp) -> None:
    assert app.ask(FILTER, make_pod(gpus=1), []) == answer_of("", "", "")
    assert app.ask(PRIORITIZE, make_pod(gpus=1), []) == b"[]"


def test_a_name_asked_twice_is_answered_once(app: ExtenderApp) -> None:
    names = ["idle", "busy", "idle", "busy"]

    assert app.ask(FILTER, make_pod(gpus=4), names) == answer_of(
        '"idle"', '"busy":"Insufficient GPUs"', ""
    )
    # idle: u 0 -> 95; busy: u 0.75 -> 135
    assert (
        app.ask(PRIORITIZE, make_pod(gpus=1), names)
        == b'[{"Host":"idle","Score":0},{"Host":"busy","Score":10}]'
    )


def test_names_are_answered_as_they_were_asked() -> None:
    names = ['say "gpu"', "back\\slash", "größe", "节点", "\u2028", "tab\there", "🚀"]
    app = ExtenderApp(nodes=[make_node(name=name, gpus=1) for name in names[:4]])

    got = json.loads(app.ask(FILTER, make_pod(gpus=1), names))

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
    got = app.ask_with_objects(FILTER, make_pod(gpus=1), [])

    assert got == (
        b'{"Nodes":{"metadata":{},"items":[]},"NodeNames":null,'
        b'"FailedNodes":{},"FailedAndUnresolvableNodes":{},"Error":""}'
    )
    assert app.ask_with_objects(PRIORITIZE, make_pod(gpus=1), []) == b"[]"


def test_a_node_that_only_the_question_knows_is_judged_from_its_object(
    app: ExtenderApp,
) -> None:
    template = make_node(name="template", gpus=4, labels={"accelerator": "v100"})
    plain = make_node(name="plain-template")
    nodes = [template, plain, make_node(name="busy", gpus=8)]

    fits = json.loads(app.ask_with_objects(FILTER, make_pod(gpus=3), nodes))
    scores = json.loads(app.ask_with_objects(PRIORITIZE, make_pod(gpus=1), nodes))

    assert [node["metadata"]["name"] for node in fits["Nodes"]["items"]] == ["template"]
    assert fits["FailedAndUnresolvableNodes"] == {"plain-template": "Node has no GPU"}
    assert fits["FailedNodes"] == {"busy": "Insufficient GPUs"}
    # template, no pod on it: u 0 -> 95; plain: no GPU -> 95; busy: u 0.75 -> 135
    assert [entry["Score"] for entry in scores] == [0, 0, 10]


def test_a_node_of_the_cache_is_judged_from_the_cache(app: ExtenderApp) -> None:
    stale = make_node(name="cpu", gpus=8)

    got = json.loads(app.ask_with_objects(FILTER, make_pod(gpus=1), [stale]))

    assert got["FailedAndUnresolvableNodes"] == {"cpu": "Node has no GPU"}


def test_the_nominated_node_is_exempt_from_the_free_count_alone(
    app: ExtenderApp,
) -> None:
    def nominated(node: str) -> bytes:
        pod = make_pod(gpus=4, status={"nominatedNodeName": node})
        return app.ask(FILTER, pod, ["busy", "small", "idle"])

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

    assert app.ask(FILTER, holder, ["busy"]) == answer_of('"busy"', "", "")
    assert app.ask(FILTER, other, ["busy"]) == answer_of(
        "", '"busy":"Insufficient GPUs"', ""
    )


def test_under_trust_the_count_refuses_nobody_and_scores_as_full() -> None:
    app = ExtenderApp(
        nodes=NODES, pods=PODS, settings={"extender": {"counts": "trust"}}
    )
    names = ["busy", "small", "idle"]

    filtered = app.ask(FILTER, make_pod(gpus=4), names)
    scored = app.ask(PRIORITIZE, make_pod(gpus=4), names)

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

    filtered = app.ask(FILTER, make_pod(gpus=2), ["dra", "plugin", "ghost"])
    scored = app.ask(PRIORITIZE, make_pod(gpus=1), ["dra", "plugin", "ghost"])

    assert filtered == answer_of(
        '"dra","plugin"', "", '"ghost":"Node is not known to gpu-extender"'
    )
    # dra: neutral utilization 50 -> 20 -> 115; plugin: u 0 -> 95; ghost takes no part
    assert [entry["Score"] for entry in json.loads(scored)] == [10, 0, 0]


def test_an_unknown_node_scores_0_and_takes_no_part(app: ExtenderApp) -> None:
    got = app.ask(PRIORITIZE, make_pod(gpus=1), ["ghost", "idle", "idle-too"])

    # idle is the only one that takes part: all equal, so it has the top
    assert got == (
        b'[{"Host":"ghost","Score":0},{"Host":"idle","Score":10},'
        b'{"Host":"idle-too","Score":0}]'
    )


def test_scores_are_bare_integers_up_to_the_set_maximum() -> None:
    app = ExtenderApp(nodes=NODES, pods=PODS, settings={"scoring": {"maxScore": 100}})

    got = app.ask(PRIORITIZE, make_pod(gpus=1), ["idle", "busy", "shared"])

    # 95, 135 and, without the resource, 95
    assert got == (
        b'[{"Host":"idle","Score":0},{"Host":"busy","Score":100},'
        b'{"Host":"shared","Score":0}]'
    )
