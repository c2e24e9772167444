"""Terms to functions, weights, profiles, and totals to what goes on the wire."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from scoring.candidates import Candidates, PodRequest
from scoring.normalization import Totals
from scoring.snapshot import Float64Array, Int64Array
from scoring.terms import ScoreOptions, domain, topology, type_match, utilization

Term: TypeAlias = Callable[[Candidates, PodRequest, ScoreOptions], Float64Array]

Combine: TypeAlias = Callable[[Mapping[str, Float64Array], Mapping[str, int]], Totals]

CLASSIC_BASE: Final = 50

# term name, as in the settings -> its function
TERMS: Final[Mapping[str, Term]] = {
    "utilization": utilization,
    "typeMatch": type_match,
    "topology": topology,
    "domain": domain,
}


def score_terms(
    candidates: Candidates,
    pod_request: PodRequest,
    options: ScoreOptions,
    weights: Mapping[str, int],
) -> dict[str, Float64Array]:
    """Return each weighted term of the candidates, float64 of shape (C,)."""
    return {
        name: term(candidates, pod_request, options)
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


def classic_span(weights: Mapping[str, int]) -> tuple[float, float]:
    """Return the smallest and the largest total that `classic` can give."""
    return CLASSIC_BASE, CLASSIC_BASE + sum(weights.values())


@dataclass(frozen=True, slots=True)
class Profile:
    """A tested way to combine the terms.

    Attributes
    ----------
    combine : callable
        Terms and weights to one total for each candidate.
    span : callable
        Weights to the smallest and the largest total.
    """

    combine: Combine
    span: Callable[[Mapping[str, int]], tuple[float, float]]


# profile name, as in the settings -> what it does
PROFILES: Final[Mapping[str, Profile]] = {"classic": Profile(classic, classic_span)}
