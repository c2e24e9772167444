"""One filter or prioritize call, and its outcome, as all listeners are told of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from extender.wire.answers import FilterAnswer, literals_of
from scoring.candidates import PodRequest
from scoring.feasibility import Feasibility
from scoring.snapshot import IndexArray, Int64Array, Snapshot


@dataclass(frozen=True, slots=True, eq=False)
class VerbCall:
    """One filter or prioritize call, looked up in one snapshot.

    Attributes
    ----------
    names : sequence of str, length C
        Each once, in the order of the request.
    columns : index array, shape (C,)
        Column of each node in the snapshot, -1 where it is not there.
    templates : Snapshot or None
        The nodes that only the request knows, if it has their objects.
    is_literal : bool
        Whether the names stand in JSON as they are, between quotes.
    has_unknown : bool
        Whether the cache lacks a candidate.
    """

    pod_request: PodRequest
    names: Sequence[str]
    columns: IndexArray
    snapshot: Snapshot
    templates: Snapshot | None = None
    is_literal: bool = False
    has_unknown: bool = field(init=False)

    def __post_init__(self) -> None:
        lowest = np.minimum.reduce(self.columns) if len(self.columns) else 0
        object.__setattr__(self, "has_unknown", bool(lowest < 0))

    def literals(self, indexes: IndexArray | None = None) -> Sequence[str]:
        """Return names, all or those at `indexes`, as they stand in quotes in JSON."""
        return literals_of(self.names, indexes, is_literal=self.is_literal)


@dataclass(frozen=True, slots=True, eq=False)
class FilterOutcome:
    """An answered filter call.

    Attributes
    ----------
    options : object
        The `VerbOptions` that it was answered by, told apart by identity.
    result : Feasibility
        Of all C candidates.
    claimed_count : int
        Candidates that passed because a DeviceClass carries their resource.
    """

    verb_call: VerbCall
    options: object
    result: Feasibility
    answer: FilterAnswer
    claimed_count: int

    @property
    def only_node(self) -> str | None:
        """The node that alone was answered; kube-scheduler takes it unasked."""
        indexes = self.answer.indexes
        return self.verb_call.names[int(indexes[0])] if len(indexes) == 1 else None


@dataclass(frozen=True, slots=True, eq=False)
class PrioritizeOutcome:
    """An answered prioritize call.

    Attributes
    ----------
    indexes : index array, shape (P,), or None
        The candidates of `verb_call` that were asked about; None for all.
    literals : sequence of str, length P
        Their names as they stand between quotes in JSON.
    priorities : int64 array, shape (P,)
        As sent.
    """

    verb_call: VerbCall
    indexes: IndexArray | None
    literals: Sequence[str]
    priorities: Int64Array

    @property
    def best_node(self) -> str | None:
        """The node of the highest priority; None where several share it."""
        best = best_alone(self.priorities)
        if best is None:
            return None
        index = best if self.indexes is None else int(self.indexes[best])
        return self.verb_call.names[index]


def best_alone(priorities: Int64Array) -> int | None:
    """Return the index of the highest priority, None where several share it.

    >>> best_alone(np.array([3, 10, 9]))
    1
    >>> best_alone(np.array([10, 10])) is None
    True
    """
    if not len(priorities):
        return None
    best = int(priorities.argmax())
    count = np.count_nonzero(priorities == priorities[best])
    return best if count == 1 else None
