"""Many connections at a time, each of which asks for a pod of its own.

It reads a `CrowdPlan` from standard input and writes `CrowdTimings` to standard output.
One thread serves all connections, so that it takes little of the processors.

A round of one caller goes before each round of the crowd, to compare the two. In a
closed loop each connection asks again as soon as it is answered. In an open loop calls
come at a rate, whether the others are answered or not, and their time counts from the
moment at which they were due.
"""

import random
import select
import socket
import statistics
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final, NamedTuple

import msgspec

from bench.client import (
    END_OF_HEAD,
    RECV_BYTES,
    Call,
    Connection,
    Load,
    connect,
    content_length,
    prepare,
)
from bench.processes import AnswerError, carry_out

DRAIN_SECONDS: Final = 30.0
LOAD: Final = 0.5  # of the rate at which the server is saturated
SEED: Final = 7


class CrowdPlan(msgspec.Struct, frozen=True):
    """What to send where.

    `uid` is the pod's in the bodies of `load`; each connection puts its own in place.
    """

    port: int
    load: Load
    uid: bytes
    connections: int
    rounds: int
    round_seconds: float


class CrowdTimings(msgspec.Struct, frozen=True):
    """Seconds of each filter + prioritize pair, round by round.

    Attributes
    ----------
    single_rates, crowd_rates : list of float
        Pairs a second in closed loops of the same round.
    single, even, uneven : list of list of float
        One caller, and open loops with even gaps and with random ones.
    open_rate : float
        Pairs a second in the open loops.
    """

    single_rates: list[float]
    crowd_rates: list[float]
    single: list[list[float]]
    even: list[list[float]]
    uneven: list[list[float]]
    open_rate: float


class Round(NamedTuple):
    """What one round took: each pair, and all of it."""

    seconds: list[float]
    elapsed: float

    @property
    def rate(self) -> float:
        """Pairs a second."""
        return len(self.seconds) / self.elapsed


