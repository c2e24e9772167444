"""A cluster as tests have it: a process of its own, reached by its kubeconfig."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import yaml

from tests.e2e import build
from tests.e2e.cluster.spaces import HUB, make_socket
from tests.e2e.harness.audit import Call, read_calls
from tests.e2e.harness.builders import JsonObject
from tests.e2e.harness.client import ApiClient
from tests.e2e.harness.connection import ApiConnection
from tests.e2e.harness.kubectl import Kubectl
from tests.e2e.harness.process import ManagedProcess
from tests.e2e.harness.proxy import TcpProxy
from tests.e2e.harness.reaper import Reaper
from tests.e2e.harness.service import IMAGE_TREE, REPOSITORY
from tests.e2e.harness.waiting import wait_for

TREE: Final = REPOSITORY / "build" / "image-tree"
CHART: Final = REPOSITORY / "deploy" / "chart"
IMAGE: Final = "registry.invalid/gpu-extender"
HELM_SECONDS: Final = 300.0
CONNECTIONS: Final = 16


class HelmError(RuntimeError):
    """Helm ended with an error."""


class RunningCluster:
    """What `make cluster` starts, without a terminal. Owned by the test's thread."""

    def __init__(
        self, folder: Path, log_folder: Path, reaper: Reaper, *options: str, minor: str
    ) -> None:
        self.folder = folder
        log_folder.mkdir(parents=True, exist_ok=True)
        source = () if IMAGE_TREE else (f"--source={REPOSITORY}",)
        self._process = ManagedProcess(
            "cluster",
            [
                *(sys.executable, "-m", "tests.e2e.cluster", f"--folder={folder}"),
                *(f"--image-tree={IMAGE_TREE or TREE}", f"--minor={minor}"),
                *source,
                *options,
            ],
            log_path=log_folder / "cluster.log",
            is_ready=(folder / "ready").exists,
            reaper=reaper,
            cwd=REPOSITORY,
        )
        self.minor = minor

    def __enter__(self) -> Self:
        self._process.start()
        self.client = self._connect()
        return self

    def __exit__(self, *_: object) -> None:
        self.client.connection.close()
        self._process.close()

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.folder / "kubeconfig"

    @property
    def kubectl(self) -> Kubectl:
        """kubectl as the administrator."""
        binary = build.locate(self.minor, ["kubectl"])["kubectl"]
        return Kubectl(binary, self.kubeconfig, self.folder / "cache")

    def helm(
        self,
        major: int,
        *arguments: str,
        values: Mapping[str, Any] | None = None,
        fails: bool = False,
    ) -> str:
        """Run Helm with values of a file; return what it prints.

        An error of it is one here, or, with `fails`, wanted.
        """
        binary = build.CACHE / f"helm-{major}" / "bin" / f"helm-{major}"
        file = self.folder / "values.json"  # in which Helm takes no text for a boolean
        file.write_text(json.dumps(dict(values or {})))
        given = () if values is None else (f"--values={file}",)
        homes = {
            f"HELM_{kind}_HOME": str(self.folder / "helm" / kind.lower())
            for kind in ("CACHE", "CONFIG", "DATA")
        }
        done = subprocess.run(
            [binary, *arguments, *given],
            capture_output=True,
            text=True,
            check=False,
            timeout=HELM_SECONDS,
            env={**os.environ, **homes, "KUBECONFIG": str(self.kubeconfig)},
        )
        if (done.returncode != 0) is not fails:
            raise HelmError(f"helm {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def pods(self, namespace: str, **labels: str) -> Sequence[JsonObject]:
        """Return the pods of a namespace that have these labels."""
        found = self.client.list("Pod", namespace=namespace)
        return [
            pod
            for pod in found
            if labels.items() <= pod["metadata"].get("labels", {}).items()
        ]

    def pod_folder(self, pod: JsonObject) -> Path:
        """Return where logs, process ids and files of a pod are."""
        metadata = pod["metadata"]
        name = f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"
        return self.folder / "pods" / name

    def log(self, pod: JsonObject, container: str) -> str:
        """Return what a container has said so far, over all its starts."""
        path = self.pod_folder(pod) / f"{container}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def signal(self, pod: JsonObject, container: str, number: signal.Signals) -> None:
        """Send a signal to the process of a container that runs."""
        path = self.pod_folder(pod) / f"{container}.pid"
        os.kill(int(path.read_text()), number)

    @property
    def network(self) -> str:
        """The file of the control plane's network namespace."""
        return f"/proc/{self._process.pid}/ns/net"

    def network_of(self, pod: JsonObject, container: str) -> str:
        """Return the file of a pod's network namespace, by a container that runs."""
        process = int((self.pod_folder(pod) / f"{container}.pid").read_text())
        return f"/proc/{process}/ns/net"

    def proxy(self) -> TcpProxy:
        """Return a proxy in front of the API server, for pods; not started yet."""
        listener = make_socket(self.network)
        listener.bind((HUB, 0))
        listener.listen()
        config = yaml.safe_load(self.kubeconfig.read_text())
        server = config["clusters"][0]["cluster"]["server"]
        return TcpProxy(int(server.rpartition(":")[2]), listener=listener)

    def cut_connections(self, address: str, port: int) -> int:
        """Reset what the API server has open to an address; return how many."""
        chosen = ["dst", address, "dport", "=", f":{port}"]
        command = ["nsenter", f"--net={self.network}", "ss", "-KHtn", *chosen]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return len(done.stdout.splitlines())

    def calls(self) -> Sequence[Call]:
        """Return the answered calls of pods to the API server, in order."""
        return read_calls(self.folder / "logs" / "audit.log")

    def host_scheduler(self, node: str) -> int:
        """Return the process id of the kube-scheduler of a node."""
        return int((self.folder / f"kube-scheduler-{node}.pid").read_text())

    def cut_off(self, pod: JsonObject, container: str, *, on: bool) -> None:
        """Take a pod's network away, or give it back; its processes go on."""
        network = self.network_of(pod, container)
        steps = ["link set eth0 down"]
        if not on:
            steps = ["link set eth0 up", f"route replace default via {HUB}"]
        for step in steps:
            enter = ["nsenter", f"--net={network}"]
            subprocess.run([*enter, "ip", *step.split()], check=True)

    def _connect(self) -> ApiClient:
        config = yaml.safe_load(self.kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        ca_file = Path(cluster["certificate-authority"])
        connection = ApiConnection(
            cluster["server"], user["token"], ca_file, connections=CONNECTIONS
        )
        return ApiClient(connection)


def wait_phase(
    cluster: RunningCluster, name: str, *phases: str, seconds: float = 60.0
) -> JsonObject:
    """Wait until a pod of the namespace `default` has one of the phases."""

    def look() -> JsonObject | None:
        pod = cluster.client.get("Pod", name)
        return pod if pod["status"].get("phase") in phases else None

    what = f"pod {name} {' or '.join(phases)}"
    return wait_for(look, timeout_seconds=seconds, what=what)
