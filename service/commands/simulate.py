"""``gpu-extender simulate``: pods placed one by one, from a trace or from manifests."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, TextIO

import msgspec
import numpy as np

from cluster.dump import load_dump
from cluster.ledger.ledger import Ledger
from cluster.ledger.pods import expected_shape
from cluster.ledger.writer import SnapshotCell
from extender.tracking.assumed_pods import AssumedPods
from extender.verbs.options import VerbOptions
from scoring.packing.learning import ExpectedPods, asked_of, typical_of
from scoring.snapshot import Int64Array, Snapshot
from service.commands.explain import read_admitted, read_templates
from service.commands.inputs import (
    EXIT_FAULTY_INPUT,
    attempt,
    folder_of,
    read_manifests,
    read_or_default,
    with_dumps,
    write_quietly,
)
from service.commands.scheduler_config import weight_for
from service.runtime import build_ledger, build_verb_options
from service.settings.settings import Settings
from service.submission import preview_by
from service.webhook import Uncounted, Webhook
from simulator import trace as traces
from simulator.cluster import Cluster
from simulator.devices import devices_of
from simulator.fgd import FragmentationDescent
from simulator.fragmentation import Mix, mix_of
from simulator.pods import WHOLE, QueuedPod, queue_subjects
from simulator.policies import TIGHTEST, BestFit, Policy, RandomPolicy
from simulator.report import (
    PlacementRow,
    Report,
    build_row,
    linked_part,
    render_svg,
    render_text,
)
from simulator.scheduler import SchedulerRules, Ties
from simulator.simulation import Outcome, Progress, Simulation
from simulator.verbs import ExtenderPolicy

EXIT_NO_NODE: Final = 1

TEXT: Final = "text"

RANDOM: Final = "Random"

BEST_FIT: Final = "BestFit"

FGD: Final = "FGD"

DEFAULT_LIST: Final = "default"

DEFAULT_ARRIVED: Final = 130


@dataclass(frozen=True, slots=True)
class SimulateOptions:
    """Options of the command line.

    Attributes
    ----------
    trace : Path or None
        Folder of the public trace; else `dumps` and `pods` say what is placed where.
    pod_list : str or None
        Which list of the trace; the default one if None.
    has_whole_gpus : bool
        Whether each share of the trace is rounded up to one GPU.
    arrived : int or None
        Up to how many % of the cluster's GPUs the trace's pods ask for; 130 if None.
    percentage : int
        How many % of the nodes are offered; 0 for kube-scheduler's own choice.
    has_plugins : bool
        Whether kube-scheduler's own score plugins count.
    profiles : sequence of str
        Profiles by which the pods are placed; none for that of the configuration.
    is_mix_known : bool
        Whether our scores know the pods of the list beforehand, as FGD does; else they
        learn from those that came.
    lag : int
        How many placements the cache is behind.
    gpu_choice : str
        Which GPU a share is taken of.
    is_comparing : bool
        Whether other policies place the same pods, too.
    plot : Path or None
        Where a picture is written.
    output : str
        ``text`` or ``json``.
    """

    trace: Path | None = None
    dumps: Sequence[Path] = ()
    pods: Sequence[Path] = ()
    config: Path | None = None
    pod_list: str | None = None
    has_whole_gpus: bool = False
    arrived: int | None = None
    seed: int = 42
    percentage: int = 0
    ties: Ties = "random"
    has_plugins: bool = True
    profiles: Sequence[str] = ()
    is_mix_known: bool = False
    lag: int = 0
    gpu_choice: str = TIGHTEST
    is_comparing: bool = False
    plot: Path | None = None
    output: str = TEXT

    @property
    def list_name(self) -> str:
        """The list of the trace that is placed."""
        return DEFAULT_LIST if self.pod_list is None else self.pod_list


@dataclass(frozen=True, slots=True)
class Workload:
    """What is placed where.

    Attributes
    ----------
    make_ledger : callable
        Returns the cluster at the start, in a ledger of its own.
    make_cluster : callable
        Returns the same as kube-scheduler has it.
    models : int64 array, shape (N,)
        Code of each node's GPU model, as in the mix.
    listed : sequence of QueuedPod
        The pods of the list, each once.
    """

    pods: Sequence[QueuedPod]
    make_ledger: Callable[[], Ledger]
    make_cluster: Callable[[Ledger], Cluster]
    mix: Mix
    models: Int64Array
    listed: Sequence[QueuedPod]

    def expected(self, snapshot: Snapshot) -> ExpectedPods:
        """Return the mix of the list's pods, on the cluster of a snapshot."""
        unit = snapshot.gpus.supply.unit
        counts = Counter(expected_shape(pod.record, unit) for pod in self.listed)
        return ExpectedPods(typical_of(counts), asked=asked_of(counts))


