"""Filter's answers byte for byte: every reason and both failure maps."""

from typing import Any

import pytest

from tests.builders import make_container, make_node, make_pod
from tests.contract.mixed_cluster import (
    GPU_MEMORY,
    MIG_1G,
    MIG_2G,
    NODES,
    PODS,
    SHARED,
    answer_of,
)
from tests.extender_app import FILTER, ExtenderApp


@pytest.fixture(scope="module")
def app() -> ExtenderApp:
    return ExtenderApp(nodes=NODES, pods=PODS)


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
    got = app.call(FILTER, pod, names)

    assert got == expected


def test_both_maps_are_filled_in_the_order_of_the_question(app: ExtenderApp) -> None:
    got = app.call(FILTER, make_pod(gpus=4), ["small", "busy", "idle", "cpu", "ghost"])

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
    got = app.call(FILTER, make_pod(gpus=gpus), names)

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
            '"sliced":"GPUs are cut or shared"',
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

    got = app.call(FILTER, pod, [node, "ghost"])

    assert got == answer_of(kept, failed, unresolvable)


def test_containers_add_up_before_they_are_judged(app: ExtenderApp) -> None:
    pod = make_pod(
        containers=[
            make_container(name="a", limits={"nvidia.com/gpu": "1"}),
            make_container(name="b", limits={"nvidia.com/gpu": "2"}),
        ]
    )

    got = app.call(FILTER, pod, ["busy", "idle"])  # busy has 2 free

    assert got == answer_of('"idle"', '"busy":"Insufficient GPUs"', "")
