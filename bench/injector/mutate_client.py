"""Many kept-alive TLS connections on which pods are reviewed.

It reads a `MutatePlan` from standard input and writes `MutateTimings` to standard
output. One thread serves all connections, as in `bench.extender.crowd_client`, whose
loops these are. Parts say which server they are about, so that two can take turns. When
each part took place is told, so that others can see what else went on then.
"""

import ssl
import time
from contextlib import closing
from itertools import chain
from typing import Any, Final

import msgspec

from bench.client import Connection, check_status, connect, request_bytes
from bench.extender.crowd_client import Caller, closed_loop, even_gaps, open_loop
from bench.processes import AnswerError, carry_out

PATH: Final = "/mutate"
CLOSED_LOOP: Final = -1.0
OURS, ECHO = "ours", "echo"


class Part(msgspec.Struct, frozen=True):
    """What is done for some seconds.

    Attributes
    ----------
    rate : float
        Reviews a second in an open loop with even gaps; 0 for a pause, `CLOSED_LOOP`
        for as many as are answered.
    server : str
        Which one is asked; a key of the plan's ports.
    connections : int
        On how many of the plan's connections; 0 for all.
    """

    rate: float
    seconds: float
    server: str = OURS
    connections: int = 0


class MutatePlan(msgspec.Struct, frozen=True):
    """What to send where.

    Attributes
    ----------
    ports : dict
        server name -> where it listens
    certificate : str
        File with what vouches for the servers.
    bodies : list of bytes
        Reviews; each connection goes through all of them.
    connections : int
        To each server.
    """

    ports: dict[str, int]
    certificate: str
    bodies: list[bytes]
    connections: int
    parts: list[Part]


class PartTimings(msgspec.Struct, frozen=True):
    """When a part began, how long all of it took, and each review in it."""

    started: float
    elapsed: float
    seconds: list[float]

    @property
    def ended(self) -> float:
        """When its last review was answered."""
        return self.started + self.elapsed

    @property
    def rate(self) -> float:
        """Reviews a second."""
        return len(self.seconds) / self.elapsed


class MutateTimings(msgspec.Struct, frozen=True):
    """Each part of a plan, in the same order."""

    parts: list[PartTimings]


def trusting(certificate: str) -> ssl.SSLContext:
    """Return a context that takes a server's own certificate."""
    return ssl.create_default_context(cafile=certificate)


def review_of(body: bytes, number: int) -> bytes:
    """Return the request of one connection, whose reviews have a UID of their own."""
    review = msgspec.json.decode(body)
    review["request"]["uid"] = f"{review['request']['uid'][:-4]}{number:04x}"
    return request_bytes(PATH, msgspec.json.encode(review))


def check_review(head: bytes, body: bytes) -> None:
    """Raise `AnswerError` unless the answer is a review that admits the pod."""
    check_status(head, body)
    answer: dict[str, Any] = msgspec.json.decode(body)
    if answer["kind"] != "AdmissionReview" or not answer["response"]["allowed"]:
        raise AnswerError(f"a pod was refused: {answer}")


def connect_all(plan: MutatePlan, port: int, context: ssl.SSLContext) -> list[Caller]:
    """Return the connections to one server, which has answered each review once."""
    with closing(Connection(port, context)) as connection:
        for body in plan.bodies:
            check_review(*connection.call(review_of(body, 0)))
    return [
        Caller(
            connect(port, context), [(review_of(body, number),) for body in plan.bodies]
        )
        for number in range(1, plan.connections + 1)
    ]


def carry_out_part(callers: list[Caller], part: Part) -> PartTimings:
    """Review pods, or wait, as long as `part` says."""
    started = time.perf_counter()
    seconds: list[float] = []
    if part.rate == CLOSED_LOOP:
        seconds = closed_loop(callers, part.seconds).seconds
    elif part.rate:
        seconds = open_loop(callers, even_gaps(part.rate), part.seconds).seconds
    else:
        time.sleep(part.seconds)
    return PartTimings(started, time.perf_counter() - started, seconds)


def run(plan: MutatePlan) -> MutateTimings:
    """Carry out a plan."""
    context = trusting(plan.certificate)
    callers = {
        name: connect_all(plan, port, context) for name, port in plan.ports.items()
    }
    timings = MutateTimings(
        [
            carry_out_part(callers[part.server][: part.connections or None], part)
            for part in plan.parts
        ]
    )
    for caller in chain.from_iterable(callers.values()):
        caller.close()
    return timings


if __name__ == "__main__":
    carry_out(MutatePlan, run)
