"""A whole cluster: the real control plane, and stand-ins for nodes and network."""

import contextlib
import functools
import http.client
import os
import shutil
import ssl
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import yaml

from tests.e2e.cluster.images import Images
from tests.e2e.cluster.kubelet import Kubelets
from tests.e2e.cluster.kubelet_port import PORT, KubeletPort
from tests.e2e.cluster.nodes import control_plane_names, make_nodes
from tests.e2e.cluster.services import Services
from tests.e2e.cluster.spaces import HUB, Space, Spaces
from tests.e2e.harness import commands
from tests.e2e.harness.builders import JsonObject
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.credentials import write_kubeconfig
from tests.e2e.harness.ports import LOOPBACK
from tests.e2e.harness.process import ManagedProcess, ProcessError
from tests.e2e.harness.reaper import Reaper

API_PORT: Final = 6443
SERVICE_ADDRESS: Final = "10.0.0.1"
SCHEDULER_PORT: Final = 10259
POLL_SECONDS: Final = 1.0
READY_SECONDS: Final = 60.0
PLANE: Final = "kube-scheduler"
CONTROLLERS: Final = (
    *commands.CONTROLLERS,
    "daemonset-controller",
    "disruption-controller",
    "endpointslice-controller",
    "namespace-controller",
    "pod-garbage-collector-controller",
    "clusterrole-aggregation-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
)
SITE: Final = commands.Site(
    commands.Ports(2379, 2380, API_PORT),
    bind="0.0.0.0",  # noqa: S104 - of a namespace of its own
    advertised=HUB,
    hosts=(
        HUB,
        SERVICE_ADDRESS,
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ),
    flags=(
        # There is no controller that would take the taint of a new node away.
        "--disable-admission-plugins=TaintNodesByCondition",
        "--kubelet-preferred-address-types=InternalIP",
    ),
)


class Cluster:
    """Runs in the network namespace that its process has moved into.

    In `folder` are, for people and tests: `kubeconfig`, `kube-scheduler.yaml` (upon a
    change of it, or when they end, the kube-schedulers start again, as static pods do),
    `kube-scheduler.kubeconfig`, `kube-scheduler-NODE.pid`, `logs`, and `pods` with a
    folder for each pod.

    Parameters
    ----------
    binaries : mapping
        Command -> binary.
    images : Images
    nodes : Path
        The file of nodes.
    control_planes : int
        How many nodes have a kube-scheduler.
    routes_to_pods : bool
        Whether the API server calls pods behind a Service by their own addresses.
    """

    def __init__(  # noqa: PLR0913 - every argument is named
        self,
        binaries: Mapping[str, Path],
        *,
        images: Images,
        folder: Path,
        nodes: Path,
        control_planes: int,
        routes_to_pods: bool,
        reaper: Reaper,
    ) -> None:
        self.folder = folder
        self._binaries = binaries
        self._reaper = reaper
        self._stopping = threading.Event()
        self._ending = contextlib.ExitStack()
        self._items = make_nodes(nodes, control_planes)
        routing = f"--enable-aggregator-routing={str(routes_to_pods).lower()}"
        self.plane = ControlPlane(
            binaries,
            folder=folder / "control-plane",
            log_folder=folder / "logs",
            reaper=reaper,
            site=commands.Site(
                SITE.ports,
                SITE.bind,
                SITE.advertised,
                SITE.hosts,
                (*SITE.flags, routing),
            ),
        )
        self._spaces = Spaces()
        self._node_spaces = _NodeSpaces(self._spaces)
        self._schedulers: list[ManagedProcess] = []
        client = self.plane.client_with(self.plane.users.harness.token, connections=32)
        hosts = folder / "hosts"
        self.services = Services(client, self._spaces, hosts)
        self._kubelets = Kubelets(
            client,
            images=images,
            spaces=self._spaces,
            node_spaces=self._node_spaces,
            folder=folder / "pods",
            hosts=hosts,
            service_address=SERVICE_ADDRESS,
            reaper=reaper,
        )
        self._port = KubeletPort(
            self._kubelets,
            self.plane.pair,
            forwarder=binaries["port-forwarder"],
            log_folder=folder / "logs",
            reaper=reaper,
        )
        self._control_planes = control_plane_names(control_planes)

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return len(self._items)

    def write_kubeconfig(self, port: int) -> Path:
        """Write the kubeconfig of an administrator who comes by a port of loopback."""
        plane = self.plane
        return write_kubeconfig(
            self.folder / "kubeconfig",
            server=f"https://{LOOPBACK}:{port}",
            ca_file=plane.authority.file.resolve(),
            token=plane.users.harness.token,
        )

    def watch_schedulers(self) -> None:
        """Start a kube-scheduler again that ended, and all upon a change of their file.

        Until the end. Process ids are in files, for tests.
        """
        path = self.folder / f"{PLANE}.yaml"
        seen = path.read_bytes()
        while not self._stopping.wait(POLL_SECONDS):
            now = path.read_bytes() if path.exists() else seen
            for process in self._schedulers:
                if not process.is_running:
                    process.wait_end()
                elif now == seen:
                    continue
                else:
                    process.stop()
                self._start_scheduler(process)
            seen = now

    def stop(self) -> None:
        """End all of it."""
        self._stopping.set()
        with self._ending:
            self._ending.callback(self.plane.stop)
            self._ending.callback(self.services.stop)
            self._ending.callback(self._kubelets.stop)
            self._ending.callback(self._port.stop)
            for process in self._schedulers:
                self._ending.callback(_end, process)

    def _start(self) -> None:
        plane = self.plane
        plane.start()
        self.services.start()
        plane.start_controller_manager(
            controllers=CONTROLLERS,
            flags=(
                f"--service-account-private-key-file={plane.signing_key}",
                f"--root-ca-file={plane.authority.file}",
                "--concurrent-deployment-syncs=5",
            ),
        )
        plane.client.create_many(map(_on_this_machine, self._items))
        self._kubelets.start()
        self._port.start()
        self._start_schedulers()

    def _start_schedulers(self) -> None:
        kubeconfig = write_kubeconfig(
            self.folder / f"{PLANE}.kubeconfig",
            server=f"https://{HUB}:{API_PORT}",
            ca_file=self.plane.authority.file.resolve(),
            token=self.plane.users.scheduler.token,
        )
        path = self.folder / f"{PLANE}.yaml"
        path.write_text(yaml.safe_dump(_scheduler_config(kubeconfig)))
        for node in self._control_planes:
            space = self._node_spaces[node]
            name = f"{PLANE}-{node}"
            command = commands.scheduler(
                self._binaries[PLANE],
                SCHEDULER_PORT,
                path,
                self.plane.pair,
                "--bind-address=0.0.0.0",
                "--v=2",
            )
            process = ManagedProcess(
                name,
                [*space.prefix, *_as_host(node), *command],
                log_path=self.folder / "logs" / f"{name}.log",
                is_ready=functools.partial(_is_healthy, space.address),
                reaper=self._reaper,
            )
            self._schedulers.append(process)
            self._start_scheduler(process)
        for process in self._schedulers:
            process.wait_ready(READY_SECONDS)

    def _start_scheduler(self, process: ManagedProcess) -> None:
        process.start(wait=False)
        (self.folder / f"{process.name}.pid").write_text(str(process.pid))


