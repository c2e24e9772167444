"""kube-scheduler alone, no extender, finds the GPUs that a pod asks of the webhook."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import pytest

from tests.e2e.harness.builders import GPU, JsonObject, make_node, make_pod
from tests.e2e.harness.client import ApiClient
from tests.e2e.harness.pods import nodes_of_pods, wait_until_bound, wait_until_refused
from tests.e2e.harness.product import Product
from tests.e2e.harness.scheduler_config import PLAIN
from tests.e2e.harness.waiting import wait_for

PRODUCT: Final = "nvidia.com/gpu.product"
GKE: Final = "cloud.google.com/gke-accelerator"
TYPE: Final = "gpu-extender.io/gpu-type"
MEMORY: Final = "gpu-extender.io/min-gpu-memory"
NOT_MATCHED: Final = "didn't match Pod's node affinity/selector"
MIG_2G: Final = "nvidia.com/mig-2g.20gb"

NODES: Final = 1000
# Ten of each: nodes that GPU feature discovery labelled, and nodes with the cloud's
# label alone. All others are of the first two models.
OTHERS: Final = (
    {PRODUCT: "NVIDIA-L40S"},
    {PRODUCT: "Tesla-T4", GKE: "nvidia-tesla-t4"},
)
H100: Final = {PRODUCT: "NVIDIA-H100-80GB-HBM3", GKE: "nvidia-h100-80gb"}
H100_BY_CLOUD: Final = {GKE: "nvidia-h100-80gb"}
GPUS: Final = 2


@pytest.fixture
def alone(product: Product) -> Product:
    """The webhook, and kube-scheduler without an extender."""
    product.start()
    product.register_webhook()
    return product


def labels_of(number: int) -> Mapping[str, str]:
    """Return what GPUs the node with this number has: every 50th is an H100."""
    if number % 50:
        return OTHERS[number % 2]
    return H100 if number % 100 else H100_BY_CLOUD


def put_many_nodes(product: Product) -> None:
    """Create 1,000 nodes, wait until they are known, and start kube-scheduler."""
    product.client.create_many(
        make_node(f"node-{number:04}", gpus=GPUS, labels=labels_of(number))
        for number in range(NODES)
    )
    wait_for(
        lambda: len(product.amounts()) == NODES, timeout_seconds=30, what="nodes known"
    )
    product.start_scheduler(PLAIN)


def put_nodes(product: Product, **labels: Mapping[str, str]) -> None:
    """Create a node for each name, and start kube-scheduler once they are known."""
    product.client.create_many(
        make_node(name, gpus=GPUS, labels=own) for name, own in labels.items()
    )
    wait_for(
        lambda: len(product.amounts()) == len(labels),
        timeout_seconds=10,
        what="nodes known",
    )
    product.start_scheduler(PLAIN)


def put_pods(client: ApiClient, count: int, **annotations: str) -> Counter[str]:
    """Create so many pods at once; return how many went to which kind of node."""
    keys = {"types": TYPE, "memory": MEMORY}
    wanted = {keys[name]: value for name, value in annotations.items()}
    for number in range(count):
        client.create(make_pod(f"train-{number}", gpus=1, annotations=wanted))
    for number in range(count):
        wait_until_bound(client, f"train-{number}", timeout_seconds=20)
    return Counter(
        model_of(client.get("Node", node)) for node in nodes_of_pods(client).values()
    )


def model_of(node: JsonObject) -> str:
    labels = node["metadata"]["labels"]
    return str(labels.get(PRODUCT) or labels[GKE])


def test_a_type_is_found_among_1000_nodes(alone: Product) -> None:
    put_many_nodes(alone)

    room = NODES // 50 * GPUS
    used = put_pods(alone.client, room, types="H100")
    alone.client.create(make_pod("one-more", gpus=1, annotations={TYPE: "H100"}))
    refusal = wait_until_refused(alone.client, "one-more")

    assert used == {H100[PRODUCT]: room // 2, H100_BY_CLOUD[GKE]: room // 2}
    assert f"{NODES - NODES // 50} node(s) {NOT_MATCHED}" in refusal["message"]
    assert alone.calls_of("filter") == 0


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param({"types": "!L40S, !T4"}, id="two types excluded"),
        pytest.param({"memory": "80Gi"}, id="memory"),
        pytest.param({"types": "H100, L4", "memory": "80Gi"}, id="types and memory"),
    ],
)
def test_exclusions_and_memory_leave_the_same_few_of_1000_nodes(
    alone: Product, annotations: dict[str, str]
) -> None:
    put_many_nodes(alone)

    used = put_pods(alone.client, 20, **annotations)

    assert used.keys() <= {H100[PRODUCT], H100_BY_CLOUD[GKE]}


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param({TYPE: "L4"}, id="type"),
        pytest.param({TYPE: "L4", MEMORY: "20Gi"}, id="type and memory"),
        pytest.param({MEMORY: "20Gi"}, id="memory"),
    ],
)
def test_a_part_of_a_card_is_kept_out_by_the_memory_that_it_states(
    alone: Product, annotations: dict[str, str]
) -> None:
    client, size = alone.client, "karpenter.k8s.aws/instance-gpu-memory"
    l4 = {"karpenter.k8s.aws/instance-gpu-name": "l4"}
    put_nodes(alone, part={**l4, size: "5722"}, whole={**l4, size: "22888"})

    for number in range(GPUS):
        client.create(make_pod(f"train-{number}", gpus=1, annotations=annotations))
    bound = [wait_until_bound(client, f"train-{n}") for n in range(GPUS)]
    client.create(make_pod("one-more", gpus=1, annotations=annotations))
    refusal = wait_until_refused(client, "one-more")

    assert bound == ["whole", "whole"]
    assert f"1 node(s) {NOT_MATCHED}" in refusal["message"]


def test_nodes_without_labels_stay_open_to_memory(alone: Product) -> None:
    put_nodes(alone, bare={}, small=OTHERS[1])

    alone.client.create(make_pod("train", gpus=1, annotations={MEMORY: "40Gi"}))

    assert wait_until_bound(alone.client, "train") == "bare"


def required(*terms: JsonObject) -> dict[str, Any]:
    """Return the part of a pod's spec that requires one of `terms` of its node."""
    return {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": list(terms)
                }
            }
        }
    }


