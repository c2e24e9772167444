"""Numbers behind a verdict, a function for each, in words."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np

from cluster.decode.objects import NodeRecord
from extender.explain.explain import Explanation
from extender.verbs.options import VerbOptions
from extender.verbs.verbs import find_siblings, nearness_of, with_assumed
from scoring.candidates import Candidates, PodRequest, free_gpus, take_columns
from scoring.feasibility import Verdict, short_of
from scoring.gpu.node_gpus import NO_GPUS, Bounds, NodeGpus
from scoring.gpu.requirements import GpuRequirements
from scoring.packing.fragmentation import broken_shapes, fits, fragmentation
from scoring.packing.learning import NOBODY_EXPECTED, ExpectedPods
from scoring.packing.mig import MigGpus, Placement, index_of, place_all, weigh_profiles
from scoring.packing.prices import Outlook, outlook_of
from scoring.packing.shapes import WHOLE, Shape
from scoring.protocols import NodeFacts
from scoring.quantity import MAX_QUANTITY, show_amount, show_bytes, show_free
from scoring.resources import Request, is_part, is_whole_gpu
from scoring.snapshot import BoolArray, Float64Array, IndexArray, Snapshot
from scoring.topology.devices import CONTRADICTED
from scoring.topology.layouts import NO_LINKS, LinkLayout, NodeLinks, gpus_of
from scoring.topology.tables import best_sets, table_of


def show_gpu_requirements(gpu_requirements: GpuRequirements, request: Request) -> str:
    """Return what narrows down which GPUs will do; empty for nothing.

    Whole ones are wanted only where GPUs are requested, not slices or shares.

    >>> two = GpuRequirements(("H100", "A100"), ("L4",))
    >>> show_gpu_requirements(two, (("nvidia.com/gpu", 1),))
    'H100 or A100, not L4, whole cards'
    >>> large = GpuRequirements(min_memory=40 * 2**30)
    >>> show_gpu_requirements(large, (("nvidia.com/mig-1g.10gb", 1),))
    'at least 40Gi of memory'
    """
    parts = []
    if gpu_requirements.types:
        parts.append(" or ".join(gpu_requirements.types))
    if gpu_requirements.excluded:
        parts.append("not " + " or ".join(gpu_requirements.excluded))
    if gpu_requirements.min_memory:
        parts.append(f"at least {show_bytes(gpu_requirements.min_memory)} of memory")
    is_linked = gpu_requirements.linked == "required"
    if gpu_requirements.wants_whole_gpus and any(
        is_whole_gpu(name) or (is_linked and is_part(name)) for name, _ in request
    ):
        parts.append("whole cards")
    return ", ".join(parts)


def show_gpus(gpus: NodeGpus, request: Request = ()) -> str:
    """Return what a node's GPUs are, with the memory of what is requested.

    >>> show_gpus(NodeGpus(model="A100", is_shared=True, replicas=4))
    'A100, shared by 4'
    """
    parts = [gpus.model or "cards of an unknown model"]
    if gpus.is_part:
        size = "" if request else f" of {show_size(gpus.memory)}"
        parts.append(f"parts of a card{size}")
    if gpus.profile:
        parts.append(f"cut into {gpus.profile}")
    if gpus.is_shared:
        parts.append(f"shared by {gpus.replicas or 'an unknown number'}")
    for resource, _ in request:
        parts.append(f"{resource} with {show_size(gpus.memory_of(resource))}")
    return ", ".join(parts)


def show_size(size: Bounds) -> str:
    """Return between which sizes some memory is.

    >>> show_size(Bounds(2**30, 2**30)), show_size(Bounds())
    ('1Gi', 'memory unknown')
    """
    if size.low == size.high:
        return show_bytes(size.low)
    if size.high >= MAX_QUANTITY:
        return f"at least {show_bytes(size.low)}" if size.low else "memory unknown"
    return f"{show_bytes(size.low)} to {show_bytes(size.high)}"


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """One pod on C candidates, with all that verdicts and scores are computed from.

    Attributes
    ----------
    candidates : Candidates
        As the verdicts see them.
    crowded : Candidates
        The same with the requests of assumed pods, as the scores see them.
    terms : mapping
        score term -> float64 array, shape (C,)
    short : bool array, shape (Q, C)
        True where our count of a free amount is too low.
    siblings : mapping
        label key and value of a domain -> how many other pods of the job are there, or
        put there
    sibling_count : int
        How many there are in all; 0 where no score goes by them.
    """

    snapshot: Snapshot
    pod_request: PodRequest
    options: VerbOptions
    candidates: Candidates
    crowded: Candidates
    terms: Mapping[str, Float64Array]
    short: BoolArray
    siblings: Mapping[tuple[str, str], int]
    sibling_count: int

    @classmethod
    def of(
        cls, explanation: Explanation, indexes: IndexArray, *, with_scores: bool = True
    ) -> Self:
        """Take the candidates at `indexes` of an explanation."""
        verb_call, options = explanation.verb_call, explanation.options
        pod_request, snapshot = verb_call.pod_request, verb_call.snapshot
        candidates = crowded = take_columns(
            snapshot, verb_call.columns[indexes], pod_request, options.label_keys
        )
        if explanation.assumed and with_scores:
            crowded = with_assumed(
                candidates, pod_request, snapshot, explanation.assumed
            )
        siblings: Mapping[str, int] = {}
        near = nearness_of(verb_call, candidates.columns, options, explanation.assumed)
        if near is not None and with_scores:
            siblings = find_siblings(pod_request, snapshot, explanation.assumed)
            crowded = replace(crowded, nearness=near)
        terms: Mapping[str, Float64Array] = {}
        if options.scores(pod_request) and len(indexes) and with_scores:
            terms = options.score_terms(crowded, pod_request)
        short = short_of(candidates, pod_request)
        return cls(
            snapshot,
            pod_request,
            options,
            candidates,
            crowded,
            terms,
            short,
            _by_domain(siblings, snapshot, options.label_keys.domains),
            sum(siblings.values()),
        )

    @property
    def expected(self) -> ExpectedPods:
        """The pods that are expected, by the settings or as learned."""
        capacity = self.crowded.capacity
        learned = NOBODY_EXPECTED if capacity is None else capacity.expected
        return self.options.score_options.expected or learned

    @property
    def outlook(self) -> Outlook | None:
        """What prices are computed from; None where no score goes by them."""
        capacity = self.crowded.capacity
        if capacity is None:
            return None
        return outlook_of(self.expected, capacity.supply)

    def facts(self, index: int) -> NodeFacts:
        """Return what is known of the candidate at `index`, which must be known."""
        return self.snapshot.facts[int(self.candidates.columns[index])]

    def model(self, index: int) -> str:
        """Return the model of the candidate's GPUs, empty if unknown."""
        if not self.candidates.known[index]:
            return ""
        facts = self.facts(index)
        return facts.gpus.model if isinstance(facts, NodeRecord) else ""

    def links(self, index: int) -> NodeLinks:
        """Return what is known of the links of the candidate's GPUs."""
        if not self.candidates.known[index]:
            return NO_LINKS
        return self.facts(index).links

    def capacity(self, index: int, resource: str) -> int:
        """Return the node's capacity of a resource, 0 where it is not kept."""
        facts = self.facts(index)
        return (
            dict(facts.capacity).get(resource, 0)
            if isinstance(facts, NodeRecord)
            else 0
        )

    def shown(self, index: int, rows: BoolArray) -> str:
        """Return the numbers of the asked resources that `rows` picks, shape (Q,)."""
        return "; ".join(
            show_free(
                resource,
                asked,
                int(self.candidates.allocatable[row, index]),
                int(self.candidates.requested[row, index]),
                self.capacity(index, resource),
            )
            for row, (resource, asked) in enumerate(self.pod_request.request)
            if rows[row]
        )