class _NodeSpaces(dict[str, Space]):
    """Node -> namespace of its host network, made when it is first asked for."""

    def __init__(self, spaces: Spaces) -> None:
        super().__init__()
        self._spaces = spaces

    def __missing__(self, node: str) -> Space:
        self[node] = self._spaces.make()
        return self[node]


def _as_host(name: str) -> list[str]:
    """Return what begins the command of a process on a host of that name."""
    return ["unshare", "--uts", "sh", "-c", f'hostname {name}; exec "$@"', "sh"]


def _on_this_machine(node: JsonObject) -> JsonObject:
    """Return a node with the address and port of the stand-in for its kubelet."""
    name = node["metadata"]["name"]
    addresses = [
        {"type": "InternalIP", "address": HUB},
        {"type": "Hostname", "address": name},
    ]
    ports = {"kubeletEndpoint": {"Port": PORT}}
    status = {**node["status"], "addresses": addresses, "daemonEndpoints": ports}
    return {**node, "status": status}


def _scheduler_config(kubeconfig: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig.resolve())},
    }


def _is_healthy(address: str) -> bool:
    # The certificate is of the control plane, whose addresses those of nodes are not.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connection = http.client.HTTPSConnection(
        address, SCHEDULER_PORT, context=context, timeout=POLL_SECONDS
    )
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _end(process: ManagedProcess) -> None:
    """End a process; one that has ended by itself is no fault here."""
    with contextlib.suppress(ProcessError):
        process.close(at_once=True)


def link_commands(folder: Path, found: Mapping[str, Path]) -> Path:
    """Put links to commands into a folder for somebody's PATH."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, path in found.items():
        if os.access(path, os.X_OK):
            (folder / name).symlink_to(path.resolve())
    return folder


def commands_for_people(
    binaries: Mapping[str, Path], helms: Sequence[Path], kubectl_gpu: Path
) -> Mapping[str, Path]:
    """Return what somebody who tries the cluster needs: name -> file."""
    found = {"kubectl": binaries["kubectl"], "kubectl-gpu": kubectl_gpu}
    found |= {path.name: path for path in helms}
    if helms:
        found["helm"] = helms[-1]
    return found
