"""A rolling restart under load, at length; it needs no control plane."""

from pathlib import Path

import pytest

from tests.api.two_nodes import write_two_nodes
from tests.rolling import restart_under_load

pytestmark = [pytest.mark.e2e, pytest.mark.long]

CALLS = 10_000


def test_ten_thousand_calls_during_rolling_restarts_all_succeed(tmp_path: Path) -> None:
    write_two_nodes(tmp_path / "dump.json")

    tally = restart_under_load(tmp_path, rounds=3, calls=CALLS, clients=4)

    print(  # noqa: T201  the figures belong in the run's record
        f"rolling restart: {tally.calls} calls, {len(tally.failures)} failed,"
        f" 6 restarts, longest call {tally.longest_seconds * 1000:.0f} ms"
    )
    assert tally.failures == []
