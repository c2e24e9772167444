"""The stand-ins of `make cluster` do as a kubelet and a kube-proxy would."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.cluster.nodes import NodesError, read_nodes
from tests.e2e.cluster.running import IMAGE, RunningCluster, wait_phase
from tests.e2e.cluster.services import choose_endpoints, hosts_text
from tests.e2e.cluster.volumes import write_atomically
from tests.e2e.harness.builders import JsonObject
from tests.e2e.harness.service import REPOSITORY
from tests.e2e.harness.waiting import wait_for

WAIT_SECONDS: Final = 60.0

# Says when it begins and, upon SIGTERM, when it ends; touches the file that is named.
SPEAKER: Final = """\
import pathlib, signal, sys, time
name, touched, pause = sys.argv[1:]
def end(*_):
    time.sleep(float(pause))
    print(f"{time.time():.6f} {name} ends", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print(f"{time.time():.6f} {name} begins", flush=True)
pathlib.Path(touched).touch()
while name != "first":
    time.sleep(0.05)
"""


def speaker(name: str, *, pause: float = 0.0, **more: Any) -> JsonObject:
    """Return a container that says when it begins and ends."""
    arguments = [name, f"/shared/{name}", str(pause)]
    return {
        "name": name,
        "image": IMAGE,
        "command": ["python3", "-c", SPEAKER, *arguments],
        "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
        **more,
    }


def there(name: str) -> JsonObject:
    """Return a probe that passes once a container has touched its file."""
    command = ["python3", "-c", f"open('/shared/{name}')"]
    return {"exec": {"command": command}, "periodSeconds": 1, "timeoutSeconds": 20}


def make_pod(name: str, **spec: Any) -> JsonObject:
    """Return a pod whose containers share a folder."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {"volumes": [{"name": "shared", "emptyDir": {}}], **spec},
    }


@pytest.fixture
def emptied(cluster: RunningCluster) -> Iterator[RunningCluster]:
    """The cluster, with no pods in `default` once the test is over."""
    yield cluster
    names = [pod["metadata"]["name"] for pod in cluster.pods("default")]
    cluster.client.delete_many("Pod", names)
    wait_for(
        lambda: not cluster.pods("default"),
        timeout_seconds=WAIT_SECONDS,
        what="no pods",
    )


def times(cluster: RunningCluster, pod: JsonObject, *names: str) -> dict[str, float]:
    """Return when containers began and ended."""
    lines = "".join(cluster.log(pod, name) for name in names).splitlines()
    return {what: float(at) for at, _, what in (line.partition(" ") for line in lines)}


def test_containers_begin_in_order_and_sidecars_end_last(
    emptied: RunningCluster,
) -> None:
    second, third = (
        speaker(name, restartPolicy="Always", startupProbe=there(name))
        for name in ("second", "third")
    )
    pod = make_pod(
        "order",
        initContainers=[speaker("first"), second, third],
        containers=[speaker("main", pause=0.3)],
    )

    emptied.client.create(pod)
    wait_phase(emptied, "order", "Running")
    made = wait_for(
        lambda: next(iter(emptied.pods("default", app="order")), None),
        timeout_seconds=WAIT_SECONDS,
        what="pod",
    )
    wait_for(
        lambda: "begins" in emptied.log(made, "main"),
        timeout_seconds=WAIT_SECONDS,
        what="main began",
    )
    emptied.client.delete("Pod", "order")
    wait_for(
        lambda: not emptied.pods("default", app="order"),
        timeout_seconds=WAIT_SECONDS,
        what="pod gone",
    )

    seen = times(emptied, made, "first", "second", "third", "main")
    assert sorted(seen, key=seen.__getitem__) == [
        "first begins",
        "second begins",
        "third begins",
        "main begins",
        "main ends",
        "third ends",
        "second ends",
    ]


def test_a_container_that_is_killed_starts_again(emptied: RunningCluster) -> None:
    emptied.client.create(make_pod("killed", containers=[speaker("main")]))
    pod = wait_phase(emptied, "killed", "Running")

    emptied.signal(pod, "main", signal.SIGKILL)

    def restarted() -> JsonObject | None:
        (status,) = emptied.client.get("Pod", "killed")["status"]["containerStatuses"]
        is_back = status["restartCount"] == 1 and "running" in status["state"]
        return status if is_back else None

    status = wait_for(restarted, timeout_seconds=WAIT_SECONDS, what="a restart")
    assert status["lastState"]["terminated"]["exitCode"] == 128 + signal.SIGKILL


def test_liveness_ends_and_readiness_takes_out_of_the_service(
    emptied: RunningCluster,
) -> None:
    """A file that goes away fails both probes; the next run makes it again."""
    probes: JsonObject = {
        "readinessProbe": {**there("main"), "failureThreshold": 1},
        "livenessProbe": {**there("main"), "failureThreshold": 2},
    }
    pod = make_pod(
        "probed",
        containers=[speaker("main", **probes)],
        terminationGracePeriodSeconds=1,
    )
    emptied.client.create(pod)

    def is_ready(restarts: int) -> JsonObject | None:
        found = emptied.client.get("Pod", "probed")
        (status,) = found["status"].get("containerStatuses", [{}])
        as_wanted = status.get("restartCount") == restarts and status.get("ready")
        return found if as_wanted else None

    made = wait_for(
        lambda: is_ready(0), timeout_seconds=WAIT_SECONDS, what="ready at first"
    )
    (emptied.pod_folder(made) / "volumes" / "shared" / "main").unlink()

    wait_for(lambda: is_ready(1), timeout_seconds=WAIT_SECONDS, what="ready again")
    assert emptied.log(made, "main").count("begins") == 2


