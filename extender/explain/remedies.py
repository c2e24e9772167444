"""Small changes of a pod or a node after which the pod would fit, with their effect.

A remedy is told only where nodes fail nothing else; each says how many do.
"""

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, Self, TypeAlias

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
    HOST_PORT,
    KEPT_AWAY,
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
from extender.explain.scheduler_checks import SchedulerChecks, list_taints
from scoring.eligibility import unmatched_by_all
from scoring.feasibility import would_share
from scoring.gpu.models import normal_name
from scoring.gpu.requirements import near_names
from scoring.gpu.suitability import Suitability, suitability
from scoring.neighbours import Newcomer, look_around
from scoring.pod_request import LargestShare
from scoring.protocols import Constraints, NodeFacts
from scoring.quantity import BYTE_UNITS, scale_of, shorten, show_at_most
from scoring.resources import (
    BYTE_RESOURCES,
    CPU,
    PODS,
    STANDARD_RESOURCES,
    Request,
    is_part,
    is_whole_gpu,
)
from scoring.snapshot import BoolArray, IndexArray, Int64Array, Snapshot

# Of an amount that is asked: to go below it is no small change.
SMALL_CUT: Final = 0.5

# How like two names are of which one was probably meant, and how much is compared.
NEAR: Final = 0.8
MAX_COMPARED: Final = 128

HUGE_PAGES: Final = "hugepages-"

MAX_TOLD: Final = 2

_AMOUNTS: Final = frozenset({TOO_SMALL, TOO_FULL})


