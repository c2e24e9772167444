"""Time explanations beside filter calls about the same nodes, and while they are made.

An explanation is `POST /explain` of a pod that fits nowhere, as the webhook would admit
it. The verbs are timed in rounds that alternate: alone, and with as many callers of
`/explain` as are worked on at a time, each asking without a pause.
"""

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import msgspec

from bench.client import Connection, check_filter, check_status, request_bytes
from bench.clusters import POD_UID, sampled_bodies
from bench.figures import Bar, percentile_ms

EXPLANATIONS: Final = 2  # as many as are worked on at a time
ROUNDS: Final = 10
CALLS: Final = 60
WARM_UP_CALLS: Final = 20
READY_SECONDS: Final = 60.0
PAUSE_SECONDS: Final = 0.1
GPUS_ON_NO_NODE: Final = 16

OVER_FILTER_BAR: Final = 10.0
P99_BAR: Final = 2.0


class ExplainTimings(NamedTuple):
    """Seconds of explanations, and of filter calls without and with them."""

    explanations: list[float]
    filters: list[float]
    filters_under: list[float]
    explained_under: int


class _Caller:
    """Asks the filter about all nodes, for another pod each time."""

    def __init__(self, port: int, nodes: int) -> None:
        self._connection = Connection(port)
        self._nodes = nodes
        (self._body,) = sampled_bodies(nodes, nodes, 1)
        self._calls = 0

    def time_filter(self) -> float:
        """Return the seconds of one call."""
        self._calls += 1
        uid = f"{POD_UID[:-8]}{self._calls:08x}".encode()
        body = self._body.replace(POD_UID.encode(), uid)
        request = request_bytes("/scheduler/filter", body)
        started = time.perf_counter()
        head, answer = self._connection.call(request)
        seconds = time.perf_counter() - started
        check_filter(head, answer, self._nodes)
        return seconds


def explain_request(nodes: int) -> bytes:
    """Return the request to explain a pod that asks more GPUs than any node has."""
    (body,) = sampled_bodies(nodes, 1, 1)
    pod = msgspec.json.decode(body)["Pod"]
    for key in ("uid", "creationTimestamp"):  # one that is yet to be created
        del pod["metadata"][key]
    for amounts in pod["spec"]["containers"][0]["resources"].values():
        amounts["nvidia.com/gpu"] = str(GPUS_ON_NO_NODE)
    return request_bytes("/explain", msgspec.json.encode(pod))


def measure(port: int, nodes: int) -> ExplainTimings:
    """Time both against a process that serves a cluster of so many nodes."""
    caller, request = _Caller(port, nodes), explain_request(nodes)
    connection = Connection(port)
    _await_snapshot(connection, request)
    for _ in range(WARM_UP_CALLS):
        caller.time_filter()
        check_status(*connection.call(request))
    explanations, alone, under, explained = [], [], [], 0
    for _ in range(ROUNDS):
        for _ in range(CALLS):
            alone.append(caller.time_filter())
            started = time.perf_counter()
            head, answer = connection.call(request)
            explanations.append(time.perf_counter() - started)
            check_status(head, answer)
        alone += [caller.time_filter() for _ in range(CALLS)]
        with _explaining(port, request) as counts:
            under += [caller.time_filter() for _ in range(2 * CALLS)]
        explained += sum(counts)
    connection.close()
    return ExplainTimings(explanations, alone, under, explained)


def _await_snapshot(connection: Connection, request: bytes) -> None:
    """Ask until the process has read its cluster."""
    ends = time.monotonic() + READY_SECONDS
    while b" 503 " in connection.call(request)[0] and time.monotonic() < ends:
        time.sleep(PAUSE_SECONDS)


@contextmanager
def _explaining(port: int, request: bytes) -> Iterator[list[int]]:
    """Ask for explanations all the time; the counts are filled in at the end."""
    ended, counts = threading.Event(), [0] * EXPLANATIONS

    def ask(index: int) -> None:
        connection = Connection(port)
        while not ended.is_set():
            check_status(*connection.call(request))
            counts[index] += 1
        connection.close()

    threads = [
        threading.Thread(target=ask, args=(index,)) for index in range(EXPLANATIONS)
    ]
    for thread in threads:
        thread.start()
    try:
        yield counts
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def table(timings: ExplainTimings, nodes: int) -> str:
    """Return percentiles of each."""
    lines = [f"explanations of a pod that fits none of {nodes} nodes, over HTTP", ""]
    for title, seconds in (
        ("explain", timings.explanations),
        ("filter", timings.filters),
        (f"filter, {EXPLANATIONS} explanations at once", timings.filters_under),
    ):
        lines.append(
            f"{title:38} {len(seconds):5} calls  p50 {percentile_ms(seconds, 50):7.2f}"
            f"  p99 {percentile_ms(seconds, 99):7.2f} ms"
        )
    lines.append(f"{timings.explained_under} explanations were made meanwhile")
    return "\n".join(lines) + "\n"


def bars(timings: ExplainTimings) -> list[Bar]:
    """Return what an explanation costs, and what it costs the verbs."""
    over = statistics.median(timings.explanations) / statistics.median(timings.filters)
    p99 = percentile_ms(timings.filters_under, 99) / percentile_ms(timings.filters, 99)
    return [
        Bar("explain_over_filter", over, OVER_FILTER_BAR),
        Bar("filter_p99_under_explain", p99, P99_BAR),
    ]
