"""Placement quality on the public trace: GPUs allocated by our profile and by others.

Each list is replayed with ten seeds as it was for the published figures (``simulator/
trace.py`` has the protocol), under kube-scheduler's own conditions: 40 % of the nodes
are offered, lots are drawn among equals, and answers are 0 to 10. FGD is replayed as it
was published, too: ties by the lowest name, all nodes. Our profile is given the mix of
the list, as FGD is; beside it stands what it makes of the mix that it learns. Verbs are
called as functions; the first seed of the first list is placed by their JSON, too.

``python -m bench.simulator.trace --trace ../shared/traces --seeds 42-51 --fleet``
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.figures import Bar
from bench.scoring import nvlink_fleet
from bench.simulator.by_bytes import BytesReplays
from extender.verbs.options import VerbOptions
from service.commands.simulate import (
    BEST_FIT,
    FGD,
    RANDOM,
    Replays,
    SimulateOptions,
    Workload,
    build_replay_options,
    read_workload,
)
from service.settings.settings import Settings
from simulator.trace import TraceError, read_trace

OURS: Final = "ours"

LEARNED: Final = "ours, mix learned"

CLASSIC: Final = "classic"

FGD_PUBLISHED: Final = "FGD as published"

PLUGINS: Final = "ours, with score plugins"

LAGGING: Final = "ours, cache 100 behind"

UNCOUNTED: Final = "ours, and none counted meanwhile"

BY_BYTES: Final = "ours, by JSON, first seed"

SEEDS: Final = "42-51"

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

# Of what our profile allocates, by what makes it harder.
LEARNED_LOSS: Final = 0.3

PLUGINS_LOSS: Final = 0.5

LAG_LOSS: Final = 0.1

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
    PLUGINS: (OURS, replace(KNOWING, has_plugins=True)),
    LAGGING: (OURS, replace(KNOWING, lag=100)),
    UNCOUNTED: (OURS, replace(KNOWING, lag=100)),
    BY_BYTES: (OURS, KNOWING),
}


class Task(NamedTuple):
    """One replay."""

    folder: Path
    pods: PodList
    label: str
    seed: int
    scoring: str


class Figures(NamedTuple):
    """Figures of one replay, in %.

    Attributes
    ----------
    nodes : tuple of str or None
        Where each pod went, by our profile; None for one that fits nowhere.
    """

    pods: str
    label: str
    at_100: float
    at_130: float
    first_refusal: float
    nodes: tuple[str | None, ...] = ()


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
    workload = _workload(task, options, settings, verb_options)
    replays = Replays(options, settings, verb_options, workload)
    if task.label == BY_BYTES:
        trace = read_trace(task.folder, task.pods.name)
        replays = BytesReplays(options, settings, verb_options, workload, trace)
    _, outcome = replays.run(settings.scoring.profile if name == OURS else name)
    return Figures(
        task.pods.name,
        task.label,
        outcome.allocated_at(100) or outcome.allocated,
        outcome.allocated_at(130) or outcome.allocated,
        100.0 if outcome.asked_until_refusal is None else outcome.asked_until_refusal,
        tuple(node for _, node in outcome.placements) if name == OURS else (),
    )


# A worker has the tasks of one list and seed one after the other.
_WORKLOADS: Final[dict[tuple[Path, PodList, int], Workload]] = {}


def _workload(
    task: Task, options: SimulateOptions, settings: Settings, verb_options: VerbOptions
) -> Workload:
    """Return the pods of a list in the order of a seed, read once for all policies."""
    key = task.folder, task.pods, task.seed
    if key not in _WORKLOADS:
        _WORKLOADS.clear()
        _WORKLOADS[key] = read_workload(task.folder, options, settings, verb_options)
    return _WORKLOADS[key]


def list_tasks(
    folder: Path, seeds: Sequence[int], scoring: str, lists: Sequence[PodList] = LISTS
) -> list[Task]:
    """Return all replays: list by list, then seed by seed, to share what is read."""
    return [
        Task(folder, pods, label, seed, scoring)
        for pods in lists
        for seed in seeds
        for label in (*POLICIES, *(VARIANTS if pods == lists[0] else ()))
        if label != BY_BYTES or seed == seeds[0]
    ]


def bars(means: Mapping[tuple[str, str], Figures]) -> list[Bar]:
    """Return the bars of the mean figures by list and label."""
    off = abs(_mean_at(means, LISTS[0], FGD_PUBLISHED) - PUBLISHED_FGD)
    found = [Bar("trace_fgd_off_published", off, PUBLISHED_SPREAD)]
    for pods in LISTS:
        target = pods.target
        if target is None:
            fgd = _mean_at(means, pods, FGD_PUBLISHED)
            target = round(fgd - ALLOWED_LOSS, 2)
        name = f"trace_{pods.name}_{pods.arrived}"
        found.append(Bar(name, _mean_at(means, pods, OURS), target, is_least=True))
    for name, pods, label, allowed in (
        *((f"learned_loss_{pods.name}", pods, LEARNED, LEARNED_LOSS) for pods in LISTS),
        ("plugins_loss", LISTS[0], PLUGINS, PLUGINS_LOSS),
        ("lag_loss", LISTS[0], LAGGING, LAG_LOSS),
    ):
        loss = _mean_at(means, pods, OURS) - _mean_at(means, pods, label)
        found.append(Bar(f"trace_{name}", loss, allowed))
    return found


def _mean_at(
    means: Mapping[tuple[str, str], Figures], pods: PodList, label: str
) -> float:
    """Return the mean of a policy where the list has its bar."""
    mean = means[pods.name, label]
    return mean.at_100 if pods.arrived == 100 else mean.at_130


def bytes_bar(runs: Mapping[str, Sequence[Figures]]) -> Bar:
    """Return how many pods of the first seed go elsewhere by JSON; runs by label."""
    functions, sent = runs[OURS][0].nodes, runs[BY_BYTES][0].nodes
    differing = sum(one != other for one, other in zip(functions, sent, strict=True))
    return Bar("trace_bytes_differing", differing, 0)


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


def seeds_of(text: str) -> range:
    """Return the seeds from a first to a last one.

    >>> seeds_of("42-51")
    range(42, 52)
    """
    first, _, last = text.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    if not seeds:
        raise ValueError(f"wanted the lower seed first, got {text}")
    return seeds


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of all lists and policies, then the bars."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--seeds", type=seeds_of, default=SEEDS, help="FIRST-LAST")
    parser.add_argument("--scoring", default=DEFAULT_SCORING, help="as JSON")
    parser.add_argument("--fleet", action="store_true", help="and the NVLink fleet")
    options = parser.parse_args(arguments)
    try:
        for pods in LISTS:
            read_trace(options.trace, pods.name)
        profile = profile_settings(options.scoring).scoring.profile
    except (TraceError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    start = time.perf_counter()
    seeds = options.seeds
    print(
        f"GPUs allocated, in %: mean and deviation over seeds {seeds[0]} to"
        f" {seeds[-1]};\n{OFFERED} % of the nodes offered, lots among equals, ours:"
        f" {profile}, shares of the tightest GPU, no score plugins",
        flush=True,
    )
    tasks = list_tasks(options.trace, seeds, options.scoring)
    with ProcessPoolExecutor(PROCESSES, get_context("spawn")) as pool:
        figures = pool.map(replay, tasks)
        fleets = nvlink_fleet.submit(pool) if options.fleet else {}
        found = _tables(figures)
        print(f"\n{len(tasks)} replays, {time.perf_counter() - start:.0f} s\n")
        if fleets:
            found += nvlink_fleet.report(fleets)
            print(f"\n{time.perf_counter() - start:.0f} s in all\n")
    for bar in found:
        print(bar.line())
    return 0


def _tables(figures: Iterable[Figures]) -> list[Bar]:
    """Print a table of each list; return the bars."""
    means: dict[tuple[str, str], Figures] = {}
    of_bytes: list[Bar] = []
    by_list = groupby(figures, key=lambda one: one.pods)
    for pods, (_, of_list) in zip(LISTS, by_list, strict=True):
        print(f"\n{pods.title:38}at 100 %         at 130 %  1st refusal")
        runs: dict[str, list[Figures]] = {}
        for one in of_list:
            runs.setdefault(one.label, []).append(one)
        for label, of_label in runs.items():
            means[pods.name, label] = mean_of(of_label)
            print(_row(of_label), flush=True)
        if BY_BYTES in runs:
            of_bytes.append(bytes_bar(runs))
    return [*bars(means), *of_bytes]


if __name__ == "__main__":
    sys.exit(main())
