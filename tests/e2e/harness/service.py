"""The product under test: `gpu-extender serve` as a process."""

import http.client
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.harness.ports import LOOPBACK
from tests.e2e.harness.process import ManagedProcess
from tests.e2e.harness.reaper import Reaper

REPOSITORY: Final = Path(__file__).resolve().parents[3]
# The files of the image that the suite is to run on, in place of the checkout.
IMAGE_TREE: Final = (
    Path(os.environ["IMAGE_TREE"]).resolve() if os.environ.get("IMAGE_TREE") else None
)
READY_PATH: Final = "/readyz/extender"
TIMEOUT_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Service:
    """A started service: its process and its plain HTTP port."""

    process: ManagedProcess
    port: int

    @property
    def url(self) -> str:
        """The address of the plain HTTP listener."""
        return f"http://{LOOPBACK}:{self.port}"

    def get(self, path: str) -> tuple[int, bytes]:
        """Read a page; return status and body."""
        return http_get(self.port, path)

    def status(self, path: str) -> int:
        """Return the status of a page, 0 if nobody answers."""
        try:
            return self.get(path)[0]
        except (OSError, http.client.HTTPException):
            return 0

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric's samples that have these labels."""
        _, body = self.get("/metrics")
        return sum_of_samples(body.decode(), name, labels)


def sum_of_samples(text: str, name: str, labels: Mapping[str, str]) -> float:
    """Return the sum of a metric's samples that have these labels."""
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def http_get(port: int, path: str) -> tuple[int, bytes]:
    """Read a page from a port on loopback over a connection of its own."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@dataclass(frozen=True, slots=True)
class Program:
    """A version of the service, as it is started: command, variables, folder."""

    command: Sequence[str | Path]
    environment: Mapping[str, str]
    folder: Path


def of_source(source: Path, python: str | Path = sys.executable) -> Program:
    """Return the program of a checkout, run by a Python that has its packages."""
    return Program((python, "-m", "service"), {}, source)


def of_image(tree: Path) -> Program:
    """Return the program of an image's tree: nothing of the virtual environment."""
    python = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
    start = "import sys; from service.commands.cli import main; sys.exit(main())"
    path = str(tree / "opt" / "gpu-extender" / "lib")
    return Program((python, "-s", "-c", start), {"PYTHONPATH": path}, Path("/"))


THIS_VERSION: Final = (
    of_source(REPOSITORY) if IMAGE_TREE is None else of_image(IMAGE_TREE)
)


def make_service(  # noqa: PLR0913 - every argument is named
    settings: Mapping[str, Any],
    *,
    name: str,
    port: int,
    folder: Path,
    log_folder: Path,
    reaper: Reaper,
    ready_path: str = READY_PATH,
    env: Mapping[str, str] | None = None,
    program: Program = THIS_VERSION,
) -> Service:
    """Write the settings to a file and return the service, not started yet."""
    config = folder / f"{name}.yaml"
    config.write_text(yaml.safe_dump(dict(settings), sort_keys=False))

    def is_ready() -> bool:
        return service.status(ready_path) == http.client.OK

    process = ManagedProcess(
        name,
        [*program.command, "serve", "--config", config],
        log_path=log_folder / f"{name}.log",
        is_ready=is_ready,
        reaper=reaper,
        env={**program.environment, **(env or {})},
        cwd=program.folder,
    )
    service = Service(process, port)
    return service
