"""filter and prioritize on one snapshot."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np

from extender.verbs.call import VerbCall
from extender.verbs.options import VerbOptions
from extender.verbs.reuse import Arrays
from scoring.candidates import Candidates, PodRequest, take_columns
from scoring.feasibility import Feasibility
from scoring.normalization import RANK, best_first, normalize
from scoring.packing.mig import with_pod
from scoring.resources import NVIDIA_GPU
from scoring.snapshot import (
    BoolArray,
    Float64Array,
    IndexArray,
    Int64Array,
    Snapshot,
    build_node_index,
)
from scoring.topology.domains import nearness
from scoring.topology.tables import set_without

# Node name -> pods that were put there and are not seen bound yet.
Assumed: TypeAlias = Mapping[str, Sequence[PodRequest]]

NOTHING_ASSUMED: Final[Assumed] = {}

# The arrays that `VerbOptions.assess` gives first, and those after them.
VERDICTS: Final = slice(0, 2)

TOTALS: Final = slice(2, None)


def filter_nodes(verb_call: VerbCall, options: VerbOptions) -> Feasibility:
    """Return the verdict on each candidate of the call."""
    if not verb_call.pod_request.request:
        nothing = np.zeros(len(verb_call.columns), dtype=np.int64)
        return Feasibility(nothing, nothing.astype(np.bool_))
    special = _own_columns(verb_call)
    return Feasibility(*_evaluate(verb_call, options, VERDICTS, special))


def count_claimed(
    verb_call: VerbCall, result: Feasibility, options: VerbOptions
) -> int:
    """Return how many candidates pass because a DeviceClass carries their resource."""
    snapshot, pod_request = verb_call.snapshot, verb_call.pod_request
    if not any(
        name in snapshot.device_class_resources for name, _ in pod_request.request
    ):
        return 0
    candidates = take_columns(
        snapshot, verb_call.columns, pod_request, options.label_keys
    )
    passed = candidates.known & result.feasible
    return int(np.count_nonzero(candidates.claimed.any(axis=0) & passed))


def shortlisted(
    verb_call: VerbCall,
    result: Feasibility,
    options: VerbOptions,
    assumed: Assumed = NOTHING_ASSUMED,
) -> IndexArray | None:
    """Return the indexes of the best feasible candidates, in the order of the call.

    None where no more are feasible than the shortlist takes: all of them are answered.
    """
    if not options.shortlist or not verb_call.pod_request.request:
        return None
    indexes = np.flatnonzero(result.feasible)
    if len(indexes) <= options.shortlist:
        return None
    totals, taking_part, *tiers = total_nodes(verb_call, options, assumed)
    first = best_first(
        totals[indexes],
        # A candidate that takes no part comes last, whatever the pod's types.
        _tiers(tiers, taking_part)[indexes],
        _order(verb_call)[indexes],
    )
    return np.sort(indexes[first[: options.shortlist]])


def prioritize_nodes(
    verb_call: VerbCall,
    options: VerbOptions,
    indexes: IndexArray | None = None,
    assumed: Assumed = NOTHING_ASSUMED,
) -> Int64Array:
    """Return the priority of each candidate as it is sent, int64 of shape (C,).

    With `indexes`, only the candidates there take part and are returned. A pod that
    asks for nothing that we manage gets 0 everywhere, unless scores go by cpu: we have
    no opinion.
    """
    if not options.scores(verb_call.pod_request):
        count = len(verb_call.columns) if indexes is None else len(indexes)
        return np.zeros(count, dtype=np.int64)
    arrays = total_nodes(verb_call, options, assumed)
    order = _order(verb_call) if options.scale.method == RANK else verb_call.columns
    if indexes is not None:
        arrays = tuple(array.take(indexes) for array in arrays)
        order = order.take(indexes)
    totals, taking_part, *tiers = arrays
    return normalize(
        totals, taking_part, options.scale, tiers[0] if tiers else None, order
    )


def _tiers(tiers: Sequence[Int64Array], taking_part: BoolArray) -> Int64Array:
    """Return tiers in which those who take no part come after all others."""
    within = tiers[0] if tiers else np.zeros(len(taking_part), dtype=np.int64)
    last = np.iinfo(np.int64).max
    return np.where(taking_part, within, last)


def _order(verb_call: VerbCall) -> Int64Array:
    """Return the order that settles equal totals: by name.

    A node that nobody knows anything of takes no part, and stands anywhere.
    """
    order = verb_call.snapshot.nodes.order
    if verb_call.templates is None and len(order):
        return order.take(verb_call.columns, mode="wrap")
    # PERF: some node is not in the snapshot, so names are to be compared; seldom
    return build_node_index(tuple(verb_call.names)).order


def _own_columns(verb_call: VerbCall) -> list[int]:
    """Return the columns of nodes that hold the asking pod or are nominated for it."""
    pod_request, column_of = verb_call.pod_request, verb_call.snapshot.nodes.column_of
    names = [pod_request.nominated_node] if pod_request.nominated_node else []
    share = (
        verb_call.snapshot.bound_pods.get(pod_request.uid) if pod_request.uid else None
    )
    if share is not None:
        names.append(share.node_name)
    return [column_of[name] for name in names if name in column_of]


def total_nodes(verb_call: VerbCall, options: VerbOptions, assumed: Assumed) -> Arrays:
    """Return totals, who takes part and, if they matter, tiers, of shape (C,)."""
    special = _own_columns(verb_call)
    column_of = verb_call.snapshot.nodes.column_of
    special += [column_of[name] for name in assumed if name in column_of]
    near = nearness_of(verb_call, verb_call.columns, options, assumed)
    if near is not None:
        special += verb_call.columns[near > 0].tolist()
    return _evaluate(verb_call, options, TOTALS, special, assumed=assumed, near=near)


def with_assumed(
    candidates: Candidates,
    pod_request: PodRequest,
    snapshot: Snapshot,
    assumed: Assumed,
) -> Candidates:
    """Return the candidates with the requests of assumed pods counted, too."""
    requested, free_sets = candidates.requested.copy(), candidates.free_sets.copy()
    capacity = candidates.capacity
    if capacity is not None:
        free = capacity.free
        capacity = replace(
            capacity,
            free=replace(free, devices=free.devices.copy(), cpu=free.cpu.copy()),
        )
    mig = candidates.mig.copy()
    for index, column in enumerate(candidates.columns.tolist()):
        for pod in assumed.get(snapshot.nodes.names[column], ()):
            amounts = dict(pod.request)
            for row, (resource, _) in enumerate(pod_request.request):
                requested[row, index] += amounts.get(resource, 0)
            free_sets[index] = set_without(
                candidates.link_kinds[candidates.link_codes[index]],
                int(free_sets[index]),
                amounts.get(NVIDIA_GPU, 0),
            )
            if capacity is not None:
                capacity.free.take_for(index, pod.shape(int(capacity.units[index])))
            mig[index] = with_pod(mig[index], pod.request)
    return replace(
        candidates,
        requested=requested,
        free_sets=free_sets,
        capacity=capacity,
        mig=mig,
    )


def find_siblings(
    pod_request: PodRequest, snapshot: Snapshot, assumed: Assumed
) -> Mapping[str, int]:
    """Return how many other pods of the pod's job are on which nodes, or put there."""
    job = pod_request.job
    found = Counter(snapshot.jobs.get(job, {}))
    own = snapshot.bound_pods.get(pod_request.uid)
    if own is not None and own.job == job:
        found[own.node_name] -= 1
    for name, pods in assumed.items():
        found[name] += sum(pod.job == job for pod in pods)
    return {
        name: count
        for name, count in found.items()
        if count and name in snapshot.nodes.column_of
    }


