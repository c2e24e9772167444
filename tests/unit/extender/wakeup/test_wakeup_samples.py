"""Pods that a node fits which kube-scheduler did not offer."""

from itertools import pairwise

import pytest

from extender.wakeup.pods import MAX_PAUSES
from tests.builders import make_node, make_pod
from tests.fakes.unschedulable_pods import POD, UnschedulablePods, make_busy


class TestSamples:
    """A node fits that kube-scheduler did not offer."""

    @pytest.fixture
    def pods(self) -> UnschedulablePods:
        """A cluster of 250 nodes, of which one would take the pod."""
        others = [make_busy(f"busy-{number}") for number in range(249)]
        return UnschedulablePods(*others, make_node(name="fits", gpus=4), POD)

    def test_a_sample_that_lacks_the_node_wakes_the_pod(
        self, pods: UnschedulablePods
    ) -> None:
        pods.refuse(offered=120)

        assert pods.wait(0.25) == ["pod-1"]

    def test_a_call_that_names_fewer_than_a_sample_names_all(
        self, pods: UnschedulablePods
    ) -> None:
        pods.refuse(offered=99)

        assert pods.wait(60) == []

    def test_a_call_that_names_all_nodes_is_no_sample(
        self, pods: UnschedulablePods
    ) -> None:
        pods.refuse(offered=250)

        assert pods.wait(60) == []

    def test_samples_go_round_twice_then_with_pauses_then_no_more(
        self, pods: UnschedulablePods
    ) -> None:
        free_tries = 2 * 3  # twice round 250 nodes, 120 at a time

        for _ in range(40):
            pods.refuse(offered=120)
            pods.wait(12)
        times = [moment for moment, _ in pods.woken]

        assert len(times) == free_tries + MAX_PAUSES

    def test_pauses_are_those_of_kube_scheduler(self, pods: UnschedulablePods) -> None:
        pods.refuse(offered=120)
        for _ in range(2000):
            if pods.tick():
                pods.refuse(offered=120)
            pods.now = round(pods.now + 0.05, 6)
        times = [moment for moment, _ in pods.woken]
        pauses = [b - a for a, b in pairwise(times)]

        # The first tick after a refusal sees it, two later the pod is due.
        assert pauses[:5] == pytest.approx([0.15] * 5)
        assert pauses[5:] == pytest.approx([1, 2, 4, 8, 10])

    def test_a_changed_node_wakes_a_pod_that_was_given_up(
        self, pods: UnschedulablePods
    ) -> None:
        for _ in range(20):
            pods.refuse(offered=120)
            pods.wait(11)
        before = len(pods.woken)

        pods.put(make_node(name="fits", gpus=3))

        assert pods.wait(1) == ["pod-1"]
        assert len(pods.woken) == before + 1

    def test_pods_never_woken_in_vain_come_first(self, pods: UnschedulablePods) -> None:
        for _ in range(20):
            pods.refuse(offered=120)
            pods.wait(11)
        other = make_pod(name="other", gpus=1)
        pods.put(other)
        pods.refuse(other)

        pods.put(make_node(name="fits", gpus=3))

        assert pods.wait(1) == ["other", "pod-1"]

    def test_a_pod_that_no_node_fits_any_more_begins_anew(
        self, pods: UnschedulablePods
    ) -> None:
        for _ in range(20):
            pods.refuse(offered=120)
            pods.wait(11)
        pods.put(make_busy("fits"))
        pods.refuse(offered=120)
        pods.wait(1)

        pods.put(make_node(name="fits", gpus=4))
        pods.wait(1)
        pods.refuse(offered=120)

        assert pods.wait(0.25) == ["pod-1"]


def test_a_quiet_cluster_in_which_nothing_fits_wakes_nobody() -> None:
    nodes = [make_node(name=f"n{number}", gpus=1) for number in range(300)]
    pod = make_pod(gpus=2)
    pods = UnschedulablePods(*nodes, pod)

    for _ in range(3):
        pods.refuse(pod, offered=144)
        assert pods.wait(60) == []


def test_a_postponed_pod_lets_others_go_first() -> None:
    a, b = make_pod(name="a", gpus=1), make_pod(name="b", gpus=1)
    pods = UnschedulablePods(make_busy(), a, b)
    pods.refuse(a)
    pods.refuse(b)
    pods.wait(1)
    pods.put(make_node(gpus=4))
    pods.wait(0.1)

    first = pods.wake_ups.next(pods.snapshot, pods.options, pods.now)
    assert first is not None
    pods.wake_ups.failed(first, pods.now + 5)

    assert pods.wait(4) == ["b"]
    assert pods.wait(4) == ["a"]
