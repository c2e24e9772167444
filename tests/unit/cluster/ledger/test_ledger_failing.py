"""Failing nodes and departed pods, from changes to snapshots."""

from typing import Any

import pytest

import cluster.ledger.pods
from cluster.ledger.changes import (
    Change,
    NodeGone,
    NodeSeen,
    NodesListed,
    PodGone,
    PodSeen,
    PodsListed,
)
from cluster.ledger.failures import Failures
from cluster.ledger.ledger import Ledger
from scoring.snapshot import Snapshot
from tests.builders import (
    Tree,
    make_ledger,
    make_node,
    make_node_record,
    make_pod,
    make_pod_record,
)
from tests.defaults import FAILURE_LIMITS

NOON = 1795780800.0
MINUTE = 60.0
A, B = (make_node_record(make_node(name=name, gpus=8)) for name in "ab")


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


def refused_pod(uid: str, *, at: str | None, node_name: str = "a", **more: Any) -> Tree:
    """Return a pod that kubelet refused at some time of that hour."""
    start = None if at is None else f"2026-11-27T{at}:00Z"
    return make_pod(
        name=f"pod-{uid}",
        uid=uid,
        gpus=1,
        node_name=node_name,
        phase="Failed",
        status={"reason": "UnexpectedAdmissionError", "startTime": start},
        **more,
    )


def seen(uid: str, *, at: str | None, **more: Any) -> PodSeen:
    return PodSeen(make_pod_record(refused_pod(uid, at=at, **more)))


def listed(*pods: Tree) -> PodsListed:
    return PodsListed(tuple(make_pod_record(pod) for pod in pods))


def ledger_after(clock: Clock, *changes: Change) -> Ledger:
    """Return a synced ledger with two nodes that was told these changes."""
    ledger = Ledger((), Failures(FAILURE_LIMITS, clock))
    for change in (NodesListed((A, B)), PodsListed(()), *changes):
        ledger.apply(change)
    return ledger


def failing(snapshot: Snapshot) -> list[str]:
    return [
        name
        for name, is_failing in zip(
            snapshot.nodes.names, snapshot.failing.tolist(), strict=True
        )
        if is_failing
    ]


def test_pods_of_two_owners_make_a_node_failing() -> None:
    ledger = ledger_after(
        Clock(), seen("u1", at="11:58", owner_uid="x"), seen("u2", at="11:59")
    )

    assert failing(ledger.build()) == ["a"]


def test_a_failing_node_has_its_pods_and_since_when_it_is_one() -> None:
    changes = [
        seen("u1", at="11:57", owner_uid="x"),
        seen("u2", at="11:58", owner_uid="x"),
        seen("u3", at="11:59", owner_uid="y"),
        seen("u4", at="12:00", owner_uid="z"),
    ]
    (name, node), *others = (
        ledger_after(Clock(), *changes).build().failing_nodes.items()
    )

    assert (name, others) == ("a", [])
    assert node.since == NOON - MINUTE  # that of the second owner
    assert node.pods == ("default/pod-u2", "default/pod-u3", "default/pod-u4")


def test_a_node_that_is_sound_again_or_gone_is_not_told_of() -> None:
    clock = Clock()
    ledger = ledger_after(
        clock,
        *(seen(f"a{i}", at="11:58") for i in range(2)),
        *(seen(f"b{i}", at="11:59", node_name="b") for i in range(2)),
    )
    both = set(ledger.build().failing_nodes)
    ledger.apply(NodeGone("b"))
    one = set(ledger.build().failing_nodes)
    clock.now += 10 * MINUTE
    ledger.expire()

    assert (both, one) == ({"a", "b"}, {"a"})
    assert ledger.build().failing_nodes == {}


def test_pods_of_one_job_are_one_owner() -> None:
    ledger = ledger_after(
        Clock(),
        *(seen(uid, at="11:58", owner_uid="job") for uid in ("u1", "u2", "u3")),
    )

    assert failing(ledger.build()) == []


def test_failures_on_two_nodes_do_not_add_up() -> None:
    ledger = ledger_after(
        Clock(), seen("u1", at="11:58"), seen("u2", at="11:58", node_name="b")
    )

    assert failing(ledger.build()) == []


def test_a_failing_node_is_a_change_of_that_node_alone() -> None:
    clock = Clock()
    ledger = ledger_after(clock, seen("u1", at="11:58"))
    first = ledger.build()

    ledger.apply(seen("u2", at="11:59"))
    second = ledger.build()
    clock.now += 9 * MINUTE
    ledger.expire()
    third = ledger.build()

    assert second.changed_since(first.generation).tolist() == [0]
    assert third.changed_since(second.generation).tolist() == [0]
    assert failing(third) == []


def test_there_is_nothing_to_publish_before_a_node_expires() -> None:
    clock = Clock()
    ledger = ledger_after(clock, seen("u1", at="11:58"), seen("u2", at="11:59"))
    ledger.build()

    left = ledger.seconds_to_expiry()
    ledger.expire()
    before = ledger.has_changes
    clock.now += 9 * MINUTE
    ledger.expire()

    assert left == 9 * MINUTE
    assert (before, ledger.has_changes) == (False, True)
    assert ledger.seconds_to_expiry() is None


