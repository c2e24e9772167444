"""One container: its process, and what becomes of it."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.e2e.cluster.images import PATH, Image
from tests.e2e.cluster.probes import ProbeError, check_ports
from tests.e2e.cluster.spaces import Space
from tests.e2e.cluster.volumes import VolumeError, Volumes, field_of, read_data
from tests.e2e.harness.builders import JsonObject
from tests.e2e.harness.client import ApiClient
from tests.e2e.harness.reaper import Reaper

LAUNCH: Final = Path(__file__).with_name("launch.py")
FIRST_BACK_OFF_SECONDS: Final = 10.0
MAX_BACK_OFF_SECONDS: Final = 300.0
ACCOUNT: Final = "container:x:{user}:{group}::/:/sbin/nologin\n"


def now_text() -> str:
    """Return the time as objects have it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the containers of a pod share.

    Attributes
    ----------
    pod : dict
        With its address in the status.
    folder : Path
        For what is written of the pod.
    hosts : Path
        The file of names and addresses.
    """

    pod: JsonObject
    folder: Path
    space: Space
    volumes: Volumes
    client: ApiClient
    reaper: Reaper
    hosts: Path
    service_address: str


class Container:
    """A container of a pod; only the pod's thread uses it.

    `spec` is as the pod has it. Its output goes to `NAME.log` in the pod's folder, the
    id of its process to `NAME.pid`.
    """

    def __init__(self, spec: JsonObject, image: Image, around: Surroundings) -> None:
        self.spec = spec
        self.name: str = spec["name"]
        self.is_sidecar = spec.get("restartPolicy") == "Always"
        self.is_started = False  # has passed its startup probe
        self.is_ready = False
        self.restarts = 0
        self.exit_code: int | None = None
        self.fault = ""
        self._image = image
        self._around = around
        self._child: subprocess.Popen[bytes] | None = None
        self._started_at = self._ended_at = ""
        self._back_off_seconds = 0.0
        self._due = 0.0
        self._last: JsonObject = {}

    @property
    def is_running(self) -> bool:
        """Whether its process runs, as far as `look` has seen."""
        return self._child is not None

    @property
    def has_ended(self) -> bool:
        """Whether it ran, and runs no more."""
        return self._child is None and self.exit_code is not None

    @property
    def is_due(self) -> bool:
        """Whether it may be started (again) now."""
        return time.monotonic() >= self._due

    @property
    def log_path(self) -> Path:
        """Where its output goes."""
        return self._around.folder / f"{self.name}.log"

    def start(self) -> bool:
        """Start its process; if something is missing, `fault` says so, and False."""
        try:
            check_ports(self.spec)
            start = self._start_of(self._command())
        except (VolumeError, ProbeError) as error:
            self.fault, self._due = str(error), time.monotonic() + 1.0
            return False
        if self.exit_code is not None:
            self.restarts += 1
            self._last = {"terminated": self._terminated()}
        self.fault, self.exit_code = "", None
        self.is_started = "startupProbe" not in self.spec
        self.is_ready = False
        with self.log_path.open("ab") as log:
            self._child = self._launch(self.name, start, log)
        self._started_at = now_text()
        self._around.reaper.add(self._child.pid)
        pid_path = self._around.folder / f"{self.name}.pid"
        pid_path.write_text(f"{self._child.pid}\n")
        return True

    def look(self) -> bool:
        """Notice that the process has ended; say whether it just has."""
        if self._child is None or (code := self._child.poll()) is None:
            return False
        self._end_group(signal.SIGKILL)
        self._around.reaper.remove(self._child.pid)
        (self._around.folder / f"{self.name}.pid").unlink(missing_ok=True)
        self._child = None
        self.exit_code = code if code >= 0 else 128 - code
        self._ended_at = now_text()
        self.is_ready = self.is_started = False
        self._due = time.monotonic() + self._back_off_seconds
        self._back_off_seconds = min(
            max(FIRST_BACK_OFF_SECONDS, 2 * self._back_off_seconds),
            MAX_BACK_OFF_SECONDS,
        )
        return True

    def terminate(self) -> None:
        """Ask the process to end."""
        if self._child is not None:
            self._child.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the process at once."""
        self._end_group(signal.SIGKILL)

    def execute(self, command: Sequence[str], timeout_seconds: float) -> bool:
        """Run a command among the container's files; say whether it succeeded."""
        name = f"{self.name}.exec-{threading.get_ident()}"
        child = self._launch(name, self._start_of(command), None)
        try:
            return child.wait(timeout_seconds) == 0
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            return False

    def status(self) -> JsonObject:
        """Return the container's status as a pod has it."""
        state: JsonObject
        if self.is_running:
            state = {"running": {"startedAt": self._started_at}}
        elif self.has_ended:
            state = {"terminated": self._terminated()}
        else:
            reason = "CreateContainerConfigError" if self.fault else "ContainerCreating"
            state = {"waiting": {"reason": reason}}
            if self.fault:
                state["waiting"]["message"] = self.fault
        return {
            "name": self.name,
            "image": self.spec["image"],
            "imageID": self.spec["image"],
            "ready": self.is_ready or (self.has_ended and self.exit_code == 0),
            "started": self.is_running and self.is_started,
            "restartCount": self.restarts,
            "state": state,
            "lastState": self._last,
        }

    def _terminated(self) -> JsonObject:
        return {
            "exitCode": self.exit_code,
            "reason": "Completed" if self.exit_code == 0 else "Error",
            "startedAt": self._started_at,
            "finishedAt": self._ended_at,
        }

    def _end_group(self, number: signal.Signals) -> None:
        if self._child is not None:
            try:
                os.killpg(self._child.pid, number)
            except ProcessLookupError:
                return

    def _launch(
        self, name: str, start: Mapping[str, Any], log: Any
    ) -> subprocess.Popen[bytes]:
        path = self._around.folder / f"{name}.start"
        path.touch(mode=0o600)
        path.write_text(json.dumps(start))
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(LAUNCH), str(path)],
            stdin=subprocess.DEVNULL,
            stdout=log or subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _command(self) -> Sequence[str]:
        environment = self._environment()
        given = self.spec.get("command"), self.spec.get("args")
        command = given[0] or self._image.command
        arguments = given[1] or ([] if given[0] else self._image.arguments)
        return [_expand(word, environment) for word in (*command, *arguments)]

    def _start_of(self, command: Sequence[str]) -> Mapping[str, Any]:
        """Return what `launch` is told."""
        pod_rules = self._around.pod["spec"].get("securityContext") or {}
        rules = {**pod_rules, **(self.spec.get("securityContext") or {})}
        user = rules.get("runAsUser", self._image.user)
        group = rules.get("runAsGroup", self._image.group)
        groups = pod_rules.get("supplementalGroups", [])
        shared = [pod_rules["fsGroup"]] if "fsGroup" in pod_rules else []
        root = self._around.folder / "root"
        root.mkdir(exist_ok=True)
        return {
            "space": self._around.space.file,
            "root": str(root),
            "binds": [*self._image_binds(), *self._mounts()],
            "links": self._image.links,
            "hostname": self._hostname(),
            "files": {
                "/etc/passwd": ACCOUNT.format(user=user, group=group),
                "/etc/nsswitch.conf": "hosts: files\n",
                "/etc/hostname": f"{self._hostname()}\n",
            },
            "readOnlyRoot": rules.get("readOnlyRootFilesystem", False),
            "folder": self.spec.get("workingDir", "/"),
            "user": user,
            "group": group,
            "groups": sorted({group, *groups, *shared}),
            "noNewPrivileges": rules.get("allowPrivilegeEscalation") is False,
            "environment": self._environment(),
            "command": list(command),
        }

    def _hostname(self) -> str:
        spec = self._around.pod["spec"]
        of_node = spec.get("hostNetwork", False)
        name: str = (
            spec["nodeName"] if of_node else self._around.pod["metadata"]["name"]
        )
        return name

    def _image_binds(self) -> Sequence[tuple[str, str, bool]]:
        binds = [(source, target, False) for source, target in self._image.binds]
        return [*binds, (str(self._around.hosts), "/etc/hosts", False)]

    def _mounts(self) -> Sequence[tuple[str, str, bool]]:
        mounts = sorted(
            self.spec.get("volumeMounts", ()), key=lambda mount: mount["mountPath"]
        )
        volumes = self._around.volumes
        return [
            (
                str(volumes.path_of(mount["name"]) / mount.get("subPath", "")),
                mount["mountPath"],
                mount.get("readOnly", False),
            )
            for mount in mounts
        ]

    def _environment(self) -> dict[str, str]:
        found = {
            "PATH": PATH,
            "HOSTNAME": self._hostname(),
            "HOME": "/",
            "KUBERNETES_SERVICE_HOST": self._around.service_address,
            "KUBERNETES_SERVICE_PORT": "443",
            "KUBERNETES_SERVICE_PORT_HTTPS": "443",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
        }
        for variable in self.spec.get("env", ()):
            text = self._value_of(variable)
            if text is not None:
                found[variable["name"]] = _expand(text, found)
        return found

    def _value_of(self, variable: JsonObject) -> str | None:
        source = variable.get("valueFrom")
        if source is None:
            return str(variable.get("value", ""))
        ((kind, said),) = source.items()
        if kind == "fieldRef":
            return field_of(self._around.pod, said["fieldPath"])
        if kind in {"configMapKeyRef", "secretKeyRef"}:
            found = read_data(
                self._around.client, self._around.pod, kind.removesuffix("KeyRef"), said
            )
            if said["key"] in found:
                return found[said["key"]].decode()
            if said.get("optional"):
                return None
        raise VolumeError(f"env {variable['name']}: {kind} is not there")


def _expand(text: str, environment: Mapping[str, str]) -> str:
    """Put in what `$(NAME)` stands for; `$$` is one."""

    def value(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return environment.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([A-Za-z_.-][\w.-]*)\)", value, text)
