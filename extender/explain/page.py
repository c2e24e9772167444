"""Explanations as rows: one page of nodes, read from arrays, for JSON or a table."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Self

import msgspec
import numpy as np

from extender.explain.details import DETAILS, Judged, show_prospect
from extender.explain.explain import NOT_SENT, Explanation
from extender.explain.pod import AdmissionChange, Subject
from extender.explain.remedies import Remedy
from extender.explain.summary import Group, NearMiss, Reason, Summary, summarize
from extender.tracking.last_answers import LastAnswer
from extender.verbs.fresh_snapshot import NO_DEADLINE, Deadline
from scoring.eligibility import MIN_FEASIBLE_NODES
from scoring.feasibility import REASONS, Verdict
from scoring.gpu.requirements import NO_GPU_REQUIREMENTS, GpuRequirements
from scoring.snapshot import IndexArray

# Of the terms, which are hundredths of a node's score.
DECIMALS: Final = 4


class _Row(msgspec.Struct, frozen=True, rename="camel"):
    """Keys as Kubernetes writes its own."""


class GpuRequirementsRow(_Row, frozen=True):
    """The pod's requirements on the GPUs themselves; memory in bytes."""

    types: tuple[str, ...]
    excluded: tuple[str, ...]
    preferred: tuple[str, ...]
    min_memory: int
    sharing_allowed: bool
    exclusive: bool
    linked: str

    @classmethod
    def of(cls, wanted: GpuRequirements) -> Self | None:
        """Read the row from `wanted`; None for nothing."""
        if wanted == NO_GPU_REQUIREMENTS:
            return None
        return cls(
            types=wanted.types,
            excluded=wanted.excluded,
            preferred=wanted.preferred,
            min_memory=wanted.min_memory,
            sharing_allowed=wanted.is_sharing_allowed,
            exclusive=wanted.is_exclusive,
            linked=wanted.linked,
        )


class PodRow(_Row, frozen=True):
    """The pod as it was read; amounts in base units."""

    namespace: str
    name: str
    uid: str
    origin: str
    node_name: str
    resource: str
    request: dict[str, int]
    accelerator: str | None
    nominated_node: str
    demand: GpuRequirementsRow | None

    @classmethod
    def of(cls, explanation: Explanation) -> Self:
        """Read the row of the pod that is explained."""
        subject, pod_request = explanation.subject, explanation.subject.pod_request
        return cls(
            namespace=subject.namespace,
            name=subject.name,
            uid=pod_request.uid,
            origin=subject.origin,
            node_name=subject.node_name,
            resource=pod_request.primary,
            request=dict(subject.request),
            accelerator=pod_request.accelerator,
            nominated_node=pod_request.nominated_node,
            demand=GpuRequirementsRow.of(pod_request.gpu_requirements),
        )


class SnapshotRow(_Row, frozen=True):
    """The state of the cluster that all is computed from.

    `age_seconds` is the time since the last contact with whatever it comes from; None
    where that is not known.
    """

    generation: int
    node_count: int
    age_seconds: float | None


class SettingsRow(_Row, frozen=True):
    """The settings on which the rest depends."""

    counts: str
    profile: str
    strategy: str
    weights: Mapping[str, int]
    normalize: str
    max_score: int
    shortlist: int

    @classmethod
    def of(cls, explanation: Explanation) -> Self:
        """Read the row of the settings that the verbs go by."""
        options = explanation.options
        return cls(
            counts="enforce" if options.is_enforcing else "trust",
            profile=options.profile,
            strategy=options.score_options.strategy,
            weights=dict(options.weights),
            normalize=options.scale.method,
            max_score=options.scale.max_score,
            shortlist=options.shortlist,
        )


class WireRow(_Row, frozen=True):
    """The answers that would be sent to kube-scheduler now.

    Attributes
    ----------
    asked : bool
        Whether kube-scheduler would ask at all.
    offered : int
        Nodes that pass kube-scheduler's own checks.
    passed : int
        How many of them the filter's answer names.
    shown : str
        The one text that all carry where every one is refused, else empty.
    reasons : mapping
        reason as it is sent -> how many nodes carry it
    """

    asked: bool
    offered: int
    passed: int
    shown: str
    reasons: dict[str, int]

    @classmethod
    def of(cls, explanation: Explanation) -> Self:
        """Read the row of the answers to both verbs."""
        offered = int(np.count_nonzero(explanation.offered))
        return cls(
            asked=bool(explanation.subject.pod_request.request)
            and offered > 0
            and not explanation.subject.is_placed,
            offered=offered,
            passed=int(np.count_nonzero(explanation.answered)),
            shown=explanation.shown,
            reasons=explanation.reasons(),
        )


class SchedulerRow(_Row, frozen=True):
    """kube-scheduler's own verdict on a node, in its words, and the numbers behind."""

    passes: bool
    reason: str | None = None
    detail: str = ""

    @classmethod
    def of(cls, explanation: Explanation, index: int) -> Self:
        """Read the row of the node at `index`."""
        checks = explanation.checks
        if checks is None:
            return cls(passes=True)
        reason = checks.reason(index)
        return cls(reason is None, reason, checks.detail(index))


