"""The samples in `deploy/samples` and the overlays, applied as they are."""

import json
from typing import Final

import pytest

from tests.e2e.harness.builders import GPU, JsonObject, make_node, make_pod
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.kubelet import finish_jobs
from tests.e2e.harness.pods import nodes_of_pods
from tests.e2e.harness.product import (
    DEPLOY,
    REGISTRATION,
    REGISTRATION_API,
    SAMPLES,
    Product,
)
from tests.e2e.harness.waiting import wait_for

TEAM: Final = "gpu-team"
MIG_2G: Final = "nvidia.com/mig-2g.20gb"
TRIGGER: Final = "task.bkbcs.tencent.com/gpu-type"
RECORD: Final = "gpu-webhook.k8s.io/fallback"
WORK_SECONDS: Final = 30.0
V100: Final = {TRIGGER: "V100"}


@pytest.fixture
def team(control_plane: ControlPlane, product: Product) -> Product:
    """Everything deployed on two V100 nodes, one of them with NVLink."""
    client = control_plane.client
    client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
    nvlink = {"gpu-interconnect": "nvlink"}
    client.create(make_node("pcie", gpus=4, resources={MIG_2G: 1}))
    client.create(make_node("nvlink", gpus=4, labels=nvlink))
    product.start_all()
    product.register_webhook()
    control_plane.start_controller_manager()
    return product


def apply_sample(plane: ControlPlane, name: str) -> None:
    """Apply one sample with kubectl."""
    plane.kubectl("apply", "-n", TEAM, "-f", str(SAMPLES / f"{name}.yaml"))


def wait_until_placed(plane: ControlPlane, count: int) -> dict[str, JsonObject]:
    """Wait until so many pods of the team are bound; return them by name."""
    wait_for(
        lambda: len(nodes_of_pods(plane.client, namespace=TEAM)) == count,
        timeout_seconds=WORK_SECONDS,
        what=f"{count} pods bound",
    )
    pods = plane.client.list("Pod", namespace=TEAM)
    return {pod["metadata"]["name"]: pod for pod in pods}


def requests_of(pod: JsonObject, container: int = 0) -> JsonObject:
    """Return what a container of a pod asks."""
    resources = pod["spec"]["containers"][container]["resources"]
    found: JsonObject = resources["requests"]
    return found


def test_the_training_job_runs_to_its_end(
    control_plane: ControlPlane, team: Product
) -> None:
    control_plane.start_kubelet(finish_jobs)

    apply_sample(team.plane, "training-job")
    pods = wait_until_placed(control_plane, 2)
    done = control_plane.kubectl.run(
        "wait", "-n", TEAM, "--for=condition=complete", "job/training", "--timeout=30s"
    )

    assert done.returncode == 0, done.stderr
    for pod in pods.values():
        assert requests_of(pod) == {"cpu": "4", "memory": "8Gi", GPU: "1"}


def test_the_multi_gpu_job_gets_the_nvlink_node_and_its_budget(
    control_plane: ControlPlane, team: Product
) -> None:
    control_plane.start_kubelet(finish_jobs)

    apply_sample(team.plane, "multi-gpu-job")
    (pod,) = wait_until_placed(control_plane, 1).values()
    done = control_plane.kubectl.run(
        "wait", "-n", TEAM, "--for=condition=complete", "job/multi-gpu", "--timeout=30s"
    )

    assert done.returncode == 0, done.stderr
    assert pod["spec"]["nodeName"] == "nvlink"
    # 2 x (4, 8Gi) less 500m and 1Gi of the sidecar.
    assert requests_of(pod) == {"cpu": "7500m", "memory": "15Gi", GPU: "2"}
    assert requests_of(pod, 1) == {"cpu": "500m", "memory": "1Gi"}


def test_the_inference_deployment_takes_the_slice_and_then_a_whole_gpu(
    control_plane: ControlPlane, team: Product
) -> None:
    control_plane.start_kubelet()

    apply_sample(team.plane, "inference-deployment")
    pods = wait_until_placed(control_plane, 2)
    done = control_plane.kubectl.run(
        "rollout", "status", "-n", TEAM, "deployment/inference", "--timeout=30s"
    )

    assert done.returncode == 0, done.stderr
    records = [pod["metadata"]["annotations"].get(RECORD) for pod in pods.values()]
    assert sorted(records, key=str) == ["2g.20gb->gpu", None]
    taken = [
        name
        for pod in pods.values()
        for name in requests_of(pod)
        if name not in {"cpu", "memory"}
    ]
    assert sorted(taken) == [GPU, MIG_2G]


