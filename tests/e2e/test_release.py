"""The chart in a whole cluster: placed and injected pods, upgrade, uninstall, Helm 3
and 4 and kubectl, in both modes. Pods are created throughout, and none is refused
because nobody answers."""

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pytest

from tests.e2e.cluster.release import (
    NAME,
    REGISTRATION,
    REGISTRATION_API,
    SCHEDULER,
    SECONDS,
    ByHelm,
    ByKubectl,
    Way,
    make_namespace,
    make_values,
    use_extender,
    wait_nothing_left,
    wait_registered,
)
from tests.e2e.cluster.running import RunningCluster
from tests.e2e.harness.builders import GPU, JsonObject, make_pod
from tests.e2e.harness.connection import ApiError
from tests.e2e.harness.product import RULES
from tests.e2e.harness.review_load import Review, ReviewLoad
from tests.e2e.harness.waiting import wait_for

TYPE: Final = "task.bkbcs.tencent.com/gpu-type"
POOL: Final = "pool"
PER_SECOND: Final = 10.0
# Pods of a pool, which are deleted together.
POD_COUNT: Final = 10

own_and_existing = pytest.mark.parametrize(
    "own_scheduler", [True, False], ids=["own scheduler", "existing scheduler"]
)

WAYS: Final[dict[str, Callable[[RunningCluster], Way]]] = {
    "helm 4": lambda cluster: ByHelm(cluster, 4),
    "helm 3": lambda cluster: ByHelm(cluster, 3),
    "kubectl apply": lambda cluster: ByKubectl(cluster, server_side=False),
    "kubectl apply --server-side": lambda cluster: ByKubectl(cluster, server_side=True),
}


@pytest.fixture
def place(cluster: RunningCluster) -> Iterator[RunningCluster]:
    """The cluster; what a test has left there is taken away."""
    scheduler_config = cluster.folder / "kube-scheduler.yaml"
    text = scheduler_config.read_text()
    yield cluster
    scheduler_config.write_text(text)
    for path in (
        f"/apis/{REGISTRATION_API}/{REGISTRATION.lower()}s/{NAME}",
        f"/apis/{REGISTRATION_API}/mutatingadmissionpolicies/{NAME}-scheduler-name",
        f"/api/v1/namespaces/{NAME}",
    ):
        with contextlib.suppress(ApiError):  # nothing there
            cluster.client.request("DELETE", path)
    cluster.client.request("DELETE", "/api/v1/namespaces/default/pods")
    wait_for(
        lambda: (
            not cluster.client.exists("Namespace", NAME) and not cluster.pods("default")
        ),
        timeout_seconds=SECONDS,
        what="nothing left of the test",
    )


def gpu_pod(name: str | None = None, **more: Any) -> JsonObject:
    return make_pod(name, generate_name="load-", gpus=1, **more)


def wait_bound(cluster: RunningCluster, name: str) -> JsonObject:
    """Wait until a pod of `default` is on a node, and up."""

    def look() -> JsonObject | None:
        pod = cluster.client.get("Pod", name)
        return pod if pod["status"].get("phase") == "Running" else None

    return wait_for(look, timeout_seconds=SECONDS, what=f"pod {name} running")


def create_load(cluster: RunningCluster) -> ReviewLoad:
    """Return a load of GPU pods that are created until its block ends."""
    return ReviewLoad(
        cluster.client,
        lambda pool: gpu_pod(labels={POOL: f"pool-{pool}"}),
        label=POOL,
        per_second=PER_SECOND,
        pods_of_a_pool=POD_COUNT,
    )


def refusals(reviews: Sequence[Review]) -> Sequence[str]:
    return [review.error for review in reviews if review.error]


@own_and_existing
@pytest.mark.parametrize("major", [4, 3], ids=["helm 4", "helm 3"])
def test_a_release_places_and_injects_gpu_pods(
    place: RunningCluster, major: int, own_scheduler: bool
) -> None:
    """Until `helm uninstall`, which leaves nothing behind."""
    make_namespace(place, own_scheduler=own_scheduler)
    release = ByHelm(place, major)
    rules = json.loads(RULES.read_text())

    release.install(make_values(own_scheduler=own_scheduler, rules=rules))
    if not own_scheduler:
        use_extender(place)
    release.wait_registered()
    place.client.create(gpu_pod("typed", annotations={TYPE: "A100"}))
    pod = wait_bound(place, "typed")
    examined = release.test()
    release.uninstall()

    assert pod["spec"]["schedulerName"] == (
        SCHEDULER if own_scheduler else "default-scheduler"
    )
    assert pod["spec"]["nodeName"].startswith("a100")
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"cpu": "12", "memory": "96Gi", GPU: "1"}
    assert re.search(r"Phase: +Succeeded", examined)
    # By Helm 3 the pod, and what it says, is gone.
    assert ("No fault found." in examined) is (major > 3)
    wait_nothing_left(place)


def test_a_release_without_a_webhook_places_gpu_pods(
    place: RunningCluster, minor: str
) -> None:
    if minor == "1.34":
        pytest.skip("Kubernetes 1.34 has no stable MutatingAdmissionPolicy")
    make_namespace(place, own_scheduler=True)
    release = ByHelm(place, 4)
    without_webhook: dict[str, Any] = {
        "webhook": {"enabled": False},
        "schedulerNamePolicy": {"enabled": True},
    }

    release.install(make_values(**without_webhook))
    place.client.create(gpu_pod("sent"))
    pod = wait_bound(place, "sent")
    examined = release.test()
    release.uninstall()

    assert pod["spec"]["schedulerName"] == SCHEDULER
    assert set(pod["spec"]["containers"][0]["resources"]["limits"]) == {GPU}
    assert "No fault found." in examined
    wait_nothing_left(place)


@pytest.mark.parametrize(
    ("own_scheduler", "way"),
    [
        pytest.param(True, "helm 4"),
        pytest.param(False, "helm 4"),
        pytest.param(True, "helm 3", marks=pytest.mark.long),
        pytest.param(True, "kubectl apply", marks=pytest.mark.long),
        pytest.param(True, "kubectl apply --server-side", marks=pytest.mark.long),
        pytest.param(False, "kubectl apply --server-side", marks=pytest.mark.long),
    ],
)
def test_pods_are_created_through_install_upgrade_and_uninstall(
    place: RunningCluster, own_scheduler: bool, way: str
) -> None:
    make_namespace(place, own_scheduler=own_scheduler)
    release = WAYS[way](place)
    values = make_values(own_scheduler=own_scheduler)
    changed = {"scoring": {"strategy": "binpack"}}

    with create_load(place) as load:
        release.install(values)
        wait_registered(place)
        registered = load.count
        release.upgrade({**values, "config": changed})
        upgraded = load.count
        release.uninstall()
    reviews = load.reviews()

    assert refusals(reviews) == []
    if own_scheduler:
        # Those under way when the entry came may still have missed it.
        chosen = {one.scheduler for one in reviews[registered + POD_COUNT : upgraded]}
        assert chosen == {SCHEDULER}
    wait_nothing_left(place)
