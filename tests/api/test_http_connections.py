"""Plain connections: what is sent early, read late or ended early fails no call."""

import socket
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pytest

from cluster.ledger.writer import SnapshotCell
from service.http.health import Health
from service.http.plain import HttpServer
from service.settings.process import ServerSettings

DEADLINE_SECONDS: Final = 60.0
LARGE: Final = 32 * 2**20  # more than the kernel keeps for a client
LAST: Final = b"GET /%d HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
ANOTHER: Final = b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n"


class App:
    """Answers as many bytes as the path says, once it may."""

    def __init__(self) -> None:
        self.has_come = threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self.has_come.set()
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
