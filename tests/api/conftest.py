"""The API server under test: the fake one, unless another is asked for."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.api_server import FakeApiServer
from tests.fakes.watched_cluster import WatchedCluster


@pytest.fixture
def api() -> Iterator[FakeApiServer]:
    """Run a fake API server."""
    with FakeApiServer() as server:
        yield server


@pytest.fixture
def cluster(api: FakeApiServer, tmp_path: Path) -> WatchedCluster:
    """Return a watch over the API server; the test enters it."""
    return WatchedCluster(api.kubeconfig(tmp_path))
