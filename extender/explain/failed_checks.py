"""Every check that each node fails, kube-scheduler's and ours together, by class.

A verdict tells the first check that fails. To say what would help, all of them are
wanted, each once: a node without GPUs fails no check of their type beside that.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from cluster.decode.objects import LabelRequirement, NodeSelectorTerm
from extender.explain.details import DETAILS, Judged, show_gpus, show_size
from extender.explain.explain import Explanation
from extender.explain.scheduler_checks import (
    TOO_MANY_PODS,
    SchedulerChecks,
    show_repelled,
    show_taints,
    show_terms,
)
from scoring.candidates import LABELLED, Candidates, PodRequest
from scoring.eligibility import (
    UNSCHEDULABLE,
    UNTOLERATED,
    WRONG_AFFINITY,
    WRONG_NODE_NAME,
    unmatched_by_all,
)
from scoring.feasibility import Verdict, failed_checks
from scoring.gpu.affinity import RequestedGpus, required_terms
from scoring.gpu.node_gpus import GpuLabelRules
from scoring.gpu.suitability import Suitability, suitability
from scoring.neighbours import REPELLED, TAKEN_PORTS, Neighbourhood
from scoring.quantity import show_amount, show_bytes
from scoring.resources import CPU, PODS, is_whole_gpu
from scoring.snapshot import BoolArray, IndexArray, Int64Array

# Of values in one phrase: what is behind a reason may differ from node to node.
MAX_VALUES: Final = 3

# Nodes of a group that are looked at for such values.
MAX_LOOKED_AT: Final = 200

# classes of reasons, the farthest from being mended first: a node counts under the
# first that it fails
WRONG_NAME: Final = "nodeName"
NO_RESOURCE: Final = "gpuResource"
GPU_TYPE: Final = "gpuType"
GPU_SHARED: Final = "gpuShared"
GPU_TYPE_UNKNOWN: Final = "gpuTypeUnknown"
GPU_MEMORY: Final = "gpuMemory"
GPU_LINKS: Final = "gpuLinks"
LABELS: Final = "nodeAffinity"
TOO_SMALL: Final = "tooSmall"
NODE_NOT_READY: Final = "nodeNotReady"
TAINT: Final = "taint"
GPUS_NOT_READY: Final = "gpusNotReady"
CORDON: Final = "cordon"
HOST_PORT: Final = "hostPort"
KEPT_AWAY: Final = "podAntiAffinity"
NOT_ALONE: Final = "exclusive"
TOO_FULL: Final = "full"

ORDER: Final = (
    WRONG_NAME,
    NO_RESOURCE,
    GPU_TYPE,
    GPU_TYPE_UNKNOWN,
    GPU_SHARED,
    GPU_MEMORY,
    GPU_LINKS,
    LABELS,
    TOO_SMALL,
    NODE_NOT_READY,
    TAINT,
    GPUS_NOT_READY,
    CORDON,
    HOST_PORT,
    KEPT_AWAY,
    NOT_ALONE,
    TOO_FULL,
)

_HOPELESS: Final = 3

# Which nodes a phrase is about -> what is said of them, after their number.
Phrase = Callable[[IndexArray], str]


@dataclass(frozen=True, slots=True, eq=False)
class FailedCheck:
    """One check, and the nodes that fail it.

    Attributes
    ----------
    kind : str
        One of the classes above.
    resource : str
        What is too little, or not offered; empty for other kinds.
    failed : bool array, shape (N,)
    phrase : callable
        Takes the indexes of some nodes that fail; returns what follows their number.
    detail : callable
        Takes the index of one node; returns the numbers behind.
    gives : int64 array, shape (N,), or None
        What each node has of `resource` for the pod, in base units.
    """

    kind: str
    failed: BoolArray
    phrase: Phrase
    detail: Callable[[int], str]
    resource: str = ""
    asked: int = 0
    gives: Int64Array | None = None

    @property
    def reason_class(self) -> str:
        """The class of the reason: a constant text without numbers."""
        return f"{self.kind}:{self.resource}" if self.resource else self.kind


def resource_words(resource: str) -> str:
    """Return what a resource is called in a sentence.

    >>> resource_words("cpu"), resource_words("nvidia.com/gpu")
    ('CPU', 'GPUs')
    """
    if resource == CPU:
        return "CPU"
    return (
        "GPUs" if is_whole_gpu(resource) else resource.replace("-storage", " storage")
    )


@dataclass(frozen=True, slots=True, eq=False)
class FailedChecks:
    """All checks that some node fails, in the order of their classes.

    Attributes
    ----------
    unmatched : bool array, shape (N,)
        Where the pod's own affinity for labels of GPUs fails, too, which is told as the
        type that it wants: who accepts another type does not get these nodes.
    """

    failed: tuple[FailedCheck, ...]
    unmatched: BoolArray

    def counts(self, node_count: int) -> Int64Array:
        """Return how many checks each node fails, int64 of shape (N,).

        To have none of the resource counts as several: no small change mends it.
        """
        counts = np.zeros(node_count, dtype=np.int64)
        for check in self.failed:
            counts += check.failed * (_HOPELESS if check.kind == NO_RESOURCE else 1)
        return counts

    def nearest(self, node_count: int) -> FailedCheck:
        """Return the check that keeps a pod from the nodes which come nearest.

        A node counts under the first check that it fails, and the last of these is the
        nearest to being mended; of one class, that of the most nodes.
        """
        left = np.ones(node_count, dtype=np.bool_)
        found: list[tuple[int, int, FailedCheck]] = []
        for check in self.failed:
            if count := int(np.count_nonzero(check.failed & left)):
                found.append((ORDER.index(check.kind), count, check))
            left &= ~check.failed
        return max(found, key=lambda item: item[:2])[2]


def list_failed_checks(
    explanation: Explanation, judged: Judged, check: Callable[[], None] = lambda: None
) -> FailedChecks:
    """Return all checks that some node fails, in the order of their classes.

    Parameters
    ----------
    judged : Judged
        All nodes, without terms.
    check : callable
        Called between parts, to end the work by an error.
    """
    checks = explanation.checks
    if checks is None:
        raise ValueError("explanation: wanted kube-scheduler's own checks, got none")
    builder = _Builder(explanation, judged, checks)
    found: list[FailedCheck] = []
    for part in (
        builder.of_labels,
        builder.of_neighbours,
        builder.of_gpus,
        builder.of_amounts,
    ):
        check()
        found += part()
    order = {kind: rank for rank, kind in enumerate(ORDER)}
    failing = [check for check in found if check.failed.any()]
    # Of a node that lacks GPUs and more, the GPUs are told.
    failing.sort(key=lambda check: (order[check.kind], "/" not in check.resource))
    return FailedChecks(tuple(failing), builder.unmatched)


def without_own_types(
    terms: tuple[NodeSelectorTerm, ...] | None,
    pod_request: PodRequest,
    rules: GpuLabelRules,
) -> tuple[NodeSelectorTerm, ...] | None:
    """Return the terms without what the webhook writes of the GPUs that a pod wants.

    That is a list of accepted values which has all that the table knows of the types;
    without types, one of values to be kept out; and one of memory too small. None where
    a term has nothing else: then any node is left open.
    """
    wanted = pod_request.gpu_requirements
    criteria = RequestedGpus(wanted, pod_request.request)
    known = {
        rule.key: {*rule.values}
        for term in (required_terms(rules, criteria, ()) if wanted.types else ())
        for rule in term
        if rule.operator == "In"
    }

    def is_own(item: LabelRequirement) -> bool:
        values = {*(item.values or ())}
        if item.operator == "In":
            return not known.get(item.key, {""}) <= values
        is_of_memory = item.key in rules.memory_labels
        return item.operator != "NotIn" or not (is_of_memory or not wanted.types)

    left: list[NodeSelectorTerm] = []
    for term in terms or ():
        own = tuple(item for item in term.expressions or () if is_own(item))
        if term.expressions and not own and not term.fields:
            return None
        left.append(NodeSelectorTerm(own, term.fields))
    return None if terms is None else tuple(left)


class _Builder:
    """Builds the checks of one explanation."""

    def __init__(
        self, explanation: Explanation, judged: Judged, checks: SchedulerChecks
    ) -> None:
        self._judged = judged
        self._checks = checks
        self._candidates: Candidates = judged.candidates
        self._pod_request: PodRequest = judged.pod_request
        self._names = explanation.verb_call.names
        self._request = explanation.subject.request
        self._ports = explanation.subject.ports
        count = len(self._names)
        self._none = np.zeros(count, dtype=np.bool_)
        ours: dict[Verdict, BoolArray] = {}
        if self._pod_request.request:
            short = np.logical_or.reduce(judged.short, axis=0)
            found = failed_checks(
                self._candidates, self._pod_request, short & ~self._candidates.nominated
            )
            for verdict, failed in found:
                # An entry of the node selector is told as that.
                is_label = verdict is Verdict.WRONG_TYPE and verdict not in ours
                if is_label and self._pod_request.accelerator is not None:
                    ours[verdict] = self._none
                else:
                    ours[verdict] = ours.get(verdict, self._none) | failed
        self._ours = ours
        self._subject = explanation.subject
        self.unmatched = self._none
        absent = [Verdict.IN_PARTS, Verdict.NO_GPU, Verdict.NO_SUCH_RESOURCE]
        self._lacking = self._where(*absent)
        # Devices go while MIG or the driver is being changed.
        is_labelled = (self._candidates.instead & LABELLED) > 0
        self._gone = self._candidates.faulted & is_labelled

    def _where(self, *verdicts: Verdict) -> BoolArray:
        """Return where one of our checks fails."""
        failed = self._none
        for verdict in verdicts:
            failed = failed | self._ours.get(verdict, self._none)
        return failed

    def of_labels(self) -> Iterable[FailedCheck]:
        """Yield kube-scheduler's own checks but those of amounts."""
        checks, failed = self._checks, self._checks.failed
        unready = np.array([not node.is_ready for node in checks.facts], dtype=np.bool_)
        of_type = self._where(
            Verdict.WRONG_TYPE, Verdict.TYPE_UNKNOWN, Verdict.TOO_LITTLE_MEMORY
        )
        # The webhook writes the type that is wanted into the affinity: one wish, told
        # once.
        unmatched = failed[WRONG_AFFINITY]
        if of_type.any() and self._has_affinity_of_gpus_alone():
            told = ~of_type | self._misses_selector(unmatched)
            self.unmatched = self._miss_own_affinity(unmatched & ~told)
            unmatched = unmatched & told
        for kind, reason, where, phrase in (
            (WRONG_NAME, WRONG_NODE_NAME, failed[WRONG_NODE_NAME], self._say_name),
            (LABELS, WRONG_AFFINITY, unmatched, self._say_labels),
            (NODE_NOT_READY, UNTOLERATED, unready, _plain("is", "are", "not ready")),
            (TAINT, UNTOLERATED, failed[UNTOLERATED] & ~unready, self._say_taints),
            (
                CORDON,
                UNSCHEDULABLE,
                failed[UNSCHEDULABLE],
                _plain("is", "are", "cordoned"),
            ),
        ):
            yield FailedCheck(kind, where, phrase, partial(checks.detail_of, reason))

    def of_neighbours(self) -> Iterable[FailedCheck]:
        """Yield what the pods of nodes keep the pod from."""
        around, detail_of = self._checks.around, self._checks.detail_of
        if around is None:
            return
        columns = self._candidates.columns
        for kind, reason, where, phrase in (
            (HOST_PORT, TAKEN_PORTS, around.taken, self._say_ports),
            (KEPT_AWAY, REPELLED, around.repelled, self._say_repellers),
        ):
            detail = partial(detail_of, reason)
            yield FailedCheck(kind, where[columns], partial(phrase, around), detail)

    def _has_affinity_of_gpus_alone(self) -> bool:
        """Whether the required node affinity reads labels about GPUs only."""
        reads = self._judged.options.builder.gpus.reads
        return all(
            reads(item.key)
            for term in self._checks.constraints.affinity_terms or ()
            for item in (*(term.expressions or ()), *(term.fields or ()))
        )

    def _miss_own_affinity(self, among: BoolArray) -> BoolArray:
        """Return which nodes miss the affinity that the pod's author wrote.

        Of a pod that is there already, what the webhook would write is left out.
        """
        missed, subject = self._none.copy(), self._subject
        terms = subject.written_terms
        if subject.is_created:
            wish, rules = self._pod_request, self._judged.options.builder.gpus.rules
            terms = without_own_types(subject.constraints.affinity_terms, wish, rules)
        indexes = np.flatnonzero(among)
        facts = [self._checks.facts[index] for index in indexes.tolist()]
        missed[indexes] = unmatched_by_all(facts, terms)
        return missed

    def _misses_selector(self, among: BoolArray) -> BoolArray:
        """Return which nodes miss an entry of the node selector."""
        missed = self._none.copy()
        selector = self._checks.constraints.node_selector
        for index in np.flatnonzero(among).tolist() if selector else ():
            labels = self._checks.facts[index].labels
            missed[index] = any(
                labels.get(name) != value for name, value in selector.items()
            )
        return missed

    def of_gpus(self) -> Iterable[FailedCheck]:
        """Yield our own checks but those of amounts."""
        yield from self._of_absent()
        lacking, judged, shared = self._lacking, self._judged, self._suits_if_shared()
        for kind, verdicts, phrase in (
            (GPU_TYPE, (Verdict.WRONG_TYPE,), self._say_types),
            (GPU_SHARED, (Verdict.WRONG_TYPE,), self._say_shared),
            (
                GPU_TYPE_UNKNOWN,
                (Verdict.TYPE_UNKNOWN,),
                _plain("has", "have", "GPUs of an unknown model or memory"),
            ),
            (GPU_MEMORY, (Verdict.TOO_LITTLE_MEMORY,), self._say_memory),
            (
                GPU_LINKS,
                (Verdict.UNLINKED,),
                _plain("has", "have", "no set of linked GPUs free"),
            ),
            (GPUS_NOT_READY, (Verdict.NOT_READY,), self._say_unready),
            (NOT_ALONE, (Verdict.NOT_ALONE, Verdict.NOT_ALONE_NOW), self._say_alone),
        ):
            failed = self._where(*verdicts)
            if kind == GPUS_NOT_READY:
                failed = failed & (~lacking | self._gone)
            else:
                failed = failed & ~lacking
            if kind in {GPU_TYPE, GPU_SHARED}:
                failed = failed & (shared if kind == GPU_SHARED else ~shared)
            detail = partial(_detail_of, judged, verdicts, self._ours)
            yield FailedCheck(kind, failed, phrase, detail)

    def _of_absent(self) -> Iterable[FailedCheck]:
        """Yield, for each managed resource that is asked, where nobody offers it."""
        verdicts = (Verdict.IN_PARTS, Verdict.NO_GPU, Verdict.NO_SUCH_RESOURCE)
        detail = partial(_detail_of, self._judged, verdicts, self._ours)
        primary = self._pod_request.primary
        rows = {name: row for row, (name, _) in enumerate(self._pod_request.request)}
        for name in sorted(rows, key=lambda name: (name != primary, name)):
            absent = self._lacking & ~self._candidates.offered[rows[name]] & ~self._gone
            phrase = partial(self._say_lacking, name)
            yield FailedCheck(NO_RESOURCE, absent, phrase, detail, name)

    def _suits_if_shared(self) -> BoolArray:
        """Return whose GPUs would suit a pod that takes shares and slices."""
        pod_request, gpus = self._pod_request, self._judged.snapshot.gpus
        wanted = pod_request.gpu_requirements
        if not wanted.wants_whole_gpus or not wanted.is_readable:
            return self._none
        taking = replace(wanted, is_sharing_allowed=True)
        suits = np.array(
            [
                suitability(kind, taking, pod_request.request) is Suitability.SUITS
                for kind in gpus.kinds
            ],
            dtype=np.bool_,
        )
        found: BoolArray = suits[gpus.codes[self._candidates.columns]]
        return found

    def of_amounts(self) -> Iterable[FailedCheck]:
        """Yield what is too little, of every resource and whoever counts it."""
        checks, candidates = self._checks, self._candidates
        rows = {name: row for row, (name, _) in enumerate(checks.pod_request.request)}
        ours = {name: row for row, (name, _) in enumerate(self._pod_request.request)}
        for name, asked in self._request:
            if name in rows:
                tables, row, short = checks.candidates, rows[name], checks.short
            else:
                tables, row, short = candidates, ours[name], self._judged.short
            is_short = short[row]
            if name in ours:
                # Told by what is absent, or not ready, already.
                gone = ~candidates.offered[ours[name]] | (
                    (candidates.allocatable[ours[name]] == 0)
                    & self._where(Verdict.NOT_READY)
                )
                is_short = is_short & ~gone
                if name not in rows:
                    is_short = is_short & ~candidates.nominated
            if not is_short.any():
                continue
            total = tables.allocatable[row]
            free = np.maximum(total - tables.requested[row], 0)
            for kind, failed, gives in (
                (TOO_SMALL, is_short & (total < asked), total),
                (TOO_FULL, is_short & (total >= asked), free),
            ):
                phrase = partial(_say_amount, kind, name, asked, gives)
                detail = partial(_show_free, name, asked, total, free)
                yield FailedCheck(kind, failed, phrase, detail, name, asked, free)

    def _say_name(self, indexes: IndexArray) -> str:
        verb = "is" if len(indexes) == 1 else "are"
        return (
            f"{verb} not the node that it names, {self._checks.constraints.node_name}"
        )

    def _say_labels(self, indexes: IndexArray) -> str:
        verb = "does" if len(indexes) == 1 else "do"
        selector = self._checks.constraints.node_selector
        missed: Counter[str] = Counter()
        values: dict[str, Counter[str]] = {key: Counter() for key in selector}
        for index in _some(indexes):
            labels = self._checks.facts[index].labels
            for key, value in selector.items():
                if labels.get(key) != value:
                    missed[key] += 1
                    values[key][labels.get(key, "no such label")] += 1
        if not missed:
            wanted = show_terms(self._checks.constraints)
            return f"{verb} not match its node affinity{wanted}"
        key = missed.most_common(1)[0][0]
        has = [value for value, _ in values[key].most_common(MAX_VALUES)]
        has += ["..."] if len(values[key]) > MAX_VALUES else []
        shown = f"{key}={selector[key]}, there is {', '.join(has)}"
        return f"{verb} not match its node selector ({shown})"

    def _say_taints(self, indexes: IndexArray) -> str:
        facts, constraints = self._checks.facts, self._checks.constraints
        texts = (show_taints(facts[i], constraints) for i in _some(indexes))
        verb = "has" if len(indexes) == 1 else "have"
        return f"{verb} a taint that it does not tolerate{_most_common(texts)}"

    def _say_ports(self, around: Neighbourhood, indexes: IndexArray) -> str:
        verb = "has" if len(indexes) == 1 else "have"
        numbers = [str(port.number) for port in self._ports[:MAX_VALUES]]
        ports = "one of the host ports" if len(self._ports) > 1 else "the host port"
        taker = around.takers[int(self._candidates.columns[indexes[0]])]
        name = f"{taker.namespace}/{taker.name}"
        return f"{verb} {ports} {', '.join(numbers)} in use (by {name})"

    def _say_repellers(self, around: Neighbourhood, indexes: IndexArray) -> str:
        verb = "has" if len(indexes) == 1 else "have"
        pod, term = around.repellers[int(self._candidates.columns[indexes[0]])]
        name = f"{pod.namespace}/{pod.name}"
        return f"{verb} a pod near that keeps away {show_repelled(term)} ({name})"

    def _say_lacking(self, asked: str, indexes: IndexArray) -> str:
        verb = "has" if len(indexes) == 1 else "have"
        snapshot = self._judged.snapshot
        columns = self._candidates.columns[indexes]
        is_managed = self._judged.options.builder.scope.is_managed
        offered = Counter(
            {
                name: int(np.count_nonzero(snapshot.offered[row, columns]))
                for row, name in enumerate(snapshot.resources)
                if is_managed(name)
            }
        )
        names = [name for name, count in offered.most_common(MAX_VALUES) if count]
        if is_whole_gpu(asked) and self._where(Verdict.IN_PARTS)[indexes].all():
            return f"{verb} only cut or shared GPUs ({', '.join(names)})"
        is_without = self._where(Verdict.NO_GPU) & ~self._where(Verdict.IN_PARTS)
        if is_whole_gpu(asked) and is_without[indexes].all():
            return f"{verb} no GPU"
        verb = "does" if len(indexes) == 1 else "do"
        # Where they are the few, it matters little what they have instead.
        is_told = names and 2 * len(indexes) >= len(self._names)
        shown = f" (but {', '.join(names)})" if is_told else ""
        return f"{verb} not offer {asked}{shown}"

    def _say_types(self, indexes: IndexArray) -> str:
        verb = "has" if len(indexes) == 1 else "have"
        return f"{verb} other GPUs{_most_common(self._kinds_of(indexes))}"

    def _say_shared(self, indexes: IndexArray) -> str:
        verb = "has" if len(indexes) == 1 else "have"
        return f"{verb} no whole GPUs{_most_common(self._kinds_of(indexes))}"

    def _kinds_of(self, indexes: IndexArray) -> Counter[str]:
        """Return what the GPUs of some nodes are called, and how many have them."""
        snapshot = self._judged.snapshot
        columns = self._candidates.columns[indexes]
        codes, counts = np.unique(snapshot.gpus.codes[columns], return_counts=True)
        found: Counter[str] = Counter()
        for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
            gpus = snapshot.gpus.kinds[code]
            found[show_gpus(gpus) if gpus.model else "of an unknown model"] += count
        key = self._judged.options.label_keys.accelerator
        if set(found) == {"of an unknown model"} and key in snapshot.labels:
            label = snapshot.labels[key]
            found = Counter()
            for value, code in label.code_of.items():
                found[value] = int(np.count_nonzero(label.codes[columns] == code))
        return +found

    def _say_memory(self, indexes: IndexArray) -> str:
        verb = "has" if len(indexes) == 1 else "have"
        gpus, primary = self._judged.snapshot.gpus, self._pod_request.primary
        codes = np.unique(gpus.codes[self._candidates.columns[indexes]]).tolist()
        sizes = [gpus.kinds[code].memory_of(primary) for code in codes]
        largest = show_size(max(sizes, key=lambda size: size.high))
        needs = show_bytes(self._pod_request.gpu_requirements.min_memory)
        return f"{verb} too little GPU memory (needs {needs}, largest {largest})"

    def _say_unready(self, indexes: IndexArray) -> str:
        texts = (
            _detail_of(self._judged, (Verdict.NOT_READY,), self._ours, index)
            .partition(";")[0]
            .partition(" (usable")[0]
            for index in _some(indexes)
        )
        verb = "has" if len(indexes) == 1 else "have"
        return f"{verb} GPUs that are not ready{_most_common(texts)}"

    def _say_alone(self, indexes: IndexArray) -> str:
        if self._pod_request.gpu_requirements.is_exclusive:
            verb = "has" if len(indexes) == 1 else "have"
            return f"{verb} other GPU pods, and it wants to be alone"
        verb = "has" if len(indexes) == 1 else "have"
        return f"{verb} a pod that wants no other GPU pod beside it"


