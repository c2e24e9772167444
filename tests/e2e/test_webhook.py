"""Who passes the webhook when, and what a dry run leaves behind."""

import json
from collections.abc import Iterator
from typing import Final

import pytest

from tests.e2e.harness.builders import GPU, JsonObject, make_node, make_pod
from tests.e2e.harness.connection import ApiError
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.product import NAME, Product
from tests.e2e.harness.waiting import wait_for

MIG_2G: Final = "nvidia.com/mig-2g.20gb"
TRIGGER: Final = "task.bkbcs.tencent.com/gpu-type"
RECORD: Final = "gpu-webhook.k8s.io/fallback"
DRY_RUN: Final = {"dryRun": "All"}


@pytest.fixture
def webhook(product: Product) -> Product:
    """The service with its webhook registered."""
    product.start()
    product.register_webhook()
    return product


@pytest.fixture
def stopped(webhook: Product) -> Iterator[Product]:
    """The webhook registered, and nobody there to answer."""
    webhook.service.process.stop()
    yield webhook
    webhook.service.process.start()


def test_only_gpu_pods_and_typed_pods_of_ordinary_namespaces_are_sent(
    webhook: Product,
) -> None:
    client = webhook.client
    init = {"name": "init", "image": "registry.invalid/w:1"}
    wanted = {"limits": {"amd.com/gpu": "1"}}
    mirror = {"kubernetes.io/config.mirror": "x"}
    before = webhook.calls_of("mutate")

    client.create(make_pod("plain", cpu="1"))
    client.create(make_pod("system", gpus=1, namespace="kube-system"))
    client.create(make_pod("our-own", gpus=1, namespace=NAME))
    client.create(
        make_pod("mirror", gpus=1, annotations=mirror, node_name="a"), query=DRY_RUN
    )
    unsent = webhook.calls_of("mutate") - before
    client.create(make_pod("gpu", gpus=1))
    client.create(make_pod("memory", resources={"nvidia.com/gpu-memory": 4}))
    client.create(make_pod("typed", cpu="1", annotations={TRIGGER: "V100"}))
    client.create(
        make_pod("in-init", spec={"initContainers": [{**init, "resources": wanted}]})
    )
    sent = webhook.calls_of("mutate") - before - unsent

    assert (unsent, sent) == (0, 4)


def test_pods_without_gpu_pass_while_the_webhook_is_down(stopped: Product) -> None:
    client = stopped.client

    client.create(make_pod("plain", cpu="1"))
    client.create(make_pod("system", gpus=1, namespace="kube-system"))

    assert len(client.list("Pod")) == 2


def test_gpu_pods_are_refused_while_the_webhook_is_down(stopped: Product) -> None:
    with pytest.raises(ApiError) as refused:
        stopped.client.create(make_pod("gpu", gpus=1))

    assert refused.value.status == 500
    assert "failed calling webhook" in refused.value.message


def test_gpu_pods_pass_again_once_the_webhook_is_back(webhook: Product) -> None:
    webhook.service.process.kill()
    webhook.service.process.start()

    pod = webhook.client.create(make_pod("gpu", gpus=1, annotations={TRIGGER: "V100"}))

    (container,) = pod["spec"]["containers"]
    assert container["resources"]["requests"]["cpu"] == "4"


def test_a_dry_run_shows_the_injected_pod_and_creates_nothing(
    webhook: Product,
) -> None:
    pod = make_pod("gpu", gpus=1, annotations={TRIGGER: "V100"})

    shown = webhook.plane.kubectl.json(
        "create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod)
    )

    (container,) = shown["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": "4", "memory": "8Gi", GPU: "1"}
    assert webhook.client.list("Pod") == ()


def test_a_dry_run_holds_no_slice(
    control_plane: ControlPlane, webhook: Product
) -> None:
    client = control_plane.client
    client.create(make_node("node-a", gpus=4, resources={MIG_2G: 1}))
    wait_for(webhook.amounts, timeout_seconds=5, what="node in the cache")

    def resource_of(pod: JsonObject) -> str:
        name: str = next(iter(pod["spec"]["containers"][0]["resources"]["limits"]))
        return name

    tried = [
        client.create(make_pod(f"dry-{i}", resources={MIG_2G: 1}), query=DRY_RUN)
        for i in range(3)
    ]
    real = [
        client.create(make_pod(f"real-{i}", resources={MIG_2G: 1})) for i in range(2)
    ]

    assert [resource_of(pod) for pod in tried] == [MIG_2G] * 3
    assert [resource_of(pod) for pod in real] == [MIG_2G, GPU]
    assert real[1]["metadata"]["annotations"][RECORD] == "2g.20gb->gpu"
