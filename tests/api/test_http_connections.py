"""Plain connections: what is sent early, read late or ended early fails no call."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any, Final

import pytest
import waitress.channel
import waitress.server

from cluster.ledger.writer import SnapshotCell
from service.http.health import Health
from service.http.plain import HttpServer
from service.settings.process import ServerSettings
from tests.service_process import wait_until

DEADLINE_SECONDS: Final = 60.0
LARGE: Final = 32 * 2**20  # more than the kernel keeps for a client
LAST: Final = b"GET /%d HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
ANOTHER: Final = b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n"


class App:
    """Answers as many bytes as the path says, once it may."""

    def __init__(self) -> None:
        self.has_come = threading.Event()
        self.calls = threading.Semaphore(0)
        self.may_answer = threading.Event()
        self.may_answer.set()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self.has_come.set()
        self.calls.release()
        assert self.may_answer.wait(DEADLINE_SECONDS)
        count = int(environ["PATH_INFO"].lstrip("/"))
        start_response("200 OK", [("Content-Length", str(count))])
        return [b"x" * count]


@pytest.fixture
def app() -> App:
    return App()


@pytest.fixture
def server(app: App) -> Iterator[HttpServer]:
    health = Health(SnapshotCell(), dict, stale_after_seconds=1.0)
    server = HttpServer(app, ServerSettings(port=0), health, threads=2)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def client(server: HttpServer) -> Iterator[socket.socket]:
    address = ("127.0.0.1", server.port)
    with socket.create_connection(address, DEADLINE_SECONDS) as client:
        yield client


def read_all(client: socket.socket) -> bytes:
    """Return all that comes until the server closes."""
    received = bytearray()
    while data := client.recv(2**20):
        received += data
    return bytes(received)


def test_requests_that_are_sent_together_are_answered_in_turn(
    client: socket.socket,
) -> None:
    client.sendall(ANOTHER % 1 + ANOTHER % 2 + ANOTHER % 3 + LAST % 4)

    answers = read_all(client).split(b"HTTP/1.1 200 OK")[1:]

    assert [answer.rpartition(b"\r\n\r\n")[2] for answer in answers] == [
        b"x" * count for count in (1, 2, 3, 4)
    ]


def test_a_client_that_has_ended_its_side_is_answered(
    app: App, client: socket.socket
) -> None:
    app.may_answer.clear()
    client.sendall(ANOTHER % 5)
    assert app.has_come.wait(DEADLINE_SECONDS)

    client.shutdown(socket.SHUT_WR)
    app.may_answer.set()

    assert read_all(client).endswith(b"\r\n\r\nxxxxx")  # and then it is closed


def test_a_client_that_is_gone_harms_no_other(
    app: App, server: HttpServer, client: socket.socket
) -> None:
    app.may_answer.clear()
    client.sendall(ANOTHER % LARGE)
    assert app.has_come.wait(DEADLINE_SECONDS)
    client.close()
    app.may_answer.set()

    address = ("127.0.0.1", server.port)
    with socket.create_connection(address, DEADLINE_SECONDS) as other:
        other.sendall(LAST % 2)
        assert read_all(other).endswith(b"\r\n\r\nxx")


def test_what_a_client_does_not_take_at_once_is_sent_later(
    client: socket.socket,
) -> None:
    client.sendall(ANOTHER % LARGE + LAST % 3)

    received = read_all(client)

    assert received.count(b"x") == LARGE + 3
    assert received.endswith(b"\r\n\r\nxxx")


LIMIT: Final = 10


@pytest.fixture
def small(app: App) -> Iterator[HttpServer]:
    """A server for few connections."""
    health = Health(SnapshotCell(), dict, stale_after_seconds=1.0)
    settings = ServerSettings.model_validate({"port": 0, "connectionLimit": LIMIT})
    server = HttpServer(app, settings, health, threads=LIMIT + 2)
    server.start()
    yield server
    server.stop()


def connect(server: HttpServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), DEADLINE_SECONDS)


def ask(server: HttpServer, count: int) -> bytes:
    """Return the answer to a call of somebody who has just come."""
    with connect(server) as client:
        client.sendall(LAST % count)
        return read_all(client)


def use(server: HttpServer, client: socket.socket) -> None:
    """Have one call answered and ended, and keep the connection."""
    client.sendall(ANOTHER % 1)
    received = b""
    while not received.endswith(b"\r\n\r\nx"):
        received += client.recv(1000)
    # A connection is idle from when its worker is done, which is after the answer.
    wait_until(lambda: server.dispatcher.is_idle, "a worker to be done")


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="silent since they came"),
        pytest.param(ANOTHER % 1, id="idle after a call"),
        pytest.param(b"POST /1 HT", id="with half a head"),
        pytest.param(
            b"POST /1 HTTP/1.1\r\nContent-Length: 9\r\n\r\nhalf", id="half a body"
        ),
        pytest.param(
            b"POST /1 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf",
            id="half a chunk",
        ),
        pytest.param(
            b"POST /1 HTTP/1.1\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n",
            id="told to go on",
        ),
        pytest.param(ANOTHER % (LARGE // 4), id="with an answer that they do not take"),
        pytest.param(b"\r\n\r\n", id="with blank lines"),
    ],
)
def test_a_full_house_of_such_clients_keeps_no_call_waiting(
    small: HttpServer, sent: bytes
) -> None:
    with contextlib.ExitStack() as house:
        for _ in range(2 * LIMIT):
            client = house.enter_context(connect(small))
            client.sendall(sent)
        before = time.monotonic()
        answers = [ask(small, 3) for _ in range(3)]
        seconds = time.monotonic() - before

    assert all(answer.endswith(b"\r\n\r\nxxx") for answer in answers)
    assert seconds < 3.0  # far below any deadline of theirs


def test_the_longest_idle_connection_is_let_go(small: HttpServer) -> None:
    with contextlib.ExitStack() as house:
        clients = [house.enter_context(connect(small)) for _ in range(LIMIT)]
        for client in clients:
            use(small, client)
        half = clients[1]
        half.sendall(b"GET /7 HTTP/1.1\r\n")
        use(small, clients[0])  # so the third one has been idle for longest
        clients.append(house.enter_context(connect(small)))
        use(small, clients[-1])

        assert read_all(clients[2]) == b""
        half.sendall(b"Connection: close\r\n\r\n")
        assert read_all(half).endswith(b"\r\n\r\n" + b"x" * 7)
        for client in (clients[0], *clients[3:]):
            use(small, client)


def test_no_call_that_is_worked_on_is_cut_off(app: App, small: HttpServer) -> None:
    app.may_answer.clear()
    with contextlib.ExitStack() as house:
        clients = []
        for _ in range(LIMIT + 2):
            clients.append(house.enter_context(connect(small)))
            clients[-1].sendall(LAST % 2)
            assert app.calls.acquire(timeout=DEADLINE_SECONDS)
        late = house.enter_context(connect(small))
        late.sendall(LAST % 4)
        app.may_answer.set()

        answers = [read_all(client) for client in clients]

        assert all(answer.endswith(b"\r\n\r\nxx") for answer in answers)
        assert read_all(late).endswith(b"\r\n\r\nxxxx")


@pytest.mark.parametrize("hours", [-2, 2])
def test_idle_connections_stay_when_the_clock_is_set(
    client: socket.socket,
    server: HttpServer,
    monkeypatch: pytest.MonkeyPatch,
    hours: int,
) -> None:
    client.sendall(ANOTHER % 1)
    assert client.recv(2**16)

    def late() -> float:
        return time.monotonic() + hours * 3600

    for module in (waitress.server, waitress.channel):
        monkeypatch.setattr(module, "time", SimpleNamespace(time=late))
    for _ in range(3):  # the server's loop goes round
        with socket.create_connection(("127.0.0.1", server.port)) as other:
            other.sendall(LAST % 1)
            assert read_all(other)

    client.sendall(LAST % 2)
    assert read_all(client).endswith(b"xx")


def test_connections_on_which_nothing_happens_for_long_are_closed(
    client: socket.socket, server: HttpServer
) -> None:
    client.sendall(ANOTHER % 1)
    assert client.recv(2**16)

    def is_ended_an_hour_later() -> bool:
        server._clean_at = 0.0
        server._end_idle_connections(time.monotonic() + 3600)
        return all(
            channel.will_close
            for listener in server._listeners
            for channel in list(listener.active_channels.values())
        )

    wait_until(is_ended_an_hour_later, "the answer is sent, and the connection idle")
    server._wake()

    assert client.recv(2**16) == b""
