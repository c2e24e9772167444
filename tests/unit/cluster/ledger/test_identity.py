"""A name is that of one pod or node at a time, whatever of its end was seen."""

from typing import Any

import pytest

from cluster.ledger.changes import NodeSeen, PodGone, PodSeen
from cluster.ledger.failures import FailureLimits, Failures
from cluster.ledger.ledger import Ledger
from tests.builders import (
    GPU,
    Tree,
    make_ledger,
    make_node,
    make_node_record,
    make_pod,
    make_pod_record,
)

FIRST = make_pod(name="trn-0", uid="u1", gpus=2, node_name="a")


def seen(*, is_partial: bool = False, **pod: Any) -> PodSeen:
    tree = make_pod(**{"name": "trn-0", "uid": "u2", "gpus": 1, **pod})
    return PodSeen(make_pod_record(tree), is_partial)


def ledger_with(*pods: Tree) -> Ledger:
    nodes = [make_node(name=name, gpus=8) for name in ("a", "b")]
    return make_ledger(nodes=nodes, pods=pods)


@pytest.mark.parametrize(
    ("known", "change", "held", "pending"),
    [
        pytest.param(FIRST, seen(), [0, 0], ["u2"], id="without a node"),
        pytest.param(FIRST, seen(node_name="a"), [1, 0], [], id="on its node"),
        pytest.param(FIRST, seen(node_name="b"), [0, 1], [], id="on another node"),
        pytest.param(FIRST, seen(gpus=None), [0, 0], [], id="without a GPU"),
        pytest.param(FIRST, seen(phase="Failed"), [0, 0], [], id="terminal"),
        pytest.param(FIRST, seen(is_partial=True), [0, 0], ["u2"], id="in part"),
        pytest.param(
            FIRST, seen(namespace="ml"), [2, 0], ["u2"], id="in another namespace"
        ),
        pytest.param(FIRST, seen(name="trn-1"), [2, 0], ["u2"], id="another name"),
        pytest.param(FIRST, seen(name=""), [2, 0], ["u2"], id="without a name"),
        pytest.param(
            make_pod(name="trn-0", uid="u1", gpus=2),
            seen(),
            [0, 0],
            ["u2"],
            id="both pending",
        ),
    ],
)
def test_a_name_that_comes_back_is_of_the_new_pod_alone(
    known: Tree, change: PodSeen, held: list[int], pending: list[str]
) -> None:
    ledger = ledger_with(known)

    ledger.apply(change)
    snapshot = ledger.build()

    row = snapshot.row_of(GPU)
    assert row is not None
    assert snapshot.requested[row].tolist() == held
    assert [pod.uid for pod in snapshot.pending] == pending
    names = {
        (pod.namespace, pod.name) for pod in (make_pod_record(known), change.record)
    }
    assert ledger.counts()["pods"] == len(names)


def test_the_end_of_the_old_pod_takes_nothing_from_the_new_one() -> None:
    ledger = ledger_with(FIRST)

    ledger.apply(seen(node_name="a"))
    ledger.apply(PodGone("u1"))
    ledger.apply(seen(uid="u3", node_name="b"))

    snapshot = ledger.build()
    assert {uid: pod.node_name for uid, pod in snapshot.bound_pods.items()} == {
        "u3": "b"
    }
    assert snapshot.departed >= {"u1", "u2"}


def test_a_name_is_free_again_once_its_pod_is_gone() -> None:
    ledger = ledger_with(FIRST)

    ledger.apply(PodGone("u1"))
    ledger.apply(seen(node_name="a"))

    assert set(ledger.build().bound_pods) == {"u2"}
    assert ledger.counts()["pods"] == 1


def test_an_exclusive_pod_whose_name_comes_back_no_longer_stands_alone() -> None:
    alone = {"gpu-extender.io/exclusive": "true"}
    ledger = ledger_with(
        {**FIRST, "metadata": FIRST["metadata"] | {"annotations": alone}}
    )

    ledger.apply(seen())

    gpus = ledger.build().gpus
    assert (gpus.gpu_pods.tolist(), gpus.exclusive_gpu_pods.tolist()) == (
        [0, 0],
        [0, 0],
    )


def other_node(**node: Any) -> NodeSeen:
    tree = make_node(name="a", gpus=4, **node)
    tree["metadata"]["uid"] = "another"
    return NodeSeen(make_node_record(tree), is_partial=True)


def test_a_node_that_comes_back_with_another_uid_is_another_node() -> None:
    failures = Failures(FailureLimits(1, 600.0), lambda: 0.0)
    ledger = Ledger((), failures)
    ledger.apply(NodeSeen(make_node_record(make_node(name="a", gpus=8))))
    failures.note("a", "owner", 0.0)

    ledger.apply(other_node())

    snapshot = ledger.build()
    row = snapshot.row_of(GPU)
    assert row is not None
    assert snapshot.allocatable[row].tolist() == [4]
    assert not failures.nodes
