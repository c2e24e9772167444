"""filter and prioritize on one snapshot."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np

from extender.verbs.call import Question, VerbOptions
from extender.verbs.reuse import Arrays
from scoring.candidates import Ask, Candidates, take_columns
from scoring.feasibility import Feasibility
from scoring.normalization import RANK, best_first, normalize
from scoring.resources import Request
from scoring.snapshot import BoolArray, IndexArray, Int64Array, Snapshot

# Node name -> what pods ask that were put there and are not seen bound yet.
UnderWay: TypeAlias = Mapping[str, Sequence[Request]]

NOTHING_UNDER_WAY: Final[UnderWay] = {}

# What `VerbOptions.assess` gives first, and what after that.
VERDICTS: Final = slice(0, 2)

TOTALS: Final = slice(2, None)


def filter_nodes(question: Question, options: VerbOptions) -> Feasibility:
    """Return the verdict on each candidate of the question."""
    if not question.ask.request:
        nothing = np.zeros(len(question.columns), dtype=np.int64)
        return Feasibility(nothing, nothing.astype(np.bool_))
    special = _own_columns(question)
    return Feasibility(*_evaluate(question, options, VERDICTS, special))


def count_claimed(question: Question, result: Feasibility, options: VerbOptions) -> int:
    """Return how many candidates pass because a DeviceClass carries their resource."""
    snapshot, ask = question.snapshot, question.ask
    if not any(name in snapshot.device_class_resources for name, _ in ask.request):
        return 0
    candidates = take_columns(snapshot, question.columns, ask, options.label_keys)
    passed = candidates.known & result.feasible
    return int(np.count_nonzero(candidates.claimed.any(axis=0) & passed))


def shortlisted(
    question: Question,
    result: Feasibility,
    options: VerbOptions,
    under_way: UnderWay = NOTHING_UNDER_WAY,
) -> IndexArray | None:
    """Return the places of the best feasible candidates, in the order of the question.

    None where no more are feasible than the shortlist takes: all of them are answered.
    """
    if not options.shortlist or not question.ask.request:
        return None
    places = np.flatnonzero(result.feasible)
    if len(places) <= options.shortlist:
        return None
    totals, taking_part, *tiers = total_nodes(question, options, under_way)
    first = best_first(
        totals[places],
        # Whoever takes no part comes last, whatever the pod's types.
        _tiers(tiers, taking_part)[places],
        _order(question)[places],
    )
    return np.sort(places[first[: options.shortlist]])


def prioritize_nodes(
    question: Question,
    options: VerbOptions,
    places: IndexArray | None = None,
    under_way: UnderWay = NOTHING_UNDER_WAY,
) -> Int64Array:
    """Return what goes on the wire for each candidate, int64 of shape (C,).

    With `places`, only the candidates there take part and are returned. A pod that
    asks for nothing that we manage gets 0 everywhere: we have no opinion.
    """
    if not question.ask.request:
        count = len(question.columns) if places is None else len(places)
        return np.zeros(count, dtype=np.int64)
    arrays = total_nodes(question, options, under_way)
    order = _order(question) if options.scale.method == RANK else question.columns
    if places is not None:
        arrays = tuple(array.take(places) for array in arrays)
        order = order.take(places)
    totals, taking_part, *tiers = arrays
    return normalize(
        totals, taking_part, options.scale, tiers[0] if tiers else None, order
    )


def _tiers(tiers: Sequence[Int64Array], taking_part: BoolArray) -> Int64Array:
    """Return tiers in which those who take no part come after all others."""
    within = tiers[0] if tiers else np.zeros(len(taking_part), dtype=np.int64)
    last = np.iinfo(np.int64).max
    return np.where(taking_part, within, last)


def _order(question: Question) -> Int64Array:
    """Return what settles equal totals: the names' order, unknown nodes last."""
    order = question.snapshot.nodes.order
    count = len(order)
    places = np.arange(count, count + len(question.columns), dtype=np.int64)
    if not count:
        return places
    known = order.take(question.columns, mode="wrap")
    return np.where(question.columns >= 0, known, places)


def _own_columns(question: Question) -> list[int]:
    """Return the columns in which the asking pod itself makes a difference."""
    ask, column_of = question.ask, question.snapshot.nodes.column_of
    names = [ask.nominated_node] if ask.nominated_node else []
    share = question.snapshot.shares.get(ask.uid) if ask.uid else None
    if share is not None:
        names.append(share.node_name)
    return [column_of[name] for name in names if name in column_of]


def total_nodes(
    question: Question, options: VerbOptions, under_way: UnderWay
) -> Arrays:
    """Return totals, who takes part and, if they matter, tiers, of shape (C,)."""
    special = _own_columns(question)
    column_of = question.snapshot.nodes.column_of
    special += [column_of[name] for name in under_way if name in column_of]
    return _evaluate(question, options, TOTALS, special, under_way)


def with_under_way(
    candidates: Candidates, ask: Ask, snapshot: Snapshot, under_way: UnderWay
) -> Candidates:
    """Return the candidates with what pods under way to them ask counted, too."""
    requested = candidates.requested.copy()
    for place, column in enumerate(candidates.columns.tolist()):
        for request in under_way.get(snapshot.nodes.names[column], ()):
            amounts = dict(request)
            for row, (resource, _) in enumerate(ask.request):
                requested[row, place] += amounts.get(resource, 0)
    return replace(candidates, requested=requested)


def _evaluate(
    question: Question,
    options: VerbOptions,
    part: slice,
    special: Sequence[int],
    under_way: UnderWay = NOTHING_UNDER_WAY,
) -> Arrays:
    """Return one part of what `VerbOptions.assess` gives for each candidate.

    Candidates in the columns `special`, and those that the cache lacks, are computed
    for this very pod, the others with those that ask alike.
    """
    snapshot, ask, columns = question.snapshot, question.ask, question.columns
    compute = options.judge if part is VERDICTS else options.total_up
    if not snapshot.nodes.names:
        candidates = take_columns(snapshot, columns, ask, options.label_keys)
        arrays = compute(candidates, ask)
    else:
        arrays = options.standings.take(snapshot, columns, ask, part)
        if special or question.has_unknown:
            apart = np.isin(columns, special) | (columns < 0)
            candidates = take_columns(snapshot, columns[apart], ask, options.label_keys)
            if under_way:
                candidates = with_under_way(candidates, ask, snapshot, under_way)
            _put(arrays, apart, options.standings.compute(candidates, ask)[part])
    if question.templates is not None:
        absent = columns < 0
        found = np.arange(int(absent.sum()), dtype=np.intp)  # in the same order
        candidates = take_columns(question.templates, found, ask, options.label_keys)
        _put(arrays, absent, compute(candidates, ask))
    return arrays


def _put(arrays: Arrays, where: BoolArray, values: Arrays) -> None:
    """Write `values` into `arrays` where `where` is True."""
    for array, fresh in zip(arrays, values, strict=True):
        array[where] = fresh
