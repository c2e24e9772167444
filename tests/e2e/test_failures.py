"""What happens to GPU pods, and to others, when a part of an installation fails.

Both are created all the time. Others are never refused; GPU pods are, if at all, from
the moment at which a replica falls silent until its Service no longer leads to it.
"""

import datetime as dt
import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
import yaml

from tests.e2e.cluster.release import (
    NAME,
    REGISTRATION,
    REGISTRATION_API,
    SECONDS,
    ByHelm,
    host_of,
    installed_release,
    leader_and_other,
    leading_host,
    make_values,
    replicas,
    wait_registered,
    wait_whole,
)
from tests.e2e.cluster.running import RunningCluster
from tests.e2e.harness.builders import JsonObject, make_pod
from tests.e2e.harness.certificates import Authority
from tests.e2e.harness.client import STRATEGIC_PATCH
from tests.e2e.harness.connection import ApiError
from tests.e2e.harness.product import RULES
from tests.e2e.harness.review_load import Review, ReviewLoad
from tests.e2e.harness.waiting import wait_for

POOL: Final = "pool"
PER_SECOND: Final = 10.0
POD_COUNT: Final = 5  # of a pool, GPU pods and others by turns
SETTLED_PODS: Final = 20  # before and after a failure
EXTENDER: Final = "gpu-extender"
# Longer than kubelet and both replicas take to see a change of a Secret.
ENDS_SOON: Final = dt.timedelta(seconds=90)
# Created and never placed: the load takes no GPUs.
GATED: Final = {"schedulingGates": [{"name": "example.com/load"}]}
KUBE_SCHEDULER: Final = "kube-scheduler"
TYPE: Final = "task.bkbcs.tencent.com/gpu-type"


@dataclass
class Load:
    """Pods that are created while something fails.

    `broken` and `mended` are when the failure began, and when it was known to be over.
    """

    cluster: RunningCluster
    reviews: Sequence[Review] = ()
    broken: float = 0.0
    mended: float = 0.0
    names: Iterator[str] = field(
        default_factory=lambda: (f"during-{number}" for number in range(100))
    )

    def begins(self) -> None:
        """Note that something is about to be broken."""
        self.broken = time.monotonic()

    def ends(self) -> None:
        """Note that all is well again."""
        self.mended = time.monotonic()

    def place(self) -> JsonObject:
        """Create a GPU pod, again and again if it is refused; return it placed."""
        name = next(self.names)

        def create() -> JsonObject:
            return self.cluster.client.create(make_pod(name, gpus=1))

        wait_for(
            create,
            timeout_seconds=SECONDS,
            what=f"creation of {name}",
            ignoring=(ApiError,),
        )

        def look() -> JsonObject | None:
            pod = self.cluster.client.get("Pod", name)
            return pod if pod["spec"].get("nodeName") else None

        return wait_for(look, timeout_seconds=SECONDS, what=f"{name} placed")

    def refused(self, *, gpus: bool) -> Sequence[Review]:
        """Return the pods of one sort that were refused."""
        mine = [one for one in self.reviews if has_gpus(one.pool) is gpus]
        assert mine
        return [one for one in mine if one.error]

    def __str__(self) -> str:
        refused = self.refused(gpus=True)
        first = min((one.sent_seconds for one in refused), default=0.0)
        last = max((one.answered_seconds for one in refused), default=0.0)
        return (
            f"{len(refused)} GPU pods refused, within {last - first:.1f} s;"
            f" whole again after {self.mended - self.broken:.1f} s"
        )

    def refused_beyond(self) -> Sequence[str]:
        """Return why GPU pods were refused outside of the failure."""
        return [
            one.error
            for one in self.refused(gpus=True)
            if one.answered_seconds < self.broken or one.sent_seconds > self.mended
        ]


def has_gpus(pool: int) -> bool:
    return pool % 2 == 0


@pytest.fixture(
    scope="module", params=[True, False], ids=["own scheduler", "existing scheduler"]
)
def release(
    cluster: RunningCluster, request: pytest.FixtureRequest
) -> Iterator[ByHelm]:
    """The chart in one mode, with two replicas."""
    rules = json.loads(RULES.read_text())
    values = make_values(own_scheduler=request.param, rules=rules)
    with installed_release(cluster, values) as installed:
        yield installed


