"""Time admission reviews over HTTPS, beside an echo, silent clients, and the verbs.

``python -m bench.injector.mutate`` starts the real process on a synthetic cluster, with
rules, a chain and a certificate, the echo of `bench.injector.https_echo`, and the
clients of `bench.injector.mutate_client` and `bench.extender.pairs_client`, each on its
own. It prints a table and one line for each bar.
"""

import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from bench.client import Load, request_bytes
from bench.clusters import sampled_bodies, write_dump
from bench.extender.crowd_client import LOAD
from bench.extender.pairs_client import Pairs, PairsPlan
from bench.figures import Bar, Spread, paired_ratios, percentile_ms
from bench.injector import silent
from bench.injector.mutate_client import (
    CLOSED_LOOP,
    ECHO,
    OURS,
    MutatePlan,
    MutateTimings,
    Part,
    PartTimings,
    trusting,
)
from bench.injector.reviews import (
    CHAIN,
    RULES,
    Work,
    answer,
    make_body,
    recode,
    time_in_turns,
)
from bench.injector.silent import Silence
from bench.processes import (
    ROOT,
    AnswerError,
    BenchError,
    run_client,
    started,
    webhook_port,
)
from tests.certificates import write_pair

NODES: Final = 1000
NAMES: Final = 420
FILTER_BODIES: Final = 8
CONNECTIONS: Final = 50
CAPTURES: Final = ROOT / "tests" / "contract" / "captures"

CLOSED_SECONDS: Final = 2.0
SINGLE_SECONDS: Final = 1.0
CLOSED_ROUNDS: Final = 8
OPEN_SECONDS: Final = 5.0
OPEN_ROUNDS: Final = 6
BESIDE_RATE: Final = 200.0
BESIDE_SECONDS: Final = 2.0
BESIDE_ROUNDS: Final = 15
# Until both clients of the last part have started and asked everything once.
START_SECONDS: Final = 3.0

# containers -> reviews in a round
OWN_CALLS: Final = {3: 200, 10: 100, 100: 10}
RECODE_CALLS: Final = 400
OWN_ROUNDS: Final = 30
USUAL, FEW, MOST = 3, 10, 100

ECHO_BAR: Final = 0.6
TAIL_BAR: Final = 5.0
FILTER_BAR: Final = 2.0
SILENT_BAR: Final = 10.0
RECODE_BAR: Final = 2.5


class Measured(NamedTuple):
    """All that was timed.

    Attributes
    ----------
    single, closed : dict
        server name -> rounds of the closed loop, on one connection and on all
    even : list of PartTimings
        Rounds of the open loop.
    alone, beside : list of list of float
        Seconds of filter + prioritize pairs, in rounds: without reviews, and beside
        them.
    silence : Silence
        Calls without silent clients, and beside them.
    own : dict
        containers -> processor seconds of one review in process, one for each round
    recoded : list of float
        Processor seconds of `json` for the review of three containers, as many.
    """

    single: dict[str, list[PartTimings]]
    closed: dict[str, list[PartTimings]]
    even: list[PartTimings]
    alone: list[list[float]]
    beside: list[list[float]]
    silence: Silence
    own: dict[int, list[float]]
    recoded: list[float]


class Served(NamedTuple):
    """Where the real process listens, its configuration, and what vouches for it."""

    http: int
    https: int
    config: Path
    certificate: str


def review_bodies() -> list[bytes]:
    """Return reviews as API servers have sent them, and one of three containers."""
    captured = sorted(CAPTURES.glob("*/mutate.*.json"))
    return [*(path.read_bytes() for path in captured), make_body(3)]


@contextmanager
def serve(folder: Path, nodes: int = NODES) -> Iterator[Served]:
    """Start the real process with a webhook on a cluster of so many nodes."""
    write_dump(folder / "cluster.json", nodes)
    certificate, key = write_pair(folder)
    config = folder / "config.json"  # JSON is YAML, too
    config.write_text(
        json.dumps(
            {
                "server": {"port": 0, "drainSeconds": 0},
                "cluster": {"source": "file", "files": ["cluster.json"]},
                "webhook": {
                    "host": "127.0.0.1",
                    "port": 0,
                    "certificateFile": certificate.name,
                    "keyFile": key.name,
                },
                "injection": {"rulesFile": str(RULES)},
                "fallback": {"chains": [CHAIN]},
            }
        )
    )
    log = folder / "ours.log"
    with started("service", "serve", "--config", str(config), log=log) as port:
        yield Served(port, webhook_port(log), config, str(certificate))


@contextmanager
def echoing(served: Served) -> Iterator[int]:
    """Start the echo with the configuration of the real process; its HTTPS port."""
    log = served.config.with_name("echo.log")
    arguments = "serve", "--config", str(served.config)
    with started("bench.injector.https_echo", *arguments, log=log):
        yield webhook_port(log)


