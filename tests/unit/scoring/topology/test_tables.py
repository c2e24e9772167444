import numpy as np
import pytest

from scoring.topology.layouts import NAMED_LAYOUTS, bridged, layout_of, set_of
from scoring.topology.tables import table_of, worth

DGX_1 = layout_of(*NAMED_LAYOUTS["dgx-1-v100"])
PAIRS = layout_of(*NAMED_LAYOUTS["bridged-pairs-4"])


def test_worth_rises_with_bandwidth_and_stays_in_bounds() -> None:
    values = worth(np.array([0.0, 1.0, 12.0, 24.0, 25.0, 50.0, 900.0, 1800.0, 1e9]))

    assert values[0] == 0.0
    assert round(float(values[4]), 9) == 50.0
    assert values[-2:].tolist() == [100.0, 100.0]
    assert (np.diff(values) >= 0).all()


def test_quality_is_relative_to_the_empty_node() -> None:
    table = table_of(DGX_1, 2)

    assert table.quality[DGX_1.full] == 1.0
    assert table.quality[set_of((0, 1))] == 0.5
    assert table.quality[set_of((0, 5))] == 0.12
    assert table.quality[set_of((0,))] == 0.0


def test_linked_sets() -> None:
    table = table_of(DGX_1, 4)

    assert table.is_linked[set_of(range(4))]
    assert not table.is_linked[set_of((0, 2, 5, 7))]
    assert not table_of(PAIRS, 4).is_linked[PAIRS.full]


def test_one_gpu_is_taken_where_it_breaks_nothing() -> None:
    table = table_of(PAIRS, 1)

    assert table.loss[set_of((1, 2, 3))] == 0.0 or table.picked[14] == 2
    assert table.score[set_of((1,))] == 100.0
    assert table.score[set_of((0, 1))] < 100.0
    assert table.score[0] == 0.0


def test_a_set_that_fills_a_gap_loses_less_than_one_that_breaks_a_board() -> None:
    board = layout_of(*NAMED_LAYOUTS["dgx-h100"])
    table = table_of(board, 2)

    assert table.loss[set_of(range(6))] == 0.0  # the set of four stays
    assert table.loss[set_of(range(2))] < table.loss[set_of(range(4))]
    assert table.loss[set_of(range(4))] < table.loss[board.full]


def test_where_only_the_number_is_known_the_mean_counts() -> None:
    table = table_of(DGX_1, 2)

    assert table.score_by_count[8] == table.score[DGX_1.full]
    assert table.score_by_count[:2].tolist() == [0.0, 0.0]
    two = table.score_by_count[2]
    assert table.score[set_of((0, 5))] < two < table.score[set_of((0, 3))]


def test_sixteen_gpus_take_a_best_set_where_they_differ() -> None:
    layout = layout_of(bridged(16, 4, 6))
    table = table_of(layout, 4)

    assert table.picked[set_of((1, 2, 3, 8, 9, 10, 11))] == set_of((8, 9, 10, 11))
    assert table.score_by_count[16] == table.score[layout.full]


@pytest.mark.parametrize("name", NAMED_LAYOUTS)
def test_no_score_leaves_the_bounds(name: str) -> None:
    layout = layout_of(*NAMED_LAYOUTS[name])
    for size in range(1, layout.count + 1):
        table = table_of(layout, size)
        for values in (table.score, table.score_by_count, table.loss):
            assert (values >= 0).all()
            assert (values <= 100).all()
        assert (table.quality <= 1).all()
