"""kube-scheduler's own rules: the sample of nodes, its score plugins, the pick.

After ``pkg/scheduler/schedule_one.go`` and ``framework/plugins/noderesources`` of
Kubernetes 1.36. Of its score plugins the two are modelled whose scores move with the
load; the others tell equal nodes apart only where nodes or pods say so.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np

from scoring.eligibility import MIN_FEASIBLE_NODES
from scoring.resources import CPU
from scoring.snapshot import BoolArray, Float64Array, IndexArray, Int64Array
from simulator.cluster import Cluster
from simulator.pods import QueuedPod

Ties: TypeAlias = Literal["random", "name"]

MEMORY: Final = "memory"

MIN_PERCENTAGE: Final = 5

# A priority of 10 is worth so much of the 100 of a score plugin, times the weight.
PRIORITY_POINTS: Final = 10

# What counts for a pod that asks for nothing (pkg/scheduler/util/pod_resources.go).
DEFAULT_REQUESTS: Final[Mapping[str, int]] = {CPU: 100, MEMORY: 200 * 1024 * 1024}


@dataclass(frozen=True, slots=True)
class SchedulerRules:
    """What kube-scheduler is configured to do.

    Attributes
    ----------
    percentage : int
        ``percentageOfNodesToScore``; 0 for its own choice by the size of the cluster.
    ties : str
        How the node is picked among the best: at random, or the first by name.
    weight : int
        That of the extender.
    fit_weight, balance_weight : int
        Weights of NodeResourcesFit (LeastAllocated) and
        NodeResourcesBalancedAllocation; 0 for a plugin that is off.
    """

    percentage: int = 0
    ties: Ties = "random"
    weight: int = 10
    fit_weight: int = 0
    balance_weight: int = 0

    def nodes_to_find(self, count: int) -> int:
        """Return after how many fitting nodes of `count` it stops looking.

        >>> [SchedulerRules().nodes_to_find(count) for count in (99, 300, 1000, 5000)]
        [99, 144, 420, 500]
        """
        if count < MIN_FEASIBLE_NODES:
            return count
        percentage = self.percentage or max(50 - count // 125, MIN_PERCENTAGE)
        return max(count * percentage // 100, MIN_FEASIBLE_NODES)


class NodeSampler:
    """Goes round the nodes; each pod starts where the search for the last one ended."""

    def __init__(self, rules: SchedulerRules, count: int) -> None:
        self._limit = rules.nodes_to_find(count)
        self._count = count
        self._start = 0

    def sample(self, fits: BoolArray) -> IndexArray:
        """Return the columns of the fitting nodes that are found, in their order."""
        found = np.flatnonzero(fits)
        turn = int(np.searchsorted(found, self._start))
        ordered = np.concatenate((found[turn:], found[:turn]))
        if len(ordered) > self._limit:
            # It stops at the first fitting node that it does not need.
            self._start = int(ordered[self._limit])
        return ordered[: self._limit]


def plugin_scores(
    rules: SchedulerRules, cluster: Cluster, pod: QueuedPod, columns: IndexArray
) -> Int64Array:
    """Return what kube-scheduler's own score plugins give nodes, times their weights.

    Parameters
    ----------
    columns : index array, shape (C,)

    Returns
    -------
    int64 array, shape (C,)
    """
    scores = np.zeros(len(columns), dtype=np.int64)
    if rules.fit_weight:
        scores += rules.fit_weight * _least_allocated(cluster, pod, columns)
    asked = dict(pod.record.request)
    if rules.balance_weight and (CPU in asked or MEMORY in asked):
        scores += rules.balance_weight * _balanced_allocation(cluster, pod, columns)
    return scores


def _least_allocated(
    cluster: Cluster, pod: QueuedPod, columns: IndexArray
) -> Int64Array:
    """Return the mean of the free parts of cpu and memory, in hundredths.

    NOTE: pods that are bound count by what they ask; kube-scheduler adds
    `DEFAULT_REQUESTS` for those of them that ask for nothing, too.
    """
    asked = dict(pod.record.request)
    total = np.zeros(len(columns), dtype=np.int64)
    resources = np.zeros(len(columns), dtype=np.int64)
    for resource, least in DEFAULT_REQUESTS.items():
        allocatable, requested = _amounts(cluster, resource, columns)
        left = np.maximum(allocatable - requested - asked.get(resource, least), 0)
        total += left * 100 // np.maximum(allocatable, 1)
        resources += allocatable > 0
    return total // np.maximum(resources, 1)


def _balanced_allocation(
    cluster: Cluster, pod: QueuedPod, columns: IndexArray
) -> Int64Array:
    """Return how much nearer the used parts of cpu and memory come to each other.

    50 to 100; 75 for a pod that changes nothing.
    """
    asked = dict(pod.record.request)
    before, after = [], []
    for resource in DEFAULT_REQUESTS:
        allocatable, requested = _amounts(cluster, resource, columns)
        capacity = np.maximum(allocatable, 1)
        before.append(np.minimum(requested / capacity, 1.0))
        used = requested + asked.get(resource, 0)
        after.append(np.minimum(used / capacity, 1.0))
    gain = _balance(*after) - _balance(*before)
    return 50 + (50 + gain) // 2


def _balance(one: Float64Array, other: Float64Array) -> Int64Array:
    """Return 100 for equal parts in use, 50 where one is used up and one is not."""
    return np.trunc((1 - np.abs(one - other) / 2) * 100).astype(np.int64)


def _amounts(
    cluster: Cluster, resource: str, columns: IndexArray
) -> tuple[Int64Array, Int64Array]:
    """Return what some nodes have of a resource, and what is taken of it."""
    snapshot = cluster.snapshot
    row = snapshot.resources.index(resource) if resource in snapshot.resources else -1
    if row < 0:
        nothing = np.zeros(len(columns), dtype=np.int64)
        return nothing, nothing
    return snapshot.allocatable[row].take(columns), cluster.requested[row].take(columns)


def pick(
    totals: Int64Array, order: Int64Array, ties: Ties, random: np.random.Generator
) -> int:
    """Return the index of the best total, among equals by the rule.

    Parameters
    ----------
    totals : int64 array, shape (C,)
        C is 1 or more.
    order : int64 array, shape (C,)
        Rank of each node's name.
    """
    best = np.flatnonzero(totals == totals.max())
    if ties == "name":
        return int(best[order[best].argmin()])
    return int(best[random.integers(len(best))])
