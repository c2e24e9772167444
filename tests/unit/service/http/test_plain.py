from collections.abc import Iterable
from typing import Any

import pytest

from cluster.ledger.writer import SnapshotCell
from service.http.health import Health
from service.http.plain import HttpServer
from service.settings.process import ServerSettings


def answer(_environ: dict[str, Any], _start_response: Any) -> Iterable[bytes]:
    """Answer nothing."""
    return []


def test_a_host_that_nobody_has_is_an_error_that_names_it() -> None:
    settings = ServerSettings().model_copy(update={"host": "no such host"})
    health = Health(SnapshotCell(), dict, stale_after_seconds=1.0)

    with pytest.raises(OSError, match="no such host"):
        HttpServer(answer, settings, health)
