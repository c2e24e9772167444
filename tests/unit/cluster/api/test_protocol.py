"""The API server's clock, whatever becomes of ours."""

import pytest

from cluster.api.protocol import ServerClock

NOON = 1795780800.0


class Clocks:
    """Our wall clock, which may be set, and the monotonic one."""

    def __init__(self) -> None:
        self.wall = NOON
        self.monotonic = 7.0

    def wait(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def clock(clocks: Clocks) -> ServerClock:
    return ServerClock(lambda: clocks.wall, lambda: clocks.monotonic)


def test_until_the_server_says_a_time_it_is_ours_at_the_start(
    clocks: Clocks, clock: ServerClock
) -> None:
    assert clock() == NOON

    clocks.wait(5)

    assert clock() == NOON + 5


@pytest.mark.parametrize("moved", [-7200, -3600, -120, -1, 1, 120, 3600, 7200, 1e9])
def test_a_clock_of_ours_that_is_set_changes_nothing(
    clocks: Clocks, clock: ServerClock, moved: float
) -> None:
    clock.note(NOON)

    clocks.wall += moved
    clocks.wait(60)

    assert clock() == NOON + 60


@pytest.mark.parametrize("ahead", [-3600, -120, 0, 120, 3600])
def test_the_server_is_believed_however_far_we_are_ahead(
    clocks: Clocks, clock: ServerClock, ahead: float
) -> None:
    clocks.wall = NOON + ahead

    clock.note(NOON)
    clocks.wait(2)

    assert clock() == NOON + 2


def test_the_newest_answer_counts_also_if_the_server_was_set_back(
    clocks: Clocks, clock: ServerClock
) -> None:
    clock.note(NOON + 500)
    clocks.wait(10)
    clock.note(NOON)

    assert clock() == NOON
