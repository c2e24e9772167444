"""The real process, which adds its own entry to the webhook's registration."""

import base64
import copy
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from service.certificates.x509 import issue_leaf, make_authority
from service.registration import OPT_OUT_LABEL, WEBHOOK_NAME
from tests.certificates import write_clients
from tests.e2e.harness.proxy import TcpProxy
from tests.fakes.api_http import Status
from tests.fakes.api_server import FakeApiServer
from tests.service_process import ServiceProcess, run_command, wait_until

KIND: Final = "MutatingWebhookConfiguration"
RESOURCE: Final = "mutatingwebhookconfigurations"
REGISTRATION_OK: Final = 'gpu_extender_config_reload_ok{file="registration"}'
QUICK: Final = {
    "checkSeconds": 0.1,
    "dnsNames": [],
    "ipAddresses": ["127.0.0.1"],
}


@pytest.fixture
def front() -> Iterator[TcpProxy]:
    """Stand in for the Service: it leads to nobody until a test says so."""
    with TcpProxy() as proxy:
        yield proxy


def render(api: FakeApiServer) -> None:
    """Apply the registration without webhooks, as `deploy/registration.yaml` has it."""
    api.put(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": KIND,
            "metadata": {"name": "gpu-extender"},
        }
    )


def webhooks_of(api: FakeApiServer) -> list[Any]:
    found = api.state.find(RESOURCE, "gpu-extender")
    assert found is not None
    webhooks: list[Any] = found.get("webhooks", [])
    return webhooks


def bundle_of(api: FakeApiServer) -> bytes:
    (webhook,) = webhooks_of(api)
    return base64.b64decode(webhook["clientConfig"]["caBundle"])


def start(
    stack: ExitStack,
    api: FakeApiServer,
    folder: Path,
    front: TcpProxy,
    **webhook: Any,
) -> ServiceProcess:
    """Start a replica that is called through the front."""
    folder.mkdir(exist_ok=True)
    api.kubeconfig(folder)
    own: Mapping[str, Any] = {"enabled": "certificateFile" not in webhook, **QUICK}
    config = {
        "cluster": {"source": "kubernetes", "kubeconfig": "kubeconfig"},
        "webhook": {
            "registration": "patched",
            "url": f"https://127.0.0.1:{front.port}",
            "host": "127.0.0.1",
            "port": 0,
            "selfSigned": own,
            **webhook,
        },
    }
    return stack.enter_context(ServiceProcess(folder, config))


def lead(front: TcpProxy, service: ServiceProcess) -> None:
    front.lead_to(int(service.logs("serving")[0]["webhook_port"]))


def wait_waiting(service: ServiceProcess) -> str:
    """Wait until it has told that its entry waits; return why."""
    wait_until(lambda: bool(service.logs("registration waits, trying again")), "a log")
    return str(service.logs("registration waits, trying again")[-1]["reason"])


def wait_registered(api: FakeApiServer, service: ServiceProcess) -> None:
    wait_until(lambda: bool(webhooks_of(api)), "the entry is there")
    wait_until(lambda: service.metric(REGISTRATION_OK) == 1, "it is settled")


def test_nobody_is_called_until_the_address_answers(
    api: FakeApiServer, tmp_path: Path, front: TcpProxy
) -> None:
    render(api)
    with ExitStack() as stack:
        service = start(stack, api, tmp_path, front)
        wait_until(lambda: service.get("/readyz").status == 200, "it is ready")
        reason = wait_waiting(service)
        assert webhooks_of(api) == []
        assert service.metric(REGISTRATION_OK) == 0
        page = service.get("/doctor").json()

        lead(front, service)
        wait_registered(api, service)

        (webhook,) = webhooks_of(api)
        client = webhook["clientConfig"]
    silence = f"127.0.0.1:{front.port} does not answer: "
    assert reason.startswith(silence)
    assert f"not registered yet: {silence}" in str(page["findings"])
    assert webhook["name"] == WEBHOOK_NAME
    assert client["url"] == f"https://127.0.0.1:{front.port}/mutate"
    assert b"BEGIN CERTIFICATE" in bundle_of(api)
    assert len(api.seen("create", RESOURCE)) == 0


def test_a_stranger_at_the_address_is_not_registered(
    api: FakeApiServer, tmp_path: Path, front: TcpProxy
) -> None:
    render(api)
    with FakeApiServer() as other_api, ExitStack() as stack:
        stranger = start(stack, other_api, tmp_path / "other", front)
        lead(front, stranger)
        service = start(stack, api, tmp_path / "own", front)

        reason = wait_waiting(service)

        assert "certificate verify failed" in reason or "SSL" in reason
        assert webhooks_of(api) == []


