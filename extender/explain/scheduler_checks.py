"""kube-scheduler's own checks of each node, with the numbers behind its words."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from extender.verbs.fresh_snapshot import NO_DEADLINE, Deadline
from scoring.candidates import Candidates, LabelKeys, PodRequest, take_columns
from scoring.eligibility import (
    UNSCHEDULABLE,
    UNTOLERATED,
    WRONG_AFFINITY,
    WRONG_NODE_NAME,
    failed_checks,
    tolerates_all,
    unmatched_by_all,
)
from scoring.exclusions import RepelledPods
from scoring.feasibility import short_of
from scoring.neighbours import (
    REPELLED,
    TAKEN_PORTS,
    Neighbourhood,
    Newcomer,
    look_around,
)
from scoring.protocols import Constraints, NodeFacts
from scoring.quantity import show_free
from scoring.resources import PODS, Request
from scoring.snapshot import BoolArray, IndexArray, Int64Array, Snapshot

# kube-scheduler's words: pkg/scheduler/framework/plugins/noderesources/fit.go of
# Kubernetes 1.37, which looks at the number of pods first.
TOO_MANY_PODS: Final = "Too many pods"

INSUFFICIENT: Final = "Insufficient "

# Of taints or labels in one detail: a pod has room for thousands of selectors.
MAX_LISTED: Final = 10

# Of requirements, and of the values of one, in a sentence.
MAX_SHOWN: Final = 2


# Number of each node's reasons, shape (C,), and the reasons that a number stands for.
ReasonCodes: TypeAlias = tuple[Int64Array, list[tuple[str, ...]]]


@dataclass(frozen=True, slots=True, eq=False)
class SchedulerChecks:
    """kube-scheduler's own verdict on C nodes, as far as we model it.

    Attributes
    ----------
    failed : mapping
        its words -> bool array, shape (C,), True where that check fails; the checks
        before those of amounts, in its order
    failed_late : mapping
        The same, of the checks after those of amounts.
    short : bool array, shape (Q, C)
        True where a resource of `pod_request` is short.
    candidates : Candidates
        Their tables have a row for each resource of `pod_request`.
    pod_request : PodRequest
        With every resource that kube-scheduler counts.
    around : Neighbourhood or None
        What the pods of all nodes keep the pod from; None where that is not looked at.
    """

    failed: Mapping[str, BoolArray]
    failed_late: Mapping[str, BoolArray]
    short: BoolArray
    facts: Sequence[NodeFacts]
    constraints: Constraints
    candidates: Candidates
    pod_request: PodRequest
    around: Neighbourhood | None = None

    @property
    def passed(self) -> BoolArray:
        """True for the nodes that pass, bool array of shape (C,)."""
        passed: BoolArray = ~np.logical_or.reduce(
            [*self.failed.values(), *self.short, *self.failed_late.values()], axis=0
        )
        return passed

    def reasons(self, index: int) -> tuple[str, ...]:
        """Return the reasons of the node at `index` in its words; empty if it passes.

        Of amounts, it names every resource that is short.
        """
        for reason, failed in self.failed.items():
            if failed[index]:
                return (reason,)
        short = self.short[:, index].tolist()
        if any(short):
            return _shortages(self.pod_request.request, short)
        late = (reason for reason, failed in self.failed_late.items() if failed[index])
        return tuple(late)[:1]

    def reason(self, index: int) -> str | None:
        """Return the reasons of the node at `index` as one text, None if it passes."""
        return ", ".join(self.reasons(index)) or None

    def codes(self) -> ReasonCodes:
        """Return reasons as numbers, int64 of shape (C,), and the reasons of each.

        Number 0 is that of nodes which pass.
        """
        codes = np.zeros(len(self.facts), dtype=np.int64)
        reasons: list[tuple[str, ...]] = [()]
        undecided = np.ones(len(self.facts), dtype=np.bool_)
        for reason, failed in self.failed.items():
            codes[failed & undecided] = len(reasons)
            reasons.append((reason,))
            undecided &= ~failed
        left = np.flatnonzero(undecided & np.logical_or.reduce(self.short, axis=0))
        if len(left):
            first, numbers = _number_columns(self.short[:, left])
            codes[left] = len(reasons) + numbers
            reasons += [
                _shortages(self.pod_request.request, self.short[:, index].tolist())
                for index in left[first].tolist()
            ]
            undecided[left] = False
        for reason, failed in self.failed_late.items():
            codes[failed & undecided] = len(reasons)
            reasons.append((reason,))
            undecided &= ~failed
        return codes, reasons

    def detail(self, index: int) -> str:
        """Return what is behind the reason of the node at `index`; empty for none."""
        reasons = self.reasons(index)
        return self.detail_of(reasons[0], index) if reasons else ""

    def detail_of(self, reason: str, index: int) -> str:
        """Return what is behind one reason; for amounts, behind all of them."""
        explain = DETAILS.get(reason)
        if explain is not None:
            return explain(self.facts[index], self.constraints)
        if reason in {TAKEN_PORTS, REPELLED} and self.around is not None:
            column = int(self.candidates.columns[index])
            return show_neighbour(self.around, column, reason)
        candidates = self.candidates
        return "; ".join(
            show_free(
                *self.pod_request.request[row],
                int(candidates.allocatable[row, index]),
                int(candidates.requested[row, index]),
            )
            for row in np.flatnonzero(self.short[:, index]).tolist()
        )


# Rows that a number has bits for, beside the number of a column.
_ROWS_AT_ONCE: Final = 32


def _number_columns(table: BoolArray) -> tuple[IndexArray, IndexArray]:
    """Return the first of each kind of columns, and the kind of each column.

    PERF: a tenth of what `np.unique` takes, which sorts columns as they are: half of an
    explanation of 5,000 nodes (bench/extender/explain.py).
    """
    keys = np.zeros(table.shape[1], dtype=np.int64)
    for start in range(0, len(table), _ROWS_AT_ONCE):
        for row in table[start : start + _ROWS_AT_ONCE]:
            keys <<= 1
            keys |= row
        _, first, keys = np.unique(keys, return_index=True, return_inverse=True)
    return first, keys


def check_nodes(  # noqa: PLR0913 - the last one is named
    snapshot: Snapshot,
    columns: IndexArray,
    pod_request: PodRequest,
    constraints: Constraints,
    keys: LabelKeys,
    *,
    newcomer: Newcomer | None = None,
    deadline: Deadline = NO_DEADLINE,
) -> SchedulerChecks:
    """Apply kube-scheduler's own checks to some nodes of a snapshot.

    Parameters
    ----------
    snapshot : Snapshot
        With the records of its nodes.
    columns : index array, shape (C,)
        None below 0.
    pod_request : PodRequest
        With every resource that kube-scheduler counts, ``pods`` among them.
    newcomer : Newcomer, optional
        The pod as its neighbours see it. Without it they are not looked at.
    deadline : Deadline
        Checked now and then: a pod's affinity may be long.
    """
    candidates = take_columns(snapshot, columns, pod_request, keys)
    facts = [snapshot.facts[column] for column in columns.tolist()]
    deadline.check()
    failed, late = failed_checks(facts, constraints, deadline.check), {}
    around = None
    if newcomer is not None:
        around = look_around(snapshot, newcomer)
        failed[TAKEN_PORTS] = around.taken[columns]
        late[REPELLED] = around.repelled[columns]
    deadline.check()
    return SchedulerChecks(
        failed,
        late,
        short_of(candidates, pod_request),
        facts,
        constraints,
        candidates,
        pod_request,
        around,
    )


def show_neighbour(around: Neighbourhood, column: int, reason: str) -> str:
    """Return which pod keeps another one from a node, by port or by its wish."""
    if reason == TAKEN_PORTS:
        taker = around.takers[column]
        return f"{taker.namespace}/{taker.name} has the host port"
    repeller, term = around.repellers[column]
    return f"{repeller.namespace}/{repeller.name} keeps away {show_repelled(term)}"


def show_repelled(term: RepelledPods) -> str:
    """Return which pods are kept away, and from where.

    Such as ``pods with app=a, by kubernetes.io/hostname``.
    """
    shown = [
        f"{item.key}={item.values[0]}"
        if item.operator == "In" and len(item.values) == 1
        else f"{item.key} {item.operator} {','.join(item.values[:MAX_SHOWN])}".rstrip()
        for item in (term.conditions or ())[:MAX_SHOWN]
    ]
    which = f"pods with {' and '.join(shown)}" if shown else "all pods"
    return f"{which}, by {term.topology_key}"


def _shortages(request: Request, is_short: list[bool]) -> tuple[str, ...]:
    """Return kube-scheduler's words for what there is too little of."""
    names = [name for (name, _), short in zip(request, is_short, strict=True) if short]
    words = [TOO_MANY_PODS] if PODS in names else []
    return *words, *(INSUFFICIENT + name for name in names if name != PODS)