class VerdictRow(_Row, frozen=True):
    """Our verdict on a node, by its own reason, and the numbers behind it."""

    feasible: bool
    reason: str | None
    resolvable: bool
    detail: str

    @classmethod
    def of(cls, verdict: Verdict, detail: str) -> Self:
        """Read the row from `verdict`."""
        reason = REASONS.get(verdict)
        if reason is None:
            return cls(feasible=True, reason=None, resolvable=False, detail=detail)
        return cls(
            feasible=False,
            reason=reason.text,
            resolvable=reason.is_resolvable,
            detail=detail,
        )


class Amounts(_Row, frozen=True):
    """One resource of a node, in base units; the pod's own share is taken out.

    `assumed` is requested by pods that our answers have just put there.
    """

    asked: int
    allocatable: int
    requested: int
    free: int
    assumed: int = msgspec.field(name="underWay")


class NodeRow(_Row, frozen=True):
    """One node.

    Attributes
    ----------
    type : str
        The model of its GPUs; empty if unknown.
    offered : bool
        Whether kube-scheduler would offer it.
    terms : mapping
        score term -> its value, 0 to 100
    total : float or None
        Before normalisation; None where the pod's nodes are not told apart.
    tier : int or None
        Index of the node's type in the order that the pod asks for.
    priority : int or None
        What prioritize would send; None for a node that it is not asked about.
    shortlisted : bool or None
        Whether the filter's answer names it; None without a shortlist in effect.
    failing : bool
        Whether pods of several owners failed there lately before they ran.
    """

    name: str
    type: str
    offered: bool
    scheduler: SchedulerRow
    verdict: VerdictRow
    amounts: dict[str, Amounts]
    terms: dict[str, float]
    total: float | None
    tier: int | None
    priority: int | None
    shortlisted: bool | None
    failing: bool

    @classmethod
    def of(cls, whole: Explanation, index: int, judged: Judged, row: int) -> Self:
        """Read the row of the node at `index` in all, and at `row` on the page."""
        verdict = Verdict(int(whole.result.verdicts[index]))
        priority = int(whole.priorities[index])
        column = int(whole.verb_call.columns[index])
        return cls(
            name=whole.verb_call.names[index],
            type=judged.model(row),
            offered=bool(whole.offered[index]),
            scheduler=SchedulerRow.of(whole, index),
            verdict=VerdictRow.of(verdict, DETAILS[verdict](judged, row)),
            amounts=_amounts(judged, row),
            terms={
                name: round(float(values[row]), DECIMALS)
                for name, values in judged.terms.items()
            },
            total=None if whole.totals is None else whole.totals[index].item(),
            tier=None if whole.tiers is None else int(whole.tiers[index]),
            priority=None if priority == NOT_SENT else priority,
            shortlisted=bool(whole.answered[index]) if whole.is_shortlisted else None,
            failing=column >= 0 and bool(whole.verb_call.snapshot.failing[column]),
        )


def _amounts(judged: Judged, row: int) -> dict[str, Amounts]:
    """Return the asked resources of one node."""
    candidates, found = judged.candidates, {}
    for resource_row, (resource, asked) in enumerate(judged.pod_request.request):
        allocatable = int(candidates.allocatable[resource_row, row])
        requested = int(candidates.requested[resource_row, row])
        found[resource] = Amounts(
            asked=asked,
            allocatable=allocatable,
            requested=requested,
            free=max(allocatable - requested, 0),
            assumed=int(judged.crowded.requested[resource_row, row]) - requested,
        )
    return found


class BestRow(_Row, frozen=True):
    """A node that is preferred; terms from 0 to 100, the total as it is weighed.

    `detail` is what the pod would get there and what that leaves and breaks, empty
    where no score goes by it.
    """

    name: str
    type: str
    priority: int
    total: float | None
    terms: dict[str, float]
    detail: str


class SummaryRow(_Row, frozen=True):
    """The verdict, the reasons and what would help, as `Summary` has them.

    `change` is what the webhook changed, in one line, and `warnings` what it says to
    the pod's author.
    """

    fits: bool
    sentence: str
    help: str
    reason_classes: tuple[str, ...]
    reasons: tuple[Reason, ...]
    groups: tuple[Group, ...]
    scheduler_message: str
    scheduler_reasons: Mapping[str, int]
    nearest: tuple[NearMiss, ...]
    remedies: tuple[Remedy, ...]
    best: tuple[BestRow, ...]
    room: int | None
    preemption: str
    replicas: int
    change: str
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, explanation: Explanation, summary: Summary) -> Self:
        """Read the row from a summary of `explanation`."""
        subject = explanation.subject
        admission = subject.admission
        return cls(
            fits=summary.fits,
            sentence=summary.sentence,
            help=summary.help,
            reason_classes=tuple(sorted(summary.reason_classes)),
            reasons=summary.reasons,
            groups=summary.groups,
            scheduler_message=summary.scheduler_message,
            scheduler_reasons=summary.scheduler_reasons,
            nearest=summary.nearest,
            remedies=summary.remedies,
            best=tuple(_best_rows(explanation, summary.best)),
            room=summary.room,
            preemption=summary.preemption,
            replicas=subject.replicas,
            change="" if admission is None else admission.change,
            warnings=() if admission is None else tuple(_warnings(subject, admission)),
        )


