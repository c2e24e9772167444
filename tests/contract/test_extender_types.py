"""GPU types, memory and company through the verbs."""

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest

from tests.builders import Tree, make_node, make_pod
from tests.extender_app import FILTER, PRIORITIZE, ExtenderApp

PRODUCT: Final = "nvidia.com/gpu.product"
TYPE: Final = "gpu-extender.io/gpu-type"
MEMORY: Final = "gpu-extender.io/min-gpu-memory"
RULE_KEY: Final = "task.bkbcs.tencent.com/gpu-type"
H100: Final = "NVIDIA-H100-80GB-HBM3"
A100: Final = "NVIDIA-A100-SXM4-40GB"
NODES: Final = (
    make_node(name="h100", gpus=8, labels={PRODUCT: H100}),
    make_node(name="a100", gpus=8, labels={PRODUCT: A100}),
    make_node(name="l40s", gpus=8, labels={PRODUCT: "NVIDIA-L40S"}),
    make_node(name="plain", gpus=8),
)
NAMES: Final = [node["metadata"]["name"] for node in NODES]


def asking(annotations: Mapping[str, str] | None = None) -> Tree:
    return make_pod(gpus=1, annotations=annotations)


def answer(
    pod: Tree, settings: Mapping[str, Any] | None = None
) -> tuple[list[str], dict[str, str]]:
    """Return the nodes that pass, and why the others do not."""
    app = ExtenderApp(nodes=NODES, settings=settings)
    found = json.loads(app.call(FILTER, pod, NAMES))
    assert not found["FailedNodes"]
    return found["NodeNames"], found["FailedAndUnresolvableNodes"]


def priorities(
    pod: Tree, names: list[str], *, nodes: Any = NODES, **settings: Any
) -> list[int]:
    app = ExtenderApp(nodes=nodes[0], pods=nodes[1], settings={"scoring": settings})
    found = json.loads(app.call(PRIORITIZE, pod, names))
    return [item["Score"] for item in found]


@pytest.mark.parametrize(
    ("annotations", "passing", "reasons"),
    [
        pytest.param(
            {TYPE: "H100, A100"},
            ["h100", "a100"],
            {"l40s": "GPU type does not match", "plain": "GPU type unknown"},
            id="a list",
        ),
        pytest.param(
            {TYPE: "!H100, !A100-40GB"},
            ["l40s"],
            {
                "h100": "GPU type does not match",
                "a100": "GPU type does not match",
                "plain": "GPU type unknown",
            },
            id="exclusions",
        ),
        pytest.param(
            {MEMORY: "45Gi"},
            ["h100", "l40s"],
            {"a100": "Too little GPU memory", "plain": "GPU type unknown"},
            id="memory",
        ),
        pytest.param(
            {TYPE: "L4"},
            [],
            dict.fromkeys(NAMES, "GPU type unknown"),
            id="one text when none passes",
        ),
        pytest.param({RULE_KEY: "H100"}, NAMES, {}, id="a rule key refuses nobody"),
    ],
)
def test_filter_takes_what_the_pod_wants(
    annotations: dict[str, str], passing: list[str], reasons: dict[str, str]
) -> None:
    assert answer(asking(annotations)) == (passing, reasons)


def test_a_rule_key_filters_if_the_settings_say_so() -> None:
    settings = {"demandAnnotations": {"ruleKey": "filter"}}

    assert answer(asking({RULE_KEY: "H100"}), settings)[0] == ["h100"]
    assert answer(asking({RULE_KEY: "no-model"}), settings)[0] == NAMES


def test_the_annotation_can_have_another_name() -> None:
    settings = {"demandAnnotations": {"gpuType": "our/type"}}

    assert answer(asking({"our/type": "H100"}), settings)[0] == ["h100"]
    assert answer(asking({TYPE: "H100"}), settings)[0] == NAMES


def test_a_node_may_be_named_by_an_alias_of_the_settings() -> None:
    settings = {"gpuTypes": {"aliases": {"H100": ["big"]}, "typeLabels": ["our/gpu"]}}
    app = ExtenderApp(settings=settings)
    node = make_node(name="a", gpus=1, labels={"our/gpu": "BIG"})

    body = app.call_with_objects(FILTER, asking({TYPE: "H100"}), [node])

    assert not json.loads(body)["FailedAndUnresolvableNodes"]


