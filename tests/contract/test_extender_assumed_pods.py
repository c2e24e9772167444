"""What an answer of the verbs leaves under way."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from extender.tracking.assumed_pods import AssumedPods
from tests.builders import GPU, make_node, make_pod
from tests.extender_app import FILTER, PRIORITIZE, ExtenderApp


@dataclass(frozen=True, slots=True)
class Link:
    """A link to an API server, as far as the verbs have one."""

    assumed_pods: AssumedPods = field(default_factory=AssumedPods)
    snapshot_wait: None = None
    waker: None = None

    def relist(self, reason: str) -> None:
        """Do without."""


@pytest.fixture
def link() -> Link:
    return Link()


@pytest.fixture
def app(link: Link) -> ExtenderApp:
    """Return the application over two idle nodes."""
    nodes = [make_node(name=name, gpus=4) for name in ("a", "b")]
    return ExtenderApp(nodes=nodes, link=link)


def assumed(app: ExtenderApp, link: Link) -> dict[str, int]:
    """Return how many GPUs are under way to each node."""
    found = link.assumed_pods.by_node(app.cell.current())
    return {
        name: sum(dict(pod.request)[GPU] for pod in pods)
        for name, pods in found.items()
    }


def test_a_pod_that_is_left_one_node_is_under_way_to_it(
    app: ExtenderApp, link: Link
) -> None:
    app.call(FILTER, make_pod(gpus=2), ["a"])

    assert assumed(app, link) == {"a": 2}


def test_a_pod_that_is_asked_about_again_is_under_way_no_more(
    app: ExtenderApp, link: Link
) -> None:
    app.call(FILTER, make_pod(gpus=2), ["a"])

    app.call(FILTER, make_pod(gpus=2), ["a", "b"])

    assert assumed(app, link) == {}


def test_a_pod_that_is_refused_now_is_under_way_no_more(
    app: ExtenderApp, link: Link
) -> None:
    app.call(FILTER, make_pod(gpus=2), ["a"])

    app.call(FILTER, make_pod(gpus=2), ["gone"])

    assert assumed(app, link) == {}


def test_a_pod_with_two_equal_best_nodes_is_under_way_to_none(
    app: ExtenderApp, link: Link
) -> None:
    app.call(PRIORITIZE, make_pod(gpus=2), ["a", "b"])

    assert assumed(app, link) == {}


def best_of(app: ExtenderApp, name: str, job: str, names: Sequence[str]) -> str:
    """Return the one node that a pod of a job gets the highest priority for."""
    pod = make_pod(name=name, gpus=1, owner_uid=job)
    app.call(FILTER, pod, names)
    answer = json.loads(app.call(PRIORITIZE, pod, names))
    scores: dict[str, int] = {row["Host"]: row["Score"] for row in answer}
    (best,) = (host for host, score in scores.items() if score == max(scores.values()))
    return best


def test_pods_of_one_job_follow_their_siblings_under_way(link: Link) -> None:
    zone = "topology.kubernetes.io/zone"
    app = ExtenderApp(
        nodes=[
            make_node(name=name, gpus=4, labels={zone: f"zone-{name[0]}"})
            for name in ("a1", "a2", "b1", "b2")
        ],
        pods=[make_pod(name="old", gpus=1, node_name="b2", owner_uid="second")],
        link=link,
        settings={
            "scoring": {
                "normalize": "rank",
                "weights": {"utilization": 0, "domain": 100},
            }
        },
    )
    names = ("a1", "a2", "b1", "b2")

    # Without siblings, the first by name. The pods differ in nothing but their jobs.
    assert best_of(app, "p0", "first", names) == "a1"
    assert best_of(app, "p1", "second", names) == "b1"
    assert best_of(app, "p2", "first", ("b1", "b2", "a2")) == "a2"
    assert best_of(app, "p3", "second", ("a1", "a2", "b2")) == "b2"
    assert best_of(app, "p4", "third", ("b2", "a2")) == "a2"
