"""The real process with certificates of its own, before a fake API server."""

import base64
import http.client
import ssl
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from service.certificates.x509 import make_authority, split_bundle
from tests.fakes.api_http import Status
from tests.fakes.api_server import FakeApiServer
from tests.service_process import (
    DEADLINE_SECONDS,
    ServiceProcess,
    exchange,
    run_command,
    wait_until,
)

SECRET: Final = "gpu-extender/gpu-extender-certificate"  # noqa: S105  a name
RELOAD_OK: Final = 'gpu_extender_config_reload_ok{file="certificate"}'
EXPIRY: Final = "gpu_extender_certificate_expiry_timestamp_seconds"
QUICK: Final = {
    "enabled": True,
    "dnsNames": [],
    "ipAddresses": ["127.0.0.1"],
    "checkSeconds": 0.1,
    "leafRotationSeconds": 2,
    "leafLifetimeSeconds": 60,
    "caRotationSeconds": 4,
    "caLifetimeSeconds": 120,
    "switchDelaySeconds": 0.5,
    "dropDelaySeconds": 1,
}
SLOW: Final = {**QUICK, "leafRotationSeconds": 50, "caRotationSeconds": 100}

MANY: Final = 10_000
# Of which nothing ends, or may no longer be trusted, before a test does.
LASTING: Final = {
    **QUICK,
    "leafRotationSeconds": 5_000,
    "leafLifetimeSeconds": 6_000,
    "caRotationSeconds": 10_000,
    "caLifetimeSeconds": 20_000,
    "dropDelaySeconds": 3_600,
}


def register(api: FakeApiServer, bundle: bytes | None = None) -> None:
    """Register the webhook, as `deploy/webhook.yaml` does."""
    config: dict[str, Any] = {"url": "https://127.0.0.1:8443/mutate"}
    if bundle is not None:
        config["caBundle"] = base64.b64encode(bundle).decode()
    api.put(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "gpu-extender"},
            "webhooks": [{"name": "pods.gpu-extender.io", "clientConfig": config}],
        }
    )


def bundle_of(api: FakeApiServer) -> str:
    """Return the `caBundle`, empty if there is none."""
    found = api.state.find("mutatingwebhookconfigurations", "gpu-extender")
    assert found is not None
    (webhook,) = found["webhooks"]
    assert webhook["clientConfig"]["url"] == "https://127.0.0.1:8443/mutate"
    return base64.b64decode(webhook["clientConfig"].get("caBundle", "")).decode()


def data_of(api: FakeApiServer) -> Mapping[str, bytes]:
    """Return what the Secret holds, nothing if it is missing."""
    found = api.state.find("secrets", SECRET) or {"data": {}}
    return {name: base64.b64decode(text) for name, text in found["data"].items()}


def start(
    stack: ExitStack,
    api: FakeApiServer,
    folder: Path,
    self_signed: Mapping[str, Any],
) -> ServiceProcess:
    """Start a replica in a folder of its own."""
    folder.mkdir(exist_ok=True)
    api.kubeconfig(folder)
    config = {
        "cluster": {"source": "kubernetes", "kubeconfig": "kubeconfig"},
        "webhook": {"host": "127.0.0.1", "port": 0, "selfSigned": dict(self_signed)},
    }
    return stack.enter_context(ServiceProcess(folder, config))


def status_of(service: ServiceProcess, bundle: str) -> int:
    """Make a call on a new connection that trusts a bundle; return its status."""
    port = int(service.logs("serving")[0]["webhook_port"])
    context = ssl.create_default_context(cadata=bundle)
    connection = http.client.HTTPSConnection(
        "127.0.0.1", port, timeout=DEADLINE_SECONDS, context=context
    )
    try:
        return exchange(connection, "GET", "/healthz").status
    finally:
        connection.close()


def wait_ready(service: ServiceProcess) -> None:
    wait_until(lambda: service.get("/readyz").status == 200, "it is ready")


def test_two_replicas_rotate_and_no_call_fails(
    api: FakeApiServer, tmp_path: Path
) -> None:
    register(api)
    with ExitStack() as stack:
        replicas = [start(stack, api, tmp_path / name, QUICK) for name in ("a", "b")]
        for replica in replicas:
            wait_ready(replica)
        first = bundle_of(api)
        leaves = set()

        def is_over() -> bool:
            for replica in replicas:
                assert status_of(replica, bundle_of(api)) == 200
            leaves.add(data_of(api)["tls.crt"])
            return not set(split_bundle(first.encode())) & set(
                split_bundle(bundle_of(api).encode())
            )

        wait_until(is_over, "the first CA is dropped")

        for replica in replicas:
            assert replica.metric(RELOAD_OK) == 1
            assert replica.metric(EXPIRY) > 0
            assert replica.logs("certificates could not be checked") == []
    assert len(leaves) >= 2


