"""What an answer of the verbs leaves under way."""

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
