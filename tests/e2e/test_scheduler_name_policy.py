"""GPU pods are sent to a scheduler by the API server itself, with nobody to ask."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest
import yaml

from tests.e2e.harness.builders import GPU, JsonObject, make_pod
from tests.e2e.harness.client import ApiClient
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.product import DEPLOY, NAME, Product
from tests.e2e.harness.second_webhook import LABEL, second_webhook
from tests.e2e.harness.waiting import wait_for

FILE: Final = DEPLOY / "kustomize/components/scheduler-name-policy/policy.yaml"
OURS: Final = "gpu-extender-scheduler"
PLAIN: Final = "default-scheduler"
OUT: Final = "gpu-extender.io/scheduler"
TRIGGER: Final = "task.bkbcs.tencent.com/gpu-type"
OLDEST: Final = (1, 36)
KNOWN_SECONDS: Final = 60.0
DRY_RUN: Final = {"dryRun": "All"}
QUIET: Final = "quiet"
ONE: Final = {GPU: "1"}
POD_LEVEL: Final = {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}}


def container(name: str = "main", **fields: Any) -> JsonObject:
    return {"name": name, "image": "registry.invalid/w:1", **fields}


def gpu_container(name: str = "main", **fields: Any) -> JsonObject:
    return container(name, resources={"limits": ONE}, **fields)


def of(*containers: JsonObject, **fields: Any) -> JsonObject:
    """Return the spec of a pod."""
    return {"containers": list(containers), **fields}


# name -> pod, and the scheduler that it gets
PODS: Final[Mapping[str, tuple[JsonObject, str]]] = {
    pod["metadata"]["name"]: (pod, scheduler)
    for pod, scheduler in (
        (make_pod("limits", spec=of(gpu_container())), OURS),
        (make_pod("requests-too", gpus=2), OURS),
        (
            make_pod(
                "init", spec=of(container(), initContainers=[gpu_container("init")])
            ),
            OURS,
        ),
        (
            make_pod(
                "sidecar",
                spec=of(
                    container(),
                    initContainers=[gpu_container("init", restartPolicy="Always")],
                ),
            ),
            OURS,
        ),
        (make_pod("slice", resources={"nvidia.com/mig-1g.10gb": 1}), OURS),
        (make_pod("share", resources={"nvidia.com/gpu.shared": 1}), OURS),
        (make_pod("amd", resources={"amd.com/gpu": "1k"}), OURS),
        (make_pod("pod-level", spec=of(gpu_container(), resources=POD_LEVEL)), OURS),
        (make_pod("other", gpus=1, scheduler_name="volcano"), OURS),
        (make_pod("ours", gpus=1, scheduler_name=OURS), OURS),
        (
            # Nobody else's fields may change, nor be merged.
            make_pod(
                "twice",
                spec=of(
                    gpu_container(
                        env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
                    )
                ),
            ),
            OURS,
        ),
        (make_pod("kept", gpus=1, labels={OUT: "keep"}), PLAIN),
        (
            make_pod(
                "kept-other", gpus=1, labels={OUT: "keep"}, scheduler_name="volcano"
            ),
            "volcano",
        ),
        (make_pod("none", resources={GPU: "0"}), PLAIN),
        (make_pod("plain", cpu="1"), PLAIN),
        (make_pod("plain-level", spec=of(container(), resources=POD_LEVEL)), PLAIN),
        (make_pod("system", gpus=1, namespace="kube-system"), PLAIN),
        (make_pod("own", gpus=1, namespace=NAME), PLAIN),
        (make_pod("quiet", gpus=1, namespace=QUIET), PLAIN),
    )
}
CHOSEN: Final = {name: scheduler for name, (_, scheduler) in PODS.items()}


def is_known(minor: str) -> bool:
    """Say whether a minor has policies that change objects, as stable ones."""
    return tuple(map(int, minor.split("."))) >= OLDEST


@pytest.fixture
def knowing(minor: str) -> None:
    """The test is about minors that know the policy."""
    if not is_known(minor):
        pytest.skip(f"Kubernetes {minor} has no stable MutatingAdmissionPolicy")


@pytest.fixture
def plane(control_plane: ControlPlane, knowing: None) -> Iterator[ControlPlane]:  # noqa: ARG001
    """The control plane with the policy, and the namespaces that it leaves alone."""
    client = control_plane.client
    for name, labels in ((NAME, {}), (QUIET, {"gpu-extender.io/webhook": "disabled"})):
        metadata = {"name": name, "labels": labels}
        client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    control_plane.kubectl("apply", "-f", str(FILE))
    try:
        wait_until_sent_to(client, OURS)
        yield control_plane
    finally:
        control_plane.kubectl("delete", "-f", str(FILE))
        wait_until_sent_to(client, PLAIN)


def wait_until_sent_to(client: ApiClient, scheduler: str) -> None:
    """Wait until the API server knows of the policy, or of its end."""
    wait_for(
        lambda: tried(client, gpus=1) == scheduler,
        timeout_seconds=KNOWN_SECONDS,
        what=f"GPU pods sent to {scheduler}",
    )


def tried(client: ApiClient, **pod: Any) -> str:
    """Return the scheduler that a pod would get."""
    made = client.create(make_pod(generate_name="probe-", **pod), query=DRY_RUN)
    name: str = made["spec"]["schedulerName"]
    return name


def created(
    client: ApiClient, *, query: Mapping[str, str] | None = None
) -> Mapping[str, JsonObject]:
    """Create all pods; return by name what the API server made of them."""
    return {name: client.create(pod, query=query) for name, (pod, _) in PODS.items()}


def chosen(pods: Mapping[str, JsonObject]) -> Mapping[str, str]:
    return {name: pod["spec"]["schedulerName"] for name, pod in pods.items()}


def test_gpu_pods_get_the_scheduler_while_nothing_of_ours_runs(
    plane: ControlPlane,
) -> None:
    tried_out = created(plane.client, query=DRY_RUN)
    made = created(plane.client)

    assert chosen(tried_out) == CHOSEN
    assert chosen(made) == CHOSEN
    assert plane.client.get("Pod", "limits")["spec"]["schedulerName"] == OURS
    (main,) = made["twice"]["spec"]["containers"]
    assert [item["value"] for item in main["env"]] == ["1", "2"]


def test_with_the_webhook_beside_it_a_pod_gets_the_same_scheduler(
    plane: ControlPlane,
) -> None:
    """And CPU and memory, which the webhook alone can give."""
    with Product(plane, settings={"injection": {"schedulerName": OURS}}) as product:
        product.start()
        product.register_webhook()
        made = created(plane.client)
        typed = plane.client.create(
            make_pod("typed", gpus=1, annotations={TRIGGER: "V100"})
        )

    assert chosen(made) == CHOSEN
    assert typed["spec"]["schedulerName"] == OURS
    (main,) = typed["spec"]["containers"]
    assert main["resources"]["limits"] == {"cpu": "4", "memory": "8Gi", GPU: "1"}


def test_the_policy_does_not_see_what_a_webhook_adds(plane: ControlPlane) -> None:
    def add_gpu(pod: JsonObject) -> None:
        pod["spec"]["containers"][0]["resources"] = {"limits": ONE}

    with second_webhook(plane, "adds-gpus") as webhook:
        webhook.change = add_gpu
        scheduler = tried(plane.client, labels=LABEL)

    assert scheduler == PLAIN


def test_older_api_servers_do_not_have_the_policy(
    minor: str, control_plane: ControlPlane
) -> None:
    """Which the chart says before anything is applied."""
    kinds = {item["kind"] for item in yaml.safe_load_all(FILE.read_text())}

    path = "/apis/admissionregistration.k8s.io/v1"
    served = {
        item["kind"] for item in control_plane.client.request("GET", path)["resources"]
    }

    assert (kinds <= served) is is_known(minor)
