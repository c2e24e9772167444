"""What runs beside a test: a fake API server, or the real process over two nodes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.two_nodes import file_config, write_two_nodes
from tests.fakes.api_server import FakeApiServer
from tests.fakes.watched_cluster import WatchedCluster
from tests.service_process import ServiceProcess


@pytest.fixture
def api() -> Iterator[FakeApiServer]:
    """Run a fake API server."""
    with FakeApiServer() as server:
        yield server


@pytest.fixture
def cluster(api: FakeApiServer, tmp_path: Path) -> WatchedCluster:
    """Return a watch over the API server; the test enters it."""
    return WatchedCluster(api.kubeconfig(tmp_path))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the dump of two nodes."""
    write_two_nodes(tmp_path / "dump.json")
    return tmp_path


@pytest.fixture
def service(folder: Path) -> Iterator[ServiceProcess]:
    """Run the real process over the two nodes."""
    with ServiceProcess(folder, file_config()) as running:
        running.wait_ready()
        yield running
