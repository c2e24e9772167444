"""Which refused pods are woken, and when."""

from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import pytest

from extender.refused import MAX_PAUSES
from extender.wakeup import MAX_JUDGED, UNSEEN_SECONDS
from tests.builders import make_node, make_pod
from tests.fakes.refused_pods import UNSCHEDULABLE, RefusedPods

POD: Final = make_pod(gpus=1)
PENDING: Final = {"nvidia.com/mig.config.state": "pending"}


def make_busy(name: str = "node-1", **more: Any) -> dict[str, Any]:
    """Return a node whose GPUs are being changed."""
    return make_node(name=name, gpus=4, labels=PENDING, **more)


def test_a_pod_is_woken_when_a_changed_node_would_take_it() -> None:
    pods = RefusedPods(make_busy(), POD)
    pods.refuse()
    assert pods.wait(60) == []

    pods.put(make_node(gpus=4))

    assert pods.wait(1) == ["pod-1"]


def test_a_retry_that_our_late_watch_refuses_is_made_good() -> None:
    # kube-scheduler has seen the change and tries at once; we refuse on the old state.
    pods = RefusedPods(make_busy(), POD)
    old = pods.snapshot.generation
    pods.put(make_node(gpus=4))

    pods.refuse(generation=old)

    assert pods.wait(1) == ["pod-1"]


def test_kube_scheduler_is_given_time_to_try_by_itself() -> None:
    pods = RefusedPods(make_busy(), POD)
    pods.refuse()
    pods.wait(1)

    pods.put(make_node(gpus=4))
    pods.wait(0.1)
    pods.accept()

    assert pods.wait(60) == []


def test_a_pod_is_woken_once_until_it_is_refused_again() -> None:
    pods = RefusedPods(make_busy(), POD)
    pods.refuse()
    pods.put(make_node(gpus=4))
    assert pods.wait(10) == ["pod-1"]

    pods.put(make_busy())
    pods.put(make_node(gpus=4))
    assert pods.wait(10) == []

    pods.put(make_busy())
    pods.refuse()
    pods.put(make_node(gpus=4))
    assert pods.wait(10) == ["pod-1"]


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(make_node(gpus=0), id="no GPU"),
        pytest.param(make_node(gpus=4, is_cordoned=True), id="cordoned"),
        pytest.param(make_node(gpus=4, is_ready=False), id="not ready"),
        pytest.param(
            make_node(gpus=4, taints=[{"key": "gpu", "effect": "NoSchedule"}]),
            id="tainted",
        ),
        pytest.param(make_node(gpus=4, cpu="1"), id="too little cpu"),
        pytest.param(make_node(gpus=4, pods="0"), id="room for no pod"),
        pytest.param(make_busy(cpu="65"), id="changed in another way"),
    ],
)
def test_a_changed_node_that_would_not_take_the_pod_wakes_nobody(
    node: dict[str, Any],
) -> None:
    pod = make_pod(gpus=1, cpu="2")
    pods = RefusedPods(make_busy(), pod)
    pods.refuse(pod)

    pods.put(node)

    assert pods.wait(60) == []


def test_a_selector_that_the_changed_node_lacks_wakes_nobody() -> None:
    pod = make_pod(gpus=1, spec={"nodeSelector": {"pool": "b"}})
    pods = RefusedPods(make_busy(), pod)
    pods.refuse(pod)

    pods.put(make_node(gpus=4))
    assert pods.wait(10) == []

    pods.put(make_node(gpus=4, labels={"pool": "b"}))
    assert pods.wait(10) == ["pod-1"]


def test_a_full_node_wakes_nobody_and_a_freed_one_does() -> None:
    holder = make_pod(name="holder", gpus=4, node_name="node-1")
    pods = RefusedPods(make_busy(), POD, holder)
    pods.refuse()

    pods.put(make_node(gpus=4))
    assert pods.wait(10) == []

    pods.remove(holder)
    assert pods.wait(10) == ["pod-1"]


def test_a_nominated_node_is_exempt_from_the_count() -> None:
    pod = make_pod(gpus=1)
    holder = make_pod(name="holder", gpus=4, node_name="node-1")
    pods = RefusedPods(make_busy(), pod, holder)
    ask = pods.ask_of(pod, nominated_node="node-1")
    pods.wake_ups.note(ask, pods.snapshot.generation, 1, is_empty=True)
    pods.wait(1)

    pods.put(make_node(gpus=4))

    assert pods.wait(10) == ["pod-1"]


