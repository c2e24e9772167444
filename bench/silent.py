"""Calls beside clients that say nothing, or stop in the middle of a handshake."""

import socket
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from typing import Final

from bench.client import LOOPBACK, Connection, check_status, connect
from bench.mutate_client import review_of

IDLE: Final = 150
HALF_OPEN: Final = 20
ROUNDS: Final = 5
CALLS: Final = 20

HEALTHZ: Final = f"GET /healthz HTTP/1.1\r\nHost: {LOOPBACK}\r\n\r\n".encode()


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


def silent_round(
    port: int, context: ssl.SSLContext, calls: Mapping[str, Callable[[], None]]
) -> dict[str, list[float]]:
    """Return the seconds of each call while clients of the HTTPS listener are silent.

    The server ends handshakes after some seconds: they are begun anew in each round.
    """
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    with ExitStack() as stack:
        for _ in range(IDLE):
            stack.enter_context(connect(port, context))
        for _ in range(HALF_OPEN):
            stack.enter_context(begin_handshake(port))
        for _ in range(CALLS):
            for name, call in calls.items():
                started = time.perf_counter()
                call()
                seconds[name].append(time.perf_counter() - started)
    return seconds


def measure(
    ports: tuple[int, int], context: ssl.SSLContext, review: bytes, to_filter: bytes
) -> dict[str, list[float]]:
    """Return the seconds of each kind of call; each call has its own connection.

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
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, seconds in silent_round(https, context, calls).items():
            found[name] += seconds
    return found