def test_two_replicas_a_platform_and_a_loss_leave_one_entry_that_is_ours(
    api: FakeApiServer, tmp_path: Path, front: TcpProxy
) -> None:
    render(api)
    with ExitStack() as stack:
        replicas = [start(stack, api, tmp_path / n, front) for n in ("a", "b")]
        lead(front, replicas[0])
        for replica in replicas:
            wait_registered(api, replica)

        tree = api.state.find(RESOURCE, "gpu-extender")
        assert tree is not None
        changed = copy.deepcopy(tree)
        term = {"key": "control-plane", "operator": "DoesNotExist"}
        selector = changed["webhooks"][0]["namespaceSelector"]
        selector["matchExpressions"].append(term)
        api.put(changed)
        patches = len(api.seen("patch", RESOURCE))
        looks = len(api.seen("get", RESOURCE))
        api.wait_seen("get", RESOURCE, looks + 6)
        assert len(api.seen("patch", RESOURCE)) == patches
        assert term in webhooks_of(api)[0]["namespaceSelector"]["matchExpressions"]

        render(api)  # whoever replaces the object takes the entry with it
        for replica in replicas:
            wait_registered(api, replica)
        (webhook,) = webhooks_of(api)
        keys = [t["key"] for t in webhook["namespaceSelector"]["matchExpressions"]]
    assert keys == ["kubernetes.io/metadata.name", OPT_OUT_LABEL]


def test_the_ca_beside_a_certificate_from_files_is_published(
    api: FakeApiServer, tmp_path: Path, front: TcpProxy
) -> None:
    authority = make_authority(1_700_000_000.0, 1e9)
    leaf = issue_leaf(authority, ["127.0.0.1"], 1_700_000_000.0, 9e8)
    (tmp_path / "tls.crt").write_bytes(leaf.certificate)
    (tmp_path / "tls.key").write_bytes(leaf.key)
    render(api)
    with ExitStack() as stack:
        service = start(
            stack,
            api,
            tmp_path,
            front,
            certificateFile="tls.crt",
            keyFile="tls.key",
        )
        lead(front, service)
        assert wait_waiting(service) == "CA ca.crt: No such file or directory"
        assert webhooks_of(api) == []

        (tmp_path / "ca.crt").write_bytes(authority.certificate)

        wait_registered(api, service)
        assert bundle_of(api) == authority.certificate


def test_a_listener_that_asks_for_client_certificates_is_registered(
    api: FakeApiServer, tmp_path: Path, front: TcpProxy
) -> None:
    write_clients(tmp_path, "api-server")
    render(api)
    with ExitStack() as stack:
        service = start(stack, api, tmp_path, front, clientCaFile="api-server-ca.crt")
        lead(front, service)

        wait_registered(api, service)


def test_without_object_or_right_it_goes_on_and_says_why(
    api: FakeApiServer, tmp_path: Path, front: TcpProxy
) -> None:
    with ExitStack() as stack:
        service = start(stack, api, tmp_path, front)
        lead(front, service)
        missing = f"there is no {KIND} gpu-extender"
        assert wait_waiting(service) == missing

        api.script("patch", RESOURCE, *[Status(403, "Forbidden")] * 3)
        render(api)

        wait_registered(api, service)
        reasons = [
            line["reason"] for line in service.logs("registration waits, trying again")
        ]
    assert any("403" in reason or "Forbidden" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param(
            "cluster: {source: file, files: [a.yaml]}\n"
            "webhook: {registration: patched, certificateFile: a, keyFile: b}\n",
            "webhook.registration: wanted source 'kubernetes' beside 'patched', got",
            id="a cluster from files",
        ),
        pytest.param(
            "webhook: {registration: patched}\n",
            "webhook: wanted a certificate with registration patched, got none",
            id="no certificate",
        ),
        pytest.param(
            "webhook: {caFile: ca.crt}\n",
            "webhook: wanted certificateFile beside caFile, got none",
            id="a CA of nothing",
        ),
        pytest.param(
            "webhook: {url: 'http://a'}\n",
            "webhook.url: wanted a URL such as https://10.0.0.1:8443/mutate, got",
            id="a URL that no API server takes",
        ),
    ],
)
def test_settings_that_cannot_be_registered_are_refused(
    tmp_path: Path, text: str, fault: str
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(text)

    result = run_command("check-config", str(config))

    assert result.returncode == 2
    assert fault in result.stderr
