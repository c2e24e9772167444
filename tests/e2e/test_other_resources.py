"""The other extended resources of a GPU pod, as kube-scheduler counts them."""

from typing import Any, Final

import pytest

from tests.e2e.harness.builders import make_node, make_pod
from tests.e2e.harness.pods import wait_until_bound, wait_until_refused
from tests.e2e.harness.product import Product
from tests.e2e.harness.waiting import wait_for

SLICE: Final = "nvidia.com/mig-1g.5gb"
MIG_2G: Final = "nvidia.com/mig-2g.20gb"
MIG_1G: Final = "nvidia.com/mig-1g.10gb"
RECORD: Final = "gpu-webhook.k8s.io/fallback"


@pytest.mark.parametrize(
    "resource",
    ["rdma/shared_mlx5", "vpc.amazonaws.com/efa", "hugepages-2Mi", "example.com/fpga"],
)
def test_a_node_without_another_resource_of_the_pod_is_told_as_kube_scheduler_does(
    product: Product, resource: str
) -> None:
    client = product.client
    amount = "64Mi" if resource.startswith("hugepages") else "2"
    client.create(make_node("mig-a", resources={SLICE: 14}))
    client.create(make_node("gpu-b", gpus=2, resources={resource: amount}))
    product.start_all()
    wait_for(lambda: len(product.amounts()) == 2, timeout_seconds=10, what="nodes")

    client.create(
        make_pod("train", cpu="1", memory="1Gi", resources={SLICE: 1, resource: amount})
    )

    refusal = wait_until_refused(client, "train")
    assert f"Insufficient {resource}" in refusal["message"]
    page = product.get_json("/explain?namespace=default&pod=train&nodes=true")
    reasons = {row["name"]: row["scheduler"]["reason"] for row in page["nodes"]}
    assert reasons["mig-a"] == f"Insufficient {resource}"

    client.patch(
        "Node",
        "mig-a",
        {"status": {"capacity": {resource: amount}, "allocatable": {resource: amount}}},
        subresource="status",
    )

    assert wait_until_bound(client, "train") == "mig-a"


@pytest.mark.parametrize(
    ("node", "asked"),
    [
        pytest.param({"cpu": "1"}, {"cpu": "4"}, id="cpu"),
        pytest.param({"memory": "1Gi"}, {"memory": "4Gi"}, id="memory"),
        pytest.param({"pods": 0}, {}, id="no place for a pod"),
        pytest.param({}, {"resources": {"rdma/shared_mlx5": 1}}, id="RDMA"),
    ],
)
def test_a_pod_falls_where_the_free_slice_is_on_a_node_that_it_cannot_use(
    product: Product, node: dict[str, Any], asked: dict[str, Any]
) -> None:
    client = product.client
    client.create(make_node("small", **{"resources": {MIG_2G: 1}, **node}))
    client.create(make_node("large", resources={MIG_1G: 20, "rdma/shared_mlx5": 4}))
    product.start_all()
    product.register_webhook()
    more = asked.get("resources", {})
    pod = make_pod("infer", **{**asked, "resources": {MIG_2G: 1, **more}})

    created = client.create(pod)

    assert created["metadata"]["annotations"][RECORD] == "2g.20gb->1g.10gb"
    assert wait_until_bound(client, "infer") == "large"
