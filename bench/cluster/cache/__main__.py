"""Time list and watch of the real process against a server that replays a cluster.

``python -m bench.cluster.cache`` prints a table and one line for each bar. The models
of the ``kubernetes`` client decode a tenth of the cluster, whose very bytes the process
lists, counts and publishes, too; nothing is scaled up. The clock of the models runs
while they decode, ours from the first request to readiness.
"""

import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Final, TextIO

from bench.cluster.cache.process import (
    Service,
    fetch,
    replayed,
    running,
    stream,
    sync_seconds,
)
from bench.clusters import sampled_bodies
from bench.processes import ROOT, BenchError

FULL: Final = (5000, 100_000)
TENTH: Final = (500, 10_000)
SYNCS: Final = 3
EVENTS: Final = 1_000_000
SETTLED_EVENTS: Final = 100_000
EVENTS_PER_SECOND: Final = 2000
CALLS: Final = 8000
NAMES: Final = 420
BODIES: Final = 8
SAMPLE_SECONDS: Final = 0.1
RUN_SECONDS: Final = 300.0

SPEEDUP_BAR: Final = 20.0
RSS_BAR_MB: Final = 400.0
GROWTH_BAR_PERCENT: Final = 5.0
LATENCY_BAR_MS: Final = 20.0


@dataclass(slots=True)
class Figures:
    """What was measured."""

    model_seconds: float = 0.0
    tenth_seconds: list[float] = field(default_factory=list)
    full_seconds: list[float] = field(default_factory=list)
    peak_mb: float = 0.0
    synced_mb: float = 0.0
    event_seconds: float = 0.0
    settled_mb: float = 0.0
    final_mb: float = 0.0
    idle_seconds: list[float] = field(default_factory=list)
    busy_seconds: list[float] = field(default_factory=list)
    busy_rate: float = 0.0

    def bars(self) -> list[tuple[str, float, str, bool]]:
        """Return name, value, target and whether it is met, for each bar."""
        speedup = self.model_seconds / statistics.median(self.tenth_seconds)
        growth = (self.final_mb / self.settled_mb - 1) * 100
        added = (tail(self.busy_seconds) - tail(self.idle_seconds)) * 1000
        return [
            ("sync_speedup", speedup, ">=20", speedup >= SPEEDUP_BAR),
            ("sync_rss_mb", self.peak_mb, "<=400", self.peak_mb <= RSS_BAR_MB),
            (
                "events_rss_growth_percent",
                growth,
                "<=5",
                growth <= GROWTH_BAR_PERCENT,
            ),
            ("events_p999_added_ms", added, "<=20", added <= LATENCY_BAR_MS),
        ]


def tail(seconds: list[float], per_mille: int = 999) -> float:
    """Return a quantile in thousandths; the default is p99.9."""
    return statistics.quantiles(seconds, n=1000)[per_mille - 1]


