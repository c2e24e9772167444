"""The arithmetic of the benchmark of kube-scheduler, and its configurations."""

import json
from pathlib import Path

import pytest

from bench.processes import BenchError
from bench.scheduler.modes import (
    MODES,
    NOOP,
    PLAIN,
    in_turn,
    our_settings,
    scheduler_config,
)
from bench.scheduler.report import bars, table
from bench.scheduler.samples import Figures, Sample, figures
from service.settings.settings import read_settings


def make_sample(
    *, at: float, bound: int, scheduler_seconds: float = 0.0, retried: int = 0
) -> Sample:
    return Sample(at, bound, retried, {"scheduler": scheduler_seconds})


def make_figures(*, speed: float, extender_ms: float | None = None) -> Figures:
    cpu_ms = {"scheduler": 8.0}
    if extender_ms is not None:
        cpu_ms["extender"] = extender_ms
    return Figures(speed, 0, cpu_ms)


def test_only_the_part_from_a_tenth_to_nine_tenths_is_timed() -> None:
    samples = [
        make_sample(at=0.0, bound=0),
        make_sample(at=3.0, bound=10, scheduler_seconds=1.0, retried=2),
        make_sample(at=4.0, bound=50, scheduler_seconds=1.3, retried=2),
        make_sample(at=5.0, bound=90, scheduler_seconds=1.4, retried=3),
        make_sample(at=5.1, bound=100, scheduler_seconds=9.0, retried=9),
    ]

    result = figures(samples, 100)

    # 80 pods in 2 s; 0.4 s of the processor for 80 pods are 5 ms each
    assert result.pods_per_second == pytest.approx(40.0)
    assert result.retried == 1
    assert result.cpu_ms["scheduler"] == pytest.approx(5.0)


@pytest.mark.parametrize(
    "bound",
    [
        pytest.param((0, 100), id="none in the timed part"),
        pytest.param((0, 50, 100), id="a single one"),
        pytest.param((0, 15, 60, 100), id="less than half of the pods between them"),
    ],
)
def test_too_few_samples_are_no_figure(bound: tuple[int, ...]) -> None:
    samples = [make_sample(at=float(i), bound=each) for i, each in enumerate(bound)]

    with pytest.raises(BenchError, match=r"tenth|timed"):
        figures(samples, 100)


def test_rounds_are_compared_with_the_idle_extender_of_the_same_round() -> None:
    rounds = {
        "noop": [
            make_figures(speed=80.0, extender_ms=2.0),
            make_figures(speed=40.0, extender_ms=2.5),
        ],
        "full": [
            make_figures(speed=72.0, extender_ms=3.0),
            make_figures(speed=38.0, extender_ms=4.0),
        ],
        "one": [
            make_figures(speed=104.0, extender_ms=1.0),
            make_figures(speed=60.0, extender_ms=1.0),
        ],
    }

    lines = [bar.line() for bar in bars({1000: rounds})]

    # full: 0.90 and 0.95; one: 1.3 and 1.5; the dearest of our modes is full,
    # with 1.5 and 1.6
    assert lines == [
        "bar noop_ratio_1000_full 0.93 >=0.9 pass",
        "bar noop_ratio_1000_one 1.40 >=1.4 pass",
        "bar extender_cpu_over_noop 1.55 <=1.5 miss",
    ]


def test_without_the_idle_extender_there_is_no_ratio() -> None:
    rounds = {"full": [make_figures(speed=72.0, extender_ms=2.6)]}

    assert bars({1000: rounds}) == []


def test_the_table_has_a_line_for_each_mode_that_ran() -> None:
    rounds = {
        "plain": [make_figures(speed=150.0)],
        "noop": [make_figures(speed=100.0, extender_ms=1.9)],
    }

    lines = table(1000, 600, rounds).splitlines()

    assert "1000 GPU nodes, 600 pods, runs of each mode: 1," in lines[0]
    assert [line.split()[0] for line in lines[2:]] == ["mode", "plain", "noop"]
    assert lines[3].split()[1:] == [
        *("150.0", "[150.0", "to", "150.0]"),
        *("1.50", "[1.50", "to", "1.50]"),
        *("8.0", "-", "-", "-", "0"),
    ]
    assert lines[4].split()[-5:] == ["8.0", "-", "-", "1.9", "0"]


def test_each_mode_is_first_once_in_as_many_rounds_as_there_are_modes() -> None:
    modes = list(MODES.values())

    firsts = {in_turn(modes, number)[0].name for number in range(len(modes))}

    assert firsts == set(MODES)


def test_the_idle_extender_is_configured_as_ours() -> None:
    assert scheduler_config(NOOP) == scheduler_config(MODES["full"])
    assert "extenders" in scheduler_config(NOOP)
    assert "extenders" not in scheduler_config(PLAIN)


@pytest.mark.parametrize("name", ["full", "shortlist", "one"])
def test_our_modes_are_settings_that_we_take(name: str, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(our_settings(MODES[name], 8888, "kubeconfig")))

    settings = read_settings(config)

    assert settings.server.port == 8888
