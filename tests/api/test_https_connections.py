"""TLS connections: half-closed clients, slow readers, ends and faults."""

import contextlib
import errno
import logging
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from service.http import https
from tests.https_listener import Listener, read_all
from tests.service_process import DEADLINE_SECONDS, wait_until

CALL: Final = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
LARGE: Final = 6 * 2**20


@pytest.fixture
def listener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    # No deadline is what these tests are about.
    monkeypatch.setattr(https, "REQUEST_SECONDS", 3600.0)
    running = Listener(tmp_path)
    yield running
    running.stop()


def end_tcp(client: ssl.SSLSocket) -> None:
    """End the client's side below TLS."""
    socket.socket.shutdown(client, socket.SHUT_WR)


def end_tls(client: ssl.SSLSocket) -> None:
    """Send close_notify, and wait for no answer to it."""
    client.settimeout(0)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.unwrap()
    client.settimeout(DEADLINE_SECONDS)


def client_hello(context: ssl.SSLContext) -> bytes:
    """Return what a client sends first."""
    sent = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="x").do_handshake()
    return sent.read()


def read_some(client: socket.socket) -> bytes:
    """Return what comes first, nothing if the other side ends."""
    with contextlib.suppress(ConnectionError):
        return client.recv(65_536)
    return b""


@pytest.mark.parametrize("end", [end_tcp, end_tls])
@pytest.mark.parametrize(
    "count",
    [
        pytest.param(LARGE, id="in many pieces"),
        pytest.param(2 * 16_384 - len(CALL % 10_000), id="in whole records"),
    ],
)
def test_a_client_that_has_ended_its_side_is_answered(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, end: Any, count: int
) -> None:
    body, serve, has_ended = b"x" * count, https.TlsChannel.service, threading.Event()
    monkeypatch.setattr(
        https.TlsChannel,
        "service",
        # OpenSSL refuses the client an end in the middle of an answer.
        lambda channel: has_ended.wait(DEADLINE_SECONDS) and serve(channel),
    )
    with listener.open_tls() as client:
        client.sendall(CALL % len(body) + body)
        end(client)
        has_ended.set()

        answer = read_all(client)

    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\n" + body)


