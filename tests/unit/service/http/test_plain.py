from collections.abc import Iterable
from typing import Any

import pytest

from cluster.ledger.writer import SnapshotCell
from service.http.health import Health
from service.http.plain import HttpServer, InFlight
from service.settings.process import ServerSettings


def answer(_environ: dict[str, Any], _start_response: Any) -> Iterable[bytes]:
    """Answer nothing."""
    return []


def test_a_host_that_nobody_has_is_an_error_that_names_it() -> None:
    settings = ServerSettings().model_copy(update={"host": "no such host"})
    health = Health(SnapshotCell(), dict, stale_after_seconds=1.0)

    with pytest.raises(OSError, match="no such host"):
        HttpServer(answer, settings, health)


def test_requests_are_counted_while_they_are_worked_on() -> None:
    seen: list[int] = []

    def count(_environ: dict[str, Any], _start_response: Any) -> Iterable[bytes]:
        seen.append(in_flight.count)
        return []

    in_flight = InFlight(count)

    in_flight({}, None)

    assert (seen, in_flight.count) == ([1], 0)


def test_a_request_that_fails_is_no_longer_counted() -> None:
    def fail(_environ: dict[str, Any], _start_response: Any) -> Iterable[bytes]:
        raise KeyError("a bug")

    in_flight = InFlight(fail)

    with pytest.raises(KeyError):
        in_flight({}, None)

    assert in_flight.count == 0