class Caller:
    """One kept-alive connection, which asks again and again.

    Parameters
    ----------
    connection : socket
    turns : sequence of tuple of bytes
        What is asked, one after the other: the requests of one go, each of which is
        sent when the one before it is answered.
    """

    def __init__(
        self, connection: socket.socket, turns: Sequence[tuple[bytes, ...]]
    ) -> None:
        self._socket = connection
        self._turns = turns
        self._turn = -1
        self._due = 0.0
        self._waiting: Iterator[bytes] = iter(())  # what is still to be sent
        self._data = bytearray()
        self._end = 0  # of the answer in `_data`, 0 while that is not known

    def fileno(self) -> int:
        """Return what `select` waits for."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def begin(self, due: float) -> None:
        """Send the first request of the next go, which was due at a moment."""
        self._turn = (self._turn + 1) % len(self._turns)
        self._due = due
        self._waiting = iter(self._turns[self._turn])
        self._socket.sendall(next(self._waiting))

    def receive(self) -> float | None:
        """Take what has come; return the seconds of the go when all is answered."""
        data = self._socket.recv(RECV_BYTES)
        if not data:
            raise AnswerError("connection closed in the middle of an answer")
        self._data += data
        if not self._end:
            self._end = self._find_end()
        if not self._end or len(self._data) < self._end:
            return None
        self._data.clear()
        self._end = 0
        request = next(self._waiting, None)
        if request is None:
            return time.perf_counter() - self._due
        self._socket.sendall(request)
        return None

    def _find_end(self) -> int:
        head_end = self._data.find(END_OF_HEAD)
        if head_end < 0:
            return 0
        head = bytes(self._data[:head_end])
        if not head.startswith(b"HTTP/1.1 200 "):
            raise AnswerError(f"wanted 200, got {head[:100]!r}")
        return head_end + len(END_OF_HEAD) + content_length(head)


def answered(busy: set[Caller], timeout: float) -> Iterator[tuple[Caller, float]]:
    """Yield callers that are answered, with the seconds that it took."""
    # Not epoll: its timeout is in whole milliseconds.
    for caller in select.select(list(busy), [], [], max(timeout, 0.0))[0]:
        seconds = caller.receive()
        if seconds is not None:
            busy.discard(caller)
            yield caller, seconds


def closed_loop(callers: list[Caller], duration: float) -> Round:
    """Ask on each connection again as soon as it is answered."""
    started = time.perf_counter()
    seconds: list[float] = []
    busy = set(callers)
    for caller in callers:
        caller.begin(time.perf_counter())
    while busy:
        now = time.perf_counter()
        if now - started > duration + DRAIN_SECONDS:
            raise AnswerError(f"{len(busy)} calls not answered")
        for caller, taken in answered(busy, DRAIN_SECONDS):
            seconds.append(taken)
            if now - started < duration:
                caller.begin(time.perf_counter())
                busy.add(caller)
    return Round(seconds, time.perf_counter() - started)


def open_loop(callers: list[Caller], gaps: Iterator[float], duration: float) -> Round:
    """Ask at moments that follow from `gaps`, on whichever connection is free."""
    started = time.perf_counter()
    end, due = started + duration, started + next(gaps)
    seconds: list[float] = []
    free, busy = deque(callers), set[Caller]()
    while busy or due < end:
        now = time.perf_counter()
        if now > end + DRAIN_SECONDS:
            raise AnswerError(f"{len(busy)} calls not answered")
        while free and due <= min(now, end):
            caller = free.popleft()
            caller.begin(due)
            busy.add(caller)
            due += next(gaps)
        wait = due - now if free and due < end else DRAIN_SECONDS
        for caller, taken in answered(busy, wait):
            seconds.append(taken)
            free.append(caller)
    return Round(seconds, time.perf_counter() - started)


def even_gaps(rate: float) -> Iterator[float]:
    """Yield the same gap again and again."""
    while True:
        yield 1 / rate


def random_gaps(rate: float) -> Iterator[float]:
    """Yield the gaps of callers that know nothing of each other."""
    source = random.Random(SEED)  # noqa: S311  no secret
    while True:
        yield source.expovariate(rate)


def pairs_of(
    plan: CrowdPlan, prepared: list[tuple[Call, Call]], number: int
) -> list[tuple[bytes, bytes]]:
    """Return the requests of one connection, whose pod has a UID of its own."""
    uid = plan.uid[:-4] + b"%04x" % number
    return [
        (
            to_filter.request.replace(plan.uid, uid),
            to_prioritize.request.replace(plan.uid, uid),
        )
        for to_filter, to_prioritize in prepared
    ]


def run(plan: CrowdPlan) -> CrowdTimings:
    """Carry out a plan."""
    with closing(Connection(plan.port)) as connection:
        prepared = prepare(connection, plan.load, [])
    callers = [
        Caller(connect(plan.port), pairs_of(plan, prepared, number))
        for number in range(plan.connections)
    ]
    one, duration = callers[:1], plan.round_seconds
    closed_loop(one, duration / 2)  # to warm up
    closed_loop(callers, duration / 2)
    timings = CrowdTimings([], [], [], [], [], 0.0)
    for _ in range(plan.rounds):
        timings.single_rates.append(closed_loop(one, duration).rate)
        timings.crowd_rates.append(closed_loop(callers, duration).rate)
    rate = LOAD * statistics.median(timings.crowd_rates)
    for _ in range(plan.rounds):
        timings.single.append(closed_loop(one, duration).seconds)
        timings.even.append(open_loop(callers, even_gaps(rate), duration).seconds)
        timings.uneven.append(open_loop(callers, random_gaps(rate), duration).seconds)
    for caller in callers:
        caller.close()
    return msgspec.structs.replace(timings, open_rate=rate)


if __name__ == "__main__":
    carry_out(CrowdPlan, run)
