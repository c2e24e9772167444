"""Links that cannot be read, through the verbs: unknown, counted, and named."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from service.collectors import ClusterCollector
from tests.builders import Tree, make_node, make_pod
from tests.extender_app import FILTER, PREEMPT, PRIORITIZE, ExtenderApp

LINKS: Final = "gpu-extender.io/links"
NAMES: Final = ("odd", "pair")
PAIR: Final = '{"layout": "bridged-pairs-2"}'

# What is wrong -> the annotation, and words of what is said of it.
BAD_LINKS: Final = {
    "broken JSON": ("[[", "wanted JSON"),
    "a broken matrix": ("GPU0 GPU1\nGPU0 X NV4", "wanted 2 rows"),
    "no code": ('[["X", "NV4"], ["?", "X"]]', "GPU1 to GPU0: wanted NV1"),
    "not symmetric": ('[["X", "NV1"], ["NV2", "X"]]', "not symmetric"),
    "17 GPUs": (
        json.dumps([["X" if i == j else "NV4" for j in range(17)] for i in range(17)]),
        "wanted 1 to 16 GPUs, got 17",
    ),
    "an unknown model": ('{"layout": "dgx-9"}', "dgx-9"),
    "a model with more GPUs": ('{"layout": "dgx-2"}', "16"),
    "both": ('{"matrix": [["X"]], "layout": "dgx-2"}', "one of"),
    "garbage": ("\x1b[31m\x00", "GPU0"),
    "nothing": ("", "got no text"),
}


def app_with(links: str | None, topology: str) -> ExtenderApp:
    """Return the application over a node with such links, and one with a bridge."""
    told = {} if links is None else {LINKS: links}
    return ExtenderApp(
        nodes=[
            make_node(name="odd", gpus=2, annotations=told),
            make_node(name="pair", gpus=2, annotations={LINKS: PAIR}),
        ],
        pods=[make_pod(name="victim", gpus=2, node_name="odd", uid="victim")],
        settings={
            "extender": {"counts": "trust"},
            "scoring": {"topology": topology, "normalize": "rank"},
        },
    )


def asking(gpus: int, annotations: Mapping[str, str]) -> Tree:
    return make_pod(name="new", gpus=gpus, annotations=annotations)


PODS: Final = [
    asking(2, {"gpu-extender.io/linked": "required"}),
    asking(2, {"gpu-extender.io/linked": "preferred"}),
    asking(2, {}),
    asking(1, {}),
]


def answers(app: ExtenderApp) -> Iterator[bytes]:
    """Yield what the verbs answer about each pod."""
    victims = {"odd": {"Pods": [{"UID": "victim"}], "NumPDBViolations": 0}}
    for pod in PODS:
        yield app.call(FILTER, pod, NAMES)
        yield app.call(PRIORITIZE, pod, NAMES)
        call = {"Pod": pod, "NodeNameToMetaVictims": victims}
        result = app.send(PREEMPT, json.dumps(call).encode())
        assert result.status_code == 200, result.text
        yield result.content


def unreadable(app: ExtenderApp) -> float:
    """Return the metric of nodes whose links cannot be read."""
    (value,) = (
        family.samples[0].value
        for family in ClusterCollector(app.cell).collect()
        if family.name == "gpu_extender_unreadable_link_nodes"
    )
    return value


@pytest.mark.parametrize("topology", ["auto", "graded", "label"])
@pytest.mark.parametrize("case", BAD_LINKS)
def test_bad_links_are_as_good_as_none_and_are_counted(
    case: str, topology: str
) -> None:
    links, _ = BAD_LINKS[case]
    odd, plain = app_with(links, topology), app_with(None, topology)

    found = list(answers(odd))

    assert found == list(answers(plain))
    assert all(set(json.loads(body)["NodeNames"]) == set(NAMES) for body in found[::3])
    assert all(json.loads(body)["NodeNameToMetaVictims"] for body in found[2::3])
    assert (unreadable(odd), unreadable(plain)) == (1.0, 0.0)


@pytest.mark.parametrize("case", BAD_LINKS)
def test_an_explanation_names_the_fault(case: str) -> None:
    links, fault = BAD_LINKS[case]
    app = app_with(links, "auto")

    result = app.client.simulate_post(
        "/explain", body=json.dumps(PODS[0]).encode(), query_string="nodes=true"
    )

    assert result.status_code == 200
    rows: dict[str, Any] = {row["name"]: row for row in result.json["nodes"]}
    assert rows["odd"]["verdict"]["feasible"] is True
    detail = rows["odd"]["verdict"]["detail"]
    assert f"links unknown: annotation {LINKS}: " in detail
    assert fault in detail
    assert "links unknown" not in rows["pair"]["verdict"]["detail"]
