"""The kernels between decoding and encoding, for one call about all nodes."""

from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
import pytest

from bench.clusters import build_snapshot, node_names
from scoring.candidates import Candidates, LabelKeys, PodRequest, take_columns
from scoring.feasibility import judge
from scoring.normalization import METHODS, Scale, normalize
from scoring.profiles import classic, score_terms
from scoring.snapshot import Snapshot, find_columns
from scoring.terms import ScoreOptions

SIZES: Final = (100, 1000, 5000, 10_000)
LABELS: Final = LabelKeys()
OPTIONS: Final = ScoreOptions(
    0.6, 0.8, {"nvidia-h100": frozenset({"nvidia-l4"})}, "target"
)
WEIGHTS: Final = {"utilization": 40, "typeMatch": 30, "topology": 30}
ASK: Final = PodRequest(
    uid="asking",
    request=(("nvidia.com/gpu", 2),),
    primary="nvidia.com/gpu",
    accelerator="nvidia-h100",
    nominated_node="",
)

Benchmark = Callable[..., Any]


class Case(NamedTuple):
    """A cluster, and a call about all its nodes."""

    snapshot: Snapshot
    names: list[str]
    candidates: Candidates


def take(snapshot: Snapshot, names: list[str]) -> Candidates:
    return take_columns(snapshot, find_columns(snapshot, names), ASK, LABELS)


@cache
def make_case(count: int) -> Case:
    snapshot, names = build_snapshot(count, LABELS), node_names(count)
    return Case(snapshot, names, take(snapshot, names))


@pytest.fixture(params=SIZES)
def case(request: pytest.FixtureRequest) -> Case:
    return make_case(request.param)


def test_taking_candidates(benchmark: Benchmark, case: Case) -> None:
    candidates = benchmark(take, case.snapshot, case.names)

    assert candidates.known.all()


def test_judging(benchmark: Benchmark, case: Case) -> None:
    result = benchmark(judge, case.candidates, ASK, is_enforcing=True)

    assert 0 < result.feasible.sum() < len(case.names)


def test_scoring(benchmark: Benchmark, case: Case) -> None:
    def score() -> Any:
        return classic(score_terms(case.candidates, ASK, OPTIONS, WEIGHTS), WEIGHTS)

    totals = benchmark(score)

    assert totals.max() > totals.min()


@pytest.mark.parametrize("method", list(METHODS))
def test_normalizing(benchmark: Benchmark, case: Case, method: str) -> None:
    totals = classic(score_terms(case.candidates, ASK, OPTIONS, WEIGHTS), WEIGHTS)
    order = np.arange(len(totals), dtype=np.int64)
    scale = Scale(method, 10, float(totals.min()), float(totals.max()))

    priorities = benchmark(normalize, totals, case.candidates.known, scale, None, order)

    assert (priorities.min(), priorities.max()) == (0, 10)
