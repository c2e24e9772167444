"""A raw-socket client: one kept-alive connection to each server, one call at a time.

It reads a `Plan` from standard input and writes `Timings` to standard output. Rounds
alternate between the servers, so that a noisy neighbour disturbs both alike. Each
question is asked once before, and its answer checked; when its time is taken it must
be the same to the byte. A wrong answer ends the run.
"""

import socket
import ssl
import time
from itertools import chain
from typing import Final, NamedTuple

import msgspec

from bench.processes import AnswerError, carry_out

LOOPBACK: Final = "127.0.0.1"
TIMEOUT_SECONDS: Final = 30.0
RECV_BYTES: Final = 1_048_576
END_OF_HEAD: Final = b"\r\n\r\n"


class Load(msgspec.Struct, frozen=True):
    """Calls of one size: in each round `pairs` of them, going through `bodies`.

    A body is that of the filter call. The prioritize call asks about what passed.

    Attributes
    ----------
    ports : dict
        server name -> where it listens; the same names for all loads of a plan.
    """

    names: int
    pairs: int
    bodies: list[bytes]
    ports: dict[str, int] = {}


class Call(NamedTuple):
    """A prepared request, and the answer that it got when it was checked."""

    request: bytes
    answer: bytes


class Plan(msgspec.Struct, frozen=True):
    """What to send, and how often."""

    loads: list[Load]
    rounds: int
    warm_up_rounds: int


class Timings(msgspec.Struct, frozen=True):
    """Seconds of each filter + prioritize pair.

    ``seconds[server][load][round]`` holds one number for each pair of that round.
    """

    seconds: dict[str, list[list[list[float]]]]


class FilterAnswer(msgspec.Struct, frozen=True, rename="pascal"):
    """``ExtenderFilterResult``, as far as it is checked."""

    node_names: list[str]
    failed_nodes: dict[str, str]
    failed_and_unresolvable_nodes: dict[str, str]


class Host(msgspec.Struct, frozen=True, rename="pascal"):
    """One entry of a ``HostPriorityList``."""

    host: str
    score: int


def connect(port: int, context: ssl.SSLContext | None = None) -> socket.socket:
    """Return a connection to a port of this machine, over TLS if there is a context."""
    plain = socket.create_connection((LOOPBACK, port), TIMEOUT_SECONDS)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if context is None:
        return plain
    return context.wrap_socket(plain, server_hostname=LOOPBACK)


class Connection:
    """One kept-alive connection."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None) -> None:
        self._socket = connect(port, context)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def call(self, request: bytes) -> tuple[bytes, bytes]:
        """Send a request; return head and body of its answer."""
        self._socket.sendall(request)
        data = self._receive()
        while (end := data.find(END_OF_HEAD)) < 0:
            data += self._receive()
        head = bytes(data[:end])
        body = [bytes(data[end + len(END_OF_HEAD) :])]
        missing = content_length(head) - len(body[0])
        while missing > 0:
            body.append(self._receive())
            missing -= len(body[-1])
        return head, b"".join(body)

    def _receive(self) -> bytes:
        data = self._socket.recv(RECV_BYTES)
        if not data:
            raise AnswerError("connection closed in the middle of an answer")
        return data


def content_length(head: bytes) -> int:
    """Return what the head of an answer says of its body's length.

    >>> content_length(b"HTTP/1.1 200 OK\\r\\nContent-Length: 12")
    12
    """
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.lower() == b"content-length":
            return int(value)
    raise AnswerError(f"answer without Content-Length: {head!r}")


def request_bytes(path: str, body: bytes) -> bytes:
    """Return a request with the headers that kube-scheduler sends."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: Go-http-client/1.1\r\n"
        f"Content-Length: {len(body)}\r\nContent-Type: application/json\r\n"
        "Accept-Encoding: gzip\r\n\r\n"
    )
    return head.encode() + body


