"""What the product promises of a large, busy cluster, and by how much it is kept.

The real process watches 5,000 nodes and 100,000 pods on a server that replays them and
sends events of pods all the time. One caller asks about all nodes for one pending pod
after the other, filter and then prioritize; a pair of calls counts as one.
"""

import gc
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from bench.client import Connection, check_filter, check_prioritize, request_bytes
from bench.cluster.cache.process import (
    Service,
    fetch,
    replayed,
    running,
    stream,
    sync_seconds,
)
from bench.clusters import POD_UID, sampled_bodies
from bench.figures import Bar, percentile_ms
from bench.processes import AnswerError, BenchError

NODES: Final = 5000
PODS: Final = 100_000
EVENTS_PER_SECOND: Final = 500
BODIES: Final = 8
PAIRS: Final = 2000
WARM_UP_PAIRS: Final = 50
LONGEST_SECONDS: Final = 60.0
# The rate that was reached, as a part of the one that was asked for.
LEAST_RATE: Final = 0.9

# percentile -> milliseconds that a pair takes less than
PROMISE: Final = {50: 50.0, 95: 100.0, 99: 200.0}
FACTOR_BAR: Final = 5.0


class Busy(NamedTuple):
    """Seconds of each pair, and the events that were taken meanwhile."""

    seconds: list[float]
    events_per_second: float


class Caller:
    """Asks about all nodes, for another pod each time."""

    def __init__(self, port: int) -> None:
        self._connection = Connection(port)
        self._bodies = sampled_bodies(NODES, NODES, BODIES)
        self._pairs = 0

    def time_pair(self) -> float:
        """Return the seconds of the two calls about one pod."""
        self._pairs += 1
        uid = f"{POD_UID[:-8]}{self._pairs:08x}".encode()
        body = self._bodies[self._pairs % BODIES].replace(POD_UID.encode(), uid)
        head, answer, filtering = self._call("filter", body)
        passed = check_filter(head, answer, NODES)
        parts = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        parts["NodeNames"] = msgspec.Raw(msgspec.json.encode(passed))
        head, answer, scoring = self._call("prioritize", msgspec.json.encode(parts))
        check_prioritize(head, answer, len(passed))
        return filtering + scoring

    def _call(self, verb: str, body: bytes) -> tuple[bytes, bytes, float]:
        request = request_bytes(f"/scheduler/{verb}", body)
        started = time.perf_counter()
        head, answer = self._connection.call(request)
        return head, answer, time.perf_counter() - started


def measure() -> Busy:
    """Start server and process, and time calls while events come."""
    with (
        tempfile.TemporaryDirectory(prefix="gpu-extender-bench-") as name,
        replayed(Path(name), NODES, PODS) as server,
        running(Path(name), server) as service,
    ):
        sync_seconds(service, server)
        try:
            return time_calls(service, server)
        except (AnswerError, msgspec.MsgspecError, OSError) as error:
            raise BenchError(f"a call failed: {error}") from error


def time_calls(service: Service, server: int) -> Busy:
    """Time pairs while the server sends events."""
    caller = Caller(service.port)
    longest = int(LONGEST_SECONDS) + 60
    stream(server, EVENTS_PER_SECOND * longest, EVENTS_PER_SECOND)
    for _ in range(WARM_UP_PAIRS):
        caller.time_pair()
    gc.disable()
    try:
        before, started = service.watched_events(), time.monotonic()
        seconds: list[float] = []
        while len(seconds) < PAIRS and time.monotonic() < started + LONGEST_SECONDS:
            seconds.append(caller.time_pair())
        taken = service.watched_events() - before
        elapsed = time.monotonic() - started
    finally:
        gc.enable()
    fetch(server, "/stop")
    busy = Busy(seconds, taken / elapsed)
    if busy.events_per_second < LEAST_RATE * EVENTS_PER_SECOND:
        raise BenchError(f"only {busy.events_per_second:.0f} events taken a second")
    return busy


def table(busy: Busy) -> str:
    """Return the percentiles of a pair."""
    points = ", ".join(
        f"p{percent} {percentile_ms(busy.seconds, percent):.2f}" for percent in PROMISE
    )
    return (
        f"{NODES} names, {PODS} pods in the cache, {busy.events_per_second:.0f} watch"
        f" events a second, {len(busy.seconds)} filter + prioritize pairs\n\n"
        f"{points} ms, longest {max(busy.seconds) * 1000:.2f} ms\n"
    )


def bars(busy: Busy) -> list[Bar]:
    """Return by what factor each percentile is within what is promised."""
    return [
        Bar(
            f"promise_p{percent}_factor",
            promised / percentile_ms(busy.seconds, percent),
            FACTOR_BAR,
            is_least=True,
        )
        for percent, promised in PROMISE.items()
    ]
