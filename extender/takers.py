"""`Takers`: which nodes would take pods of one kind, by our checks and the scheduler's.

Pods of one kind ask for the same and may go to the same nodes, so they are judged
together, and anew only for nodes that have changed.
"""

from dataclasses import dataclass, replace
from typing import Final

import msgspec
import numpy as np

from cluster.objects import PodConstraints, PodRecord
from extender.question import VerbOptions
from extender.standing import Arrays, Standings
from extender.subject import ask_of_record
from scoring.candidates import Ask, Candidates, take_columns
from scoring.eligibility import eligible_columns
from scoring.feasibility import judge
from scoring.snapshot import IndexArray, Snapshot

# Each takes a byte per node.
MAX_KEPT: Final = 1024
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
        return np.flatnonzero(eligible_columns(snapshot, constraints, taking))


def _would_take(candidates: Candidates, ask: Ask) -> Arrays:
    """Return which candidates pass every check, counts among them, shape (C,)."""
    return (judge(candidates, ask, is_enforcing=True).feasible,)