def in_mode(*, own_scheduler: bool) -> pytest.MarkDecorator:
    """Return a mark for a test of one mode."""
    name = "own scheduler" if own_scheduler else "existing scheduler"
    return pytest.mark.parametrize(
        "release", [own_scheduler], indirect=True, ids=[name], scope="module"
    )


@pytest.fixture
def load(cluster: RunningCluster, release: ByHelm) -> Iterator[Load]:
    """A load that goes on for the whole test, and some pods beyond.

    That others are never refused, and GPU pods only meanwhile, is seen at the end.
    """
    assert release.cluster is cluster
    wait_whole(cluster, 2)
    found = Load(cluster)

    def asking(pool: int) -> JsonObject:
        labels = {POOL: f"pool-{pool}"}
        gpus = 1 if has_gpus(pool) else 0
        return make_pod(generate_name="load-", gpus=gpus, labels=labels, spec=GATED)

    with ReviewLoad(
        cluster.client,
        asking,
        label=POOL,
        per_second=PER_SECOND,
        pods_of_a_pool=POD_COUNT,
    ) as creating:
        wait_more(creating)
        yield found
        if found.mended:
            wait_whole(cluster, 2)
            wait_more(creating)
    cluster.client.request("DELETE", "/api/v1/namespaces/default/pods")
    wait_for(
        lambda: not cluster.pods("default"),
        timeout_seconds=SECONDS,
        what="no pods of the test",
    )
    found.reviews = creating.reviews()
    assert found.mended, "the test did not say when all was well again"
    assert found.refused(gpus=False) == []
    assert found.refused_beyond() == []
    print(found)  # noqa: T201 - figures, shown with -rP


def wait_more(creating: ReviewLoad) -> None:
    wanted = creating.count + SETTLED_PODS
    wait_for(
        lambda: creating.count >= wanted,
        timeout_seconds=SECONDS,
        what=f"{SETTLED_PODS} more pods",
    )


def wait_restarted(cluster: RunningCluster, pod: JsonObject, container: str) -> None:
    """Wait until a container of a pod has been started again, and is ready."""
    name = pod["metadata"]["name"]
    before = restarts(pod, container)

    def look() -> bool:
        now = cluster.client.get("Pod", name, namespace=NAME)
        return restarts(now, container) > before

    wait_for(look, timeout_seconds=SECONDS, what=f"{container} started again")
    wait_whole(cluster, 2)


def wait_said(cluster: RunningCluster, pod: JsonObject, text: str) -> None:
    """Wait until gpu-extender in a pod has said something."""
    wait_for(
        lambda: text in cluster.log(pod, EXTENDER),
        timeout_seconds=SECONDS,
        what=f"{text} of {pod['metadata']['name']}",
    )


def restarts(pod: JsonObject, container: str) -> int:
    kinds = ("initContainerStatuses", "containerStatuses")
    (found,) = (
        status["restartCount"]
        for kind in kinds
        for status in pod["status"].get(kind, ())
        if status["name"] == container
    )
    return int(found)


def test_gpu_extender_is_killed_beside_the_leader(load: Load) -> None:
    """It is started again at once; the other replica answers meanwhile."""
    leader, _ = leader_and_other(load.cluster)

    load.begins()
    load.cluster.signal(leader, EXTENDER, signal.SIGKILL)
    load.place()
    wait_restarted(load.cluster, leader, EXTENDER)
    load.ends()


def test_kube_scheduler_that_leads_is_killed(load: Load) -> None:
    """GPU pods are placed by whoever holds the Lease next; nobody is refused."""
    leader, _ = leader_and_other(load.cluster)

    load.begins()
    kill_scheduler(load.cluster, leader)
    load.place()
    wait_whole(load.cluster, 2)
    load.ends()
    # Nobody was called in vain.
    load.broken = load.mended