def test_without_a_certificate_handshakes_fail_and_it_is_not_ready(
    api: FakeApiServer, tmp_path: Path
) -> None:
    register(api)
    api.withhold("secrets", 403)
    with ExitStack() as stack:
        service = start(stack, api, tmp_path, SLOW)
        wait_until(lambda: service.metric(RELOAD_OK) == 0, "the failure is told")
        api.wait_seen("get", "secrets", 3)

        answer = service.get("/readyz")
        with pytest.raises(OSError, match=r"handshake|reset|EOF"):
            status_of(service, make_authority(0, 1).certificate.decode())
        assert (answer.status, answer.body) == (
            503,
            b"certificate: none is published yet",
        )
        assert f"\n{EXPIRY} " not in service.get("/metrics").body.decode()
        assert len(service.logs("certificates not checked, trying again")) == 1

        api.withhold("secrets", None)
        wait_ready(service)
        assert status_of(service, bundle_of(api)) == 200


def test_a_restart_goes_on_with_the_same_certificate(
    api: FakeApiServer, tmp_path: Path
) -> None:
    register(api)
    for _ in range(2):
        with ExitStack() as stack:
            service = start(stack, api, tmp_path, SLOW)
            wait_ready(service)
            assert status_of(service, bundle_of(api)) == 200

    assert len(api.seen("create", "secrets")) == 1
    assert len(api.seen("patch", "mutatingwebhookconfigurations")) == 1


@pytest.mark.parametrize("loss", ["deleted", "garbage"])
def test_a_secret_that_is_lost_is_made_anew_and_no_call_fails(
    api: FakeApiServer, tmp_path: Path, loss: str
) -> None:
    register(api)
    with ExitStack() as stack:
        service = start(stack, api, tmp_path, SLOW)
        wait_ready(service)
        first = bundle_of(api)
        secret = api.state.find("secrets", SECRET)
        assert secret is not None
        if loss == "deleted":
            api.remove(secret)
        else:
            api.put({**secret, "data": {"tls.crt": "eA=="}})

        def is_over() -> bool:
            assert status_of(service, bundle_of(api)) == 200
            return first not in bundle_of(api)

        wait_until(is_over, "the CA from before is dropped")

        assert first != ""
        assert len(split_bundle(bundle_of(api).encode())) == 1


def test_a_lost_secret_that_may_not_be_created_waits_for_who_makes_it_again(
    api: FakeApiServer, tmp_path: Path
) -> None:
    """The chart renders it, without data, and so does its next upgrade."""
    namespace, _, name = SECRET.partition("/")
    metadata = {"namespace": namespace, "name": name}
    empty = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
    register(api)
    api.put(empty)
    with ExitStack() as stack:
        service = start(stack, api, tmp_path / "a", LASTING)
        wait_ready(service)
        first = bundle_of(api)
        secret = api.state.find("secrets", SECRET)
        assert secret is not None

        api.script("create", "secrets", *[Status(403, "Forbidden")] * MANY)
        api.remove(secret)
        other = start(stack, api, tmp_path / "b", LASTING)
        wait_until(lambda: service.metric(RELOAD_OK) == 0, "the failure is told")
        wait_until(lambda: other.metric(RELOAD_OK) == 0, "the other tells it, too")
        assert bundle_of(api) == first
        assert service.get("/readyz").status == 200
        assert status_of(service, first) == 200
        assert other.get("/readyz").status == 503

        api.put(empty)
        wait_ready(other)
        assert bundle_of(api) != first
        assert first in bundle_of(api)
        for replica in (service, other):
            assert status_of(replica, bundle_of(api)) == 200


def test_a_bundle_that_was_reset_is_put_right(
    api: FakeApiServer, tmp_path: Path
) -> None:
    register(api)
    with ExitStack() as stack:
        service = start(stack, api, tmp_path, SLOW)
        wait_ready(service)
        first = bundle_of(api)

        register(api)

        wait_until(lambda: bundle_of(api) == first, "the bundle is back")


def test_a_webhook_that_is_registered_later_is_given_its_bundle(
    api: FakeApiServer, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        service = start(stack, api, tmp_path, SLOW)
        wait_ready(service)

        register(api)

        wait_until(lambda: bundle_of(api) != "", "the bundle is there")
        assert status_of(service, bundle_of(api)) == 200


def test_conflicts_are_read_again(api: FakeApiServer, tmp_path: Path) -> None:
    register(api)
    api.script("create", "secrets", Status(409, "AlreadyExists"))
    api.script("update", "secrets", Status(409, "Conflict"))
    api.script("patch", "mutatingwebhookconfigurations", Status(409, "Conflict"))
    with ExitStack() as stack:
        service = start(stack, api, tmp_path, SLOW)

        wait_ready(service)

        assert status_of(service, bundle_of(api)) == 200
        assert service.logs("certificates not checked, trying again") == []


def test_certificates_of_our_own_need_an_api_server(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "cluster: {source: file, files: [a.yaml]}\n"
        "webhook: {selfSigned: {enabled: true}}\n"
    )

    result = run_command("check-config", str(config))

    assert result.returncode == 2
    assert (
        "webhook.selfSigned: wanted source 'kubernetes' beside it, got 'file'"
        in result.stderr
    )
