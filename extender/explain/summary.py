"""The summary of an explanation: verdict, grouped reasons, nearest misses, remedies.

A pure function of an explanation, over arrays: no node is looked at for itself but the
few that are named.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from cluster.decode.records import CLAIMS
from extender.explain.details import Judged
from extender.explain.explain import Explanation
from extender.explain.failed_checks import (
    GPU_TYPE,
    GPU_TYPE_UNKNOWN,
    LABELS,
    NO_RESOURCE,
    WRONG_NAME,
    FailedCheck,
    FailedChecks,
    list_failed_checks,
)
from extender.explain.kubelet import TAKES, judge_by_kubelet
from extender.explain.preemption import tell_preemption
from extender.explain.remedies import (
    Remedy,
    Situation,
    find_remedies,
    misspelt_types,
)
from extender.explain.scheduler_checks import ReasonCodes
from extender.verbs.fresh_snapshot import NO_DEADLINE, Deadline
from scoring.feasibility import REASONS, Verdict
from scoring.neighbours import matches
from scoring.protocols import NodeFacts
from scoring.quantity import shorten
from scoring.snapshot import IndexArray

# Clauses of the first sentence; the rest is counted together.
MAX_CLAUSES: Final = 4

MAX_NEAREST: Final = 3

MAX_BEST: Final = 3

# Remedies that are told as text.
MAX_REMEDIES: Final = 2

REMEDY_JOINT: Final = ", or "

# Of an Event's note: ValidateEventCreate in pkg/apis/core/validation of Kubernetes.
MAX_NOTE_BYTES: Final = 1024

_CUT: Final = b"..."

NO_NODES: Final = "noNodes"

FITS: Final = "fits"

# Over HTTP, where nobody reads them; a pod that exists has passed them.
QUOTA: Final = "quota"


class Reason(msgspec.Struct, frozen=True, rename="camel"):
    """Nodes that count under one class of reasons, each node under one.

    Attributes
    ----------
    reason_class : str
        A constant text, without numbers.
    text : str
        Such as ``152 lack CPU (needs 96, largest node 64)``.
    """

    reason_class: str
    node_count: int
    text: str


class Group(msgspec.Struct, frozen=True, rename="camel"):
    """Nodes of which kube-scheduler and we say the same.

    Attributes
    ----------
    scheduler, ours : str
        The reason of either; empty where the node passes its checks.
    """

    node_count: int
    scheduler: str
    ours: str


class NearMiss(msgspec.Struct, frozen=True, rename="camel"):
    """A node that fails few checks, with the numbers behind each."""

    name: str
    details: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Summary:
    """What a person is told first.

    Attributes
    ----------
    fits : bool
        Whether some node takes the pod, and nothing else keeps it.
    sentence : str
        The verdict, without a full stop.
    reason_classes : frozenset of str
        The classes of all reasons, without numbers: equal for pods that are told the
        same, whatever the numbers.
    scheduler_message : str
        kube-scheduler's own message of the same counts; empty where a node passes.
    scheduler_reasons : mapping
        reason as kube-scheduler counts it -> nodes
    best : index array
        The nodes that are preferred, the best first.
    preemption : str
        Whether kube-scheduler may evict others for the pod, in one clause; empty where
        that makes no difference.
    room : int or None
        How many such pods fit now at most, one after the other: by amounts, their host
        ports and how they repel each other. None for a pod that no node is asked about.
    """

    fits: bool
    sentence: str
    reason_classes: frozenset[str]
    reasons: tuple[Reason, ...]
    groups: tuple[Group, ...]
    scheduler_message: str
    scheduler_reasons: Mapping[str, int]
    nearest: tuple[NearMiss, ...]
    remedies: tuple[Remedy, ...]
    help: str
    best: IndexArray
    room: int | None
    preemption: str = ""


def summarize(explanation: Explanation, *, deadline: Deadline = NO_DEADLINE) -> Summary:
    """Return the summary of an explanation of all nodes.

    `deadline` is checked between its parts.
    """
    subject = explanation.subject
    if subject.is_placed and not any(o.is_final for o in subject.obstacles):
        return _summarize_placed(explanation)
    every = np.arange(len(explanation.verb_call.names), dtype=np.intp)
    judged = Judged.of(explanation, every, with_scores=False)
    deadline.check()
    checks = list_failed_checks(explanation, judged, deadline.check)
    deadline.check()
    reasons = _reasons(checks, len(every))
    is_judged = subject.is_judged
    passed = np.flatnonzero(explanation.answered & is_judged)
    takes = explanation.offered & explanation.result.feasible
    fitting = np.flatnonzero(takes & is_judged)
    best = _best(explanation, passed)
    unknown = "".join(f"{_unknown(*pair)}; " for pair in misspelt_types(judged))
    sentence = _sentence(explanation, reasons, fitting, best, unknown)
    obstacles = subject.obstacles
    room = _room(explanation, judged, fitting) if is_judged else None
    if room is not None and 0 < room < subject.replicas and not obstacles:
        sentence += (
            f"; of {subject.replicas} such pods there is room for {room} at most"
        )
    deadline.check()
    remedies: tuple[Remedy, ...] = ()
    nearest: tuple[NearMiss, ...] = ()
    if not len(fitting) and is_judged:
        remedies = find_remedies(_situation(explanation, judged, checks))
        nearest = tuple(_nearest(explanation, checks))
    deadline.check()
    codes = None
    if is_judged and explanation.checks is not None and len(every):
        codes = explanation.checks.codes()
    counts = _scheduler_reasons(explanation, codes) if is_judged else {}
    if not is_judged:
        reasons = ()
    classes = {obstacle.reason_class for obstacle in obstacles}
    classes |= {r.reason_class for r in reasons} if not len(fitting) else {FITS}
    if not len(every):
        classes.add(NO_NODES)
    return Summary(
        fits=bool(len(fitting)) and not obstacles,
        sentence=sentence,
        reason_classes=frozenset(classes),
        reasons=reasons,
        groups=tuple(_groups(explanation, codes)),
        scheduler_message="" if len(fitting) else _message(counts, len(every)),
        scheduler_reasons=counts,
        nearest=nearest,
        remedies=remedies,
        help=_help(explanation, remedies, checks, is_fitting=bool(len(fitting))),
        best=best,
        room=room,
        preemption=(
            tell_preemption(explanation, checks)
            if is_judged and not len(fitting)
            else ""
        ),
    )


def _summarize_placed(explanation: Explanation) -> Summary:
    """Return the summary of a pod that names its node: its kubelet alone decides."""
    subject = explanation.subject
    snapshot, names = explanation.verb_call.snapshot, explanation.verb_call.names
    checks = explanation.checks
    if checks is None or checks.around is None:
        raise ValueError("explanation: wanted kube-scheduler's own checks, got none")
    verdict = judge_by_kubelet(
        snapshot,
        subject.node_name,
        subject.request,
        subject.constraints,
        checks.around,
    )
    is_taken = verdict.reason_class == TAKES
    fitting = np.flatnonzero(explanation.offered & explanation.result.feasible)
    remedies: tuple[Remedy, ...] = ()
    if len(fitting) and not is_taken:
        verb = "1 node fits" if len(fitting) == 1 else f"{len(fitting)} nodes fit"
        text = f"leave spec.nodeName out ({verb} then)"
        node = names[int(fitting[0])]
        remedies = (Remedy("nodeName", text, node, len(fitting)),)
    helped = [o.remedy for o in subject.obstacles if o.remedy]
    helped += [remedy.text for remedy in remedies]
    return Summary(
        fits=is_taken and not subject.obstacles,
        sentence="; ".join([*(o.text for o in subject.obstacles), verdict.sentence]),
        reason_classes=frozenset(
            {verdict.reason_class, *(o.reason_class for o in subject.obstacles)}
        ),
        reasons=(),
        groups=(),
        scheduler_message="",
        scheduler_reasons={},
        nearest=(),
        remedies=remedies,
        help=REMEDY_JOINT.join(helped),
        best=np.zeros(0, dtype=np.intp),
        room=None,
    )


def note_of(summary: Summary) -> tuple[str, frozenset[str]]:
    """Return the first sentence, to be told elsewhere, and its classes of reasons.

    The text has at most `MAX_NOTE_BYTES` bytes, which is what an Event may say. It is
    worth telling again only where the classes are others: numbers change all the time.
    """
    data = f"{summary.sentence}.".encode()
    if len(data) > MAX_NOTE_BYTES:
        data = (
            data[: MAX_NOTE_BYTES - len(_CUT)].decode(errors="ignore").encode() + _CUT
        )
    return data.decode(), summary.reason_classes


def _reasons(checks: FailedChecks, count: int) -> tuple[Reason, ...]:
    """Return the reasons, each node under the first; the nearest nodes' reason first.

    Those come first whose nodes would fit but for them, then those that the pod does
    not mean, of another type or without its labels, then nodes that fail more, and
    last those without the resource.
    """
    left = np.ones(count, dtype=np.bool_)
    fails = checks.counts(count)
    found: list[tuple[tuple[int, int], Reason]] = []
    for check in checks.failed:
        mine = np.flatnonzero(check.failed & left)
        left &= ~check.failed
        if not len(mine):
            continue
        text = f"{len(mine)} {check.phrase(mine)}"
        reason = Reason(check.reason_class, len(mine), text)
        found.append(((_tier(check, int(fails[mine].min())), -len(mine)), reason))
    return tuple(reason for _, reason in sorted(found, key=lambda item: item[0]))


def _tier(check: FailedCheck, least: int) -> int:
    """Return how far from fitting the nearest node of a reason is."""
    if check.kind in {NO_RESOURCE, WRONG_NAME}:
        return 4
    is_not_meant = check.kind in {GPU_TYPE, GPU_TYPE_UNKNOWN, LABELS}
    return (2 if least > 1 else 0) + is_not_meant


def _clauses(reasons: Sequence[Reason]) -> str:
    """Return the reasons as one enumeration."""
    texts = [reason.text for reason in reasons[:MAX_CLAUSES]]
    rest = sum(reason.node_count for reason in reasons[MAX_CLAUSES:])
    if rest:
        texts.append(f"{rest} for other reasons")
    return ", ".join(texts)


def _sentence(
    explanation: Explanation,
    reasons: Sequence[Reason],
    fitting: IndexArray,
    best: IndexArray,
    unknown: str,
) -> str:
    """Return the verdict in one sentence, without a full stop.

    `unknown` is said before the reasons, of types that were probably misspelt.
    """
    subject, count = explanation.subject, len(explanation.verb_call.names)
    said = _fit(explanation, fitting, best) if len(fitting) else ""
    obstacles = "; ".join(obstacle.text for obstacle in subject.obstacles)
    if obstacles:
        would = f"{len(fitting)} of {count} nodes would take it"
        if not len(fitting):
            would = f"no node would take it either: {_clauses(reasons)}"
        if not count or not subject.is_judged:
            return obstacles
        return f"{obstacles}; {would}"
    if not count:
        return "No node fits: the cluster has no nodes"
    return said or f"No node fits: {unknown}{_clauses(reasons)}"


def _unknown(name: str, meant: str) -> str:
    """Return what is said of a type that nobody knows."""
    hint = f" (did you mean {meant}?)" if meant else ""
    return f"type {shorten(name, 40)} is no known GPU model{hint}"


def _fit(explanation: Explanation, fitting: IndexArray, best: IndexArray) -> str:
    """Return which nodes fit, and what may still refuse them."""
    names, count = explanation.verb_call.names, len(explanation.verb_call.names)
    who = "The only node" if count == 1 else f"{len(fitting)} of {count} nodes"
    of = f"{who} {'fits' if len(fitting) == 1 else 'fit'}"
    unsure = [wish for wish in explanation.subject.not_modelled if may_refuse(wish)]
    if unsure:
        is_asked = bool(explanation.subject.pod_request.request)
        by = "GPUs, CPU and memory" if is_asked else "CPU and memory"
        said = f"{of} by {by}"
        if any(wish.startswith(CLAIMS) for wish in unsure):  # they may be of GPUs
            verb = "passes" if len(fitting) == 1 else "pass"
            said = f"{who} {verb} what is checked here ({by})"
        whom = "it" if len(fitting) == 1 else "them"
        return (
            f"{said}, but kube-scheduler may refuse {whom}, since not modelled here:"
            f" {', '.join(unsure)}"
        )
    if not explanation.subject.pod_request.request:
        return f"{of}; it asks for no managed resource, so gpu-extender is not asked"
    failing = explanation.verb_call.snapshot.failing[explanation.verb_call.columns]
    told = []
    for index in best.tolist():
        score = f"score {int(explanation.priorities[index])}"
        is_failing = ", but pods of several owners failed to start there lately"
        told.append(f"{names[index]} ({score}{is_failing if failing[index] else ''})")
    return f"{of}: {', '.join(told)}"


def may_refuse(wish: str) -> bool:
    """Whether a wish that is not modelled decides where the pod may go."""
    return not wish.startswith("preferred ") and wish != QUOTA


def _best(explanation: Explanation, passed: IndexArray) -> IndexArray:
    """Return the nodes that are preferred, the best first, by name among equals."""
    names = explanation.verb_call.names
    scores = explanation.priorities[passed]
    if len(passed) > MAX_BEST:  # names settle ties among the best alone
        least = np.partition(scores, -MAX_BEST)[-MAX_BEST]
        passed = passed[scores >= least]
    ordered = sorted(
        passed.tolist(), key=lambda i: (-int(explanation.priorities[i]), names[i])
    )
    return np.array(ordered[:MAX_BEST], dtype=np.intp)


def _groups(explanation: Explanation, codes: ReasonCodes | None) -> Iterator[Group]:
    """Yield the nodes by both reasons, the most first."""
    if codes is None:
        return
    codes_of, reasons = codes
    verdicts = explanation.result.verdicts
    pairs, counts = np.unique(codes_of * len(Verdict) + verdicts, return_counts=True)
    found = []
    for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
        code, verdict = divmod(pair, len(Verdict))
        reason = REASONS.get(Verdict(verdict))
        ours = "" if reason is None else reason.text
        found.append(Group(count, ", ".join(reasons[code]), ours))
    yield from sorted(found, key=lambda g: (-g.node_count, g.scheduler, g.ours))


def _scheduler_reasons(
    explanation: Explanation, codes: ReasonCodes | None
) -> dict[str, int]:
    """Return the reasons as kube-scheduler counts them: its own, then what we answer.

    A node of which several resources are short counts under each.
    """
    found: Counter[str] = Counter()
    if codes is not None:
        codes_of, reasons = codes
        counts = np.bincount(codes_of, minlength=len(reasons)).tolist()
        for count, texts in zip(counts, reasons, strict=True):
            for text in texts:
                found[text] += count
    found.update(explanation.reasons())
    return {text: count for text, count in sorted(found.items()) if count}


def _message(counts: Mapping[str, int], node_count: int) -> str:
    """Return kube-scheduler's message of these counts: `FitError` in its types.go."""
    if not counts:
        return ""
    told = sorted(f"{count} {text}" for text, count in counts.items())
    return f"0/{node_count} nodes are available: {', '.join(told)}."


