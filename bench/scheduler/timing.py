"""One run: start the processes of a mode, and look at them while pods are bound."""

import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

from bench.processes import BenchError
from bench.scheduler.modes import Mode, our_settings, scheduler_config
from bench.scheduler.samples import (
    TIMED_UNTIL,
    Figures,
    Sample,
    attempts,
    cpu_seconds,
    figures,
)
from bench.scheduler.stage import Stage, check_bound, end
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.ports import LOOPBACK, free_port
from tests.e2e.harness.process import ManagedProcess
from tests.e2e.harness.reaper import Reaper
from tests.e2e.harness.scheduler_log import extender_error_lines
from tests.e2e.harness.service import http_get

NOOP: Final = Path(__file__).resolve().parent / "noop"
BUILD_SECONDS: Final = 300.0
# Each look costs kube-scheduler milliseconds; few pods are bound sooner.
SAMPLE_SECONDS: Final = 0.5
SAMPLED_PODS_PER_SECOND: Final = 2000
RUN_SECONDS: Final = 180.0


def build_noop() -> Path:
    """Build the extender that decides nothing; return its binary."""
    binary = NOOP / "build" / "noop"
    command = ["go", "build", "-trimpath", "-buildvcs=false", "-o", str(binary), "."]
    try:
        subprocess.run(command, cwd=NOOP, timeout=BUILD_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise BenchError(f"noop: not built: {error}") from error
    return binary


@dataclass(frozen=True, slots=True)
class Runner:
    """Carries out runs on a stage."""

    stage: Stage
    noop: Path
    reaper: Reaper

    def run(self, mode: Mode, pods: int) -> Figures:
        """Time one mode from a tenth to nine tenths of the pods."""
        with self.stage.fresh() as plane, self._extender(plane, mode) as extender:
            processes = {"apiserver": plane.api_server, "etcd": plane.etcd}
            url, port = "", free_port()
            if extender is not None:
                processes["extender"], url = extender
            scheduler = plane.start_scheduler(
                scheduler_config(mode),
                extender_url=url or None,
                port=port,
                verbosity=0,
            )
            with ExitStack() as ending:
                ending.callback(end, scheduler)
                processes["scheduler"] = scheduler
                seen = list(_samples(plane, port, processes, pods))
                check_bound(plane, int(TIMED_UNTIL * pods))
            _check_log(scheduler, url)
        return figures(seen, pods)

    @contextmanager
    def _extender(
        self, plane: ControlPlane, mode: Mode
    ) -> Iterator[tuple[ManagedProcess, str] | None]:
        """Run the extender of a mode; yield its process and address."""
        if mode.extender == "none":
            yield None
            return
        port = free_port()
        process = (
            self._start_noop(plane, port)
            if mode.extender == "noop"
            else _start_ours(plane, port, mode)
        )
        try:
            yield process, f"http://{LOOPBACK}:{port}"
        finally:
            end(process)

    def _start_noop(self, plane: ControlPlane, port: int) -> ManagedProcess:
        process = ManagedProcess(
            "noop",
            [self.noop, f"{LOOPBACK}:{port}"],
            log_path=plane.log_folder / "noop.log",
            is_ready=lambda: _is_healthy(port),
            reaper=self.reaper,
        )
        process.start()
        return process


def _start_ours(plane: ControlPlane, port: int, mode: Mode) -> ManagedProcess:
    kubeconfig = plane.kubeconfig(plane.users.harness.token, "gpu-extender")
    settings = our_settings(mode, port, str(kubeconfig))
    return plane.start_service(settings, port=port).process


def _is_healthy(port: int) -> bool:
    try:
        return http_get(port, "/healthz")[0] == HTTPStatus.OK
    except OSError:
        return False


def _samples(
    plane: ControlPlane, port: int, processes: Mapping[str, ManagedProcess], pods: int
) -> Iterator[Sample]:
    """Yield samples until the timed part is over."""
    deadline = time.monotonic() + RUN_SECONDS
    while time.monotonic() < deadline:
        _, metrics = plane.read(port, "/metrics")
        bound, retried = attempts(metrics.decode())
        cpu = {name: cpu_seconds(process.pid) for name, process in processes.items()}
        yield Sample(time.monotonic(), bound, retried, cpu)
        if bound > TIMED_UNTIL * pods:
            return
        time.sleep(min(SAMPLE_SECONDS, pods / SAMPLED_PODS_PER_SECOND))
    raise BenchError(f"{bound} of {pods} pods bound after {RUN_SECONDS:.0f} s")


def _check_log(scheduler: ManagedProcess, url: str) -> None:
    """Raise `BenchError` if kube-scheduler complained of its extender."""
    complaints = extender_error_lines(scheduler.log_text(), url) if url else ()
    if complaints:
        raise BenchError(f"kube-scheduler: {complaints[0]}")