def time_models(server: int) -> float:
    """Return how long the client's models take to decode what the server lists."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "bench.cluster.cache.models",
            f"http://127.0.0.1:{server}",
        ],
        cwd=ROOT,
        capture_output=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    if done.returncode:
        raise BenchError(f"models: {done.stderr.decode().strip()}")
    seconds, objects = json.loads(done.stdout)
    if objects != sum(TENTH):
        raise BenchError(f"models: wanted {sum(TENTH)} objects, got {objects}")
    return float(seconds)


def time_sync(folder: Path, server: int) -> float:
    """Return how long a new process takes to sync."""
    with running(folder, server) as service:
        return sync_seconds(service, server)


def time_events(service: Service, server: int, figures: Figures) -> None:
    """Send a million events as fast as they are taken."""
    before = service.watched_events()
    started = time.monotonic()
    stream(server, EVENTS, 0)
    taken = 0
    while taken < EVENTS:
        if time.monotonic() - started > RUN_SECONDS:
            raise BenchError(f"only {taken} events taken in {RUN_SECONDS:.0f} s")
        time.sleep(SAMPLE_SECONDS)
        taken = service.watched_events() - before
        if taken >= SETTLED_EVENTS and not figures.settled_mb:
            figures.settled_mb = service.memory_mb()
    figures.event_seconds = time.monotonic() - started
    figures.final_mb = service.memory_mb()


def time_calls(service: Service) -> list[float]:
    """Return what each of many filter calls takes, one after the other."""
    bodies = sampled_bodies(FULL[0], NAMES, BODIES)
    connection = service.connect()
    seconds = []
    gc.disable()
    try:
        for body in islice(cycle(bodies), CALLS):
            started = time.perf_counter()
            connection.request("POST", "/scheduler/filter", body)
            response = connection.getresponse()
            response.read()
            seconds.append(time.perf_counter() - started)
            if response.status != 200:
                raise BenchError(f"filter: {response.status}")
    finally:
        gc.enable()
        connection.close()
    return seconds


def time_latency(service: Service, server: int, figures: Figures) -> None:
    """Time calls on an idle watch and on a busy one, half and half of each."""
    for _ in range(2):
        figures.idle_seconds += time_calls(service)
        before, started = service.watched_events(), time.monotonic()
        # more than enough for all calls; the rest ends with the process
        stream(server, EVENTS_PER_SECOND * 120, EVENTS_PER_SECOND)
        figures.busy_seconds += time_calls(service)
        taken = service.watched_events() - before
        figures.busy_rate = taken / (time.monotonic() - started)
        fetch(server, "/stop")


def say(text: str) -> None:
    """Tell of progress."""
    sys.stderr.write(f"{text}\n")


def measure(folder: Path) -> Figures:
    """Take all measures."""
    figures = Figures()
    with replayed(folder, *TENTH) as server:
        say("syncing a tenth of the cluster, and decoding it with the models")
        figures.tenth_seconds = [time_sync(folder, server) for _ in range(SYNCS)]
        figures.model_seconds = time_models(server)
        figures.tenth_seconds += [time_sync(folder, server) for _ in range(SYNCS)]
    with replayed(folder, *FULL) as server:
        say("syncing all of the cluster")
        for _ in range(SYNCS - 1):
            figures.full_seconds.append(time_sync(folder, server))
        with running(folder, server) as service:
            figures.full_seconds.append(sync_seconds(service, server))
            figures.peak_mb = service.memory_mb("VmHWM")
            figures.synced_mb = service.memory_mb()
            say("timing calls with and without events")
            time_latency(service, server, figures)
            say("sending a million events")
            time_events(service, server, figures)
    return figures


def report(figures: Figures, out: TextIO) -> None:
    """Print the table and the bars."""
    ours = statistics.median(figures.tenth_seconds)
    full = statistics.median(figures.full_seconds)
    memory = f"{figures.peak_mb:.0f} MB, {figures.synced_mb:.0f} MB"
    event_memory = f"{figures.settled_mb:.0f} MB, {figures.final_mb:.0f} MB"
    slower = tail(figures.busy_seconds) / tail(figures.idle_seconds)
    busy = f"  at {figures.busy_rate:,.0f} events a second"
    rows = {
        "500 nodes + 10,000 pods, models, decoding": f"{figures.model_seconds:.2f} s",
        "the same, ours, request to readiness": _spread(figures.tenth_seconds),
        "5,000 nodes + 100,000 pods, ours": _spread(figures.full_seconds),
        "  objects a second": f"{sum(FULL) / full:,.0f} ({sum(TENTH) / ours:,.0f})",
        "  memory, highest and after": memory,
        "1,000,000 pod events": f"{EVENTS / figures.event_seconds:,.0f} a second",
        "  memory after 100,000 and all": event_memory,
        "filter of 420 names, idle": _latency(figures.idle_seconds),
        busy: _latency(figures.busy_seconds),
        "  p99.9 over that on an idle watch": f"{slower:.2f}",
    }
    out.write(
        f"\nlist and watch, load average {os.getloadavg()[0]:.1f} on"
        f" {os.cpu_count()} processors\n\n"
    )
    out.writelines(f"{name:42} {value}\n" for name, value in rows.items())
    out.write("\n")
    out.writelines(
        f"bar {name} {number:.2f} {target} {'pass' if is_met else 'miss'}\n"
        for name, number, target, is_met in figures.bars()
    )


def _spread(seconds: list[float]) -> str:
    return (
        f"{statistics.median(seconds):.2f} s [{min(seconds):.2f} to {max(seconds):.2f}]"
    )


def _latency(seconds: list[float]) -> str:
    p50, p99, p999 = (tail(seconds, point) * 1000 for point in (500, 990, 999))
    return f"p50 {p50:.2f}  p99 {p99:.2f}  p99.9 {p999:.2f} ms"


def main() -> int:
    """Run the bench; 1 if a process or a call failed. A missed bar is no failure."""
    with tempfile.TemporaryDirectory(prefix="gpu-extender-bench-") as name:
        try:
            figures = measure(Path(name))
        except BenchError as error:
            sys.stderr.write(f"{error}\n")
            return 1
    report(figures, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