def test_a_probe_that_no_kubelet_can_make_is_told(emptied: RunningCluster) -> None:
    probe = {"httpGet": {"port": "nowhere"}}
    container = speaker("main", livenessProbe=probe)
    emptied.client.create(make_pod("portless", containers=[container]))

    def told() -> bool:
        pod = emptied.client.get("Pod", "portless")
        (status,) = pod["status"].get("containerStatuses", [{}])
        waiting = status.get("state", {}).get("waiting", {})
        return "no port named nowhere" in waiting.get("message", "")

    wait_for(told, timeout_seconds=WAIT_SECONDS, what="what is wrong")


def test_a_pod_reads_its_token_fields_and_config(emptied: RunningCluster) -> None:
    """As the user that it names, from files that nobody else may read."""
    config = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"key": "value"}}
    metadata = {"name": "read", "namespace": "default"}
    emptied.client.create({**config, "metadata": metadata})
    script = (
        "import os, socket; root = '/var/run/secrets/kubernetes.io/serviceaccount'; "
        "print(len(open(f'{root}/token').read().split('.')), "
        "open(f'{root}/namespace').read(), open('/config/key').read(), "
        "os.readlink('/config/key'), os.environ['POD'], socket.gethostname(), "
        "os.getuid(), os.getgroups())"
    )
    field = {"fieldRef": {"fieldPath": "metadata.name"}}
    pod = make_pod(
        "reader",
        restartPolicy="Never",
        securityContext={"runAsUser": 10001, "runAsGroup": 0, "fsGroup": 20002},
        volumes=[
            {"name": "config", "configMap": {"name": "read", "defaultMode": 0o400}}
        ],
        containers=[
            {
                "name": "main",
                "image": IMAGE,
                "command": ["python3", "-c", script],
                "env": [{"name": "POD", "valueFrom": field}],
                "volumeMounts": [{"name": "config", "mountPath": "/config"}],
                "securityContext": {"readOnlyRootFilesystem": True},
            }
        ],
    )

    emptied.client.create(pod)
    done = wait_phase(emptied, "reader", "Succeeded", "Failed")
    emptied.client.delete("ConfigMap", "read")

    assert emptied.kubectl("logs", "reader") == (
        "3 default value ..data/key reader reader 10001 [0, 20002]\n"
    )
    assert done["status"]["phase"] == "Succeeded"


def test_files_of_a_volume_change_at_once(tmp_path: Path) -> None:
    write_atomically(tmp_path, {"a": (b"1", 0o644), "b/c": (b"2", 0o600)}, None)
    first = (tmp_path / "..data").readlink()
    write_atomically(tmp_path, {"a": (b"3", 0o644)}, None)

    assert (tmp_path / "a").readlink() == Path("..data/a")
    assert (tmp_path / "a").read_bytes() == b"3"
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_symlink()) == [
        "..data",
        "a",
    ]
    assert not (tmp_path / first).exists()


READY: Final = {"conditions": {"ready": True}, "addresses": ["192.0.2.9"]}
ENDING: Final = {
    "conditions": {"ready": False, "serving": True, "terminating": True},
    "addresses": ["192.0.2.8"],
}
DOWN: Final = {"conditions": {"ready": False}, "addresses": ["192.0.2.7"]}


@pytest.mark.parametrize(
    ("endpoints", "wanted"),
    [
        pytest.param([READY, ENDING, DOWN], [("192.0.2.9", 8443)], id="ready first"),
        pytest.param([ENDING, DOWN], [("192.0.2.8", 8443)], id="ending is better"),
        pytest.param([DOWN], [], id="than nobody"),
    ],
)
def test_connections_go_to_who_is_ready(
    endpoints: list[JsonObject], wanted: list[tuple[str, int]]
) -> None:
    ports = [{"name": "webhook", "port": 8443}, {"name": "other", "port": 1}]

    found = choose_endpoints([{"ports": ports, "endpoints": endpoints}], "webhook")

    assert found == wanted


def test_services_have_the_names_of_dns() -> None:
    metadata = {"name": "web", "namespace": "shop"}
    service = {"metadata": metadata, "spec": {"clusterIP": "10.0.0.7"}}

    assert hosts_text([service]).splitlines()[1:] == [
        "10.0.0.7 web.shop.svc web.shop.svc.cluster.local web.shop"
    ]


def test_nodes_come_from_a_dump() -> None:
    nodes = read_nodes(REPOSITORY / "configs" / "demo-cluster.yaml")

    (node,) = [node for node in nodes if node["metadata"]["name"] == "a100-01"]
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert node["metadata"]["labels"]["accelerator"] == "nvidia-tesla-a100"
    assert "resourceVersion" not in node["metadata"]


def test_a_file_without_nodes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "none.yaml").write_text("items: []\n")

    with pytest.raises(NodesError, match="wanted nodes as `kubectl get nodes"):
        read_nodes(tmp_path / "none.yaml")
