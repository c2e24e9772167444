"""Time filter + prioritize over HTTP, beside an echo floor in the same run.

``python -m bench.extender.http`` starts the real process on a synthetic cluster, the
echo of `bench.extender.echo` and the client of `bench.client`, each on its own, and
prints tables and one line for each bar. `bench.extender.crowd` does the same with many
connections, `bench.extender.explain` while pods are explained, `bench.extender.packing`
by another profile, and `bench.extender.promise` on a large, busy cluster.

The clusters are those of which kube-scheduler asks so many names: 420 of 1,000 nodes by
its defaults, and all of 1,000, 5,000 and 10,000 with ``percentageOfNodesToScore: 100``.
"""

import json
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Final

from bench.client import Load, Plan, Timings
from bench.clusters import sampled_bodies, write_dump
from bench.extender import crowd, explain, packing, promise
from bench.extender.crowd_client import CrowdTimings
from bench.extender.explain import ExplainTimings
from bench.figures import Bar, Spread, paired_ratios, percentile_ms
from bench.processes import BenchError, run_client, started

# names in a call -> nodes of the cluster
NODES: Final = {420: 1000, 1000: 1000, 5000: 5000, 10_000: 10_000}
# names in a call -> pairs in one round, so that all rounds take about as long
PAIRS: Final = {420: 100, 1000: 70, 5000: 16, 10_000: 8}
ROUNDS: Final = 40
WARM_UP_ROUNDS: Final = 3
BODIES: Final = 8
CROWD_NODES: Final = 1000
EXPLAIN_NODES: Final = 5000
OURS, ECHO = "ours", "echo"

# names in a call -> highest ratio of our median to the echo's
RATIO_BARS: Final = {420: 1.25, 1000: 1.25, 5000: 1.25}
# What must be kept even where those are missed.
RATIO_FLOOR: Final = 1.5
FEW, MOST = 1000, 10_000
GROWTH_BAR: Final = 8.0


def time_pairs(ours: Mapping[int, int], echo: int) -> Timings:
    """Let the client carry out all rounds; `ours` is nodes of the cluster -> port."""
    loads = [
        Load(
            names,
            pairs,
            sampled_bodies(NODES[names], names, BODIES),
            {OURS: ours[NODES[names]], ECHO: echo},
        )
        for names, pairs in PAIRS.items()
    ]
    plan = Plan(loads, ROUNDS, WARM_UP_ROUNDS)
    return run_client("bench.client", plan, Timings)


def ratio(above: list[list[float]], below: list[list[float]]) -> Spread:
    """Return how the medians of the same rounds relate.

    >>> ratio([[2.0, 2.0], [3.0, 3.0]], [[1.0, 1.0], [2.0, 2.0]])
    Spread(median=1.75, low=1.5, high=2.0)
    """
    return paired_ratios(
        [statistics.median(one) for one in above],
        [statistics.median(one) for one in below],
    )


def table(timings: Timings) -> str:
    """Return percentiles for each size, and ratios with their range."""
    title = (
        f"filter + prioritize over HTTP, {ROUNDS} rounds,"
        f" load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"
    )
    head = (
        f"{'nodes':>6} {'names':>6} {'pairs':>6} {'ours p50':>9} {'p99':>8}"
        f" {'echo p50':>9} {'p99':>8}  ms   ratio of p50 [lowest to highest round]"
    )
    lines = [title, "", head]
    for position, (names, pairs) in enumerate(PAIRS.items()):
        ours = timings.seconds[OURS][position]
        echo = timings.seconds[ECHO][position]
        all_ours = [pair for one in ours for pair in one]
        all_echo = [pair for one in echo for pair in one]
        lines.append(
            f"{NODES[names]:6} {names:6} {pairs * ROUNDS:6}"
            f" {percentile_ms(all_ours, 50):9.2f}"
            f" {percentile_ms(all_ours, 99):8.2f} {percentile_ms(all_echo, 50):9.2f}"
            f" {percentile_ms(all_echo, 99):8.2f}       {ratio(ours, echo).text()}"
        )
    return "\n".join(lines) + "\n"


def bars(timings: Timings) -> list[Bar]:
    """Return the bars: how near to the echo, and how it grows with the names."""
    position_of = {names: position for position, names in enumerate(PAIRS)}
    ours, echo = timings.seconds[OURS], timings.seconds[ECHO]
    found = []
    for names, target in RATIO_BARS.items():
        place = position_of[names]
        relation = ratio(ours[place], echo[place]).median
        found.append(Bar(f"http_echo_ratio_{names}", relation, target))
        found.append(Bar(f"http_echo_ratio_{names}_floor", relation, RATIO_FLOOR))
    growth = ratio(ours[position_of[MOST]], ours[position_of[FEW]]).median
    return [*found, Bar(f"names_growth_{FEW}_{MOST}", growth, GROWTH_BAR)]


def serve(
    nodes: int, folder: Path, profile: str = packing.CLASSIC
) -> AbstractContextManager[int]:
    """Start the real process on a cluster of so many nodes; its port."""
    write_dump(folder / f"cluster-{nodes}.json", nodes)
    config = folder / f"config-{nodes}-{profile}.json"  # JSON is YAML, too
    config.write_text(
        json.dumps(
            {
                "server": {"port": 0, "drainSeconds": 0},
                "cluster": {"source": "file", "files": [f"cluster-{nodes}.json"]},
                "scoring": {"profile": profile},
            }
        )
    )
    log = folder / f"ours-{nodes}-{profile}.log"
    return started("service", "serve", "--config", str(config), log=log)


def measure(folder: Path) -> tuple[Timings, CrowdTimings, ExplainTimings, Timings]:
    """Start the real processes and the echo.

    Time one caller, many, explanations, and both profiles.
    """
    with ExitStack() as stack:
        ours = {
            nodes: stack.enter_context(serve(nodes, folder))
            for nodes in set(NODES.values())
        }
        with started("bench.extender.echo", log=folder / "echo.log") as echo:
            pairs = time_pairs(ours, echo)
        explained = explain.measure(ours[EXPLAIN_NODES], EXPLAIN_NODES)
        crowded = crowd.measure(ours[CROWD_NODES], CROWD_NODES)
        with serve(packing.NAMES, folder, packing.PACKING) as port:
            ports = {packing.CLASSIC: ours[packing.NAMES], packing.PACKING: port}
            return pairs, crowded, explained, packing.time_pairs(ports)


def main() -> int:
    """Run the bench; 1 if a process or a call failed. A missed bar is no failure."""
    try:
        with tempfile.TemporaryDirectory(prefix="gpu-extender-bench-") as name:
            pairs, crowded, explained, profiles = measure(Path(name))
        print(f"\n{table(pairs)}\n{crowd.table(crowded)}", flush=True)
        print(explain.table(explained, EXPLAIN_NODES), flush=True)
        kernels = packing.time_kernels()
        print(packing.table(profiles, kernels), flush=True)
        busy = promise.measure()
    except BenchError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    print(promise.table(busy))
    of_load = [*crowd.bars(crowded), *explain.bars(explained), *promise.bars(busy)]
    for bar in [*bars(pairs), *of_load, *packing.bars(profiles, kernels)]:
        print(bar.line())
    return 0


if __name__ == "__main__":
    sys.exit(main())
