"""Connections that wait to be accepted when the listener closes."""

import socket
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any, Final

import pytest

from cluster.ledger.writer import SnapshotCell
from service.http.health import Health
from service.http.plain import HttpServer
from service.settings.process import ServerSettings

DEADLINE_SECONDS: Final = 60.0
CALL: Final = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def answer(_environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """Answer a few bytes."""
    start_response("200 OK", [("Content-Length", "4")])
    return [b"done"]


def read_all(client: socket.socket) -> bytes:
    """Return all that comes until the server closes."""
    received = b""
    while data := client.recv(65536):
        received += data
    return received


def test_all_that_wait_are_answered_and_later_ones_refused() -> None:
    health = Health(SnapshotCell(), dict, stale_after_seconds=1.0)
    server = HttpServer(answer, ServerSettings(port=0), health)
    address = ("127.0.0.1", server.port)
    with ExitStack() as stack:
        # None is accepted yet: the server's thread has not started.
        clients = [
            stack.enter_context(socket.create_connection(address, DEADLINE_SECONDS))
            for _ in range(5)
        ]
        for client in clients:
            client.sendall(CALL)

        server._refusing.set()
        server.start()
        answers = [read_all(client) for client in clients]

        assert all(text.endswith(b"done") for text in answers)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, DEADLINE_SECONDS)
    server.stop()
