"""What is kept of all nodes equals what would be computed."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.ledger.changes import (
    Change,
    DeviceClassesListed,
    NodeGone,
    NodeSeen,
    PodGone,
    PodSeen,
)
from extender.verbs.reuse import SharedResults
from scoring.candidates import LabelKeys, PodRequest, take_columns
from scoring.feasibility import judge
from scoring.snapshot import Snapshot
from tests.builders import (
    GPU,
    make_ledger,
    make_node,
    make_node_record,
    make_pod,
    make_pod_record,
    make_snapshot,
)
from tests.fakes.judging import Judging

KEYS = LabelKeys()
ASK = PodRequest("", ((GPU, 2),), GPU, None, "")


def all_columns(snapshot: Snapshot) -> Any:
    return np.arange(len(snapshot.nodes.names), dtype=np.intp)


def judged_anew(snapshot: Snapshot, pod_request: PodRequest) -> list[int]:
    candidates = take_columns(snapshot, all_columns(snapshot), pod_request, KEYS)
    result = judge(candidates, pod_request, is_enforcing=True)
    return [int(verdict) for verdict in result.verdicts]


def test_what_is_kept_is_not_computed_again() -> None:
    judging = Judging()
    shared_results = SharedResults(judging, KEYS)
    snapshot = make_snapshot(nodes=[make_node(name=name, gpus=4) for name in "abc"])

    for columns in ([0, 2], [1], [2, 1, 0]):
        shared_results.take(snapshot, np.array(columns, dtype=np.intp), ASK)

    assert judging.counts == [3]


def test_only_changed_nodes_are_computed() -> None:
    judging = Judging()
    shared_results = SharedResults(judging, KEYS)
    ledger = make_ledger(nodes=[make_node(name=name, gpus=4) for name in "abc"])
    first = ledger.build()
    shared_results.take(first, all_columns(first), ASK)

    ledger.apply(PodSeen(make_pod_record(make_pod(gpus=3, node_name="b"))))
    second = ledger.build()
    verdicts, _ = shared_results.take(second, all_columns(second), ASK)

    assert judging.counts == [3, 1]
    assert verdicts.tolist() == judged_anew(second, ASK)


def test_a_node_that_changed_before_another_layout_is_computed() -> None:
    shared_results = SharedResults(Judging(), KEYS)
    ledger = make_ledger(nodes=[make_node(name=name, gpus=4) for name in "ab"])
    first = ledger.build()
    shared_results.take(first, all_columns(first), ASK)
    ledger.apply(PodSeen(make_pod_record(make_pod(name="p", gpus=4, node_name="a"))))
    ledger.build()
    other = make_pod(name="q", requests={"nvidia.com/mig-1g.10gb": "1"}, node_name="b")
    ledger.apply(PodSeen(make_pod_record(other)))  # a resource nobody had before

    snapshot = ledger.build()
    verdicts, _ = shared_results.take(snapshot, all_columns(snapshot), ASK)

    assert snapshot.nodes is first.nodes
    assert verdicts.tolist() == judged_anew(snapshot, ASK) != [0, 0]


def test_pods_that_ask_alike_share_a_standing() -> None:
    judging = Judging()
    shared_results = SharedResults(judging, KEYS)
    snapshot = make_snapshot(nodes=[make_node(name="a", gpus=4)])

    for uid in ("one", "other"):
        pod_request = PodRequest(uid, ASK.request, GPU, None, "a")
        shared_results.take(snapshot, all_columns(snapshot), pod_request)

    assert judging.counts == [1]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(PodRequest("", ((GPU, 3),), GPU, None, ""), id="another amount"),
        pytest.param(PodRequest("", ((GPU, 2),), GPU, "v100", ""), id="another type"),
    ],
)
def test_pods_that_ask_otherwise_do_not(other: PodRequest) -> None:
    judging = Judging()
    shared_results = SharedResults(judging, KEYS)
    snapshot = make_snapshot(nodes=[make_node(name="a", gpus=4)])

    for pod_request in (ASK, other):
        shared_results.take(snapshot, all_columns(snapshot), pod_request)

    assert judging.counts == [1, 1]


def test_an_older_snapshot_is_answered_from_itself() -> None:
    shared_results = SharedResults(Judging(), KEYS)
    ledger = make_ledger(nodes=[make_node(name="a", gpus=4)])
    older = ledger.build()
    ledger.apply(PodSeen(make_pod_record(make_pod(gpus=3, node_name="a"))))
    newer = ledger.build()

    answers = [
        shared_results.take(snapshot, all_columns(snapshot), ASK)[0].tolist()
        for snapshot in (newer, older, newer)
    ]

    assert answers == [judged_anew(s, ASK) for s in (newer, older, newer)]
    assert answers[0] != answers[1]


def test_an_answer_may_be_written_to() -> None:
    shared_results = SharedResults(Judging(), KEYS)
    snapshot = make_snapshot(nodes=[make_node(name="a", gpus=4)])

    shared_results.take(snapshot, all_columns(snapshot), ASK)[0][:] = 99

    assert shared_results.take(snapshot, all_columns(snapshot), ASK)[0].tolist() == [0]


def test_a_call_on_an_older_snapshot_does_not_undo_what_is_kept() -> None:
    judging = Judging()
    shared_results = SharedResults(judging, KEYS)
    # So many that what is remembered of few (`RowResults`) does not hide the work.
    ledger = make_ledger(nodes=[make_node(name=name) for name in "abcdefghij"])
    older = ledger.build()
    ledger.apply(NodeSeen(make_node_record(make_node(name="b", gpus=4))))
    newer = ledger.build()
    shared_results.take(newer, all_columns(newer), ASK)
    shared_results.take(older, all_columns(older), ASK)
    judged = len(judging.counts)

    shared_results.take(newer, all_columns(newer), ASK)

    assert len(judging.counts) == judged


def test_only_the_newest_standings_are_kept() -> None:
    judging = Judging()
    shared_results = SharedResults(judging, KEYS, max_kept=2)
    names = "abcdefghijkl"  # too many to be remembered by what is known of them
    snapshot = make_snapshot(nodes=[make_node(name=name, gpus=4) for name in names])

    for amount in (1, 2, 3, 1, 3):
        pod_request = PodRequest("", ((GPU, amount),), GPU, None, "")
        shared_results.take(snapshot, all_columns(snapshot), pod_request)

    assert len(judging.counts) == 4  # the first one twice


def changes() -> st.SearchStrategy[Change]:
    names = st.sampled_from("abcd")
    uids = st.sampled_from(["u1", "u2", "u3"])
    return st.one_of(
        st.builds(
            lambda name, gpus: NodeSeen(
                make_node_record(make_node(name=name, gpus=gpus))
            ),
            names,
            st.integers(0, 4),
        ),
        st.builds(NodeGone, names),
        st.builds(
            lambda uid, name, gpus: PodSeen(
                make_pod_record(make_pod(name=uid, uid=uid, gpus=gpus, node_name=name))
            ),
            uids,
            names,
            st.integers(1, 4),
        ),
        st.builds(PodGone, uids),
        st.builds(
            lambda is_there: DeviceClassesListed(frozenset({GPU} if is_there else ())),
            st.booleans(),
        ),
    )


@settings(max_examples=200)
@given(history=st.lists(st.lists(changes(), max_size=3), min_size=1, max_size=8))
def test_any_history_is_answered_as_if_nothing_were_kept(
    history: list[list[Change]],
) -> None:
    shared_results = SharedResults(Judging(), KEYS)
    ledger = make_ledger(nodes=[make_node(name=name, gpus=4) for name in "abcdefghij"])
    for step in history:
        for change in step:
            ledger.apply(change)
        snapshot = ledger.build()
        if snapshot.nodes.names:
            verdicts, _ = shared_results.take(snapshot, all_columns(snapshot), ASK)
            assert verdicts.tolist() == judged_anew(snapshot, ASK)