def _situation(
    explanation: Explanation, judged: Judged, checks: FailedChecks
) -> Situation:
    scheduler = explanation.checks
    if scheduler is None:
        raise ValueError("explanation: wanted kube-scheduler's own checks, got none")
    admission = explanation.subject.admission
    return Situation(
        checks.failed,
        judged,
        scheduler,
        explanation.verb_call.names,
        () if admission is None else admission.injected,
        explanation.subject.shares,
        explanation.subject.newcomer,
        checks.unmatched,
    )


def _nearest(explanation: Explanation, checks: FailedChecks) -> Iterator[NearMiss]:
    """Yield the nodes that fail the fewest checks, by the smallest shortfall."""
    names = explanation.verb_call.names
    fails = checks.counts(len(names))
    shortfall = np.zeros(len(names))
    for check in checks.failed:
        if check.gives is None:
            # As much as the whole of an amount; of another type is far away.
            is_far = check.kind in {GPU_TYPE, GPU_TYPE_UNKNOWN}
            shortfall += np.where(check.failed, 2.0 if is_far else 1.0, 0.0)
        else:
            part = 1 - np.minimum(check.gives, check.asked) / check.asked
            shortfall += np.where(check.failed, part, 0.0)
    order = np.lexsort((explanation.verb_call.snapshot.nodes.order, shortfall, fails))
    for index in order[:MAX_NEAREST].tolist():
        details = [
            check.detail(index) or check.phrase(np.array([index]))
            for check in checks.failed
            if check.failed[index]
        ]
        yield NearMiss(names[index], tuple(dict.fromkeys(details)))


