"""The command lines of the control plane's processes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.e2e.harness.certificates import ServingPair
from tests.e2e.harness.ports import LOOPBACK

CONTROLLERS: Final = (
    "job-controller",
    "replicaset-controller",
    "deployment-controller",
    "statefulset-controller",
    "resourcequota-controller",
    "garbage-collector-controller",
)
# Plugins that expect parts of a cluster that are not here: service account tokens in
# pods, a node controller that takes the "not ready" taint away, priority classes.
DISABLED_ADMISSION: Final = (
    "ServiceAccount",
    "TaintNodesByCondition",
    "Priority",
    "StorageObjectInUseProtection",
)
# What a control plane without kubelets and networks leaves out.
WITHOUT_NODES: Final = (
    # Loopback addresses are not allowed in the endpoints of a Service.
    "--endpoint-reconciler-type=none",
    f"--disable-admission-plugins={','.join(DISABLED_ADMISSION)}",
)
HEALTH_PATHS: Final = "/metrics,/healthz,/readyz,/livez"
ETCD_QUOTA_BYTES: Final = 8 * 1024**3


@dataclass(frozen=True, slots=True)
class Ports:
    """Loopback ports of one control plane, kept over restarts."""

    etcd: int
    etcd_peer: int
    api_server: int


@dataclass(frozen=True, slots=True)
class Site:
    """Where a control plane listens, and how it differs from the usual one.

    Attributes
    ----------
    ports : Ports
    bind, advertised : str
        Addresses of the API server.
    hosts : sequence of str
        More names and addresses for its certificate.
    flags : sequence of str
        More flags for the API server.
    """

    ports: Ports
    bind: str = LOOPBACK
    advertised: str = LOOPBACK
    hosts: Sequence[str] = ()
    flags: Sequence[str] = WITHOUT_NODES


@dataclass(frozen=True, slots=True)
class ApiServerFiles:
    """Files that the API server is started with."""

    token_file: Path
    signing_key: Path
    audit_policy: Path
    audit_log: Path
    pair: ServingPair
    cert_dir: Path


def etcd_url(ports: Ports) -> str:
    """Return the address of etcd for its clients."""
    return f"http://{LOOPBACK}:{ports.etcd}"


def etcd(binary: Path, ports: Ports, data: Path) -> list[str]:
    """Return the command of a one-member etcd."""
    client, peer = etcd_url(ports), f"http://{LOOPBACK}:{ports.etcd_peer}"
    return [
        str(binary),
        f"--data-dir={data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        # The tests kill processes, not the machine: nothing is lost without fsync.
        "--unsafe-no-fsync",
        f"--quota-backend-bytes={ETCD_QUOTA_BYTES}",
    ]


def api_server(binary: Path, site: Site, files: ApiServerFiles) -> list[str]:
    """Return the command of kube-apiserver with RBAC and a token file."""
    return [
        str(binary),
        f"--etcd-servers={etcd_url(site.ports)}",
        f"--secure-port={site.ports.api_server}",
        f"--bind-address={site.bind}",
        f"--advertise-address={site.advertised}",
        f"--cert-dir={files.cert_dir}",
        *_serving(files.pair),
        "--service-cluster-ip-range=10.0.0.0/24",
        "--allow-privileged=true",
        "--authorization-mode=RBAC",
        f"--token-auth-file={files.token_file}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={files.signing_key}",
        f"--service-account-signing-key-file={files.signing_key}",
        f"--audit-policy-file={files.audit_policy}",
        f"--audit-log-path={files.audit_log}",
        # Hundreds of pods are created at once; the tests are not about fairness.
        "--max-requests-inflight=4000",
        "--max-mutating-requests-inflight=2000",
        *site.flags,
    ]


def scheduler(
    binary: Path, port: int, config: Path, pair: ServingPair, *flags: str
) -> list[str]:
    """Return the command of kube-scheduler, with more flags at its end."""
    return [
        str(binary),
        f"--config={config}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        *_serving(pair),
        f"--authorization-always-allow-paths={HEALTH_PATHS}",
        *flags,
    ]


def port_forwarder(
    binary: Path, port: int, pair: ServingPair, addresses: Mapping[str, str]
) -> list[str]:
    """Return the command of the kubelet's end of port-forwards."""
    pods = [f"{pod}={address}" for pod, address in addresses.items()]
    files = [str(pair.certificate), str(pair.key)]
    return [str(binary), f"{LOOPBACK}:{port}", *files, *pods]


def controller_manager(  # noqa: PLR0913 - the last two are named
    binary: Path,
    port: int,
    kubeconfig: Path,
    pair: ServingPair,
    *,
    controllers: Sequence[str] = CONTROLLERS,
    flags: Sequence[str] = (),
) -> list[str]:
    """Return the command of kube-controller-manager, with more flags at its end."""
    return [
        str(binary),
        f"--kubeconfig={kubeconfig}",
        "--leader-elect=false",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        *_serving(pair),
        f"--authorization-always-allow-paths={HEALTH_PATHS}",
        f"--controllers={','.join(controllers)}",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        *flags,
    ]


def _serving(pair: ServingPair) -> list[str]:
    return [
        f"--tls-cert-file={pair.certificate}",
        f"--tls-private-key-file={pair.key}",
    ]
