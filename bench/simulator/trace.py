"""Placement quality on the public trace: GPUs allocated by our profile and by others.

Each list is replayed with ten seeds as it was for the published figures (``simulator/
trace.py`` has the protocol), under kube-scheduler's own conditions: 40 % of the nodes
are offered, lots are drawn among equals, and answers are 0 to 10. FGD is replayed as it
was published, too: ties by the lowest name, all nodes. Our profile is given the mix of
the list, as FGD is; beside it stands what it makes of the mix that it learns.

``python -m bench.simulator.trace --trace ../shared/traces``
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.figures import Bar
from service.commands.simulate import (
    BEST_FIT,
    FGD,
    RANDOM,
    Replays,
    SimulateOptions,
    build_replay_options,
    read_workload,
)
from service.settings.settings import Settings
from simulator.trace import TraceError, read_trace

OURS: Final = "ours"

LEARNED: Final = "ours, mix learned"

CLASSIC: Final = "classic"

FGD_PUBLISHED: Final = "FGD as published"

FIRST_SEED: Final = 42

SEEDS: Final = 10

PROCESSES: Final = 2

# Offered for each pod, in % of the nodes.
OFFERED: Final = 40

PUBLISHED_FGD: Final = 95.4

# That FGD may be away from, since its lots are others.
PUBLISHED_SPREAD: Final = 0.2


@dataclass(frozen=True, slots=True)
class PodList:
    """A list of the trace, and what bar it has.

    Attributes
    ----------
    target : float or None
        Of our profile at `arrived` %; None for what FGD as published reaches, less
        `ALLOWED_LOSS`.
    """

    name: str
    arrived: int
    target: float | None = None
    is_whole: bool = False

    @property
    def title(self) -> str:
        """Name for the reader."""
        return self.name + (", whole GPUs" if self.is_whole else "")


ALLOWED_LOSS: Final = 0.1

LISTS: Final = (
    PodList("default", 130, 95.4),
    PodList("gpuspec33", 100, 95.5, is_whole=True),
    PodList("multigpu50", 130),
    PodList("gpushare40", 130),
)

BASE: Final = SimulateOptions(percentage=OFFERED, has_plugins=False)

# With the list's own mix given, as FGD has it.
KNOWING: Final = replace(BASE, is_mix_known=True)

# label -> policy, and the conditions
POLICIES: Final[Mapping[str, tuple[str, SimulateOptions]]] = {
    RANDOM: (RANDOM, BASE),
    BEST_FIT: (BEST_FIT, BASE),
    FGD_PUBLISHED: (FGD, replace(BASE, percentage=100, ties="name")),
    FGD: (FGD, BASE),
    CLASSIC: (CLASSIC, BASE),
    OURS: (OURS, KNOWING),
    LEARNED: (OURS, BASE),
}

# The same for the first list alone: what else moves our figure.
VARIANTS: Final[Mapping[str, tuple[str, SimulateOptions]]] = {
    "ours, shares of the first GPU": (OURS, replace(KNOWING, gpu_choice="first")),
    "ours, with score plugins": (OURS, replace(KNOWING, has_plugins=True)),
    "ours, cache 100 behind": (OURS, replace(KNOWING, lag=100)),
    "ours, and none counted meanwhile": (OURS, replace(KNOWING, lag=100)),
}

UNCOUNTED: Final = "ours, and none counted meanwhile"


class Task(NamedTuple):
    """One replay."""

    folder: Path
    pods: PodList
    label: str
    seed: int
    scoring: str


class Figures(NamedTuple):
    """Figures of one replay, in %."""

    pods: str
    label: str
    at_100: float
    at_130: float
    first_refusal: float


def profile_settings(scoring: str, *, is_counting: bool = True) -> Settings:
    """Return the settings of a profile.

    The models of the trace are sets: their order in the list of a pod means nothing.
    """
    tree: dict[str, Any] = {
        "cluster": {"source": "file", "files": ["trace"]},
        "scoring": {"typeOrder": "weighted", **json.loads(scoring)},
        "extender": {"placementsUnderWay": is_counting},
    }
    return Settings.model_validate_json(json.dumps(tree))


DEFAULT_SCORING: Final = json.dumps({"profile": "packing"})


def replay(task: Task) -> Figures:
    """Replay one list by one policy with one seed."""
    name, base = {**POLICIES, **VARIANTS}[task.label]
    settings = profile_settings(task.scoring, is_counting=task.label != UNCOUNTED)
    options = replace(
        base,
        pod_list=task.pods.name,
        has_whole_gpus=task.pods.is_whole,
        seed=task.seed,
    )
    verb_options = build_replay_options(settings, options.lag)
    workload = read_workload(task.folder, options, settings, verb_options)
    replays = Replays(options, settings, verb_options, workload)
    _, outcome = replays.run(settings.scoring.profile if name == OURS else name)
    return Figures(
        task.pods.name,
        task.label,
        outcome.allocated_at(100) or outcome.allocated,
        outcome.allocated_at(130) or outcome.allocated,
        100.0 if outcome.asked_until_refusal is None else outcome.asked_until_refusal,
    )


def list_tasks(
    folder: Path, seeds: Sequence[int], scoring: str, lists: Sequence[PodList] = LISTS
) -> list[Task]:
    """Return all replays, list by list."""
    return [
        Task(folder, pods, label, seed, scoring)
        for pods in lists
        for label in (*POLICIES, *(VARIANTS if pods == lists[0] else ()))
        for seed in seeds
    ]


def bars(means: Mapping[tuple[str, str], Figures]) -> list[Bar]:
    """Return the bars of the mean figures by list and label."""
    found = []
    fgd = means["default", FGD_PUBLISHED].at_130
    off = abs(fgd - PUBLISHED_FGD)
    found.append(Bar("trace_fgd_off_published", off, PUBLISHED_SPREAD))
    for pods in LISTS:
        mean = means[pods.name, OURS]
        value = mean.at_100 if pods.arrived == 100 else mean.at_130
        target = pods.target
        if target is None:
            target = round(means[pods.name, FGD_PUBLISHED].at_130 - ALLOWED_LOSS, 2)
        name = f"trace_{pods.name}_{pods.arrived}"
        found.append(Bar(name, value, target, is_least=True))
    return found


def mean_of(runs: Sequence[Figures]) -> Figures:
    """Return the mean over the seeds of one list and label."""
    return Figures(
        runs[0].pods,
        runs[0].label,
        statistics.mean(run.at_100 for run in runs),
        statistics.mean(run.at_130 for run in runs),
        statistics.mean(run.first_refusal for run in runs),
    )


def _row(runs: Sequence[Figures]) -> str:
    """Return one line of the table."""
    mean = mean_of(runs)
    spreads = [
        statistics.stdev(values) if len(values) > 1 else 0.0
        for values in ([run.at_100 for run in runs], [run.at_130 for run in runs])
    ]
    return (
        f"  {mean.label:34} {mean.at_100:6.2f} +- {spreads[0]:.2f}"
        f"   {mean.at_130:6.2f} +- {spreads[1]:.2f}   {mean.first_refusal:6.1f}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of all lists and policies, then the bars."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--scoring", default=DEFAULT_SCORING, help="as JSON")
    options = parser.parse_args(arguments)
    try:
        for pods in LISTS:
            read_trace(options.trace, pods.name)
        profile = profile_settings(options.scoring).scoring.profile
    except (TraceError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    start = time.perf_counter()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    span = f"{seeds[0]} to {seeds[-1]}"
    print(
        f"GPUs allocated, in %: mean and deviation over seeds {span};"
        f" {OFFERED} % of the nodes\noffered, lots among equals, ours: {profile},"
        " shares of the tightest GPU, no score plugins"
    )
    tasks = list_tasks(options.trace, seeds, options.scoring)
    means: dict[tuple[str, str], Figures] = {}
    runs: list[Figures] = []
    with ProcessPoolExecutor(PROCESSES, get_context("spawn")) as pool:
        for task, figures in zip(tasks, pool.map(replay, tasks), strict=True):
            if task.label == RANDOM and task.seed == seeds[0]:
                print(f"\n{task.pods.title:38}at 100 %         at 130 %  1st refusal")
            runs.append(figures)
            if task.seed == seeds[-1]:
                means[task.pods.name, task.label] = mean_of(runs)
                print(_row(runs), flush=True)
                runs = []
    print(f"\n{len(tasks)} replays, {time.perf_counter() - start:.0f} s")
    for bar in bars(means):
        print(bar.line())
    return 0


if __name__ == "__main__":
    sys.exit(main())
