"""`kubectl gpu` with the real kubectl, through the API server to a replica's loopback.

The replicas are pods on two nodes whose kubelet's end of port-forwards is a program on
Kubernetes' own streaming package: one leads to the service, the other to nobody.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.e2e.harness.builders import JsonObject, make_node, make_pod
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.kubelet import set_phase
from tests.e2e.harness.ports import LOOPBACK, free_port
from tests.e2e.harness.product import DEPLOY, NAME, Product
from tests.e2e.harness.waiting import wait_for

SCRIPT: Final = DEPLOY / "kubectl" / "kubectl-gpu"
LEASES: Final = "coordination.k8s.io/v1"
SCHEDULER: Final = "kube-scheduler"
ROLE: Final = "gpu-extender-operator"
COMMAND_SECONDS: Final = 60.0
SEEN_SECONDS: Final = 20.0


@dataclass(frozen=True)
class Caller:
    """Somebody with kubectl, the plugin, and a kubeconfig."""

    plane: ControlPlane
    folder: Path
    kubeconfig: Path

    def gpu(self, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
        """Run ``kubectl gpu``; return its status and both outputs."""
        path = f"{self.folder}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            [self.folder / "kubectl", "gpu", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_SECONDS,
            env={
                **os.environ,
                "PATH": path,
                "HOME": str(self.folder),
                "KUBECONFIG": str(self.kubeconfig),
                "KUBERC": "off",
            },
        )
        return done.returncode, done.stdout, done.stderr


def call_of(plane: ControlPlane, folder: Path, kubeconfig: Path) -> Caller:
    """Put kubectl and the plugin beside each other."""
    for name, target in (
        ("kubectl", plane.binary("kubectl")),
        ("kubectl-gpu", SCRIPT),
    ):
        if not (folder / name).exists():
            (folder / name).symlink_to(target)
    return Caller(plane, folder, kubeconfig)


def make_host(name: str, port: int, gpus: int) -> JsonObject:
    """Return a node whose kubelet listens on loopback."""
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    node = make_node(name, gpus=gpus, labels=labels)
    node["status"]["addresses"] = [{"type": "InternalIP", "address": LOOPBACK}]
    node["status"]["daemonEndpoints"] = {"kubeletEndpoint": {"Port": port}}
    return node


def lead(plane: ControlPlane, host: str) -> None:
    """Have a host hold the Lease of kube-scheduler."""
    plane.client.apply(
        {
            "apiVersion": LEASES,
            "kind": "Lease",
            "metadata": {"name": SCHEDULER, "namespace": "kube-system"},
            "spec": {"holderIdentity": f"{host}_5f0c"},
        }
    )


@pytest.fixture
def installed(product: Product) -> Iterator[Product]:
    """The service, as the replica on host-1; nobody is behind that on host-2."""
    plane, port, nobody = product.plane, free_port(), free_port()
    replicas = {
        "host-1": f"{LOOPBACK}:{product.port}",
        "host-2": f"{LOOPBACK}:{nobody}",
    }
    pods = {f"{NAME}/{NAME}-{host}": address for host, address in replicas.items()}
    plane.start_port_forwarder(port, pods)
    for host in replicas:
        plane.client.create(make_host(host, port, gpus=4))
        name = f"{NAME}-{host}"
        pod = make_pod(name, namespace=NAME, node_name=host, labels={"app": NAME})
        plane.client.create(pod)
        set_phase(plane.client, name, "Running", namespace=NAME)
    lead(plane, "host-1")
    product.start()
    yield product
    plane.kubectl("delete", "lease", SCHEDULER, "-n", "kube-system")


@pytest.fixture
def admin(installed: Product, tmp_path: Path) -> Caller:
    """Somebody who may do everything."""
    plane = installed.plane
    kubeconfig = plane.kubeconfig(plane.users.harness.token, "admin")
    return call_of(plane, tmp_path, kubeconfig)


@pytest.fixture
def operator(installed: Product, tmp_path: Path) -> Iterator[Caller]:
    """Somebody who may do what `deploy/kubectl/operator.yaml` lets them, once bound."""
    plane = installed.plane
    plane.kubectl("apply", "-f", str(DEPLOY / "kubectl" / "operator.yaml"))
    plane.kubectl("create", "serviceaccount", "ann")
    token = plane.client.service_account_token("default", "ann")
    yield call_of(plane, tmp_path, plane.kubeconfig(token, "ann"))
    plane.kubectl("delete", "serviceaccount", "ann")
    for namespace in (NAME, "kube-system"):
        names = ("rolebinding/ann", "role/look", "-n", namespace)
        plane.kubectl("delete", *names, "--ignore-not-found")


def bind(plane: ControlPlane, role: str = ROLE) -> None:
    """Bind a Role in both namespaces as `docs/kubectl.md` says."""
    for namespace in (NAME, "kube-system"):
        who = ("--role", role, "--serviceaccount", "default:ann", "-n", namespace)
        plane.kubectl("create", "rolebinding", "ann", *who)


def wait_pending(product: Product, count: int = 1) -> None:
    """Wait until the service knows of so many pending pods."""
    wait_for(
        lambda: product.get_json("/cluster")["pendingPods"] == count,
        timeout_seconds=SEEN_SECONDS,
        what="the pods known",
    )


def test_the_roles_are_what_it_takes(installed: Product, operator: Caller) -> None:
    installed.client.create(make_pod("train", gpus=9))
    wait_pending(installed)

    status, out, err = operator.gpu("explain", "train")
    assert (status, out, err.count("\n")) == (3, "", 1)
    assert "cannot be listed" in err
    assert "operator.yaml" in err

    bind(installed.plane)
    page = installed.get_json("/explain?namespace=default&pod=train")
    # RBAC learns of it a moment later.
    status, out, err = wait_for(
        lambda: said if (said := operator.gpu("explain", "train"))[0] != 3 else None,
        timeout_seconds=SEEN_SECONDS,
        what="the right to forward",
    )

    assert (status, err) == (1, "")
    assert out.startswith(f"{page['summary']['sentence']}.\n")


def test_whoever_may_not_forward_is_told(installed: Product, operator: Caller) -> None:
    plane, what = installed.plane, "--resource=pods,leases.coordination.k8s.io"
    for namespace in (NAME, "kube-system"):
        where = ("-n", namespace)
        plane.kubectl("create", "role", "look", "--verb=get,list", what, *where)
    bind(plane, "look")

    def refused() -> str | None:
        status, out, err = operator.gpu("nodes")
        assert (status, out) == (3, "")
        return err if "may not forward" in err else None

    err = wait_for(refused, timeout_seconds=SEEN_SECONDS, what="the right to list")

    assert err.splitlines()[-1].startswith(
        f"You may not forward a port of {NAME}/{NAME}-host-1: "
    )


def test_the_replica_beside_the_leader_is_asked(
    installed: Product, admin: Caller
) -> None:
    status, out, err = admin.gpu("nodes")
    assert (status, err) == (0, "")
    assert out.startswith("2 of 2 nodes with GPUs, pending pods: 0")
    rows = [line.split() for line in out.splitlines()[6:]]
    assert rows == [
        [host, "H100-SXM5-80GB", "nvidia.com/gpu", "gpu", "4", "0", "4", "ok"]
        for host in ("host-1", "host-2")
    ]
    assert admin.gpu("top")[1].splitlines()[2:] == out.splitlines()[2:4]

    lead(installed.plane, "host-2")
    status, out, err = admin.gpu("nodes")
    assert (status, out, err.count("\n")) == (3, "", 1)
    assert f"does not answer on {NAME}/{NAME}-host-2" in err


@pytest.fixture
def misled(installed: Product) -> Iterator[Product]:
    """A registration of the webhook that leads to a Service that is not there."""
    service = {"namespace": NAME, "name": "nobody", "path": "/mutate"}
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
    }
    webhook = {
        "name": "pods.gpu-extender.io",
        "clientConfig": {"service": service},
        "rules": [rule],
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    installed.client.apply(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": NAME},
            "webhooks": [webhook],
        }
    )
    yield installed
    installed.plane.kubectl("delete", "mutatingwebhookconfiguration", NAME)


def test_findings_are_those_of_the_service_and_of_the_caller(
    misled: Product, admin: Caller
) -> None:
    found = misled.get_json("/doctor")["findings"]

    status, out, err = admin.gpu("doctor", "-o", "json")

    assert (status, err) == (1, "")
    page = json.loads(out)
    assert [item for item in page["findings"] if item in found] == found
    more = [item["what"] for item in page["findings"] if item not in found]
    assert more == [f"There is no Service {NAME}/nobody, which the registration calls."]
    assert not [item for item in page["unchecked"] if "not read it" in item["why"]]
    assert admin.gpu("doctor")[1].splitlines()[-1].endswith(f"{NAME}-host-1.")


def test_a_pod_is_looked_for(installed: Product, admin: Caller) -> None:
    plane = installed.plane
    for namespace in ("left", "right"):
        plane.kubectl("create", "namespace", namespace)
        installed.client.create(make_pod("train", namespace=namespace, gpus=1))
    wait_pending(installed, 2)

    status, out, err = admin.gpu("explain", "train")
    assert (status, out) == (2, "")
    assert err == (
        "Namespace default has no pod train; left and right have one: say which with"
        " -n left.\n"
    )

    assert admin.gpu("explain", "train", "-n", "left")[::2] == (0, "")
    installed.client.delete("Pod", "train", namespace="left")
    wait_pending(installed)
    status, out, err = admin.gpu("explain", "train", "-n", "left")
    assert (status, out) == (2, "")
    assert "Namespace left has no pod train; right has one" in err

    installed.client.delete("Pod", "train", namespace="right")
    wait_pending(installed, 0)
    assert admin.gpu("explain", "train", "-n", "right")[2] == (
        "There is no pod right/train: it may have been deleted meanwhile.\n"
    )


def test_a_manifest_is_admitted_by_the_api_server_first(
    installed: Product, admin: Caller
) -> None:
    template = make_pod("x", gpus=2, cpu="1")
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {
            "template": {"spec": {**template["spec"], "restartPolicy": "Never"}},
        },
    }
    text = yaml.safe_dump(job)

    status, out, err = admin.gpu("explain", "-f", "-", stdin=text)
    assert (status, err) == (0, "")
    assert "default/train" in out
    limits = {"type": "Container", "max": {"cpu": "2"}, "default": {"memory": "1Ti"}}
    installed.client.create(
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "limits", "namespace": "default"},
            "spec": {"limits": [limits]},
        }
    )

    def admitted() -> tuple[int, str, str] | None:
        said = admin.gpu("explain", "-f", "-", "--server-dry-run", stdin=text)
        return said if said[0] == 1 else None

    # The API server's own cache of them follows.
    status, out, err = wait_for(
        admitted, timeout_seconds=SEEN_SECONDS, what="the LimitRange in use"
    )
    assert err == ""
    assert "memory" in out.splitlines()[0]

    quota = {"hard": {"requests.nvidia.com/gpu": "1"}}
    installed.client.create(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "few", "namespace": "default"},
            "spec": quota,
        }
    )
    # Nobody else counts: the controller of quotas does not run.
    used = {"status": {**quota, "used": {"requests.nvidia.com/gpu": "0"}}}
    installed.client.patch("ResourceQuota", "few", used, subresource="status")

    def refused() -> tuple[int, str, str] | None:
        said = admin.gpu("explain", "-f", "-", "--server-dry-run", stdin=text)
        return said if "would refuse the pod" in said[2] else None

    status, out, err = wait_for(
        refused, timeout_seconds=SEEN_SECONDS, what="the quota in use"
    )
    assert (status, out) == (1, "")
