"""How near nodes are to the pods of a job: the cases of docs/scoring.md."""

import numpy as np
import pytest

from scoring.topology.domains import nearness

# Cliques a = 1 and b = 2 in rack 1, and another rack, all in zone 1; another zone.
CLIQUES = (1, 2, 0, 0, 0)
RACKS = (1, 1, 1, 2, 3)
ZONES = (1, 1, 1, 1, 2)


def near(*siblings: tuple[int, int, int, int]) -> list[float]:
    """Return the nearness of the five places; siblings as clique, rack, zone, count."""
    rows = np.array(siblings, dtype=np.int64).reshape(-1, 4).T
    places = [np.array(kind, dtype=np.int64) for kind in (CLIQUES, RACKS, ZONES)]
    found: list[float] = nearness(places, list(rows[:3]), rows[3]).tolist()
    return found


def test_the_example_of_the_page() -> None:
    found = near((1, 1, 1, 3), (2, 1, 1, 1))

    assert found == pytest.approx([11 / 12, 9 / 12, 8 / 12, 4 / 12, 0])


def test_without_siblings_nothing_is_near() -> None:
    assert near() == [0.0] * 5


def test_a_kind_of_domain_that_no_sibling_has_does_not_count() -> None:
    assert near((0, 1, 1, 2)) == [1.0, 1.0, 1.0, 0.5, 0.0]


def test_siblings_without_any_domain_are_near_nobody() -> None:
    assert near((0, 0, 0, 2)) == [0.0] * 5


def test_values_that_no_candidate_has_are_near_nobody() -> None:
    assert near((9, 9, 9, 1)) == [0.0] * 5


def test_without_domains_there_is_nothing_to_be_near_by() -> None:
    assert not len(nearness([], [], np.array([1], dtype=np.int64)))