def kill_scheduler(cluster: RunningCluster, pod: JsonObject) -> None:
    """Kill the kube-scheduler that calls a replica, and wait until it runs again."""
    if pod["spec"].get("hostNetwork", False):
        before = cluster.host_scheduler(host_of(pod))
        os.kill(before, signal.SIGKILL)
        wait_for(
            lambda: cluster.host_scheduler(host_of(pod)) != before,
            timeout_seconds=SECONDS,
            what="kube-scheduler started again",
            ignoring=(ValueError,),  # a file that is being written
        )
    else:
        cluster.signal(pod, KUBE_SCHEDULER, signal.SIGKILL)
        wait_restarted(cluster, pod, KUBE_SCHEDULER)


def test_both_replicas_are_killed(load: Load) -> None:
    """GPU pods are refused until one is back, others are created."""
    pods = leader_and_other(load.cluster)

    load.begins()
    for pod in pods:
        load.cluster.signal(pod, EXTENDER, signal.SIGKILL)
    load.place()
    for pod in pods:
        wait_restarted(load.cluster, pod, EXTENDER)
    load.ends()


@pytest.mark.long
@in_mode(own_scheduler=True)
def test_gpu_extender_hangs_beside_the_leader(load: Load) -> None:
    """The probes find it: its kube-scheduler gives up the Lease, it is ended."""
    leader, other = leader_and_other(load.cluster)

    load.begins()
    load.cluster.signal(leader, EXTENDER, signal.SIGSTOP)
    wait_leads(load.cluster, other)
    load.place()
    wait_restarted(load.cluster, leader, EXTENDER)
    load.ends()


def wait_leads(cluster: RunningCluster, pod: JsonObject) -> None:
    """Wait until the kube-scheduler by a replica leads."""
    wait_for(
        lambda: leading_host(cluster) == host_of(pod),
        timeout_seconds=SECONDS,
        what="the other to lead",
    )


@pytest.mark.long
@in_mode(own_scheduler=False)
def test_gpu_extender_hangs_beside_a_scheduler_that_does_not_ask_how_it_is(
    load: Load,
) -> None:
    """GPU pods wait, until its liveness probe has it started again."""
    leader, _ = leader_and_other(load.cluster)

    load.begins()
    load.cluster.signal(leader, EXTENDER, signal.SIGSTOP)
    wait_restarted(load.cluster, leader, EXTENDER)
    load.place()
    load.ends()


@pytest.mark.long
def test_the_leader_is_cut_off(load: Load) -> None:
    """The other leads and answers; the one that comes back decides nothing alone."""
    leader, other = leader_and_other(load.cluster)

    load.begins()
    load.cluster.cut_off(leader, EXTENDER, on=True)
    try:
        wait_leads(load.cluster, other)
        if leader["spec"].get("hostNetwork", False):
            # Its kubelet is cut off with it and says nothing: the node controller does.
            write_ready(load.cluster, leader, "False")
        load.place()
    finally:
        load.cluster.cut_off(leader, EXTENDER, on=False)
    if leader["spec"].get("hostNetwork", False):
        write_ready(load.cluster, leader, "True")
    wait_whole(load.cluster, 2)
    load.ends()


def write_ready(cluster: RunningCluster, pod: JsonObject, status: str) -> None:
    """Write the condition Ready of a pod."""
    cluster.client.patch(
        "Pod",
        pod["metadata"]["name"],
        {"status": {"conditions": [{"type": "Ready", "status": status}]}},
        namespace=NAME,
        subresource="status",
        content_type=STRATEGIC_PATCH,
    )


def test_a_node_is_drained(load: Load) -> None:
    """A replica of a Deployment moves, one of a DaemonSet stays: nobody is refused."""
    leader, _ = leader_and_other(load.cluster)
    stays = leader["spec"].get("hostNetwork", False)
    node = leader["spec"]["nodeName"]
    selector = f"--pod-selector=app.kubernetes.io/name={NAME}"
    options = ("--delete-emptydir-data", "--ignore-daemonsets", "--timeout=100s")

    load.cluster.kubectl("drain", node, selector, *options)
    load.place()
    load.cluster.kubectl("uncordon", node)
    wait_whole(load.cluster, 2)

    now = {pod["metadata"]["uid"] for pod in replicas(load.cluster)}
    assert (leader["metadata"]["uid"] in now) is stays
    load.ends()
    load.broken = load.mended