def test_the_quota_counts_what_is_injected_and_refuses_what_exceeds_it(
    control_plane: ControlPlane, team: Product
) -> None:
    kubectl = control_plane.kubectl
    control_plane.start_kubelet()
    apply_sample(team.plane, "quota")

    def used() -> JsonObject:
        status = kubectl.json("get", "-n", TEAM, "resourcequota", "gpu-team")["status"]
        found: JsonObject = status.get("used", {})
        return found

    # Without a first count the API server refuses every pod of the namespace.
    wait_for(used, timeout_seconds=WORK_SECONDS, what="first count of the quota")
    apply_sample(team.plane, "training-job")
    apply_sample(team.plane, "multi-gpu-job")
    wait_until_placed(control_plane, 3)

    # 2 x (4, 8Gi, 1) and once (7.5 + 0.5, 15Gi + 1Gi, 2): the quota to the last bit.
    assert used() == {
        "requests.cpu": "16",
        "requests.memory": "32Gi",
        "requests.nvidia.com/gpu": "4",
    }

    one_more = make_pod("more", namespace=TEAM, gpus=1, annotations=V100)
    done = kubectl.run("create", "-f", "-", stdin=json.dumps(one_more))
    assert done.returncode == 1
    assert "exceeded quota: gpu-team" in done.stderr
    # The injected values are what was too much, not the missing ones of the manifest.
    assert "requests.cpu=4" in done.stderr
    assert "requests.memory=8Gi" in done.stderr

    apply_sample(team.plane, "inference-deployment")

    def refusal() -> str:
        events = control_plane.client.list("Event", namespace=TEAM)
        return next(
            (
                event["message"]
                for event in events
                if event["reason"] == "FailedCreate"
                and event["involvedObject"]["kind"] == "ReplicaSet"
            ),
            "",
        )

    message = wait_for(
        refusal, timeout_seconds=WORK_SECONDS, what="event of the ReplicaSet"
    )
    assert "exceeded quota: gpu-team" in message


def test_defaults_of_a_limit_range_and_injected_values_agree(
    control_plane: ControlPlane, team: Product
) -> None:
    client, kubectl = control_plane.client, control_plane.kubectl
    apply_sample(team.plane, "limit-range")

    # LimitRanger has filled in 1 and 2 cores by the time that the webhook is asked.
    typed = make_pod("typed", namespace=TEAM, gpus=1, annotations=V100)
    kubectl("create", "-f", "-", stdin=json.dumps(typed))
    kubectl(
        "create",
        "-f",
        "-",
        stdin=json.dumps(make_pod("untyped", namespace=TEAM, gpus=1)),
    )
    apply_sample(team.plane, "training-job")
    apply_sample(team.plane, "multi-gpu-job")
    pods = wait_until_placed(control_plane, 5)

    injected = {"cpu": "4", "memory": "8Gi", GPU: "1"}
    (container,) = client.get("Pod", "typed", namespace=TEAM)["spec"]["containers"]
    assert container["resources"] == {"requests": injected, "limits": injected}
    (container,) = client.get("Pod", "untyped", namespace=TEAM)["spec"]["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "1", "memory": "2Gi", GPU: "1"},
        "limits": {"cpu": "2", "memory": "4Gi", GPU: "1"},
    }
    trainer = next(p for n, p in pods.items() if n.startswith("multi-gpu"))
    # The sidecar has its own request, and a limit from the LimitRange.
    assert requests_of(trainer)["cpu"] == "7500m"


def test_an_injected_value_above_the_limit_range_is_refused_by_the_api_server(
    control_plane: ControlPlane, team: Product
) -> None:
    apply_sample(team.plane, "limit-range")

    # 17 x 4 cores are more than the 64 that a container may have.
    large = make_pod("large", namespace=TEAM, gpus=17, annotations=V100)
    done = control_plane.kubectl.run("create", "-f", "-", stdin=json.dumps(large))

    assert done.returncode == 1
    assert "maximum cpu usage per Container is 64, but limit is 68" in done.stderr


@pytest.mark.parametrize("overlay", ["own-scheduler", "existing-scheduler"])
def test_an_overlay_is_applied_twice_and_taken_away(
    fresh_control_plane: ControlPlane, overlay: str
) -> None:
    """With nobody to start its pods; the registration sends nobody to us meanwhile."""
    plane = fresh_control_plane
    folder = str(DEPLOY / "kustomize" / "overlays" / overlay)

    first = plane.kubectl("apply", "-k", folder)
    second = plane.kubectl("apply", "-k", folder)
    plane.client.create(make_node("a", gpus=1))
    created = plane.client.create(make_pod("gpu", gpus=1))
    plane.kubectl("delete", "-k", folder, "--wait=false")

    assert len(first.splitlines()) == len(second.splitlines())
    # kubectl replaces a budget's selector each time, by the same.
    changed = [line for line in second.splitlines() if not line.endswith("unchanged")]
    assert [line for line in changed if "poddisruptionbudget" not in line] == []
    assert created["spec"]["schedulerName"] == "default-scheduler"
    registered = plane.client.list(REGISTRATION, api_version=REGISTRATION_API)
    assert registered == ()
