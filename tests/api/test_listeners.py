"""Both listeners of one application: limits, probes beside full faces, large bodies."""

import contextlib
import http.client
import json
import resource
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

from cluster.ledger.writer import SnapshotCell
from service.http import waitress_channel as closing
from service.http.health import Health
from service.http.listeners import Listeners, allow_connections
from service.http.middleware import ConcurrencyLimit, build_slots
from service.settings.settings import Settings
from tests.api.two_nodes import FILTER, QUESTION, file_config, write_two_nodes
from tests.service_process import (
    DEADLINE_SECONDS,
    Answer,
    ServiceProcess,
    exchange,
    wait_until,
)

MUTATE: Final = "/mutate"
LIMIT: Final = 3


class Service:
    """Listeners before an application whose verbs and reviews wait to be let go."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.refused: list[str] = []
        settings = Settings.model_validate_json(
            json.dumps(
                {
                    "server": {"port": 0, "maxInFlight": LIMIT, "drainSeconds": 0},
                    "webhook": {"maxInFlight": LIMIT},
                }
            )
        )
        self.concurrency_limit = ConcurrencyLimit(
            self._work,
            build_slots(settings.server, settings.webhook),
            self.refused.append,
        )
        health = Health(SnapshotCell(), dict, stale_after_seconds=1.0)
        self._listeners = Listeners(self.concurrency_limit, settings, None, health)
        self._listeners.start()

    def _work(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        if environ["PATH_INFO"] in (FILTER, MUTATE):
            self.released.wait(DEADLINE_SECONDS)
        start_response("200 OK", [("Content-Length", "2")])
        return [b"ok"]

    def connect(self) -> http.client.HTTPConnection:
        """Return a connection."""
        return http.client.HTTPConnection(
            "127.0.0.1", self._listeners.http.port, timeout=DEADLINE_SECONDS
        )

    def call(self, path: str) -> Answer:
        """Make one call."""
        connection = self.connect()
        try:
            return exchange(connection, "POST", path, b"{}")
        finally:
            connection.close()

    def stop(self) -> None:
        """Let all calls go, then stop."""
        self.released.set()
        self._listeners.drain(threading.Event())


@pytest.fixture
def listeners() -> Iterator[Service]:
    """Run the listeners."""
    running = Service()
    yield running
    running.stop()


def test_full_faces_refuse_at_once_and_hold_back_nobody_else(
    listeners: Service,
) -> None:
    slots = listeners.concurrency_limit.slots
    with ThreadPoolExecutor(4 * LIMIT) as clients:
        held = [
            clients.submit(listeners.call, path)
            for path in (FILTER, MUTATE)
            for _ in range(LIMIT)
        ]
        wait_until(
            lambda: slots["extender"].count == slots["webhook"].count == LIMIT,
            "both faces are full",
        )

        refused = [listeners.call(path) for path in (FILTER, MUTATE, FILTER)]
        others = list(clients.map(listeners.call, ["/healthz", "/metrics"] * 10))
        listeners.released.set()

        assert {answer.status for answer in others} == {200}
        assert [(answer.status, answer.body) for answer in refused] == [(503, b"")] * 3
        assert listeners.refused == ["extender", "webhook", "extender"]
        assert Counter(future.result().status for future in held) == {200: 2 * LIMIT}


def test_a_refused_connection_can_be_used_again(listeners: Service) -> None:
    slots = listeners.concurrency_limit.slots["extender"]
    with ThreadPoolExecutor(LIMIT) as clients:
        for _ in range(LIMIT):
            clients.submit(listeners.call, FILTER)
        wait_until(lambda: slots.count == LIMIT, "the face is full")
        connection = listeners.connect()

        refused = exchange(connection, "POST", FILTER, b"{}")
        listeners.released.set()
        wait_until(lambda: slots.count < LIMIT, "a call has ended")
        after = exchange(connection, "POST", FILTER, b"{}")

        connection.close()
    assert (refused.status, after.status) == (503, 200)
    assert "connection" not in refused.headers


def test_a_request_that_trickles_in_is_cut_off(
    listeners: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closing, "RECEIVE_SECONDS", 0.1)
    connection = listeners.connect()
    connection.putrequest("POST", "/healthz")
    connection.putheader("Content-Length", "10")
    connection.endheaders(b"{")

    with pytest.raises((ConnectionError, http.client.HTTPException)):
        connection.getresponse()
    connection.close()


@pytest.mark.parametrize(
    ("soft", "hard", "wanted"),
    [
        pytest.param(1024, 4096, 4096, id="up to what is allowed"),
        pytest.param(1024, -1, 65_536, id="up to what makes sense"),
        pytest.param(1024, 1_048_576, 65_536, id="not beyond what makes sense"),
        pytest.param(100_000, 1_048_576, None, id="enough already"),
        pytest.param(-1, -1, None, id="unlimited already"),
    ],
)
def test_as_many_files_may_be_open_as_the_process_is_allowed(
    soft: int, hard: int, wanted: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    was_set: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: was_set.append(pair))

    allow_connections()

    assert was_set == ([] if wanted is None else [(wanted, hard)])


# --- the real process --------------------------------------------------------


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """Run the real process over two nodes; what follows leaves it as it is."""
    folder = tmp_path_factory.mktemp("two-nodes")
    write_two_nodes(folder / "dump.json")
    with ServiceProcess(folder, file_config()) as running:
        running.wait_ready()
        yield running


def chunks(count: int, size: int) -> Iterator[bytes]:
    """Yield a chunked body, without its end."""
    for _ in range(count):
        yield b"%x\r\n" % size + b" " * size + b"\r\n"


def send_chunked(service: ServiceProcess, path: str, body: Iterable[bytes]) -> bytes:
    """Send a body of unknown length; return the whole answer."""
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
    address = ("127.0.0.1", service.port)
    received = b""
    with socket.create_connection(address, DEADLINE_SECONDS) as client:
        with contextlib.suppress(OSError):  # it may be cut off
            client.sendall(head.encode() + b"Connection: close\r\n\r\n")
            for chunk in body:
                client.sendall(chunk)
        with contextlib.suppress(ConnectionError):
            while data := client.recv(65_536):
                received += data
    return received


def test_a_chunked_call_is_answered(service: ServiceProcess) -> None:
    chunk = b"%x\r\n" % len(QUESTION) + QUESTION + b"\r\n0\r\n\r\n"

    answer = send_chunked(service, FILTER, [chunk])

    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b'"NodeNames":["a"]' in answer


def test_a_chunked_review_beyond_the_limit_is_refused(service: ServiceProcess) -> None:
    answer = send_chunked(service, MUTATE, [*chunks(8, 2**20), b"0\r\n\r\n"])

    assert answer.startswith(b"HTTP/1.1 413 ")
    assert json.loads(answer.rpartition(b"\r\n\r\n")[2])["title"].startswith("413 ")


@pytest.mark.parametrize(
    "request_head",
    [
        pytest.param("Content-Length: 67108865", id="its length says so"),
        pytest.param("Transfer-Encoding: chunked", id="it is chunked"),
    ],
)
def test_a_body_beyond_64_mebibytes_is_refused(
    service: ServiceProcess, request_head: str
) -> None:
    if "chunked" in request_head:
        answer = send_chunked(service, FILTER, chunks(65, 2**20))
    else:
        connection = service.connect()
        connection.putrequest("POST", FILTER)
        connection.putheader(*request_head.split(": "))
        connection.endheaders()
        response = connection.getresponse()
        answer = f"HTTP/1.1 {response.status} \r\n\r\n".encode() + response.read()
        connection.close()

    assert answer.startswith(b"HTTP/1.1 413 ")
    assert json.loads(answer.rpartition(b"\r\n\r\n")[2]) == {
        "title": "413 Request Entity Too Large"
    }
    assert service.get("/healthz").status == 200


@pytest.mark.parametrize(
    ("head", "status"),
    [
        pytest.param(f"POST {FILTER}", b"400", id="there is no body"),
        pytest.param(
            f"POST {FILTER}\nContent-Length: 0", b"400", id="the body is empty"
        ),
        pytest.param(
            f"POST {FILTER}\nContent-Length: 67108865", b"413", id="it is too large"
        ),
        pytest.param(
            f"POST {FILTER}\nContent-Length: -1", b"400", id="its length is no number"
        ),
        pytest.param("GET /healthz", b"200", id="none is wanted"),
    ],
)
def test_a_client_that_asks_before_it_sends_a_body_is_answered_at_once(
    service: ServiceProcess, head: str, status: bytes
) -> None:
    line, _, header = head.partition("\n")
    headers = ["Host: x", "Connection: close", "Expect: 100-continue", header]
    lines = [f"{line} HTTP/1.1", *filter(None, headers), "", ""]
    received = b""
    with socket.create_connection(
        ("127.0.0.1", service.port), DEADLINE_SECONDS
    ) as client:
        client.sendall("\r\n".join(lines).encode())
        while data := client.recv(65_536):
            received += data

    assert received.startswith(b"HTTP/1.1 " + status + b" ")


def test_answers_have_no_byte_too_many(service: ServiceProcess) -> None:
    head = f"POST {FILTER} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(QUESTION)}\r\n"
    call = head.encode() + b"\r\n" + QUESTION
    last = head.encode() + b"Connection: close\r\n\r\n" + QUESTION
    received = b""
    with socket.create_connection(
        ("127.0.0.1", service.port), DEADLINE_SECONDS
    ) as client:
        client.sendall(call + call + last)
        while data := client.recv(65_536):
            received += data

    before, *answers = received.split(b"HTTP/1.1 200 OK\r\n")

    assert before == b""
    bodies = {answer.partition(b"\r\n\r\n")[2] for answer in answers}
    assert len(answers) == 3
    assert len(bodies) == 1
    assert json.loads(bodies.pop())["NodeNames"] == ["a"]


def test_the_liveness_probe_of_a_process_answers(service: ServiceProcess) -> None:
    answer = service.get("/livez/extender")

    assert (answer.status, answer.body) == (200, b"ok")
