"""How many pods wait in which class, and how much of the processor that takes."""

import logging
from collections.abc import Iterable
from typing import Any, Final

import pytest

from cluster.decode.objects import PodRecord
from cluster.ledger.changes import NodeSeen, PodGone, PodSeen
from cluster.ledger.ledger import Ledger
from extender.explain import failed_checks, pending
from extender.explain.pending import (
    FAULT_SECONDS,
    KIND_SECONDS,
    REST_FACTOR,
    ROUND_SECONDS,
    PendingClass,
    PendingClasses,
    classify,
)
from extender.verbs.fresh_snapshot import Deadline, DeadlineError, GivingWay
from scoring.snapshot import Snapshot
from service.runtime import build_verb_options
from tests.builders import (
    GPU,
    Tree,
    make_ledger,
    make_node,
    make_node_record,
    make_pod,
    make_pod_record,
    make_snapshot,
)
from tests.extender_app import make_settings
from tests.pending_pods import (
    KEPT,
    PENDING,
    TYPE,
    make_bound_pods,
    make_neighbours,
    make_nodes,
)

OPTIONS: Final = build_verb_options(make_settings())

# why it is pending -> its class
CLASSES: Final = {
    "gates": PendingClass.GATED,
    "accelerator selector": PendingClass.NODE_RULES,
    "full type": PendingClass.FULL,
    "unreadable annotation": PendingClass.UNREADABLE,
    "exclusive": PendingClass.FULL,
    "failing node": PendingClass.FITS,
    "wrong type": PendingClass.OTHER_GPUS,
    "too many GPUs": PendingClass.NOT_OFFERED,
    "MIG absent": PendingClass.NOT_OFFERED,
    "taint": PendingClass.NODE_RULES,
    "cordon": PendingClass.NODE_RULES,
    "memory": PendingClass.OTHER_GPUS,
    "shares": PendingClass.OTHER_GPUS,
    "CPU": PendingClass.RESOURCES,
    "quota": PendingClass.FITS,
    "other scheduler": PendingClass.HELD,
    "misspelt type": PendingClass.OTHER_GPUS,
    "PVC": PendingClass.FITS,
    "spread": PendingClass.FITS,
    "host port": PendingClass.NODE_RULES,
    "kept away": PendingClass.NODE_RULES,
    "preemption": PendingClass.FULL,
    "no preemption": PendingClass.FULL,
    "group": PendingClass.HELD,
}


def stored(pod: Tree, name: str = "job") -> Tree:
    """Return a pod as the API server has it that was to be created."""
    metadata = {"uid": f"uid-of-{name}", **pod["metadata"], "name": name}
    return {**pod, "metadata": metadata, "status": {"phase": "Pending"}}


@pytest.mark.parametrize("why", CLASSES)
def test_the_class_of_a_pod_is_what_keeps_it_from_a_node(why: str) -> None:
    bound = make_bound_pods() + (make_neighbours() if why in KEPT else [])
    snapshot = make_snapshot(nodes=make_nodes(), pods=bound)
    record = make_pod_record(stored({**PENDING, **KEPT}[why]))

    assert classify(record, snapshot, OPTIONS) is CLASSES[why]


UNREADY: Final = {
    "a node that is not ready": make_node(gpus=4, is_ready=False),
    "GPUs that are not ready": make_node(
        gpus=4, labels={"nvidia.com/gpu-driver-upgrade-state": "upgrade-failed"}
    ),
}


@pytest.mark.parametrize("node", UNREADY.values(), ids=list(UNREADY))
def test_a_pod_may_wait_for_what_is_not_ready(node: Tree) -> None:
    record = make_pod_record(make_pod(gpus=1))

    found = classify(record, make_snapshot(nodes=[node]), OPTIONS)

    assert found is PendingClass.NOT_READY


def test_a_pod_that_cannot_be_judged_is_unreadable() -> None:
    requests = {GPU: 1, **{f"example.com/r{i}": 1 for i in range(300)}}
    record = make_pod_record(make_pod(requests=requests))

    assert classify(record, make_snapshot(), OPTIONS) is PendingClass.UNREADABLE


def test_without_nodes_nothing_is_offered() -> None:
    record = make_pod_record(make_pod(gpus=1))

    assert classify(record, make_snapshot(), OPTIONS) is PendingClass.NOT_OFFERED