def _about_cordon(_node: NodeFacts, _constraints: Constraints) -> str:
    return "the node is cordoned"


def _about_name(_node: NodeFacts, constraints: Constraints) -> str:
    return f"the pod names the node {constraints.node_name}"


def _about_taints(node: NodeFacts, constraints: Constraints) -> str:
    """Return the taints that are not tolerated, and whether the node is ready."""
    untolerated = show_taints(node, constraints)
    said = [] if node.is_ready else ["the node is not ready"]
    if untolerated:
        said.append(f"not tolerated: {untolerated}")
    return "; ".join(said)


def show_taints(node: NodeFacts, constraints: Constraints) -> str:
    """Return the taints of a node that a pod does not tolerate."""
    return _listed(list_taints(node, constraints), ", ")


def list_taints(node: NodeFacts, constraints: Constraints) -> list[str]:
    """Return the taints of a node that a pod does not tolerate, as kubectl has them.

    Such as ``key=value:NoSchedule``, or ``key:NoSchedule`` for one without a value.
    """
    return [
        f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"
        for taint in node.taints
        if not tolerates_all(constraints.tolerations, (taint,))
    ]


def _about_affinity(node: NodeFacts, constraints: Constraints) -> str:
    """Return the entries of the selector that do not match, and that no term does."""
    missed = show_misses(node, constraints)
    if missed and not unmatched_by_all([node], constraints.affinity_terms).any():
        return missed
    said = "no term of the required node affinity holds"
    return f"{missed}; {said}" if missed else said


