"""Which pods are created while nobody answers the webhook, by its failure policy."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Final

import pytest

from tests.e2e.harness.builders import JsonObject, make_pod
from tests.e2e.harness.client import JSON_PATCH, ApiClient
from tests.e2e.harness.connection import ApiError
from tests.e2e.harness.product import NAME, REGISTRATION, REGISTRATION_API, Product
from tests.e2e.harness.waiting import wait_for

MIG_2G: Final = "nvidia.com/mig-2g.20gb"
TRIGGER: Final = "task.bkbcs.tencent.com/gpu-type"
KNOWN_SECONDS: Final = 20.0
WANTED: Final = {"limits": {"amd.com/gpu": "1"}}
INIT: Final = {"name": "init", "image": "registry.invalid/w:1", "resources": WANTED}
GPU_PODS: Final = (
    make_pod("card", gpus=1),
    make_pod("slice", resources={MIG_2G: 1}),
    make_pod("type", cpu="1", annotations={TRIGGER: "V100"}),
    make_pod("init-card", spec={"initContainers": [INIT]}),
)
OTHER_PODS: Final = (
    make_pod("plain", cpu="1"),
    make_pod("system-card", gpus=1, namespace="kube-system"),
    make_pod("own-card", gpus=1, namespace=NAME),
)
CREATED: Final = "created as it was sent"


def outcome(client: ApiClient, pod: JsonObject) -> str:
    """Create a pod; return what became of it."""
    try:
        made = client.create(pod)
    except ApiError as error:
        return error.message
    (sent,), (got,) = pod["spec"]["containers"], made["spec"]["containers"]
    is_alike = sent["resources"] == {"requests": {}, "limits": {}, **got["resources"]}
    marks = made["metadata"].get("annotations", {}).keys() - {TRIGGER}
    return f"changed: {got}, {marks}" if marks or not is_alike else CREATED


def outcomes(client: ApiClient, pods: tuple[JsonObject, ...]) -> Mapping[str, str]:
    """Create pods; return by name what became of them."""
    return {pod["metadata"]["name"]: outcome(client, pod) for pod in pods}


@contextlib.contextmanager
def absence(product: Product) -> Iterator[None]:
    """Kill the service, and start it again at the end."""
    with product.outage():
        product.service.process.kill()
        yield
        product.service.process.start()


@pytest.fixture(params=["Fail", "Ignore"])
def policy(request: pytest.FixtureRequest, product: Product) -> str:
    """The webhook registered, with a failure policy that the API server knows."""
    chosen: str = request.param
    product.start()
    product.register_webhook()
    if chosen == "Ignore":
        ignoring = {"op": "replace", "path": "/webhooks/0/failurePolicy"}
        product.client.patch(
            REGISTRATION,
            NAME,
            [{**ignoring, "value": "Ignore"}],
            api_version=REGISTRATION_API,
            content_type=JSON_PATCH,
        )
        with absence(product):
            wait_for(
                lambda: outcome_of_dry_run(product.client) == CREATED,
                timeout_seconds=KNOWN_SECONDS,
                what="policy known to the API server",
            )
    return chosen


def outcome_of_dry_run(client: ApiClient) -> str:
    """Try out a GPU pod; return what would become of it."""
    try:
        client.create(make_pod("card", gpus=1), query={"dryRun": "All"})
    except ApiError as error:
        return error.message
    return CREATED


def test_gpu_pods_follow_the_policy_and_others_are_created_while_nobody_answers(
    product: Product, policy: str
) -> None:
    with absence(product):
        of_gpu_pods = outcomes(product.client, GPU_PODS)
        of_others = outcomes(product.client, OTHER_PODS)

    assert set(of_others.values()) == {CREATED}, of_others
    if policy == "Ignore":
        assert set(of_gpu_pods.values()) == {CREATED}, of_gpu_pods
    else:
        for message in of_gpu_pods.values():
            assert "failed calling webhook" in message


def test_gpu_pods_that_are_there_can_be_changed_and_deleted_while_nobody_answers(
    product: Product, policy: str
) -> None:
    client = product.client
    client.create(make_pod("card", gpus=1))

    with absence(product):
        labelled = client.patch("Pod", "card", {"metadata": {"labels": {"a": "b"}}})
        ready = client.patch(
            "Pod", "card", {"status": {"message": policy}}, subresource="status"
        )
        client.delete("Pod", "card", grace_seconds=0)

    assert labelled["metadata"]["labels"] == {"a": "b"}
    assert ready["status"]["message"] == policy
    assert not client.exists("Pod", "card")


def test_after_the_timeout_of_a_frozen_webhook_gpu_pods_follow_the_policy(
    product: Product, policy: str
) -> None:
    with product.outage():
        product.service.process.freeze()
        found = outcomes(product.client, (*OTHER_PODS, GPU_PODS[0]))
        product.service.process.thaw()
        wait_for(product.is_up, timeout_seconds=KNOWN_SECONDS, what="service back")

    *others, of_gpu_pod = found.values()
    assert set(others) == {CREATED}
    if policy == "Ignore":
        assert of_gpu_pod == CREATED
    else:
        assert "failed calling webhook" in of_gpu_pod
