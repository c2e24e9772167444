"""Fixtures of more than one folder."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from tests.service_process import PATIENT, ServiceProcess

# The same examples in every run and on every machine, whatever earlier ones have found;
# `make explore` looks for others. No test is timed.
settings.register_profile(
    "fixed",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "explore",
    settings.get_profile("fixed"),
    derandomize=False,
    max_examples=200,
    print_blob=True,
)
settings.load_profile("fixed")

CAPTURES: Final = Path(__file__).parent / "contract" / "captures"


@pytest.fixture(scope="session")
def captured_cluster(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ServiceProcess]:
    """Run the real process over the captured cluster dump."""
    dump = CAPTURES / "1.36" / "cluster-dump.yaml"
    cluster = {"source": "file", "files": [str(dump)]}
    config = {"cluster": cluster, "extender": PATIENT}
    folder = tmp_path_factory.mktemp("captured-cluster")
    with ServiceProcess(folder, config) as service:
        service.wait_ready()
        yield service


@pytest.fixture
def root_logger_as_it_was() -> Iterator[None]:
    """Put the root logger back after a test that configures the logs."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
