"""Checks of a node that kube-scheduler makes itself before a pod may go there.

Modelled: cordon, readiness, ``spec.nodeName``, taints, ``nodeSelector`` and required
node affinity; `scoring.neighbours` has ports and what running pods repel. Not modelled:
spread, other pod affinity, volumes, and affinity that a scheduler profile adds.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from scoring.protocols import (
    Constraints,
    NodeFacts,
    SelectorRequirement,
    SelectorTerm,
    Taint,
    Toleration,
)
from scoring.quantity import MAX_QUANTITY
from scoring.snapshot import BoolArray, Snapshot

# kube-scheduler's words: pkg/scheduler/framework/plugins/{nodeunschedulable,nodename,
# tainttoleration,nodeaffinity} of Kubernetes 1.37.
UNSCHEDULABLE: Final = "node(s) were unschedulable"

WRONG_NODE_NAME: Final = "node(s) didn't match the requested node name"

UNTOLERATED: Final = "node(s) had untolerated taint(s)"

WRONG_AFFINITY: Final = "node(s) didn't match Pod's node affinity/selector"

# kube-scheduler stops looking for nodes once it has so many (minFeasibleNodesToFind in
# pkg/scheduler/schedule_one.go of Kubernetes 1.37): a call that names fewer names all
# that pass its own checks.
MIN_FEASIBLE_NODES: Final = 100

_REPELLING_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})

_NODE_NAME_FIELD: Final = "metadata.name"

# Cost of a term, or of a requirement in it, beside its values: in values compared.
REQUIREMENT_COST: Final = 100


@dataclass(frozen=True, slots=True)
class _CordonTaint:
    """The taint as which a cordon counts, whether or not the node carries it."""

    key: str = "node.kubernetes.io/unschedulable"
    value: str | None = None
    effect: str = "NoSchedule"


_CORDON: Final = _CordonTaint()


def first_failure(node: NodeFacts, constraints: Constraints) -> str | None:
    """Return the first check that `node` fails, in kube-scheduler's words and order.

    Returns
    -------
    str or None
        A constant text; None for an eligible node.

    Notes
    -----
    kube-scheduler sees a node that is not ready by the taint that the node controller
    puts on it. Here readiness itself counts, whatever the pod tolerates: a pod that
    tolerates everything would start there no sooner.
    """
    if node.is_cordoned and not tolerates_cordon(constraints.tolerations):
        return UNSCHEDULABLE
    if constraints.node_name and constraints.node_name != node.name:
        return WRONG_NODE_NAME
    if not node.is_ready or not tolerates_all(constraints.tolerations, node.taints):
        return UNTOLERATED
    if not _has_labels(node.labels, constraints.node_selector):
        return WRONG_AFFINITY
    terms = constraints.affinity_terms
    if terms is not None and not _matches_any(terms, node):
        return WRONG_AFFINITY
    return None


def failed_checks(
    facts: Sequence[NodeFacts],
    constraints: Constraints,
    check: Callable[[], None] = lambda: None,
) -> dict[str, BoolArray]:
    """Return where each check fails, in kube-scheduler's words and order.

    Parameters
    ----------
    facts : sequence of NodeFacts, length C
    check : callable
        Called now and then, to end the work by an error: affinity may be long.

    Returns
    -------
    dict
        text of the check -> bool array, shape (C,). The first that is True of a node
        is what `first_failure` returns of it.
    """
    count, name = len(facts), constraints.node_name
    admits_cordoned = tolerates_cordon(constraints.tolerations)
    cordoned = [node.is_cordoned and not admits_cordoned for node in facts]
    check()
    verdicts: dict[tuple[Taint, ...], bool] = {(): True}
    tainted = [
        not node.is_ready
        or not _remembered(verdicts, node.taints, constraints.tolerations)
        for node in facts
    ]
    check()
    elsewhere = [node.name != name for node in facts] if name else [False] * count
    unmatched = np.zeros(count, dtype=np.bool_)
    for key, value in constraints.node_selector.items():
        check()
        missed = [node.labels.get(key) != value for node in facts]
        unmatched |= np.array(missed, dtype=np.bool_)
    unmatched |= unmatched_by_all(facts, constraints.affinity_terms, check)
    return {
        UNSCHEDULABLE: np.array(cordoned, dtype=np.bool_),
        WRONG_NODE_NAME: np.array(elsewhere, dtype=np.bool_),
        UNTOLERATED: np.array(tainted, dtype=np.bool_),
        WRONG_AFFINITY: unmatched,
    }


def unmatched_by_all(
    facts: Sequence[NodeFacts],
    terms: Sequence[SelectorTerm] | None,
    check: Callable[[], None] = lambda: None,
) -> BoolArray:
    """Return where no term of the required affinity holds, shape (C,).

    Computed once for nodes that are alike to them; nowhere without an affinity.
    """
    if terms is None:
        return np.zeros(len(facts), dtype=np.bool_)
    keys = {item.key for term in terms for item in term.expressions or ()}
    reads_names = any(term.fields for term in terms)
    ordered = sorted(keys)
    # the labels that matter, and the name where it does -> whether no term holds
    known: dict[tuple[str | None, ...], bool] = {}
    unmatched = []
    for node in facts:
        seen = (*map(node.labels.get, ordered), node.name if reads_names else None)
        failed = known.get(seen)
        if failed is None:
            check()
            failed = known[seen] = not _matches_any(terms, node)
        unmatched.append(failed)
    return np.array(unmatched, dtype=np.bool_)


def is_eligible(node: NodeFacts, constraints: Constraints) -> bool:
    """Whether kube-scheduler would let the pod onto `node`, amounts apart."""
    return first_failure(node, constraints) is None


def eligible_columns(
    snapshot: Snapshot, constraints: Constraints, among: BoolArray
) -> BoolArray:
    """Return which of the nodes `among` are eligible.

    Parameters
    ----------
    snapshot : Snapshot
        With the facts of its N nodes.
    among : bool array, shape (N,)
        The nodes to look at; the time taken grows with their number alone.

    Returns
    -------
    bool array, shape (N,)
        True where `among` is True and `is_eligible` holds.
    """
    facts = snapshot.facts
    admits_cordoned = tolerates_cordon(constraints.tolerations)
    mask = among if admits_cordoned else among & snapshot.schedulable
    columns: list[int] = np.flatnonzero(mask).tolist()
    if constraints.node_name:
        only = snapshot.nodes.column_of.get(constraints.node_name, -1)
        columns = [only] if only >= 0 and mask[only] else []
    if admits_cordoned:
        columns = [column for column in columns if facts[column].is_ready]
    # One check after the other over all nodes, which costs a fifth of one node after
    # the other: taints come in few kinds, and most pods name few labels.
    verdicts: dict[tuple[Taint, ...], bool] = {(): True}
    columns = [
        column
        for column in columns
        if _remembered(verdicts, facts[column].taints, constraints.tolerations)
    ]
    for key, value in constraints.node_selector.items():
        columns = [c for c in columns if facts[c].labels.get(key) == value]
    terms = constraints.affinity_terms
    if terms is not None:
        columns = [c for c in columns if _matches_any(terms, facts[c])]
    eligible = np.zeros(len(among), dtype=np.bool_)
    eligible[columns] = True
    return eligible


def node_cost(constraints: Constraints) -> int:
    """Return about how long one node takes `eligible_columns`, in values compared.

    A value takes 10 to 30 ns.
    """
    cost = len(constraints.tolerations)
    for term in constraints.affinity_terms or ():
        requirements = (*(term.expressions or ()), *(term.fields or ()))
        cost += REQUIREMENT_COST * (1 + len(requirements))
        cost += sum(len(item.values or ()) for item in requirements)
    return cost


def _remembered(
    verdicts: dict[tuple[Taint, ...], bool],
    taints: tuple[Taint, ...],
    tolerations: Sequence[Toleration],
) -> bool:
    """Return `tolerates_all`, computed once for each kind of `taints`."""
    verdict = verdicts.get(taints)
    if verdict is None:
        verdict = verdicts[taints] = tolerates_all(tolerations, taints)
    return verdict


def tolerates_cordon(tolerations: Iterable[Toleration]) -> bool:
    """Whether a pod with these `tolerations` may go to a cordoned node."""
    return any(_tolerates(toleration, _CORDON) for toleration in tolerations)


def tolerates_all(tolerations: Sequence[Toleration], taints: Iterable[Taint]) -> bool:
    """Whether each taint that repels pods is tolerated."""
    return all(
        any(_tolerates(toleration, taint) for toleration in tolerations)
        for taint in taints
        if taint.effect in _REPELLING_EFFECTS
    )


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether one toleration matches one taint.

    NOTE: the operators Lt and Gt are off in Kubernetes (feature gate
    TaintTolerationComparisonOperators, alpha), and then match nothing there either.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    is_equal = toleration.operator in (None, "", "Equal")
    return is_equal and (toleration.value or "") == (taint.value or "")


def _has_labels(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in wanted.items())


def _matches_any(terms: Iterable[SelectorTerm], node: NodeFacts) -> bool:
    """Whether one term holds; without any term, none does."""
    return any(_matches(term, node) for term in terms)


def _matches(term: SelectorTerm, node: NodeFacts) -> bool:
    """Whether all requirements hold; a term without any matches nothing."""
    expressions, fields = term.expressions or (), term.fields or ()
    return (
        bool(expressions or fields)
        and all(holds(item, node.labels.get(item.key)) for item in expressions)
        and all(_holds_of_field(item, node.name) for item in fields)
    )


def holds(requirement: SelectorRequirement, label: str | None) -> bool:
    """Whether a requirement on a label holds; `label` is None where it is absent.

    A requirement that Kubernetes would not accept fails, and its term with it.
    """
    values = requirement.values or ()
    match requirement.operator:
        case "In":
            return label is not None and label in values
        case "NotIn":
            return bool(values) and label not in values
        case "Exists":
            return not values and label is not None
        case "DoesNotExist":
            return not values and label is None
        case "Gt" | "Lt" if len(values) == 1:
            return _compares(requirement.operator, label, values[0])
    return False


def _compares(operator: str, label: str | None, bound: str) -> bool:
    """Whether the label is greater or less than `bound`, both whole numbers."""
    have, limit = _parse_whole(label), _parse_whole(bound)
    if have is None or limit is None:
        return False
    return have > limit if operator == "Gt" else have < limit


def _parse_whole(text: str | None) -> int | None:
    """Return a 64-bit whole number, None for anything else.

    A sign cannot stand first in a label value, so there are no negative ones.
    """
    if text is None or not (text.isascii() and text.isdigit()):
        return None
    digits = text.lstrip("0") or "0"
    if len(digits) > len(str(MAX_QUANTITY)):
        return None
    value = int(digits)
    return value if value <= MAX_QUANTITY else None


def _holds_of_field(requirement: SelectorRequirement, node_name: str) -> bool:
    """Whether a requirement on the node's name, the only field there is, holds."""
    values = requirement.values or ()
    if requirement.key != _NODE_NAME_FIELD or len(values) != 1:
        return False
    match requirement.operator:
        case "In":
            return node_name == values[0]
        case "NotIn":
            return node_name != values[0]
    return False