def _links_matter(judged: Judged, index: int) -> bool:
    """Whether verdict or score of a candidate go by its links, or should."""
    pod_request, mode = judged.pod_request, judged.options.score_options.topology
    kind = judged.crowded.link_kinds[int(judged.crowded.link_codes[index])]
    if not pod_request.reads_links or not judged.candidates.known[index]:
        return False
    if mode == "graded":
        return True
    is_asked = bool(pod_request.gpu_requirements.linked) or mode == "auto"
    has_links = kind.is_measured or bool(judged.links(index).fault)
    return pod_request.gpus > 1 and is_asked and has_links


def show_links(judged: Judged, index: int) -> str:
    """Return which GPUs the pod would get, what is left, and what that breaks."""
    size, crowded = judged.pod_request.gpus, judged.crowded
    links, free = judged.links(index), int(crowded.free_sets[index])
    layout, keys = links.layout, judged.options.builder.links
    if links.fault:
        return f"links unknown: annotation {keys.links}: {links.fault}"
    if layout is None or size > layout.count:
        return "links unknown"
    table = table_of(layout, size)
    if free < 0 or not table.picked[free]:
        why = (
            f"annotation {keys.allocated} of its pods cannot be right"
            if free == CONTRADICTED
            else f"{int(free_gpus(crowded, judged.pod_request)[index])} of"
            f" {layout.count}"
        )
        best = show_set(layout, int(table.picked[layout.full]))
        return f"which GPUs are free is not known ({why}); empty, it gives {best}"
    picked = int(table.picked[free])
    parts = [f"would get {show_set(layout, picked)}"]
    if size > 1 and table.best[free] > layout.bandwidth[picked]:
        parts.append(f"best there {table.best[free]:.0f} GB/s")
    parts.append(f"leaves {show_gpu_numbers(free & ~picked)}")
    broken = [
        f"a set of {other} ({before:.0f} GB/s)"
        for other in (2, 4, 8, 16)
        if other <= layout.count
        for before in (float(best_sets(layout, other)[free]),)
        if best_sets(layout, other)[free & ~picked] < before
    ]
    parts.append(f"breaks {', '.join(broken) or 'nothing'}")
    return ", ".join(parts)