def _help(
    explanation: Explanation,
    remedies: Sequence[Remedy],
    checks: FailedChecks,
    *,
    is_fitting: bool,
) -> str:
    """Return what would help, in one line; empty where nothing has to."""
    first = [o.remedy for o in explanation.subject.obstacles if o.remedy]
    if is_fitting or first:
        return REMEDY_JOINT.join(first)
    if not len(explanation.verb_call.names):
        return "add nodes"
    if remedies:
        return REMEDY_JOINT.join(remedy.text for remedy in remedies[:MAX_REMEDIES])
    least = int(checks.counts(len(explanation.verb_call.names)).min())
    checks_failed = "1 check" if least == 1 else f"{least} checks"
    return f"nothing small: every node fails {checks_failed} or more"


def _room(explanation: Explanation, judged: Judged, fitting: IndexArray) -> int:
    """Return how many such pods fit now at most, one after the other."""
    checks, subject = explanation.checks, explanation.subject
    if checks is None or not len(fitting):
        return 0
    most = np.full(len(fitting), np.iinfo(np.int64).max)
    for candidates, request in (
        (checks.candidates, checks.pod_request.request),
        (judged.candidates, judged.pod_request.request),
    ):
        for row, (_, asked) in enumerate(request):
            free = candidates.allocatable[row] - candidates.requested[row]
            many = np.maximum(free[fitting], 0) // asked
            most = np.where(
                candidates.claimed[row, fitting], most, np.minimum(most, many)
            )
    if judged.pod_request.gpu_requirements.is_exclusive or subject.ports:
        most = np.minimum(most, 1)
    if most.max() == np.iinfo(np.int64).max:
        return 0
    newcomer, room = subject.newcomer, int(most.sum())
    facts = [checks.facts[index] for index in fitting.tolist()]
    for term in subject.repels:
        if newcomer is not None and matches(term, newcomer):
            room = min(room, _room_apart(term.topology_key, facts, most.tolist()))
    return room


def _room_apart(key: str, facts: Sequence[NodeFacts], most: Sequence[int]) -> int:
    """Return for how many pods there is room of which each value of a label has one.

    `most` says how many fit on each node; one without the label has them all.
    """
    values = {
        node.labels[key]
        for node, many in zip(facts, most, strict=True)
        if many and key in node.labels
    }
    free = [
        many for node, many in zip(facts, most, strict=True) if key not in node.labels
    ]
    return len(values) + sum(free)