class Remedy(msgspec.Struct, frozen=True, rename="camel"):
    """One change, and how many nodes fit then.

    Attributes
    ----------
    action : str
        ``askLess``, ``type``, ``gpuMemory``, ``label``, ``resource``, ``selector``,
        ``labelNode``, ``leaveOut``, ``affinity``, ``tolerate``, ``uncordon``,
        ``nodeReady``, ``gpusReady``, ``share``, ``sharing``, ``nodeName``,
        ``hostPort``, ``unlabel`` or ``wait``.
    text : str
        In words, to stand after "Would help: ".
    node : str
        One of the nodes that fit then; empty for none.
    request : mapping
        resource -> what to ask at most, in base units, where that is the change;
        overhead and other containers come on top
    value : str
        The type, resource, label or taint that it is about; of ``affinity`` the keys
        of the node selector that would have to go, with commas.
    containers : mapping
        resource -> the container that would ask it, where several ask of it; ``*`` for
        all of them together.
    """

    action: str
    text: str
    node: str
    node_count: int
    request: Mapping[str, int] = {}
    value: str = ""
    containers: Mapping[str, str] = {}


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
    shares : sequence of LargestShare
        Whose ask decides, where that is not all that the pod asks.
    newcomer : Newcomer or None
        The pod as those that run see it.
    unmatched : bool array, shape (N,), or None
        Where its own affinity for labels of GPUs fails beside the type that it wants,
        and no check tells so; None for nowhere.
    """

    checks: Sequence[FailedCheck]
    judged: Judged
    scheduler: SchedulerChecks
    names: Sequence[str]
    injected: Request
    shares: Sequence[LargestShare]
    newcomer: Newcomer | None = None
    unmatched: BoolArray | None = None

    @property
    def fails_unsaid(self) -> BoolArray:
        """Which nodes fail what no check tells, shape (N,)."""
        nowhere = np.zeros(len(self.names), dtype=np.bool_)
        return nowhere if self.unmatched is None else self.unmatched

    def fails_only(self, *kinds: str) -> BoolArray:
        """Return which nodes fail checks of these kinds and no other, shape (N,)."""
        within = np.zeros(len(self.names), dtype=np.bool_)
        beside = self.fails_unsaid.copy()
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
    indexes = np.flatnonzero(situation.fails_only(*_AMOUNTS))
    asks: dict[str, _Ask] = {}
    cut = np.zeros(len(indexes))
    for check in situation.checks if len(indexes) else ():
        if check.kind not in _AMOUNTS or check.gives is None:
            continue
        name, gives = check.resource, check.gives[indexes]
        ask = asks[name] = _Ask.of(situation, name, check.asked, gives)
        cut = np.maximum(cut, 1 - ask.most / max(ask.asked, 1))
        # A pod that asks none of it is another pod.
        cut[(ask.most <= 0) & (gives < check.asked)] = np.inf
        if name == PODS:
            cut[gives < check.asked] = np.inf
    if not asks:
        return
    best = int(np.argmin(cut))
    if np.isfinite(cut[best]):
        yield from _ask(situation, indexes, asks, float(cut[best]), best)
    if situation.fails_only(TOO_FULL).any():
        where = np.flatnonzero(situation.fails_only(TOO_FULL))
        node = situation.names[int(where[0])]
        text = f"wait until pods end ({_nodes(len(where), 'have')} room then)"
        yield 1.5, Remedy("wait", text, node, len(where))


@dataclass(frozen=True, slots=True, eq=False)
class _Ask:
    """What the author of a pod wrote of a resource, and could write, on K nodes.

    Attributes
    ----------
    share : LargestShare
        Of the container that would ask less; of the whole pod where one is not enough.
    asked : int
        Without what counts beside it.
    most : int64 array, shape (K,)
        As somebody would write it, at most `asked`.
    """

    share: LargestShare
    asked: int
    most: Int64Array

    @classmethod
    def of(
        cls, situation: Situation, resource: str, asked: int, gives: Int64Array
    ) -> Self:
        """Return it for a pod that asks so much, on nodes that have so much."""
        shares = {share.resource: share for share in situation.shares}
        share = shares.get(resource, LargestShare(resource))
        is_injected = resource in dict(situation.injected)
        if is_injected or not (gives >= share.least).any():
            overhead = share.overhead
            whole = _ALL if share.container and not is_injected else ""
            share = LargestShare(resource, whole, overhead, overhead, overhead)
        most = np.where(gives >= share.least, gives - share.beside, 0)
        own = max(asked - share.beside, 0)
        return cls(share, own, np.minimum(_rounded(resource, most), own))

    def words(self, amount: int) -> str:
        """Return an amount with its unit, and with what it comes on top of."""
        name = self.share.resource
        beside = " beside the overhead" if self.share.overhead else ""
        return f"{show_at_most(name, amount)} {resource_words(name)}{beside}"


# No name of a container.
_ALL: Final = "*"


def _ask(
    situation: Situation,
    indexes: IndexArray,
    asks: Mapping[str, _Ask],
    cut: float,
    best: int,
) -> Found:
    """Yield the remedy of asking less, or fewer GPUs where the webhook asks by them.

    Its rule gives so much for each GPU: the author of the pod can only ask fewer.
    """
    fits = np.ones(len(indexes), dtype=np.bool_)
    less = {}
    for name, ask in asks.items():
        fits &= ask.most >= ask.most[best]
        if ask.most[best] < ask.asked:
            less[name] = int(ask.most[best])
    node = situation.names[int(indexes[best])]
    count = int(np.count_nonzero(fits))
    cost = 1.0 if cut <= SMALL_CUT else 3.0
    if any(name in dict(situation.injected) for name in less):
        primary, gpus, fewer = _fewer_gpus(situation, asks, less)
        if not 0 < fewer < gpus:
            return
        cost = 1.0 if fewer >= gpus * SMALL_CUT else 3.0
        less = {primary.share.resource: fewer}
        asks = {**asks, primary.share.resource: primary}
    containers = {name: asks[name].share.container for name in less}
    words = _words_of_containers(
        [(containers[name], asks[name].words(amount)) for name, amount in less.items()]
    )
    text = f"ask for at most {words} ({_nodes(count)} then)"
    named = {name: where for name, where in containers.items() if where}
    yield cost, Remedy("askLess", text, node, count, less, containers=named)


def _fewer_gpus(
    situation: Situation, asks: Mapping[str, _Ask], less: Mapping[str, int]
) -> tuple[_Ask, int, int]:
    """Return who asks for GPUs, for how many, and for how many less the rest allows."""
    pod_request = situation.judged.pod_request
    name, total = pod_request.primary, pod_request.amount
    plenty = np.array([total])
    primary = asks.get(name) or _Ask.of(situation, name, total, plenty)
    most = total
    if name in less:
        most = less[name] + primary.share.beside
    for resource, amount in situation.injected:
        if resource in less:
            for_gpus = amount - asks[resource].share.overhead
            most = min(most, less[resource] * total // max(for_gpus, 1))
    return primary, primary.asked, most - primary.share.beside


def _words_of_containers(asks: Sequence[tuple[str, str]]) -> str:
    """Return what containers would ask, each container named once.

    >>> _words_of_containers([("", "8 CPU"), ("", "4 GPUs")])
    '8 CPU and 4 GPUs'
    >>> _words_of_containers([("a", "8 CPU"), ("*", "4 GPUs")])
    '8 CPU in container a and 4 GPUs in all containers together'
    """
    parts = []
    for container, group in groupby(asks, key=lambda ask: ask[0]):
        where = f" in container {shorten(container)}" if container else ""
        if container == _ALL:
            where = " in all containers together"
        parts.append(" and ".join(words for _, words in group) + where)
    return " and ".join(parts)


def _rounded(resource: str, amounts: np.ndarray) -> np.ndarray:
    """Return amounts as somebody would write them, never more: whole CPUs, whole Gi."""
    if resource == CPU:
        units: tuple[int, ...] = (scale_of(resource),)
    elif resource in BYTE_RESOURCES:
        units = BYTE_UNITS
    else:
        return amounts
    rounded = amounts
    for unit in reversed(units):
        rounded = np.where(amounts >= unit, amounts // unit * unit, rounded)
    return rounded


def _other_type(situation: Situation) -> Found:
    """Yield the models that would have to be accepted, and the memory."""
    pod_request = situation.judged.pod_request
    wanted = pod_request.gpu_requirements
    if not wanted.is_readable:
        return
    yield from _misspelt(situation)
    yield from _accepted(situation, np.flatnonzero(situation.fails_only(GPU_TYPE)))
    indexes = np.flatnonzero(situation.fails_only(GPU_SHARED))
    if len(indexes) and wanted.linked != "required":  # parts never are
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
            amount = show_at_most("memory", most)
            text = f"ask for at most {amount} of GPU memory ({_nodes(count)} then)"
            yield 1.2, Remedy("gpuMemory", text, node, count, value=str(most))
    yield from _unknown(situation)


def _unknown(situation: Situation) -> Found:
    """Yield what to say of GPUs of an unknown model, and not to ask of others' memory.

    No label says what one of a card for virtual machines has.
    """
    judged = situation.judged
    pod_request, gpus = judged.pod_request, judged.snapshot.gpus
    # A label may be just what the pod's own affinity wants, too.
    labelled = replace(situation, unmatched=None)
    indexes = np.flatnonzero(labelled.fails_only(GPU_TYPE_UNKNOWN))
    bare = replace(pod_request.gpu_requirements, min_memory=0)
    has_unit = any(is_whole_gpu(n) or is_part(n) for n, _ in pod_request.request)
    suits = [
        not has_unit
        and suitability(kind, bare, pod_request.request) is Suitability.SUITS
        for kind in gpus.kinds
    ]
    by_memory = np.array(suits)[gpus.codes[judged.candidates.columns[indexes]]]
    those = indexes[by_memory & ~situation.fails_unsaid[indexes]]
    if len(those):
        name = judged.options.builder.annotations.min_memory
        text = (
            f"leave {name} out: how much a {pod_request.primary} has is not known"
            f" ({_nodes(len(those))} then)"
        )
        node = situation.names[int(those[0])]
        yield 1.2, Remedy("gpuMemory", text, node, len(those), value=name)
    those = indexes[~by_memory]
    if len(those):
        node = situation.names[int(those[0])]
        text = f"label the GPU model of {node} ({_nodes(len(those))} if it is the one)"
        yield 2.0, Remedy("label", text, node, len(those))


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
        # Of a node that lacks a resource nothing else of its GPUs is told.
        beside = [c.failed for c in others] + [
            would_share(judged.candidates, judged.pod_request),
            situation.fails_unsaid,
        ]
        indexes = np.flatnonzero(check.failed & ~np.logical_or.reduce(beside, axis=0))
        yield from _offered_instead(situation, indexes, check.resource)
        name = check.resource
        rest = tuple((other, a) for other, a in asked.items() if other != name)
        those = (
            indexes[_have_suitable_gpus(judged, indexes, rest)] if rest else indexes[:0]
        )
        if len(those):
            node = situation.names[int(those[0])]
            text = (
                f"leave {name} out, or ask for it in another pod"
                f" ({_nodes(len(those))} then)"
            )
            yield 2.4, Remedy("leaveOut", text, node, len(those), value=name)


def _have_suitable_gpus(
    judged: Judged, indexes: IndexArray, request: Request
) -> BoolArray:
    """Return whose GPUs would suit the pod if it asked another request, shape (K,)."""
    wanted, gpus = judged.pod_request.gpu_requirements, judged.snapshot.gpus
    suits = [
        suitability(kind, wanted, request) is Suitability.SUITS for kind in gpus.kinds
    ]
    codes = gpus.codes[judged.candidates.columns[indexes]]
    found: BoolArray = np.array(suits, dtype=np.bool_)[codes]
    return found


def _offered_instead(situation: Situation, indexes: IndexArray, absent: str) -> Found:
    """Yield the resource that most nodes have free in place of one, of GPUs that do."""
    judged = situation.judged
    snapshot, columns = judged.snapshot, judged.candidates.columns[indexes]
    asked = dict(judged.pod_request.request)
    best: tuple[int, str, int] | None = None
    for row, name in enumerate(snapshot.resources):
        if name in asked or not judged.options.builder.scope.is_gpu(name):
            continue
        free = snapshot.allocatable[row, columns] - snapshot.requested[row, columns]
        request = tuple((name if n == absent else n, a) for n, a in asked.items())
        enough = free >= asked[absent]
        enough &= _have_suitable_gpus(judged, indexes, request)
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


def _other_devices(situation: Situation) -> Found:
    """Yield what to do about a device or huge pages of which nodes have none at all."""
    snapshot, columns = situation.judged.snapshot, situation.judged.candidates.columns
    for check in situation.checks:
        name = check.resource
        if check.kind != TOO_SMALL or check.gives is None:
            continue
        if name in STANDARD_RESOURCES or name == PODS:
            continue
        others = [c.failed for c in situation.checks if c is not check]
        others.append(situation.fails_unsaid)
        alone = check.failed & ~np.logical_or.reduce(others, axis=0)
        row = snapshot.row_of(name)
        if row is not None:
            alone &= snapshot.allocatable[row, columns] == 0
        indexes = np.flatnonzero(alone)
        if not len(indexes):
            continue
        near = _near_device(snapshot, name, check.asked, columns[indexes])
        if near is not None:
            other, count, index = near
            node = situation.names[int(indexes[index])]
            text = f"write {other} for {shorten(name)} ({_nodes(count)} then)"
            yield 0.2, Remedy("resource", text, node, count, value=other)
            continue
        node, count = situation.names[int(indexes[0])], len(indexes)
        text = f"have {node} offer {shorten(name)}, or leave it out"
        text += f" ({_nodes(count)} then)"
        yield 2.4, Remedy("leaveOut", text, node, count, value=name)


def _near_device(
    snapshot: Snapshot, name: str, asked: int, columns: IndexArray
) -> tuple[str, int, int] | None:
    """Return the resource that was probably meant, how many have it, the first's index.

    Of another size, huge pages are another resource.
    """
    if name.startswith(HUGE_PAGES):
        return None
    free = {
        other: snapshot.allocatable[row, columns] - snapshot.requested[row, columns]
        for row, other in enumerate(snapshot.resources)
        if "/" in other
    }
    enough = {other: amounts >= asked for other, amounts in free.items()}
    there = [other for other, has in enough.items() if has.any()]
    for other in difflib.get_close_matches(name[:MAX_COMPARED], there, 1, NEAR):
        return other, int(np.count_nonzero(enough[other])), int(enough[other].argmax())
    return None


def _labels(situation: Situation) -> Found:
    """Yield the entry of the selector that would have to be another one.

    Where several would, or the required affinity, too: what to give up of them.
    """
    indexes = np.flatnonzero(situation.fails_only(LABELS))
    if not len(indexes):
        return
    constraints, facts = situation.scheduler.constraints, situation.scheduler.facts
    beside = unmatched_by_all(
        [facts[i] for i in indexes.tolist()], constraints.affinity_terms
    )
    ways: Counter[tuple[tuple[str, ...], bool]] = Counter()
    where: dict[tuple[tuple[str, ...], bool], int] = {}
    values: dict[str, Counter[str]] = {}
    for index, needs_terms in zip(indexes.tolist(), beside.tolist(), strict=True):
        labels = facts[index].labels
        selector = constraints.node_selector.items()
        way = tuple(k for k, v in selector if labels.get(k) != v), needs_terms
        ways[way] += 1
        where.setdefault(way, index)
        if len(way[0]) == 1 and not needs_terms:
            values.setdefault(way[0][0], Counter())[labels.get(way[0][0], "")] += 1
    easiest = [way for way in ways if len(way[0]) + way[1] == 1 and way[0]]
    way = max(easiest or ways, key=ways.__getitem__)
    node, count = situation.names[where[way]], ways[way]
    if not easiest:
        text = f"{_give_up(*way)} ({_nodes(count)} then)"
        yield 1.3, Remedy("affinity", text, node, count, value=",".join(way[0]))
        return
    key = way[0][0]
    wanted = constraints.node_selector[key]
    there = {value: n for value, n in values[key].items() if value}
    if there:
        value = max(sorted(there), key=there.__getitem__)
        node = next(
            situation.names[i]
            for i, failed in zip(indexes.tolist(), beside.tolist(), strict=True)
            if not failed and _is_other_only(facts[i], constraints, key, value)
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


def _is_other_only(
    node: NodeFacts, constraints: Constraints, key: str, value: str
) -> bool:
    """Whether a node has another value of one entry of the selector, all others."""
    wanted = {**constraints.node_selector, key: value}
    return all(node.labels.get(name) == text for name, text in wanted.items())


def _give_up(keys: Sequence[str], needs_terms: bool) -> str:
    """Return what to leave out of the selector, and whether to widen the affinity."""
    told = " and ".join(keys)
    if len(keys) > MAX_TOLD:
        told = f"{len(keys)} entries"
    parts = [f"leave {told} out of its node selector"] if keys else []
    parts += ["widen its required node affinity"] if needs_terms else []
    return " and ".join(parts)


def _taints(situation: Situation) -> Found:
    """Yield the one taint that would have to be tolerated."""
    indexes = np.flatnonzero(situation.fails_only(TAINT))
    facts, constraints = situation.scheduler.facts, situation.scheduler.constraints
    counts: Counter[str] = Counter()
    where: dict[str, int] = {}
    for index in indexes.tolist():
        text = " and ".join(sorted(set(list_taints(facts[index], constraints))))
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


def _neighbours(situation: Situation) -> Found:
    """Yield the port or label of the pod without which its neighbours would take it."""
    newcomer, around = situation.newcomer, situation.scheduler.around
    if newcomer is None or around is None:
        return
    indexes = np.flatnonzero(situation.fails_only(HOST_PORT))
    if len(indexes):
        numbers = ", ".join(str(port.number) for port in newcomer.ports[:MAX_TOLD])
        text = (
            f"ask for another host port than {numbers}, or none"
            f" ({_nodes(len(indexes))} then)"
        )
        node = situation.names[int(indexes[0])]
        yield 0.9, Remedy("hostPort", text, node, len(indexes), value=numbers)
    kept_away = situation.fails_only(KEPT_AWAY)
    if not kept_away.any():
        return
    columns = situation.judged.candidates.columns
    terms = {term for _, term in around.repellers.values()}
    keys = {c.key for term in terms for c in term.conditions or ()}
    for key in sorted(keys & newcomer.labels.keys())[:MAX_TOLD]:
        labels = {name: v for name, v in newcomer.labels.items() if name != key}
        without = look_around(
            situation.judged.snapshot, replace(newcomer, labels=labels)
        )
        indexes = np.flatnonzero(kept_away & ~without.repelled[columns])
        if len(indexes):
            text = f"leave the label {key} out ({_nodes(len(indexes))} then)"
            node = situation.names[int(indexes[0])]
            yield 0.9, Remedy("unlabel", text, node, len(indexes), value=key)
    indexes = np.flatnonzero(kept_away)
    text = f"wait until the pods end that keep it away ({_nodes(len(indexes))} then)"
    yield 1.6, Remedy("wait", text, situation.names[int(indexes[0])], len(indexes))


_FINDERS: Final = (
    _ask_less,
    _other_type,
    _other_resource,
    _other_devices,
    _labels,
    _taints,
    _nodes_to_mend,
    _beside_others,
    _neighbours,
)