def test_a_pod_is_forgotten_once_it_is_bound_or_gone() -> None:
    bound, gone = make_pod(name="bound", gpus=1), make_pod(name="gone", gpus=1)
    pods = RefusedPods(make_busy(), bound, gone)
    pods.refuse(bound)
    pods.refuse(gone)
    pods.wait(1)

    pods.put(make_pod(name="bound", gpus=1, node_name="node-1"))
    pods.remove(gone)
    pods.put(make_node(gpus=4))

    assert pods.wait(60) == []
    assert pods.wake_ups.is_idle


def test_a_pod_that_the_watch_shows_late_is_woken_then() -> None:
    pods = RefusedPods(make_busy())
    pods.refuse()
    pods.put(make_node(gpus=4))
    assert pods.wait(10) == []

    pods.put(POD)

    assert pods.wait(1) == ["pod-1"]


def test_a_pod_that_the_watch_never_shows_is_forgotten() -> None:
    pods = RefusedPods(make_busy())
    pods.refuse()
    pods.wait(UNSEEN_SECONDS + 1)

    pods.put(make_node(gpus=4))
    pods.wait(1)

    assert pods.wake_ups.is_idle


def test_a_pod_that_asks_for_nothing_managed_is_never_woken() -> None:
    pods = RefusedPods(make_busy(), make_pod(cpu="1"))
    pods.refuse(make_pod(cpu="1"))

    pods.put(make_node(gpus=4))

    assert pods.wait(10) == []
    assert pods.wake_ups.is_idle


def test_after_a_restart_unschedulable_pods_count_as_refused() -> None:
    stuck = make_pod(name="stuck", gpus=1, status=UNSCHEDULABLE)
    pods = RefusedPods(make_node(gpus=4), stuck, make_pod(name="new", gpus=1))

    pods.wake_ups.rebuild(pods.snapshot, pods.now)

    assert pods.wait(60) == ["stuck"]


def test_ten_pods_a_second_are_woken() -> None:
    many = [make_pod(name=f"pod-{number:02}", gpus=1) for number in range(30)]
    pods = RefusedPods(make_busy(), *many)
    for pod in many:
        pods.refuse(pod)
    pods.wait(1)
    pods.put(make_node(gpus=40))
    start = pods.now

    pods.wait(5)

    times = [moment for moment, _ in pods.woken]
    assert len(times) == 30
    assert times[0] == pytest.approx(start + 0.1)
    assert min(b - a for a, b in pairwise(times)) > 0.0999


def test_what_the_first_pod_took_wakes_no_second_one() -> None:
    first, second = make_pod(name="first", gpus=4), make_pod(name="second", gpus=4)
    pods = RefusedPods(make_busy(), first, second)
    pods.refuse(first)
    pods.refuse(second)
    pods.wait(1)
    pods.put(make_node(gpus=4))
    assert pods.wait(0.15) == ["first"]

    pods.put(make_pod(name="first", gpus=4, node_name="node-1"))

    assert pods.wait(60) == []


def test_other_settings_count_as_a_change() -> None:
    pods = RefusedPods(make_node(gpus=4), POD)
    pods.refuse()
    assert pods.wait(10) == []

    pods.use_new_settings()

    assert pods.wait(10) == ["pod-1"]


def test_a_device_class_counts_as_a_change_of_all_nodes() -> None:
    pods = RefusedPods(make_node(), POD)
    pods.refuse()
    assert pods.wait(10) == []

    pods.put_device_class("nvidia.com/gpu")

    assert pods.wait(10) == ["pod-1"]


def test_a_cluster_without_nodes_wakes_nobody() -> None:
    pods = RefusedPods(POD)
    pods.refuse()
    assert pods.wait(10) == []

    pods.put(make_node(gpus=1))

    assert pods.wait(10) == ["pod-1"]


def test_without_times_of_change_every_node_counts_as_changed() -> None:
    pods = RefusedPods(make_node(gpus=1), POD)
    generation = pods.snapshot.generation
    pods.put(make_node(name="full", gpus=0))
    pods.snapshot = replace(pods.snapshot, changed_at=None)

    pods.refuse(generation=generation)

    assert pods.wait(10) == ["pod-1"]


def test_a_pod_that_changes_what_it_asks_is_judged_by_that() -> None:
    pod = make_pod(gpus=1, spec={"nodeSelector": {"pool": "b"}})
    pods = RefusedPods(make_busy(), pod)
    pods.refuse(pod)
    pods.put(make_node(gpus=4))
    assert pods.wait(10) == []

    pods.put(POD)  # as a gated pod may

    assert pods.wait(10) == ["pod-1"]


