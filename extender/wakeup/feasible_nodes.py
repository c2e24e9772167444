"""`FeasibleNodes` of pods of one class, by our checks and the scheduler's.

Pods of one class ask for the same and may go to the same nodes, so they are judged
together, and again only for nodes that have changed.
"""

from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from cluster.decode.objects import PodConstraints, PodRecord
from extender.verbs.lookup import pod_request_of_record
from extender.verbs.options import VerbOptions
from extender.verbs.reuse import Arrays, SharedResults
from scoring.bounded import BoundedDict
from scoring.candidates import Candidates, PodRequest, take_columns
from scoring.eligibility import eligible_columns, node_cost
from scoring.feasibility import judge
from scoring.snapshot import BoolArray, IndexArray, NodeIndex, Snapshot

# Each takes a byte per node.
MAX_KEPT: Final = 1024

UNDECIDED: Final = -1

# What is spent at a time on where pods of one class may go, as `node_cost` measures it:
# about 5 ms. Node affinity of thousands of terms would take the GIL for seconds.
MAX_COST: Final = 250_000


class FoundNodes(NamedTuple):
    """Columns of the nodes that would take pods of a class.

    Attributes
    ----------
    is_partial : bool
        Whether there are nodes that were not looked at yet; the next call goes on.
    """

    columns: IndexArray
    is_partial: bool = False


NO_NODES: Final = FoundNodes(np.zeros(0, dtype=np.intp))


@dataclass(frozen=True, slots=True)
class PodClass:
    """Request and constraints of pods that are judged together.

    Attributes
    ----------
    pod_request : PodRequest
        For the whole effective request, with ``cpu``, ``memory`` and ``pods``.
    constraints_key : bytes
        The same for equal constraints.
    node_cost : int
        Of those constraints.
    """

    pod_request: PodRequest
    constraints_key: bytes
    node_cost: int = field(compare=False)


@dataclass(frozen=True, slots=True, eq=False)
class _Eligibility:
    """Nodes that pods of a class may go to: int8 (N,), `UNDECIDED` where unknown."""

    generation: int
    nodes: NodeIndex
    known: NDArray[np.int8]


class FeasibleNodes:
    """Finds the nodes that would take a pod; owned by one thread.

    Too low a count refuses a node here whatever ``counts`` says: a pod that our count
    leaves no room for has nothing to be woken for. So do cordon, taints, selectors and
    affinity, on which kube-scheduler itself would refuse it.
    """

    def __init__(self, options: VerbOptions) -> None:
        self._options = options
        self._keys = options.label_keys
        self._shared_results = SharedResults(_pass_all, options.label_keys, MAX_KEPT)
        self._eligibility = BoundedDict[bytes, _Eligibility](MAX_KEPT)

    def adopt(self, options: VerbOptions) -> bool:
        """Go by `options` if they find the same nodes; return whether they do.

        Most settings are about answers and scores. What those of GPU types change is
        in the nodes and pods of the snapshot.
        """
        ours = self._options
        if options is ours:
            return True
        if (options.label_keys, options.builder.scope) != (
            ours.label_keys,
            ours.builder.scope,
        ):
            return False
        self._options = options  # the old ones hold arrays that nobody needs
        return True

    def class_of(self, record: PodRecord, nominated_node: str) -> PodClass:
        """Return the class of a pending pod."""
        pod_request = replace(
            pod_request_of_record(record, self._options),
            uid="",
            request=record.request,
            nominated_node=nominated_node,
        )
        constraints = record.constraints
        return PodClass(
            pod_request, msgspec.msgpack.encode(constraints), node_cost(constraints)
        )

    def of(
        self,
        snapshot: Snapshot,
        pod_class: PodClass,
        constraints: PodConstraints,
        since: int,
    ) -> FoundNodes:
        """Return the nodes that would take pods of a class.

        Parameters
        ----------
        since : int
            Only nodes that changed after this generation are looked at.
        """
        if not snapshot.nodes.names or _asks_what_nobody_has(
            pod_class.pod_request, snapshot
        ):
            return NO_NODES
        every = np.arange(len(snapshot.nodes.names), dtype=np.intp)
        (takes,) = self._shared_results.take(snapshot, every, pod_class.pod_request)
        nominated = snapshot.nodes.column_of.get(pod_class.pod_request.nominated_node)
        if nominated is not None:  # it is exempt from the count, for this pod alone
            column = np.array([nominated], dtype=np.intp)
            candidates = take_columns(
                snapshot, column, pod_class.pod_request, self._keys
            )
            (takes[column],) = _pass_all(candidates, pod_class.pod_request)
        if since >= 0 and snapshot.changed_at is not None:
            takes &= snapshot.changed_at > since
        if not takes.any():
            return NO_NODES
        return self._eligible(snapshot, pod_class, constraints, takes)

    def _eligible(
        self,
        snapshot: Snapshot,
        pod_class: PodClass,
        constraints: PodConstraints,
        among: BoolArray,
    ) -> FoundNodes:
        """Return the nodes `among`, bool of shape (N,), that pods of a class may go to.

        PERF: kept for nodes that have not changed; affinity is read node by node, and
        only of so many nodes at a time as `MAX_COST` pays for.
        """
        kept = self._eligibility.get(pod_class.constraints_key)
        if kept is None or kept.nodes is not snapshot.nodes:
            known = np.full(len(among), UNDECIDED, dtype=np.int8)
        else:
            known = kept.known
            known[snapshot.changed_since(kept.generation)] = UNDECIDED
        undecided = np.flatnonzero(among & (known == UNDECIDED))
        affordable = max(1, MAX_COST // max(1, pod_class.node_cost))
        if len(undecided):
            looked_at = np.zeros(len(among), dtype=np.bool_)
            looked_at[undecided[:affordable]] = True
            found = eligible_columns(snapshot, constraints, looked_at)
            known[looked_at] = found[looked_at]
        self._eligibility.keep_newest(
            pod_class.constraints_key,
            _Eligibility(snapshot.generation, snapshot.nodes, known),
        )
        columns = np.flatnonzero(among & (known == 1))
        return FoundNodes(columns, is_partial=len(undecided) > affordable)


def _asks_what_nobody_has(pod_request: PodRequest, snapshot: Snapshot) -> bool:
    """Whether no node can have one of the resources: then it has no row.

    PERF: a pod may ask tens of thousands of them, and a table has a row for each: over
    5,000 nodes that is gigabytes.
    """
    return any(snapshot.row_of(resource) is None for resource, _ in pod_request.request)


def _pass_all(candidates: Candidates, pod_request: PodRequest) -> Arrays:
    """Return True for candidates that pass all checks, counts, too; shape (C,)."""
    return (judge(candidates, pod_request, is_enforcing=True).feasible,)
