"""Fixtures that give a test the real control plane.

`control_plane` is shared by all tests of a run and wiped after each one;
`fresh_control_plane` is the test's own, to be broken at will. The Kubernetes minor is
that of the environment variable K8S.
"""

import contextlib
import fcntl
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.e2e import build
from tests.e2e.cluster.running import TREE, RunningCluster
from tests.e2e.cluster.spaces import find_obstacle
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.product import Product
from tests.e2e.harness.reaper import Reaper
from tests.e2e.harness.service import IMAGE_TREE, REPOSITORY

HERE: Final = Path(__file__).resolve().parent
LOGS: Final = HERE / ".logs"
KEPT_RUNS: Final = 10
SERVICE: Final = "gpu-extender"
# Of all runs on this machine.
WHOLE_MACHINE: Final = Path(tempfile.gettempdir()) / "gpu-extender-e2e-machine"
LOG_FOLDER: Final = pytest.StashKey[Path]()
# Where an API server is killed between our connection and its TLS handshake, CPython
# raises out of `SSLSocket._create` without closing what it has made.
LEFT_OPEN: Final = "ignore:unclosed <ssl.SSLSocket:ResourceWarning"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder, before any are selected by mark."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.filterwarnings(LEFT_OPEN))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say where the logs of the processes are."""
    if LOG_FOLDER in config.stash:
        terminalreporter.write_line(f"process logs: {config.stash[LOG_FOLDER]}")


@pytest.fixture
def whole_machine() -> Iterator[None]:
    """The machine's processors, as long as no run of another minor has asked for them.

    For several replicas under load, which are late where those of others are, too.
    """
    with WHOLE_MACHINE.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def minor() -> str:
    """The Kubernetes minor under test, such as 1.36."""
    return build.chosen_minor()


@pytest.fixture(scope="session")
def binaries(minor: str) -> Mapping[str, Path]:
    """Command name -> built binary of the minor."""
    return build.locate(minor)


@pytest.fixture(scope="session")
def run_log_folder(minor: str, pytestconfig: pytest.Config) -> Path:
    """The folder of this run's logs; those of the oldest runs are deleted."""
    LOGS.mkdir(exist_ok=True)
    runs = sorted(path for path in LOGS.iterdir() if path.is_dir())
    for path in runs[: max(0, len(runs) - KEPT_RUNS + 1)]:
        shutil.rmtree(path)
    stamp = f"{time.strftime('%Y%m%d-%H%M%S')}-{minor}"
    for suffix in ("", *(f"-{number}" for number in range(2, 100))):
        folder = LOGS / f"{stamp}{suffix}"
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            break
    pytestconfig.stash[LOG_FOLDER] = folder
    return folder


@pytest.fixture(scope="session")
def reaper() -> Iterator[Reaper]:
    """Kills what is left if the test process itself is killed."""
    with Reaper() as started:
        yield started


@pytest.fixture(scope="session")
def shared_control_plane(
    binaries: Mapping[str, Path],
    run_log_folder: Path,
    reaper: Reaper,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ControlPlane]:
    """The control plane of the whole run; tests take `control_plane`."""
    with ControlPlane(
        binaries,
        folder=tmp_path_factory.mktemp("shared"),
        log_folder=run_log_folder / "shared",
        reaper=reaper,
    ) as started:
        yield started


@pytest.fixture
def control_plane(shared_control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The shared control plane, empty; what the test adds ends with it.

    A call that RBAC refused to the service fails the test.
    """
    before = len(shared_control_plane.calls())
    yield shared_control_plane
    shared_control_plane.reset()
    refused = [
        call
        for call in shared_control_plane.calls()[before:]
        if call.is_refused and call.is_of(SERVICE)
    ]
    assert refused == []


@pytest.fixture
def fresh_control_plane(
    binaries: Mapping[str, Path],
    run_log_folder: Path,
    reaper: Reaper,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Iterator[ControlPlane]:
    """A control plane of the test's own, which it may break."""
    name = re.sub(r"[^\w.-]+", "-", request.node.name)
    with ControlPlane(
        binaries,
        folder=tmp_path / "control-plane",
        log_folder=run_log_folder / name,
        reaper=reaper,
    ) as started:
        yield started


@pytest.fixture
def product(control_plane: ControlPlane) -> Iterator[Product]:
    """gpu-extender as it ships, not started yet, in the shared control plane."""
    with Product(control_plane) as installed:
        yield installed


@pytest.fixture
def fresh_product(fresh_control_plane: ControlPlane) -> Iterator[Product]:
    """gpu-extender as it ships, not started yet, in a control plane of its own."""
    with Product(fresh_control_plane) as installed:
        yield installed


@pytest.fixture(scope="session")
def cluster(
    minor: str,
    run_log_folder: Path,
    reaper: Reaper,
) -> Iterator[RunningCluster]:
    """A whole cluster with two nodes of the control plane; each test cleans up."""
    obstacle = find_obstacle()
    if obstacle:
        pytest.skip(obstacle)
    if IMAGE_TREE is None and not TREE.is_dir():
        script = REPOSITORY / "deploy" / "image" / "build_tree.py"
        subprocess.run([sys.executable, script], check=True)
    with RunningCluster(
        run_log_folder / "cluster" / "run",
        run_log_folder / "cluster",
        reaper,
        "--control-planes=2",
        minor=minor,
    ) as started:
        yield started