def simulate_pods(options: SimulateOptions) -> int:
    """Place all pods and print what came of it; return the exit status."""
    messages = list(_misused(options))
    settings = attempt(partial(read_or_default, options.config), messages)
    settings = settings or Settings()
    if options.dumps:
        settings = with_dumps(settings, options.dumps)
    verb_options = build_replay_options(settings, options.lag)
    workload = (
        _of_manifests(options, settings, verb_options, messages)
        if options.trace is None
        else attempt(
            partial(read_workload, options.trace, options, settings, verb_options),
            messages,
        )
    )
    if messages or workload is None:
        sys.stderr.write("\n".join(messages) + "\n")
        return EXIT_FAULTY_INPUT
    report = Replays(options, settings, verb_options, workload).report()
    if options.plot is not None:
        written = attempt(
            partial(options.plot.write_text, render_svg(report)), messages
        )
        if written is None:
            sys.stderr.write(f"--plot: {messages[-1]}\n")
            return EXIT_FAULTY_INPUT
    write_quietly(_rendered(report, options))
    is_short = options.trace is None and report.policies[0].refused
    return EXIT_NO_NODE if is_short else 0


def build_replay_options(settings: Settings, lag: int) -> VerbOptions:
    """Return the settings of the verbs for a cache that is so many placements behind.

    One that lags is that of an API server, where kube-scheduler's own count holds.
    """
    options = build_verb_options(settings)
    if lag and settings.extender.counts is None:
        return replace(options, is_enforcing=False)
    return options


def _misused(options: SimulateOptions) -> Iterable[str]:
    """Yield what is wrong with the options together."""
    if options.trace is not None and (options.dumps or options.pods):
        yield "--trace: wanted alone, got --cluster or --pods, too"
    elif options.trace is None and not (options.dumps and options.pods):
        missing = [
            option
            for option, given in (
                ("--cluster", options.dumps),
                ("--pods", options.pods),
            )
            if not given
        ]
        got = " and no ".join(missing)
        yield f"wanted --trace, or --cluster and --pods, got no {got}"
    if options.trace is None:
        for option, is_given in (
            ("--list", options.pod_list is not None),
            ("--whole", options.has_whole_gpus),
            ("--arrived", options.arrived is not None),
        ):
            if is_given:
                yield f"{option}: wanted with --trace only"
    if options.plot is not None and not _is_writable(options.plot):
        yield f"--plot: wanted a file that can be written, got {str(options.plot)!r}"


def _is_writable(path: Path) -> bool:
    """Whether a file can be written, as far as can be told beforehand."""
    if path.exists():
        return not path.is_dir() and os.access(path, os.W_OK)
    return path.parent.is_dir() and os.access(path.parent, os.W_OK)


def read_workload(
    folder: Path,
    options: SimulateOptions,
    settings: Settings,
    verb_options: VerbOptions,
) -> Workload:
    """Return the pods of a trace, by the published protocol; raise `TraceError`."""
    trace = traces.read_trace(folder, options.list_name)
    if options.has_whole_gpus:
        trace = trace.in_whole_gpus()
    random = np.random.default_rng([options.seed, 0])
    arrived = DEFAULT_ARRIVED if options.arrived is None else options.arrived
    order = traces.inflated(trace, arrived, random)
    names, models = traces.models_of(trace)
    listed = list(traces.queue_pods(trace, range(len(trace.pods)), verb_options))
    return Workload(
        list(traces.queue_pods(trace, order, verb_options)),
        lambda: traces.build_ledger(trace, build_ledger(settings), verb_options),
        lambda ledger: traces.build_cluster(trace, ledger.build()),
        mix_of(listed, names),
        models,
        listed,
    )


def _of_manifests(
    options: SimulateOptions,
    settings: Settings,
    verb_options: VerbOptions,
    messages: list[str],
) -> Workload | None:
    """Return the pods of manifests on the cluster of dumps; add to `messages`."""
    webhook_cell = SnapshotCell()
    webhook = Webhook(webhook_cell, settings, Uncounted(), folder_of(options.config))
    attempt(webhook.load_rules, messages)
    read = partial(read_templates, options=verb_options)
    templates = attempt(partial(read_manifests, options.pods, read), messages)
    load = partial(load_dump, options.dumps, verb_options.builder)
    changes = attempt(load, messages) if options.dumps else None
    if messages or templates is None or changes is None:
        return None

    def make_ledger() -> Ledger:
        ledger = build_ledger(settings)
        for change in changes:
            ledger.apply(change)
        return ledger

    snapshot = make_ledger().build()
    webhook_cell.publish(snapshot)
    admit = preview_by(webhook.admission.preview)
    subjects = attempt(partial(read_admitted, templates, verb_options, admit), messages)
    if subjects is None:
        return None
    kinds = snapshot.gpus.kinds
    pods = list(queue_subjects(subjects, kinds, verb_options.builder))
    mix = mix_of(pods, [gpus.model for gpus in kinds])
    return Workload(
        pods,
        make_ledger,
        lambda ledger: _counted(ledger.build()),
        mix,
        snapshot.gpus.codes,
        pods,
    )


def _counted(snapshot: Snapshot) -> Cluster:
    return Cluster(snapshot, devices_of(snapshot))


