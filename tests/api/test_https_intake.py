"""The HTTPS listener beside clients that trickle, stall, cheat and stay silent."""

import contextlib
import errno
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from service.http import https as limits
from tests.https_listener import WORKERS, Listener, read_all
from tests.service_process import DEADLINE_SECONDS, exchange, wait_until

# "At once" on a busy machine; each attack could hold a worker for longer.
SOON_SECONDS: Final = 5.0


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    """Run the listener."""
    running = Listener(tmp_path)
    yield running
    running.stop()


class Tricklers(threading.Thread):
    """Sends a byte to each of its clients in turn, until it is stopped."""

    def __init__(self, clients: list[ssl.SSLSocket], data: bytes) -> None:
        super().__init__(daemon=True)
        self._clients = clients
        self._data = data
        self.sent = 0
        self.stopped = threading.Event()

    def run(self) -> None:
        """Send."""
        for place in range(len(self._data)):
            for client in self._clients:
                with contextlib.suppress(OSError):
                    client.send(self._data[place : place + 1])
            self.sent = place + 1
            if self.stopped.wait(0.05):
                return


def trickle_until_answered(client: ssl.SSLSocket, data: bytes) -> tuple[int, bytes]:
    """Return how many bytes went out before the answer, and the answer.

    One thread does both: a TLS connection of OpenSSL is not for two at a time.
    """
    client.settimeout(0.05)
    for place in range(len(data)):
        client.sendall(data[place : place + 1])
        with contextlib.suppress(TimeoutError):
            begun = client.recv(65_536)
            client.settimeout(DEADLINE_SECONDS)
            return place + 1, begun + read_all(client)
    return len(data), b""


HEAD: Final = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"


@pytest.mark.parametrize("count", [8, 20])
@pytest.mark.parametrize(
    ("start", "rest"),
    [
        pytest.param(b"", HEAD + b"{" * 900, id="its head"),
        pytest.param(HEAD, b"{" * 900, id="its body"),
    ],
)
def test_clients_that_trickle_a_request_keep_nobody_waiting(
    listener: Listener, count: int, start: bytes, rest: bytes
) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(listener.open_tls()) for _ in range(count)]
        for client in clients:
            client.sendall(start)
        tricklers = Tricklers(clients, rest)
        tricklers.start()
        wait_until(lambda: tricklers.sent > 3, "all clients trickle")

        assert max(listener.review_seconds() for _ in range(10)) < SOON_SECONDS
        tricklers.stopped.set()
        tricklers.join()