def review_parts(
    served: Served, parts: list[Part], echo: int | None = None
) -> list[PartTimings]:
    """Let the client review pods in parts."""
    ports = {OURS: served.https} | ({} if echo is None else {ECHO: echo})
    plan = MutatePlan(ports, served.certificate, review_bodies(), CONNECTIONS, parts)
    return run_client("bench.injector.mutate_client", plan, MutateTimings).parts


def time_closed(
    served: Served,
) -> tuple[dict[str, list[PartTimings]], dict[str, list[PartTimings]]]:
    """Return rounds of closed loops by server, on one connection and on all."""
    order = [OURS, ECHO]
    parts = [Part(CLOSED_LOOP, 1.0, server) for server in order]  # to warm up
    for _ in range(CLOSED_ROUNDS):
        parts += [Part(CLOSED_LOOP, SINGLE_SECONDS, server, 1) for server in order]
        parts += [Part(CLOSED_LOOP, CLOSED_SECONDS, server) for server in order]
        order.reverse()  # each server goes first as often as the other
    with echoing(served) as echo:
        timings = review_parts(served, parts, echo)
    single, closed = (
        {
            server: [
                timing
                for part, timing in list(zip(parts, timings, strict=True))[len(order) :]
                if (part.server, part.connections) == (server, connections)
            ]
            for server in order
        }
        for connections in (1, 0)
    )
    return single, closed


def time_even(served: Served, rate: float) -> list[PartTimings]:
    """Return the rounds of an open loop of so many reviews a second."""
    parts = [Part(CLOSED_LOOP, 1.0), *[Part(rate, OPEN_SECONDS)] * OPEN_ROUNDS]
    return review_parts(served, parts)[1:]


def time_pairs(served: Served) -> tuple[list[list[float]], list[list[float]]]:
    """Return pairs alone and beside reviews, in rounds that take turns."""
    pause, reviewed = Part(0.0, BESIDE_SECONDS), Part(BESIDE_RATE, BESIDE_SECONDS)
    parts = [Part(0.0, START_SECONDS), *[pause, reviewed] * BESIDE_ROUNDS]
    load = Load(NAMES, 1, sampled_bodies(NODES, NAMES, FILTER_BODIES))
    longest = sum(part.seconds for part in parts) + START_SECONDS
    plan = PairsPlan(served.http, load, longest)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(run_client, "bench.extender.pairs_client", plan, Pairs)
        timings = review_parts(served, parts)[1:]
        pairs = asking.result()
    rounds = [pairs.between(part.started, part.ended) for part in timings]
    if not all(rounds):
        raise BenchError("one client was done before the other had begun")
    return rounds[::2], rounds[1::2]


def time_own() -> tuple[dict[int, list[float]], list[float]]:
    """Return processor seconds of reviews by containers, and those of `json`."""
    works = [
        Work(partial(answer, make_body(containers)), calls)
        for containers, calls in OWN_CALLS.items()
    ]
    recoding = Work(partial(recode, make_body(USUAL)), RECODE_CALLS)
    *own, recoded = time_in_turns([*works, recoding], OWN_ROUNDS)
    return dict(zip(OWN_CALLS, own, strict=True)), recoded


def measure(folder: Path) -> Measured:
    """Start the real process and time everything."""
    own, recoded = time_own()
    with serve(folder) as served:
        single, closed = time_closed(served)
        even = time_even(served, LOAD * rates(closed[OURS]).median)
        alone, beside = time_pairs(served)
        to_filter = request_bytes(
            "/scheduler/filter", sampled_bodies(NODES, NAMES, 1)[0]
        )
        silence = silent.measure(
            (served.http, served.https),
            trusting(served.certificate),
            make_body(USUAL),
            to_filter,
        )
    return Measured(single, closed, even, alone, beside, silence, own, recoded)


def rates(rounds: list[PartTimings]) -> Spread:
    """Return the reviews a second of rounds."""
    return Spread.of(one.rate for one in rounds)


def echo_ratio(measured: Measured) -> Spread:
    """Return how our reviews a second relate to the echo's, round by round."""
    ours, echo = ([one.rate for one in measured.closed[name]] for name in (OURS, ECHO))
    return paired_ratios(ours, echo)


def single_ratio(measured: Measured) -> Spread:
    """Return how the median of one caller relates to that of the echo's."""
    ours, echo = (
        [statistics.median(one.seconds) for one in measured.single[name]]
        for name in (OURS, ECHO)
    )
    return paired_ratios(ours, echo)


