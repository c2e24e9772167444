import msgspec
import numpy as np
import pytest

from extender.tracking.last_answers import MAX_BEST, MAX_PODS, LastAnswers
from scoring.feasibility import Verdict
from scoring.snapshot import Int64Array
from tests.fakes.outcomes import (
    make_filter_outcome,
    make_prioritize_outcome,
    make_request,
)


def literals(*names: str) -> list[str]:
    return [msgspec.json.encode(name)[1:-1].decode() for name in names]


def note_filter(
    calls: LastAnswers,
    uid: str,
    generation: int,
    verdicts: Int64Array,
    passed: int | None = None,
) -> None:
    calls.filtered(
        make_filter_outcome(
            verdicts.tolist(),
            pod_request=make_request(uid),
            generation=generation,
            passed=passed,
        )
    )


def note_prioritize(
    calls: LastAnswers, uid: str, generation: int, names: list[str], scores: Int64Array
) -> None:
    calls.prioritized(
        make_prioritize_outcome(names, scores, uid=uid, generation=generation)
    )


@pytest.fixture
def calls() -> LastAnswers:
    return LastAnswers(clock=lambda: 1000.0)


def test_a_filter_call_is_remembered_with_what_passed(calls: LastAnswers) -> None:
    note_filter(calls, "u", 7, np.array([0, int(Verdict.TOO_FEW), 0]))

    assert msgspec.to_builtins(calls.of("u")) == {
        "filter": {
            "at": 1000.0, "generation": 7, "offered": 3, "passed": 2, "shown": "",
        }
    }  # fmt: skip


def test_the_one_text_of_an_empty_answer_is_remembered(calls: LastAnswers) -> None:
    note_filter(calls, "u", 7, np.array([int(Verdict.NO_GPU), int(Verdict.TOO_FEW)]))

    assert calls.of("u")["filter"].shown == "Too few GPUs on the node"


def test_a_shortlist_passes_fewer_than_are_feasible(calls: LastAnswers) -> None:
    note_filter(calls, "u", 7, np.zeros(40, dtype=np.int64), passed=32)

    assert calls.of("u")["filter"].passed == 32


def test_a_prioritize_call_is_remembered_with_the_best_nodes(
    calls: LastAnswers,
) -> None:
    note_prioritize(calls, "u", 8, literals("a", "b", "c"), np.array([10, 3, 10]))

    assert msgspec.json.decode(msgspec.json.encode(calls.of("u"))) == {
        "prioritize": {
            "at": 1000.0, "generation": 8, "offered": 3, "best": ["a", "c"],
            "bestScore": 10,
        }
    }  # fmt: skip


def test_of_many_best_nodes_some_are_remembered(calls: LastAnswers) -> None:
    names = [f"node-{number}" for number in range(40)]

    note_prioritize(calls, "u", 8, literals(*names), np.full(40, 10))

    best = calls.of("u")["prioritize"].best
    assert isinstance(best, tuple)
    assert len(best) == MAX_BEST


def test_a_prioritize_call_without_nodes_is_remembered(calls: LastAnswers) -> None:
    note_prioritize(calls, "u", 8, literals(), np.array([], dtype=np.int64))

    assert calls.of("u")["prioritize"].best == ()


def test_both_verbs_are_kept_and_the_newest_answer_of_each(
    calls: LastAnswers,
) -> None:
    note_filter(calls, "u", 1, np.array([0]))
    note_prioritize(calls, "u", 1, literals("a"), np.array([10]))
    note_filter(calls, "u", 2, np.array([0]))

    kept = calls.of("u")
    assert {verb: call.generation for verb, call in kept.items()} == {
        "filter": 2,
        "prioritize": 1,
    }


def test_the_pod_asked_about_longest_ago_is_forgotten(calls: LastAnswers) -> None:
    for number in range(MAX_PODS):
        note_filter(calls, f"u{number}", 1, np.array([0]))
    note_filter(calls, "u0", 2, np.array([0]))
    note_filter(calls, "new", 2, np.array([0]))

    assert calls.of("u1") == {}
    assert calls.of("u0") != {}
    assert calls.of("new") != {}


def test_a_pod_without_uid_is_not_remembered(calls: LastAnswers) -> None:
    note_filter(calls, "", 1, np.array([0]))

    assert calls.of("") == {}
