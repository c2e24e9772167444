"""The device plugin's choices, with the cases of its own tests."""

import pytest

from scoring.topology.layouts import NAMED_LAYOUTS, gpus_of, layout_of, set_of
from scoring.topology.policy import Policy, pair_scores, policy_of

DGX_1 = layout_of(*NAMED_LAYOUTS["dgx-1-v100"])


def test_scores_of_the_pairs_of_a_dgx_1() -> None:
    scores = pair_scores(DGX_1)

    assert scores[0] == (0, 150, 130, 230, 210, 10, 10, 10)
    assert scores[6] == (10, 10, 110, 10, 130, 230, 0, 250)


def test_links_to_a_switch_are_not_seen() -> None:
    assert pair_scores(layout_of(*NAMED_LAYOUTS["dgx-a100"]))[0][:4] == (0, 50, 30, 30)


def test_links_to_a_switch_are_not_seen_where_one_gpu_has_fewer() -> None:
    worn = layout_of(((0, 18, 16), (18, 0, 16), (16, 16, 0)))

    assert pair_scores(worn) == ((0, 50, 10), (50, 0, 10), (10, 10, 0))


@pytest.mark.parametrize(
    ("free", "size", "taken"),
    [
        ((0, 2, 4, 5), 2, (4, 5)),
        ((0, 4, 5, 6), 2, (5, 6)),
        ((0, 1, 3), 2, (0, 3)),
        ((0, 1, 4), 2, (0, 4)),
        pytest.param(range(8), 2, (0, 3), id="{2,3} is better, but the first counts"),
        (range(8), 3, (0, 2, 3)),
        (range(8), 4, (0, 1, 2, 3)),
        (range(8), 8, tuple(range(8))),
        pytest.param((2, 5), 1, (2,), id="one GPU: the first"),
        pytest.param((2, 5), 3, (), id="too few"),
        pytest.param((2, 5), 0, (), id="nothing asked"),
        pytest.param((), 2, (), id="nothing free"),
    ],
)
def test_choices_on_a_dgx_1(
    free: tuple[int, ...], size: int, taken: tuple[int, ...]
) -> None:
    assert gpus_of(Policy(DGX_1).pick(set_of(free), size)) == taken


def test_pairs_that_bridges_join_stay_together() -> None:
    pick = policy_of(layout_of(*NAMED_LAYOUTS["bridged-pairs-8"])).pick

    assert gpus_of(pick(set_of((0, 2, 3, 5)), 2)) == (2, 3)
