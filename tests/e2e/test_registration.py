"""A registration without webhooks, to which the service adds its own entry."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from tests.e2e.harness.builders import JsonObject, make_pod
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.ports import LOOPBACK
from tests.e2e.harness.product import (
    DEPLOY,
    NAME,
    REGISTRATION,
    REGISTRATION_API,
    RULES,
    Product,
)
from tests.e2e.harness.proxy import TcpProxy
from tests.e2e.harness.waiting import wait_for

SECONDS: Final = 30.0
TRIGGER: Final = "task.bkbcs.tencent.com/gpu-type"
MANIFEST: Final = str(DEPLOY / "registration.yaml")
PLATFORM_TERM: Final = {"key": "control-plane", "operator": "DoesNotExist"}
OWN: Final[Mapping[str, Any]] = {
    "certificateFile": None,
    "keyFile": None,
    "selfSigned": {
        "enabled": True,
        "dnsNames": [],
        "ipAddresses": [LOOPBACK],
        "checkSeconds": 0.2,
    },
}


@pytest.fixture
def front() -> Iterator[TcpProxy]:
    """Stand in for the Service: it leads to nobody until a test says so."""
    with TcpProxy() as proxy:
        yield proxy


def install(plane: ControlPlane, front: TcpProxy, **webhook: Any) -> Product:
    """Install what ships for a service that registers itself."""
    settings = {
        "webhook": {
            "registration": "patched",
            "url": f"https://{LOOPBACK}:{front.port}",
            **webhook,
        },
        "injection": {"rulesFile": str(RULES)},
        "fallback": {"chains": []},
    }
    product = Product(plane, settings=settings)
    plane.kubectl("apply", "-f", MANIFEST)
    return product


def webhooks_of(product: Product) -> list[JsonObject]:
    found = product.client.get(REGISTRATION, NAME, api_version=REGISTRATION_API)
    webhooks: list[JsonObject] = found.get("webhooks") or []
    return webhooks


def limits_of_a_new_pod(product: Product) -> JsonObject:
    """Create a GPU pod, which must not be refused; return what it got."""
    pod = make_pod(generate_name="g-", gpus=1, annotations={TRIGGER: "V100"})
    seen = product.client.create(pod, query={"dryRun": "All"})
    (container,) = seen["spec"]["containers"]
    limits: JsonObject = container["resources"]["limits"]
    return limits


def wait_injected(product: Product) -> None:
    wait_for(
        lambda: limits_of_a_new_pod(product).get("cpu") == "4",
        timeout_seconds=SECONDS,
        what="an injected pod",
    )


def wait_looks(product: Product, count: int = 5) -> None:
    """Wait until the service has read the registration so many times more."""

    def looks() -> int:
        return sum(
            call.verb == "get" and call.is_of(NAME) and call.uri.endswith(f"/{NAME}")
            for call in product.plane.calls()
            if "mutatingwebhookconfigurations" in call.uri
        )

    before = looks()
    wait_for(
        lambda: looks() >= before + count, timeout_seconds=SECONDS, what="more looks"
    )


def test_no_pod_is_refused_until_and_after_the_service_registers_itself(
    fresh_control_plane: ControlPlane, front: TcpProxy
) -> None:
    with install(fresh_control_plane, front, **OWN) as product:
        fresh_control_plane.kubectl(
            "apply", "-f", str(DEPLOY / "rbac-self-signed.yaml")
        )
        assert "cpu" not in limits_of_a_new_pod(product)

        service = product.start()
        log = service.process.log_text
        wait_for(
            lambda: "registration waits, trying again" in log(),
            timeout_seconds=SECONDS,
            what="a reason",
        )
        assert webhooks_of(product) == []
        assert "cpu" not in limits_of_a_new_pod(product)
        front.lead_to(product.webhook_port)
        wait_injected(product)

        # As a platform does it: with the entry as it is, and one term more.
        (webhook,) = webhooks_of(product)
        terms = webhook["namespaceSelector"]["matchExpressions"]
        fresh_control_plane.client.apply(
            {
                "apiVersion": REGISTRATION_API,
                "kind": REGISTRATION,
                "metadata": {"name": NAME},
                "webhooks": [
                    {
                        **webhook,
                        "namespaceSelector": {
                            "matchExpressions": [*terms, PLATFORM_TERM]
                        },
                    }
                ],
            }
        )
        fresh_control_plane.kubectl("apply", "-f", MANIFEST)
        wait_looks(product)
        (webhook,) = webhooks_of(product)
        assert PLATFORM_TERM in webhook["namespaceSelector"]["matchExpressions"]
        wait_injected(product)

        fresh_control_plane.kubectl("replace", "-f", MANIFEST, "--force")
        wait_for(
            lambda: len(webhooks_of(product)) == 1,
            timeout_seconds=SECONDS,
            what="the entry in the new object",
        )
        wait_injected(product)
        product.unregister_webhook()


def test_a_certificate_from_files_is_registered_with_the_ca_beside_it(
    fresh_control_plane: ControlPlane, front: TcpProxy
) -> None:
    ca_file = str(fresh_control_plane.authority.file)
    with install(
        fresh_control_plane, front, caFile=ca_file, selfSigned={"checkSeconds": 0.2}
    ) as product:
        front.lead_to(product.webhook_port)
        product.start()

        wait_injected(product)

        (webhook,) = webhooks_of(product)
        bundle = webhook["clientConfig"]["caBundle"]
        assert bundle == fresh_control_plane.authority.bundle
        product.unregister_webhook()
