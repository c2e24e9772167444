"""The table of one size, and the bars of all."""

import os
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from bench.figures import Bar, Spread, paired_ratios
from bench.scheduler.modes import FULL, MODES, NOOP, ONE, SHORTLIST
from bench.scheduler.samples import Figures

# mode name -> the figures of its rounds
Rounds: TypeAlias = Mapping[str, Sequence[Figures]]

EXTENDER: Final = "extender"
PROCESSES: Final = ("scheduler", "apiserver", "etcd", EXTENDER)
# mode name -> lowest ratio of its pods a second to those with the idle extender
RATIO_BARS: Final = {FULL.name: 0.90, SHORTLIST.name: 1.20, ONE.name: 1.40}
# highest ratio of our processor time for a pod to that of the idle extender
CPU_BAR: Final = 1.5


def table(nodes: int, pods: int, rounds: Rounds) -> str:
    """Return the figures of one size, a line for each mode."""
    runs = len(next(iter(rounds.values())))
    title = (
        f"kube-scheduler, {nodes} GPU nodes, {pods} pods, runs of each mode: {runs},"
        f" load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"
    )
    columns = "".join(f"{process:>10}" for process in PROCESSES)
    head = f"{'mode':10} {'pods a second':24} {'over noop':20} CPU ms a pod:{columns}"
    lines = [title, "", f"{head}  retries"]
    lines += [_row(name, rounds) for name in MODES if name in rounds]
    return "\n".join(lines) + "\n"


def _row(name: str, rounds: Rounds) -> str:
    speed = Spread.of(one.pods_per_second for one in rounds[name]).text(1)
    relation = ratio_to_noop(name, rounds)
    over = relation.text() if relation is not None else ""
    used = [cpu_ms(process, rounds[name]) for process in PROCESSES]
    cpu = "".join("         -" if ms is None else f"{ms:10.1f}" for ms in used)
    retries = sum(one.retried for one in rounds[name])
    return f"{name:10} {speed:24} {over:20} {'':13}{cpu}  {retries:7}"


def ratio_to_noop(name: str, rounds: Rounds) -> Spread | None:
    """Return how the speed of a mode relates to the idle extender's, round by round."""
    if NOOP.name not in rounds:
        return None
    return paired_ratios(
        *([one.pods_per_second for one in rounds[mode]] for mode in (name, NOOP.name))
    )


def cpu_over_noop(name: str, rounds: Rounds) -> Spread | None:
    """Return how the extender's processor time for a pod relates, round by round."""
    if NOOP.name not in rounds:
        return None
    return paired_ratios(
        *([one.cpu_ms[EXTENDER] for one in rounds[mode]] for mode in (name, NOOP.name))
    )


def cpu_ms(process: str, runs: Sequence[Figures]) -> float | None:
    """Return the median of a process's milliseconds for each pod."""
    used = [one.cpu_ms[process] for one in runs if process in one.cpu_ms]
    return Spread.of(used).median if used else None


def bars(sizes: Mapping[int, Rounds]) -> list[Bar]:
    """Return the bars for what was run; `sizes` is number of nodes -> rounds."""
    found, costs = [], []
    for nodes, rounds in sizes.items():
        for name, target in RATIO_BARS.items():
            if name not in rounds:
                continue
            speed, cost = ratio_to_noop(name, rounds), cpu_over_noop(name, rounds)
            if speed is not None and cost is not None:
                label = f"noop_ratio_{nodes}_{name}"
                found.append(Bar(label, speed.median, target, is_least=True))
                costs.append(cost.median)
    if costs:
        found.append(Bar("extender_cpu_over_noop", max(costs), CPU_BAR))
    return found
