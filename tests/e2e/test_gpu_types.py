"""Pods get the GPU types that they ask for, in their order, and never another one."""

import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import pytest

from tests.e2e.harness.builders import JsonObject, make_node, make_pod
from tests.e2e.harness.client import ApiClient
from tests.e2e.harness.pods import (
    delete_quietly,
    nodes_of_pods,
    wait_until_bound,
    wait_until_refused,
)
from tests.e2e.harness.product import Product
from tests.e2e.harness.waiting import wait_for

PRODUCT: Final = "nvidia.com/gpu.product"
TYPE: Final = "gpu-extender.io/gpu-type"
MEMORY: Final = "gpu-extender.io/min-gpu-memory"
WRONG_TYPE: Final = "GPU type does not match"
TOO_SMALL: Final = "Too little GPU memory"
NOT_ALONE: Final = "GPUs are not shared with this pod"
# node name -> the label that GPU feature discovery gives it
PRODUCTS: Final = {
    "h100": "NVIDIA-H100-80GB-HBM3",
    "a100-80": "NVIDIA-A100-SXM4-80GB",
    "a100-40": "NVIDIA-A100-SXM4-40GB",
    "l40s": "NVIDIA-L40S",
    "l4": "NVIDIA-L4",
    "t4": "Tesla-T4",
}
GPUS: Final = 2

NODES: Final = 1000
MATCHING: Final = 10
ROUNDS: Final = 20
BOUND_SECONDS: Final = 5.0
QUIET_SECONDS: Final = 60.0
FILTER_CALLS: Final = 3


def put_nodes(client: ApiClient) -> None:
    """Create a node of each type; by their score, those with a pod are the best."""
    client.create_many(
        make_node(name, gpus=GPUS, labels={PRODUCT: product})
        for name, product in PRODUCTS.items()
    )


def wait_until_settled(client: ApiClient, count: int) -> Counter[str]:
    """Wait until all pods are bound or refused; return how many each node has."""

    def is_settled() -> bool:
        pods = client.list("Pod", namespace="default")
        return len(pods) == count and all(
            any(
                c["type"] == "PodScheduled" for c in pod["status"].get("conditions", ())
            )
            for pod in pods
        )

    wait_for(is_settled, timeout_seconds=30, what="all pods bound or refused")
    return Counter(nodes_of_pods(client).values())


def test_types_are_taken_in_the_order_of_the_list(product: Product) -> None:
    client = product.client
    put_nodes(client)
    # In the classic score a node at half its GPUs leads an empty one by far.
    client.create(make_pod("on-h100", gpus=1, node_name="h100"))
    client.create(make_pod("on-l40s", gpus=1, node_name="l40s"))
    product.start_all()

    landed = []
    for number in range(4):
        annotations = {TYPE: "L4, H100, A100-80GB"}
        client.create(make_pod(f"train-{number}", gpus=1, annotations=annotations))
        landed.append(wait_until_bound(client, f"train-{number}"))

    # Two on the first type, one on what is left of the second, and then the third.
    assert landed == ["l4", "l4", "h100", "a100-80"]


ASKED: Final = [
    pytest.param({TYPE: "A100"}, ["a100-40", "a100-80"], WRONG_TYPE, id="family"),
    pytest.param({TYPE: "L4"}, ["l4"], WRONG_TYPE, id="L4 is not L40S"),
    pytest.param(
        {TYPE: "!L4, !Tesla-T4, !H100"},
        ["a100-40", "a100-80", "l40s"],
        WRONG_TYPE,
        id="excluded types",
    ),
    pytest.param(
        {TYPE: "A100, !A100-40GB"},
        ["a100-80"],
        WRONG_TYPE,
        id="a family without one of its models",
    ),
    pytest.param(
        {MEMORY: "48Gi"},
        ["a100-80", "h100", "l40s"],
        TOO_SMALL,
        id="memory",
    ),
    pytest.param({MEMORY: "80Gi"}, ["a100-80", "h100"], TOO_SMALL, id="nominal memory"),
]


def fill_up(
    product: Product, annotations: Mapping[str, str], expected: Sequence[str]
) -> Sequence[str]:
    """Create two pods more than there is room for; return why those are refused.

    The others must be on the nodes that are expected.
    """
    client = product.client
    put_nodes(client)
    product.start_all()

    count = GPUS * len(expected) + 2
    client.create_many(
        make_pod(f"train-{number}", gpus=1, annotations=annotations)
        for number in range(count)
    )
    used = wait_until_settled(client, count)
    pods = client.list("Pod", namespace="default")
    left = [pod for pod in pods if not pod["spec"].get("nodeName")]
    refusals = [wait_until_refused(client, pod["metadata"]["name"]) for pod in left]

    assert used == dict.fromkeys(expected, GPUS)
    assert len(left) == 2
    return [refusal["message"] for refusal in refusals]


