"""Explanations as rows: the numbers of one page of nodes, read from their arrays."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from extender.explain.details import Judged, detail_of
from extender.explain.explain import NOT_SENT, Explanation
from extender.explain.model import (
    Amounts,
    ExplanationPage,
    GpuRequirementsRow,
    NodeFacts,
    PodFacts,
    SchedulerFacts,
    SettingsFacts,
    SnapshotFacts,
    VerdictFacts,
    WireFacts,
)
from extender.tracking.last_answers import LastAnswer
from extender.verbs.fresh_snapshot import NO_DEADLINE, Deadline
from extender.verbs.verbs import with_assumed
from scoring.candidates import Candidates, take_columns
from scoring.eligibility import MIN_FEASIBLE_NODES
from scoring.feasibility import REASONS, Verdict
from scoring.gpu.requirements import NO_GPU_REQUIREMENTS, GpuRequirements
from scoring.snapshot import Float64Array, IndexArray

# Of the terms, which are hundredths of a node's score.
DECIMALS: Final = 4


@dataclass(frozen=True, slots=True)
class Page:
    """Which nodes of an explanation are shown, the best first.

    Attributes
    ----------
    node : str
        Shows this node alone; empty for all.
    offset : int
    limit : int or None
        None for all.
    """

    node: str = ""
    offset: int = 0
    limit: int | None = None


EVERYTHING: Final = Page()


def build_page(
    explanation: Explanation,
    page: Page = EVERYTHING,
    last_answers: Mapping[str, LastAnswer] | None = None,
    age_seconds: float | None = None,
    *,
    deadline: Deadline = NO_DEADLINE,
) -> ExplanationPage:
    """Return one page of an explanation.

    Parameters
    ----------
    explanation : Explanation
    page : Page
    last_answers : mapping, optional
        What was really sent about the pod, by verb.
    age_seconds : float, optional
        Since the last contact with the cluster.
    deadline : Deadline
        Checked before each row.
    """
    subject, snapshot = explanation.subject, explanation.verb_call.snapshot
    chosen = explanation.order()
    if page.node:
        names = explanation.verb_call.names
        chosen = np.array(
            [index for index in chosen.tolist() if names[index] == page.node],
            dtype=np.intp,
        )
    end = len(chosen) if page.limit is None else page.offset + page.limit
    return ExplanationPage(
        pod=_pod_facts(explanation),
        snapshot=SnapshotFacts(
            snapshot.generation, len(snapshot.nodes.names), age_seconds
        ),
        settings=_settings_facts(explanation),
        wire=_wire_facts(explanation),
        last_answers=last_answers or {},
        not_modelled=subject.not_modelled,
        notes=(*subject.notes, *_notes(explanation)),
        nodes=_describe(explanation, chosen[page.offset : end], deadline),
        next_offset=end if end < len(chosen) else None,
    )


def _pod_facts(explanation: Explanation) -> PodFacts:
    subject = explanation.subject
    return PodFacts(
        namespace=subject.namespace,
        name=subject.name,
        uid=subject.pod_request.uid,
        origin=subject.origin,
        node_name=subject.node_name,
        resource=subject.pod_request.primary,
        request=dict(subject.request),
        accelerator=subject.pod_request.accelerator,
        nominated_node=subject.pod_request.nominated_node,
        demand=_gpu_requirements_row(subject.pod_request.gpu_requirements),
    )


def _gpu_requirements_row(
    gpu_requirements: GpuRequirements,
) -> GpuRequirementsRow | None:
    """Return what is wanted of the GPUs; None for nothing."""
    if gpu_requirements == NO_GPU_REQUIREMENTS:
        return None
    return GpuRequirementsRow(
        types=gpu_requirements.types,
        excluded=gpu_requirements.excluded,
        preferred=gpu_requirements.preferred,
        min_memory=gpu_requirements.min_memory,
        sharing_allowed=gpu_requirements.is_sharing_allowed,
        exclusive=gpu_requirements.is_exclusive,
        linked=gpu_requirements.linked,
    )


def _settings_facts(explanation: Explanation) -> SettingsFacts:
    options = explanation.options
    return SettingsFacts(
        counts="enforce" if options.is_enforcing else "trust",
        profile=options.profile,
        strategy=options.score_options.strategy,
        weights=dict(options.weights),
        normalize=options.scale.method,
        max_score=options.scale.max_score,
        shortlist=options.shortlist,
    )


def _wire_facts(explanation: Explanation) -> WireFacts:
    offered = int(np.count_nonzero(explanation.offered))
    return WireFacts(
        asked=bool(explanation.subject.pod_request.request) and offered > 0,
        offered=offered,
        passed=int(np.count_nonzero(explanation.answered)),
        shown=explanation.shown,
        reasons=explanation.reasons(),
    )


def _notes(explanation: Explanation) -> list[str]:
    """Return what a reader should know of the answer as a whole."""
    notes = []
    offered = int(np.count_nonzero(explanation.offered))
    if not explanation.subject.pod_request.request:
        notes.append(
            "The pod asks for nothing that is managed: kube-scheduler does not ask"
            " gpu-extender about it."
        )
    elif not offered:
        notes.append(
            "No node passes kube-scheduler's own checks, so it does not ask"
            " gpu-extender."
        )
    elif offered >= MIN_FEASIBLE_NODES:
        notes.append(
            f"kube-scheduler offers a sample of these {offered} nodes, unless"
            " percentageOfNodesToScore is 100."
        )
    if explanation.is_shortlisted:
        notes.append(
            f"The answer names the best {explanation.options.shortlist} feasible nodes"
            " only: shortlist."
        )
    return notes


def _describe(
    explanation: Explanation, indexes: IndexArray, deadline: Deadline
) -> tuple[NodeFacts, ...]:
    """Return the rows of the nodes at `indexes`, in that order."""
    verb_call, options = explanation.verb_call, explanation.options
    pod_request, snapshot, keys = (
        verb_call.pod_request,
        verb_call.snapshot,
        options.label_keys,
    )
    candidates = take_columns(snapshot, verb_call.columns[indexes], pod_request, keys)
    crowded = candidates
    if explanation.assumed:
        crowded = with_assumed(candidates, pod_request, snapshot, explanation.assumed)
    rows = _Rows(
        explanation,
        Judged(
            snapshot,
            candidates,
            pod_request,
            options.builder.scope,
            options.builder.signals,
            keys,
        ),
        crowded,
        options.score_terms(crowded, pod_request)
        if pod_request.request and len(indexes)
        else {},
    )
    described = []
    for row, index in enumerate(indexes.tolist()):
        deadline.check()
        described.append(rows.describe(row, index))
    return tuple(described)


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """What the rows of one page are read from.

    Attributes
    ----------
    explanation : Explanation
    judged : Judged
        The nodes of the page, as the verdicts see them.
    crowded : Candidates
        The same with what is on its way to them, as the scores see them.
    terms : mapping
        score term -> its values, one for each node of the page
    """

    explanation: Explanation
    judged: Judged
    crowded: Candidates
    terms: Mapping[str, Float64Array]

    def describe(self, row: int, index: int) -> NodeFacts:
        """Return the facts of the node that is `row` on the page, `index` in all."""
        whole = self.explanation
        verdict = Verdict(int(whole.result.verdicts[index]))
        reason = REASONS.get(verdict)
        priority = int(whole.priorities[index])
        column = int(whole.verb_call.columns[index])
        return NodeFacts(
            name=whole.verb_call.names[index],
            type=self.judged.model(row),
            offered=bool(whole.offered[index]),
            scheduler=_scheduler_facts(whole, index),
            verdict=VerdictFacts(
                feasible=reason is None,
                reason=None if reason is None else reason.text,
                resolvable=reason is not None and reason.is_resolvable,
                detail=detail_of(self.judged, row, verdict),
            ),
            amounts=_amounts(self.judged, self.crowded, row),
            terms={
                name: round(float(values[row]), DECIMALS)
                for name, values in self.terms.items()
            },
            total=None if whole.totals is None else whole.totals[index].item(),
            tier=None if whole.tiers is None else int(whole.tiers[index]),
            priority=None if priority == NOT_SENT else priority,
            shortlisted=bool(whole.answered[index]) if whole.is_shortlisted else None,
            failing=column >= 0 and bool(whole.verb_call.snapshot.failing[column]),
        )


def _scheduler_facts(explanation: Explanation, index: int) -> SchedulerFacts:
    checks = explanation.checks
    if checks is None:
        return SchedulerFacts(passes=True)
    reason = checks.reasons[index]
    return SchedulerFacts(reason is None, reason, checks.detail(index))


def _amounts(judged: Judged, crowded: Candidates, row: int) -> dict[str, Amounts]:
    """Return the asked resources of one node."""
    candidates = judged.candidates
    found = {}
    for row_of_resource, (resource, asked) in enumerate(judged.pod_request.request):
        allocatable = int(candidates.allocatable[row_of_resource, row])
        requested = int(candidates.requested[row_of_resource, row])
        found[resource] = Amounts(
            asked=asked,
            allocatable=allocatable,
            requested=requested,
            free=max(allocatable - requested, 0),
            under_way=int(crowded.requested[row_of_resource, row]) - requested,
        )
    return found