def test_the_pods_may_be_deleted_meanwhile() -> None:
    ledger = ledger_after(
        Clock(),
        seen("u1", at="11:58"),
        PodGone("u1"),
        seen("u2", at="11:59"),
        PodGone("u2"),
    )

    assert failing(ledger.build()) == ["a"]


def test_a_pod_that_is_listed_again_does_not_fail_again() -> None:
    clock = Clock()
    pods = [refused_pod("u1", at=None), refused_pod("u2", at=None)]
    ledger = ledger_after(clock, listed(*pods))

    clock.now += 5 * MINUTE
    ledger.apply(listed(*pods))

    assert ledger.seconds_to_expiry() == 5 * MINUTE


@pytest.mark.parametrize(
    ("minutes", "is_failing"),
    [
        pytest.param(8, True, id="lately"),
        pytest.param(10, False, id="long ago"),
    ],
)
def test_a_restart_neither_loses_nor_renews_failures(
    minutes: int, is_failing: bool
) -> None:
    clock = Clock()
    clock.now += minutes * MINUTE
    ledger = ledger_after(
        clock, listed(refused_pod("u2", at="12:00"), refused_pod("u1", at="11:55"))
    )

    assert failing(ledger.build()) == (["a"] if is_failing else [])


def test_a_list_in_any_order_is_counted_in_the_order_of_time() -> None:
    """The pair of 12:00 and 12:05 counts, although x failed at 12:12 again."""
    clock = Clock()
    clock.now += 14 * MINUTE
    ledger = ledger_after(
        clock,
        listed(
            refused_pod("u3", at="12:12", owner_uid="x"),
            refused_pod("u2", at="12:05", owner_uid="x"),
            refused_pod("u1", at="12:00"),
        ),
    )

    assert ledger.seconds_to_expiry() == 1 * MINUTE


@pytest.mark.parametrize(
    "gone",
    [
        pytest.param(NodeGone("a"), id="deleted"),
        pytest.param(NodesListed((B,)), id="not listed"),
    ],
)
def test_a_node_that_is_replaced_starts_anew(gone: Change) -> None:
    ledger = ledger_after(
        Clock(), seen("u1", at="11:58"), seen("u2", at="11:59"), gone, NodeSeen(A)
    )

    assert failing(ledger.build()) == []
    assert ledger.seconds_to_expiry() is None


def test_a_node_that_comes_late_is_failing_from_the_start() -> None:
    ledger = ledger_after(
        Clock(),
        seen("u1", at="11:58", node_name="c"),
        seen("u2", at="11:59", node_name="c"),
        NodeSeen(make_node_record(make_node(name="c", gpus=8))),
    )

    assert failing(ledger.build()) == ["c"]


def test_a_failing_node_stays_failing_when_others_come() -> None:
    ledger = ledger_after(Clock(), seen("u1", at="11:58"), seen("u2", at="11:59"))
    ledger.build()
    ledger.apply(NodeSeen(make_node_record(make_node(name="c", gpus=8))))

    assert failing(ledger.build()) == ["a"]


def test_a_failing_node_stays_failing_when_another_node_changes() -> None:
    ledger = ledger_after(Clock(), seen("u1", at="11:58"), seen("u2", at="11:59"))
    ledger.build()
    ledger.apply(PodSeen(make_pod_record(make_pod(gpus=1, node_name="b"))))

    assert failing(ledger.build()) == ["a"]


def test_pods_that_end_or_go_have_departed() -> None:
    ledger = make_ledger(
        nodes=[make_node(name="a", gpus=8)],
        pods=[
            make_pod(name=name, uid=name, gpus=1, node_name=node_name)
            for name, node_name in (
                ("ends", "a"),
                ("goes", "a"),
                ("waits and goes", ""),
                ("stays", "a"),
                ("waits", ""),
            )
        ],
    )
    before = ledger.build().departed
    ended = make_pod(name="ends", uid="ends", gpus=1, node_name="a", phase="Succeeded")

    ledger.apply(PodSeen(make_pod_record(ended)))
    ledger.apply(PodGone("ends"))
    ledger.apply(PodGone("goes"))
    ledger.apply(PodGone("waits and goes"))

    assert before == frozenset()
    assert ledger.build().departed == {"ends", "goes", "waits and goes"}


def test_pods_that_ask_for_nothing_managed_do_not_depart() -> None:
    ledger = make_ledger(pods=[make_pod(uid="u", cpu="1", node_name="a")])

    ledger.apply(PodGone("u"))

    assert ledger.build().departed == frozenset()


def test_only_the_latest_departures_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster.ledger.pods, "MAX_DEPARTED", 2)
    ledger = make_ledger(pods=[make_pod(uid=uid, gpus=1) for uid in ("u1", "u2", "u3")])

    for uid in ("u1", "u2", "u3"):
        ledger.apply(PodGone(uid))

    assert ledger.build().departed == {"u2", "u3"}


def test_an_object_of_which_nothing_decoded_stays_as_it_was_in_a_list() -> None:
    pod = make_pod(uid="u", gpus=3, node_name="a")
    ledger = make_ledger(nodes=[make_node(name="a", gpus=8)], pods=[pod])

    ledger.apply(NodesListed((), frozenset({"a"})))
    ledger.apply(PodsListed((), frozenset({"u"})))

    assert ledger.build().free("nvidia.com/gpu").tolist() == [5]
