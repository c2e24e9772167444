"""Files for hosts without the chart: kubeadm's and systemd's."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from service.settings.settings import Settings

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
UNIT: Final = DEPLOY / "systemd" / "gpu-extender.service"
DROP_IN: Final = DEPLOY / "systemd" / "kube-scheduler.service.d" / "gpu-extender.conf"


def load(name: str) -> Any:
    return yaml.safe_load((DEPLOY / "kubeadm" / name).read_text())


def test_kubeadm_mounts_the_file_that_kube_scheduler_is_told_to_read() -> None:
    scheduler = load("cluster-configuration.yaml")["scheduler"]

    (argument,), (volume,) = scheduler["extraArgs"], scheduler["extraVolumes"]
    assert argument["name"] == "config"
    assert Path(argument["value"]).parent == Path(volume["mountPath"])
    assert volume["readOnly"] is True


def test_the_liveness_probe_asks_where_we_listen() -> None:
    (container,) = load("kube-scheduler0+strategic.yaml")["spec"]["containers"]

    server = Settings().server
    get = container["livenessProbe"]["httpGet"]
    assert (get["host"], get["port"]) == (server.host, server.port)
    assert get["path"] == "/livez/extender"


def test_the_unit_waits_where_we_listen_and_leaves_time_to_drain() -> None:
    unit = UNIT.read_text()

    server = Settings().server
    assert f"http://{server.host}:{server.port}/readyz/extender" in unit
    stop = re.search(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    assert stop is not None
    assert int(stop.group(1)) >= server.drain_seconds + server.stop_seconds + 5


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    systemd = shutil.which("systemd-analyze")
    if systemd is None:
        pytest.skip("no systemd-analyze")
    # It looks for the programs, which are not here.
    program = re.compile(r"^(Exec\w+=)/\S+", re.MULTILINE)
    unit = tmp_path / UNIT.name
    unit.write_text(
        program.sub(r"\1/bin/true", UNIT.read_text()).replace("User=gpu-extender\n", "")
    )
    scheduler = tmp_path / "kube-scheduler.service"
    scheduler.write_text("[Service]\nExecStart=/bin/true\n")
    folder = tmp_path / "kube-scheduler.service.d"
    folder.mkdir()
    shutil.copy(DROP_IN, folder)

    done = subprocess.run(  # noqa: S603  systemd's own
        [systemd, "verify", "--man=no", unit, scheduler],
        capture_output=True,
        text=True,
        check=False,
    )

    ours = [line for line in done.stderr.splitlines() if str(tmp_path) in line]
    assert (done.returncode, ours) == (0, []), done.stderr