def test_its_rights_are_taken_away(load: Load) -> None:
    """Who has it goes on; who starts without it is not ready."""
    _, other = leader_and_other(load.cluster)
    binding = load.cluster.kubectl("get", "clusterrolebinding", NAME, "-o", "json")

    load.cluster.kubectl("delete", "clusterrolebinding", NAME)
    load.begins()
    load.cluster.signal(other, EXTENDER, signal.SIGKILL)
    name = other["metadata"]["name"]

    def is_waiting() -> bool:
        pod = load.cluster.client.get("Pod", name, namespace=NAME)
        conditions = {c["type"]: c["status"] for c in pod["status"]["conditions"]}
        is_told = "cannot list resource" in load.cluster.log(pod, EXTENDER)
        return is_told and conditions["Ready"] == "False"

    wait_for(is_waiting, timeout_seconds=SECONDS, what="one without rights")
    load.ends()
    load.place()
    item = yaml.safe_load(binding)
    metadata = {"name": NAME, "labels": item["metadata"]["labels"]}
    metadata["annotations"] = item["metadata"]["annotations"]
    load.cluster.client.create({**item, "metadata": metadata})
    wait_whole(load.cluster, 2)


def test_the_registration_is_deleted(load: Load, release: ByHelm) -> None:
    """GPU pods are created without us, until an upgrade makes it again."""
    path = f"/apis/{REGISTRATION_API}/{REGISTRATION.lower()}s/{NAME}"
    load.cluster.client.request("DELETE", path)

    def goes_past() -> bool:
        pod = make_pod("past", gpus=1, annotations={TYPE: "A100"})
        made = load.cluster.client.create(pod, query={"dryRun": "All"})
        (container,) = made["spec"]["containers"]
        is_default = made["spec"]["schedulerName"] == "default-scheduler"
        return is_default and "cpu" not in container["resources"]["limits"]

    wait_for(goes_past, timeout_seconds=SECONDS, what="a pod that goes past us")
    load.place()
    release.upgrade(release.values)
    wait_registered(load.cluster)
    wait_for(
        lambda: not goes_past(), timeout_seconds=SECONDS, what="a pod that does not"
    )
    load.ends()
    load.broken = load.mended


@pytest.mark.long
def test_a_given_certificate_ends(load: Load, release: ByHelm) -> None:
    """A new one is taken up without a restart; what is open meanwhile goes on."""
    cluster = load.cluster
    authority = Authority(cluster.folder / "given", "given")
    host = f"{NAME}.{NAME}.svc"

    def give(lifetime: dt.timedelta) -> None:
        pair = authority.issue("given", lifetime=lifetime, hosts=[host])
        data = {
            "tls.crt": pair.certificate.read_text(),
            "tls.key": pair.key.read_text(),
            "ca.crt": authority.file.read_text(),
        }
        metadata = {"name": "given", "namespace": NAME}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
        cluster.client.apply({**secret, "stringData": data})

    give(dt.timedelta(days=1))
    webhook: dict[str, Any] = {
        "existingSecret": "given",
        "selfSigned": {"enabled": False},
    }
    release.upgrade({**release.values, "webhook": webhook})
    wait_whole(cluster, 2)
    pods = replicas(cluster)

    load.begins()
    give(ENDS_SOON)
    for pod in pods:
        wait_said(cluster, pod, "file reloaded")

    def nobody_is_ready() -> bool:
        statuses = (pod["status"]["conditions"] for pod in replicas(cluster))
        ready = [c for one in statuses for c in one if c["type"] == "Ready"]
        return [c["status"] for c in ready] == ["False", "False"]

    wait_for(nobody_is_ready, timeout_seconds=SECONDS, what="an end of readiness")
    give(dt.timedelta(days=1))
    wait_whole(cluster, 2)
    load.place()
    assert {pod["metadata"]["uid"] for pod in replicas(cluster)} == {
        pod["metadata"]["uid"] for pod in pods
    }
    release.upgrade(release.values)
    cluster.client.delete("Secret", "given", namespace=NAME)
    wait_registered(cluster)
    load.ends()
