"""The fleet benchmark, untimed: few jobs, so that its parts are known to fit."""

import numpy as np
import pytest

from bench.scoring.nvlink_fleet import BUSY, PLACEMENTS, Placement, bars, run


@pytest.mark.parametrize("placement", PLACEMENTS, ids=lambda placement: placement.name)
def test_jobs_come_and_go(placement: Placement) -> None:
    outcome = run(placement, seed=1, jobs=40)

    assert outcome.jobs == 40
    assert len(outcome.ratios) + outcome.refused.total() <= 40
    assert all(0 < ratio <= 1 for ratio in outcome.ratios)
    assert BUSY[0] - 0.02 < min(outcome.busy) <= max(outcome.busy) <= BUSY[1]


def test_bars_compare_with_the_better_count() -> None:
    means = {"graded": 0.98, "by count, fullest": 0.5, "by count, emptiest": 0.9}

    lines = [bar.line() for bar in bars({k: np.array([v]) for k, v in means.items()})]

    assert lines == [
        "bar nvlink_fleet 0.98 >=0.95 pass",
        "bar nvlink_fleet_closer_than_count 5.00 >=2 pass",
    ]
