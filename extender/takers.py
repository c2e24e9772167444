"""`Takers`: which nodes would take pods of one kind, by our checks and the scheduler's.

Pods of one kind ask for the same and may go to the same nodes, so they are judged
together, and anew only for nodes that have changed.
"""

from dataclasses import dataclass, replace
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from cluster.objects import PodConstraints, PodRecord
from extender.question import VerbOptions
from extender.standing import Arrays, Standings
from extender.subject import ask_of_record
from scoring.candidates import Ask, Candidates, take_columns
from scoring.eligibility import eligible_columns
from scoring.feasibility import judge
from scoring.snapshot import BoolArray, IndexArray, NodeIndex, Snapshot

# Each takes a byte per node.
MAX_KEPT: Final = 1024
UNDECIDED: Final = -1
NOWHERE: Final[IndexArray] = np.zeros(0, dtype=np.intp)


@dataclass(frozen=True, slots=True)
class Kind:
    """What pods that are judged together have in common.

    Attributes
    ----------
    ask : Ask
        For the whole effective request, with ``cpu``, ``memory`` and ``pods``.
    constraints_key : bytes
        The same for equal constraints.
    """

    ask: Ask
    constraints_key: bytes


@dataclass(frozen=True, slots=True, eq=False)
class _Eligibility:
    """Which nodes pods of a kind may go to: int8 (N,), `UNDECIDED` where unknown."""

    generation: int
    nodes: NodeIndex
    known: NDArray[np.int8]


class Takers:
    """Finds the nodes that would take a pod; owned by one thread.

    Too low a count refuses a node here whatever ``counts`` says: a pod that our count
    leaves no room for has nothing to be woken for. So do cordon, taints, selectors and
    affinity, on which kube-scheduler itself would refuse it.

    Parameters
    ----------
    options : VerbOptions
    """

    def __init__(self, options: VerbOptions) -> None:
        self.options = options
        self._keys = options.label_keys
        self._standings = Standings(_would_take, options.label_keys, MAX_KEPT)
        self._eligibility: dict[bytes, _Eligibility] = {}

    def kind_of(self, record: PodRecord, nominated_node: str) -> Kind:
        """Return the kind of a pending pod."""
        ask = replace(
            ask_of_record(record, self.options),
            uid="",
            request=record.request,
            nominated_node=nominated_node,
        )
        return Kind(ask, msgspec.msgpack.encode(record.constraints))

    def of(
        self,
        snapshot: Snapshot,
        kind: Kind,
        constraints: PodConstraints,
        since: int,
    ) -> IndexArray:
        """Return the columns of the nodes that would take pods of a kind.

        Parameters
        ----------
        snapshot : Snapshot
        kind : Kind
        constraints : PodConstraints
        since : int
            Only nodes that changed after this generation are looked at.
        """
        if not snapshot.nodes.names:
            return NOWHERE
        every = np.arange(len(snapshot.nodes.names), dtype=np.intp)
        (taking,) = self._standings.take(snapshot, every, kind.ask)
        nominated = snapshot.nodes.column_of.get(kind.ask.nominated_node)
        if nominated is not None:  # it is exempt from the count, for this pod alone
            column = np.array([nominated], dtype=np.intp)
            candidates = take_columns(snapshot, column, kind.ask, self._keys)
            (taking[column],) = _would_take(candidates, kind.ask)
        if since >= 0 and snapshot.changed_at is not None:
            taking &= snapshot.changed_at > since
        if not taking.any():
            return NOWHERE
        return np.flatnonzero(self._eligible(snapshot, kind, constraints, taking))

    def _eligible(
        self,
        snapshot: Snapshot,
        kind: Kind,
        constraints: PodConstraints,
        among: BoolArray,
    ) -> BoolArray:
        """Return which nodes `among` pods of a kind may go to, bool of shape (N,).

        PERF: kept for nodes that have not changed; affinity is read node by node.
        """
        kept = self._eligibility.pop(kind.constraints_key, None)
        if kept is None or kept.nodes is not snapshot.nodes:
            known = np.full(len(among), UNDECIDED, dtype=np.int8)
        else:
            known = kept.known
            known[snapshot.changed_since(kept.generation)] = UNDECIDED
        undecided = among & (known == UNDECIDED)
        if undecided.any():
            found = eligible_columns(snapshot, constraints, undecided)
            known[undecided] = found[undecided]
        self._eligibility[kind.constraints_key] = _Eligibility(
            snapshot.generation, snapshot.nodes, known
        )
        if len(self._eligibility) > MAX_KEPT:
            del self._eligibility[next(iter(self._eligibility))]
        eligible: BoolArray = among & (known == 1)
        return eligible


def _would_take(candidates: Candidates, ask: Ask) -> Arrays:
    """Return which candidates pass every check, counts among them, shape (C,)."""
    return (judge(candidates, ask, is_enforcing=True).feasible,)
