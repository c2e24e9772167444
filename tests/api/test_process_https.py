"""The HTTPS listener of the real process: what it serves, certificates, handshakes."""

import datetime as dt
import http.client
import json
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography import x509

from tests.builders import make_node
from tests.certificates import END, START, write_pair
from tests.service_process import (
    DEADLINE_SECONDS,
    Answer,
    ServiceProcess,
    exchange,
    run_command,
    wait_until,
)

EXPIRY: Final = "gpu_extender_certificate_expiry_timestamp_seconds"
RELOAD_OK: Final = 'gpu_extender_config_reload_ok{file="certificate"}'


def https_config(folder: Path) -> dict[str, Any]:
    """Return a configuration with HTTPS over a dump of one node."""
    dump = {"kind": "List", "items": [make_node(name="a", gpus=4)]}
    (folder / "dump.json").write_text(json.dumps(dump))
    webhook = {"certificateFile": "tls.crt", "keyFile": "tls.key"}
    return {
        "cluster": {"source": "file", "files": ["dump.json"], "pollSeconds": 0.05},
        "webhook": {**webhook, "host": "127.0.0.1", "port": 0, "maxInFlight": 2},
        "server": {"drainSeconds": 3600},
    }


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    """Run the process with a certificate of serial number 1."""
    write_pair(tmp_path, 1)
    with ServiceProcess(tmp_path, https_config(tmp_path)) as running:
        running.wait_ready()
        yield running


def port_of(service: ServiceProcess) -> int:
    """Return the port of the HTTPS listener."""
    return int(service.logs("serving")[0]["webhook_port"])


def connect(service: ServiceProcess, folder: Path) -> http.client.HTTPSConnection:
    """Return a connection that checks the certificate."""
    context = ssl.create_default_context(cafile=folder / "tls.crt")
    return http.client.HTTPSConnection(
        "127.0.0.1", port_of(service), timeout=DEADLINE_SECONDS, context=context
    )


def fetch(service: ServiceProcess, folder: Path, method: str, path: str) -> Answer:
    """Make one call over TLS."""
    connection = connect(service, folder)
    try:
        return exchange(connection, method, path)
    finally:
        connection.close()


def serial_of(service: ServiceProcess) -> int:
    """Return the serial number of the certificate that new connections get."""
    pem = ssl.get_server_certificate(
        ("127.0.0.1", port_of(service)), timeout=DEADLINE_SECONDS
    )
    return x509.load_pem_x509_certificate(pem.encode()).serial_number


def test_the_webhook_and_the_probes_are_served_and_nothing_else(
    service: ServiceProcess, tmp_path: Path
) -> None:
    statuses = {
        path: fetch(service, tmp_path, method, path).status
        for method, path in [
            ("POST", "/mutate"),
            ("GET", "/healthz"),
            ("GET", "/readyz"),
            ("GET", "/metrics"),
            ("POST", "/scheduler/filter"),
            ("POST", "/scheduler/prioritize"),
            ("GET", "/cluster"),
            ("GET", "/readyz/extender"),
            ("GET", "/livez/extender"),
            ("GET", "/doctor"),
        ]
    }

    assert statuses == {
        "/mutate": 400,  # no review in it
        "/healthz": 200,
        "/readyz": 200,
        "/metrics": 200,
        "/scheduler/filter": 404,
        "/scheduler/prioritize": 404,
        "/cluster": 404,
        "/readyz/extender": 200,
        "/livez/extender": 200,
        "/doctor": 404,
    }


def test_a_renewed_certificate_is_served_without_a_failed_call(
    service: ServiceProcess, tmp_path: Path
) -> None:
    open_before = connect(service, tmp_path)
    assert exchange(open_before, "GET", "/healthz").status == 200

    write_pair(tmp_path, 2)

    wait_until(lambda: serial_of(service) == 2, "the new certificate is served")
    assert exchange(open_before, "GET", "/healthz").status == 200
    open_before.close()
    assert service.metric(RELOAD_OK) == 1


def test_a_pair_that_does_not_match_keeps_the_last_good_one(
    service: ServiceProcess, tmp_path: Path
) -> None:
    certificate = (tmp_path / "tls.crt").read_bytes()
    write_pair(tmp_path, 2)
    (tmp_path / "tls.crt").write_bytes(certificate)

    wait_until(lambda: service.metric(RELOAD_OK) == 0, "the mismatch is noticed")
    assert serial_of(service) == 1
    assert fetch(service, tmp_path, "GET", "/healthz").status == 200


