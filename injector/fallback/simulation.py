"""`TrialPlacement`: free amounts of the nodes once pods on their way have been placed.

Each is placed on the eligible node with the least free that still fits it: that keeps
large gaps whole.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from scoring.eligibility import eligible_columns, is_eligible, node_cost
from scoring.gpu.models import GIB
from scoring.gpu.node_gpus import NodeGpus
from scoring.gpu.requirements import NO_GPU_REQUIREMENTS, GpuRequirements
from scoring.gpu.suitability import Suitability, suitability
from scoring.protocols import Constraints, NodeFacts
from scoring.quantity import MAX_QUANTITY
from scoring.resources import Request
from scoring.snapshot import BoolArray, Int64Array, Snapshot

# Nodes that are looked at one by one before all are.
PROBES: Final = 8


@dataclass(frozen=True, slots=True)
class MinimumGpu:
    """Least requirements on the GPUs of a node for a pod that fell onto whole GPUs.

    Attributes
    ----------
    is_whole : bool
        Whether nodes that share their GPUs out, or slice them, are left aside.
    memory_gib : int
        Nodes whose label says less per GPU are left aside; 0 asks for nothing.
    """

    is_whole: bool = False
    memory_gib: int = 0

    def is_met_by(self, node: NodeFacts) -> bool:
        """Whether `node` is not known to fall short."""
        return self.may_take(node.gpus)

    def may_take(self, gpus: NodeGpus) -> bool:
        """Whether `gpus` are not known to fall short."""
        return (gpus.is_whole or not self.is_whole) and self.may_hold(gpus)

    def may_hold(self, gpus: NodeGpus) -> bool:
        """Whether their memory is not known to be too little."""
        return gpus.undivided.high >= self.memory_gib * GIB


ANY_GPU: Final = MinimumGpu()

# As `node_cost` counts: some tenths of a millisecond for each node, while others wait.
MAX_NODE_COST: Final = 40_000


def is_costly(constraints: Constraints) -> bool:
    """Whether it takes too long to find the nodes for such a pod.

    A pod may have thousands of terms of affinity; it is not placed anywhere.
    """
    return node_cost(constraints) > MAX_NODE_COST


@dataclass(frozen=True, slots=True)
class PendingClaim:
    """Amounts that a pod without a node is going to take, and where it may go.

    Attributes
    ----------
    request : tuple of (str, int)
        Of resources of chains at least.
    gpu_requirements : GpuRequirements
        What the pod itself says that it wants of the GPUs.
    more : tuple of (str, int)
        What it takes beside `request`.
    """

    request: Request
    constraints: Constraints
    gpu: MinimumGpu = ANY_GPU
    gpu_requirements: GpuRequirements = NO_GPU_REQUIREMENTS
    more: Request = ()

    @property
    def is_choosy(self) -> bool:
        """Whether it matters what the GPUs of a node are like."""
        return self.gpu != ANY_GPU or self.gpu_requirements.is_of_gpus

    def takes_gpus_of(self, node: NodeFacts) -> bool:
        """Whether the GPUs of `node` will do."""
        if not self.gpu.is_met_by(node):
            return False
        found = suitability(node.gpus, self.gpu_requirements, self.request)
        return found is Suitability.SUITS


_Key: TypeAlias = tuple[Hashable, ...]


class TrialPlacement:
    """Amounts left of some resources on the nodes that have any, for one decision.

    Parameters
    ----------
    weighed, others : dict
        resource -> int64 array, shape (N,): those of chains, by which the fullest node
        is found, and what pods take beside them
    """

    def __init__(
        self,
        snapshot: Snapshot,
        weighed: dict[str, Int64Array],
        others: dict[str, Int64Array],
    ) -> None:
        self._snapshot = snapshot
        has_any = np.zeros(len(snapshot.nodes.names), dtype=np.bool_)
        for row in weighed.values():
            has_any |= row > 0
        self._among: BoolArray = has_any & ~snapshot.faulted
        self._columns = np.flatnonzero(self._among)
        self._weighed = frozenset(weighed)
        self._left = {
            name: row[self._columns] for name, row in {**others, **weighed}.items()
        }
        # where a pod may go -> which nodes suit it, once a few probes have failed
        self._suitable: dict[_Key, BoolArray] = {}
        # (claim without age) that found no node; what is left never grows again
        self._hopeless: set[_Key] = set()
        # Where a claim was placed is the fullest node for the next of its like, too.
        self._last_key: _Key = ()
        self._last_index = 0

    def place(self, claim: PendingClaim) -> None:
        """Take away what `claim` will take, if it finds a node at all."""
        asked = (*claim.request, *claim.more)
        request = tuple(item for item in asked if item[0] in self._left)
        if self._weighed.isdisjoint(name for name, _ in request):
            return
        key = (request, *_key_of(claim))
        if key in self._hopeless:
            return
        index = self._last_index if key == self._last_key else None
        if index is None or not self._still_fits(request, index):
            index = self._find_index(request, claim)
        if index is None:
            self._hopeless.add(key)
            return
        self._last_key, self._last_index = key, index
        for name, amount in request:
            self._left[name][index] -= amount

    def fits(self, claim: PendingClaim) -> bool:
        """Whether one eligible node has all that `claim` asks."""
        return self._find_index((*claim.request, *claim.more), claim) is not None

    def _find_index(self, request: Request, claim: PendingClaim) -> int | None:
        """Return where `request` fits with the least left free, None for nowhere."""
        if is_costly(claim.constraints):
            return None
        is_fitting = np.ones(len(self._columns), dtype=np.bool_)
        total = np.zeros(len(self._columns), dtype=np.int64)
        for name, amount in request:
            is_fitting &= self._left[name] >= amount
            if name in self._weighed:
                total += self._left[name]
        key = _key_of(claim)
        if key not in self._suitable:
            # Most pods may go to most nodes: looking at all costs some milliseconds.
            for _ in range(PROBES):
                index = _least(total, is_fitting)
                if index is None or self._suits(claim, index):
                    return index
                is_fitting[index] = False
            self._suitable[key] = self._all_suiting(claim)
        return _least(total, is_fitting & self._suitable[key])

    def _still_fits(self, request: Request, index: int) -> bool:
        return all(self._left[name][index] >= amount for name, amount in request)

    def _suits(self, claim: PendingClaim, index: int) -> bool:
        """Whether the pod may go to the node at `index`, amounts apart."""
        node = self._snapshot.facts[self._columns[index]]
        return is_eligible(node, claim.constraints) and claim.takes_gpus_of(node)

    def _all_suiting(self, claim: PendingClaim) -> BoolArray:
        """Return `_suits` of every node."""
        mask = eligible_columns(self._snapshot, claim.constraints, self._among)
        suiting: BoolArray = mask[self._columns]
        if claim.is_choosy:
            facts, columns = self._snapshot.facts, self._columns
            for index in np.flatnonzero(suiting).tolist():
                suiting[index] = claim.takes_gpus_of(facts[columns[index]])
        return suiting


def _least(total: Int64Array, is_fitting: BoolArray) -> int | None:
    """Return the first index with the least `total` among those that fit."""
    if not is_fitting.any():
        return None
    return int(np.where(is_fitting, total, MAX_QUANTITY).argmin())


def _key_of(claim: PendingClaim) -> _Key:
    """Return what decides where a pod may go, as a key."""
    constraints = claim.constraints
    return (
        constraints.node_name,
        tuple(sorted(constraints.node_selector.items())),
        constraints.affinity_terms,
        constraints.tolerations,
        claim.gpu,
        claim.gpu_requirements,
        # what a unit is depends on the resource
        tuple(name for name, _ in claim.request) if claim.is_choosy else (),
    )
