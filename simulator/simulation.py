"""`simulate`: pods placed one after the other, and what came of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from scoring.resources import CPU
from scoring.snapshot import Int64Array
from simulator.cluster import Cluster
from simulator.fragmentation import Mix, fragments
from simulator.pods import WHOLE, QueuedPod
from simulator.policies import Policy
from simulator.scheduler import (
    PRIORITY_POINTS,
    NodeSampler,
    SchedulerRules,
    pick,
    plugin_scores,
)

# Called with the number of pods that are done, now and then.
Progress = Callable[[int], None]

PROGRESS_STEP: Final = 64

# A list that is filled up to so many hundredths ends a little below them.
END_TOLERANCE: Final = 1

# Arrived hundredths of the capacity at which fragments are counted.
MILESTONES: Final = (100,)


class Placement(NamedTuple):
    """Where a pod went; no node for one that fits nowhere."""

    pod: str
    node: str | None


@dataclass(frozen=True, slots=True)
class Point:
    """The cluster after one more pod, in thousandths of GPUs.

    Attributes
    ----------
    arrived : int
        Asked by all pods so far.
    allocated : int
        Taken.
    """

    arrived: int
    allocated: int


@dataclass(slots=True)
class Outcome:
    """Outcome of one replay.

    Attributes
    ----------
    capacity : int
        Thousandths of GPUs that the cluster has.
    at_start : int
        Those that were taken before the first pod.
    placements : list of Placement
        In the order of the pods.
    points : list of Point
        One for each pod.
    first_refusal : int or None
        Index of the first pod that fits nowhere.
    fragmented : dict
        arrived hundredths of the capacity -> part of the free GPUs that are fragments
    """

    capacity: int
    at_start: int
    placements: list[Placement] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    first_refusal: int | None = None
    fragmented: dict[int, float] = field(default_factory=dict)
    fragmented_at_end: float = 0.0

    def allocated_at(self, hundredths: int) -> float | None:
        """Return allocated hundredths once so many had arrived.

        The last pod that keeps within them counts. None where the pods ask for less, by
        more than `END_TOLERANCE`.
        """
        limit = self.capacity * hundredths
        asked = self.points[-1].arrived if self.points else 0
        if not self.capacity or asked * 100 < limit - END_TOLERANCE * self.capacity:
            return None
        within = [p for p in self.points if p.arrived * 100 <= limit]
        taken = within[-1].allocated if within else self.at_start
        return 100 * taken / self.capacity

    @property
    def asked_until_refusal(self) -> float | None:
        """Asked hundredths with the first refused pod; None if none was refused."""
        if self.first_refusal is None or not self.capacity:
            return None
        return 100 * self.points[self.first_refusal].arrived / self.capacity

    @property
    def allocated(self) -> float:
        """Allocated hundredths at the end."""
        taken = self.points[-1].allocated if self.points else self.at_start
        return 100 * taken / max(self.capacity, 1)


@dataclass(frozen=True, slots=True)
class Simulation:
    """A cluster, the rules of its scheduler, and who scores.

    Attributes
    ----------
    mix : Mix or None
        The pods by which free GPUs are seen as fragments; None to leave that out.
    models : int64 array, shape (N,)
        Code of each node's GPU model, as in the mix.
    """

    cluster: Cluster
    rules: SchedulerRules
    policy: Policy
    mix: Mix | None
    models: Int64Array

    def run(
        self,
        pods: Sequence[QueuedPod],
        random: np.random.Generator,
        progress: Progress = lambda _done: None,
    ) -> Outcome:
        """Place all pods in their order; what fits nowhere is dropped."""
        capacity = int(self.cluster.devices.total.sum())
        taken = capacity - int(self.cluster.devices.free.sum())
        outcome = Outcome(capacity, taken)
        sampler = NodeSampler(self.rules, len(self.cluster.names))
        arrived = 0
        for index, pod in enumerate(pods):
            arrived += pod.asked
            self._note_fragments(outcome, arrived)
            column = self._place(pod, sampler, random)
            if column is None:
                if outcome.first_refusal is None:
                    outcome.first_refusal = index
            else:
                taken += pod.asked
            node = None if column is None else self.cluster.names[column]
            outcome.placements.append(Placement(pod.record.name, node))
            outcome.points.append(Point(arrived, taken))
            if index % PROGRESS_STEP == 0:
                progress(index)
        outcome.fragmented_at_end = self.fragmentation_rate()
        progress(len(pods))
        return outcome

    def _place(
        self, pod: QueuedPod, sampler: NodeSampler, random: np.random.Generator
    ) -> int | None:
        """Bind one pod; return its node's column, None if no node takes it.

        A pod that is refused on all nodes of a sample is tried on the next one, as it
        would be once it is woken, until each node had its turn.
        """
        if pod.obstacle:
            return None
        fits = self.cluster.fitting(pod)
        while fits.any():
            columns = sampler.sample(fits)
            passed, scores = self.policy.rate(pod, columns)
            if len(passed):
                totals = scores * self.rules.weight * PRIORITY_POINTS + plugin_scores(
                    self.rules, self.cluster, pod, passed
                )
                order = self.cluster.snapshot.nodes.order.take(passed)
                column = int(passed[pick(totals, order, self.rules.ties, random)])
                is_share = 0 < pod.asked < WHOLE
                gpu = self.policy.gpu_of(pod, column) if is_share else 0
                self.policy.placed(self.cluster.place(pod, column, gpu))
                return column
            fits[columns] = False
        return None

    def _note_fragments(self, outcome: Outcome, arriving: int) -> None:
        """Count fragments before the pod that passes a milestone."""
        for hundredths in MILESTONES:
            is_passed = arriving * 100 > outcome.capacity * hundredths
            if is_passed and hundredths not in outcome.fragmented:
                outcome.fragmented[hundredths] = self.fragmentation_rate()

    def fragmentation_rate(self) -> float:
        """Return the part of the free GPUs that are fragments, 0 where none is free."""
        free = self.cluster.devices.free
        if self.mix is None or not free.any():
            return 0.0
        found = fragments(self.mix, self.cluster.free(CPU), free, self.models)
        return float(found.sum() / free.sum())
