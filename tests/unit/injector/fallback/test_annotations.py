"""Pods that come again after another webhook has changed what they ask."""

from collections.abc import Callable
from typing import Any

import pytest

from injector.fallback.annotations import FallbackMark
from tests.builders import Tree, make_node
from tests.fakes.admissions import (
    GPU,
    MARK,
    MIG_1G,
    MIG_2G,
    MIG_3G,
    RECORD,
    Admissions,
    asked_of,
    asking,
    make_review,
)

NODE = make_node(name="a", resources={MIG_3G: "1", MIG_2G: "1", MIG_1G: "3"}, gpus=8)
WITHOUT_2G = make_node(name="a", resources={MIG_3G: "1", MIG_1G: "3"}, gpus=8)


def asks(*requests: dict[str, int]) -> Callable[[Tree], None]:
    """Return what makes a pod consist of containers that ask `requests`."""

    def change(pod: Tree) -> None:
        pod["spec"]["containers"] = [
            asking(amounts, name=f"c{place}") for place, amounts in enumerate(requests)
        ]

    return change


@pytest.mark.parametrize(
    ("node", "change", "asked", "annotations"),
    [
        pytest.param(
            NODE,
            asks({MIG_2G: 1}, {MIG_2G: 1}),
            [{MIG_1G: "1"}, {MIG_1G: "1"}],
            {RECORD: "2g.20gb->1g.10gb", MARK: MIG_1G},
            id="a second container asks a slice: both fall",
        ),
        pytest.param(
            NODE,
            asks({MIG_2G: 4}),
            [{GPU: "4"}],
            {RECORD: "2g.20gb->gpu", MARK: GPU},
            id="more slices than there are",
        ),
        pytest.param(
            NODE, asks({MIG_3G: 1}), [{MIG_3G: "1"}], {MARK: MIG_3G}, id="larger slice"
        ),
        pytest.param(
            WITHOUT_2G,
            asks({MIG_3G: 1}),
            [{MIG_3G: "1"}],
            {MARK: MIG_3G},
            id="another slice for the one that it fell to",
        ),
        pytest.param(
            WITHOUT_2G,
            asks({MIG_1G: 1}, {MIG_2G: 1}),
            [{MIG_1G: "1"}, {MIG_1G: "1"}],
            {RECORD: "2g.20gb->1g.10gb,2g.20gb->1g.10gb", MARK: MIG_1G},
            id="a container beside the one that fell falls, too",
        ),
        pytest.param(
            NODE,
            asks({MIG_2G: 1}, {"cpu": 1}),
            [{MIG_2G: "1"}, {"cpu": "1"}],
            {MARK: MIG_2G},
            id="a container without GPU",
        ),
    ],
)
@pytest.mark.parametrize(
    "name", [pytest.param(n, id=n or "generated") for n in ("", "p")]
)
def test_a_changed_pod_gets_what_it_had_got_if_it_had_come_like_that(
    name: str,
    node: Tree,
    change: Callable[[Tree], None],
    asked: list[dict[str, str]],
    annotations: dict[str, str],
) -> None:
    admissions = Admissions(nodes=[node])
    pod, _, _ = admissions.review(name=name)
    change(pod)

    again, _, _ = admissions.review(pod, name=name)

    assert asked_of(again) == asked
    assert again["metadata"]["annotations"] == annotations
    assert admissions.holds.count() == 1


def test_a_pod_that_asks_no_slice_any_more_is_as_if_it_had_asked_none() -> None:
    admissions = Admissions(nodes=[WITHOUT_2G])
    pod, _, _ = admissions.review()
    asks({GPU: 2})(pod)

    again, result, _ = admissions.review(pod)

    assert (asked_of(again), result.outcome) == ([{GPU: "2"}], "not_asked")
    assert again["metadata"]["annotations"] == {}
    assert admissions.holds.count() == 0


def test_a_pod_that_fell_to_gpus_stays_decided() -> None:
    admissions = Admissions(nodes=[make_node(name="a", gpus=1)])
    pod, _, _ = admissions.review()

    again, _, _ = admissions.review(pod)

    assert again == pod
    assert admissions.holds.count() == 1


def test_a_changed_pod_gives_back_what_it_was_promised_first() -> None:
    admissions = Admissions(nodes=[NODE])
    pod, _, _ = admissions.review()
    asks({MIG_3G: 1})(pod)

    admissions.review(pod)

    assert admissions.outcome() == "kept"


def test_fellows_of_a_changed_pod_keep_their_holds() -> None:
    node = make_node(name="a", resources={MIG_2G: "4", MIG_1G: "9"})
    admissions = Admissions(nodes=[node])
    pods = [admissions.review()[0] for _ in range(2)]
    for pod in pods:
        asks({MIG_2G: 2})(pod)

    again = [admissions.review(pod)[0] for pod in pods]

    assert [asked_of(pod) for pod in again] == [[{MIG_2G: "2"}]] * 2
    assert admissions.holds.count() == 2
    assert admissions.outcome() == "2g.20gb->1g.10gb"