def test_a_pod_that_changes_otherwise_stays_among_its_kind() -> None:
    pods = RefusedPods(make_busy(), POD)
    pods.refuse()
    pods.wait(1)

    pods.put(make_pod(gpus=1, status=UNSCHEDULABLE))
    pods.put(make_node(gpus=4))

    assert pods.wait(10) == ["pod-1"]


def test_what_is_said_of_a_forgotten_pod_is_ignored() -> None:
    pods = RefusedPods(make_busy())

    pods.wake_ups.woken("ghost", 1.0)
    pods.wake_ups.postpone("ghost", 1.0)

    assert pods.wake_ups.is_idle


def test_no_more_pods_than_the_limit_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("extender.wakeup.MAX_REFUSED", 2)
    many = [make_pod(name=name, gpus=1) for name in ("a", "b", "c")]
    pods = RefusedPods(make_busy(), *many)
    for pod in many:
        pods.refuse(pod)
    pods.wait(1)
    for pod in many:
        pods.refuse(pod)

    pods.put(make_node(gpus=4))

    assert sorted(pods.wait(10)) == ["a", "b"]


def test_many_kinds_of_pods_are_judged_in_turn() -> None:
    many = [
        make_pod(name=f"pod-{number:03}", gpus=1, cpu=f"{number + 1}m")
        for number in range(3 * MAX_JUDGED)
    ]
    pods = RefusedPods(make_busy(), *many)
    for pod in many:
        pods.refuse(pod)
    pods.wait(1)

    pods.put(make_node(gpus=400))

    assert sorted(pods.wait(60)) == [pod["metadata"]["name"] for pod in many]


class TestSamples:
    """A node fits that kube-scheduler did not offer."""

    @pytest.fixture
    def pods(self) -> RefusedPods:
        """A cluster of 250 nodes, of which one would take the pod."""
        others = [make_busy(f"busy-{number}") for number in range(249)]
        return RefusedPods(*others, make_node(name="fits", gpus=4), POD)

    def test_a_sample_that_lacks_the_node_wakes_the_pod(
        self, pods: RefusedPods
    ) -> None:
        pods.refuse(offered=120)

        assert pods.wait(0.25) == ["pod-1"]

    def test_a_call_that_names_fewer_than_a_sample_names_all(
        self, pods: RefusedPods
    ) -> None:
        pods.refuse(offered=99)

        assert pods.wait(60) == []

    def test_a_call_that_names_all_nodes_is_no_sample(self, pods: RefusedPods) -> None:
        pods.refuse(offered=250)

        assert pods.wait(60) == []

    def test_samples_go_round_twice_then_with_pauses_then_no_more(
        self, pods: RefusedPods
    ) -> None:
        free_tries = 2 * 3  # twice round 250 nodes, 120 at a time

        for _ in range(40):
            pods.refuse(offered=120)
            pods.wait(12)
        times = [moment for moment, _ in pods.woken]

        assert len(times) == free_tries + MAX_PAUSES

    def test_pauses_are_those_of_kube_scheduler(self, pods: RefusedPods) -> None:
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
        self, pods: RefusedPods
    ) -> None:
        for _ in range(20):
            pods.refuse(offered=120)
            pods.wait(11)
        before = len(pods.woken)

        pods.put(make_node(name="fits", gpus=3))

        assert pods.wait(1) == ["pod-1"]
        assert len(pods.woken) == before + 1

    def test_pods_never_woken_in_vain_come_first(self, pods: RefusedPods) -> None:
        for _ in range(20):
            pods.refuse(offered=120)
            pods.wait(11)
        other = make_pod(name="other", gpus=1)
        pods.put(other)
        pods.refuse(other)

        pods.put(make_node(name="fits", gpus=3))

        assert pods.wait(1) == ["other", "pod-1"]

    def test_a_pod_that_no_node_fits_any_more_begins_anew(
        self, pods: RefusedPods
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
    pods = RefusedPods(*nodes, pod)

    for _ in range(3):
        pods.refuse(pod, offered=144)
        assert pods.wait(60) == []


def test_a_postponed_pod_lets_others_go_first() -> None:
    a, b = make_pod(name="a", gpus=1), make_pod(name="b", gpus=1)
    pods = RefusedPods(make_busy(), a, b)
    pods.refuse(a)
    pods.refuse(b)
    pods.wait(1)
    pods.put(make_node(gpus=4))
    pods.wait(0.1)

    first = pods.wake_ups.next(pods.snapshot, pods.options, pods.now)
    assert first is not None
    pods.wake_ups.postpone(first.uid, pods.now + 5)

    assert pods.wait(4) == ["b"]
    assert pods.wait(4) == ["a"]
