"""A pod of high priority evicts what it needs, and nothing where we would refuse it."""

from collections.abc import Mapping
from typing import Final

import pytest

from tests.e2e.harness.builders import make_node, make_pod
from tests.e2e.harness.pods import (
    nodes_of_pods,
    wait_until_bound,
    wait_until_refused,
)
from tests.e2e.harness.preempting import (
    GPUS,
    IN_FLUX,
    QUIET_SECONDS,
    make_urgent,
    names_of_pods,
    put_full_node,
    start,
    stays_pending,
)
from tests.e2e.harness.product import Product
from tests.e2e.harness.waiting import stays_true, wait_for

PRODUCT: Final = "nvidia.com/gpu.product"
H100: Final = {PRODUCT: "NVIDIA-H100-80GB-HBM3"}
L40S: Final = {PRODUCT: "NVIDIA-L40S"}
WANTS_H100: Final = {"gpu-extender.io/gpu-type": "H100"}
TWO: Final = ("urgent-0", "urgent-1")
FORMS: Final = pytest.mark.parametrize(
    "has_cache", [True, False], ids=["names", "whole nodes"]
)


@FORMS
@pytest.mark.parametrize(
    ("labels", "refusing_labels", "annotations"),
    [
        pytest.param({}, IN_FLUX, {}, id="GPUs that are not ready"),
        pytest.param(H100, L40S, WANTS_H100, id="GPUs of another type"),
    ],
)
def test_exactly_the_victims_that_are_needed_and_none_where_we_refuse(
    product: Product,
    labels: Mapping[str, str],
    refusing_labels: Mapping[str, str],
    annotations: Mapping[str, str],
    has_cache: bool,
) -> None:
    client = product.client
    # kube-scheduler itself would rather evict pods of priority 0.
    put_full_node(client, "refusing", priorities=[0] * GPUS, labels=refusing_labels)
    put_full_node(client, "node-a", priorities=[1, 2, 3, 4], labels=labels)
    before = names_of_pods(client)
    start(product, nodeCacheCapable=has_cache)

    client.create(make_urgent("urgent", annotations=annotations))
    node = wait_until_bound(client, "urgent")
    stays_true(
        lambda: len(names_of_pods(client)) == len(before) - 1,
        for_seconds=1,
        what="two pods gone, one more there",
    )

    assert node == "node-a"
    assert before - names_of_pods(client) == {"node-a-0-of-1", "node-a-1-of-2"}
    assert product.calls_of("preempt") >= 1


@FORMS
def test_nobody_is_evicted_when_every_node_would_refuse(
    product: Product, has_cache: bool
) -> None:
    client = product.client
    put_full_node(client, "refusing-a", priorities=[0] * GPUS, labels=IN_FLUX)
    put_full_node(client, "refusing-b", priorities=[1] * GPUS, labels=IN_FLUX)
    before = names_of_pods(client)
    start(product, nodeCacheCapable=has_cache)

    client.create(make_urgent("urgent"))
    refusal = wait_until_refused(client, "urgent")
    stays_pending(client, beside=before | {"urgent"})

    assert refusal["reason"] == "Unschedulable"
    assert product.calls_of("preempt") >= 1


def test_a_node_that_we_refuse_though_it_has_room_is_not_cleared(
    product: Product,
) -> None:
    client = product.client
    client.create(make_node("refusing", gpus=GPUS, labels=IN_FLUX))
    client.create(make_pod("small", gpus=1, priority=0, node_name="refusing"))
    start(product)

    client.create(make_urgent("urgent"))
    wait_until_refused(client, "urgent")
    stays_pending(client, beside={"small", "urgent"})

    # The refusal says that eviction does not help.
    assert product.calls_of("preempt") == 0


@pytest.mark.parametrize(
    ("nodes", "victims"),
    [
        pytest.param(
            {"node-a": [1, 2, 3, 4]},
            {"node-a-0-of-1", "node-a-1-of-2", "node-a-2-of-3", "node-a-3-of-4"},
            id="one node for both",
        ),
        pytest.param(
            {"node-a": [1, 2, 5, 6], "node-b": [3, 4, 7, 8]},
            {"node-a-0-of-1", "node-a-1-of-2", "node-b-0-of-3", "node-b-1-of-4"},
            id="a node for each",
        ),
    ],
)
def test_two_preemptors_at_once_evict_for_two(
    product: Product, nodes: Mapping[str, list[int]], victims: set[str]
) -> None:
    client = product.client
    put_full_node(client, "refusing", priorities=[0] * GPUS, labels=IN_FLUX)
    for name, priorities in nodes.items():
        put_full_node(client, name, priorities=priorities)
    before = names_of_pods(client)
    start(product)

    client.create_many(make_urgent(name) for name in TWO)
    landed = {wait_until_bound(client, name) for name in TWO}
    stays_true(
        lambda: before - names_of_pods(client) == victims,
        for_seconds=1,
        what="exactly four pods gone",
    )

    assert landed == nodes.keys()


def test_nor_does_eviction_in_the_background_touch_a_node_that_refuses(
    product: Product,
) -> None:
    client = product.client
    put_full_node(client, "refusing", priorities=[0] * GPUS, labels=IN_FLUX)
    for name in ("node-a", "node-b"):
        put_full_node(client, name, priorities=[1] * GPUS)
    before = names_of_pods(client)
    start(product, flags=())

    client.create_many(make_urgent(name) for name in TWO)
    wait_for(
        lambda: len(before - names_of_pods(client)) >= 4,
        timeout_seconds=20,
        what="four pods gone",
    )
    stays_true(
        lambda: list(nodes_of_pods(client).values()).count("refusing") == GPUS,
        for_seconds=QUIET_SECONDS,
        what="no pod of the refusing node gone",
    )
