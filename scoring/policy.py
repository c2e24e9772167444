"""Terms to functions, weights, profiles, and totals to what goes on the wire."""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import numpy as np

from scoring.candidates import Ask, Candidates
from scoring.snapshot import BoolArray, Float64Array, Int64Array
from scoring.strategies import (
    ScoreOptions,
    labelled_topology,
    target_utilization,
    type_match,
)

Term: TypeAlias = Callable[[Candidates, Ask, ScoreOptions], Float64Array]
Profile: TypeAlias = Callable[
    [Mapping[str, Float64Array], Mapping[str, int]], Int64Array
]

MAX_EXTENDER_PRIORITY: Final = 10
CLASSIC_BASE: Final = 50

# term name, as in the settings -> its function
TERMS: Final[Mapping[str, Term]] = {
    "utilization": target_utilization,
    "typeMatch": type_match,
    "topology": labelled_topology,
}


def score_terms(
    candidates: Candidates, ask: Ask, options: ScoreOptions, weights: Mapping[str, int]
) -> dict[str, Float64Array]:
    """Return each weighted term of the candidates, float64 of shape (C,)."""
    return {
        name: term(candidates, ask, options)
        for name, term in TERMS.items()
        if weights.get(name, 0)
    }


def classic(
    terms: Mapping[str, Float64Array], weights: Mapping[str, int]
) -> Int64Array:
    """Combine terms as the classic score does.

    Parameters
    ----------
    terms : mapping of str to float64 array, shape (C,)
    weights : mapping of str to int
        In hundredths.

    Returns
    -------
    int64 array, shape (C,)
        50 plus each term, truncated, times its weight, truncated again.
    """
    total: Int64Array = np.full(
        len(next(iter(terms.values()))), CLASSIC_BASE, dtype=np.int64
    )
    for name, values in terms.items():
        total += np.trunc(np.trunc(values) * (weights[name] / 100)).astype(np.int64)
    return total


# profile name, as in the settings -> its function
PROFILES: Final[Mapping[str, Profile]] = {"classic": classic}


def normalize_min_max(
    totals: Int64Array, known: BoolArray, max_score: int
) -> Int64Array:
    """Spread totals over 0..`max_score`.

    Parameters
    ----------
    totals : int64 array, shape (C,)
    known : bool array, shape (C,)
        The others get 0 and take no part.
    max_score : int

    Returns
    -------
    int64 array, shape (C,)
        ``(total - min) * 100 // (max - min)``, where all equal gives 100; then a
        hundredth of that times `max_score`, rounded half up.

    Examples
    --------
    >>> normalize_min_max(np.array([110, 150, 86]), np.array([True, True, True]), 10)
    array([ 4, 10,  0])
    """
    scores = np.zeros(len(totals), dtype=np.int64)
    if not known.any():
        return scores
    taking_part = totals[known]
    low, high = int(taking_part.min()), int(taking_part.max())
    if low == high:
        scores[known] = max_score
        return scores
    hundredths = (taking_part - low) * 100 // (high - low)
    scores[known] = (hundredths * max_score + 50) // 100
    return scores