@pytest.mark.parametrize(("annotations", "expected", "reason"), ASKED)
def test_a_type_or_size_that_is_not_asked_for_is_never_used(
    product: Product,
    annotations: Mapping[str, str],
    expected: Sequence[str],
    reason: str,
) -> None:
    messages = fill_up(product, annotations, expected)

    assert all(reason in message for message in messages)


def test_a_pod_that_wants_to_be_alone_reads_why_it_waits(product: Product) -> None:
    client = product.client
    client.create(make_node("node-a", gpus=GPUS))
    client.create(make_pod("first", gpus=1, node_name="node-a", priority=0))
    product.start_all()

    alone = {"gpu-extender.io/exclusive": "true"}
    client.create(make_pod("alone", gpus=1, annotations=alone, priority=1000))
    refusal = wait_until_refused(client, "alone")

    assert NOT_ALONE in refusal["message"]
    # A GPU is free: kube-scheduler would find nobody to evict.
    assert client.get("Pod", "first")["metadata"].get("deletionTimestamp") is None
    client.delete("Pod", "first")
    assert wait_until_bound(client, "alone") == "node-a"


def put_many_nodes(client: ApiClient) -> None:
    """Create 1,000 GPU nodes of three models; the few H100 ones stand together."""
    others = ("NVIDIA-L40S", "Tesla-T4")

    def product_of(number: int) -> str:
        first = NODES // 2
        if first <= number < first + MATCHING:
            return "NVIDIA-H100-80GB-HBM3"
        return others[number % len(others)]

    client.create_many(
        make_node(f"node-{number:04}", gpus=8, labels={PRODUCT: product_of(number)})
        for number in range(NODES)
    )


def make_picky(name: str, wanted: str) -> JsonObject:
    """Return a pod that asks for a type, as no webhook has seen it."""
    return make_pod(name, gpus=1, annotations={TYPE: wanted})


def wait_until_known(product: Product) -> None:
    """Wait until all nodes are in the cache, and so in kube-scheduler's."""
    wait_for(
        lambda: len(product.amounts()) == NODES, timeout_seconds=20, what="nodes known"
    )


@pytest.mark.long
@pytest.mark.parametrize(
    "is_together",
    [
        # kube-scheduler takes nodes that are there when it starts in any order.
        pytest.param(False, id="among the others"),
        # It asks about 420 nodes at a time, so most calls are about none that match.
        pytest.param(True, id="one after the other"),
    ],
)
def test_the_few_of_1000_nodes_that_match_are_found_soon(
    product: Product, is_together: bool
) -> None:
    client = product.client
    if is_together:
        product.start_all()
        put_many_nodes(client)
        wait_until_known(product)
    else:
        put_many_nodes(client)
        product.start_all()

    seconds = []
    for number in range(ROUNDS):
        name = f"train-{number}"
        began = time.monotonic()
        client.create(make_picky(name, "H100"))
        node = wait_until_bound(client, name, timeout_seconds=BOUND_SECONDS)
        seconds.append(time.monotonic() - began)
        labels = client.get("Node", node)["metadata"]["labels"]
        assert labels[PRODUCT] == PRODUCTS["h100"]
        delete_quietly(client, name)
    calls = product.calls_of("filter")
    print(  # noqa: T201 - figures, shown with -rP
        f"{len(seconds)} of {ROUNDS} bound on {MATCHING} of {NODES} nodes, median"
        f" {statistics.median(seconds):.3f} s, last {max(seconds):.3f} s,"
        f" {calls} filter calls"
    )


@pytest.mark.long
def test_a_pod_that_matches_none_of_1000_nodes_rests(product: Product) -> None:
    client = product.client
    put_many_nodes(client)
    product.start_all()

    client.create(make_picky("train", "H200"))
    refusal = wait_until_refused(client, "train")
    time.sleep(QUIET_SECONDS)
    calls = product.calls_of("filter")
    print(f"{calls} filter calls in a quiet minute")  # noqa: T201 - a figure, shown with -rP

    assert WRONG_TYPE in refusal["message"]
    assert nodes_of_pods(client) == {}
    assert calls <= FILTER_CALLS
