"""What is known of pods that our answers have just placed."""

import pytest

import extender.tracking.assumed_pods
from cluster.ledger.changes import PodGone, PodSeen
from extender.tracking.assumed_pods import AssumedPods
from scoring.candidates import PodRequest
from scoring.resources import Request
from scoring.snapshot import Snapshot
from tests.builders import GPU, make_ledger, make_node, make_pod, make_pod_record

ONE: Request = ((GPU, 1),)
TWO: Request = ((GPU, 2),)
EMPTY = make_ledger(nodes=[make_node(name="a", gpus=8)]).build()


def note(assumed_pods: AssumedPods, uid: str, node_name: str, request: Request) -> None:
    assumed_pods.note(PodRequest(uid, request, GPU, None, ""), node_name)


def by_node(
    assumed_pods: AssumedPods, snapshot: Snapshot, asking: str = ""
) -> dict[str, tuple[Request, ...]]:
    """Return what the pods under way to each node ask for."""
    found = assumed_pods.by_node(snapshot, asking)
    return {name: tuple(pod.request for pod in pods) for name, pods in found.items()}


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 5.0

    def __call__(self) -> float:
        return self.now


def test_without_placements_nothing_is_under_way() -> None:
    assert not AssumedPods().by_node(EMPTY)


def test_pods_just_placed_are_under_way_to_their_nodes() -> None:
    assumed_pods = AssumedPods()

    note(assumed_pods, "u1", "a", ONE)
    note(assumed_pods, "u2", "b", ONE)
    note(assumed_pods, "u3", "a", TWO)

    assert by_node(assumed_pods, EMPTY) == {"a": (ONE, TWO), "b": (ONE,)}


def test_a_pod_that_is_asked_about_again_is_not_under_way() -> None:
    assumed_pods = AssumedPods()
    note(assumed_pods, "u1", "a", ONE)

    assumed_pods.forget("u1")
    assumed_pods.forget("never noted")

    assert by_node(assumed_pods, EMPTY) == {}


def test_a_pod_placed_again_is_under_way_to_its_new_node_alone() -> None:
    assumed_pods = AssumedPods()

    note(assumed_pods, "u1", "a", ONE)
    note(assumed_pods, "u1", "b", TWO)

    assert by_node(assumed_pods, EMPTY) == {"b": (TWO,)}


def test_after_two_seconds_a_placement_is_over() -> None:
    clock = Clock()
    assumed_pods = AssumedPods(clock=clock)
    note(assumed_pods, "u1", "a", ONE)
    clock.now += 1.0
    note(assumed_pods, "u2", "a", TWO)

    clock.now += 1.0
    at_two_seconds = by_node(assumed_pods, EMPTY)
    clock.now += 0.1
    later = by_node(assumed_pods, EMPTY)
    clock.now += 1.0
    much_later = by_node(assumed_pods, EMPTY)

    assert at_two_seconds == {"a": (ONE, TWO)}
    assert later == {"a": (TWO,)}
    assert much_later == {}


def test_a_pod_that_is_asked_about_late_counts_from_then() -> None:
    clock = Clock()
    assumed_pods = AssumedPods(clock=clock)
    note(assumed_pods, "u1", "a", ONE)
    clock.now += 1.5
    note(assumed_pods, "u1", "a", ONE)

    clock.now += 1.5

    assert by_node(assumed_pods, EMPTY) == {"a": (ONE,)}


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
    assumed_pods = AssumedPods()
    ledger = make_ledger(
        nodes=[make_node(name="a", gpus=8)], pods=[make_pod(uid="u1", gpus=1)]
    )
    note(assumed_pods, "u1", "a", ONE)
    note(assumed_pods, "not seen yet", "a", TWO)

    pending = by_node(assumed_pods, ledger.build())
    ledger.apply(end)
    after = by_node(assumed_pods, ledger.build())

    assert pending == {"a": (ONE, TWO)}
    assert after == {"a": (TWO,)}
    assert by_node(assumed_pods, EMPTY) == {"a": (TWO,)}  # it is forgotten


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
    assumed_pods = AssumedPods()

    note(assumed_pods, uid, "a", request_)

    assert not by_node(assumed_pods, EMPTY)


def test_switched_off_nothing_is_noted() -> None:
    assumed_pods = AssumedPods(is_counting=False)

    note(assumed_pods, "u1", "a", ONE)

    assert not by_node(assumed_pods, EMPTY)


def test_the_oldest_placements_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extender.tracking.assumed_pods, "MAX_PODS", 2)
    assumed_pods = AssumedPods()

    for uid, node_name in (("u1", "a"), ("u2", "b"), ("u1", "c"), ("u3", "d")):
        note(assumed_pods, uid, node_name, ONE)

    assert by_node(assumed_pods, EMPTY) == {"c": (ONE,), "d": (ONE,)}


def test_the_asking_pod_does_not_count_against_itself() -> None:
    assumed_pods = AssumedPods()
    note(assumed_pods, "u", "a", ONE)
    note(assumed_pods, "v", "a", TWO)

    assert by_node(assumed_pods, EMPTY, "u") == {"a": (TWO,)}