@dataclass(frozen=True, slots=True)
class Replays:
    """The same pods on the same cluster, by one policy after the other."""

    options: SimulateOptions
    settings: Settings
    verb_options: VerbOptions
    workload: Workload

    def report(self) -> Report:
        """Place the pods by our verbs, and by the other policies if they are wanted."""
        own = self.options.profiles or (self.settings.scoring.profile,)
        others = (RANDOM, BEST_FIT, FGD) if self.options.is_comparing else ()
        names = (*dict.fromkeys(own), *others)
        pods, label = self.workload.pods, self.settings.labels.interconnect
        runs = {}
        for name in names:
            bar = ProgressBar(sys.stderr, name, len(pods))
            runs[name] = self.run(name, bar.show)
            bar.clear()
        cluster, ours = runs[names[0]]
        return Report(
            len(cluster.names),
            ours.capacity / WHOLE,
            len(pods),
            _conditions(self.options),
            tuple(
                build_row(name, run, linked_part(run, pods, there.snapshot, label))
                for name, (there, run) in runs.items()
            ),
            tuple(PlacementRow(*placement) for placement in ours.placements),
        )

    def run(
        self, name: str, progress: Progress = lambda _done: None
    ) -> tuple[Cluster, Outcome]:
        """Place the pods by one policy; return the cluster and what came of it.

        `name` is one of the other policies, or a profile of ours.
        """
        options, workload = self.options, self.workload
        plugins = int(options.has_plugins)
        rules = SchedulerRules(
            options.percentage,
            options.ties,
            weight_for(self.settings.scoring.max_score),
            fit_weight=plugins,
            balance_weight=plugins,
        )
        ledger = workload.make_ledger()
        cluster = workload.make_cluster(ledger)
        random = np.random.default_rng([options.seed, 1])
        policy = self._policy(name, cluster, ledger, random)
        simulation = Simulation(cluster, rules, policy, workload.mix, workload.models)
        return cluster, simulation.run(workload.pods, random, progress)

    def _policy(
        self, name: str, cluster: Cluster, ledger: Ledger, random: np.random.Generator
    ) -> Policy:
        if name == RANDOM:
            return RandomPolicy(cluster, random)
        if name == BEST_FIT:
            return BestFit(cluster)
        if name == FGD:
            mix, models = self.workload.mix, self.workload.models
            return FragmentationDescent(cluster, mix, models)
        is_counting = self.settings.extender.placements_under_way
        return ExtenderPolicy(
            cluster,
            ledger,
            self._options_on(cluster, name),
            lag=self.options.lag,
            assumed=AssumedPods(is_counting=is_counting, clock=lambda: 0.0),
            gpu_choice=self.options.gpu_choice,
        )

    def _options_on(self, cluster: Cluster, profile: str) -> VerbOptions:
        """Return the settings of the verbs, with the mix where that is known."""
        options = self.verb_options
        if profile != self.settings.scoring.profile:
            scoring = self.settings.scoring.with_profile(profile)
            settings = self.settings.model_copy(update={"scoring": scoring})
            options = build_replay_options(settings, self.options.lag)
        if not self.options.is_mix_known:
            return options
        expected = self.workload.expected(cluster.snapshot)
        return replace(
            options, score_options=replace(options.score_options, expected=expected)
        )


def _conditions(options: SimulateOptions) -> dict[str, str | int]:
    """Return the conditions of the replay, for its reader."""
    conditions: dict[str, str | int] = {}
    if options.trace is not None:
        whole = " in whole GPUs" if options.has_whole_gpus else ""
        conditions["list"] = options.list_name + whole
    conditions |= {
        "seed": options.seed,
        "ties": options.ties,
        "offered": f"{options.percentage} %" if options.percentage else "as stock",
        "score plugins": "on" if options.has_plugins else "off",
        "lag": options.lag,
    }
    if options.is_mix_known:
        conditions["mix"] = "known"
    return conditions


def _rendered(report: Report, options: SimulateOptions) -> str:
    """Return the report as text or JSON."""
    if options.output == TEXT:
        return render_text(report, has_placements=options.trace is None)
    return msgspec.json.format(msgspec.json.encode(report)).decode() + "\n"


BAR_WIDTH: Final = 40


class ProgressBar:
    """A bar on a terminal; nothing is written anywhere else.

    Parameters
    ----------
    total : int
        Pods in all.
    """

    def __init__(self, stream: TextIO, name: str, total: int) -> None:
        self._stream = stream
        self._name = name
        self._total = max(total, 1)
        self._is_shown = stream.isatty()

    def show(self, done: int) -> None:
        """Show how many pods are done."""
        if self._is_shown:
            filled = BAR_WIDTH * done // self._total
            bar = "#" * filled + "." * (BAR_WIDTH - filled)
            self._stream.write(f"\r{self._name} [{bar}] {done:,} of {self._total:,}")
            self._stream.flush()

    def clear(self) -> None:
        """Take the bar away."""
        if self._is_shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
