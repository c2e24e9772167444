"""Probes of the real process, as kubelet makes them: at the pod's address."""

import http.client
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest

from tests.api.two_nodes import file_config, write_two_nodes
from tests.certificates import write_clients, write_pair
from tests.service_process import (
    DEADLINE_SECONDS,
    ServiceProcess,
    exchange,
    run_command,
)

PROBES: Final = ("/healthz", "/readyz", "/readyz/extender", "/livez/extender")
REST: Final = ("/metrics", "/cluster", "/explain", "/doctor", "/mutate", "/scheduler/x")
LOOPBACK: Final = "127.0.0.1"


def status_of(port: int, path: str, context: ssl.SSLContext | None = None) -> int:
    connection: http.client.HTTPConnection
    if context is None:
        connection = http.client.HTTPConnection(LOOPBACK, port, DEADLINE_SECONDS)
    else:
        connection = http.client.HTTPSConnection(
            LOOPBACK, port, timeout=DEADLINE_SECONDS, context=context
        )
    try:
        return exchange(connection, "GET", path).status
    finally:
        connection.close()


def start(folder: Path, **more: Any) -> ServiceProcess:
    """Return a process with a certificate, over two nodes."""
    write_two_nodes(folder / "dump.json")
    write_pair(folder)
    webhook = {"certificateFile": "tls.crt", "keyFile": "tls.key", "host": LOOPBACK}
    settings = {"webhook": {**webhook, "port": 0, **more.pop("webhook", {})}, **more}
    return ServiceProcess(folder, file_config(**settings))


def port_of(service: ServiceProcess, name: str) -> int:
    return int(service.logs("serving")[0][name])


def test_the_https_port_serves_the_probes_of_a_pod(tmp_path: Path) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # as kubelet
    with start(tmp_path) as service:
        service.wait_ready()
        port = port_of(service, "webhook_port")

        statuses = {path: status_of(port, path, context) for path in PROBES}

    assert statuses == dict.fromkeys(PROBES, 200)
    assert service.logs("serving")[0]["probe_port"] is None


def test_with_a_client_ca_a_plain_port_has_the_probes_and_nothing_else(
    tmp_path: Path,
) -> None:
    write_clients(tmp_path, "api")
    webhook = {"clientCaFile": "api-ca.crt"}
    with start(tmp_path, webhook=webhook, server={"probePort": 0}) as service:
        service.wait_ready()
        port = port_of(service, "probe_port")

        statuses = {path: status_of(port, path) for path in (*PROBES, *REST)}

    assert statuses == {**dict.fromkeys(PROBES, 200), **dict.fromkeys(REST, 404)}
    assert service.wait_stopped() == 0


class Scheduler(ThreadingHTTPServer):
    """The health of a kube-scheduler; it is silent while `status` is 0."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__((LOOPBACK, 0), SchedulerHandler)
        self.status = 200
        self.asked: list[str] = []
        self.ended = threading.Event()


class SchedulerHandler(BaseHTTPRequestHandler):
    server: Scheduler

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.server.status == 0:
            self.server.ended.wait()
            return
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[Scheduler]:
    """Serve health over TLS with a certificate that nobody knows."""
    folder = tmp_path / "scheduler"
    folder.mkdir()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*write_pair(folder))
    with Scheduler() as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.ended.set()
            server.shutdown()
            thread.join()


def test_liveness_asks_the_scheduler_of_the_same_pod_and_never_hangs(
    tmp_path: Path, scheduler: Scheduler
) -> None:
    url = f"https://{LOOPBACK}:{scheduler.server_address[1]}/livez"
    with start(tmp_path, server={"schedulerHealthUrl": url}) as service:
        service.wait_ready()
        found = []
        for status in (200, 500, 0):
            scheduler.status = status
            answer = service.get("/livez/extender")
            found.append((answer.status, answer.body.decode()))
        ready = service.get("/readyz/extender").status

    assert found == [
        (200, "ok"),
        (503, "kube-scheduler: says 500"),
        (503, found[2][1]),  # told by its own timeout or by ours
    ]
    assert found[2][1].startswith("kube-scheduler: ")
    assert set(scheduler.asked) == {"/livez"}
    assert ready == 200  # another scheduler's pods are injected all the same


def test_a_scheduler_that_is_not_there_is_not_alive(tmp_path: Path) -> None:
    url = f"http://{LOOPBACK}:1/livez"
    with start(tmp_path, server={"schedulerHealthUrl": url}) as service:
        answer = service.get("/livez/extender")

    assert answer.status == 503
    assert answer.body.startswith(b"kube-scheduler: does not answer: ")


@pytest.mark.parametrize(
    "url",
    [
        "https://10.0.0.1/livez",
        "ftp://127.0.0.1/livez",
        "127.0.0.1:10259",
        "https://127.0.0.1:x/",
        "https://u@127.0.0.1/",
    ],
)
def test_only_a_scheduler_of_this_host_may_be_asked(tmp_path: Path, url: str) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"server: {{schedulerHealthUrl: '{url}'}}\n")

    result = run_command("check-config", str(config))

    assert result.returncode == 2
    assert "server.schedulerHealthUrl: wanted a URL of this host" in result.stderr


def test_a_probe_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with ThreadingHTTPServer((LOOPBACK, 0), SchedulerHandler) as it:
        port = it.server_address[1]
        process = start(tmp_path, server={"probePort": port})
        process.start()
        status = process.wait_stopped()

    assert status != 0
    assert f"cannot listen on {LOOPBACK}:{port}" in process.stderr
