"""The clients of the HTTP benchmark on the echo, and the arithmetic of its bars."""

from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path

import pytest

from bench.client import Load, Plan, Timings
from bench.client import run as run_plan
from bench.clusters import POD_UID, sampled_bodies
from bench.extender import crowd, http, packing, promise
from bench.extender.crowd_client import (
    CrowdPlan,
    CrowdTimings,
    even_gaps,
    random_gaps,
)
from bench.extender.crowd_client import run as run_crowd
from bench.extender.promise import Busy
from bench.processes import started


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    log: Path = tmp_path_factory.mktemp("echo") / "echo.log"
    with started("bench.extender.echo", log=log) as port:
        yield port


def make_crowd(
    *, single: float = 0.001, tail: float = 0.001, rates: tuple[float, float]
) -> CrowdTimings:
    loop = [[single] * 90 + [tail] * 10]
    return CrowdTimings([rates[0]], [rates[1]], [[single] * 9], loop, loop, 0.0)


def test_each_server_is_asked_the_same_pairs(echo: int) -> None:
    load = Load(30, 4, sampled_bodies(60, 30, 2), {"ours": echo, "echo": echo})

    timings = run_plan(Plan([load], 2, 1))

    shape = [[len(one) for one in load] for load in timings.seconds["ours"]]
    assert shape == [[4, 4]]
    assert timings.seconds.keys() == {"ours", "echo"}


def test_a_crowd_is_timed_in_closed_and_open_loops(echo: int) -> None:
    load = Load(30, 1, sampled_bodies(60, 30, 2))

    timings = run_crowd(CrowdPlan(echo, load, POD_UID.encode(), 3, 1, 0.2))

    assert timings.open_rate == pytest.approx(timings.crowd_rates[0] / 2)
    assert min(timings.single_rates + timings.crowd_rates) > 0
    # as many as were due, whether they were answered in time or not
    assert len(timings.even[0]) == pytest.approx(timings.open_rate * 0.2, abs=2)
    assert timings.single[0]
    assert timings.uneven[0]


def test_gaps_are_of_the_rate() -> None:
    even = list(islice(even_gaps(200.0), 3))
    random = list(islice(random_gaps(200.0), 4000))

    assert even == [0.005] * 3
    assert sum(random) / len(random) == pytest.approx(0.005, rel=0.05)
    assert any(one != other for one, other in pairwise(random))


def test_pairs_are_held_against_the_echo_and_the_growth_with_names() -> None:
    ours = [[[0.001]], [[0.002]], [[0.00755]], [[0.0161]]]
    echo = [[[0.001]], [[0.0016]], [[0.005]], [[0.01]]]

    found = http.bars(Timings({"ours": ours, "echo": echo}))

    # 1, 1.25, 1.51; 16.1 ms for 10,000 names over 2 ms for 1,000 are 8.05
    assert [bar.line() for bar in found] == [
        "bar http_echo_ratio_420 1.00 <=1.25 pass",
        "bar http_echo_ratio_420_floor 1.00 <=1.5 pass",
        "bar http_echo_ratio_1000 1.25 <=1.25 pass",
        "bar http_echo_ratio_1000_floor 1.25 <=1.5 pass",
        "bar http_echo_ratio_5000 1.51 <=1.25 miss",
        "bar http_echo_ratio_5000_floor 1.51 <=1.5 miss",
        "bar names_growth_1000_10000 8.05 <=8 miss",
    ]


@pytest.mark.parametrize(
    ("timings", "lines"),
    [
        pytest.param(
            make_crowd(tail=0.004, rates=(100.0, 90.0)),
            [
                "bar open_loop_50_p99_over_single_p50 4.00 <=4 pass",
                "bar closed_loop_50_throughput_ratio 0.90 >=0.9 pass",
            ],
            id="just met",
        ),
        pytest.param(
            make_crowd(tail=0.005, rates=(100.0, 80.0)),
            [
                "bar open_loop_50_p99_over_single_p50 5.00 <=4 miss",
                "bar closed_loop_50_throughput_ratio 0.80 >=0.9 miss",
            ],
            id="missed",
        ),
    ],
)
def test_a_crowd_is_held_against_one_caller(
    timings: CrowdTimings, lines: list[str]
) -> None:
    assert [bar.line() for bar in crowd.bars(timings)] == lines


def test_packing_is_held_against_classic() -> None:
    timings = Timings({"packing": [[[0.0025]]], "classic": [[[0.002]]]})
    seconds = packing.time_kernels(count=20, bindings=2)
    assert {len(times) for times in seconds.renewed.values()} == {2}
    kernels = seconds._replace(renewed={"packing": [0.0031], "classic": [0.001]})

    assert [bar.line() for bar in packing.bars(timings, kernels)] == [
        "bar packing_http_1000 1.25 <=1.25 pass",
        "bar packing_kernel_5000 3.10 <=3 miss",
    ]


def test_a_promise_is_kept_by_a_factor() -> None:
    busy = Busy([0.010] * 90 + [0.025] * 10, 500.0)

    assert [bar.line() for bar in promise.bars(busy)] == [
        "bar promise_p50_factor 5.00 >=5 pass",
        "bar promise_p95_factor 4.00 >=5 miss",
        "bar promise_p99_factor 8.00 >=5 pass",
    ]


def test_tables_say_what_was_timed() -> None:
    busy = Busy([0.010] * 100, 498.0)
    crowded = make_crowd(rates=(100.0, 95.0))

    assert "498 watch events a second" in promise.table(busy)
    assert "ratio 0.95 [0.95 to 0.95]" in crowd.table(crowded)