def test_the_nodes_that_come_nearest_decide() -> None:
    nodes = [make_node(name=f"other-{i}", gpus=4) for i in range(5)]
    wanted = {"pool": "a"}
    nodes += [make_node(name="full", gpus=2, cpu="8", labels=wanted)]
    nodes += [
        make_node(name=f"busy-{i}", gpus=2, cpu="2", labels=wanted) for i in range(2)
    ]
    pods = [
        make_pod(name="a", gpus=1, node_name="full"),
        *(make_pod(name=f"b{i}", cpu="1", node_name=f"busy-{i}") for i in range(2)),
    ]
    pod = make_pod(gpus=2, cpu="2", spec={"nodeSelector": wanted})

    found = [
        classify(
            make_pod_record(pod), make_snapshot(nodes=nodes[:n], pods=pods), OPTIONS
        )
        for n in (5, 6, 8)
    ]

    assert found == [
        PendingClass.NODE_RULES,
        PendingClass.FULL,
        PendingClass.RESOURCES,
    ]


def test_each_kind_of_check_has_a_class() -> None:
    amounts = {failed_checks.TOO_SMALL, failed_checks.TOO_FULL}

    assert set(failed_checks.ORDER) - amounts == set(pending.OF_CHECK)


class Waiting:
    """Pods that wait, and what it takes to judge them, on turned clocks.

    Attributes
    ----------
    now, busy : float
        Seconds of the clock, and of the processor.
    judged : list of str
        Names of the pods that were judged for all of their kind.
    cost : float
        Seconds of the processor that one takes.
    fault : Exception or None
        What judging ends in.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pods: Iterable[Tree]) -> None:
        self.now = self.busy = 0.0
        self.judged: list[str] = []
        self.cost = 0.0
        self.fault: Exception | None = None
        self.options = OPTIONS
        self.ledger: Ledger = make_ledger(nodes=[make_node(gpus=2)], pods=pods)
        self.snapshot: Snapshot = self.ledger.build()
        self.classes = PendingClasses(
            lambda: self.options,
            GivingWay(busy=lambda: self.busy),
            lambda: self.now,
            lambda: self.busy,
        )
        monkeypatch.setattr(pending, "classify", self._classify)

    def _classify(self, record: PodRecord, *more: Any) -> PendingClass:
        self.judged.append(record.name)
        self.busy += self.cost
        if self.fault is not None:
            raise self.fault
        return classify(record, *more)

    def put(self, *objects: Tree) -> None:
        """Create or change nodes and pods."""
        for tree in objects:
            if tree["kind"] == "Node":
                self.ledger.apply(NodeSeen(make_node_record(tree)))
            else:
                self.ledger.apply(PodSeen(make_pod_record(tree)))
        self.snapshot = self.ledger.build()

    def count(self, after_seconds: float = 0.0) -> dict[str, int]:
        """Return the classes that have pods, a while later."""
        self.now += after_seconds
        counts = self.classes.count(self.snapshot)
        assert list(counts) == list(PendingClass)
        assert sum(counts.values()) == len(self.snapshot.pending)
        return {str(name): count for name, count in counts.items() if count}


def pods_of(count: int, **more: Any) -> list[Tree]:
    """Return pods that ask alike."""
    return [make_pod(name=f"pod-{i}", **more) for i in range(count)]


def test_pods_that_ask_alike_are_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [
        make_pod(name=f"pod-{i}", namespace=f"team-{i}", gpus=4, owner_uid=f"job-{i}")
        for i in range(300)
    ]
    waiting = Waiting(monkeypatch, [*many, make_pod(name="small", gpus=1)])

    assert waiting.count() == {"fits": 1, "not_offered": 300}
    assert len(waiting.judged) == 2


def test_a_kind_is_judged_again_once_the_cluster_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting = Waiting(monkeypatch, pods_of(3, gpus=4))
    assert waiting.count() == {"not_offered": 3}
    waiting.count(after_seconds=KIND_SECONDS)
    assert len(waiting.judged) == 1  # nothing has changed

    waiting.put(make_node(name="large", gpus=8))
    waiting.count()
    assert len(waiting.judged) == 2
    waiting.put(make_node(name="large", gpus=1))

    assert waiting.count(KIND_SECONDS / 2) == {"fits": 3}
    assert waiting.count(KIND_SECONDS / 2) == {"not_offered": 3}


def test_other_settings_have_all_judged_again(monkeypatch: pytest.MonkeyPatch) -> None:
    other = {"injection": {"schedulerName": "gpu-scheduler"}}
    waiting = Waiting(monkeypatch, pods_of(2, gpus=1))
    assert waiting.count() == {"fits": 2}

    waiting.options = build_verb_options(make_settings(other))

    assert waiting.count(KIND_SECONDS) == {"held": 2}


def test_pods_come_change_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = Waiting(monkeypatch, pods_of(3, gpus=4))
    waiting.count()

    waiting.put(make_pod(name="pod-0", gpus=4, annotations={TYPE: "H100"}))
    waiting.put(make_pod(name="pod-1", gpus=4, node_name="node-1"))
    waiting.put(
        make_pod(name="pod-3", gpus=4, spec={"schedulingGates": [{"name": "g"}]})
    )

    assert waiting.count() == {"not_offered": 1, "other_gpus": 1, "gated": 1}
    for name in ("pod-0", "pod-2", "pod-3"):
        waiting.ledger.apply(PodGone(f"uid-of-default-{name}"))
    waiting.put()
    assert waiting.count() == {}


def test_labels_count_as_soon_as_a_running_pod_repels_by_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pods = [
        make_pod(name=name, gpus=1, labels={"noisy": name}) for name in ("true", "no")
    ]
    waiting = Waiting(monkeypatch, pods)
    assert waiting.count() == {"fits": 2}

    quiet = {
        "labelSelector": {"matchLabels": {"noisy": "true"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = {"podAntiAffinity": {required: [quiet]}}
    runs = make_pod(name="quiet", node_name="node-1", spec={"affinity": affinity})
    waiting.put(runs)

    assert waiting.count(KIND_SECONDS) == {"fits": 1, "node_rules": 1}


def test_a_round_ends_after_a_while_and_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    pods = [make_pod(name=f"pod-{i}", gpus=1, cpu=str(i + 1)) for i in range(8)]
    waiting = Waiting(monkeypatch, pods)
    waiting.cost = 0.4 * ROUND_SECONDS

    assert waiting.count() == {"fits": 3, "unjudged": 5}
    rest = REST_FACTOR * 3 * waiting.cost
    assert waiting.count(0.9 * rest) == {"fits": 3, "unjudged": 5}
    assert waiting.count(0.2 * rest) == {"fits": 6, "unjudged": 2}
    waiting.put(make_node(name="another", gpus=1))
    assert waiting.count(KIND_SECONDS) == {"fits": 8}

    # Those that were never judged came first, then the oldest.
    assert len(waiting.judged) == 9
    assert waiting.judged[8] == waiting.judged[0]


@pytest.mark.parametrize(
    "fault", [DeadlineError("deadline: passed"), ValueError("a fault of our own")]
)
def test_what_cannot_be_judged_stays_as_it_was_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fault: Exception,
) -> None:
    caplog.set_level(logging.INFO)
    waiting = Waiting(monkeypatch, pods_of(2, gpus=1))
    waiting.fault = fault

    assert waiting.count() == {"unjudged": 2}
    assert "pending pods not judged" in caplog.text
    waiting.fault = None
    waiting.put(make_node(name="another", gpus=1))
    assert waiting.count(FAULT_SECONDS / 2) == {"unjudged": 2}
    assert waiting.count(FAULT_SECONDS / 2) == {"fits": 2}
    waiting.fault = fault
    waiting.put(make_node(name="another", gpus=2))
    assert waiting.count(KIND_SECONDS) == {"fits": 2}


def test_a_kind_that_takes_long_is_given_up() -> None:
    snapshot = make_snapshot(nodes=[make_node(gpus=1)])
    record = make_pod_record(make_pod(gpus=1))

    with pytest.raises(DeadlineError):
        classify(record, snapshot, OPTIONS, Deadline(1.0, lambda: 2.0))


def test_verbs_go_first_and_what_takes_too_long_is_left_for_later() -> None:
    pods = [make_pod(name=f"pod-{i}", gpus=i + 1) for i in range(4)]
    snapshot = make_snapshot(nodes=[make_node(gpus=2)], pods=pods)
    seconds, calls, rests = iter(range(10**6)), iter(range(10**6)), list[float]()
    giving_way = GivingWay(lambda: next(calls), rests.append, lambda: next(seconds))

    classes = PendingClasses(
        lambda: OPTIONS, giving_way, busy=lambda: float(next(seconds))
    )
    counts = classes.count(snapshot)

    assert rests
    assert counts["unjudged"] == len(pods)
