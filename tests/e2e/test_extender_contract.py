"""What becomes of a pod by what the extender answers, in every way it may be asked."""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from tests.e2e.harness.builders import GPU, IMAGE, JsonObject, make_node, make_pod
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.pods import (
    delete_quietly,
    nodes_of_pods,
    wait_until_bound,
    wait_until_refused,
)
from tests.e2e.harness.product import Product
from tests.e2e.harness.scheduler_config import with_extender
from tests.e2e.harness.waiting import stays_true, wait_for

IN_FLUX: Final = {"nvidia.com/mig.config.state": "pending"}
NOT_READY: Final = "GPUs are not ready"
INSUFFICIENT: Final = "Insufficient GPUs"
NOWHERE: Final = "nowhere"  # a path that is not served
GPUS: Final = 8
SOON_SECONDS: Final = 2.0


def put_nodes(product: Product, *names: str) -> None:
    """Create nodes: of those with eight GPUs, all but `empty` are at their target.

    By its score `in-flux` is as good as `target`; only the filter keeps pods off it.
    """
    nodes = {
        "no-gpu": make_node("no-gpu"),
        "too-small": make_node("too-small", gpus=1),
        "in-flux": make_node("in-flux", gpus=GPUS, labels=IN_FLUX),
        "empty": make_node("empty", gpus=GPUS),
        "target": make_node("target", gpus=GPUS),
    }
    chosen = names or tuple(nodes)
    product.client.create_many(nodes[name] for name in chosen)
    product.client.create_many(
        make_pod(f"on-{name}", gpus=5, cpu="32", node_name=name)
        for name in ("in-flux", "target")
        if name in chosen
    )


def start(product: Product, **extender: Any) -> None:
    """Start everything, with fields of the scheduler's extender replaced."""
    product.start()
    config = with_extender(product.scheduler_config(), **extender)
    product.start_scheduler(config)


@pytest.mark.parametrize("has_cache", [True, False], ids=["names", "whole nodes"])
def test_filter_and_score_decide_in_both_forms_of_the_question(
    product: Product, has_cache: bool
) -> None:
    put_nodes(product)
    start(product, nodeCacheCapable=has_cache)

    product.client.create(make_pod("train", gpus=2))

    assert wait_until_bound(product.client, "train") == "target"
    assert (product.calls_of("filter"), product.calls_of("prioritize")) == (1, 1)


@pytest.mark.parametrize("has_cache", [True, False], ids=["names", "whole nodes"])
def test_a_pod_that_every_node_refuses_is_told_why_in_both_forms(
    product: Product, has_cache: bool
) -> None:
    put_nodes(product, "no-gpu", "too-small", "in-flux")
    start(product, nodeCacheCapable=has_cache)

    product.client.create(make_pod("train", gpus=2))
    refusal = wait_until_refused(product.client, "train")

    assert refusal["reason"] == "Unschedulable"
    assert f"1 {NOT_READY}" in refusal["message"]
    assert f"2 Insufficient {GPU}" in refusal["message"]


def test_a_single_node_that_passes_needs_no_score(product: Product) -> None:
    put_nodes(product, "in-flux", "empty")
    start(product)

    product.client.create(make_pod("train", gpus=2))

    assert wait_until_bound(product.client, "train") == "empty"
    assert (product.calls_of("filter"), product.calls_of("prioritize")) == (1, 0)


@pytest.mark.parametrize(
    ("extender", "node", "calls"),
    [
        pytest.param(
            {"prioritizeVerb": None, "weight": None}, "empty", (1, 0), id="filter only"
        ),
        pytest.param({"filterVerb": None}, "target", (0, 1), id="scores only"),
    ],
)
def test_a_verb_that_is_not_configured_is_done_without(
    product: Product,
    extender: Mapping[str, Any],
    node: str,
    calls: tuple[int, int],
) -> None:
    # Left alone, kube-scheduler takes the node with more CPU free.
    put_nodes(product, "empty", "target")
    start(product, **extender)

    product.client.create(make_pod("train", gpus=2))

    assert wait_until_bound(product.client, "train") == node
    assert (product.calls_of("filter"), product.calls_of("prioritize")) == calls


def prefer_node(name: str) -> JsonObject:
    """Return the part of a pod's spec that makes it prefer a node."""
    expression = {
        "key": "kubernetes.io/hostname",
        "operator": "In",
        "values": [name],
    }
    preference = {"matchExpressions": [expression]}
    terms = [{"weight": 100, "preference": preference}]
    node_affinity = {"preferredDuringSchedulingIgnoredDuringExecution": terms}
    return {"affinity": {"nodeAffinity": node_affinity}}