def among(*nodes: str) -> JsonObject:
    values = list(nodes)
    return {
        "matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": values}
        ]
    }


def pinned(node: str) -> JsonObject:
    """Return the term that pins a DaemonSet's pod to its node."""
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    return {"matchFields": fields}


def test_a_pods_own_affinity_and_its_type_both_hold(alone: Product) -> None:
    client = alone.client
    put_nodes(alone, right=H100, wrong=OTHERS[0], elsewhere=H100_BY_CLOUD)
    wanted = {TYPE: "H100"}

    def put(name: str, *terms: JsonObject) -> None:
        client.create(make_pod(name, gpus=1, annotations=wanted, spec=required(*terms)))

    put("either", among("wrong"), among("right", "wrong"))
    put("daemon", pinned("right"))
    put("daemon-elsewhere", pinned("elsewhere"))
    put("astray", pinned("wrong"))

    assert wait_until_bound(client, "either") == "right"
    assert wait_until_bound(client, "daemon") == "right"
    assert wait_until_bound(client, "daemon-elsewhere") == "elsewhere"
    assert NOT_MATCHED in wait_until_refused(client, "astray")["message"]


def test_a_pod_that_fell_onto_a_whole_gpu_takes_none_that_is_too_small(
    alone: Product,
) -> None:
    put_nodes(alone, large=OTHERS[0], small=OTHERS[1])

    for number in range(GPUS):
        alone.client.create(make_pod(f"train-{number}", resources={MIG_2G: 1}))
    bound = [wait_until_bound(alone.client, f"train-{n}") for n in range(GPUS)]
    pod = alone.client.get("Pod", "train-0")

    assert pod["spec"]["containers"][0]["resources"]["limits"] == {GPU: "1"}
    assert bound == ["large", "large"]
