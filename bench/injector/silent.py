"""Calls beside clients that say nothing, or stop in the middle of a handshake."""

import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Final, NamedTuple

from bench.client import LOOPBACK, Connection, check_status, connect
from bench.injector.mutate_client import review_of

IDLE: Final = 150
HALF_OPEN: Final = 20
ROUNDS: Final = 5
CALLS: Final = 20

HEALTHZ: Final = f"GET /healthz HTTP/1.1\r\nHost: {LOOPBACK}\r\n\r\n".encode()


class Silence(NamedTuple):
    """Kind of call -> seconds of calls: alone, and beside silent clients."""

    alone: dict[str, list[float]]
    beside: dict[str, list[float]]

    @property
    def ratio(self) -> float:
        """How the longest call beside silent clients relates to the longest alone.

        >>> Silence({"a": [1.0], "b": [2.0]}, {"a": [3.0, 1.0], "b": [1.0]}).ratio
        1.5
        """
        alone, beside = (max(map(max, kinds.values())) for kinds in self)
        return beside / alone


def begin_handshake(port: int) -> socket.socket:
    """Return a connection on which half of a client's first message was sent."""
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(
        ssl.MemoryBIO(), outgoing, server_hostname=LOOPBACK
    )
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    hello = outgoing.read()
    connection = connect(port)
    connection.sendall(hello[: len(hello) // 2])
    return connection


@contextmanager
def silent_clients(port: int, context: ssl.SSLContext) -> Iterator[None]:
    """Keep clients of the HTTPS listener that are silent.

    The server ends handshakes after some seconds: they are begun anew in each round.
    """
    with ExitStack() as stack:
        for _ in range(IDLE):
            stack.enter_context(connect(port, context))
        for _ in range(HALF_OPEN):
            stack.enter_context(begin_handshake(port))
        yield


def time_round(
    calls: Mapping[str, Callable[[], None]], found: Mapping[str, list[float]]
) -> None:
    """Add the seconds of each call to those found before."""
    for _ in range(CALLS):
        for name, call in calls.items():
            started = time.perf_counter()
            call()
            found[name].append(time.perf_counter() - started)


def measure(
    ports: tuple[int, int], context: ssl.SSLContext, review: bytes, to_filter: bytes
) -> Silence:
    """Return the seconds of each kind of call; each call has its own connection.

    Rounds alone and beside silent clients take turns.

    Parameters
    ----------
    ports : tuple of (int, int)
        Of the HTTP and the HTTPS listener.
    context : ssl.SSLContext
    review : bytes
        Body of a review.
    to_filter : bytes
        Request.
    """
    http, https = ports

    def calling(
        port: int, request: bytes, used: ssl.SSLContext | None
    ) -> Callable[[], None]:
        def call() -> None:
            with closing(Connection(port, used)) as connection:
                check_status(*connection.call(request))

        return call

    calls = {
        "review": calling(https, review_of(review, 0), context),
        "healthz over HTTPS": calling(https, HEALTHZ, context),
        "filter": calling(http, to_filter, None),
        "healthz": calling(http, HEALTHZ, None),
    }
    silence = Silence({name: [] for name in calls}, {name: [] for name in calls})
    for call in calls.values():
        call()  # to warm up
    for _ in range(ROUNDS):
        time_round(calls, silence.alone)
        with silent_clients(https, context):
            time_round(calls, silence.beside)
    return silence
