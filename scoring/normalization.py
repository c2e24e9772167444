"""Totals to the whole numbers that go on the wire."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from scoring.snapshot import BoolArray, Float64Array, IndexArray, Int64Array

# Whole numbers from the classic profile, which are compared exactly.
Totals: TypeAlias = Int64Array | Float64Array

RANK: Final = "rank"


@dataclass(frozen=True, slots=True)
class Scale:
    """Rule by which totals become priorities.

    Attributes
    ----------
    method : str
        A key of `METHODS`.
    max_score : int
        Priority of the best node, 1 or more.
    low, high : float
        The smallest and the largest total that the profile can give.
    """

    method: str
    max_score: int
    low: float
    high: float


def min_max(totals: Totals, _scale: Scale) -> Totals:
    """Spread totals over 0..100 by the classic rule: all equal gives 100.

    >>> min_max(np.array([110, 150, 86]), Scale("minMax", 10, 50, 150))
    array([ 37, 100,   0])
    """
    low, high = np.minimum.reduce(totals), np.maximum.reduce(totals)
    if low == high:
        return np.full(len(totals), 100, dtype=np.int64)
    hundredths: Totals = (totals - low) * 100 // (high - low)
    return hundredths


def absolute(totals: Totals, scale: Scale) -> Totals:
    """Map the profile's own range to 0..100, whatever the other candidates have.

    >>> absolute(np.array([50, 75, 150]), Scale("absolute", 10, 50, 150))
    array([  0.,  25., 100.])
    """
    span = scale.high - scale.low
    return np.clip((totals - scale.low) * 100.0 / span, 0.0, 100.0)


# method, as in the settings -> totals to hundredths; a rank needs no hundredths
METHODS: Final[Mapping[str, Callable[[Totals, Scale], Totals] | None]] = {
    "minMax": min_max,
    "absolute": absolute,
    RANK: None,
}


def best_first(
    totals: Totals, tiers: Int64Array | None, order: Int64Array
) -> IndexArray:
    """Return the indices of C candidates, the best one first.

    Parameters
    ----------
    totals : int64 or float64 array, shape (C,)
    tiers : int64 array, shape (C,), or None
        A smaller one comes first, whatever the totals.
    order : int64 array, shape (C,)
        Settles what is equal: the smaller one comes first.
    """
    keys = (order, -totals) if tiers is None else (order, -totals, tiers)
    return np.lexsort(keys)


def ranked(indices: IndexArray, max_score: int) -> Int64Array:
    """Return priorities for candidates whose `indices` are given, the best first.

    The best one gets `max_score` alone, the r-th of n
    ``(max_score - 1) * (n - r) // (n - 1)``.

    >>> ranked(np.array([2, 0, 1]), 10)
    array([ 4,  0, 10])
    """
    count = len(indices)
    scores = np.empty(count, dtype=np.int64)
    after_best = np.arange(count - 1, -1, -1, dtype=np.int64)
    scores[indices] = after_best * max(max_score - 1, 0) // max(count - 1, 1)
    scores[indices[:1]] = max_score
    return scores


def normalize(
    totals: Totals,
    taking_part: BoolArray,
    scale: Scale,
    tiers: Int64Array | None,
    order: Int64Array,
) -> Int64Array:
    """Turn totals into priorities.

    Parameters
    ----------
    totals : int64 or float64 array, shape (C,)
    taking_part : bool array, shape (C,)
        The others get 0 and do not count.
    tiers : int64 array, shape (C,), or None
        Candidates of a smaller tier get more than all of a larger one, as far as
        `scale.max_score` has room.
    order : int64 array, shape (C,)
        Settles what is equal, for ranks.

    Returns
    -------
    int64 array, shape (C,)
        0..`scale.max_score`; hundredths are rounded half up.
    """
    if tiers is None and len(totals) and taking_part.all():
        # PERF: as nearly always; bench/scoring/test_kernels.py
        return _spread(totals, scale, scale.max_score, order)
    scores = np.zeros(len(totals), dtype=np.int64)
    indices = np.flatnonzero(taking_part)
    if len(indices) == 0:
        return scores
    part, part_order = totals.take(indices), order.take(indices)
    if tiers is None:
        scores[indices] = _spread(part, scale, scale.max_score, part_order)
        return scores
    part_tiers = tiers.take(indices)
    present = np.unique(part_tiers)
    if scale.method == RANK and len(present) > scale.max_score:
        # No room for a band each: at least the best one stands alone.
        first = best_first(part, part_tiers, part_order)
        scores[indices] = ranked(first, scale.max_score)
        return scores
    for position, tier in enumerate(present[::-1].tolist()):
        # The priorities are shared out among the tiers: a band of its own for each.
        lowest = position * (scale.max_score + 1) // len(present)
        above = (position + 1) * (scale.max_score + 1) // len(present)
        width = max(above - lowest - 1, 0)
        here = part_tiers == tier
        band = _spread(part[here], scale, width, part_order[here])
        scores[indices[here]] = lowest + band
    return scores


def _spread(totals: Totals, scale: Scale, width: int, order: Int64Array) -> Int64Array:
    """Return the totals of some candidates as whole numbers in 0..`width`."""
    to_hundredths = METHODS[scale.method]
    if to_hundredths is None:
        return ranked(best_first(totals, None, order), width)
    rounded: Int64Array = ((to_hundredths(totals, scale) * width + 50) // 100).astype(
        np.int64
    )
    return rounded
