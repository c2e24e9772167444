"""`Backoff`, on a clock that the test moves."""

import random

import pytest

from cluster.watch.backoff import Backoff, Pace


class FakeClock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Highest(random.Random):
    """Always the upper bound."""

    def uniform(self, _low: float, high: float) -> float:
        return high


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def backoff(clock: FakeClock) -> Backoff:
    return Backoff(Pace(monotonic=clock, rng=Highest()))


@pytest.mark.parametrize(
    ("reason", "delays"),
    [
        pytest.param(
            "unreachable", [0.2, 0.4, 0.8, 1.6, 3.2, 4.0, 4.0], id="nothing answers"
        ),
        pytest.param(
            "http_500", [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0], id="errors"
        ),
    ],
)
def test_delays_double_up_to_a_cap(
    backoff: Backoff, reason: str, delays: list[float]
) -> None:
    assert [backoff.delay(reason) for _ in delays] == pytest.approx(delays)


def test_half_of_a_delay_is_random() -> None:
    pace = Pace(rng=random.Random(7))  # noqa: S311  spreads, does not hide

    firsts = {round(Backoff(pace).delay("unreachable"), 6) for _ in range(50)}

    assert len(firsts) == 50
    assert min(firsts) >= 0.1
    assert max(firsts) <= 0.2


def test_each_reason_has_a_streak_of_its_own(backoff: Backoff) -> None:
    for _ in range(10):
        backoff.delay("unreachable")

    assert backoff.delay("http_500") == pytest.approx(0.2)
    assert backoff.is_first("http_500")
    assert not backoff.is_first("unreachable")


def test_a_minute_without_failure_ends_the_streaks(
    backoff: Backoff, clock: FakeClock
) -> None:
    for _ in range(10):
        backoff.delay("expired")
    clock.now += 10 + 59
    during = backoff.delay("expired")
    clock.now += 10 + 61
    after = backoff.delay("expired")

    assert during == pytest.approx(10.0)
    assert after == pytest.approx(0.2)


def test_a_retry_after_comes_on_top(backoff: Backoff) -> None:
    assert backoff.delay("http_429", 7.0) == pytest.approx(7.2)


def test_an_endless_retry_after_is_cut(backoff: Backoff) -> None:
    assert backoff.delay("http_429", 86_400.0) == pytest.approx(60.2)


def test_a_very_long_streak_does_not_overflow(backoff: Backoff) -> None:
    for _ in range(5000):
        backoff.delay("unreachable")

    assert backoff.delay("unreachable") == pytest.approx(4.0)
