"""The chart in a cluster: installed, upgraded and taken away in several ways."""

import contextlib
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from tests.e2e import build
from tests.e2e.cluster.running import CHART, IMAGE, RunningCluster
from tests.e2e.harness.builders import JsonObject
from tests.e2e.harness.connection import ApiError
from tests.e2e.harness.service import REPOSITORY
from tests.e2e.harness.waiting import wait_for

NAME: Final = "gpu-extender"
SCHEDULER: Final = "gpu-extender-scheduler"  # also the name of its Lease
REGISTRATION_API: Final = "admissionregistration.k8s.io/v1"
REGISTRATION: Final = "MutatingWebhookConfiguration"
LEASE_API: Final = "coordination.k8s.io/v1"
SECONDS: Final = 240.0
# What a namespace has by itself.
GIVEN: Final = {("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")}
NAMESPACED: Final = (
    ("v1", "Pod"),
    ("v1", "Service"),
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("v1", "ServiceAccount"),
    ("v1", "ResourceQuota"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "ReplicaSet"),
    ("policy/v1", "PodDisruptionBudget"),
    (LEASE_API, "Lease"),
    ("discovery.k8s.io/v1", "EndpointSlice"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
)
CLUSTER_WIDE: Final = (
    (REGISTRATION_API, REGISTRATION),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
)

# From 1.36 on.
POLICIES: Final = (
    (REGISTRATION_API, "MutatingAdmissionPolicy"),
    (REGISTRATION_API, "MutatingAdmissionPolicyBinding"),
)


class Way(Protocol):
    """How somebody installs the chart."""

    def install(self, values: Mapping[str, Any]) -> None:
        """Install it, and wait until its pods are ready."""

    def upgrade(self, values: Mapping[str, Any]) -> None:
        """Change the values, and wait until all pods are those of the new ones."""

    def uninstall(self) -> None:
        """Take all of it away, and wait until it is gone."""


@dataclass
class ByHelm:
    """By Helm 3 or 4."""

    cluster: RunningCluster
    major: int
    notes: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)

    def install(self, values: Mapping[str, Any]) -> None:
        """Install it."""
        self.values = values
        self.notes = self._run("install", str(CHART), values=values)

    def upgrade(self, values: Mapping[str, Any]) -> None:
        """Upgrade it."""
        self._run("upgrade", str(CHART), values=values)

    def uninstall(self) -> None:
        """Uninstall it."""
        self._run("uninstall")

    def wait_registered(self) -> None:
        """Wait until GPU pods are reviewed, as the installation says."""
        self.cluster.kubectl(*self._told("kubectl", "wait")[1:])

    def test(self) -> str:
        """Run `helm test` as the installation says; return what it prints."""
        return self.cluster.helm(self.major, *self._told("helm", "test")[1:])

    def _told(self, *begin: str) -> Sequence[str]:
        """Return the words of the one command of the notes that begins so."""
        lines = self.notes.replace("\\\n", "").splitlines()
        (line,) = [line for line in lines if line.split()[: len(begin)] == [*begin]]
        return shlex.split(line)

    def _run(
        self, verb: str, *more: str, values: Mapping[str, Any] | None = None
    ) -> str:
        rest = (*more, "-n", NAME, "--wait", "--timeout=4m")
        return self.cluster.helm(self.major, verb, NAME, *rest, values=values)


@dataclass
class ByKubectl:
    """By what Helm renders, and `kubectl apply`, of the client or of the server."""

    cluster: RunningCluster
    server_side: bool
    applied: list[str] = field(default_factory=list)

    def install(self, values: Mapping[str, Any]) -> None:
        """Apply it."""
        text = self.cluster.helm(
            *(4, "template", NAME, str(CHART), "-n", NAME, "--no-hooks"),
            f"--kube-version={self.cluster.minor}.0",
            values=values,
        )
        self.applied.append(text)
        options = ["--server-side"] if self.server_side else []
        self.cluster.kubectl("apply", *options, "-f", "-", stdin=text)
        self._wait()

    def upgrade(self, values: Mapping[str, Any]) -> None:
        """Apply it again."""
        self.install(values)

    def uninstall(self) -> None:
        """Delete the registration, and then all that was ever applied."""
        self.cluster.kubectl("delete", REGISTRATION, NAME)
        for text in self.applied:
            options = ("--ignore-not-found", "--timeout=4m")
            self.cluster.kubectl("delete", *options, "-f", "-", stdin=text)

    def _wait(self) -> None:
        for kind in ("deployment", "daemonset"):
            found = self.cluster.kubectl(
                "get", kind, NAME, "-n", NAME, "--ignore-not-found"
            )
            if found:
                what = f"{kind}/{NAME}"
                self.cluster.kubectl(
                    "rollout", "status", what, "-n", NAME, f"--timeout={SECONDS:.0f}s"
                )


@contextlib.contextmanager
def installed_release(
    cluster: RunningCluster, values: Mapping[str, Any]
) -> Iterator[ByHelm]:
    """Install the chart in the mode of its values; take all of it away at the end."""
    own_scheduler: bool = values["scheduler"]["enabled"]
    scheduler_config = cluster.folder / "kube-scheduler.yaml"
    text = scheduler_config.read_text()
    make_namespace(cluster, own_scheduler=own_scheduler)
    release = ByHelm(cluster, 4)
    try:
        release.install(values)
        if not own_scheduler:
            use_extender(cluster)
        wait_registered(cluster)
        yield release
    finally:
        scheduler_config.write_text(text)
        release.uninstall()
        wait_nothing_left(cluster)
        cluster.client.delete("Namespace", NAME)
        wait_for(
            lambda: not cluster.client.exists("Namespace", NAME),
            timeout_seconds=SECONDS,
            what="the namespace gone",
        )


