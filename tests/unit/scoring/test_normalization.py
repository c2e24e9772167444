from collections.abc import Sequence

import numpy as np
import pytest

from scoring.normalization import METHODS, Scale, best_first, normalize
from scoring.snapshot import Int64Array


def normalized(
    totals: Sequence[float],
    scale: Scale,
    *,
    known: list[bool] | None = None,
    tiers: list[int] | None = None,
    order: list[int] | None = None,
) -> Int64Array:
    is_whole = all(isinstance(total, int) for total in totals)
    return normalize(
        np.array(totals, np.int64) if is_whole else np.array(totals, np.float64),
        np.array(known or [True] * len(totals), dtype=np.bool_),
        scale,
        None if tiers is None else np.array(tiers, dtype=np.int64),
        np.array(order or range(len(totals)), dtype=np.int64),
    )


@pytest.mark.parametrize(
    ("totals", "known", "max_score", "scores"),
    [
        pytest.param([], [], 10, [], id="no candidates"),
        pytest.param([7], [True], 10, [10], id="one gets the top"),
        pytest.param([7, 7], [True, True], 10, [10, 10], id="all equal get the top"),
        pytest.param([7, 9], [False, False], 10, [0, 0], id="nobody known"),
        pytest.param(
            [50, 0, 100, 150],
            [True, False, True, True],
            10,
            [0, 0, 5, 10],
            id="unknown nodes get 0 and set no bound",
        ),
        pytest.param(
            [99, 5, 5], [False, True, True], 10, [0, 10, 10], id="equal but unknown"
        ),
        # 29 hundredths are 2.9, 5 are 0.5, 4 are 0.4
        pytest.param(
            [0, 29, 5, 4, 100], [True] * 5, 10, [0, 3, 1, 0, 10], id="half goes up"
        ),
        # 1 x 100 // 3 = 33, 2 x 100 // 3 = 66
        pytest.param([0, 1, 2, 3], [True] * 4, 100, [0, 33, 66, 100], id="hundredths"),
        pytest.param([0, 1, 2, 3], [True] * 4, 1, [0, 0, 1, 1], id="yes or no"),
        pytest.param([-5, 5], [True, True], 10, [0, 10], id="below 0"),
    ],
)
def test_min_max_spreads_totals_over_the_range(
    totals: list[int], known: list[bool], max_score: int, scores: list[int]
) -> None:
    spread = normalized(totals, Scale("minMax", max_score, 50, 150), known=known)

    assert spread.tolist() == scores
    assert spread.dtype == np.int64


@pytest.mark.parametrize(
    ("totals", "scores"),
    [
        pytest.param([50, 150], [0, 10], id="the whole range"),
        pytest.param([100, 101], [5, 5], id="a small difference stays small"),
        pytest.param([55, 54], [1, 0], id="half goes up"),
        pytest.param([120], [7], id="one gets what it has"),
        pytest.param([40, 999], [0, 10], id="nothing is outside"),
    ],
)
def test_absolute_maps_the_profiles_range(
    totals: list[float], scores: list[int]
) -> None:
    assert normalized(totals, Scale("absolute", 10, 50, 150)).tolist() == scores


@pytest.mark.parametrize(
    ("totals", "scores"),
    [
        pytest.param([7.0], [10], id="one gets the top"),
        # floor(9 x (n - r) / (n - 1))
        pytest.param([3.0, 1.0, 2.0], [10, 0, 4], id="by place"),
        pytest.param([1.0, 1.0 + 1e-12], [0, 10], id="in full precision"),
        pytest.param(
            [float(i) for i in range(11)],
            [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 10],
            id="the best is alone on top",
        ),
        pytest.param([], [], id="nobody"),
    ],
)
def test_rank_gives_everyone_a_place(totals: list[float], scores: list[int]) -> None:
    assert normalized(totals, Scale("rank", 10, 50, 150)).tolist() == scores


def test_equal_totals_are_ranked_by_the_order() -> None:
    scores = normalized([5, 5, 5], Scale("rank", 10, 50, 150), order=[2, 0, 1])

    assert scores.tolist() == [0, 10, 4]


def test_who_takes_no_part_has_no_rank() -> None:
    scores = normalized(
        [9, 5, 7], Scale("rank", 10, 50, 150), known=[False, True, True]
    )

    assert scores.tolist() == [0, 0, 10]


@pytest.mark.parametrize("method", list(METHODS))
def test_an_earlier_tier_beats_every_later_one(method: str) -> None:
    scores = normalized(
        [60, 149, 61, 150, 90], Scale(method, 10, 50, 150), tiers=[0, 1, 0, 2, 1]
    ).tolist()

    assert min(scores[0], scores[2]) > max(scores[1], scores[4])
    assert min(scores[1], scores[4]) > scores[3]
    assert scores[2] >= scores[0]
    assert scores[1] > scores[4]


def test_tiers_without_room_share_a_priority() -> None:
    scores = normalized([60, 60, 60], Scale("minMax", 1, 50, 150), tiers=[0, 1, 2])

    assert scores.tolist() == [1, 0, 0]


def test_the_best_come_first() -> None:
    totals = np.array([3, 9, 9, 1])
    order = np.array([0, 2, 1, 3])

    assert best_first(totals, None, order).tolist() == [2, 1, 0, 3]
    assert best_first(totals, np.array([1, 1, 1, 0]), order).tolist() == [3, 2, 1, 0]


@pytest.mark.parametrize("method", list(METHODS))
def test_tiers_have_bands_of_their_own_however_many_nodes_are_in_each(
    method: str,
) -> None:
    totals = [60 + i for i in range(7)] + [80 + i for i in range(60)]
    tiers = [0] * 7 + [1] * 30 + [2] * 30

    scores = normalized(totals, Scale(method, 10, 50, 150), tiers=tiers)

    first, second, third = scores[:7], scores[7:37], scores[37:]
    assert first.min() > second.max()
    assert second.min() > third.max()


@pytest.mark.parametrize(("tiers", "max_score"), [(11, 10), (30, 10), (2, 1)])
def test_the_best_stands_alone_however_many_tiers_there_are(
    tiers: int, max_score: int
) -> None:
    count = 3 * tiers
    got = normalize(
        np.zeros(count),
        np.ones(count, dtype=np.bool_),
        Scale("rank", max_score, 0, 100),
        np.arange(count) // 3,
        np.arange(count),
    )

    assert np.count_nonzero(got == max_score) == 1
    assert (np.diff(got) <= 0).all()