def tail_ratio(measured: Measured) -> Spread:
    """Return how p99 of the open loop relates to its p50, round by round."""
    p50, p99 = (
        [percentile_ms(one.seconds, point) for one in measured.even]
        for point in (50, 99)
    )
    return paired_ratios(p99, p50)


def filter_ratio(measured: Measured) -> Spread:
    """Return how the medians of pairs beside reviews relate to those alone."""
    return paired_ratios(
        [statistics.median(one) for one in measured.beside],
        [statistics.median(one) for one in measured.alone],
    )


def table(measured: Measured) -> str:
    """Return throughput, latency and what a review computes."""
    head = (
        f"reviews over HTTPS, {CONNECTIONS} connections, load average"
        f" {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"
    )
    silence = (
        f"each call on a new connection, and beside {silent.IDLE} idle connections and"
        f" {silent.HALF_OPEN} handshakes that do not go on:"
    )
    return "\n".join(
        [
            head,
            "",
            *_loop_lines(measured),
            "",
            silence,
            *_silence_lines(measured.silence),
            "",
            "one review in process, us of processor time:",
            *(
                f"{containers} containers: {_microseconds(rounds)}"
                for containers, rounds in measured.own.items()
            ),
            f"{USUAL} containers, json alone: {_microseconds(measured.recoded)}",
            "",
        ]
    )


def _loop_lines(measured: Measured) -> list[str]:
    """Return the lines about loops, and about pairs beside one."""
    speeds = {name: rates(rounds).text(0) for name, rounds in measured.closed.items()}
    single = {name: _points(_all(rounds)) for name, rounds in measured.single.items()}
    alone, beside = (
        _points([pair for one in rounds for pair in one])
        for rounds in (measured.alone, measured.beside)
    )
    closed = (
        f"closed loop, reviews a second: {speeds[OURS]}, echo {speeds[ECHO]};"
        f" ratio {echo_ratio(measured).text()}"
    )
    even = (
        f"open loop, {rates(measured.even).text(0)} reviews a second:"
        f" {_points(_all(measured.even))}; p99 over p50 {tail_ratio(measured).text()}"
    )
    reviewed = (
        f"beside {BESIDE_RATE:.0f} reviews a second: {beside};"
        f" ratio of p50 {filter_ratio(measured).text()}"
    )
    return [
        closed,
        f"one connection: {single[OURS]}",
        f"the same, echo: {single[ECHO]}",
        f"mutate_p50_over_echo {single_ratio(measured).text()}",
        even,
        f"filter + prioritize alone: {alone}",
        reviewed,
    ]


def _silence_lines(silence: Silence) -> list[str]:
    """Return two lines for each kind of call."""
    return [
        line
        for name, taken in silence.alone.items()
        for line in (
            f"{name}: {_points(taken)}",
            f"  beside them: {_points(silence.beside[name])}",
        )
    ]


def _microseconds(rounds: list[float]) -> str:
    """Return what some rounds took, as text."""
    return Spread.of(one * 1e6 for one in rounds).text(0)


def _all(parts: list[PartTimings]) -> list[float]:
    """Return the seconds of all reviews."""
    return [one for part in parts for one in part.seconds]


def _points(seconds: list[float]) -> str:
    """Return the percentiles of some durations, and the longest."""
    points = (f"p{point} {percentile_ms(seconds, point):.2f}" for point in (50, 99))
    return f"{', '.join(points)}, longest {max(seconds) * 1000:.2f} ms"


def bars(measured: Measured) -> list[Bar]:
    """Return the bars: what is carried, how late it is, and what it costs others."""
    own = measured.own
    over_json = paired_ratios(own[USUAL], measured.recoded).median
    growth = paired_ratios(own[MOST], own[FEW]).median
    return [
        Bar("mutate_echo_ratio", echo_ratio(measured).median, ECHO_BAR, is_least=True),
        Bar("mutate_open_loop_p99_over_p50", tail_ratio(measured).median, TAIL_BAR),
        Bar("filter_ratio_under_mutate", filter_ratio(measured).median, FILTER_BAR),
        Bar("silent_clients_over_alone", measured.silence.ratio, SILENT_BAR),
        Bar("review_over_json", over_json, RECODE_BAR),
        Bar(f"review_growth_{FEW}_{MOST}", growth, MOST / FEW),
    ]


def main() -> int:
    """Run the bench; 1 if a process or a call failed. A missed bar is no failure."""
    try:
        with tempfile.TemporaryDirectory(prefix="gpu-extender-bench-") as name:
            measured = measure(Path(name))
    except (AnswerError, BenchError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    print(f"\n{table(measured)}")
    for bar in bars(measured):
        print(bar.line())
    return 0


if __name__ == "__main__":
    sys.exit(main())
