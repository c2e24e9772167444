"""kube-scheduler's own checks of each node, with the numbers behind its words."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from extender.verbs.fresh_snapshot import NO_DEADLINE, Deadline
from scoring.candidates import Candidates, LabelKeys, PodRequest, take_columns
from scoring.eligibility import (
    UNSCHEDULABLE,
    UNTOLERATED,
    WRONG_AFFINITY,
    WRONG_NODE_NAME,
    first_failure,
    tolerates_all,
)
from scoring.feasibility import short_of
from scoring.protocols import Constraints, NodeFacts
from scoring.quantity import show_free
from scoring.resources import PODS, Request
from scoring.snapshot import BoolArray, IndexArray, Snapshot

# kube-scheduler's words: pkg/scheduler/framework/plugins/noderesources/fit.go of
# Kubernetes 1.37, which looks at the number of pods first.
TOO_MANY_PODS: Final = "Too many pods"

INSUFFICIENT: Final = "Insufficient "

# Of taints or labels in one detail: a pod has room for thousands of selectors.
MAX_LISTED: Final = 10


@dataclass(frozen=True, slots=True, eq=False)
class SchedulerChecks:
    """kube-scheduler's own verdict on C nodes, as far as we model it.

    Attributes
    ----------
    reasons : tuple of (str or None), length C
        In its words; None for a node that passes.
    candidates : Candidates
        Their tables have a row for each resource of `pod_request`.
    pod_request : PodRequest
        With every resource that kube-scheduler counts.
    """

    reasons: tuple[str | None, ...]
    facts: tuple[NodeFacts, ...]
    constraints: Constraints
    candidates: Candidates
    pod_request: PodRequest

    @property
    def passed(self) -> BoolArray:
        """True for the nodes that pass, bool array of shape (C,)."""
        return np.array([reason is None for reason in self.reasons], dtype=np.bool_)

    def detail(self, index: int) -> str:
        """Return what is behind the reason of the node at `index`; empty for none."""
        reason = self.reasons[index]
        if reason is None:
            return ""
        explain = DETAILS.get(reason)
        if explain is not None:
            return explain(self.facts[index], self.constraints)
        candidates = self.candidates
        rows = np.flatnonzero(short_of(candidates, self.pod_request)[:, index]).tolist()
        return "; ".join(
            show_free(
                *self.pod_request.request[row],
                int(candidates.allocatable[row, index]),
                int(candidates.requested[row, index]),
            )
            for row in rows
        )


def check_nodes(  # noqa: PLR0913 - the last one is named
    snapshot: Snapshot,
    columns: IndexArray,
    pod_request: PodRequest,
    constraints: Constraints,
    keys: LabelKeys,
    *,
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
    deadline : Deadline
        Checked before each node: a pod's affinity may be long.

    Notes
    -----
    kube-scheduler looks at amounts last, and then names every resource that is short.
    """
    candidates = take_columns(snapshot, columns, pod_request, keys)
    is_short = short_of(candidates, pod_request)
    facts = tuple(snapshot.facts[column] for column in columns.tolist())
    reasons = []
    for index, fact in enumerate(facts):
        deadline.check()
        reasons.append(
            first_failure(fact, constraints)
            or _shortage(pod_request.request, is_short[:, index].tolist())
        )
    return SchedulerChecks(tuple(reasons), facts, constraints, candidates, pod_request)


def _shortage(request: Request, is_short: list[bool]) -> str | None:
    """Return kube-scheduler's words for what there is too little of."""
    names = [name for (name, _), short in zip(request, is_short, strict=True) if short]
    words = [TOO_MANY_PODS] if PODS in names else []
    words += [INSUFFICIENT + name for name in names if name != PODS]
    return ", ".join(words) or None


def _about_cordon(_node: NodeFacts, _constraints: Constraints) -> str:
    return "the node is cordoned"


def _about_name(_node: NodeFacts, constraints: Constraints) -> str:
    return f"the pod names the node {constraints.node_name}"


def _about_taints(node: NodeFacts, constraints: Constraints) -> str:
    """Return the taints that are not tolerated, and whether the node is ready."""
    untolerated = [
        f"{taint.key}={taint.value or ''}:{taint.effect}"
        for taint in node.taints
        if not tolerates_all(constraints.tolerations, (taint,))
    ]
    said = [] if node.is_ready else ["the node is not ready"]
    if untolerated:
        said.append("not tolerated: " + _listed(untolerated, ", "))
    return "; ".join(said)


def _about_affinity(node: NodeFacts, constraints: Constraints) -> str:
    """Return the entries of the selector that do not match, else the terms."""
    missed = [
        f"{key}={value} wanted, "
        + (f"has {node.labels[key]}" if key in node.labels else "has no such label")
        for key, value in constraints.node_selector.items()
        if node.labels.get(key) != value
    ]
    return _listed(missed, "; ") or "no term of the required node affinity holds"


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