def _plain(one: str, many: str, rest: str) -> Phrase:
    """Return a phrase that has no numbers."""
    return lambda indexes: f"{one if len(indexes) == 1 else many} {rest}"


def _some(indexes: IndexArray) -> list[int]:
    """Return the first of many indexes."""
    some: list[int] = indexes[:MAX_LOOKED_AT].tolist()
    return some


def _most_common(texts: Iterable[str]) -> str:
    """Return the texts that are there most often, in brackets; nothing for none."""
    counts = texts if isinstance(texts, Counter) else Counter(filter(None, texts))
    shown = [text for text, _ in counts.most_common(MAX_VALUES)]
    if len(counts) > MAX_VALUES:
        shown.append("...")
    return f" ({', '.join(shown)})" if shown else ""


def _detail_of(
    judged: Judged,
    verdicts: Sequence[Verdict],
    ours: dict[Verdict, BoolArray],
    index: int,
) -> str:
    """Return the numbers behind the first of some verdicts that holds of a node."""
    for verdict in verdicts:
        failed = ours.get(verdict)
        if failed is not None and failed[index]:
            return DETAILS[verdict](judged, index)
    return ""


def _say_amount(
    kind: str, resource: str, asked: int, gives: Int64Array, indexes: IndexArray
) -> str:
    """Return what some nodes have too little of."""
    is_one = len(indexes) == 1
    most = show_amount(resource, int(gives[indexes].max()))
    needs, words = show_amount(resource, asked), resource_words(resource)
    is_gpu = words == "GPUs" or "/" in resource
    if kind == TOO_SMALL:
        verb = (
            ("lacks" if is_one else "lack")
            if not is_gpu
            else ("has too few" if is_one else "have too few")
        )
        return f"{verb} {words} (needs {needs}, largest node {most})"
    if resource == PODS:
        return f"{'has' if is_one else 'have'} as many pods as fit ({TOO_MANY_PODS})"
    if is_gpu:
        verb = "is" if is_one else "are"
        return f"{verb} full (needs {needs} {words}, at most {most} free)"
    verb = "has" if is_one else "have"
    return f"{verb} too little {words} free (needs {needs}, at most {most} free)"


def _show_free(
    resource: str, asked: int, total: Int64Array, free: Int64Array, index: int
) -> str:
    """Return the numbers of one resource on one node."""
    wanted, has, of = (
        show_amount(resource, amount)
        for amount in (asked, int(free[index]), int(total[index]))
    )
    return f"asks {wanted} {resource}: {has} free of {of}"
