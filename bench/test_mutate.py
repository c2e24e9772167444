"""The clients of the webhook's benchmark on the real process, and its bars."""

from collections.abc import Iterator

import pytest

from bench import mutate, silent
from bench.client import Load, request_bytes
from bench.clusters import sampled_bodies
from bench.mutate import Measured, Served
from bench.mutate_client import (
    CLOSED_LOOP,
    MutatePlan,
    Part,
    PartTimings,
    run,
    trusting,
)
from bench.pairs_client import PairsPlan
from bench.pairs_client import run as run_pairs
from bench.reviews import make_body, time_reviews

NODES = 40


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with mutate.serve(tmp_path_factory.mktemp("served"), NODES) as running:
        yield running


def test_pods_are_reviewed_in_closed_and_open_loops(served: Served) -> None:
    parts = [Part(CLOSED_LOOP, 0.2), Part(0.0, 0.1), Part(100.0, 0.2)]

    timings = run(
        MutatePlan(served.https, served.certificate, mutate.review_bodies(), 3, parts)
    )

    closed, pause, even = timings.parts
    assert len(closed.seconds) >= 3
    assert closed.rate > 0
    assert (pause.seconds, pause.elapsed >= 0.1) == ([], True)
    # as many as were due, whether they were answered in time or not
    assert len(even.seconds) == pytest.approx(20, abs=2)
    assert closed.ended <= pause.started
    assert pause.ended <= even.started


def test_pairs_are_noted_with_their_moments(served: Served) -> None:
    load = Load(30, 1, sampled_bodies(NODES, 30, 2))

    pairs = run_pairs(PairsPlan(served.http, load, 0.2))

    assert len(pairs.started) == len(pairs.seconds) > 0
    first = pairs.started[0]
    assert pairs.between(first, first + 60) == pairs.seconds
    assert pairs.between(first + 60, first + 120) == []


def test_calls_are_answered_beside_silent_clients(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("IDLE", 5), ("HALF_OPEN", 3), ("ROUNDS", 1), ("CALLS", 2)):
        monkeypatch.setattr(silent, name, value)
    to_filter = request_bytes("/scheduler/filter", sampled_bodies(NODES, 30, 1)[0])

    taken = silent.measure(
        (served.http, served.https),
        trusting(served.certificate),
        make_body(3),
        to_filter,
    )

    assert {name: len(seconds) for name, seconds in taken.items()} == {
        "review": 2,
        "healthz over HTTPS": 2,
        "filter": 2,
        "healthz": 2,
    }


def test_a_review_is_timed_in_process() -> None:
    seconds = time_reviews(3, 2, 1)

    assert len(seconds) == 2


def make_measured(*, beside: float, longest: float, own: float) -> Measured:
    part = PartTimings(0.0, 2.0, [0.01] * 1000)
    return Measured(
        closed=[part],
        even=[part],
        alone=[[0.001] * 3, [0.001] * 3],
        beside=[[beside] * 3, [beside] * 3],
        silent={"review": [0.01, longest]},
        own={3: [own, own * 2], 10: [0.0003], 100: [0.003]},
    )


@pytest.mark.parametrize(
    ("measured", "lines"),
    [
        pytest.param(
            make_measured(beside=0.002, longest=1.0, own=0.00015),
            [
                "bar mutate_reviews_per_s 500.00 >=500 pass",
                "bar mutate_p99_ms 10.00 <=50 pass",
                "bar filter_ratio_under_mutate 2.00 <=2 pass",
                "bar silent_clients_longest_call_ms 1000.00 <=1000 pass",
                "bar review_us_3_containers 150.00 <=150 pass",
                "bar review_growth_10_100 10.00 <=10 pass",
            ],
            id="just met",
        ),
        pytest.param(
            make_measured(beside=0.003, longest=1.5, own=0.0002),
            [
                "bar mutate_reviews_per_s 500.00 >=500 pass",
                "bar mutate_p99_ms 10.00 <=50 pass",
                "bar filter_ratio_under_mutate 3.00 <=2 miss",
                "bar silent_clients_longest_call_ms 1500.00 <=1000 miss",
                "bar review_us_3_containers 200.00 <=150 miss",
                "bar review_growth_10_100 10.00 <=10 pass",
            ],
            id="missed",
        ),
    ],
)
def test_reviews_are_held_against_their_bars(
    measured: Measured, lines: list[str]
) -> None:
    assert [bar.line() for bar in mutate.bars(measured)] == lines


def test_the_table_says_what_was_timed() -> None:
    said = mutate.table(make_measured(beside=0.002, longest=1.0, own=0.00015))

    assert "closed loop, reviews a second: 500 [500 to 500]" in said
    assert "ratio of p50 2.00 [2.00 to 2.00]" in said
    assert "3 containers: 225 [150 to 300]" in said
