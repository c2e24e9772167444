"""Time admission reviews over HTTPS, alone and beside filter and prioritize.

``python -m bench.mutate`` starts the real process on a synthetic cluster, with rules, a
chain and a certificate, and the clients of `bench.mutate_client` and
`bench.pairs_client`, each on its own. It prints a table and one line for each bar.
"""

import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench import silent
from bench.client import Load, request_bytes
from bench.clusters import sampled_bodies, write_dump
from bench.figures import Bar, Spread, paired_ratios, percentile_ms
from bench.mutate_client import (
    CLOSED_LOOP,
    MutatePlan,
    MutateTimings,
    Part,
    PartTimings,
    trusting,
)
from bench.pairs_client import Pairs, PairsPlan
from bench.processes import (
    ROOT,
    AnswerError,
    BenchError,
    run_client,
    started,
    webhook_port,
)
from bench.reviews import CHAIN, RULES, make_body, time_reviews
from tests.certificates import write_pair

NODES: Final = 1000
NAMES: Final = 420
FILTER_BODIES: Final = 8
CONNECTIONS: Final = 50
CAPTURES: Final = ROOT / "tests" / "contract" / "captures"

CLOSED_SECONDS: Final = 3.0
CLOSED_ROUNDS: Final = 5
OPEN_RATE: Final = 500.0
OPEN_SECONDS: Final = 5.0
OPEN_ROUNDS: Final = 6
BESIDE_RATE: Final = 200.0
BESIDE_SECONDS: Final = 2.0
BESIDE_ROUNDS: Final = 15
# Until both clients of the last part have started and asked everything once.
START_SECONDS: Final = 3.0

# containers -> reviews in a round
OWN_CALLS: Final = {3: 200, 10: 100, 100: 10}
OWN_ROUNDS: Final = 30
FEW, MOST = 10, 100

LEAST_RATE_BAR: Final = OPEN_RATE
TAIL_BAR_MS: Final = 50.0
FILTER_BAR: Final = 2.0
SILENT_BAR_MS: Final = 1000.0
OWN_BAR_US: Final = 150.0


class Measured(NamedTuple):
    """All that was timed.

    Attributes
    ----------
    closed, even : list of PartTimings
        Rounds of the closed loop and of the open one.
    alone, beside : list of list of float
        Seconds of filter + prioritize pairs, in rounds: without reviews, and beside
        them.
    silent : dict
        kind of call -> seconds of calls beside silent clients
    own : dict
        containers -> processor seconds of one review in process, one for each round
    """

    closed: list[PartTimings]
    even: list[PartTimings]
    alone: list[list[float]]
    beside: list[list[float]]
    silent: dict[str, list[float]]
    own: dict[int, list[float]]


class Served(NamedTuple):
    """Where the real process listens, and what vouches for it."""

    http: int
    https: int
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
        yield Served(port, webhook_port(log), str(certificate))


def review_parts(served: Served, parts: list[Part]) -> list[PartTimings]:
    """Let the client review pods in parts."""
    plan = MutatePlan(
        served.https, served.certificate, review_bodies(), CONNECTIONS, parts
    )
    return run_client("bench.mutate_client", plan, MutateTimings).parts


def time_loops(served: Served) -> tuple[list[PartTimings], list[PartTimings]]:
    """Return the rounds of the closed loop and of the open one."""
    closed = [Part(CLOSED_LOOP, CLOSED_SECONDS)] * CLOSED_ROUNDS
    even = [Part(OPEN_RATE, OPEN_SECONDS)] * OPEN_ROUNDS
    warm_up = Part(CLOSED_LOOP, 1.0)
    timings = review_parts(served, [warm_up, *closed, *even])[1:]
    return timings[:CLOSED_ROUNDS], timings[CLOSED_ROUNDS:]


