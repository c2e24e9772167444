"""Who may shake hands with the HTTPS listener, and in which version of TLS."""

import http.client
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.api.two_nodes import file_config, write_two_nodes
from tests.certificates import write_clients, write_pair
from tests.service_process import (
    DEADLINE_SECONDS,
    ServiceProcess,
    exchange,
    run_command,
    wait_until,
)

OLD_PROTOCOLS: Final = (
    "ignore:ssl.TLSVersion.TLSv1:DeprecationWarning",
    "ignore:ssl.TLSVersion.TLSv1_1:DeprecationWarning",
)


class Clients:
    """A CA for clients, and one of them; both are files."""

    def __init__(self, folder: Path, name: str) -> None:
        self.file, self.pair = write_clients(folder, name)


@contextmanager
def serving(folder: Path, ours: Clients) -> Iterator[ServiceProcess]:
    """Run a process that wants certificates of clients."""
    write_two_nodes(folder / "dump.json")
    write_pair(folder)
    webhook = {
        "certificateFile": "tls.crt",
        "keyFile": "tls.key",
        "host": "127.0.0.1",
        "port": 0,
        "clientCaFile": ours.file.name,
    }
    with ServiceProcess(folder, file_config(webhook=webhook)) as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of the tests that change nothing in it."""
    return tmp_path_factory.mktemp("clients")


@pytest.fixture(scope="module")
def ours(folder: Path) -> Clients:
    """The CA that the listener knows."""
    return Clients(folder, "ours")


@pytest.fixture(scope="module")
def service(folder: Path, ours: Clients) -> Iterator[ServiceProcess]:
    """Run a process that serves those clients."""
    with serving(folder, ours) as running:
        yield running


def make_context(folder: Path, pair: Path | None = None) -> ssl.SSLContext:
    """Return a client's context, with a certificate if it has one."""
    context = ssl.create_default_context(cafile=folder / "tls.crt")
    if pair is not None:
        context.load_cert_chain(pair)
    return context


def status_of(service: ServiceProcess, context: ssl.SSLContext) -> int:
    """Make a call on a new connection; return its status."""
    port = int(service.logs("serving")[0]["webhook_port"])
    connection = http.client.HTTPSConnection(
        "127.0.0.1", port, timeout=DEADLINE_SECONDS, context=context
    )
    try:
        return exchange(connection, "GET", "/healthz").status
    finally:
        connection.close()


def test_a_client_with_a_certificate_of_the_ca_is_served(
    service: ServiceProcess, folder: Path, ours: Clients
) -> None:
    assert status_of(service, make_context(folder, ours.pair)) == 200


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_others_are_refused_at_the_handshake(
    service: ServiceProcess, folder: Path, ours: Clients, version: ssl.TLSVersion
) -> None:
    strangers = Clients(folder, "strangers")

    for pair in (None, strangers.pair):
        context = make_context(folder, pair)
        context.minimum_version = context.maximum_version = version
        with pytest.raises((OSError, http.client.HTTPException)):
            status_of(service, context)

    assert status_of(service, make_context(folder, ours.pair)) == 200
    assert service.metric('gpu_extender_requests_total{verb="mutate"}') == 0


def test_a_changed_ca_is_read_again(tmp_path: Path) -> None:
    ours, others = Clients(tmp_path, "ours"), Clients(tmp_path, "others")
    draft = tmp_path / "draft"
    draft.write_bytes(others.file.read_bytes())
    with serving(tmp_path, ours) as service:
        draft.replace(ours.file)

        def is_served() -> bool:
            try:
                return status_of(service, make_context(tmp_path, others.pair)) == 200
            except (OSError, http.client.HTTPException):
                return False

        wait_until(is_served, "the other CA's client is served")
        with pytest.raises((OSError, http.client.HTTPException)):
            status_of(service, make_context(tmp_path, ours.pair))


def test_a_ca_file_without_a_certificate_is_a_fault(tmp_path: Path) -> None:
    write_two_nodes(tmp_path / "dump.json")
    write_pair(tmp_path)
    (tmp_path / "ca.crt").write_text("no certificate")
    config = tmp_path / "config.yaml"
    config.write_text(
        "cluster: {source: file, files: [dump.json]}\n"
        "webhook: {certificateFile: tls.crt, keyFile: tls.key, clientCaFile: ca.crt}\n"
    )

    result = run_command("check-config", str(config))

    assert result.returncode == 2
    assert "client CA ca.crt: " in result.stderr


@pytest.mark.filterwarnings(*OLD_PROTOCOLS)
@pytest.mark.parametrize(
    ("version", "is_served"),
    [
        pytest.param("TLSv1", False, id="TLS 1.0"),
        pytest.param("TLSv1_1", False, id="TLS 1.1"),
        pytest.param("TLSv1_2", True, id="TLS 1.2"),
        pytest.param("TLSv1_3", True, id="TLS 1.3"),
    ],
)
def test_tls_1_2_and_newer_are_spoken_and_nothing_older(
    service: ServiceProcess,
    folder: Path,
    ours: Clients,
    version: str,
    is_served: bool,
) -> None:
    context = make_context(folder, ours.pair)
    context.set_ciphers("DEFAULT:@SECLEVEL=0")  # else the client itself would refuse
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion[version]

    if is_served:
        assert status_of(service, context) == 200
    else:
        with pytest.raises(ssl.SSLError, match=r"PROTOCOL_VERSION"):
            status_of(service, context)
