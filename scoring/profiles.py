"""Terms to functions, weights, profiles, and totals to what goes on the wire."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from scoring.candidates import Candidates, PodRequest
from scoring.normalization import RANK, Totals
from scoring.snapshot import Float64Array, Int64Array
from scoring.terms import (
    MAX_NODE_SCORE,
    ScoreOptions,
    domain,
    fragmentation,
    mig,
    scarcity,
    topology,
    type_match,
    utilization,
)

Term: TypeAlias = Callable[[Candidates, PodRequest, ScoreOptions], Float64Array]

Combine: TypeAlias = Callable[[Mapping[str, Float64Array], Mapping[str, int]], Totals]

CLASSIC: Final = "classic"

CLASSIC_BASE: Final = 50

# term name, as in the settings -> its function
TERMS: Final[Mapping[str, Term]] = {
    "utilization": utilization,
    "typeMatch": type_match,
    "topology": topology,
    "fragmentation": fragmentation,
    "scarcity": scarcity,
    "domain": domain,
    "mig": mig,
}

# Those that go by the pod's cpu, too, and so differ among pods that ask for GPUs alike.
PACKING_TERMS: Final = frozenset({"fragmentation", "scarcity"})


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


def weighted_mean(
    terms: Mapping[str, Float64Array], weights: Mapping[str, int]
) -> Float64Array:
    """Combine terms by their weighted mean, in full precision.

    Parameters
    ----------
    terms : mapping of str to float64 array, shape (C,)
    weights : mapping of str to int
        In any unit.

    Returns
    -------
    float64 array, shape (C,)
        0 to 100. Rounded where only the order of summing tells totals apart.
    """
    parts = [weights[name] * values for name, values in terms.items()]
    total: Float64Array = parts[0]
    for part in parts[1:]:
        total += part
    total /= sum(weights[name] for name in terms)
    # PERF: what `round` does, for one node in half the time; bench/extender/packing.py
    total *= DECIMALS
    np.rint(total, out=total)
    total /= DECIMALS
    return total


# Of a point; far below what one thousandth of a GPU is worth for the rarest shape.
DECIMALS: Final = 1e9


def whole_span(_weights: Mapping[str, int]) -> tuple[float, float]:
    """Return the smallest and the largest total that `weighted_mean` can give."""
    return 0.0, MAX_NODE_SCORE


@dataclass(frozen=True, slots=True)
class Profile:
    """A tested way to combine the terms.

    Attributes
    ----------
    combine : callable
        Terms and weights to one total for each candidate.
    span : callable
        Weights to the smallest and the largest total.
    weights : mapping of str to int
        Of its terms, in hundredths; others have none.
    normalize, strategy : str
        As in the settings.
    """

    combine: Combine
    span: Callable[[Mapping[str, int]], tuple[float, float]]
    weights: Mapping[str, int]
    normalize: str = RANK
    strategy: str = "target"


# profile name, as in the settings -> what it does, where the settings say nothing else
PROFILES: Final[Mapping[str, Profile]] = {
    CLASSIC: Profile(
        classic,
        classic_span,
        {"utilization": 40, "typeMatch": 30, "topology": 30},
        normalize="minMax",
    ),
    "packing": Profile(
        weighted_mean, whole_span, {"fragmentation": 100, "scarcity": 100}
    ),
    "spread": Profile(
        weighted_mean,
        whole_span,
        {"utilization": 60, "typeMatch": 20, "topology": 20},
        strategy="spread",
    ),
    "training": Profile(
        weighted_mean,
        whole_span,
        {"topology": 40, "domain": 40, "fragmentation": 100, "scarcity": 100},
    ),
}
