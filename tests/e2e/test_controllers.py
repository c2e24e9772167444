"""Pods that Deployments, Jobs and StatefulSets create, through the webhook."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, Self

import pytest

from tests.e2e.harness.builders import GPU, JsonObject, make_node, make_pod
from tests.e2e.harness.connection import ApiError
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.kubelet import set_phase
from tests.e2e.harness.pods import delete_quietly, wait_until_bound, wait_until_phase
from tests.e2e.harness.product import Product
from tests.e2e.harness.service import sum_of_samples
from tests.e2e.harness.slices import resource_of
from tests.e2e.harness.waiting import wait_for

MIG_2G: Final = "nvidia.com/mig-2g.20gb"
TRIGGER: Final = "task.bkbcs.tencent.com/gpu-type"
RECORD: Final = "gpu-webhook.k8s.io/fallback"
MARK: Final = "gpu-extender.io/fallback-weighed"
HOLDS: Final = "gpu_extender_webhook_holds"
# Whatever is held at the end was not taken back by a pod.
HOLD_SECONDS: Final = 600
RESTARTS: Final = 10
WORK_SECONDS: Final = 30.0
LABELS: Final = {"app": "work"}
CHOSEN: Final = {"selector": {"matchLabels": LABELS}}


class Workloads(Product):
    """The product, and how often a controller has created a pod that is there."""

    def __enter__(self) -> Self:
        self._created_twice_before = self._created_twice()
        return super().__enter__()

    @property
    def created_twice(self) -> float:
        """How many pods were reviewed, then refused: another has the name."""
        return self._created_twice() - self._created_twice_before

    def _created_twice(self) -> float:
        name = "apiserver_request_total"
        text: str = self.client.request("GET", "/metrics")["text"]
        lines = [line for line in text.splitlines() if line.startswith(name)]
        labels = {"verb": "POST", "resource": "pods", "subresource": "", "code": "409"}
        return sum_of_samples("\n".join([*lines, ""]), name, labels)


@pytest.fixture
def product(control_plane: ControlPlane) -> Iterator[Workloads]:
    """The service as it ships, whose holds last longer than any test."""
    settings = {"fallback": {"holdSeconds": HOLD_SECONDS}}
    with Workloads(control_plane, settings=settings) as installed:
        yield installed


@pytest.fixture
def cluster(product: Workloads) -> Workloads:
    """Everything that runs in a cluster, and nodes with one slice and eight GPUs."""
    client = product.client
    client.create(make_node("sliced", resources={MIG_2G: 1}))
    client.create(make_node("whole", gpus=8))
    product.start_all()
    product.register_webhook()
    product.plane.start_controller_manager()
    product.plane.start_kubelet()
    return product


def create_workload(
    product: Workloads, kind: str, name: str, asks: Mapping[str, int], **spec: Any
) -> JsonObject:
    """Create a workload whose pods ask `asks` and name the type V100."""
    api_version = "batch/v1" if kind == "Job" else "apps/v1"
    pod = make_pod(name, resources=asks, labels=LABELS, annotations={TRIGGER: "V100"})
    metadata = {"labels": LABELS, "annotations": pod["metadata"]["annotations"]}
    if kind == "Job":
        pod["spec"]["restartPolicy"] = "Never"
    return product.client.create(
        {
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {"name": name},
            "spec": {**spec, "template": {"metadata": metadata, "spec": pod["spec"]}},
        }
    )


def running_pods(product: Workloads, count: int) -> list[JsonObject]:
    """Wait until so many pods run, and until nothing is held for them."""

    def found() -> list[JsonObject]:
        return [
            pod
            for pod in product.client.list("Pod", namespace="default")
            if pod["status"].get("phase") == "Running"
        ]

    wait_for(
        lambda: len(found()) == count,
        timeout_seconds=WORK_SECONDS,
        what=f"{count} pods running",
    )
    wait_until_nothing_is_held(product)
    return found()


def wait_until_nothing_is_held(product: Workloads) -> None:
    """Wait until each pod that came has ended its hold.

    A stateful set's controller that has not seen its pod yet creates it once more: what
    is held for that one, no pod takes back.
    """
    wait_for(
        lambda: not (held := product.metric(HOLDS)) or held <= product.created_twice,
        timeout_seconds=WORK_SECONDS,
        what="every hold taken back by its pod",
    )


def wait_until_free(product: Workloads) -> None:
    """Wait until the service knows that nobody has a GPU or a slice."""

    def is_free() -> bool:
        return not any(
            requested
            for resources in product.amounts().values()
            for name, (_, requested) in resources.items()
            if name in {GPU, MIG_2G}
        )

    wait_for(is_free, timeout_seconds=WORK_SECONDS, what="GPUs and slices free")


def taken(pods: list[JsonObject]) -> Counter[str]:
    """Return how many pods ask for each GPU resource; their marks must say the same."""
    for pod in pods:
        assert pod["metadata"]["annotations"][MARK] == resource_of(pod)
    return Counter(map(resource_of, pods))


def test_every_pod_of_a_deployment_is_injected_and_the_deployment_is_not_asked_about(
    cluster: Workloads,
) -> None:
    before = cluster.calls_of("mutate")

    made = create_workload(cluster, "Deployment", "web", {GPU: 1}, replicas=3, **CHOSEN)
    pods = running_pods(cluster, 3)

    assert cluster.calls_of("mutate") - before == 3
    injected = {GPU: "1", "cpu": "4", "memory": "8Gi"}
    assert [pod["spec"]["containers"][0]["resources"] for pod in pods] == [
        {"requests": injected, "limits": injected}
    ] * 3
    (template,) = made["spec"]["template"]["spec"]["containers"]
    assert template["resources"]["limits"] == {GPU: "1"}


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        pytest.param("Deployment", {"replicas": 3, **CHOSEN}, id="deployment"),
        pytest.param(
            "StatefulSet",
            {"replicas": 3, "podManagementPolicy": "Parallel", **CHOSEN},
            id="stateful set",
        ),
        pytest.param("Job", {"completions": 3, "parallelism": 3}, id="job"),
    ],
)
def test_one_pod_of_three_keeps_the_slice_and_nothing_is_held_twice(
    cluster: Workloads, kind: str, spec: Mapping[str, Any]
) -> None:
    create_workload(cluster, kind, "work", {MIG_2G: 1}, **spec)

    pods = running_pods(cluster, 3)

    assert taken(pods) == {MIG_2G: 1, GPU: 2}


def test_the_next_job_has_the_slice_again(cluster: Workloads) -> None:
    work = {"completions": 2, "parallelism": 2}
    create_workload(cluster, "Job", "first", {MIG_2G: 1}, **work)
    for pod in running_pods(cluster, 2):
        set_phase(cluster.client, pod["metadata"]["name"], "Succeeded")
    wait_until_free(cluster)

    create_workload(cluster, "Job", "second", {MIG_2G: 1}, **work)

    assert taken(running_pods(cluster, 2)) == {MIG_2G: 1, GPU: 1}


def test_a_pod_of_a_stateful_set_that_comes_back_is_a_new_pod(
    cluster: Workloads,
) -> None:
    create_workload(cluster, "StatefulSet", "db", {MIG_2G: 1}, replicas=1, **CHOSEN)
    (once,) = running_pods(cluster, 1)
    scale(cluster, 0)
    wait_until_free(cluster)
    cluster.client.create(make_pod("other", resources={MIG_2G: 1}))
    wait_until_bound(cluster.client, "other")
    wait_until_phase(cluster.client, "other", "Running")

    scale(cluster, 1)
    pods = running_pods(cluster, 2)

    again = next(pod for pod in pods if pod["metadata"]["name"] == "db-0")
    assert once["metadata"]["name"] == "db-0"
    assert resource_of(once) == MIG_2G
    assert (resource_of(again), again["metadata"]["annotations"][RECORD]) == (
        GPU,
        "2g.20gb->gpu",
    )


def scale(product: Workloads, replicas: int) -> None:
    """Have the stateful set keep so many pods."""
    product.client.patch(
        "StatefulSet", "db", {"spec": {"replicas": replicas}}, api_version="apps/v1"
    )


def test_a_pod_of_a_stateful_set_that_restarts_keeps_its_slice(
    cluster: Workloads,
) -> None:
    create_workload(cluster, "StatefulSet", "db", {MIG_2G: 1}, replicas=1, **CHOSEN)
    (pod,) = running_pods(cluster, 1)

    got = []
    for _ in range(RESTARTS):
        pod = restart(cluster, pod)
        got.append(resource_of(pod))

    assert got == [MIG_2G] * RESTARTS
    wait_until_nothing_is_held(cluster)


def restart(product: Workloads, pod: JsonObject) -> JsonObject:
    """Delete a pod and return the next one of its name once it runs."""
    metadata = pod["metadata"]
    delete_quietly(product.client, metadata["name"])

    def next_one() -> JsonObject | None:
        pods = product.client.list("Pod", namespace=metadata["namespace"])
        running = (one for one in pods if one["status"].get("phase") == "Running")
        return next(
            (one for one in running if one["metadata"]["uid"] != metadata["uid"]), None
        )

    return wait_for(
        next_one, timeout_seconds=WORK_SECONDS, what="another pod of that name"
    )


def test_a_pod_that_is_created_twice_leaves_what_is_held_for_it(
    cluster: Workloads,
) -> None:
    pod = make_pod("once", resources={MIG_2G: 1})
    cluster.client.create(pod)
    wait_until_phase(cluster.client, "once", "Running")
    wait_until_nothing_is_held(cluster)

    with pytest.raises(ApiError):
        cluster.client.create(pod)

    assert (cluster.created_twice, cluster.metric(HOLDS)) == (1, 1)
