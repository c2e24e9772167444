"""Time the real kube-scheduler: alone, with an idle extender in Go, and with us.

``python -m bench.scheduler`` runs etcd, kube-apiserver and kube-scheduler on loopback.
All pods are there before kube-scheduler starts; what is timed is the part from a tenth
to nine tenths of them. In each round every mode runs once, and what is compared are the
runs of one round. `tests/e2e/build.py` builds the binaries.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.processes import BenchError
from bench.scheduler.modes import MODES, Mode, in_turn
from bench.scheduler.report import bars, table
from bench.scheduler.samples import Figures
from bench.scheduler.stage import Stage
from bench.scheduler.timing import Runner, build_noop
from tests.e2e import build
from tests.e2e.harness.process import ProcessError
from tests.e2e.harness.reaper import Reaper

SIZES: Final = [1000, 5000]
RUNS: Final = 5
PODS: Final = 1000


def say(text: str) -> None:
    """Tell of progress."""
    sys.stderr.write(f"{text}\n")


def positive(text: str) -> int:
    """Return the number in an option's text, 1 or more."""
    number = int(text)
    if number < 1:
        raise ValueError(f"wanted 1 or more, got {number}")
    return number


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="bench.scheduler", description=(__doc__ or "").splitlines()[0]
    )
    names = list(MODES)
    parser.add_argument("--minor", choices=build.minors(), help="default: K8S, or 1.36")
    parser.add_argument("--runs", type=positive, default=RUNS, help="(%(default)s)")
    parser.add_argument("--pods", type=positive, default=PODS, help="(%(default)s)")
    parser.add_argument("--nodes", type=positive, nargs="+", default=SIZES)
    parser.add_argument("--modes", nargs="+", choices=names, default=names)
    return parser.parse_args(arguments)


def measure(
    runner: Runner, nodes: int, chosen: argparse.Namespace
) -> dict[str, list[Figures]]:
    """Return the figures of each mode's rounds on a cluster of `nodes`."""
    modes: list[Mode] = [MODES[name] for name in chosen.modes]
    rounds: dict[str, list[Figures]] = {mode.name: [] for mode in modes}
    for number in range(chosen.runs):
        for mode in in_turn(modes, number):
            started = time.monotonic()
            one = runner.run(mode, chosen.pods)
            rounds[mode.name].append(one)
            say(
                f"{nodes} nodes, round {number + 1} of {chosen.runs}, {mode.name}:"
                f" {one.pods_per_second:.1f} pods a second,"
                f" {time.monotonic() - started:.0f} s in all"
            )
    return rounds


def run(chosen: argparse.Namespace, folder: Path) -> None:
    """Run all sizes, and print a table for each and the bars of all."""
    binaries = build.locate(chosen.minor or build.chosen_minor())
    noop = build_noop()
    sizes = {}
    with Reaper() as reaper:
        for nodes in chosen.nodes:
            with Stage(binaries, folder / str(nodes), reaper) as stage:
                say(f"creating {nodes} nodes and {chosen.pods} pods")
                stage.prepare(nodes, chosen.pods)
                sizes[nodes] = measure(Runner(stage, noop, reaper), nodes, chosen)
            print(f"\n{table(nodes, chosen.pods, sizes[nodes])}", flush=True)
    for bar in bars(sizes):
        print(bar.line())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench; 1 if a process or a call failed. A missed bar is no failure."""
    chosen = options(arguments)
    with tempfile.TemporaryDirectory(prefix="gpu-extender-bench-") as name:
        try:
            run(chosen, Path(name))
        except (BenchError, ProcessError, build.BuildError) as error:
            sys.stderr.write(f"{error}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