@pytest.mark.parametrize("verb", [FILTER, PRIORITIZE])
def test_annotations_that_cannot_be_read_are_refused_by_name_and_value(
    verb: str,
) -> None:
    app = ExtenderApp(nodes=NODES)
    pod = asking({TYPE: "H100,,", MEMORY: "much"})
    verb_call = {"Pod": pod, "Nodes": None, "NodeNames": NAMES}

    result = app.send(verb, json.dumps(verb_call).encode())

    assert result.status_code == 400
    assert f"Pod.metadata.annotations['{TYPE}']: wanted names" in result.text
    assert "got 'H100,,'" in result.text
    assert f"Pod.metadata.annotations['{MEMORY}']: wanted an amount" in result.text
    assert "got 'much'" in result.text


def test_a_pod_without_gpu_may_say_what_it_likes() -> None:
    pod = make_pod(cpu="1", annotations={TYPE: ""})

    assert answer(pod) == (NAMES, {})


# Of two H100 nodes one is full to the target; an A100 node is, too.
BUSY: Final = (
    [
        make_node(name="h100-idle", gpus=8, labels={PRODUCT: H100}),
        make_node(name="a100-best", gpus=8, labels={PRODUCT: A100}),
        make_node(name="h100-best", gpus=8, labels={PRODUCT: H100}),
    ],
    [
        make_pod(name=f"on-{name}", gpus=5, node_name=name)
        for name in ("a100-best", "h100-best")
    ],
)


def test_the_order_of_a_list_counts_before_all_scores() -> None:
    names = ["h100-idle", "a100-best", "h100-best"]
    pod = asking({TYPE: "H100, A100"})

    idle, second, best = priorities(pod, names, nodes=BUSY)

    assert second < idle < best == 10


def test_the_order_of_a_list_can_be_a_weight() -> None:
    names = ["h100-idle", "a100-best", "h100-best"]
    pod = asking({TYPE: "H100, A100"})

    idle, second, best = priorities(pod, names, nodes=BUSY, typeOrder="weighted")

    assert idle < second < best == 10


def test_a_rule_key_that_names_a_model_scores_its_nodes_higher() -> None:
    names = ["h100-best", "a100-best"]

    assert priorities(asking({RULE_KEY: "A100"}), names, nodes=BUSY) == [0, 10]
    assert priorities(asking({RULE_KEY: "free"}), names, nodes=BUSY) == [10, 10]


def test_a_template_node_is_judged_by_its_own_labels() -> None:
    app = ExtenderApp()
    nodes = [NODES[0], NODES[1]]

    body = app.call_with_objects(FILTER, asking({TYPE: "H100"}), nodes)

    assert json.loads(body)["FailedAndUnresolvableNodes"] == {
        "a100": "GPU type does not match"
    }


def test_a_pod_beside_one_that_wants_to_be_alone_waits_for_it() -> None:
    lone = make_pod(
        name="lone",
        gpus=1,
        node_name="h100",
        annotations={"gpu-extender.io/exclusive": "true"},
    )
    app = ExtenderApp(nodes=NODES, pods=[lone])

    found = json.loads(app.call(FILTER, asking(), ["h100", "a100"]))

    assert found["NodeNames"] == ["a100"]
    assert found["FailedAndUnresolvableNodes"] == {
        "h100": "GPUs are not shared with this pod"
    }


def test_a_model_that_nobody_knows_is_counted_and_named() -> None:
    app = ExtenderApp(nodes=NODES)
    pod = asking({TYPE: "H9000"})

    app.call(FILTER, pod, NAMES)

    counted = {
        reason: app.metrics.registry.get_sample_value(
            "gpu_extender_scheduler_rejections_total", {"reason": reason}
        )
        for reason in ("GPU type does not match", "GPU type unknown")
    }
    assert counted == {"GPU type does not match": 3, "GPU type unknown": 1}
    explained = app.client.simulate_post("/explain", body=json.dumps(pod).encode())
    assert explained.status_code == 200
    sentence = explained.json["summary"]["sentence"]
    assert "type 'H9000' is no known GPU model" in sentence
