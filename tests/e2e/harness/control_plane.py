"""A control plane of real processes: built up, taken apart, and wiped between tests."""

import contextlib
import http.client
import shutil
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from tests.e2e.harness import audit, commands, etcd, scheduler_config
from tests.e2e.harness.certificates import Authority, ServingPair, make_signing_key
from tests.e2e.harness.client import ApiClient
from tests.e2e.harness.connection import DEFAULT_CONNECTIONS, ApiConnection
from tests.e2e.harness.credentials import Users, write_kubeconfig, write_token_file
from tests.e2e.harness.kubectl import Kubectl
from tests.e2e.harness.kubelet import KubeletStandIn, PhaseRule, keep_running
from tests.e2e.harness.ports import LOOPBACK, free_port
from tests.e2e.harness.process import ManagedProcess
from tests.e2e.harness.proxy import TcpProxy
from tests.e2e.harness.reaper import Reaper
from tests.e2e.harness.service import (
    READY_PATH,
    THIS_VERSION,
    Program,
    Service,
    make_service,
)
from tests.e2e.harness.wiping import wipe

PROBE_SECONDS: Final = 5.0


class ControlPlane:
    """etcd and kube-apiserver, and on demand all that works against them.

    `start` brings the first two up. What a test adds to them (scheduler, controllers,
    service, proxies, kubelet stand-in) ends with `reset`, everything with `stop`.
    Owned by the test's thread.
    """

    def __init__(
        self,
        binaries: Mapping[str, Path],
        *,
        folder: Path,
        log_folder: Path,
        reaper: Reaper,
        site: commands.Site | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        log_folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.log_folder = log_folder
        self.users = Users()
        self.authority = Authority(folder / "pki")
        self._site = site or commands.Site(
            commands.Ports(*(free_port() for _ in range(3)))
        )
        self.ports = self._site.ports
        self.url = f"https://{LOOPBACK}:{self.ports.api_server}"
        self._binaries = binaries
        self._etcd_data = folder / "etcd"
        self._reaper = reaper
        self._pair = self.authority.issue("control-plane", hosts=self._site.hosts)
        self._audit_log = log_folder / "audit.log"
        self._added = contextlib.ExitStack()
        # (server, token) -> client
        self._clients: dict[tuple[str, str, int], ApiClient] = {}
        self.client = self.client_with(self.users.harness.token)
        self.etcd = self._process(
            "etcd",
            commands.etcd(binaries["etcd"], self.ports, self._etcd_data),
            is_ready=lambda: etcd.is_healthy(self.ports.etcd),
        )
        self.api_server = self._process(
            "kube-apiserver", self._api_server_command(), is_ready=self._is_serving
        )

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start etcd and kube-apiserver."""
        self.etcd.start()
        self.api_server.start()

    def stop(self) -> None:
        """End every process; the data is thrown away, so the storage is killed."""
        with contextlib.ExitStack() as ending:
            # Its log alone takes 64 MB, and pytest keeps the folders of past runs.
            ending.callback(shutil.rmtree, self._etcd_data, ignore_errors=True)
            ending.callback(self._close_clients)
            ending.callback(self.etcd.close, at_once=True)
            ending.callback(self.api_server.close, at_once=True)
            ending.callback(self._end_added)

    def reset(self) -> None:
        """End what a test has added and delete its objects."""
        try:
            self._end_added()
        finally:
            for process in (self.etcd, self.api_server):
                if not process.is_running:
                    process.start()
            wipe(self.client)

    def start_scheduler(  # noqa: PLR0913 - every argument is optional and named
        self,
        template: Mapping[str, Any] | str = scheduler_config.PLAIN,
        *,
        extender_url: str | None = None,
        name: str = "kube-scheduler",
        port: int | None = None,
        verbosity: int = 2,
        flags: Sequence[str] = (),
        wait: bool = True,
    ) -> ManagedProcess:
        """Start kube-scheduler with a configuration, its connection filled in.

        On `port` it serves `/metrics`, which `read` fetches.
        """
        config = scheduler_config.fill_in(
            template,
            kubeconfig=self.kubeconfig(self.users.scheduler.token, name),
            extender_url=extender_url,
        )
        path = scheduler_config.write(config, self.folder / f"{name}.yaml")
        port = port or free_port()
        binary = self._binaries["kube-scheduler"]
        command = commands.scheduler(
            binary, port, path, self._pair, f"--v={verbosity}", *flags
        )
        return self._add_process(name, command, port, wait=wait)

    def start_controller_manager(
        self,
        *,
        controllers: Sequence[str] = commands.CONTROLLERS,
        flags: Sequence[str] = (),
    ) -> ManagedProcess:
        """Start kube-controller-manager, by default with the workload controllers."""
        name, port = "kube-controller-manager", free_port()
        kubeconfig = self.kubeconfig(self.users.controller_manager.token, name)
        command = commands.controller_manager(
            self._binaries[name],
            port,
            kubeconfig,
            self._pair,
            controllers=controllers,
            flags=flags,
        )
        return self._add_process(name, command, port)

    def start_service(  # noqa: PLR0913 - every argument is named
        self,
        settings: Mapping[str, Any],
        *,
        port: int,
        name: str = "gpu-extender",
        ready_path: str = READY_PATH,
        env: Mapping[str, str] | None = None,
        program: Program = THIS_VERSION,
        wait: bool = True,
    ) -> Service:
        """Start `gpu-extender serve` with settings whose HTTP port is `port`."""
        service = make_service(
            settings,
            name=name,
            port=port,
            folder=self.folder,
            log_folder=self.log_folder,
            reaper=self._reaper,
            ready_path=ready_path,
            env=env,
            program=program,
        )
        self._added.callback(service.process.close)
        service.process.start(wait=wait)
        return service

    def start_kubelet(self, rule: PhaseRule = keep_running) -> KubeletStandIn:
        """Start to run the pods that are bound."""
        client = self.client_with(self.users.harness.token)
        return self._added.enter_context(KubeletStandIn(client, rule))

    def start_port_forwarder(self, port: int, addresses: Mapping[str, str]) -> None:
        """Start the kubelet's end of port-forwards: namespace/pod -> address.

        The pods' nodes must name `port` as that of their kubelet.
        """
        name = "port-forwarder"
        command = commands.port_forwarder(
            self._binaries[name], port, self._pair, addresses
        )
        self._add_process(name, command, port)

    def start_proxy(self) -> TcpProxy:
        """Start a proxy in front of the API server, for a kubeconfig of its own."""
        return self._added.enter_context(TcpProxy(self.ports.api_server))

    def kubeconfig(self, token: str, name: str, *, server: str | None = None) -> Path:
        """Write a kubeconfig for a token; `server` may be the URL of a proxy."""
        return write_kubeconfig(
            self.folder / f"{name}.kubeconfig",
            server=server or self.url,
            ca_file=self.authority.file,
            token=token,
        )

    def client_with(
        self,
        token: str,
        *,
        server: str | None = None,
        connections: int = DEFAULT_CONNECTIONS,
    ) -> ApiClient:
        """Return a client with the identity of a token, closed with the rest.

        `connections` is how many calls it can have under way at once.
        """
        key = (server or self.url, token, connections)
        if key not in self._clients:
            connection = ApiConnection(
                *key[:2], self.authority.file, connections=connections
            )
            self._clients[key] = ApiClient(connection)
        return self._clients[key]

    @property
    def signing_key(self) -> Path:
        """What tokens of service accounts are signed with."""
        return self.folder / "service-accounts.key"

    @property
    def pair(self) -> ServingPair:
        """Certificate and key of all that the control plane serves."""
        return self._pair

    @property
    def kubectl(self) -> Kubectl:
        """kubectl as the harness user."""
        kubeconfig = self.kubeconfig(self.users.harness.token, "kubectl")
        return Kubectl(self._binaries["kubectl"], kubeconfig, self.folder / "kubectl")

    def read(self, port: int, path: str) -> tuple[int, bytes]:
        """Read a page of a scheduler or controller manager; return status and body."""
        context = ssl.create_default_context(cafile=str(self.authority.file))
        connection = http.client.HTTPSConnection(
            LOOPBACK, port, context=context, timeout=PROBE_SECONDS
        )
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def compact_etcd(self) -> int:
        """Drop all history from etcd up to now; return the revision that is left."""
        return etcd.compact(self.ports.etcd)

    def calls(self) -> Sequence[audit.Call]:
        """Return the answered calls of identities with limited rights, in order.

        Those of kube-scheduler are left out.
        """
        return audit.read_calls(self._audit_log)

    def binary(self, name: str) -> Path:
        """Return where a command is."""
        return self._binaries[name]

    def _api_server_command(self) -> list[str]:
        files = commands.ApiServerFiles(
            token_file=write_token_file(self.folder / "tokens.csv", self.users.all()),
            signing_key=make_signing_key(self.signing_key),
            audit_policy=audit.write_policy(self.folder / "audit-policy.yaml"),
            audit_log=self._audit_log,
            pair=self._pair,
            cert_dir=self.folder / "pki",
        )
        binary = self._binaries["kube-apiserver"]
        return commands.api_server(binary, self._site, files)

    def _is_serving(self) -> bool:
        # The namespace is made by a controller inside the API server, a moment later.
        return self.client.is_ready() and self.client.exists("Namespace", "default")

    def _process(
        self, name: str, command: list[str], *, is_ready: Callable[[], bool]
    ) -> ManagedProcess:
        return ManagedProcess(
            name,
            command,
            log_path=self.log_folder / f"{name}.log",
            is_ready=is_ready,
            reaper=self._reaper,
        )

    def _add_process(
        self, name: str, command: list[str], port: int, *, wait: bool = True
    ) -> ManagedProcess:
        process = self._process(name, command, is_ready=lambda: self._is_healthy(port))
        self._added.callback(process.close)
        process.start(wait=wait)
        return process

    def _is_healthy(self, port: int) -> bool:
        try:
            return self.read(port, "/healthz")[0] == http.client.OK
        except (OSError, http.client.HTTPException):
            return False

    def _end_added(self) -> None:
        self._added.close()

    def _close_clients(self) -> None:
        for client in self._clients.values():
            client.connection.close()