def show_set(layout: LinkLayout, gpus: int) -> str:
    """Return a set of GPUs with its bandwidth.

    >>> from scoring.topology.layouts import NAMED_LAYOUTS, layout_of
    >>> show_set(layout_of(*NAMED_LAYOUTS["dgx-1-v100"]), 0b1001)
    'GPUs 0 3 (100 GB/s, NVLink)'
    """
    way = "NVLink" if layout.is_linked[gpus] else "PCIe"
    speed = (
        f" ({layout.bandwidth[gpus]:.0f} GB/s, {way})" if layout.bandwidth[gpus] else ""
    )
    return f"{show_gpu_numbers(gpus)}{speed}"


def show_gpu_numbers(gpus: int) -> str:
    """Return the numbers of GPUs.

    >>> show_gpu_numbers(0b1001), show_gpu_numbers(0)
    ('GPUs 0 3', 'none')
    """
    found = " ".join(map(str, gpus_of(gpus)))
    return f"GPU{'s' if gpus.bit_count() > 1 else ''} {found}" if gpus else "none"


def show_instances(judged: Judged, index: int) -> str:
    """Return where the pod's MIG instances would be made, and what that breaks."""
    gpus, pod_request = judged.crowded.mig[index], judged.pod_request
    facts = judged.facts(index)
    if gpus is None:
        is_on_demand = isinstance(facts, NodeRecord) and facts.mig is not None
        unknown = "which MIG slices are in use is not known"
        return unknown if is_on_demand else ""
    placements = place_all(gpus, pod_request.mig_instances)
    if placements is None:
        return "by the slices in use there is no place"
    several = len(placements) > 1
    return "; ".join(
        f"{profile} " * several + _show_placement(gpus, profile, found)
        for profile, found in placements
    )


def _show_placement(gpus: MigGpus, profile: str, found: Placement) -> str:
    """Return where instances of one profile would be made, and what that breaks."""
    rows = list(
        zip(
            (known.name for known in gpus.geometry),
            weigh_profiles(gpus.geometry, index_of(gpus.geometry, profile) or 0),
            found.before,
            found.after,
            strict=True,
        )
    )
    broken = [
        f"{before - after} of {before} for {name}" if after else f"the last for {name}"
        for name, weight, before, after in rows
        if weight and after < before
    ]
    left = [
        f"{after} for {name}" for name, _, _, after in rows if after and "+" not in name
    ]
    where = ", ".join(f"slice {start} of GPU {gpu}" for gpu, start in found.windows)
    return (
        f"would begin at {where}, leaves places: {', '.join(left) or 'none'},"
        f" breaks {', '.join(broken) or 'nothing larger'}"
    )


def show_siblings(judged: Judged, index: int) -> str:
    """Return how many other pods of the job share which domain of a candidate."""
    labels, total = judged.facts(index).labels, judged.sibling_count
    found = [
        (judged.siblings.get((key, labels[key]), 0), f"{key}={labels[key]}")
        for key in judged.options.label_keys.domains
        if key in labels
    ]
    said = [f"{here} of {total} in {domain}" for here, domain in found if here]
    return f"other pods of its job: {', '.join(said) or f'none of {total} near'}"


def _by_domain(
    siblings: Mapping[str, int], snapshot: Snapshot, keys: Iterable[str]
) -> Mapping[tuple[str, str], int]:
    """Return how many of the pods, given by node name, are in which domain."""
    found = Counter[tuple[str, str]]()
    for name, count in siblings.items():
        labels = snapshot.facts[snapshot.nodes.column_of[name]].labels
        for key in keys:
            if key in labels:
                found[key, labels[key]] += count
    return found


