"""One pure function per score term, each returning float64 of shape (C,) in 0..100."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import numpy as np

from scoring.candidates import Candidates, Capacity, PodRequest, free_gpus
from scoring.gpu.models import GpuTable, normal_name
from scoring.gpu.suitability import choice_of
from scoring.packing.fragmentation import fits
from scoring.packing.learning import ExpectedPods
from scoring.packing.mig import price
from scoring.packing.prices import (
    SCARCITY_PRICE,
    Outlook,
    outlook_of,
    placement_gain,
)
from scoring.packing.shapes import WHOLE
from scoring.snapshot import Float64Array, Int64Array
from scoring.topology.tables import lookup_of

MAX_NODE_SCORE: Final = 100.0

COMPATIBLE_SCORE: Final = 70.0

LAST_CHOICE_SCORE: Final = 70.0

NOTHING_ASKED_SCORE: Final = 50.0

NEUTRAL_SCORE: Final = 50.0

UNLINKED_SCORE: Final = 50.0

# Of GPUs of which a label says that NVLink joins them, beside those of which the links
# are known: a bridge, roughly. See `scoring.topology.tables.worth`.
LABELLED_SCORE: Final = 75.0

# Points that one GPU is worth in the terms that count in GPUs: nodes have 16 at most.
POINTS_PER_GPU: Final = 50.0 / 16


@dataclass(frozen=True, slots=True)
class ScoreOptions:
    """Options of the terms, set by the operator.

    Attributes
    ----------
    target_low, target_high : float
        Allocation ratio from and to which a node scores 100.
    compatible_types : mapping
        asked ``accelerator`` value -> values that are accepted for it
    compatible_names : mapping
        The same for GPU types; see the function `compatible_names`.
    topology : str
        ``label``: by the label alone; ``graded``: by the links wherever they are known,
        from the model, too; ``auto``: by the links where the node itself states them.
    strategy : str
        A key of `STRATEGIES`.
    expected : ExpectedPods or None
        The pods that are expected; None for what was learned of those that came.
    """

    target_low: float
    target_high: float
    compatible_types: Mapping[str, frozenset[str]]
    strategy: str
    compatible_names: Mapping[str, frozenset[str]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    topology: str = "auto"
    expected: ExpectedPods | None = None


def target(u: Float64Array, options: ScoreOptions) -> Float64Array:
    """Score an allocation ratio by how near it is to the wanted one.

    ``u * 100 / low`` below `target_low`, 100 up to `target_high`, then
    ``(1 - u) * 100 / (1 - high)``; 0 < `target_low` <= `target_high` < 1. Order and
    rounding of the operations are those of the classic score; 1 - high is written 0.2
    there, hence the division rounded to a decimal.
    """
    low, high = options.target_low, options.target_high
    rising = u * 100.0 / low
    falling = (1.0 - u) * 100.0 / max(round(1.0 - high, 12), 1e-12)
    return np.where(u < low, rising, np.where(u <= high, MAX_NODE_SCORE, falling))


def binpack(u: Float64Array, _options: ScoreOptions) -> Float64Array:
    """Score an allocation ratio: the fuller, the better."""
    return u * MAX_NODE_SCORE


def spread(u: Float64Array, _options: ScoreOptions) -> Float64Array:
    """Score an allocation ratio: the emptier, the better."""
    return (1.0 - u) * MAX_NODE_SCORE


# strategy, as in the settings -> allocation ratio in 0..1 to 0..100
STRATEGIES: Final[
    Mapping[str, Callable[[Float64Array, ScoreOptions], Float64Array]]
] = {"target": target, "binpack": binpack, "spread": spread}


def utilization(
    candidates: Candidates, pod_request: PodRequest, options: ScoreOptions
) -> Float64Array:
    """Score nodes by the requested part of the pod's own GPU resource.

    Parameters
    ----------
    candidates : Candidates, C nodes

    Returns
    -------
    float64 array, shape (C,)
        What `options.strategy` gives for that part before placement, at most 1; 0 for
        a node without the resource, 50 where only a DeviceClass carries it and no
        amounts are known.
    """
    count = len(candidates.known)
    row = next(
        (
            i
            for i, (name, _) in enumerate(pod_request.request)
            if name == pod_request.primary
        ),
        -1,
    )
    if row < 0:
        return np.zeros(count)
    total = candidates.allocatable[row]
    u = np.minimum(candidates.requested[row] / np.maximum(total, 1), 1.0)
    scores = STRATEGIES[options.strategy](u, options)
    scores[total == 0] = 0.0
    scores[candidates.claimed[row]] = NEUTRAL_SCORE
    return scores


def type_match(
    candidates: Candidates, pod_request: PodRequest, options: ScoreOptions
) -> Float64Array:
    """Score nodes by the GPU type that the pod asks for.

    Returns
    -------
    float64 array, shape (C,)
        50 where nothing is asked. From 100 for the first to 70 for the last of the
        types that the pod's list accepts, evenly, and 100 for the only one; 70 for a
        type that the table of compatible types accepts in place of one of them; 0
        otherwise, and for a node that does not name its type. Without a list, the same
        for ``nodeSelector.accelerator``, else for what the pod prefers.
    """
    gpu_requirements = pod_request.gpu_requirements
    if not gpu_requirements.types and pod_request.accelerator is not None:
        return _accelerator_match(candidates, pod_request.accelerator, options)
    names = gpu_requirements.types or gpu_requirements.preferred
    if not names:
        return np.full(len(candidates.known), NOTHING_ASKED_SCORE)
    step = (MAX_NODE_SCORE - LAST_CHOICE_SCORE) / max(len(names) - 1, 1)
    compatible = _compatible_with(names, options)
    score_of_kind = np.array(
        [
            MAX_NODE_SCORE - step * choice
            if choice < len(names)
            else COMPATIBLE_SCORE
            if compatible & gpus.names
            else 0.0
            for gpus in candidates.gpu_kinds
            for choice in (choice_of(gpus, names),)
        ]
    )
    return score_of_kind[candidates.gpu_codes]


def compatible_names(
    table: GpuTable, compatible_types: Mapping[str, Iterable[str]]
) -> Mapping[str, frozenset[str]]:
    """Return the table of compatible types by every name of the asked type.

    Names are in normal form.
    """
    return MappingProxyType(
        {
            name: frozenset(map(normal_name, accepted))
            for asked, accepted in compatible_types.items()
            for name in table.synonyms(asked)
        }
    )


def _compatible_with(names: tuple[str, ...], options: ScoreOptions) -> frozenset[str]:
    """Return the normal forms of the types that are accepted in place of `names`."""
    nothing = frozenset[str]()
    return nothing.union(
        *(options.compatible_names.get(normal_name(n), nothing) for n in names)
    )


def _accelerator_match(
    candidates: Candidates, accelerator: str, options: ScoreOptions
) -> Float64Array:
    """Score nodes by their ``accelerator`` label."""
    accepted = options.compatible_types.get(accelerator, frozenset())
    score_of_code = np.array(
        [0.0]  # entry 0 stands for nodes without the label
        + [
            MAX_NODE_SCORE
            if name == accelerator
            else COMPATIBLE_SCORE
            if name in accepted
            else 0.0
            for name in candidates.type_names[1:]
        ]
    )
    return score_of_code[candidates.type_codes]


def type_tiers(candidates: Candidates, pod_request: PodRequest) -> Int64Array:
    """Return which of the accepted types each candidate has.

    Returns
    -------
    int64 array, shape (C,)
        0 for the first in the pod's list, 1 for the second, and so on; their number
        for any other type; 0 everywhere for a pod without a list.
    """
    tier_of_kind = np.array(
        [
            choice_of(gpus, pod_request.gpu_requirements.types)
            for gpus in candidates.gpu_kinds
        ],
        dtype=np.int64,
    )
    return tier_of_kind[candidates.gpu_codes]


def labelled_topology(
    candidates: Candidates,
    pod_request: PodRequest,
    _options: ScoreOptions,
) -> Float64Array:
    """Score nodes by whether several GPUs of one pod are joined.

    Returns
    -------
    float64 array, shape (C,)
        100 for a pod of at most one whole GPU and on nodes that say NVLink, else 50.
        Slices and shares have no links that a pod could use.
    """
    if pod_request.gpus <= 1:
        return np.full(len(candidates.known), MAX_NODE_SCORE)
    return np.where(candidates.linked, MAX_NODE_SCORE, UNLINKED_SCORE)


def topology(
    candidates: Candidates, pod_request: PodRequest, options: ScoreOptions
) -> Float64Array:
    """Score nodes by the set of GPUs that the pod would get, and what that breaks.

    Returns
    -------
    float64 array, shape (C,)
        What `labelled_topology` gives where the links are not to be gone by; see
        `ScoreOptions.topology` and `scoring.topology.tables`.
    """
    labelled = labelled_topology(candidates, pod_request, options)
    is_graded = options.topology == "graded"
    if options.topology == "label" or not pod_request.reads_links:
        return labelled
    if not is_graded and pod_request.gpus <= 1:
        return labelled
    kinds = candidates.link_kinds
    is_read = np.array(
        [kind.layout is not None and (is_graded or kind.is_measured) for kind in kinds]
    )
    if not is_graded and not is_read.any():
        return labelled
    lookup = lookup_of(kinds, pod_request.gpus)
    # kube-scheduler says that there are enough, even where we count fewer.
    free = np.maximum(free_gpus(candidates, pod_request), pod_request.gpus)
    entries = lookup.entries(candidates.link_codes, candidates.free_sets, free)
    if is_graded and pod_request.gpus > 1:
        # Two shares or slices may be of one GPU: no set is worse.
        is_whole = np.array([gpus.is_whole for gpus in candidates.gpu_kinds])
        capped = np.minimum(labelled, LABELLED_SCORE)
        labelled = np.where(is_whole[candidates.gpu_codes], capped, 0.0)
    return np.where(is_read[candidates.link_codes], lookup.score[entries], labelled)


def fragmentation(
    candidates: Candidates, pod_request: PodRequest, options: ScoreOptions
) -> Float64Array:
    """Score nodes by what is left there for the pods that are expected.

    Returns
    -------
    float64 array, shape (C,)
        50, and `POINTS_PER_GPU` more for each GPU by which fewer are free that those
        pods cannot use, less what the pod leaves over and the cores that it takes
        beyond its GPUs' own; see `scoring.packing.prices`. 0 where the pod does not fit
        by our count, 50 where no amounts are known.
    """
    capacity = candidates.capacity
    if capacity is None:
        return np.full(len(candidates.known), NEUTRAL_SCORE)
    scores = np.empty(len(candidates.known))
    outlook = _outlook(capacity, options)
    for shape, part in capacity.by_shape():
        free = capacity.free.part(part)
        gain = placement_gain(
            free,
            shape,
            outlook,
            capacity.allocatable_cpu[part],
            capacity.device_count[part],
        )
        gain *= POINTS_PER_GPU
        gain += NEUTRAL_SCORE
        # PERF: a third of what `np.clip` takes for one node; bench/extender/packing.py
        gain = np.minimum(np.maximum(gain, 0.0), MAX_NODE_SCORE)
        gain *= fits(free, shape)
        scores[part] = gain
    if pod_request.request:
        claimed = np.logical_or.reduce(candidates.claimed, axis=0)
        scores[claimed] = NEUTRAL_SCORE
    return scores


def scarcity(
    candidates: Candidates, _pod_request: PodRequest, options: ScoreOptions
) -> Float64Array:
    """Score nodes by how little others insist on the model of their GPUs.

    Returns
    -------
    float64 array, shape (C,)
        100, less `POINTS_PER_GPU` for each GPU that the pod asks of a model of which as
        much is insisted on as there is; in proportion for others, and not below 0. 100
        for a pod without GPUs.
    """
    capacity = candidates.capacity
    if capacity is None or not any(one.gpus for one in capacity.shapes.values()):
        return np.full(len(candidates.known), MAX_NODE_SCORE)
    insistence = _outlook(capacity, options).insistence[capacity.free.models]
    asked = np.empty(len(candidates.known))
    for shape, part in capacity.by_shape():
        asked[part] = shape.total / WHOLE
    price = SCARCITY_PRICE * asked * insistence
    return np.maximum(MAX_NODE_SCORE - POINTS_PER_GPU * price, 0.0)


def _outlook(capacity: Capacity, options: ScoreOptions) -> Outlook:
    """Return what is expected, by the settings or as learned."""
    return outlook_of(options.expected or capacity.expected, capacity.supply)


def mig(
    candidates: Candidates, pod_request: PodRequest, _options: ScoreOptions
) -> Float64Array:
    """Score nodes by what the pod's MIG instances break for larger profiles.

    Returns
    -------
    float64 array, shape (C,)
        100 less `price` in hundredths: 100 where nothing larger
        loses a place, as with a static layout, where the places are not known, and for
        a pod that asks no MIG profile; 0 where all that is larger loses its last.
    """
    instances = pod_request.mig_instances
    if not instances:
        return np.full(len(candidates.known), MAX_NODE_SCORE)
    prices = [price(gpus, instances) for gpus in candidates.mig.tolist()]
    return MAX_NODE_SCORE * (1.0 - np.array(prices, dtype=np.float64))


def domain(
    candidates: Candidates, _pod_request: PodRequest, _options: ScoreOptions
) -> Float64Array:
    """Score nodes by how near they are to where the pod's siblings are.

    Returns
    -------
    float64 array, shape (C,)
        100 where all of them share each of the domains; 0 where none shares any, and
        everywhere for a pod without siblings.
    """
    return candidates.nearness * MAX_NODE_SCORE
