"""Which pods are told, when, and how often."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from cluster.decode.objects import PodRecord
from extender.events.event import Event, Regarding
from extender.events.notices import (
    MAX_PODS_OF_OWNER,
    REMEMBERED_SECONDS,
    Notice,
    NoticedPod,
)
from extender.events.plan import Told
from scoring.protocols import FailingNode
from scoring.snapshot import Snapshot
from tests.builders import make_node, make_pod
from tests.fakes.told_pods import ToldPods


class Describe:
    """Says of each size of pod what a test has set."""

    def __init__(self) -> None:
        self.classes = frozenset({"full"})
        self.calls: list[str] = []
        self.failing: set[str] = set()

    def __call__(self, record: PodRecord, snapshot: Snapshot) -> Told:
        self.calls.append(record.name)
        gpus = dict(record.request)["nvidia.com/gpu"]
        if record.namespace in self.failing:
            raise ValueError("a fault of our own")
        note = f"{gpus} GPUs at {snapshot.generation}."
        return Told(note, self.classes, is_warning=self.classes != {"fits"})


@pytest.fixture
def describe() -> Describe:
    return Describe()


def pods(count: int, **more: Any) -> list[dict[str, Any]]:
    return [make_pod(name=f"pod-{i:03}", gpus=1, **more) for i in range(count)]


def noticed(name: str, notice: Notice) -> NoticedPod:
    """Return a pod of one job, of which there is something to know."""
    pod = Regarding("v1", "Pod", "default", name, f"uid-of-default-{name}")
    job = Regarding("batch/v1", "Job", "default", "owner", "job")
    return NoticedPod(pod, job, (notice,))


def test_a_pod_is_told_once_it_has_waited_for_half_a_minute(
    describe: Describe,
) -> None:
    cluster = ToldPods(make_pod(name="a", gpus=1), describe=describe)

    assert cluster.run(29) == []
    (event,) = cluster.run(60)
    assert event.note == "1 GPUs at 1."
    assert event.regarding.name == "a"
    assert (event.reason, event.action, event.kind) == (
        "GPUPodPending",
        "Scheduling",
        "Warning",
    )


def test_a_pod_that_fits_and_was_not_tried_yet_is_no_cause_for_a_warning(
    describe: Describe,
) -> None:
    describe.classes = frozenset({"fits"})
    cluster = ToldPods(make_pod(gpus=1, owner_uid="job"), describe=describe)

    assert [event.kind for event in cluster.run(40)] == ["Normal", "Normal"]


def test_a_pod_that_has_gone_meanwhile_is_not_told(describe: Describe) -> None:
    cluster = ToldPods(*pods(2), describe=describe)
    cluster.delete("uid-of-default-pod-000")
    cluster.build()

    assert [event.regarding.name for event in cluster.run(40)] == ["pod-001"]


def test_other_numbers_are_no_news_and_other_classes_are(describe: Describe) -> None:
    cluster = ToldPods(make_pod(gpus=1), describe=describe)
    cluster.run(40)
    cluster.put(make_node(name="more", gpus=4))
    cluster.build()
    again = cluster.run(20)
    describe.classes = frozenset({"full", "tainted"})
    cluster.put(make_node(name="still-more", gpus=4))
    cluster.build()

    assert again == []
    assert [event.note for event in cluster.run(20)] == ["1 GPUs at 3."]


def test_classes_that_come_back_are_no_news(describe: Describe) -> None:
    cluster = ToldPods(make_pod(gpus=1), describe=describe)
    for number in range(6):
        describe.classes = frozenset({"full" if number % 2 else "tainted"})
        cluster.put(make_node(name=f"node-{number}", gpus=4))
        cluster.build()
        cluster.run(40)

    assert len(cluster.told) == 2


def test_pods_that_differ_in_names_alone_are_described_once(
    describe: Describe,
) -> None:
    cluster = ToldPods(*pods(30), make_pod(name="z", gpus=2), describe=describe)
    told = cluster.run(60)

    assert len(told) == 31
    assert sorted(describe.calls) == ["pod-000", "z"]


def test_of_many_pods_of_one_owner_some_are_told_and_the_owner(
    describe: Describe,
) -> None:
    cluster = ToldPods(*pods(50, owner_uid="job"), describe=describe)
    told = cluster.run(60)

    kinds = Counter(event.regarding.kind for event in told)
    assert kinds == {"Job": 1, "Pod": MAX_PODS_OF_OWNER}
    assert told[0].regarding.name == "owner"
    assert told[0].regarding.api_version == "batch/v1"
    assert told[0].note == "1 GPUs at 1. Pods that wait: 50."


def test_pods_come_after_those_that_are_gone(describe: Describe) -> None:
    cluster = ToldPods(*pods(50, owner_uid="job"), describe=describe)
    first = {event.regarding.name for event in cluster.run(60)}
    for name in sorted(first - {"owner"})[:5]:
        cluster.delete(f"uid-of-default-{name}")
    cluster.build()
    more = cluster.run(60)

    assert len(more) == 5
    assert first.isdisjoint(event.regarding.name for event in more)


def test_every_owner_is_told_before_any_is_told_much(describe: Describe) -> None:
    objects = [
        make_pod(name=f"o{owner}-{i}", gpus=1, owner_uid=f"job-{owner}")
        for owner in range(10)
        for i in range(30)
    ]
    cluster = ToldPods(*objects, describe=describe)
    told = cluster.run(40)[:20]

    owners = [e.regarding.uid for e in told if e.regarding.kind == "Job"]
    assert sorted(owners) == sorted(f"job-{owner}" for owner in range(10))


def test_pods_that_were_never_told_come_first(describe: Describe) -> None:
    cluster = ToldPods(*pods(3, namespace="old"), describe=describe)
    cluster.run(40)
    describe.classes = frozenset({"tainted"})
    late = {"creationTimestamp": "2026-11-27T12:00:10Z"}
    cluster.put(make_node(gpus=1), *pods(3, namespace="young", metadata=late))
    cluster.build()
    cluster.now += 1.0
    told = cluster.run(20)

    assert [event.regarding.namespace for event in told] == ["young"] * 3 + ["old"] * 3


def test_an_event_that_was_not_taken_is_told_again(describe: Describe) -> None:
    cluster = ToldPods(make_pod(gpus=1, owner_uid="job"), describe=describe)
    first = cluster.run(40)
    for event in first:
        cluster.plan.forget(event)

    assert [event.name for event in cluster.run(10)] == [e.name for e in first]
    assert cluster.run(10) == []


def test_a_pod_that_cannot_be_described_keeps_nobody_else_waiting(
    describe: Describe,
) -> None:
    describe.failing = {"bad"}
    objects = make_pod(namespace="bad", gpus=3), make_pod(namespace="good", gpus=1)
    cluster = ToldPods(*objects, describe=describe)
    faults = 0
    for _ in range(500):
        try:
            cluster.step()
        except ValueError:
            faults += 1

    assert [e.regarding.namespace for _, e in cluster.told] == ["good"]
    assert faults == 1


def test_nothing_is_described_while_it_may_not_be(describe: Describe) -> None:
    cluster = ToldPods(make_pod(gpus=1), describe=describe)
    event = cluster.plan.next(cluster.snapshot, 2e9, 100.0, may_describe=False)

    assert event is None
    assert describe.calls == []


def test_notices_are_told_at_once_on_pod_and_owner(describe: Describe) -> None:
    slip = Notice("GPUPodWarning", "Admission", ("no such type",))
    objects = [make_pod(name=n, gpus=1, owner_uid="job") for n in ("a", "b")]
    cluster = ToldPods(*objects, describe=describe)
    for name in ("a", "b"):
        cluster.plan.notices.add(noticed(name, slip))
    told = cluster.run(2)

    assert [event.regarding.kind for event in told] == ["Job", "Pod", "Pod"]
    assert {event.note for event in told} == {"no such type"}
    assert cluster.run(2) == []
    assert [e.reason for e in cluster.run(60)] == ["GPUPodPending"] * 3


def test_what_is_no_slip_is_no_warning(describe: Describe) -> None:
    fall = Notice("GPUPodFallback", "Admission", ("falls",), is_warning=False)
    cluster = ToldPods(describe=describe)
    cluster.plan.notices.add(noticed("a", fall))

    assert [event.kind for event in cluster.run(2)] == ["Normal", "Normal"]


def test_of_many_pods_of_one_owner_some_are_noticed_in_an_hour(
    describe: Describe,
) -> None:
    slip = Notice("GPUPodWarning", "Admission", ("no such type",))
    cluster = ToldPods(describe=describe)
    for number in range(50):
        cluster.plan.notices.add(noticed(f"pod-{number}", slip))
    first = cluster.run(10)
    cluster.plan.notices.add(noticed("later", slip))
    none = cluster.run(1)
    cluster.now += REMEMBERED_SECONDS
    cluster.plan.notices.add(noticed("much-later", slip))

    kinds = Counter(event.regarding.kind for event in first)
    assert kinds == {"Job": 1, "Pod": MAX_PODS_OF_OWNER}
    assert none == []
    assert [event.regarding.kind for event in cluster.run(1)] == ["Job", "Pod"]


def test_pods_that_wait_are_told_between_notices(describe: Describe) -> None:
    cluster = ToldPods(*pods(10), describe=describe)
    cluster.now = 40.0
    slip = Notice("GPUPodWarning", "Admission", ("no such type",))
    for number in range(10):
        pod = noticed(f"pod-{number}", slip)._replace(owner=None)
        cluster.plan.notices.add(pod)
    told = [event.reason for event in cluster.run(2)]

    assert Counter(told[:10]) == {"GPUPodPending": 5, "GPUPodWarning": 5}
    assert len(told) == 20


def test_a_notice_that_was_not_taken_is_told_again(describe: Describe) -> None:
    slip = Notice("GPUPodWarning", "Admission", ("no such type",))
    cluster = ToldPods(describe=describe)
    cluster.plan.notices.add(noticed("a", slip)._replace(owner=None))
    (event,) = cluster.run(1)
    cluster.plan.forget(event)

    assert cluster.run(1) == [event]


REPELLING = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "labelSelector": {"matchLabels": {"noisy": "true"}},
                "topologyKey": "kubernetes.io/hostname",
            }
        ]
    }
}


def test_pods_of_many_labels_are_one_kind_unless_a_running_pod_reads_them(
    describe: Describe,
) -> None:
    objects = [
        make_pod(name=f"p{n}", gpus=1, labels={"index": str(n), "noisy": str(n < 2)})
        for n in range(6)
    ]
    cluster = ToldPods(*objects, describe=describe)
    cluster.run(40)
    alike = len(describe.calls)
    running = make_pod(name="r", node_name="a", spec={"affinity": REPELLING})
    cluster.put(running)
    cluster.build()
    describe.calls.clear()
    cluster.run(10)

    assert alike == 1
    assert len(set(describe.calls)) == 2


def test_the_same_group_of_another_namespace_is_another_kind(
    describe: Describe,
) -> None:
    spec = {"schedulingGroup": {"podGroupName": "team"}}
    objects = [
        make_pod(name="p", namespace=name, gpus=1, spec=spec) for name in ("a", "b")
    ]
    ToldPods(*objects, describe=describe).run(40)

    assert len(describe.calls) == 2


def test_every_owner_is_told_though_each_has_a_kind_of_its_own(
    describe: Describe,
) -> None:
    objects = [
        make_pod(name=f"o{owner}-{i}", gpus=owner + 1, owner_uid=f"job-{owner}")
        for owner in range(10)
        for i in range(30)
    ]
    cluster = ToldPods(*objects, describe=describe)
    told = cluster.run(40)[:20]

    owners = [e.regarding.uid for e in told if e.regarding.kind == "Job"]
    assert sorted(owners) == sorted(f"job-{owner}" for owner in range(10))


def known_node(name: str) -> dict[str, Any]:
    node = make_node(name=name)
    node["metadata"]["uid"] = f"uid-{name}"
    return node


def test_a_failing_node_is_told_once_each_time(describe: Describe) -> None:
    cluster = ToldPods(*map(known_node, "ab"), describe=describe)

    def fail(since: float, *names: str) -> list[Event]:
        failing = {name: FailingNode(since, ("ml/x-1", "ml/y-1")) for name in names}
        cluster.snapshot = replace(cluster.snapshot, failing_nodes=failing)
        return cluster.run(2)

    first, again = fail(100.25, "a", "b"), fail(100.75, "a", "b")
    sound, later = fail(0.0), fail(700.0, "a")

    assert [event.regarding.name for event in first] == ["a", "b"]
    assert [again, sound] == [[], []]
    assert [event.regarding.uid for event in later] == ["uid-a"]
    event = first[0]
    assert event.path == "/apis/events.k8s.io/v1/namespaces/default/events"
    assert (event.reason, event.kind) == ("GPUPodsFailing", "Warning")
    assert "ml/x-1, ml/y-1" in event.note
    assert later[0].name != event.name


def test_a_failing_node_that_was_not_written_is_told_again(describe: Describe) -> None:
    cluster = ToldPods(known_node("a"), describe=describe)
    failing = {"a": FailingNode(1.0, ("ml/x-1",))}
    cluster.snapshot = replace(cluster.snapshot, failing_nodes=failing)
    (event,) = cluster.run(1)
    cluster.plan.forget(event)

    assert cluster.run(1) == [event]
