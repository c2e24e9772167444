"""When a node counts as failing, by the failures noted of it."""

import math

import pytest

from cluster.ledger.failures import FailureLimits, Failures
from tests.defaults import FAILURE_LIMITS

MINUTE = 60.0


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def noted(clock: Clock, *failures: tuple[str, float], owners: int = 2) -> Failures:
    """Return what is known of node ``a`` after these (owner, minutes ago) failed."""
    table = Failures(FailureLimits(owners, 10 * MINUTE), clock)
    for owner, minutes_ago in failures:
        table.note("a", owner, clock.now - minutes_ago * MINUTE)
    return table


@pytest.mark.parametrize(
    ("failures", "minutes_left"),
    [
        pytest.param([("x", 0)], None, id="one owner"),
        pytest.param([("x", 3), ("x", 1), ("x", 0)], None, id="one owner thrice"),
        pytest.param([("x", 3), ("y", 1)], 9, id="two owners"),
        pytest.param([("x", 12), ("y", 1)], None, id="too far apart"),
        pytest.param([("x", 10), ("y", 0)], 10, id="just near enough"),
        # The pair ended 8 minutes ago, so 2 of its 10 minutes are left.
        pytest.param([("x", 17), ("y", 8)], 2, id="the first one long ago"),
        pytest.param([("x", 17), ("y", 10)], None, id="the pair too long ago"),
        pytest.param([("x", 20), ("y", 9), ("z", 2)], 8, id="the last pair counts"),
        pytest.param([("y", 1), ("x", 3)], 9, id="told in another order"),
    ],
)
def test_two_owners_within_ten_minutes_make_a_node_failing_for_ten(
    failures: list[tuple[str, float]], minutes_left: float | None
) -> None:
    clock = Clock()
    table = noted(clock, *failures)

    seconds = table.seconds_to_expiry()

    assert seconds == (None if minutes_left is None else minutes_left * MINUTE)
    assert ("a" in table.nodes) == (minutes_left is not None)


def test_only_the_failure_that_makes_a_node_failing_says_so() -> None:
    clock = Clock()
    table = Failures(FAILURE_LIMITS, clock)

    told = [table.note("a", owner, clock.now) for owner in ("x", "y", "z")]

    assert told == [False, True, False]


def test_each_node_has_its_own_failures() -> None:
    clock = Clock()
    table = noted(clock, ("x", 0))

    table.note("b", "y", clock.now)

    assert not table.nodes


def test_a_time_to_come_counts_as_now() -> None:
    clock = Clock()
    table = noted(clock, ("x", 0))

    table.note("a", "y", math.inf)

    assert table.nodes == {"a": clock.now + 10 * MINUTE}


def test_a_failing_node_is_sound_again_after_its_time() -> None:
    clock = Clock()
    table = noted(clock, ("x", 3), ("y", 1))

    before = table.expire()
    clock.now += 9 * MINUTE
    after = table.expire()

    assert (before, after) == ((), ("a",))
    assert table.seconds_to_expiry() is None


def test_a_further_failure_prolongs_the_time() -> None:
    clock = Clock()
    table = noted(clock, ("x", 3), ("y", 1))

    clock.now += 5 * MINUTE
    table.note("a", "z", clock.now)

    assert table.seconds_to_expiry() == 10 * MINUTE


def test_a_failure_of_long_ago_does_not_shorten_the_time() -> None:
    clock = Clock()
    table = noted(clock, ("x", 3), ("y", 1))

    table.note("a", "z", clock.now - 9 * MINUTE)

    assert table.seconds_to_expiry() == 9 * MINUTE


def test_an_older_failure_of_an_owner_does_not_hide_its_latest() -> None:
    clock = Clock()
    table = noted(clock, ("x", 0), ("x", 9))

    clock.now += 5 * MINUTE
    table.note("a", "y", clock.now)

    assert "a" in table.nodes


def test_the_time_left_is_never_negative() -> None:
    clock = Clock()
    table = noted(clock, ("x", 3), ("y", 1))

    clock.now += 60 * MINUTE

    assert table.seconds_to_expiry() == 0


def test_a_node_that_is_gone_starts_anew() -> None:
    clock = Clock()
    table = noted(clock, ("x", 3), ("y", 1))

    table.forget("a")
    table.note("a", "z", clock.now)

    assert not table.nodes


@pytest.mark.parametrize(
    ("owners", "is_failing"),
    [
        pytest.param(0, False, id="switched off"),
        pytest.param(1, True, id="one is enough"),
        pytest.param(3, False, id="three are wanted"),
    ],
)
def test_how_many_owners_it_takes_is_a_setting(owners: int, is_failing: bool) -> None:
    table = noted(Clock(), ("x", 0), ("y", 0), owners=owners)

    assert ("a" in table.nodes) == is_failing


def test_failures_that_can_make_no_pair_are_not_kept() -> None:
    clock = Clock()
    table = noted(clock, ("x", 0))

    clock.now += 21 * MINUTE
    table.note("a", "y", clock.now)
    table.note("a", "z", clock.now - 20 * MINUTE)

    assert table._failed["a"].keys() == {"y"}