@pytest.mark.parametrize(
    ("our_weight", "affinity_weight", "node"),
    [
        # 10 x 10 x 10 of ours against 100 x 2 of the plugin.
        pytest.param(10, 2, "target", id="as configured we outweigh a preference"),
        # 10 x 1 x 10 against 100 x 2.
        pytest.param(1, 2, "empty", id="at weight 1 a preference outweighs us"),
        # 10 x 10 x 10 against 100 x 20.
        pytest.param(10, 20, "empty", id="a plugin of weight 20 outweighs us"),
    ],
)
def test_weights_settle_between_our_score_and_a_preference(
    product: Product, our_weight: int, affinity_weight: int, node: str
) -> None:
    put_nodes(product, "empty", "target")
    product.start()
    config = with_extender(product.scheduler_config(), weight=our_weight)
    config["profiles"][0]["plugins"] = {
        "score": {
            "disabled": [{"name": "NodeAffinity"}],
            "enabled": [{"name": "NodeAffinity", "weight": affinity_weight}],
        }
    }
    product.start_scheduler(config)

    product.client.create(make_pod("train", gpus=2, spec=prefer_node("empty")))

    assert wait_until_bound(product.client, "train") == node


@pytest.mark.parametrize(
    ("verb", "is_ignorable", "reason"),
    [
        pytest.param("filterVerb", False, "SchedulerError", id="filter"),
        pytest.param("filterVerb", True, None, id="filter, ignorable"),
        pytest.param("prioritizeVerb", False, None, id="prioritize"),
    ],
)
def test_a_verb_that_fails(
    product: Product, verb: str, is_ignorable: bool, reason: str | None
) -> None:
    put_nodes(product, "empty", "too-small")
    start(product, ignorable=is_ignorable, **{verb: NOWHERE})

    with product.outage():
        product.client.create(make_pod("train", gpus=2))
        if reason is None:
            assert wait_until_bound(product.client, "train") == "empty"
        else:
            refusal = wait_until_refused(product.client, "train")
            assert refusal["reason"] == reason
            assert nodes_of_pods(product.client) == {}


def with_init_container(gpus: int) -> JsonObject:
    """Return a pod that asks GPUs in an init container alone."""
    amounts = {GPU: str(gpus)}
    init = {
        "name": "init",
        "image": IMAGE,
        "resources": {"requests": amounts, "limits": amounts},
    }
    return make_pod("train", spec={"initContainers": [init]})


@pytest.mark.parametrize(
    ("pod", "extender", "node", "is_asked"),
    [
        pytest.param(
            with_init_container(2), {}, "empty", True, id="GPUs of an init container"
        ),
        pytest.param(
            make_pod("train", resources={GPU: 0}, node_selector={"is": "no-gpu"}),
            {},
            "no-gpu",
            True,
            id="0 GPUs",
        ),
        pytest.param(
            make_pod("train", node_selector={"is": "no-gpu"}),
            {},
            "no-gpu",
            False,
            id="no GPUs",
        ),
        pytest.param(
            make_pod("train", node_selector={"is": "no-gpu"}),
            {"managedResources": None},
            "no-gpu",
            True,
            id="no GPUs, every pod is sent",
        ),
    ],
)
def test_which_pods_are_sent_and_what_they_are_told(
    product: Product,
    pod: JsonObject,
    extender: Mapping[str, Any],
    node: str,
    is_asked: bool,
) -> None:
    put_nodes(product, "no-gpu", "in-flux", "empty")
    labels = {"metadata": {"labels": {"is": "no-gpu"}}}
    product.client.patch("Node", "no-gpu", labels)
    start(product, **extender)

    product.client.create(pod)

    assert wait_until_bound(product.client, "train") == node
    assert (product.calls_of("filter") > 0) is is_asked


def wait_until_counted(product: Product, node: str) -> None:
    """Wait until the one GPU of a node is counted as taken."""
    wait_for(
        lambda: product.amounts()[node].get(GPU) == (1, 1),
        timeout_seconds=5,
        what="pod counted",
    )


def test_a_scheduler_that_leaves_the_counting_to_us_never_overfills_a_node(
    control_plane: ControlPlane,
) -> None:
    client = control_plane.client
    client.create_many(make_node(f"node-{i}", gpus=1) for i in range(2))
    settings = {"extender": {"counts": "enforce"}}
    with Product(control_plane, settings=settings) as product:
        start(product, managedResources=[{"name": GPU, "ignoredByScheduler": True}])

        for name in ("first", "second"):
            client.create(make_pod(name, gpus=1))
            node = wait_until_bound(client, name)
            # kube-scheduler ignores the resource, so nobody but us knows of the pod.
            wait_until_counted(product, node)
        client.create(make_pod("third", gpus=1))
        refusal = wait_until_refused(client, "third")
        stays_true(
            lambda: len(nodes_of_pods(client)) == 2,
            for_seconds=1,
            what="third pod pending",
        )
        freed = nodes_of_pods(client)["first"]
        delete_quietly(client, "first")
        node = wait_until_bound(client, "third", timeout_seconds=SOON_SECONDS)

    assert f"2 {INSUFFICIENT}" in refusal["message"]
    assert node == freed
