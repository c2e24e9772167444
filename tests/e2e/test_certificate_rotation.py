"""Certificates of our own, rotated every few seconds under the API server's reviews."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest
import yaml

from tests.e2e.harness.builders import make_pod
from tests.e2e.harness.client import ApiClient
from tests.e2e.harness.connection import ApiError
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.ports import LOOPBACK, free_port
from tests.e2e.harness.product import DEPLOY, NAME, RULES, Product, error_lines
from tests.e2e.harness.proxy import TcpProxy
from tests.e2e.harness.replicas import start_second
from tests.e2e.harness.waiting import wait_for

pytestmark = pytest.mark.long

# On each of two lanes, so that there are 50 reviews a second for a minute.
LANES: Final = ("one", "two")
PODS: Final = 1500
PAUSE_SECONDS: Final = 1 / 25
# For the API server to notice that a connection is gone.
NOTICE_SECONDS: Final = 0.005
TRIGGER: Final = "task.bkbcs.tencent.com/gpu-type"
SELF_SIGNED: Final[Mapping[str, Any]] = {
    "certificateFile": None,
    "keyFile": None,
    "selfSigned": {
        "enabled": True,
        "dnsNames": [],
        "ipAddresses": [LOOPBACK],
        "leafLifetimeSeconds": 120,
        "leafRotationSeconds": 2,
        "caLifetimeSeconds": 600,
        "caRotationSeconds": 20,
        "switchDelaySeconds": 3,
        "dropDelaySeconds": 6,
        "checkSeconds": 0.5,
    },
}


@pytest.fixture
def product(fresh_control_plane: ControlPlane) -> Iterator[Product]:
    """gpu-extender with certificates of its own, and the rights for them."""
    settings = {"webhook": SELF_SIGNED, "injection": {"rulesFile": str(RULES)}}
    with Product(fresh_control_plane, settings=settings) as installed:
        path = DEPLOY / "rbac-self-signed.yaml"
        fresh_control_plane.kubectl("apply", "-f", str(path))
        yield installed


def register(product: Product, *ports: int) -> None:
    """Register the webhook of `deploy/webhook.yaml`, without a bundle.

    Each port is called for the pods of one lane.
    """
    item = yaml.safe_load((DEPLOY / "webhook.yaml").read_text(encoding="utf-8"))
    (webhook,) = item["webhooks"]
    path = webhook["clientConfig"].pop("service")["path"]
    item["webhooks"] = [
        {
            **webhook,
            "name": f"{lane}.{webhook['name']}",
            "clientConfig": {"url": f"https://{LOOPBACK}:{port}{path}"},
            "objectSelector": {"matchLabels": {"lane": lane}},
        }
        for lane, port in zip(LANES, ports, strict=False)
    ]
    product.client.apply(item)


def review(client: ApiClient, lane: str = LANES[0]) -> str:
    """Have a pod reviewed; return what went wrong, or nothing."""
    pod = make_pod(
        generate_name="g-", gpus=1, annotations={TRIGGER: "V100"}, labels={"lane": lane}
    )
    try:
        seen = client.create(pod, query={"dryRun": "All"})
    except ApiError as error:
        return error.message
    (container,) = seen["spec"]["containers"]
    limits = container["resources"]["limits"]
    return "" if limits.get("cpu") == "4" else f"not injected: {limits}"


def review_often(
    client: ApiClient, lane: str, cut: Callable[[], object], pods: int = PODS
) -> list[str]:
    """Have pods reviewed at a rate, each on a new connection; return faults."""
    faults = []
    due = time.monotonic()
    for _ in range(pods):
        fault = review(client, lane)
        if fault:
            faults.append(fault)
        cut()
        due += PAUSE_SECONDS
        time.sleep(max(NOTICE_SECONDS, due - time.monotonic()))
    return faults


def count_lines(log: str, event: str) -> int:
    """Return how often a replica logged an event."""
    lines = (json.loads(line) for line in log.splitlines() if line.startswith("{"))
    return sum(line["event"] == event for line in lines)


def bundle_of(client: ApiClient) -> str:
    """Return the registration's `caBundle`."""
    found = client.get(
        "MutatingWebhookConfiguration",
        NAME,
        api_version="admissionregistration.k8s.io/v1",
    )
    bundle: str = found["webhooks"][0]["clientConfig"].get("caBundle", "")
    return bundle


def test_no_review_fails_while_leaf_and_ca_are_rotated(product: Product) -> None:
    second_port = free_port()
    ports = product.webhook_port, second_port
    with TcpProxy(*ports) as one, TcpProxy(*ports) as two:
        register(product, one.port, two.port)
        replicas = product.start(), start_second(product, second_port)
        wait_for(
            lambda: not review(product.client),
            timeout_seconds=10,
            what="the first review",
        )
        first_bundle, before = bundle_of(product.client), one.accepted + two.accepted
        started = time.monotonic()

        with ThreadPoolExecutor() as threads:
            work = threads.map(
                review_often, (product.client,) * 2, LANES, (one.cut, two.cut)
            )
            faults = [fault for found in work for fault in found]

        seconds = time.monotonic() - started
        connections = one.accepted + two.accepted - before
    logs = [replica.process.log_text() for replica in replicas]
    leaves = [count_lines(log, "certificate in use") for log in logs]
    bundles = sum(count_lines(log, "caBundle published") for log in logs)
    print(  # noqa: T201  the figures belong in the run's record
        f"rotation: {2 * PODS} reviews in {seconds:.0f} s on {connections} new"
        f" connections, {len(faults)} failed, certificates taken up {leaves},"
        f" bundles {bundles}"
    )
    assert faults == []
    assert connections >= 2 * PODS - 1  # the first one was open already
    assert min(leaves) >= 20
    assert bundles >= 5  # each CA comes, and the one before goes
    assert bundle_of(product.client) != first_bundle
    assert [error_lines(log) for log in logs] == [[], []]


def test_a_lost_secret_and_a_new_registration_are_put_right(product: Product) -> None:
    product.start()
    register(product, product.webhook_port)
    wait_for(
        lambda: not review(product.client), timeout_seconds=10, what="the first review"
    )
    first = bundle_of(product.client)

    product.plane.kubectl("delete", "secret", "gpu-extender-certificate", "-n", NAME)
    wait_for(
        lambda: review(product.client) or first not in bundle_of(product.client),
        timeout_seconds=30,
        what="the lost CA is dropped",
    )
    assert review(product.client) == ""
    register(product, product.webhook_port)

    wait_for(
        lambda: not review(product.client),
        timeout_seconds=10,
        what="the bundle is back",
    )


def test_only_one_secret_and_one_registration_are_ours(product: Product) -> None:
    ours = f"--as=system:serviceaccount:{NAME}:{NAME}"
    wanted = [
        (verb, f"{kind}/{name}")
        for kind in ("secrets", "mutatingwebhookconfigurations")
        for name in ("gpu-extender", "gpu-extender-certificate", "other")
        for verb in ("get", "update", "patch", "delete")
    ]
    allowed = {
        f"{verb} {what}"
        for verb, what in wanted
        if product.plane.kubectl.run(
            "auth", "can-i", verb, what, "-n", NAME, "-q", ours
        ).returncode
        == 0
    }

    assert allowed == {
        "get secrets/gpu-extender-certificate",
        "update secrets/gpu-extender-certificate",
        "get mutatingwebhookconfigurations/gpu-extender",
        "patch mutatingwebhookconfigurations/gpu-extender",
    }