def test_a_client_that_reads_late_gets_every_byte(listener: Listener) -> None:
    body = bytes(range(256)) * (LARGE // 256)
    last = CALL.replace(b"Host: x", b"Host: x\r\nConnection: close")
    with listener.open_tls() as client:
        client.sendall(CALL % len(body) + body)
        wait_until(
            lambda: any(item._unsent_since for item in listener.server._channels()),
            "the answer waits for the client",
        )
        received = bytearray()
        while len(received) < LARGE:
            received += client.recv(65_536)
        client.sendall(last % 3 + b"end")
        received += read_all(client)

    first, second = received.split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert first.endswith(b"\r\n\r\n" + body)
    assert second.endswith(b"\r\n\r\nend")


def test_a_client_that_sends_faster_than_is_answered_is_slowed_down(
    listener: Listener,
) -> None:
    calls = 300  # more than the kernel keeps, both ways together
    body = b"x" * 200_000
    with listener.open_tls() as client:
        client.settimeout(0)
        unsent = memoryview((CALL % len(body) + body) * calls)
        with contextlib.suppress(ssl.SSLWantWriteError):
            while unsent:
                unsent = unsent[client.send(unsent[:16_384]) :]
        assert unsent  # the rest waits at the client until it reads
        assert listener.call().status == 200
        received = 0
        while received < calls * len(body):
            with contextlib.suppress(ssl.SSLWantWriteError):
                if unsent:
                    unsent = unsent[client.send(unsent[:16_384]) :]
            with contextlib.suppress(ssl.SSLWantReadError):
                received += client.recv(65_536).count(b"x")

    assert not unsent


def test_a_client_that_reads_nothing_has_one_answer_kept(listener: Listener) -> None:
    calls = 30
    call = CALL.replace(b"Host: x", b"Host: x\r\nX-Times: 8000000") % 1 + b"x"
    with listener.open_tls() as client:
        client.sendall(call * calls)
        wait_until(
            lambda: any(item._is_held_back for item in listener.server._channels()),
            "an answer waits for the client",
        )
        (kept,) = [len(item._outgoing) for item in listener.server._channels()]

        received = 0
        while received < calls * 8_000_000:
            received += client.recv(2**20).count(b"x")

    assert 0 < kept < 2 * 8_000_000


def test_the_end_is_said_in_tls(listener: Listener) -> None:
    context = listener.context
    with context.wrap_socket(
        listener.open_tcp(),
        server_hostname="127.0.0.1",
        suppress_ragged_eofs=False,
    ) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")

        # An end without close_notify would be an `ssl.SSLEOFError`.
        answer = b"".join(iter(lambda: client.recv(65_536), b""))

    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")


def test_the_application_sees_https(listener: Listener) -> None:
    assert listener.call().headers["x-scheme"] == "https"


def test_blank_lines_begin_no_request(listener: Listener) -> None:
    with listener.open_tls() as client:
        client.sendall(b"\r\n\r")
        assert listener.call().status == 200
        wait_until(lambda: listener.server.is_idle, "nothing is being received")

        client.sendall(b"\n" + CALL % 1 + b"x")

        assert client.recv(65_536).startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_host_that_nobody_has_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"cannot listen on 192\.0\.2\.1:0: Cannot"):
        Listener(tmp_path, host="192.0.2.1")


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="wants IPv6")
def test_all_ipv6_addresses_are_all_ipv4_ones_too(tmp_path: Path) -> None:
    listener = Listener(tmp_path, host="::")
    assert listener.call().status == 200
    listener.stop()


def test_a_listener_that_never_started_can_be_stopped(tmp_path: Path) -> None:
    Listener(tmp_path, is_started=False).stop()


def test_clients_that_wait_to_be_accepted_at_the_end_are_served(tmp_path: Path) -> None:
    listener = Listener(tmp_path, is_started=False)
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(listener.open_tcp())
            for _ in range(2 * https.ACCEPTS_PER_TURN + 1)
        ]
        for client in clients:
            client.sendall(client_hello(listener.context))
        listener.server.start()
        stopping = threading.Thread(target=listener.stop)
        stopping.start()

        answers = [read_some(client) for client in clients]

    stopping.join()
    assert all(answers)


def test_accepting_goes_on_when_nobody_can_be_let_go(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept, faults = socket.socket.accept, [OSError(errno.EMFILE, "full")]

    def accept_if_there_is_room(self: socket.socket) -> tuple[socket.socket, Any]:
        if faults:
            raise faults.pop()
        return accept(self)

    monkeypatch.setattr(socket.socket, "accept", accept_if_there_is_room)

    assert listener.call().status == 200
    assert not faults


def test_a_fault_of_ours_ends_its_connection_alone(
    listener: Listener,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with listener.open_tls() as client:
        client.sendall(CALL % 1 + b"x")
        assert client.recv(65_536).startswith(b"HTTP/1.1 200 OK\r\n")
        monkeypatch.setattr(https.TlsChannel, "_read", lambda _: 1 / 0)
        client.sendall(CALL % 1 + b"x")
        assert read_all(client) == b""
        monkeypatch.undo()

    assert listener.call().status == 200
    assert "connection failed" in caplog.messages


def test_the_log_has_the_address_of_a_client_that_is_closed(
    listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "service.http.https")
    with listener.open_tcp() as client:
        address = client.getsockname()
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        read_all(client)

    (line,) = [r for r in caplog.records if r.getMessage() == "connection ended"]
    assert line.__dict__["fields"]["client"] == address
    assert "HTTP_REQUEST" in line.__dict__["fields"]["reason"]
