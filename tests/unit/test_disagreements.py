import numpy as np
import pytest

from extender.disagreements import Disagreements


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reasons() -> list[str]:
    return []


@pytest.fixture
def disagreements(clock: Clock, reasons: list[str]) -> Disagreements:
    return Disagreements(reasons.append, limit_seconds=5.0, monotonic=clock)


def test_a_disagreement_that_lasts_has_the_pods_listed_once(
    disagreements: Disagreements, clock: Clock, reasons: list[str]
) -> None:
    for moment in (100.0, 103.0, 105.1, 105.2):
        clock.now = moment
        disagreements.note(["a", "b"], np.array([True, False]))

    assert reasons == ["counts_disagree"]


def test_a_disagreement_that_ends_in_time_is_forgotten(
    disagreements: Disagreements, clock: Clock, reasons: list[str]
) -> None:
    disagreements.note(["a"], np.array([True]))
    clock.now = 104.0
    disagreements.note(["a"], np.array([False]))
    clock.now = 106.0
    disagreements.note(["a"], np.array([True]))

    assert reasons == []


def test_calls_about_other_nodes_do_not_end_a_disagreement(
    disagreements: Disagreements, clock: Clock, reasons: list[str]
) -> None:
    disagreements.note(["a"], np.array([True]))
    clock.now = 105.5
    disagreements.note(["b"], np.array([False]))

    assert reasons == ["counts_disagree"]
