"""What is known of pods that our answers have just placed."""

import pytest

import extender.tracking.assumed_pods
from cluster.ledger.changes import PodGone, PodSeen
from extender.tracking.assumed_pods import Placements
from scoring.resources import Request
from tests.builders import GPU, make_ledger, make_node, make_pod, make_pod_record

ONE: Request = ((GPU, 1),)
TWO: Request = ((GPU, 2),)
EMPTY = make_ledger(nodes=[make_node(name="a", gpus=8)]).build()


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 5.0

    def __call__(self) -> float:
        return self.now


def test_without_placements_nothing_is_under_way() -> None:
    assert not Placements().under_way(EMPTY)


def test_pods_just_placed_are_under_way_to_their_nodes() -> None:
    placements = Placements()

    placements.note("u1", "a", ONE)
    placements.note("u2", "b", ONE)
    placements.note("u3", "a", TWO)

    assert placements.under_way(EMPTY) == {"a": (ONE, TWO), "b": (ONE,)}


def test_a_pod_that_is_asked_about_again_is_not_under_way() -> None:
    placements = Placements()
    placements.note("u1", "a", ONE)

    placements.forget("u1")
    placements.forget("never noted")

    assert placements.under_way(EMPTY) == {}


def test_a_pod_placed_again_is_under_way_to_its_new_node_alone() -> None:
    placements = Placements()

    placements.note("u1", "a", ONE)
    placements.note("u1", "b", TWO)

    assert placements.under_way(EMPTY) == {"b": (TWO,)}


def test_after_two_seconds_a_placement_is_over() -> None:
    clock = Clock()
    placements = Placements(clock=clock)
    placements.note("u1", "a", ONE)
    clock.now += 1.0
    placements.note("u2", "a", TWO)

    clock.now += 1.0
    at_two_seconds = placements.under_way(EMPTY)
    clock.now += 0.1
    later = placements.under_way(EMPTY)
    clock.now += 1.0
    much_later = placements.under_way(EMPTY)

    assert at_two_seconds == {"a": (ONE, TWO)}
    assert later == {"a": (TWO,)}
    assert much_later == {}


def test_a_pod_that_is_asked_about_late_counts_from_then() -> None:
    clock = Clock()
    placements = Placements(clock=clock)
    placements.note("u1", "a", ONE)
    clock.now += 1.5
    placements.note("u1", "a", ONE)

    clock.now += 1.5

    assert placements.under_way(EMPTY) == {"a": (ONE,)}


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(
            PodSeen(make_pod_record(make_pod(uid="u1", gpus=1, node_name="a"))),
            id="bound",
        ),
        pytest.param(
            PodSeen(make_pod_record(make_pod(uid="u1", gpus=1, node_name="b"))),
            id="bound to another node",
        ),
        pytest.param(
            PodSeen(
                make_pod_record(
                    make_pod(uid="u1", gpus=1, node_name="a", phase="Failed")
                )
            ),
            id="bound and ended since",
        ),
        pytest.param(PodGone("u1"), id="deleted"),
    ],
)
def test_a_pod_that_is_seen_to_be_placed_or_gone_is_no_longer_under_way(
    end: PodSeen | PodGone,
) -> None:
    placements = Placements()
    ledger = make_ledger(
        nodes=[make_node(name="a", gpus=8)], pods=[make_pod(uid="u1", gpus=1)]
    )
    placements.note("u1", "a", ONE)
    placements.note("not seen yet", "a", TWO)

    pending = dict(placements.under_way(ledger.build()))
    ledger.apply(end)
    after = placements.under_way(ledger.build())

    assert pending == {"a": (ONE, TWO)}
    assert after == {"a": (TWO,)}
    assert placements.under_way(EMPTY) == {"a": (TWO,)}  # it is forgotten


@pytest.mark.parametrize(
    ("uid", "request_"),
    [
        pytest.param("", ONE, id="no UID"),
        pytest.param("u1", (), id="asks for nothing managed"),
    ],
)
def test_what_could_not_be_told_or_scored_is_not_noted(
    uid: str, request_: Request
) -> None:
    placements = Placements()

    placements.note(uid, "a", request_)

    assert not placements.under_way(EMPTY)


def test_switched_off_nothing_is_noted() -> None:
    placements = Placements(is_counting=False)

    placements.note("u1", "a", ONE)

    assert not placements.under_way(EMPTY)


def test_the_oldest_placements_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extender.tracking.assumed_pods, "MAX_PLACEMENTS", 2)
    placements = Placements()

    for uid, node_name in (("u1", "a"), ("u2", "b"), ("u1", "c"), ("u3", "d")):
        placements.note(uid, node_name, ONE)

    assert placements.under_way(EMPTY) == {"c": (ONE,), "d": (ONE,)}


def test_the_asking_pod_does_not_count_against_itself() -> None:
    placements = Placements()
    placements.note("u", "a", ONE)
    placements.note("v", "a", TWO)

    assert placements.under_way(EMPTY, "u") == {"a": (TWO,)}