# Kinds of pods that are named in one line.
MAX_KINDS: Final = 3


def show_packing(judged: Judged, index: int) -> str:
    """Return what the pod would leave there, and which expected pods find no room."""
    crowded, outlook = judged.crowded, judged.outlook
    capacity = crowded.capacity
    if capacity is None or outlook is None or crowded.claimed[:, index].any():
        return ""
    shape, before = capacity.shape_at(index), capacity.free.alone(index)
    if not fits(before, shape)[0]:
        return "does not fit by our count"
    after = before.alone(0)
    after.take_for(0, shape)
    gpus, cores = after.devices.sum() / WHOLE, after.cpu[0] / 1000
    unusable = (fragmentation(free, outlook.demand)[0] for free in (before, after))
    was, now = unusable
    said = [
        f"leaves {_counted(gpus, 'GPU')} and {_counted(cores, 'core')}",
        f"{now:.2f} GPUs of no use to the pods that come, {was:.2f} before",
    ]
    broken = broken_shapes(before, after, judged.expected, capacity.supply)
    if gpus and broken:  # without a GPU there is no room for any of them
        kinds = [
            f"{show_shape(kind)} ({part:.0%})" for kind, part in broken[:MAX_KINDS]
        ]
        more = f" and {len(broken) - MAX_KINDS} more" * (len(broken) > MAX_KINDS)
        said.append(f"no room then for {', '.join(kinds)}{more} of them")
    insistence = float(outlook.insistence[before.models[0]])
    if shape.gpus and insistence:
        model = judged.model(index) or "its GPUs"
        said.append(f"{model} insisted on {insistence:.2f} times what there is")
    return ", ".join(said)


def _counted(number: float, what: str) -> str:
    return f"{number:g} {what}{'' if number == 1 else 's'}"


def show_shape(shape: Shape) -> str:
    """Return what a kind of pod asks.

    >>> show_shape(Shape(8000, 1)), show_shape(Shape(500, 1, 250))
    ('1 GPU with 8 cores', '0.25 GPU with 0.5 cores')
    """
    gpus = shape.total / WHOLE
    return f"{gpus:g} GPU{'s' if gpus > 1 else ''} with {shape.cpu / 1000:g} cores"


def _about_feasible(judged: Judged, index: int) -> str:
    """Return the numbers of all asked resources, and which of them we count short."""
    if not judged.pod_request.request:
        nothing = "asks nothing that is managed"
        return "; ".join(filter(None, (nothing, show_packing(judged, index))))
    claimed = judged.candidates.claimed[:, index]
    said = [judged.shown(index, ~claimed)] if not claimed.all() else []
    said += [
        f"{name} comes from a DeviceClass: not counted here"
        for (name, _), is_claimed in zip(
            judged.pod_request.request, claimed, strict=True
        )
        if is_claimed
    ]
    if judged.short[:, index].any():
        said.append(
            "exempt from our count: the nominated node"
            if judged.candidates.nominated[index]
            else "too few by our count, kube-scheduler's is trusted"
        )
    said.append(show_prospect(judged, index))
    return "; ".join(filter(None, said))


def show_prospect(judged: Judged, index: int) -> str:
    """Return what the pod would get of a candidate, and what that leaves and breaks.

    Empty where no score goes by it.
    """
    if not judged.candidates.known[index]:
        return ""
    said = []
    if _links_matter(judged, index):
        said.append(show_links(judged, index))
    if judged.options.weights.get("mig") and judged.pod_request.mig_instances:
        said.append(show_instances(judged, index))
    if judged.sibling_count:
        said.append(show_siblings(judged, index))
    said.append(show_packing(judged, index))
    return "; ".join(filter(None, said))


def _about_unknown(_judged: Judged, _index: int) -> str:
    return "the cache has no node of this name"


def _about_missing(judged: Judged, index: int) -> str:
    """Return what the node lacks, and which managed resources it offers."""
    snapshot, column = judged.snapshot, int(judged.candidates.columns[index])
    lacking = [
        name
        for (name, _), is_offered in zip(
            judged.pod_request.request, judged.candidates.offered[:, index], strict=True
        )
        if not is_offered
    ]
    offered = [
        f"{show_amount(name, int(snapshot.allocatable[row, column]))} {name}"
        for row, name in enumerate(snapshot.resources)
        if snapshot.offered[row, column]
        and judged.options.builder.scope.is_managed(name)
    ]
    has = ", ".join(offered) or "nothing that is managed"
    model = "" if offered else judged.model(index)  # the cards are gone
    told = f"; its labels tell of {model}" if model else ""
    return f"asks {', '.join(lacking)}: the node offers {has}{told}"