def show_misses(node: NodeFacts, constraints: Constraints) -> str:
    """Return the entries of the selector that do not match; empty for none."""
    missed = [
        f"{key}={value} wanted, "
        + (f"has {node.labels[key]}" if key in node.labels else "has no such label")
        for key, value in constraints.node_selector.items()
        if node.labels.get(key) != value
    ]
    return _listed(missed, "; ")


def show_terms(constraints: Constraints) -> str:
    """Return the first requirements of the required node affinity, in brackets."""
    terms = constraints.affinity_terms or ()
    found = [
        f"{item.key} {item.operator} {','.join((item.values or ())[:MAX_SHOWN])}"
        for term in terms[:1]
        for item in (*(term.expressions or ()), *(term.fields or ()))[:MAX_SHOWN]
    ]
    return f" ({' and '.join(found).rstrip()})" if found else ""


def _listed(items: Sequence[str], joint: str) -> str:
    """Return the items, the first of them where there are too many to read."""
    more = len(items) - MAX_LISTED
    shown = [*items[:MAX_LISTED], *([f"and {more} more"] if more > 0 else [])]
    return joint.join(shown)


# reason -> what is behind it
DETAILS: Final[Mapping[str, Callable[[NodeFacts, Constraints], str]]] = {
    UNSCHEDULABLE: _about_cordon,
    WRONG_NODE_NAME: _about_name,
    UNTOLERATED: _about_taints,
    WRONG_AFFINITY: _about_affinity,
}