def make_values(*, own_scheduler: bool = True, **sections: Any) -> dict[str, Any]:
    """Return values of the chart in a mode, with the image that the cluster knows."""
    values = {"image": {"repository": IMAGE}, "scheduler": {"enabled": own_scheduler}}
    return {**values, **sections}


def make_namespace(cluster: RunningCluster, *, own_scheduler: bool) -> None:
    """Create the namespace of the release, with the Pod Security that the mode fits."""
    level = "restricted" if own_scheduler else "privileged"
    labels = {"pod-security.kubernetes.io/enforce": level}
    metadata = {"name": NAME, "labels": labels}
    cluster.client.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    )


def wait_registered(cluster: RunningCluster) -> None:
    """Wait until the registration has its entry, and the API server calls it."""

    def is_registered() -> bool:
        found = cluster.client.get(REGISTRATION, NAME, api_version=REGISTRATION_API)
        return bool(found.get("webhooks"))

    wait_for(
        is_registered,
        timeout_seconds=SECONDS,
        what="entry in the registration",
        ignoring=(ApiError,),
    )


def replicas(cluster: RunningCluster) -> Sequence[JsonObject]:
    """Return the pods of the release that stay."""
    pods = cluster.pods(NAME, **{"app.kubernetes.io/component": "service"})
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def leader_and_other(cluster: RunningCluster) -> tuple[JsonObject, JsonObject]:
    """Return the pod that the kube-scheduler that leads calls, and the other one."""
    pods = {host_of(pod): pod for pod in replicas(cluster)}
    leader = pods.pop(leading_host(cluster))
    (other,) = pods.values()
    return leader, other


def host_of(pod: JsonObject) -> str:
    """Return the host name of a replica, which is that of the kube-scheduler by it."""
    of_node = pod["spec"].get("hostNetwork", False)
    name: str = pod["spec"]["nodeName"] if of_node else pod["metadata"]["name"]
    return name


def leading_host(cluster: RunningCluster) -> str:
    """Return the host name of the kube-scheduler that leads: ours, if there is one."""
    leases = [
        lease
        for lease in cluster.client.list("Lease", api_version=LEASE_API)
        if lease["metadata"]["name"] in {SCHEDULER, "kube-scheduler"}
    ]
    lease = max(leases, key=lambda one: one["metadata"]["name"] == SCHEDULER)
    holder: str = lease["spec"].get("holderIdentity") or ""
    return holder.rpartition("_")[0]


def wait_whole(cluster: RunningCluster, count: int) -> None:
    """Wait until so many replicas are ready, one of them leads, and Services know."""

    def is_whole() -> bool:
        slices = cluster.client.list(
            "EndpointSlice", namespace=NAME, api_version="discovery.k8s.io/v1"
        )
        endpoints = [end for one in slices for end in one.get("endpoints") or ()]
        ready = [end for end in endpoints if end["conditions"]["ready"]]
        return len(ready) == count and bool(leader_and_other(cluster))

    wait_for(
        is_whole,
        timeout_seconds=SECONDS,
        what=f"{count} replicas",
        ignoring=(ApiError, KeyError, ValueError),  # no lease, no holder, too few
    )


def use_extender(cluster: RunningCluster) -> None:
    """Have the cluster's own kube-schedulers call gpu-extender."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "service", "scheduler-config"),
            *("--config", REPOSITORY / "configs" / "demo.yaml"),
            *("--scheduler-kubeconfig", cluster.folder / "kube-scheduler.kubeconfig"),
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    logs = list((cluster.folder / "logs").glob("kube-scheduler-*.log"))
    sizes = [path.stat().st_size for path in logs]
    (cluster.folder / "kube-scheduler.yaml").write_text(done.stdout)

    def know_us() -> bool:
        fresh = (
            path.read_text()[size:] for path, size in zip(logs, sizes, strict=True)
        )
        return all("Creating extender" in text for text in fresh)

    wait_for(know_us, timeout_seconds=SECONDS, what="kube-schedulers with an extender")


def left_of_release(cluster: RunningCluster) -> Sequence[tuple[str, str]]:
    """Return kind and name of what the release has left behind, wherever."""
    left: list[tuple[str, str]] = []
    for api_version, kind in NAMESPACED:
        for item in cluster.client.list(kind, api_version=api_version):
            metadata = item["metadata"]
            is_given = (kind, metadata["name"]) in GIVEN
            if (metadata["namespace"] == NAME and not is_given) or _is_ours(metadata):
                left.append((kind, metadata["name"]))
    has_policies = cluster.minor >= "1.36"
    for api_version, kind in (*CLUSTER_WIDE, *(POLICIES if has_policies else ())):
        items = cluster.client.list(kind, api_version=api_version)
        found = (item["metadata"] for item in items)
        left += [(kind, metadata["name"]) for metadata in found if _is_ours(metadata)]
    return left


def wait_nothing_left(cluster: RunningCluster) -> None:
    """Wait until what the release has left behind is gone: pods take a moment."""
    wait_for(
        lambda: not left_of_release(cluster),
        timeout_seconds=SECONDS,
        what="nothing left of the release",
    )


def _is_ours(metadata: JsonObject) -> bool:
    names = metadata["name"], metadata.get("labels", {}).get("app.kubernetes.io/name")
    return NAME in names


def helm_majors() -> Sequence[int]:
    """Return the versions of Helm that the suite has."""
    return tuple(int(name.rpartition("-")[2]) for name in build.HELMS)
