"""The clients of the webhook's benchmark on the real process, and its bars."""

import base64
import json
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from bench.client import Connection, Load, request_bytes
from bench.clusters import sampled_bodies
from bench.extender.pairs_client import PairsPlan
from bench.extender.pairs_client import run as run_pairs
from bench.injector import mutate, silent
from bench.injector.https_echo import PATCH
from bench.injector.mutate import Measured, Served
from bench.injector.mutate_client import (
    CLOSED_LOOP,
    ECHO,
    OURS,
    MutatePlan,
    Part,
    PartTimings,
    check_review,
    review_of,
    run,
    trusting,
)
from bench.injector.reviews import Work, make_body, time_in_turns
from bench.injector.silent import Silence

NODES = 40


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with mutate.serve(tmp_path_factory.mktemp("served"), NODES) as running:
        yield running


def make_plan(served: Served, ports: dict[str, int], parts: list[Part]) -> MutatePlan:
    return MutatePlan(ports, served.certificate, mutate.review_bodies(), 3, parts)


def ask(port: int, certificate: str, body: bytes) -> dict[str, Any]:
    """Return the answer to one review."""
    with closing(Connection(port, trusting(certificate))) as connection:
        head, answered = connection.call(review_of(body, 7))
    check_review(head, answered)
    decoded: dict[str, Any] = json.loads(answered)
    return decoded


def test_pods_are_reviewed_in_closed_and_open_loops(served: Served) -> None:
    parts = [Part(CLOSED_LOOP, 0.2), Part(0.0, 0.1), Part(100.0, 0.2)]

    timings = run(make_plan(served, {OURS: served.https}, parts))

    closed, pause, even = timings.parts
    assert len(closed.seconds) >= 3
    assert closed.rate > 0
    assert (pause.seconds, pause.elapsed >= 0.1) == ([], True)
    # as many as were due, whether they were answered in time or not
    assert len(even.seconds) == pytest.approx(20, abs=2)
    assert closed.ended <= pause.started
    assert pause.ended <= even.started


def test_the_echo_is_sent_the_same_reviews_in_turn(served: Served) -> None:
    parts = [Part(CLOSED_LOOP, 0.2, name, 1) for name in (OURS, ECHO)]

    with mutate.echoing(served) as echo:
        timings = run(make_plan(served, {OURS: served.https, ECHO: echo}, parts))
        answered = ask(echo, served.certificate, make_body(3))

    ours, echoed = timings.parts
    assert ours.ended <= echoed.started
    assert echoed.seconds
    assert answered["response"]["uid"].endswith("0007")
    # its own answer, and not the product's
    assert base64.b64decode(answered["response"]["patch"]) == PATCH


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

    for kinds in taken:
        assert {name: len(seconds) for name, seconds in kinds.items()} == {
            "review": 2,
            "healthz over HTTPS": 2,
            "filter": 2,
            "healthz": 2,
        }


def test_works_are_timed_in_turns() -> None:
    done: list[str] = []
    works = [Work(partial(done.append, name), 2) for name in ("a", "b")]

    seconds = time_in_turns(works, 2)

    assert [len(rounds) for rounds in seconds] == [2, 2]
    # once each to begin with
    assert done == ["a", "b", *["a", "a", "b", "b"] * 2]


def make_part(seconds: float, *, count: int = 1000, late: float = 0.0) -> PartTimings:
    """Return a part of two seconds, of whose reviews one in ten was late."""
    taken = [seconds] * (count - count // 10) + [late or seconds] * (count // 10)
    return PartTimings(0.0, 2.0, taken)


def make_measured(
    *, rate: float, late: float, beside: float, longest: float, own: float
) -> Measured:
    return Measured(
        single={"ours": [make_part(0.003)], "echo": [make_part(0.002)]},
        closed={
            "ours": [make_part(0.01, count=int(rate * 2))],
            "echo": [make_part(0.01, count=2000)],
        },
        even=[make_part(0.002, late=late)],
        alone=[[0.001] * 3, [0.001] * 3],
        beside=[[beside] * 3, [beside] * 3],
        silence=Silence(
            {"review": [0.01, 0.02], "healthz": [0.01, 0.01]},
            {"review": [0.01, 0.01], "healthz": [0.01, longest]},
        ),
        own={3: [own, own * 2], 10: [0.0003, 0.0006], 100: [0.003, 0.006]},
        recoded=[0.0001, 0.0002],
    )


@pytest.mark.parametrize(
    ("measured", "lines"),
    [
        pytest.param(
            make_measured(
                rate=600.0, late=0.01, beside=0.002, longest=0.2, own=0.00025
            ),
            [
                "bar mutate_echo_ratio 0.60 >=0.6 pass",
                "bar mutate_open_loop_p99_over_p50 5.00 <=5 pass",
                "bar filter_ratio_under_mutate 2.00 <=2 pass",
                "bar silent_clients_over_alone 10.00 <=10 pass",
                "bar review_over_json 2.50 <=2.5 pass",
                "bar review_growth_10_100 10.00 <=10 pass",
            ],
            id="just met",
        ),
        pytest.param(
            make_measured(
                rate=500.0, late=0.012, beside=0.003, longest=0.3, own=0.0003
            ),
            [
                "bar mutate_echo_ratio 0.50 >=0.6 miss",
                "bar mutate_open_loop_p99_over_p50 6.00 <=5 miss",
                "bar filter_ratio_under_mutate 3.00 <=2 miss",
                "bar silent_clients_over_alone 15.00 <=10 miss",
                "bar review_over_json 3.00 <=2.5 miss",
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
    said = mutate.table(
        make_measured(rate=600.0, late=0.01, beside=0.002, longest=0.2, own=0.00025)
    )

    assert "reviews a second: 600 [600 to 600], echo 1000 [1000 to 1000]" in said
    assert "mutate_p50_over_echo 1.50 [1.50 to 1.50]" in said
    assert "ratio of p50 2.00 [2.00 to 2.00]" in said
    assert "3 containers: 375 [250 to 500]" in said
    assert "json alone: 150 [100 to 200]" in said
