"""Requests over TLS are answered as over plain HTTP, however they are cut."""

import contextlib
import itertools
import re
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.ledger.writer import SnapshotCell
from service.http.health import Health
from service.http.plain import HttpServer
from service.settings.process import ServerSettings
from tests.https_listener import Listener, echo, read_all
from tests.service_process import DEADLINE_SECONDS

bodies = st.one_of(
    st.binary(max_size=50),
    # Above what is passed on at a time, and above one record.
    st.builds(
        lambda byte, count: byte * count,
        st.binary(min_size=1, max_size=1),
        st.sampled_from([16_383, 16_384, 16_385, 65_536, 70_001, 300_000]),
    ),
)


def call(body: bytes, is_last: bool) -> bytes:
    """Return a request."""
    connection = b"Connection: close\r\n" if is_last else b""
    head = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s\r\n"
    return head % (len(body), connection) + body


requests = st.lists(bodies, min_size=1, max_size=4).map(
    lambda bodies: b"".join(
        call(body, number == len(bodies)) for number, body in enumerate(bodies, 1)
    )
)
cuts = st.lists(st.integers(0, 300_000), max_size=12)
garbage = st.one_of(
    st.binary(max_size=300),
    st.lists(
        st.sampled_from(
            [
                b"GET / HTTP/1.1\r\n",
                b"POST /mutate HTTP/1.0\r\n",
                b"Content-Length: 5\r\n",
                b"Transfer-Encoding: chunked\r\n",
                b"Expect: 100-continue\r\n",
                b"Connection: close\r\n",
                b"X_Y: z\r\n",
                b"\r\n",
                b"5\r\nhello\r\n0\r\n\r\n",
                b"hello",
                b" folded\r\n",
                b"\0",
            ]
        ),
        max_size=12,
    ).map(b"".join),
)


@pytest.fixture(scope="module")
def listener(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listener]:
    running = Listener(tmp_path_factory.mktemp("https"))
    yield running
    running.stop()


class PlainListener:
    """The same application over plain HTTP."""

    def __init__(self) -> None:
        health = Health(SnapshotCell(), dict, stale_after_seconds=1.0)
        self.server = HttpServer(echo, ServerSettings(port=0), health, threads=2)
        self.server.start()

    def connect(self) -> socket.socket:
        """Return a connection."""
        return socket.create_connection(
            ("127.0.0.1", self.server.port), DEADLINE_SECONDS
        )


@pytest.fixture(scope="module")
def plain() -> Iterator[PlainListener]:
    running = PlainListener()
    yield running
    running.server.stop()


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """Return the bytes, cut at these places."""
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(places) if a < b]


def exchange_all(client: socket.socket, parts: list[bytes]) -> bytes:
    """Send the parts, end, and return the answers, without time and scheme."""
    with client:
        with contextlib.suppress(OSError):  # it may be refused before its end
            for part in parts:
                client.sendall(part)
            socket.socket.shutdown(client, socket.SHUT_WR)  # below TLS, if any
        answers = read_all(client).replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"")
    return re.sub(rb"Date: [^\r]*|X-Scheme: https?", b"", answers)


@settings(max_examples=60, deadline=None)
@given(requests, cuts)
def test_answers_are_those_of_plain_http(
    listener: Listener, plain: PlainListener, sent: bytes, cuts: list[int]
) -> None:
    over_tls = exchange_all(listener.open_tls(), pieces(sent, cuts))

    assert over_tls == exchange_all(plain.connect(), [sent])
    assert over_tls.startswith(b"HTTP/1.1 200 OK\r\n")


@settings(max_examples=150, deadline=None)
@given(garbage, cuts)
def test_how_bytes_of_any_kind_are_cut_changes_no_answer(
    listener: Listener, sent: bytes, cuts: list[int]
) -> None:
    in_pieces = pieces(sent, [cut % 50 for cut in cuts])

    answers = exchange_all(listener.open_tls(), in_pieces)

    assert answers == exchange_all(listener.open_tls(), [sent])
    assert exchange_all(listener.open_tls(), [call(b"x", is_last=True)]).endswith(b"x")
