"""Small changes of a pod or a node after which the pod would fit, with their effect.

A remedy is told only where nodes fail nothing else; each says how many do.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import msgspec
import numpy as np

from extender.explain.details import Judged
from extender.explain.failed_checks import (
    CORDON,
    GPU_MEMORY,
    GPU_SHARED,
    GPU_TYPE,
    GPU_TYPE_UNKNOWN,
    GPUS_NOT_READY,
    LABELS,
    NO_RESOURCE,
    NODE_NOT_READY,
    NOT_ALONE,
    TAINT,
    TOO_FULL,
    TOO_SMALL,
    WRONG_NAME,
    FailedCheck,
    resource_words,
)
from extender.explain.scheduler_checks import SchedulerChecks
from scoring.eligibility import tolerates_all
from scoring.gpu.models import normal_name
from scoring.gpu.requirements import near_names
from scoring.gpu.suitability import Suitability, suitability
from scoring.quantity import scale_of, shorten, show_amount, show_bytes
from scoring.resources import BYTE_RESOURCES, CPU, PODS, Request, is_part, is_whole_gpu
from scoring.snapshot import BoolArray, IndexArray

GIB: Final = 2**30

# Of an amount that is asked: to go below it is no small change.
SMALL_CUT: Final = 0.5

MAX_TOLD: Final = 2

_AMOUNTS: Final = frozenset({TOO_SMALL, TOO_FULL})


class Remedy(msgspec.Struct, frozen=True, rename="camel"):
    """One change, and how many nodes fit then.

    Attributes
    ----------
    action : str
        ``askLess``, ``type``, ``gpuMemory``, ``label``, ``resource``, ``selector``,
        ``labelNode``, ``leaveOut``, ``affinity``, ``tolerate``, ``uncordon``,
        ``nodeReady``, ``gpusReady``, ``share``, ``sharing``, ``nodeName`` or ``wait``.
    text : str
        In words, to stand after "Would help: ".
    node : str
        One of the nodes that fit then; empty for none.
    request : mapping
        resource -> what to ask at most, in base units, where that is the change
    value : str
        The type, resource, label or taint that it is about.
    """

    action: str
    text: str
    node: str
    node_count: int
    request: Mapping[str, int] = {}
    value: str = ""


# Remedies with their cost, greater for what asks more of people, or gives up more.
Found: TypeAlias = Iterator[tuple[float, Remedy]]


@dataclass(frozen=True, slots=True, eq=False)
class Situation:
    """What remedies are looked for in.

    Attributes
    ----------
    checks : sequence of FailedCheck, K
    judged : Judged
        All N nodes.
    injected : tuple of (str, int)
        What the webhook gives the pod, by its GPUs.
    """

    checks: Sequence[FailedCheck]
    judged: Judged
    scheduler: SchedulerChecks
    names: Sequence[str]
    injected: Request

    def fails_only(self, *kinds: str) -> BoolArray:
        """Return which nodes fail checks of these kinds and no other, shape (N,)."""
        within = np.zeros(len(self.names), dtype=np.bool_)
        beside = np.zeros(len(self.names), dtype=np.bool_)
        for check in self.checks:
            if check.kind in kinds:
                within |= check.failed
            else:
                beside |= check.failed
        return within & ~beside


def find_remedies(situation: Situation) -> tuple[Remedy, ...]:
    """Return what would help, the smallest change first."""
    if not situation.names:
        return ()
    found = [pair for find in _FINDERS for pair in find(situation)]
    found.sort(key=lambda pair: (pair[0], -pair[1].node_count))
    return tuple(remedy for _, remedy in found)


def _nodes(count: int, verb: str = "fit") -> str:
    """Return how many nodes do something.

    >>> _nodes(1), _nodes(2, "have it")
    ('1 node fits', '2 nodes have it')
    """
    if count == 1:
        return f"1 node {verb.replace('fit', 'fits').replace('have', 'has')}"
    return f"{count} nodes {verb}"


def _ask_less(situation: Situation) -> Found:
    """Yield the least that a pod would have to give up of its amounts."""
    alone = situation.fails_only(*_AMOUNTS)
    short = [check for check in situation.checks if check.kind in _AMOUNTS]
    indexes = np.flatnonzero(alone)
    asked: dict[str, int] = {}
    gives: dict[str, np.ndarray] = {}
    for check in short:
        if check.gives is not None:
            asked[check.resource] = check.asked
            gives[check.resource] = check.gives[indexes]
    if not len(indexes) or not asked:
        return
    cut = np.zeros(len(indexes))
    rounded = {}
    for name, amounts in gives.items():
        rounded[name] = np.minimum(_rounded(name, amounts), asked[name])
        cut = np.maximum(cut, 1 - rounded[name] / asked[name])
        # A pod that asks none of it is another pod.
        cut[rounded[name] <= 0] = np.inf
        if name == PODS:
            cut[rounded[name] < asked[name]] = np.inf
    best = int(np.argmin(cut))
    if np.isfinite(cut[best]):
        less = {
            name: int(amounts[best])
            for name, amounts in rounded.items()
            if amounts[best] < asked[name]
        }
        yield from _ask(situation, indexes, less, rounded, float(cut[best]), best)
    if situation.fails_only(TOO_FULL).any():
        where = np.flatnonzero(situation.fails_only(TOO_FULL))
        node = situation.names[int(where[0])]
        text = f"wait until pods end ({_nodes(len(where), 'have')} room then)"
        yield 1.5, Remedy("wait", text, node, len(where))


def _ask(  # noqa: PLR0913, PLR0917 - one search, in two functions
    situation: Situation,
    indexes: IndexArray,
    less: Mapping[str, int],
    rounded: Mapping[str, np.ndarray],
    cut: float,
    best: int,
) -> Found:
    """Yield the remedy of asking `less`, or fewer GPUs where the webhook asks by them.

    Its rule gives so much for each GPU: the author of the pod can only ask fewer.
    """
    fits = np.ones(len(indexes), dtype=np.bool_)
    for name, amount in less.items():
        fits &= rounded[name] >= amount
    for name, amounts in rounded.items():
        if name not in less:
            fits &= amounts >= amounts[best]
    node = situation.names[int(indexes[best])]
    count = int(np.count_nonzero(fits))
    injected = dict(situation.injected)
    cost = 1.0 if cut <= SMALL_CUT else 3.0
    pod_request = situation.judged.pod_request
    if any(name in injected for name in less):
        gpus = pod_request.amount
        most = min(
            [less.get(pod_request.primary, gpus)]
            + [
                amount * gpus // injected[name]
                for name, amount in less.items()
                if injected.get(name)
            ]
        )
        if not 0 < most < gpus:
            return
        less = {pod_request.primary: most}
        cost = 1.0 if most >= gpus * SMALL_CUT else 3.0
    words = " and ".join(
        f"{show_amount(name, amount)} {resource_words(name)}"
        for name, amount in less.items()
    )
    text = f"ask for at most {words} ({_nodes(count)} then)"
    yield cost, Remedy("askLess", text, node, count, dict(less))


def _rounded(resource: str, amounts: np.ndarray) -> np.ndarray:
    """Return amounts as somebody would write them: whole CPUs, whole Gi."""
    unit = GIB if resource in BYTE_RESOURCES else scale_of(resource)
    if resource != CPU and resource not in BYTE_RESOURCES:
        return amounts
    return np.where(amounts >= unit, amounts // unit * unit, amounts)


def _other_type(situation: Situation) -> Found:
    """Yield the models that would have to be accepted, and the memory."""
    pod_request = situation.judged.pod_request
    wanted = pod_request.gpu_requirements
    if not wanted.is_readable:
        return
    yield from _misspelt(situation)
    yield from _accepted(situation, np.flatnonzero(situation.fails_only(GPU_TYPE)))
    indexes = np.flatnonzero(situation.fails_only(GPU_SHARED))
    if len(indexes):
        node = situation.names[int(indexes[0])]
        name = situation.judged.options.builder.annotations.sharing
        text = f"take shared GPUs by {name}: allowed ({_nodes(len(indexes))} then)"
        yield 1.3, Remedy("sharing", text, node, len(indexes), value=name)
    indexes = np.flatnonzero(situation.fails_only(GPU_MEMORY))
    if len(indexes):
        gpus = situation.judged.snapshot.gpus
        columns = situation.judged.candidates.columns[indexes]
        sizes = np.array(
            [
                gpus.kinds[c].memory_of(pod_request.primary).low
                for c in gpus.codes[columns]
            ]
        )
        most, count = int(sizes.max()), int(np.count_nonzero(sizes == sizes.max()))
        if most > 0:
            node = situation.names[int(indexes[int(sizes.argmax())])]
            amount = show_bytes(most)
            text = f"ask for at most {amount} of GPU memory ({_nodes(count)} then)"
            yield 1.2, Remedy("gpuMemory", text, node, count, value=str(most))
    indexes = np.flatnonzero(situation.fails_only(GPU_TYPE_UNKNOWN))
    if len(indexes):
        node = situation.names[int(indexes[0])]
        text = (
            f"label the GPU model of {node} ({_nodes(len(indexes))} if it is the one)"
        )
        yield 2.0, Remedy("label", text, node, len(indexes))


def _accepted(situation: Situation, indexes: IndexArray) -> Found:
    """Yield the model that would have to be accepted, of the most nodes."""
    pod_request = situation.judged.pod_request
    wanted = pod_request.gpu_requirements
    if not wanted.types or wanted.excluded:
        return  # what is excluded is so for a reason
    gpus, columns = situation.judged.snapshot.gpus, situation.judged.candidates.columns
    counts: Counter[str] = Counter()
    where: dict[str, int] = {}
    for code in np.unique(gpus.codes[columns[indexes]]).tolist():
        kind = gpus.kinds[code]
        accepting = replace(wanted, types=(*wanted.types, kind.model))
        fits = suitability(kind, accepting, pod_request.request)
        if kind.model and fits is Suitability.SUITS:
            those = indexes[gpus.codes[columns[indexes]] == code]
            counts[kind.model] += len(those)
            where.setdefault(kind.model, int(those[0]))
    for model, count in counts.most_common(1):
        text = f"accept {model}, too ({_nodes(count)} then)"
        node = situation.names[where[model]]
        yield 1.45, Remedy("type", text, node, count, value=model)


def misspelt_types(judged: Judged) -> Iterator[tuple[str, str]]:
    """Yield types that neither the table nor a node knows, and what was probably meant.

    Nothing where no name comes near it; a name that a node has comes first.
    """
    gpus, kinds = judged.options.builder.gpus, judged.snapshot.gpus.kinds
    wanted = judged.pod_request.gpu_requirements
    for name in (*wanted.types, *wanted.excluded):
        normal = normal_name(name)
        if gpus.knows(name) or any(normal in kind.names for kind in kinds):
            continue
        near = near_names(gpus.table, name)
        offered = [n for n in near if any(normal_name(n) in k.names for k in kinds)]
        yield name, next(iter((*offered, *near)), "")


def _misspelt(situation: Situation) -> Found:
    """Yield the names that were probably meant."""
    judged = situation.judged
    kinds = judged.snapshot.gpus.kinds
    for name, other in misspelt_types(judged):
        if not other:
            continue
        holds = np.array([normal_name(other) in kind.names for kind in kinds])
        has = holds[judged.snapshot.gpus.codes[judged.candidates.columns]]
        count = int(np.count_nonzero(has))
        text = f"write {other} for {shorten(name)}, which no node has"
        if count:
            text += f" ({_nodes(count, 'have')} it)"
        node = situation.names[int(np.argmax(has))] if count else ""
        yield 0.1, Remedy("type", text, node, count, value=other)


def _other_resource(situation: Situation) -> Found:
    """Yield the resource that nodes offer in place of what is asked, or to go without.

    A pod may ask several, which no node has together.
    """
    judged = situation.judged
    asked = dict(judged.pod_request.request)
    for check in situation.checks:
        if check.kind != NO_RESOURCE:
            continue
        others = [c for c in situation.checks if c is not check]
        beside = [c.failed for c in others]
        indexes = np.flatnonzero(check.failed & ~np.logical_or.reduce(beside, axis=0))
        yield from _offered_instead(situation, indexes, check.resource)
        if len(asked) > 1 and len(indexes):
            name, node = check.resource, situation.names[int(indexes[0])]
            text = (
                f"leave {name} out, or ask for it in another pod"
                f" ({_nodes(len(indexes))} then)"
            )
            yield 2.4, Remedy("leaveOut", text, node, len(indexes), value=name)


def _offered_instead(situation: Situation, indexes: IndexArray, absent: str) -> Found:
    """Yield the resource that most of the nodes have free in place of one."""
    judged = situation.judged
    snapshot, columns = judged.snapshot, judged.candidates.columns[indexes]
    asked = dict(judged.pod_request.request)
    best: tuple[int, str, int] | None = None
    for row, name in enumerate(snapshot.resources):
        if name in asked or not judged.options.builder.scope.is_gpu(name):
            continue
        free = snapshot.allocatable[row, columns] - snapshot.requested[row, columns]
        enough = free >= asked[absent]
        count = int(np.count_nonzero(enough))
        if count and (best is None or count > best[0]):
            best = count, name, int(indexes[int(np.argmax(enough))])
    if best is not None:
        count, name, index = best
        unit = ""
        if is_whole_gpu(name) != is_whole_gpu(absent) and is_part(name):
            unit = ", which are parts of GPUs"
        text = f"ask for {name} instead{unit} ({_nodes(count)} then)"
        yield 2.5, Remedy("resource", text, situation.names[index], count, value=name)


def _labels(situation: Situation) -> Found:
    """Yield the entry of the selector that would have to be another one."""
    indexes = np.flatnonzero(situation.fails_only(LABELS))
    if not len(indexes):
        return
    constraints, facts = situation.scheduler.constraints, situation.scheduler.facts
    missed: Counter[str] = Counter()
    values: dict[str, Counter[str]] = {}
    where: dict[str, int] = {}
    for index in indexes.tolist():
        labels = facts[index].labels
        keys = [k for k, v in constraints.node_selector.items() if labels.get(k) != v]
        if len(keys) == 1:
            missed[keys[0]] += 1
            where.setdefault(keys[0], index)
            values.setdefault(keys[0], Counter())[labels.get(keys[0], "")] += 1
    node = situation.names[int(indexes[0])]
    if not missed:
        text = f"widen its required node affinity ({_nodes(len(indexes))} then)"
        yield 1.3, Remedy("affinity", text, node, len(indexes))
        return
    key, count = missed.most_common(1)[0]
    node, wanted = situation.names[where[key]], constraints.node_selector[key]
    there = {value: n for value, n in values[key].items() if value}
    if there:
        value = max(sorted(there), key=there.__getitem__)
        node = next(
            situation.names[i]
            for i in indexes.tolist()
            if facts[i].labels.get(key) == value
        )
        text = (
            f"select {key}={value} instead of {wanted}"
            f" ({_nodes(there[value])} then), or label a node {key}={wanted}"
        )
        yield 1.0, Remedy("selector", text, node, there[value], value=f"{key}={value}")
        return
    text = (
        f"label {node} {key}={wanted}, or leave the selector out ({_nodes(count)} then)"
    )
    yield 1.0, Remedy("labelNode", text, node, count, value=f"{key}={wanted}")


def _taints(situation: Situation) -> Found:
    """Yield the one taint that would have to be tolerated."""
    indexes = np.flatnonzero(situation.fails_only(TAINT))
    facts, tolerations = (
        situation.scheduler.facts,
        situation.scheduler.constraints.tolerations,
    )
    counts: Counter[str] = Counter()
    where: dict[str, int] = {}
    for index in indexes.tolist():
        texts = {
            f"{taint.key}={taint.value or ''}:{taint.effect}"
            for taint in facts[index].taints
            if not tolerates_all(tolerations, (taint,))
        }
        text = " and ".join(sorted(texts))
        counts[text] += 1
        where.setdefault(text, index)
    for taint, count in counts.most_common(1):
        node = situation.names[where[taint]]
        text = f"tolerate {taint} ({_nodes(count)} then)"
        yield 1.4, Remedy("tolerate", text, node, count, value=taint)


def _nodes_to_mend(situation: Situation) -> Found:
    """Yield what an operator could do about nodes, or the pod do without."""
    for kind, action, text, cost in (
        (CORDON, "uncordon", "uncordon {node}", 1.0),
        (NODE_NOT_READY, "nodeReady", "get {node} ready", 1.6),
        (GPUS_NOT_READY, "gpusReady", "get the GPUs of {node} ready", 1.6),
        (WRONG_NAME, "nodeName", "leave spec.nodeName out", 1.3),
    ):
        indexes = np.flatnonzero(situation.fails_only(kind))
        if not len(indexes):
            continue
        node = situation.names[int(indexes[0])]
        count = len(indexes)
        if "{node}" in text:
            others = f" or another of {count} such nodes" if count > 1 else ""
            told = text.format(node=node) + others + " (it fits there then)"
        else:
            told = f"{text} ({_nodes(count)} then)"
        yield cost, Remedy(action, told, node, count)


def _beside_others(situation: Situation) -> Found:
    """Yield what a pod could do that would be beside others where one wants not."""
    indexes = np.flatnonzero(situation.fails_only(NOT_ALONE))
    name = situation.judged.options.builder.annotations.exclusive
    left_out = f"leave {name} out, or wait until the others end"
    others_want_not = situation.judged.candidates.exclusive_gpu_pods[indexes] > 0
    for those, action, text in (
        (
            indexes[others_want_not],
            "wait",
            "wait until the pod that is alone there ends",
        ),
        (indexes[~others_want_not], "share", left_out),
    ):
        if len(those):
            told = f"{text} ({_nodes(len(those))} then)"
            node = situation.names[int(those[0])]
            yield 1.2, Remedy(action, told, node, len(those))


_FINDERS: Final = (
    _ask_less,
    _other_type,
    _other_resource,
    _labels,
    _taints,
    _nodes_to_mend,
    _beside_others,
)
