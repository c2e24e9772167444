"""Answers of the verbs on random clusters, against references without our code."""

import json
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import Tree, make_container, make_node, make_pod
from tests.extender_app import FILTER, PRIORITIZE, ExtenderApp
from tests.oracles.extender import (
    AMD,
    EXCLUSIVE,
    GPU,
    MEMORY,
    MIG_1G,
    MIG_3G,
    MIG_STATE,
    MIN_MEMORY,
    PRODUCT,
    PRODUCTS,
    REPLICAS,
    SHARING,
    TYPE,
    answer,
    classic,
)

NAMES = tuple(f"n{number}" for number in range(6))
ACCELERATORS = ("nvidia-tesla-v100", "nvidia-tesla-a100", "nvidia-tesla-t4")
TYPES = ("H100", "A100", "a100-80gb", "A100-40GB", "L4", "Acme-1", "!T4", "!H100-80GB")
SEEDS = st.integers(0, 2**48)


def draw_labels(dice: random.Random) -> dict[str, str]:
    labels = {}
    if dice.random() < 0.8:
        # beside a product, since it names a model itself
        labels["accelerator"] = dice.choice(ACCELERATORS)
        product = dice.choice(tuple(PRODUCTS))
        labels[PRODUCT] = product
        gib = PRODUCTS[product][1]
        if gib is not None and dice.random() < 0.5:
            labels[MEMORY] = str(int(gib * 1024 * dice.uniform(0.9, 1.0)))
        elif gib is None and dice.random() < 0.7:
            labels[MEMORY] = str(dice.choice((16, 24, 38, 40, 48)) * 1024 - 800)
        part = dice.random()
        if part < 0.2:
            labels[PRODUCT] += "-SHARED"
            labels[REPLICAS] = dice.choice(("2", "4"))
        elif part < 0.3:
            labels[PRODUCT] += "-MIG-3g.40gb"
    if dice.random() < 0.4:
        labels.pop("accelerator", None)
    if dice.random() < 0.3:
        labels["gpu-interconnect"] = "nvlink"
    if dice.random() < 0.2:
        labels[MIG_STATE] = dice.choice(("success", "pending", "failed"))
    return labels


def draw_node(dice: random.Random, name: str) -> Tree:
    labels, offered = draw_labels(dice), {}
    chances = {GPU: 0.9, MIG_1G: 0.5, MIG_3G: 0.2}
    if PRODUCT not in labels and dice.random() < 0.5:
        chances = {AMD: 0.9}
    for resource, chance in chances.items():
        if dice.random() < chance:
            offered[resource] = str(dice.choice((0, 2, 4, 8, 8, 8)))
    capacity = {
        resource: str(int(amount) + dice.choice((0, 0, 1)))
        for resource, amount in offered.items()
    }
    return make_node(name=name, resources=offered, capacity=capacity, labels=labels)


def draw_pod(dice: random.Random, name: str, resources: tuple[str, ...]) -> Tree:
    """Return a pod with containers of all kinds, and wishes of its own."""

    def asking(kind: str, *, is_sidecar: bool = False) -> Tree:
        asked: dict[str, Any] = {}
        if dice.random() < 0.7:
            asked[dice.choice(resources)] = dice.choice(("0", "1", "2", 3, "1e0"))
        requests = asked if dice.random() < 0.7 else None
        return make_container(
            name=f"{kind}-{dice.random()}",
            requests=requests,
            limits=asked,
            is_sidecar=is_sidecar,
        )

    annotations = {}
    if dice.random() < 0.4:
        annotations[TYPE] = ", ".join(dice.sample(TYPES, dice.randint(1, 2)))
    if dice.random() < 0.4:
        annotations[MIN_MEMORY] = dice.choice(("10Gi", "20Gi", "40Gi", "38G", "80Gi"))
    if dice.random() < 0.3:
        annotations[SHARING] = "allowed"
    if dice.random() < 0.1:
        annotations[EXCLUSIVE] = "true"
    status = {}
    if dice.random() < 0.1:
        status["nominatedNodeName"] = dice.choice(NAMES)
    spec = {}
    if dice.random() < 0.2:
        spec["nodeSelector"] = {"accelerator": dice.choice(ACCELERATORS)}
    return make_pod(
        name=name,
        containers=[asking("c") for _ in range(dice.randint(1, 2))],
        init_containers=[
            asking("i", is_sidecar=dice.random() < 0.5)
            for _ in range(dice.choice((0, 0, 1, 2)))
        ],
        annotations=annotations,
        spec=spec,
        status=status,
    )


def draw_cluster(dice: random.Random) -> tuple[list[Tree], list[Tree]]:
    nodes = [draw_node(dice, name) for name in NAMES if dice.random() < 0.95]
    pods = []
    for number in range(dice.randint(0, 14)):
        pod = draw_pod(dice, f"p{number}", (GPU, GPU, MIG_1G))
        pod["status"].pop("nominatedNodeName", None)
        if dice.random() < 0.85:
            pod["spec"]["nodeName"] = dice.choice(NAMES)
        phases = ("Running", "Running", "Pending", "Succeeded", "Failed")
        pod["status"]["phase"] = dice.choice(phases)
        pods.append(pod)
    return nodes, pods


def draw_names(dice: random.Random) -> list[str]:
    names = dice.sample(NAMES, dice.randint(1, len(NAMES)))
    return [*names, "ghost"] if dice.random() < 0.2 else names


@settings(max_examples=250)
@given(seed=SEEDS)
def test_the_filter_answers_as_one_node_after_the_other(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 -- repeatable, not secret
    nodes, pods = draw_cluster(dice)
    resources = dice.choice(((GPU,), (GPU,), (MIG_1G,), (GPU, MIG_1G), (AMD,)))
    pod, names = draw_pod(dice, "asking", resources), draw_names(dice)

    got = json.loads(ExtenderApp(nodes=nodes, pods=pods).call(FILTER, pod, names))

    wanted = answer(nodes, pods, pod, names)
    assert got["NodeNames"] == wanted.passed
    assert got["FailedNodes"] == wanted.failed
    assert got["FailedAndUnresolvableNodes"] == wanted.unresolvable
    assert got["Error"] == ""


@settings(max_examples=150)
@given(seed=SEEDS)
def test_the_classic_score_on_the_wire_is_that_of_its_page(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 -- repeatable, not secret
    nodes, pods = draw_cluster(dice)
    for node in nodes:  # what the page does not speak of
        for label in (PRODUCT, REPLICAS, MEMORY):
            node["metadata"]["labels"].pop(label, None)
    pod, names = draw_pod(dice, "asking", (GPU,)), draw_names(dice)
    pod["metadata"]["annotations"] = {}
    pod["spec"]["containers"].append(make_container(name="one", limits={GPU: 1}))

    got = json.loads(ExtenderApp(nodes=nodes, pods=pods).call(PRIORITIZE, pod, names))

    scores = {item["Host"]: item["Score"] for item in got}
    assert scores == classic(nodes, pods, pod, names)