def check_filter(head: bytes, body: bytes, names: int) -> list[str]:
    """Return the names that passed; raise `AnswerError` unless all are answered."""
    check_status(head, body)
    answer = msgspec.json.decode(body, type=FilterAnswer)
    failed = len(answer.failed_nodes) + len(answer.failed_and_unresolvable_nodes)
    if len(answer.node_names) + failed != names or not answer.node_names:
        raise AnswerError(
            f"filter: wanted {names} names,"
            f" got {len(answer.node_names)} that pass and {failed} that fail"
        )
    return answer.node_names


def check_prioritize(head: bytes, body: bytes, names: int) -> None:
    """Raise `AnswerError` unless each name has a score."""
    check_status(head, body)
    hosts = msgspec.json.decode(body, type=list[Host])
    if len(hosts) != names:
        raise AnswerError(f"prioritize: wanted {names} hosts, got {len(hosts)}")


def check_same(head: bytes, body: bytes, expected: bytes) -> None:
    """Raise `AnswerError` unless the answer is the one that was checked before."""
    check_status(head, body)
    if body != expected:
        raise AnswerError(f"another answer to the same question: {body[:200]!r}")


def check_status(head: bytes, body: bytes) -> None:
    """Raise `AnswerError` unless the answer is 200 OK."""
    status = head.split(b"\r\n")[0]
    if b" 200 " not in status:
        raise AnswerError(f"wanted 200, got {status!r}: {body[:200]!r}")


def prepare(
    connection: Connection, load: Load, passing: list[list[str]]
) -> list[tuple[Call, Call]]:
    """Ask once and check the answers: a filter and a prioritize call for each body.

    `passing` has the names that the prioritize call is about; the names that pass are
    added where it ends.
    """
    pairs = []
    for turn, body in enumerate(load.bodies):
        to_filter = request_bytes("/scheduler/filter", body)
        head, filtered = connection.call(to_filter)
        passed = check_filter(head, filtered, load.names)
        if turn == len(passing):
            passing.append(passed)
        parts = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        parts["NodeNames"] = msgspec.Raw(msgspec.json.encode(passing[turn]))
        asked = msgspec.json.encode(parts)
        to_prioritize = request_bytes("/scheduler/prioritize", asked)
        head, prioritized = connection.call(to_prioritize)
        check_prioritize(head, prioritized, len(passing[turn]))
        pairs.append((Call(to_filter, filtered), Call(to_prioritize, prioritized)))
    return pairs


def time_round(
    connection: Connection, pairs: list[tuple[Call, Call]], count: int
) -> list[float]:
    """Return the seconds that each of `count` pairs took."""
    seconds = []
    for turn in range(count):
        to_filter, to_prioritize = pairs[turn % len(pairs)]
        started = time.perf_counter()
        filtered = connection.call(to_filter.request)
        prioritized = connection.call(to_prioritize.request)
        seconds.append(time.perf_counter() - started)
        check_same(*filtered, to_filter.answer)
        check_same(*prioritized, to_prioritize.answer)
    return seconds


def run(plan: Plan) -> Timings:
    """Carry out a plan. All servers are sent what the first one's answers call for."""
    order = list(plan.loads[0].ports)
    connections = {
        name: [Connection(load.ports[name]) for load in plan.loads] for name in order
    }
    passing: list[list[list[str]]] = [[] for _ in plan.loads]
    prepared = {
        name: [
            prepare(connection, load, names)
            for connection, load, names in zip(
                connections[name], plan.loads, passing, strict=True
            )
        ]
        for name in order
    }
    timings: dict[str, list[list[list[float]]]] = {
        name: [[] for _ in plan.loads] for name in order
    }
    for number in range(-plan.warm_up_rounds, plan.rounds):
        for position, load in enumerate(plan.loads):
            for name in order:
                pairs = prepared[name][position]
                taken = time_round(connections[name][position], pairs, load.pairs)
                if number >= 0:
                    timings[name][position].append(taken)
        order.reverse()  # each server goes first as often as the other
    for connection in chain.from_iterable(connections.values()):
        connection.close()
    return Timings(timings)


if __name__ == "__main__":
    carry_out(Plan, run)