def _about_readiness(judged: Judged, index: int) -> str:
    """Return the signals that are raised, and resources without a healthy device."""
    said, candidates = list(_signals(judged, index)), judged.candidates
    offered = candidates.offered[:, index]
    counted = offered & ~candidates.claimed[:, index]
    sick = (candidates.allocatable[:, index] == 0) & counted
    if sick.any():
        said.append(judged.shown(index, sick))
    if not offered.all():
        said.append(_about_missing(judged, index))
    return "; ".join(said)


def _signals(judged: Judged, index: int) -> Iterator[str]:
    """Yield each fault signal that the node raises."""
    facts, signals = judged.facts(index), judged.options.builder.signals
    if not judged.candidates.faulted[index]:
        return
    found = False
    for key, value in facts.labels.items():
        if signals.found_on({key: value}, {}):
            found = True
            usable = ", ".join(sorted(signals.label_values.get(key, ())))
            wanted = f" (usable: {usable})" if usable else ""
            yield f"label {key}={value}{wanted}"
    if not found:  # statuses of conditions are not kept
        kinds = ", ".join(f"{kind}={s}" for kind, s in signals.conditions.items())
        yield f"a condition of the node: {kinds}"


def _about_total(judged: Judged, index: int) -> str:
    """Return the numbers of what is more than the whole node has."""
    allocatable = judged.candidates.allocatable[:, index]
    asked = np.array([amount for _, amount in judged.pod_request.request])
    return judged.shown(
        index, (allocatable < asked) & ~judged.candidates.claimed[:, index]
    )


def _about_free(judged: Judged, index: int) -> str:
    """Return the numbers of what is more than the node has free, or who is there."""
    said = []
    is_short = judged.short[:, index]
    if is_short.any():
        said.append(judged.shown(index, is_short))
    if (
        judged.pod_request.gpu_requirements.is_exclusive
        and judged.candidates.gpu_pods[index]
    ):
        count = int(judged.candidates.gpu_pods[index])
        said.append(f"wants no other GPU pod on the node: it has {count}")
    elif (
        not judged.pod_request.gpu_requirements.is_exclusive
        and judged.candidates.exclusive_gpu_pods[index]
    ):
        said.append("a pod on the node wants no other GPU pod there")
    return "; ".join(said)


def _about_gpus(judged: Judged, index: int) -> str:
    """Return what is wanted of the GPUs, and what the node says of its own."""
    said, facts = [], judged.facts(index)
    key, gpu_requirements = (
        judged.options.label_keys.accelerator,
        judged.pod_request.gpu_requirements,
    )
    if judged.pod_request.accelerator not in (None, facts.labels.get(key)):
        has = f"has {facts.labels[key]}" if key in facts.labels else "has no such label"
        said.append(f"{key}={judged.pod_request.accelerator} wanted, {has}")
    if not gpu_requirements.is_readable:
        said.append("an annotation of the pod cannot be read")
    elif wanted := show_gpu_requirements(gpu_requirements, judged.pod_request.request):
        gpus = facts.gpus if isinstance(facts, NodeRecord) else NO_GPUS
        has = show_gpus(
            gpus, judged.pod_request.request if gpu_requirements.min_memory else ()
        )
        said.append(f"{wanted} wanted, the node has {has}")
    return "; ".join(said)


# verdict -> the numbers behind it
DETAILS: Final[Mapping[Verdict, Callable[[Judged, int], str]]] = {
    Verdict.FEASIBLE: _about_feasible,
    Verdict.UNKNOWN_NODE: _about_unknown,
    Verdict.NO_GPU: _about_missing,
    Verdict.NO_SUCH_RESOURCE: _about_missing,
    Verdict.IN_PARTS: _about_missing,
    Verdict.NOT_READY: _about_readiness,
    Verdict.TOO_FEW: _about_total,
    Verdict.WRONG_TYPE: _about_gpus,
    Verdict.TYPE_UNKNOWN: _about_gpus,
    Verdict.TOO_LITTLE_MEMORY: _about_gpus,
    Verdict.UNLINKED: show_links,
    Verdict.NOT_ALONE: _about_free,
    Verdict.NOT_ALONE_NOW: _about_free,
    Verdict.INSUFFICIENT: _about_free,
}