def test_a_trickled_request_ends_at_its_deadline(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REQUEST_SECONDS", 0.3)
    with listener.open_tls() as client:
        sent, answer = trickle_until_answered(client, HEAD + b"{" * 900)
    assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert sent < 900


def test_many_idle_and_half_open_connections_keep_nobody_waiting(
    listener: Listener,
) -> None:
    with ExitStack() as stack:
        for _ in range(20):
            half = stack.enter_context(listener.open_tcp())
            half.sendall(b"\x16\x03\x01")
            stack.enter_context(listener.open_tcp())  # silent
            mute = stack.enter_context(listener.open_tcp())
            mute.sendall(b"GET / HTTP/1.1\r\n\r\n")
        idlers = [listener.connect() for _ in range(150)]
        for idler in idlers:
            stack.callback(idler.close)
            assert exchange(idler, "POST", "/mutate", b"x").status == 200

        assert max(listener.review_seconds() for _ in range(10)) < SOON_SECONDS
        assert {exchange(i, "POST", "/mutate", b"y").body for i in idlers} == {b"y"}


def test_clients_that_do_not_read_their_answers_keep_nobody_waiting(
    listener: Listener,
) -> None:
    body = b"x" * (6 * 2**20)
    head = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
    with ExitStack() as stack:
        for _ in range(2 * WORKERS):
            client = stack.enter_context(listener.open_tls())
            client.sendall(head % len(body) + body)

        assert max(listener.review_seconds() for _ in range(10)) < SOON_SECONDS


def test_an_answer_that_nobody_reads_ends_at_its_deadline(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = b"x" * (6 * 2**20)
    head = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
    # The request's own deadline must not be what ends the answer.
    monkeypatch.setattr(limits, "REQUEST_SECONDS", 3600.0)
    with listener.open_tls() as client:
        client.sendall(head % len(body) + body[:-1])
        wait_until(lambda: not listener.server.is_idle, "it is being read")
        monkeypatch.setattr(limits, "REQUEST_SECONDS", 0.3)
        client.sendall(body[-1:])

        wait_until(lambda: listener.server.is_idle, "it has been given up")

        assert 0 < len(read_all(client)) < len(body)


def test_a_spare_connection_may_idle_longer_than_a_request_may_take(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    spare, used = listener.connect(), listener.connect()
    spare.connect()
    assert exchange(used, "POST", "/mutate", b"x").status == 200

    with monkeypatch.context() as short, listener.open_tcp() as silent:
        short.setattr(limits, "REQUEST_SECONDS", 0.1)
        short.setattr(limits, "HANDSHAKE_SECONDS", 0.5)
        silent.sendall(b"\x16")
        assert read_all(silent) == b""  # its handshake has expired by now

    for connection in (spare, used):
        assert exchange(connection, "POST", "/mutate", b"x").status == 200
        connection.close()


def test_idle_connections_live_longer_than_gos_clients_keep_theirs() -> None:
    assert limits.IDLE_SECONDS > 90


def test_an_idle_connection_ends_in_the_end(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "IDLE_SECONDS", 0.2)
    with listener.open_tls() as client:
        assert read_all(client) == b""


def test_idle_connections_stay_while_the_process_drains(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever uses one at the moment of its end would see a failed call."""
    monkeypatch.setattr(limits, "CLOSING_IDLE_SECONDS", 0.0)
    with listener.open_tls() as idle:
        wait_until(lambda: bool(listener.server.active_channels), "it is accepted")
        (channel,) = listener.server.active_channels.values()
        wait_until(lambda: channel.is_idle, "it has shaken hands")
        looks: list[float] = []
        expire = channel.expire

        def look(now: float) -> None:
            expire(now)
            looks.append(now)

        monkeypatch.setattr(channel, "expire", look)
        listener.is_draining = True
        wait_until(lambda: len(looks) > 2, "it has been looked at")

        idle.sendall(b"POST /mutate HTTP/1.1\r\nContent-Length: 1\r\n\r\nx")

        answer = read_all(idle)
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert b"Connection: close" in answer


def test_idle_connections_end_soon_while_callers_are_sent_elsewhere(
    listener: Listener,
) -> None:
    with listener.open_tls() as spare, listener.open_tls() as used:
        used.sendall(b"POST /mutate HTTP/1.1\r\nContent-Length: 1\r\n\r\nx")
        assert b"200 OK" in used.recv(4096)

        listener.is_elsewhere = True

        assert read_all(spare) == read_all(used) == b""
        wait_until(lambda: not listener.server.active_channels, "all are closed")


def test_a_request_that_comes_in_is_answered_while_callers_are_sent_elsewhere(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CLOSING_IDLE_SECONDS", 0.0)
    with listener.open_tls() as client:
        client.sendall(b"POST /mutate HTTP/1.1\r\nContent-Length: 2\r\n\r\nx")
        wait_until(lambda: not listener.server.is_idle, "it is being read")
        listener.is_elsewhere = True
        # Other connections end meanwhile.
        with listener.open_tls() as idle:
            assert read_all(idle) == b""

        client.sendall(b"y")

        answer = read_all(client)
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert answer.endswith(b"xy")


def test_what_came_just_before_an_idle_connection_ends_is_answered(
    listener: Listener,
) -> None:
    call = b"POST /mutate HTTP/1.1\r\nContent-Length: 1\r\n\r\n"
    is_sent = threading.Event()
    with listener.open_tls() as client:
        client.sendall(call + b"x")
        assert b"200 OK" in client.recv(4096)
        (channel,) = listener.server.active_channels.values()

        def end_idle_ones_late() -> None:
            is_sent.wait(DEADLINE_SECONDS)
            listener.is_elsewhere = True
            channel.expire(time.monotonic() + 2 * limits.CLOSING_IDLE_SECONDS)

        # In the loop before it looks at what the client sends.
        listener.server._loop.call_soon_threadsafe(end_idle_ones_late)
        client.sendall(call + b"y")
        is_sent.set()

        answer = read_all(client)
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert answer.endswith(b"y")


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        pytest.param("Content-Length: 7340033", b"413", id="a body above 7 MiB"),
        pytest.param("Transfer-Encoding: chunked", b"411", id="a chunked body"),
        pytest.param("Content-Length: many", b"400", id="no length"),
        pytest.param("X: " + "x" * 40_000, b"431", id="a long head"),
    ],
)
def test_a_request_that_is_not_to_be_is_answered_while_it_is_sent(
    listener: Listener, request_head: str, status: bytes
) -> None:
    head = f"POST /mutate HTTP/1.1\r\nHost: x\r\n{request_head}\r\n\r\n".encode()
    with listener.open_tls() as client:
        with contextlib.suppress(OSError):  # it may be cut off
            client.sendall(head + b"0" * 2_000_000)

        answer = read_all(client)

    assert answer.startswith(b"HTTP/1.1 " + status)
    assert b"\r\nConnection: close\r\n" in answer
    assert answer.endswith(b'"}')


def test_a_head_without_end_is_cut_off(listener: Listener) -> None:
    with listener.open_tls() as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\n" + b"X: y\r\n" * 10_000)

        assert read_all(client).startswith(b"HTTP/1.1 431 ")


def test_answers_have_no_byte_too_many(listener: Listener) -> None:
    call = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
    last = call.replace(b"Host: x", b"Host: x\r\nConnection: close")
    with listener.open_tls() as client:
        client.sendall(b"\r\n" + call + b"\r\n" + call + last)

        answers = read_all(client).split(b"HTTP/1.1 200 OK\r\n")

    assert answers[0] == b""
    assert len(answers) == 4
    assert all(answer.endswith(b"\r\n\r\nabc") for answer in answers[1:])


def test_a_client_that_waits_to_be_told_is_told_once(listener: Listener) -> None:
    head = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n"
    with listener.open_tls() as client:
        client.sendall(head + b"Expect: 100-continue\r\nConnection: close\r\n\r\n")
        told = client.recv(100)
        client.sendall(b"abc")

        answer = read_all(client)

    assert told == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\nabc")


def test_beyond_the_limit_the_slowest_client_is_let_go(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.http.https.MAX_CONNECTIONS", 3)
    idle = listener.connect()
    assert exchange(idle, "POST", "/mutate", b"x").status == 200
    with listener.open_tls() as slow, listener.open_tls() as second:
        slow.sendall(HEAD + b"{")
        second.sendall(HEAD + b"{")
        wait_until(lambda: not listener.server.is_idle, "they are being read")

        seconds = listener.review_seconds()

        assert seconds < DEADLINE_SECONDS
        assert exchange(idle, "POST", "/mutate", b"x").status == 200
    idle.close()


def test_without_file_descriptors_the_slowest_client_is_let_go(
    listener: Listener,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    accept, faults = socket.socket.accept, [OSError(errno.EMFILE, "Too many files")]

    def accept_if_there_is_room(self: socket.socket) -> tuple[socket.socket, Any]:
        if faults:
            raise faults.pop()
        return accept(self)

    with listener.open_tls() as slow:
        slow.sendall(HEAD + b"{")
        wait_until(lambda: not listener.server.is_idle, "it is being read")
        monkeypatch.setattr(socket.socket, "accept", accept_if_there_is_room)

        seconds = listener.review_seconds()

        assert seconds < DEADLINE_SECONDS
        assert read_all(slow) == b""
    assert "connection not accepted" in caplog.messages


def test_half_received_requests_have_a_limit_all_together(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.http.https.MAX_RECEIVED_BYTES", 1000)
    with listener.open_tls() as small, listener.open_tls() as large:
        small.sendall(HEAD + b"{" * 100)
        large.sendall(HEAD.replace(b"1000", b"5000") + b"{" * 2000)

        assert read_all(large) == b""
        small.sendall(b"}" * 900)
        assert small.recv(100).startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_drain_ends_connections_after_their_answers(listener: Listener) -> None:
    connection = listener.connect()
    connection.connect()
    listener.is_draining = True

    with listener.open_tls() as client:
        client.sendall(HEAD + b"{" * 1000)
        answer = read_all(client)

    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\n" + b"{" * 1000)
    connection.close()


def test_a_stop_lets_a_request_that_has_begun_finish(listener: Listener) -> None:
    with listener.open_tls() as client:
        client.sendall(HEAD)
        wait_until(lambda: not listener.server.is_idle, "the head has come")
        stop = threading.Thread(target=listener.server.stop)
        stop.start()
        client.sendall(b"{" * 1000)

        answer = client.recv(65_536)

        stop.join(DEADLINE_SECONDS)
        assert not stop.is_alive()
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
