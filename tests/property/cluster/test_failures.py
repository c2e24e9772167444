"""Failing nodes against the plain rule, over histories in the order of time."""

from hypothesis import given
from hypothesis import strategies as st

from cluster.ledger.failures import FailureLimits, Failures

SPAN = 10.0

# what happens to one node: seconds since the last, and whose pod fails, if any
steps = st.lists(
    st.tuples(st.integers(0, 12), st.sampled_from(["x", "y", "z", None])),
    min_size=1,
    max_size=30,
)


def is_failing(history: list[tuple[float, str]], now: float) -> bool:
    """Say whether two owners failed within the span, and the later one lately."""
    return any(
        one != other and abs(at - then) <= SPAN and max(at, then) + SPAN > now
        for at, one in history
        for then, other in history
    )


@given(steps)
def test_a_node_is_failing_exactly_as_the_rule_says(
    steps: list[tuple[int, str | None]],
) -> None:
    now = 0.0
    table = Failures(FailureLimits(2, SPAN), lambda: now)
    history: list[tuple[float, str]] = []

    for seconds, owner in steps:
        now += seconds
        table.expire()
        if owner is not None:
            history.append((now, owner))
            table.note("a", owner, now)

        assert ("a" in table.nodes) == is_failing(history, now)


@given(steps)
def test_the_time_of_expiry_is_when_it_ends(
    steps: list[tuple[int, str | None]],
) -> None:
    now = 0.0
    table = Failures(FailureLimits(2, SPAN), lambda: now)
    history: list[tuple[float, str]] = []
    for seconds, owner in steps:
        now += seconds
        if owner is not None:
            history.append((now, owner))
            table.note("a", owner, now)
    table.expire()

    left = table.seconds_to_expiry()

    if left is not None:
        assert is_failing(history, now + left - 0.001)
        assert not is_failing(history, now + left)
        now += left
        assert table.expire() == ("a",)


@given(steps, st.integers(0, 15))
def test_a_restart_loses_nothing_and_makes_nothing_new(
    steps: list[tuple[int, str | None]], later: int
) -> None:
    """A table that is told all failures at once, by their own times, says the same."""
    now = 0.0
    history: list[tuple[float, str]] = []
    for seconds, owner in steps:
        now += seconds
        if owner is not None:
            history.append((now, owner))
    now += later
    table = Failures(FailureLimits(2, SPAN), lambda: now)

    for at, owner in history:
        table.note("a", owner, at)

    assert ("a" in table.nodes) == is_failing(history, now)
