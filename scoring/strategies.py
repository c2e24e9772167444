"""One pure function per score term, each returning float64 of shape (C,) in 0..100."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from scoring.candidates import Ask, Candidates
from scoring.snapshot import Float64Array

MAX_NODE_SCORE: Final = 100.0
COMPATIBLE_SCORE: Final = 70.0
NOTHING_ASKED_SCORE: Final = 50.0
NEUTRAL_SCORE: Final = 50.0
UNLINKED_SCORE: Final = 50.0


@dataclass(frozen=True, slots=True)
class ScoreOptions:
    """What an operator may set of the terms.

    Attributes
    ----------
    target_low, target_high : float
        Allocation ratio from and to which a node scores 100.
    compatible_types : mapping
        asked ``accelerator`` value -> values that are accepted for it
    """

    target_low: float
    target_high: float
    compatible_types: Mapping[str, frozenset[str]]


def target_utilization(
    candidates: Candidates, ask: Ask, options: ScoreOptions
) -> Float64Array:
    """Score nodes by how near they are to the wanted allocation ratio.

    Parameters
    ----------
    candidates : Candidates, C nodes
    ask : Ask
    options : ScoreOptions
        0 < `target_low` <= `target_high` < 1.

    Returns
    -------
    float64 array, shape (C,)
        ``u * 100 / low`` below `target_low`, 100 up to `target_high`, then
        ``(1 - u) * 100 / (1 - high)``; 0 for a node without the resource, 50 where
        only a DeviceClass carries it and no amounts are known.

    Notes
    -----
    u is the requested part of the pod's own GPU resource before placement, at most 1.
    Order and rounding of the operations are those of the classic score; 1 - high is
    written 0.2 there, hence the division rounded to a decimal.
    """
    count = len(candidates.known)
    row = next(
        (i for i, (name, _) in enumerate(ask.request) if name == ask.primary), -1
    )
    if row < 0:
        return np.zeros(count)
    total = candidates.allocatable[row]
    u = np.minimum(candidates.requested[row] / np.maximum(total, 1), 1.0)
    low, high = options.target_low, options.target_high
    rising = u * 100.0 / low
    falling = (1.0 - u) * 100.0 / max(round(1.0 - high, 12), 1e-12)
    scores = np.where(u < low, rising, np.where(u <= high, MAX_NODE_SCORE, falling))
    scores[total == 0] = 0.0
    scores[candidates.claimed[row]] = NEUTRAL_SCORE
    return scores


def type_match(candidates: Candidates, ask: Ask, options: ScoreOptions) -> Float64Array:
    """Score nodes by the GPU type that ``nodeSelector.accelerator`` asks for.

    Returns
    -------
    float64 array, shape (C,)
        50 where nothing is asked; 100 for the type itself, 70 for one that the table
        of compatible types accepts, 0 otherwise and for a node without the label.
    """
    if ask.accelerator is None:
        return np.full(len(candidates.known), NOTHING_ASKED_SCORE)
    accepted = options.compatible_types.get(ask.accelerator, frozenset())
    score_of_code = np.array(
        [0.0]  # entry 0 stands for nodes without the label
        + [
            MAX_NODE_SCORE
            if name == ask.accelerator
            else COMPATIBLE_SCORE
            if name in accepted
            else 0.0
            for name in candidates.type_names[1:]
        ]
    )
    return score_of_code[candidates.type_codes]


def labelled_topology(
    candidates: Candidates,
    ask: Ask,
    _options: ScoreOptions,
) -> Float64Array:
    """Score nodes by whether several GPUs of one pod are joined.

    Returns
    -------
    float64 array, shape (C,)
        100 for a pod of at most one GPU and on nodes that say NVLink, else 50.
    """
    if ask.amount <= 1:
        return np.full(len(candidates.known), MAX_NODE_SCORE)
    return np.where(candidates.linked, MAX_NODE_SCORE, UNLINKED_SCORE)
