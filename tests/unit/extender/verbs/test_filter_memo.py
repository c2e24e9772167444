"""What prioritize takes over from the filter call before it changes no answer."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from cluster.ledger.writer import SnapshotCell
from extender.verbs.call import FilterOutcome, VerbCall
from extender.verbs.lookup import look_up
from extender.verbs.reuse import MAX_CALLS, FilterCall, FilterMemo
from extender.verbs.verbs import filter_nodes, prioritize_nodes
from extender.wire import answers
from extender.wire import filter as wire
from extender.wire.answers import encode_filter
from scoring.snapshot import Snapshot, build_node_index
from service.runtime import build_verb_options
from tests.builders import make_node, make_pod, make_snapshot
from tests.extender_app import make_settings

GPU = "nvidia.com/gpu"
OPTIONS = build_verb_options(make_settings())
SNAPSHOT = make_snapshot(
    nodes=[
        make_node(name="full", resources={GPU: "8"}),
        make_node(name="idle", resources={GPU: "8"}),
        make_node(name="small", resources={GPU: "1"}),
    ],
    pods=[make_pod(name="busy", requests={GPU: "5"}, node_name="full")],
)


def body_of(pod: dict[str, Any], *names: str) -> bytes:
    """Return a call as kube-scheduler writes it."""
    return msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": names})


def filter_call(body: bytes, snapshot: Snapshot = SNAPSHOT) -> FilterOutcome:
    """Return a filter call that was answered."""
    args = wire.decode_args(body)
    verb_call = look_up(args, snapshot, OPTIONS)
    result = filter_nodes(verb_call, OPTIONS)
    answer = encode_filter(body, args, verb_call.names, result.verdicts, None)
    return FilterOutcome(verb_call, OPTIONS, result, answer, 0)


def make_memo(*calls: FilterOutcome, snapshot: Snapshot = SNAPSHOT) -> FilterMemo:
    """Return a memo of `calls`, with `snapshot` as the present one."""
    cell = SnapshotCell()
    cell.publish(snapshot)
    memo = FilterMemo(cell)
    for call in calls:
        memo.filtered(call)
    return memo


def answer_to(verb_call: VerbCall) -> bytes:
    """Return the bytes of a prioritize answer."""
    priorities = prioritize_nodes(verb_call, OPTIONS)
    return answers.encode_priorities(verb_call.literals(), priorities)


def answer_from(call: FilterCall) -> bytes:
    """Return the bytes of a prioritize answer about what passed the filter call."""
    priorities = prioritize_nodes(call.verb_call, OPTIONS, call.indexes)
    literals = call.verb_call.literals(call.indexes)
    return answers.encode_priorities(literals, priorities)


POD = make_pod(name="asking", requests={GPU: "2"})


@pytest.mark.parametrize(
    ("asked", "passed"),
    [
        pytest.param(("full", "idle"), ("full", "idle"), id="all nodes pass"),
        pytest.param(("small", "idle", "full"), ("idle", "full"), id="one is refused"),
        pytest.param(("small",), (), id="none passes"),
        pytest.param(("idle", "idle"), ("idle",), id="a name twice"),
    ],
)
def test_a_recalled_call_has_the_answer_of_a_new_one(
    asked: tuple[str, ...], passed: tuple[str, ...]
) -> None:
    memo = make_memo(filter_call(body_of(POD, *asked)))
    body = body_of(POD, *passed)

    recalled = memo.recall(body, OPTIONS)

    assert recalled is not None
    asked_again = look_up(wire.decode_args(body), SNAPSHOT, OPTIONS)
    assert answer_from(recalled) == answer_to(asked_again)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(body_of(POD, "idle"), id="fewer names than passed"),
        pytest.param(body_of(POD, "idle", "full"), id="another order"),
        pytest.param(body_of(POD, "full", "idle", "small"), id="a refused name"),
        pytest.param(
            body_of(make_pod(name="other", requests={GPU: "2"}), "full", "idle"),
            id="another pod",
        ),
        pytest.param(
            body_of(make_pod(name="asking", requests={GPU: "1"}), "full", "idle"),
            id="the same pod with another request",
        ),
        pytest.param(
            msgspec.json.format(body_of(POD, "full", "idle")), id="other white space"
        ),
        pytest.param(b"{", id="no JSON"),
        pytest.param(b'{"Pod":{},"Nodes":{"items":[]}}', id="the form of objects"),
    ],
)
def test_a_different_call_recalls_nothing(body: bytes) -> None:
    memo = make_memo(filter_call(body_of(POD, "full", "idle", "small")))

    assert memo.recall(body, OPTIONS) is None


def test_a_newer_snapshot_of_the_same_nodes_is_what_is_answered_from() -> None:
    requested = SNAPSHOT.requested.copy()
    row, idle = SNAPSHOT.row_of(GPU), SNAPSHOT.nodes.column_of["idle"]
    requested[row, idle] += 6
    requested.setflags(write=False)
    newer = replace(
        SNAPSHOT,
        generation=SNAPSHOT.generation + 1,
        requested=requested,
        changed_at=None,
    )
    memo = make_memo(filter_call(body_of(POD, "full", "idle")), snapshot=newer)
    body = body_of(POD, "full", "idle")

    recalled = memo.recall(body, OPTIONS)

    assert recalled is not None
    asked_again = look_up(wire.decode_args(body), newer, OPTIONS)
    before = look_up(wire.decode_args(body), SNAPSHOT, OPTIONS)
    assert answer_from(recalled) == answer_to(asked_again) != answer_to(before)


def test_other_nodes_are_asked_anew() -> None:
    other = replace(SNAPSHOT, nodes=build_node_index(SNAPSHOT.nodes.names))
    memo = make_memo(filter_call(body_of(POD, "full", "idle")), snapshot=other)

    assert memo.recall(body_of(POD, "full", "idle"), OPTIONS) is None


def test_reloaded_options_are_asked_anew() -> None:
    memo = make_memo(filter_call(body_of(POD, "full", "idle")))

    assert memo.recall(body_of(POD, "full", "idle"), replace(OPTIONS)) is None


def test_the_newest_call_of_a_pod_counts() -> None:
    memo = make_memo(
        filter_call(body_of(POD, "idle")), filter_call(body_of(POD, "full", "idle"))
    )

    recalled = memo.recall(body_of(POD, "full", "idle"), OPTIONS)

    assert recalled is not None
    assert recalled.verb_call.literals() == ["full", "idle"]


def test_only_the_last_calls_are_kept() -> None:
    others = [
        filter_call(body_of(make_pod(name=f"p{i}", requests={GPU: "2"}), "idle"))
        for i in range(MAX_CALLS)
    ]
    memo = make_memo(filter_call(body_of(POD, "idle")), *others)

    assert memo.recall(body_of(POD, "idle"), OPTIONS) is None
