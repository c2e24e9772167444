"""Who is spared when pods are evicted: by budget, by time, by a failure of ours."""

from typing import Final

import pytest

from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.kubelet import complete_deletion
from tests.e2e.harness.pods import (
    nodes_of_pods,
    wait_until_bound,
    wait_until_refused,
)
from tests.e2e.harness.preempting import (
    GPUS,
    make_urgent,
    names_of_pods,
    put_full_node,
    start,
    stays_pending,
)
from tests.e2e.harness.product import Product
from tests.e2e.harness.waiting import stays_true, wait_for

FORMS: Final = pytest.mark.parametrize(
    "has_cache", [True, False], ids=["names", "whole nodes"]
)


@pytest.mark.parametrize("counts", ["trust", "enforce"])
def test_while_its_victims_end_a_pod_keeps_its_place_and_evicts_no_more(
    control_plane: ControlPlane, counts: str
) -> None:
    client = control_plane.client
    for name, priority in (("node-a", 1), ("node-b", 2)):
        put_full_node(client, name, priorities=[priority] * GPUS, grace_seconds=300)
    before = names_of_pods(client)
    settings = {"extender": {"counts": counts}}
    with Product(control_plane, settings=settings) as product:
        start(product)

        client.create(make_urgent("urgent"))
        wait_for(
            lambda: len(before - names_of_pods(client)) == 2,
            timeout_seconds=20,
            what="two pods on their way out",
        )
        victims = before - names_of_pods(client)
        # Each of these has kube-scheduler try the pod again.
        for number in range(5):
            node = {"metadata": {"annotations": {"seen": str(number)}}}
            client.patch("Node", "node-b", node)
            stays_true(
                lambda: before - names_of_pods(client) == victims,
                for_seconds=0.5,
                what="no more victims",
            )
        nominated = client.get("Pod", "urgent")["status"]["nominatedNodeName"]
        for name in victims:
            complete_deletion(client, name)
        node_name = wait_until_bound(client, "urgent")

    assert nominated == node_name == "node-a"
    assert before - names_of_pods(client) == victims


@FORMS
def test_pods_that_a_disruption_budget_protects_are_spared(
    product: Product, has_cache: bool
) -> None:
    client = product.client
    # By priority alone, kube-scheduler would take the pods of node-a.
    put_full_node(client, "node-a", priorities=[1] * GPUS)
    put_full_node(client, "node-b", priorities=[2] * GPUS)
    for pod in client.list("Pod"):
        name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
        client.patch("Pod", name, {"metadata": {"labels": {"on": node}}})
    client.create(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "precious", "namespace": "default"},
            "spec": {
                "minAvailable": GPUS,
                "selector": {"matchLabels": {"on": "node-a"}},
            },
        }
    )
    start(product, nodeCacheCapable=has_cache)

    client.create(make_urgent("urgent"))

    assert wait_until_bound(client, "urgent") == "node-b"
    on_a = [node for node in nodes_of_pods(client).values() if node == "node-a"]
    assert len(on_a) == GPUS


def test_a_preempt_call_that_fails_evicts_nobody(product: Product) -> None:
    client = product.client
    put_full_node(client, "node-a", priorities=[1] * GPUS)
    before = names_of_pods(client)
    start(product, preemptVerb="nowhere")

    with product.outage():
        client.create(make_urgent("urgent"))
        wait_until_refused(client, "urgent")
        stays_pending(client, beside=before | {"urgent"})


def test_a_service_that_hangs_evicts_nobody_and_later_what_is_needed(
    product: Product,
) -> None:
    client = product.client
    put_full_node(client, "node-a", priorities=[1, 2, 3, 4])
    before = names_of_pods(client)
    start(product)

    with product.outage():
        product.service.process.freeze()
        client.create(make_urgent("urgent"))
        wait_until_refused(client, "urgent")
        stays_pending(client, beside=before | {"urgent"})
        product.service.process.thaw()
    # kube-scheduler tries a pod again that its own count refused when GPUs are freed.
    client.delete("Pod", "node-a-3-of-4", grace_seconds=0)
    node = wait_until_bound(client, "urgent")

    assert node == "node-a"
    assert before - names_of_pods(client) == {"node-a-3-of-4", "node-a-0-of-1"}