def _warnings(subject: Subject, admission: AdmissionChange) -> Iterator[str]:
    """Yield the webhook's warnings that are not told as an obstacle already."""
    told = {obstacle.text.casefold() for obstacle in subject.obstacles}
    yield from (text for text in admission.warnings if text.casefold() not in told)


def _best_rows(explanation: Explanation, best: IndexArray) -> Iterator[BestRow]:
    """Yield the rows of the nodes that are preferred."""
    judged = Judged.of(explanation, best)
    for row, index in enumerate(best.tolist()):
        yield BestRow(
            name=explanation.verb_call.names[index],
            type=judged.model(row),
            priority=int(explanation.priorities[index]),
            total=(
                None if explanation.totals is None else explanation.totals[index].item()
            ),
            terms={
                name: round(float(values[row]), DECIMALS)
                for name, values in judged.terms.items()
            },
            detail=show_prospect(judged, row),
        )


class ExplanationPage(_Row, frozen=True):
    """One page of an explanation: the summary, the answer, and some of the nodes.

    `nodes` has those that were asked for, and `next_offset` is where the next page of
    them begins; None on the last one. `summary` is None where it was given which nodes
    kube-scheduler offers.
    """

    summary: SummaryRow | None
    pod: PodRow
    snapshot: SnapshotRow
    settings: SettingsRow
    wire: WireRow
    last_answers: Mapping[str, LastAnswer]
    not_modelled: tuple[str, ...]
    notes: tuple[str, ...]
    nodes: tuple[NodeRow, ...]
    next_offset: int | None = None


@dataclass(frozen=True, slots=True)
class PageQuery:
    """The nodes of an explanation that are shown, the best first.

    Attributes
    ----------
    node : str
        Shows this node alone; empty for all.
    limit : int or None
        None for all.
    """

    node: str = ""
    offset: int = 0
    limit: int | None = None


ALL_NODES: Final = PageQuery()

NO_NODES: Final = PageQuery(limit=0)


def build_page(
    explanation: Explanation,
    query: PageQuery = NO_NODES,
    last_answers: Mapping[str, LastAnswer] | None = None,
    age_seconds: float | None = None,
    *,
    deadline: Deadline = NO_DEADLINE,
) -> ExplanationPage:
    """Return one page of an explanation of all nodes.

    Parameters
    ----------
    query : PageQuery
        The rows that are wanted: none is built for a summary.
    last_answers : mapping, optional
        What was really sent about the pod, by verb.
    age_seconds : float, optional
        Since the last contact with the cluster.
    deadline : Deadline
        Checked before each row.
    """
    subject, snapshot = explanation.subject, explanation.verb_call.snapshot
    summary = None
    if explanation.checks is not None:
        summary = SummaryRow.of(explanation, summarize(explanation, deadline=deadline))
    chosen = _chosen(explanation, query)
    end = len(chosen) if query.limit is None else query.offset + query.limit
    return ExplanationPage(
        summary=summary,
        pod=PodRow.of(explanation),
        snapshot=SnapshotRow(
            snapshot.generation, len(snapshot.nodes.names), age_seconds
        ),
        settings=SettingsRow.of(explanation),
        wire=WireRow.of(explanation),
        last_answers=last_answers or {},
        not_modelled=subject.not_modelled,
        notes=(*subject.notes, *_notes(explanation)),
        nodes=_node_rows(explanation, chosen[query.offset : end], deadline),
        next_offset=end if end < len(chosen) else None,
    )


def _chosen(explanation: Explanation, query: PageQuery) -> IndexArray:
    """Return the indexes of all nodes that a query is about, in its order."""
    if query.limit == 0:
        return np.zeros(0, dtype=np.intp)
    if not query.node:
        return explanation.order()
    names = explanation.verb_call.names
    found = [index for index, name in enumerate(names) if name == query.node]
    return np.array(found, dtype=np.intp)


def _notes(explanation: Explanation) -> list[str]:
    """Return what a reader should know of the answer as a whole."""
    notes: list[str] = []
    offered = int(np.count_nonzero(explanation.offered))
    if explanation.subject.is_placed:
        return notes
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
    elif offered >= MIN_FEASIBLE_NODES and explanation.subject.is_judged:
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


def _node_rows(
    explanation: Explanation, indexes: IndexArray, deadline: Deadline
) -> tuple[NodeRow, ...]:
    """Return the rows of the nodes at `indexes`, in that order."""
    judged = Judged.of(explanation, indexes)
    rows = []
    for row, index in enumerate(indexes.tolist()):
        deadline.check()
        rows.append(NodeRow.of(explanation, index, judged, row))
    return tuple(rows)
