"""Outcomes of filter and prioritize calls that nobody has made."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from extender.verbs.call import FilterOutcome, PrioritizeOutcome, VerbCall
from extender.wire.answers import FilterAnswer
from scoring.candidates import PodRequest
from scoring.feasibility import Feasibility
from scoring.resources import Request
from tests.builders import make_snapshot

EMPTY: Final = make_snapshot()


def make_call(
    names: Sequence[str], pod_request: PodRequest, generation: int
) -> VerbCall:
    columns = np.full(len(names), -1, dtype=np.intp)
    snapshot = replace(EMPTY, generation=generation)
    return VerbCall(pod_request, names, columns, snapshot)


def make_request(uid: str = "u", request: Request = ()) -> PodRequest:
    return PodRequest(uid, request, "", None, "")


def make_filter_outcome(  # noqa: PLR0913 - all have names
    verdicts: Sequence[int],
    *,
    mismatched: Sequence[bool] | None = None,
    names: Sequence[str] | None = None,
    pod_request: PodRequest | None = None,
    generation: int = 1,
    passed: int | None = None,
    claimed_count: int = 0,
) -> FilterOutcome:
    """Return an outcome in which all feasible nodes pass, or `passed` of them."""
    result = Feasibility(
        np.array(verdicts, dtype=np.int64),
        np.array(mismatched or [False] * len(verdicts), dtype=np.bool_),
    )
    return FilterOutcome(
        make_call(
            names or [f"n{index}" for index in range(len(verdicts))],
            pod_request or make_request(),
            generation,
        ),
        None,
        result,
        FilterAnswer(b"", np.flatnonzero(result.feasible)[:passed], None),
        claimed_count,
    )


def make_prioritize_outcome(
    literals: Sequence[str], priorities: Any, *, uid: str = "u", generation: int = 1
) -> PrioritizeOutcome:
    call = make_call(literals, make_request(uid), generation)
    return PrioritizeOutcome(call, None, literals, np.array(priorities, dtype=np.int64))