@pytest.mark.parametrize(
    "names",
    [
        pytest.param({"owner_uid": "job-2"}, id="another owner"),
        pytest.param({"generate_name": "test-"}, id="another name"),
        pytest.param({"namespace": "web"}, id="another namespace"),
        pytest.param({"is_dry_run": True}, id="a dry run"),
    ],
)
def test_the_hold_of_a_stranger_is_left_alone(names: dict[str, Any]) -> None:
    admissions = Admissions(nodes=[NODE])
    pod, _, _ = admissions.review()
    asks({MIG_2G: 2})(pod)

    again, result, _ = admissions.review(pod, **names)

    assert (asked_of(again), result.outcome) == ([{MIG_2G: "2"}], "already_weighed")
    assert admissions.holds.count() == 1


def test_a_changed_pod_that_is_refused_holds_nothing() -> None:
    admissions = Admissions(nodes=[NODE])
    pod, _, _ = admissions.review()
    asks({MIG_3G: 1})(pod)
    _, _, identity = admissions.review(pod)

    admissions.fallback.release(identity)

    assert admissions.holds.count() == 0


@pytest.mark.parametrize(
    "node",
    [pytest.param(NODE, id="kept"), pytest.param(make_node(gpus=1), id="fell")],
)
def test_a_decided_pod_that_is_refused_gives_back_what_it_held(node: Tree) -> None:
    admissions = Admissions(nodes=[node])
    pod, _, _ = admissions.review()
    admissions.review()
    _, _, identity = admissions.review(pod)

    admissions.fallback.release(identity)

    assert admissions.holds.count() == 1


@pytest.mark.parametrize(
    ("node_name", "namespace", "got"),
    [
        pytest.param("a", "ml", MIG_2G, id="bound"),
        pytest.param("gone", "ml", GPU, id="bound to a node that is gone"),
        pytest.param("", "ml", MIG_2G, id="pending"),
        pytest.param("a", "web", GPU, id="in another namespace"),
    ],
)
def test_a_pod_of_the_same_name_that_is_still_shown_is_gone(
    node_name: str, namespace: str, got: str
) -> None:
    node = make_node(name="a", resources={MIG_2G: "1"}, gpus=8)
    admissions = Admissions(nodes=[node])
    pod, _, _ = admissions.review(name="db-0")
    admissions.appear(pod, name="db-0", node_name=node_name)
    if node_name == "gone":
        admissions.appear(pod, name="other", node_name="a")

    again, _, _ = admissions.review(name="db-0", namespace=namespace)

    assert asked_of(again) == [{got: "1"}]


def held_by(admissions: Admissions) -> int:
    """Return how many slices are promised of the three that there are."""
    free = 0
    while admissions.outcome(asking_slices(1), name=f"probe-{free}") == "kept":
        free += 1
    return 3 - free


def asking_slices(count: int) -> Tree:
    """Return a pod that asks so many slices in one container."""
    return make_review({MIG_2G: count})


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param("abAB", id="one after the other"),
        pytest.param("abBA", id="the last one first"),
        pytest.param("aAbB", id="each at once"),
    ],
)
def test_fellows_that_ask_other_amounts_keep_their_own_holds(steps: str) -> None:
    slices = make_node(name="a", resources={MIG_2G: "3"})
    admissions = Admissions(nodes=[slices, make_node(name="b", gpus=8)])
    pods = {"a": asking_slices(1), "b": asking_slices(2)}

    for step in steps:
        pods[step.lower()] = admissions.review(pods[step.lower()])[0]

    assert [asked_of(pod) for pod in pods.values()] == [
        [{MIG_2G: "1"}],
        [{MIG_2G: "2"}],
    ]
    assert held_by(admissions) == 3


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param("abAB", id="one after the other"),
        pytest.param("abBA", id="the last one first"),
        pytest.param("aAbB", id="each at once"),
    ],
)
def test_fellows_whose_amounts_are_all_changed_are_all_weighed_anew(steps: str) -> None:
    slices = make_node(name="a", resources={MIG_2G: "3"})
    admissions = Admissions(nodes=[slices, make_node(name="b", gpus=8)])
    pods = {"a": asking_slices(1), "b": asking_slices(1)}

    for step in steps:
        if step.isupper():
            asks({MIG_2G: 2})(pods[step.lower()])
        pods[step.lower()] = admissions.review(pods[step.lower()])[0]

    got = sorted(str(asked_of(pod)) for pod in pods.values())
    assert got == [str([{GPU: "2"}]), str([{MIG_2G: "2"}])]


def test_a_mark_that_repeats_itself_says_each_resource_once() -> None:
    assert FallbackMark.read(",".join([MIG_2G] * 1000)) == FallbackMark((MIG_2G,))
