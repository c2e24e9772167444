"""Small traces, and replays of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cluster.ledger.ledger import Ledger
from extender.verbs.options import VerbOptions
from scoring.snapshot import Int64Array
from service.runtime import build_verb_options
from service.settings.settings import Settings
from simulator import trace as traces
from simulator.cluster import Cluster
from simulator.fgd import FragmentationDescent
from simulator.fragmentation import Mix, mix_of
from simulator.pods import WHOLE, QueuedPod
from simulator.policies import BestFit, Policy, RandomPolicy
from simulator.scheduler import SchedulerRules
from simulator.simulation import Outcome, Simulation
from simulator.trace import Trace, TraceNode, TracePod
from simulator.verbs import ExtenderPolicy
from tests.extender_app import make_settings

SETTINGS: Final = make_settings(
    {"scoring": {"strategy": "binpack", "normalize": "rank", "typeOrder": "weighted"}}
)
OPTIONS: Final = build_verb_options(SETTINGS)
BY_NAME: Final = SchedulerRules(percentage=100, ties="name")


def make_row(  # noqa: PLR0913 - every argument is optional and named
    name: str,
    *,
    gpus: int = 1,
    share: int = WHOLE,
    cpu: int = 1000,
    memory: int = 1024,
    models: Sequence[str] = (),
) -> TracePod:
    """Return a pod of a trace."""
    return TracePod(name, cpu, memory, gpus, share, tuple(models))


def make_place(
    name: str,
    *,
    gpus: int = 2,
    cpu: int = 8000,
    memory: int = 65_536,
    model: str = "T4",
) -> TraceNode:
    """Return a node of a trace."""
    return TraceNode(name, cpu, memory, gpus, model)


@dataclass
class Replay:
    """A replay that has not begun: cluster, pods, and what policies need."""

    trace: Trace
    options: VerbOptions = OPTIONS
    settings: Settings = SETTINGS

    def __post_init__(self) -> None:
        label_keys = (self.settings.labels.accelerator,)
        self.ledger = traces.build_ledger(self.trace, Ledger(label_keys), self.options)
        self.cluster: Cluster = traces.build_cluster(self.trace, self.ledger.build())
        names, codes = traces.models_of(self.trace)
        self.models: Int64Array = codes
        order = range(len(self.trace.pods))
        self.pods: list[QueuedPod] = list(
            traces.queue_pods(self.trace, order, self.options)
        )
        self.mix: Mix = mix_of(self.pods, names)
        self.random = np.random.default_rng(7)

    def policy(self, name: str, **more: Any) -> Policy:
        """Return a policy on this cluster."""
        if name == "ours":
            return ExtenderPolicy(self.cluster, self.ledger, self.options, **more)
        if name == "fgd":
            return FragmentationDescent(self.cluster, self.mix, self.models)
        if name == "bestFit":
            return BestFit(self.cluster)
        return RandomPolicy(self.cluster, self.random)

    def run(self, policy: Policy, rules: SchedulerRules = BY_NAME) -> Outcome:
        """Place all pods."""
        simulation = Simulation(self.cluster, rules, policy, self.mix, self.models)
        return simulation.run(self.pods, self.random)


def trace_of(nodes: Sequence[TraceNode], pods: Sequence[TracePod]) -> Trace:
    """Return the trace of these rows."""
    return Trace(tuple(nodes), tuple(pods))


def make_replay(nodes: Sequence[TraceNode], pods: Sequence[TracePod]) -> Replay:
    """Return a replay of these rows."""
    return Replay(trace_of(nodes, pods))


def nodes_of(outcome: Outcome) -> list[str | None]:
    """Return where each pod went."""
    return [placement.node for placement in outcome.placements]
