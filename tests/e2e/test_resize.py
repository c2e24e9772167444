"""A bound pod in the middle of an in-place resize, as kube-scheduler sees it."""

from typing import Any, Final

import pytest

from tests.e2e.harness.builders import GPU, JsonObject, make_node, make_pod
from tests.e2e.harness.client import STRATEGIC_PATCH, ApiClient
from tests.e2e.harness.pods import wait_until_bound, wait_until_refused
from tests.e2e.harness.product import Product
from tests.e2e.harness.waiting import wait_for

PENDING: Final = "PodResizePending"


def status_of(
    used: str, allocated: str, *conditions: JsonObject, gpus: int = 0
) -> JsonObject:
    """Return what a kubelet writes of a container that is being resized."""
    return {
        "phase": "Running",
        "conditions": list(conditions),
        "containerStatuses": [
            {
                "name": "main",
                "image": "registry.invalid/workload:1",
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "resources": {"requests": {"cpu": used}, "limits": {"cpu": used}},
                "allocatedResources": {
                    "cpu": allocated,
                    **({GPU: str(gpus)} if gpus else {}),
                },
            }
        ],
    }


def pending(reason: str) -> JsonObject:
    return {"type": PENDING, "status": "True", "reason": reason}


def write_status(client: ApiClient, status: JsonObject) -> None:
    client.patch(
        "Pod",
        "held",
        {"status": status},
        subresource="status",
        content_type=STRATEGIC_PATCH,
    )


def requested_cpu(product: Product) -> int:
    """Return the thousandths of cpu that our cache has as taken on the node."""
    nodes: list[dict[str, Any]] = product.get_json("/cluster")["nodes"]
    return int(nodes[0]["resources"]["cpu"]["requested"])


@pytest.mark.parametrize(
    ("asked", "status", "held"),
    [
        pytest.param("2", status_of("6", "6"), 6000, id="not shrunk yet"),
        pytest.param("2", status_of("2", "6"), 6000, id="allocated"),
        pytest.param(
            "6", status_of("2", "2", pending("Deferred")), 6000, id="deferred"
        ),
        pytest.param(
            "6", status_of("2", "2", pending("Infeasible")), 2000, id="infeasible"
        ),
    ],
)
def test_what_a_resized_pod_holds_is_what_kube_scheduler_counts(
    product: Product, asked: str, status: JsonObject, held: int
) -> None:
    client = product.client
    client.create(make_node("a", gpus=8, cpu="8"))
    product.start_all()
    client.create(make_pod("held", cpu=asked, node_name="a"))
    write_status(client, status)
    wait_for(
        lambda: requested_cpu(product) == held,
        timeout_seconds=10,
        what=f"{held} held of 8000",
    )

    client.create(make_pod("train", gpus=1, cpu="4"))

    if held <= 4000:
        assert wait_until_bound(client, "train") == "a"
        return
    refusal = wait_until_refused(client, "train")
    assert "Insufficient cpu" in str(refusal)
    explanation = product.get_json("/explain?namespace=default&pod=train&nodes=true")
    assert "Insufficient cpu" in str(explanation["nodes"])

    write_status(client, status_of("2", "2"))
    if asked == "2":  # the resize is done, and the pod is woken or tried again
        assert wait_until_bound(client, "train") == "a"


def test_a_pod_whose_resize_is_infeasible_holds_its_gpus(product: Product) -> None:
    client = product.client
    client.create(make_node("a", gpus=1, cpu="8"))
    product.start_all()
    client.create(make_pod("held", gpus=1, cpu="2", node_name="a"))
    write_status(client, status_of("1", "1", pending("Infeasible"), gpus=1))
    wait_for(
        lambda: requested_cpu(product) == 1000, timeout_seconds=10, what="1000 held"
    )

    client.create(make_pod("train", gpus=1, cpu="1"))

    wait_until_refused(client, "train")
