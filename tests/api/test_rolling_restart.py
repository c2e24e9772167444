"""A rolling restart of two real processes; the long one is in tests/e2e."""

from pathlib import Path

from tests.rolling import restart_under_load


def test_a_rolling_restart_under_load_fails_no_call(folder: Path) -> None:
    tally = restart_under_load(folder, rounds=1, calls=500, clients=2)

    assert tally.failures == []
