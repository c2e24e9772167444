"""Time filter + prioritize over HTTP, beside an echo floor in the same run.

``python -m bench.http`` starts the real process on a synthetic cluster, the echo of
`bench.echo` and the client of `bench.client`, each on its own, and prints a table and
one line for each bar.

One cluster of 10,000 nodes serves all sizes. That is the harder case for the small
ones: 420 names are what kube-scheduler asks of 1,000 nodes, whose index would fit into
a processor's cache.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, TextIO

import msgspec

from bench.client import Load, Plan, Timings
from bench.clusters import sampled_bodies, write_dump

ROOT: Final = Path(__file__).resolve().parent.parent
NODES: Final = 10_000
# names in a call -> pairs in one round, so that all rounds take about as long
PAIRS: Final = {420: 100, 1000: 70, 5000: 16, 10_000: 8}
ROUNDS: Final = 40
WARM_UP_ROUNDS: Final = 3
BODIES: Final = 8
OURS, ECHO = "ours", "echo"

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 15.0
RUN_SECONDS: Final = 300.0

# names in a call -> highest ratio of our median to the echo's
RATIO_BARS: Final = {420: 1.35, 1000: 1.35, 5000: 1.35}
GROWTH_BAR: Final = 9.0


class Spread(NamedTuple):
    """The median of all rounds, and the smallest and largest of them."""

    median: float
    low: float
    high: float


class BenchError(RuntimeError):
    """A process did not start or a call failed."""


@contextmanager
def started(module: str, *arguments: str, log: Path) -> Iterator[int]:
    """Run ``python -m module`` and yield the port that it says it listens on."""
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield wait_for_port(process, log)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for_port(process: subprocess.Popen[bytes], log: Path) -> int:
    """Return the port once the process has said it."""
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        for line in log.read_text().splitlines():
            port = said_port(line)
            if port is not None:
                return port
        time.sleep(0.05)
    raise BenchError(f"{log.stem}: not serving; it said\n{log.read_text()}")


def said_port(line: str) -> int | None:
    """Return the port in a line of the service's log, or the one the echo prints.

    >>> said_port("40123")
    40123
    >>> said_port('{"event": "serving", "address": "http://127.0.0.1:8888"}')
    8888
    >>> said_port('{"event": "draining started"}') is None
    True
    """
    try:
        said = json.loads(line)
    except ValueError:  # a line that is still being written
        return None
    if isinstance(said, int):
        return said
    if not isinstance(said, dict) or said.get("event") != "serving":
        return None
    return int(said["address"].rpartition(":")[2])


def run_client(ports: dict[str, int]) -> Timings:
    """Let the client carry out all rounds."""
    loads = [
        Load(names, pairs, sampled_bodies(NODES, names, BODIES))
        for names, pairs in PAIRS.items()
    ]
    plan = Plan(ports, loads, ROUNDS, WARM_UP_ROUNDS)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "bench.client"],
            cwd=ROOT,
            input=msgspec.msgpack.encode(plan),
            capture_output=True,
            timeout=RUN_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"client: not done after {RUN_SECONDS:.0f} s") from error
    if done.returncode:
        raise BenchError(f"client: {done.stderr.decode().strip()}")
    return msgspec.msgpack.decode(done.stdout, type=Timings)


def quantile(seconds: list[list[float]], percent: int) -> float:
    """Return a percentile of all pairs of all rounds, in milliseconds."""
    pairs = [pair for one_round in seconds for pair in one_round]
    return statistics.quantiles(pairs, n=100)[percent - 1] * 1000


def ratio(above: list[list[float]], below: list[list[float]]) -> Spread:
    """Return how the medians of the same rounds relate.

    >>> ratio([[2.0, 2.0], [3.0, 3.0]], [[1.0, 1.0], [2.0, 2.0]])
    Spread(median=1.75, low=1.5, high=2.0)
    """
    ratios = [
        statistics.median(one) / statistics.median(other)
        for one, other in zip(above, below, strict=True)
    ]
    return Spread(statistics.median(ratios), min(ratios), max(ratios))


def print_table(timings: Timings, out: TextIO) -> None:
    """Print percentiles for each size, and ratios with their range."""
    out.write(
        f"\nfilter + prioritize over HTTP, {NODES} nodes, {ROUNDS} rounds,"
        f" load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors\n\n"
        f"{'names':>6} {'pairs':>6} {'ours p50':>9} {'p99':>8} {'echo p50':>9}"
        f" {'p99':>8}  ms   ratio of p50 [lowest to highest round]\n"
    )
    for position, (names, pairs) in enumerate(PAIRS.items()):
        ours = timings.seconds[OURS][position]
        echo = timings.seconds[ECHO][position]
        spread = ratio(ours, echo)
        out.write(
            f"{names:6} {pairs * ROUNDS:6} {quantile(ours, 50):9.2f}"
            f" {quantile(ours, 99):8.2f} {quantile(echo, 50):9.2f}"
            f" {quantile(echo, 99):8.2f}       {spread.median:.2f}"
            f" [{spread.low:.2f} to {spread.high:.2f}]\n"
        )


def print_bars(timings: Timings, out: TextIO) -> None:
    """Print one line for each bar."""
    position_of = {names: position for position, names in enumerate(PAIRS)}
    ours, echo = timings.seconds[OURS], timings.seconds[ECHO]
    bars = [
        (f"http_echo_ratio_{names}", ours[place], echo[place], bar)
        for names, bar in RATIO_BARS.items()
        for place in [position_of[names]]
    ]
    most, few = ours[position_of[10_000]], ours[position_of[1000]]
    bars.append(("names_growth_1000_10000", most, few, GROWTH_BAR))
    out.write("\n")
    for name, above, below, bar in bars:
        value = ratio(above, below).median
        verdict = "pass" if round(value, 2) <= bar else "miss"
        out.write(f"bar {name} {value:.2f} <={bar:g} {verdict}\n")


def main() -> int:
    """Run the bench; 1 if a process or a call failed. A missed bar is no failure."""
    with tempfile.TemporaryDirectory(prefix="gpu-extender-bench-") as name:
        folder = Path(name)
        write_dump(folder / "cluster.json", NODES)
        config = folder / "config.json"  # JSON is YAML, too
        config.write_text(
            json.dumps(
                {
                    "server": {"port": 0, "drainSeconds": 0},
                    "cluster": {"source": "file", "files": ["cluster.json"]},
                }
            )
        )
        serve = ("serve", "--config", str(config))
        try:
            with (
                started("service", *serve, log=folder / "ours.log") as ours,
                started("bench.echo", log=folder / "echo.log") as echo,
            ):
                timings = run_client({OURS: ours, ECHO: echo})
        except BenchError as error:
            sys.stderr.write(f"{error}\n")
            return 1
    print_table(timings, sys.stdout)
    print_bars(timings, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