def test_an_expired_certificate_replaces_no_valid_one(
    service: ServiceProcess, tmp_path: Path
) -> None:
    write_pair(tmp_path, 2, end=START + dt.timedelta(days=1))

    wait_until(lambda: service.metric(RELOAD_OK) == 0, "it is refused")
    assert serial_of(service) == 1
    assert service.get("/readyz").status == 200
    assert service.metric(EXPIRY) == END.timestamp()
    (line,) = service.logs("file refused, the last good contents stay in use")
    assert "certificate tls.crt: expired 2024-01-02" in line["faults"]


def test_a_process_with_an_expired_certificate_serves_and_is_not_ready(
    tmp_path: Path,
) -> None:
    write_pair(tmp_path, 1, end=START + dt.timedelta(days=1))
    with ServiceProcess(tmp_path, https_config(tmp_path)) as service:
        wait_until(lambda: service.get("/readyz").status == 503, "it is not ready")

        answer = service.get("/readyz")
        assert answer.body == b"certificate tls.crt: expired 2024-01-02T00:00:00+00:00"
        assert service.get("/healthz").status == 200

        write_pair(tmp_path, 2)

        wait_until(lambda: service.get("/readyz").status == 200, "it is ready")
        assert serial_of(service) == 2


def test_clients_that_do_not_shake_hands_keep_nobody_waiting(
    service: ServiceProcess, tmp_path: Path
) -> None:
    with ExitStack() as clients:
        for data in (b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n", b""):
            client = socket.create_connection(("127.0.0.1", port_of(service)))
            clients.enter_context(client)
            client.sendall(data)

        assert fetch(service, tmp_path, "GET", "/healthz").status == 200


def test_spare_connections_keep_nobody_waiting(
    service: ServiceProcess, tmp_path: Path
) -> None:
    # Go's client shakes hands on connections that it may not use for minutes.
    spare = [connect(service, tmp_path) for _ in range(4)]
    for connection in spare:
        connection.connect()

    assert fetch(service, tmp_path, "GET", "/healthz").status == 200
    for connection in spare:
        assert exchange(connection, "GET", "/healthz").status == 200
        connection.close()


def test_a_review_beyond_the_limit_is_refused(
    service: ServiceProcess, tmp_path: Path
) -> None:
    connection = connect(service, tmp_path)
    connection.putrequest("POST", "/mutate")
    connection.putheader("Content-Length", str(100_000_000))
    connection.endheaders()

    answer = connection.getresponse()

    assert answer.status == 413
    answer.close()
    connection.close()
    assert service.request("POST", "/mutate", b" " * 8_000_000).status == 413
    assert fetch(service, tmp_path, "GET", "/healthz").status == 200


def test_while_draining_clients_are_told_to_close(
    service: ServiceProcess, tmp_path: Path
) -> None:
    connection = connect(service, tmp_path)
    assert "connection" not in exchange(connection, "GET", "/healthz").headers

    service.send(signal.SIGTERM)
    wait_until(lambda: service.get("/readyz").status == 503, "readiness is off")

    during = exchange(connection, "GET", "/healthz")
    connection.close()
    assert (during.status, during.headers["connection"]) == (200, "close")
    service.send(signal.SIGTERM)
    assert service.wait_stopped() == 0


def test_a_pair_that_cannot_be_served_ends_with_2_and_says_so(tmp_path: Path) -> None:
    write_pair(tmp_path, 1)
    (tmp_path / "tls.key").write_text("no key")
    config = tmp_path / "config.yaml"
    config.write_text("webhook: {certificateFile: tls.crt, keyFile: tls.key}\n")

    result = run_command("check-config", str(config))

    assert result.returncode == 2
    assert "certificate tls.crt, key tls.key: " in result.stderr


def test_an_expired_certificate_is_a_fault_of_the_configuration(
    tmp_path: Path,
) -> None:
    write_pair(tmp_path, 1, end=START + dt.timedelta(days=1))
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps(https_config(tmp_path)))

    result = run_command("check-config", str(config))

    assert result.returncode == 2
    assert "certificate tls.crt: expired 2024-01-02" in result.stderr


def test_a_port_in_use_ends_with_1_and_says_so(
    service: ServiceProcess, tmp_path: Path
) -> None:
    taken = port_of(service)
    cluster = {"source": "file", "files": ["dump.json"]}
    webhook = {"certificateFile": "tls.crt", "keyFile": "tls.key", "port": taken}
    config = tmp_path / "second.yaml"
    config.write_text(
        json.dumps(
            {
                "cluster": cluster,
                "server": {"port": 0},
                "webhook": {**webhook, "host": "127.0.0.1"},
            }
        )
    )

    result = run_command("serve", "--config", str(config))

    assert result.returncode == 1
    assert result.stderr.startswith(f"cannot listen on 127.0.0.1:{taken}: ")
    assert "ddress already in use" in result.stderr
