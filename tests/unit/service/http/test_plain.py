import time
from collections.abc import Iterable
from typing import Any

import pytest

from cluster.ledger.writer import SnapshotCell
from service.http.health import Health
from service.http.plain import QUIET_SECONDS, HttpServer, wait_quiet
from service.settings.process import ServerSettings


def answer(_environ: dict[str, Any], _start_response: Any) -> Iterable[bytes]:
    """Answer nothing."""
    return []


def test_a_host_that_nobody_has_is_an_error_that_names_it() -> None:
    settings = ServerSettings().model_copy(update={"host": "no such host"})
    health = Health(SnapshotCell(), dict, stale_after_seconds=1.0)

    with pytest.raises(OSError, match="no such host"):
        HttpServer(answer, settings, health)


def test_looks_that_last_long_do_not_end_the_wait_for_quiet() -> None:
    looks: list[bool] = []

    def is_idle() -> bool:
        if len(looks) < 3:
            time.sleep(1.5 * QUIET_SECONDS)  # as on a busy machine
        looks.append(len(looks) >= 2)
        return looks[-1]

    assert wait_quiet(is_idle, 60.0)
    assert looks[:3] == [False, False, True]


def test_who_is_never_quiet_is_waited_for_so_long_only() -> None:
    assert not wait_quiet(lambda: False, 2 * QUIET_SECONDS)