def time_pairs(served: Served) -> tuple[list[list[float]], list[list[float]]]:
    """Return pairs alone and beside reviews, in rounds that take turns."""
    pause, reviewed = Part(0.0, BESIDE_SECONDS), Part(BESIDE_RATE, BESIDE_SECONDS)
    parts = [Part(0.0, START_SECONDS), *[pause, reviewed] * BESIDE_ROUNDS]
    load = Load(NAMES, 1, sampled_bodies(NODES, NAMES, FILTER_BODIES))
    longest = sum(part.seconds for part in parts) + START_SECONDS
    plan = PairsPlan(served.http, load, longest)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(run_client, "bench.pairs_client", plan, Pairs)
        timings = review_parts(served, parts)[1:]
        pairs = asking.result()
    rounds = [pairs.between(part.started, part.ended) for part in timings]
    if not all(rounds):
        raise BenchError("one client was done before the other had begun")
    return rounds[::2], rounds[1::2]


def measure(folder: Path) -> Measured:
    """Start the real process and time everything."""
    own = {
        containers: time_reviews(containers, OWN_ROUNDS, calls)
        for containers, calls in OWN_CALLS.items()
    }
    with serve(folder) as served:
        closed, even = time_loops(served)
        alone, beside = time_pairs(served)
        to_filter = request_bytes(
            "/scheduler/filter", sampled_bodies(NODES, NAMES, 1)[0]
        )
        quiet = silent.measure(
            (served.http, served.https),
            trusting(served.certificate),
            make_body(3),
            to_filter,
        )
    return Measured(closed, even, alone, beside, quiet, own)


def filter_ratio(measured: Measured) -> Spread:
    """Return how the medians of pairs beside reviews relate to those alone."""
    return paired_ratios(
        [statistics.median(one) for one in measured.beside],
        [statistics.median(one) for one in measured.alone],
    )


def table(measured: Measured) -> str:
    """Return throughput, latency and what a review computes."""
    rates = Spread.of(part.rate for part in measured.closed).text(0)
    alone, beside = (
        _points([pair for one in rounds for pair in one])
        for rounds in (measured.alone, measured.beside)
    )
    head = (
        f"reviews over HTTPS, {CONNECTIONS} connections, load average"
        f" {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"
    )
    silence = (
        f"beside {silent.IDLE} idle connections and {silent.HALF_OPEN} handshakes that"
        " do not go on, each call on a new connection:"
    )
    ratio = filter_ratio(measured).text()
    lines = [
        head,
        "",
        f"closed loop, reviews a second: {rates}",
        f"open loop, {OPEN_RATE:.0f} reviews a second: {_points(_all(measured.even))}",
        f"filter + prioritize alone: {alone}",
        f"beside {BESIDE_RATE:.0f} reviews a second: {beside}; ratio of p50 {ratio}",
        "",
        silence,
        *(f"{name}: {_points(taken)}" for name, taken in measured.silent.items()),
        "",
        "one review in process, us of processor time:",
        *(
            f"{containers} containers: {Spread.of(one * 1e6 for one in rounds).text(0)}"
            for containers, rounds in measured.own.items()
        ),
    ]
    return "\n".join(lines) + "\n"


def _all(parts: list[PartTimings]) -> list[float]:
    """Return the seconds of all reviews."""
    return [one for part in parts for one in part.seconds]


def _points(seconds: list[float]) -> str:
    """Return the percentiles of some durations, and the longest."""
    points = (f"p{point} {percentile_ms(seconds, point):.2f}" for point in (50, 99))
    return f"{', '.join(points)}, longest {max(seconds) * 1000:.2f} ms"


def bars(measured: Measured) -> list[Bar]:
    """Return the bars: what is carried, how late it is, and what it costs others."""
    rate = statistics.median(part.rate for part in measured.closed)
    longest = max(one for taken in measured.silent.values() for one in taken)
    own = {containers: min(rounds) for containers, rounds in measured.own.items()}
    return [
        Bar("mutate_reviews_per_s", rate, LEAST_RATE_BAR, is_least=True),
        Bar("mutate_p99_ms", percentile_ms(_all(measured.even), 99), TAIL_BAR_MS),
        Bar("filter_ratio_under_mutate", filter_ratio(measured).median, FILTER_BAR),
        Bar("silent_clients_longest_call_ms", longest * 1000, SILENT_BAR_MS),
        # The quickest rounds: others on the machine can only add to them.
        Bar("review_us_3_containers", own[3] * 1e6, OWN_BAR_US),
        Bar(f"review_growth_{FEW}_{MOST}", own[MOST] / own[FEW], MOST / FEW),
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
