"""Fifty connections at a time, beside one caller in the same run."""

from typing import Final

from bench.client import Load
from bench.clusters import POD_UID, sampled_bodies
from bench.extender.crowd_client import CrowdPlan, CrowdTimings
from bench.figures import Bar, Spread, paired_ratios, percentile_ms
from bench.processes import run_client

CONNECTIONS: Final = 50
NAMES: Final = 420
BODIES: Final = 8
ROUNDS: Final = 5
ROUND_SECONDS: Final = 2.0

TAIL_BAR: Final = 4.0
THROUGHPUT_BAR: Final = 0.9


def measure(port: int, nodes: int) -> CrowdTimings:
    """Let the client carry out all rounds, on a cluster of `nodes`."""
    plan = CrowdPlan(
        port=port,
        load=Load(NAMES, 1, sampled_bodies(nodes, NAMES, BODIES)),
        uid=POD_UID.encode(),
        connections=CONNECTIONS,
        rounds=ROUNDS,
        round_seconds=ROUND_SECONDS,
    )
    return run_client("bench.extender.crowd_client", plan, CrowdTimings)


def tail_ratio(loop: list[list[float]], single: list[list[float]]) -> Spread:
    """Return how p99 of a loop relates to p50 of one caller, round by round.

    >>> tail_ratio([[0.002] * 99 + [0.004] * 101], [[0.001] * 3])
    Spread(median=4.0, low=4.0, high=4.0)
    """
    return paired_ratios(
        [percentile_ms(one, 99) for one in loop],
        [percentile_ms(one, 50) for one in single],
    )


def table(timings: CrowdTimings) -> str:
    """Return throughput of closed loops, and latency of open ones."""
    single = [pair for one in timings.single for pair in one]
    speeds = {
        "one caller": Spread.of(timings.single_rates).text(0),
        "all": Spread.of(timings.crowd_rates).text(0),
        "ratio": paired_ratios(timings.crowd_rates, timings.single_rates).text(),
    }
    closed = ", ".join(f"{name} {text}" for name, text in speeds.items())
    lines = [
        f"{CONNECTIONS} connections, {NAMES} names, rounds of each kind: {ROUNDS}",
        "",
        f"closed loop, pairs a second: {closed}",
        f"one caller: p50 {percentile_ms(single, 50):.2f} ms",
    ]
    for name, loop in (("even", timings.even), ("random", timings.uneven)):
        pairs = [pair for one in loop for pair in one]
        lines.append(
            f"open loop, {timings.open_rate:.0f} pairs a second, {name} gaps:"
            f" p50 {percentile_ms(pairs, 50):.2f}, p99 {percentile_ms(pairs, 99):.2f}"
            f" ms; p99 over p50 of one caller"
            f" {tail_ratio(loop, timings.single).text()}"
        )
    return "\n".join(lines) + "\n"


def bars(timings: CrowdTimings) -> list[Bar]:
    """Return the bars: the tail of an open loop, the throughput of a closed one."""
    throughput = paired_ratios(timings.crowd_rates, timings.single_rates).median
    tail = tail_ratio(timings.even, timings.single).median
    return [
        Bar(f"open_loop_{CONNECTIONS}_p99_over_single_p50", tail, TAIL_BAR),
        Bar(
            f"closed_loop_{CONNECTIONS}_throughput_ratio",
            throughput,
            THROUGHPUT_BAR,
            is_least=True,
        ),
    ]
