"""`explain`: one pod on one snapshot, node by node, with the numbers.

Verdicts, totals and priorities come from the functions of the verbs themselves.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from extender.explain.pod import Subject, with_limit_ranges
from extender.explain.scheduler_checks import SchedulerChecks, check_nodes
from extender.verbs.call import VerbCall
from extender.verbs.fresh_snapshot import NO_DEADLINE, Deadline
from extender.verbs.options import VerbOptions
from extender.verbs.verbs import (
    NOTHING_ASSUMED,
    Assumed,
    filter_nodes,
    prioritize_nodes,
    shortlisted,
    total_nodes,
)
from extender.wire.answers import shown_text
from scoring.feasibility import REASONS, Feasibility, Verdict
from scoring.normalization import Totals
from scoring.snapshot import BoolArray, IndexArray, Int64Array, Snapshot, find_columns

NOT_SENT = -1

# A wish of running pods, as those of the pod itself that are not modelled.
UNKNOWN_REPELLERS = "pod anti-affinity of running pods by labels of namespaces"


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """Answers of the verbs about one pod, over C nodes of one snapshot.

    Attributes
    ----------
    verb_call : VerbCall
        About all C nodes.
    checks : SchedulerChecks or None
        None where it is given which nodes kube-scheduler offers.
    offered : bool array, shape (C,)
        The nodes that kube-scheduler would offer.
    result : Feasibility
        Our verdict on each node, offered or not.
    shown : str
        The one text that all offered nodes carry where every one is refused.
    answered : bool array, shape (C,)
        The nodes that the filter's answer names.
    priorities : int64 array, shape (C,)
        What prioritize sends of them; `NOT_SENT` for the others.
    totals : array, shape (C,), or None
        Before normalisation; None where the pod asks for nothing that is managed.
    is_shortlisted : bool
        Whether the filter's answer leaves feasible nodes out.
    """

    subject: Subject
    options: VerbOptions
    assumed: Assumed
    verb_call: VerbCall
    checks: SchedulerChecks | None
    offered: BoolArray
    result: Feasibility
    shown: str
    answered: BoolArray
    priorities: Int64Array
    totals: Totals | None
    tiers: Int64Array | None
    is_shortlisted: bool

    def reasons(self) -> dict[str, int]:
        """Return the reasons as they are sent, and how many nodes carry each."""
        if self.answered.any() and self.is_shortlisted:
            return {}  # a shortlist leaves the others out of the answer
        verdicts = self.result.verdicts[self.offered]
        refused = verdicts[verdicts != Verdict.FEASIBLE]
        if self.shown:
            return {self.shown: len(refused)}
        return dict(Counter(REASONS[Verdict(v)].text for v in refused.tolist()))

    def order(self) -> IndexArray:
        """Return the indexes of all nodes, the best first, refused ones by name."""
        feasible = self.result.feasible
        groups = np.where(
            self.answered,
            0,
            np.where(feasible & self.offered, 1, np.where(feasible, 2, 3)),
        )
        order = np.argsort(np.argsort(np.array(self.verb_call.names), kind="stable"))
        totals = np.zeros(len(order)) if self.totals is None else self.totals
        tiers = np.zeros_like(order) if self.tiers is None else self.tiers
        return np.lexsort(
            (
                order,
                np.where(feasible, -totals, 0.0),
                np.where(feasible, tiers, 0),
                -self.priorities,
                groups,
            )
        )


def explain(  # noqa: PLR0913 - the last one is named
    subject: Subject,
    snapshot: Snapshot,
    options: VerbOptions,
    assumed: Assumed = NOTHING_ASSUMED,
    names: Sequence[str] | None = None,
    *,
    deadline: Deadline = NO_DEADLINE,
) -> Explanation:
    """Compute what the verbs would answer about a pod.

    Parameters
    ----------
    names : sequence of str, optional
        The nodes that kube-scheduler offers. Without them it is every node that passes
        the checks which we know of kube-scheduler.
    deadline : Deadline
        Checked before each node.
    """
    subject = with_limit_ranges(subject, snapshot)
    verb_call, checks, offered = _look_up(subject, snapshot, options, names, deadline)
    if checks is not None and checks.around is not None and not checks.around.is_known:
        unknown = (*subject.not_modelled, UNKNOWN_REPELLERS)
        subject = replace(subject, not_modelled=unknown)
    deadline.check()
    asked = np.flatnonzero(offered)
    part = _part(verb_call, asked)
    part_result = filter_nodes(part, options)
    shortlist = shortlisted(part, part_result, options, assumed)
    deadline.check()
    indexes = np.flatnonzero(part_result.feasible) if shortlist is None else shortlist
    answered = np.zeros(len(offered), dtype=np.bool_)
    answered[asked[indexes]] = True
    priorities = np.full(len(offered), NOT_SENT, dtype=np.int64)
    priorities[answered] = prioritize_nodes(part, options, indexes, assumed)
    totals, tiers = None, None
    deadline.check()
    if options.scores(verb_call.pod_request):
        totals, _, *rest = total_nodes(verb_call, options, assumed)
        tiers = rest[0] if rest else None
    return Explanation(
        subject=subject,
        options=options,
        assumed=assumed,
        verb_call=verb_call,
        checks=checks,
        offered=offered,
        result=filter_nodes(verb_call, options),
        shown=shown_text(part_result.verdicts),
        answered=answered,
        priorities=priorities,
        totals=totals,
        tiers=tiers,
        is_shortlisted=shortlist is not None,
    )


def _look_up(
    subject: Subject,
    snapshot: Snapshot,
    options: VerbOptions,
    names: Sequence[str] | None,
    deadline: Deadline,
) -> tuple[VerbCall, SchedulerChecks | None, BoolArray]:
    """Return the call about all nodes, and True for those that are offered."""
    pod_request = subject.pod_request
    if names is not None:
        columns = find_columns(snapshot, names)
        every = np.ones(len(names), dtype=np.bool_)
        return VerbCall(pod_request, names, columns, snapshot), None, every
    checks = check_as_scheduler(subject, snapshot, options, deadline)
    return (
        VerbCall(
            pod_request, snapshot.nodes.names, checks.candidates.columns, snapshot
        ),
        checks,
        checks.passed,
    )


def check_as_scheduler(
    subject: Subject,
    snapshot: Snapshot,
    options: VerbOptions,
    deadline: Deadline = NO_DEADLINE,
) -> SchedulerChecks:
    """Apply kube-scheduler's own checks to all nodes, as far as they are modelled."""
    columns = np.arange(len(snapshot.nodes.names), dtype=np.intp)
    counted = tuple(
        (name, amount)
        for name, amount in subject.request
        if not (options.is_counting_alone and options.builder.is_managed(name))
    )
    return check_nodes(
        snapshot.with_nominated(subject.priority, subject.pod_request.uid),
        columns,
        replace(subject.pod_request, request=counted),
        subject.constraints,
        options.label_keys,
        newcomer=subject.newcomer,
        deadline=deadline,
    )


def _part(verb_call: VerbCall, indexes: IndexArray) -> VerbCall:
    """Return the call about some of its nodes."""
    names = [verb_call.names[index] for index in indexes.tolist()]
    return replace(verb_call, names=names, columns=verb_call.columns[indexes])