def nearness_of(
    verb_call: VerbCall, columns: IndexArray, options: VerbOptions, assumed: Assumed
) -> Float64Array | None:
    """Return `Candidates.nearness` of some nodes, shape (C,), None if it is 0.

    Parameters
    ----------
    columns : index array, shape (C,)
        Of the call's snapshot, -1 for a node that it lacks.
    """
    pod_request, snapshot = verb_call.pod_request, verb_call.snapshot
    if not (options.weights.get("domain") and pod_request.job):
        return None
    siblings = find_siblings(pod_request, snapshot, assumed)
    keys, labels = options.label_keys.domains, snapshot.labels
    kinds = [labels[key].codes for key in keys if key in labels]
    if not siblings:
        return None
    places = np.array([snapshot.nodes.column_of[name] for name in siblings])
    return nearness(
        [np.where(columns < 0, 0, codes.take(columns, mode="wrap")) for codes in kinds],
        [codes.take(places) for codes in kinds],
        np.array(list(siblings.values())),
    )


def _evaluate(  # noqa: PLR0913 - the last ones are named
    verb_call: VerbCall,
    options: VerbOptions,
    part: slice,
    special: Sequence[int],
    *,
    assumed: Assumed = NOTHING_ASSUMED,
    near: Float64Array | None = None,
) -> Arrays:
    """Return one part of what `VerbOptions.assess` gives for each candidate.

    Candidates in the columns `special`, and those that the cache lacks, are computed
    for this very pod, the others with all pods of its request. `near` is what
    `nearness_of` gives for all of them, where it matters.
    """
    snapshot, pod_request, columns = (
        verb_call.snapshot,
        verb_call.pod_request,
        verb_call.columns,
    )
    compute = options.judge if part is VERDICTS else options.total_up
    if not snapshot.nodes.names:
        candidates = take_columns(snapshot, columns, pod_request, options.label_keys)
        arrays = compute(candidates, pod_request)
    else:
        arrays = options.shared_results.take(snapshot, columns, pod_request, part)
        if special or verb_call.has_unknown:
            apart = np.isin(columns, special) | (columns < 0)
            candidates = take_columns(
                snapshot, columns[apart], pod_request, options.label_keys
            )
            if assumed:
                candidates = with_assumed(candidates, pod_request, snapshot, assumed)
            if near is not None:
                candidates = replace(candidates, nearness=near[apart])
            _put(
                arrays,
                apart,
                options.shared_results.compute(candidates, pod_request)[part],
            )
    if verb_call.templates is not None:
        absent = columns < 0
        found = np.arange(int(absent.sum()), dtype=np.intp)  # in the same order
        candidates = take_columns(
            verb_call.templates, found, pod_request, options.label_keys
        )
        _put(arrays, absent, compute(candidates, pod_request))
    return arrays


def _put(arrays: Arrays, where: BoolArray, values: Arrays) -> None:
    """Write `values` into `arrays` where `where` is True."""
    for array, fresh in zip(arrays, values, strict=True):
        array[where] = fresh
