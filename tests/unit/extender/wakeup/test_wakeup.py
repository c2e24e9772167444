"""Unschedulable pods that are woken, and the moments at which they are."""

import tracemalloc
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from extender.wakeup.queue import UNSEEN_SECONDS, Wake
from tests.builders import make_node, make_pod
from tests.fakes.unschedulable_pods import (
    POD,
    UNSCHEDULABLE,
    UnschedulablePods,
    make_busy,
)


def test_a_pod_is_woken_when_a_changed_node_would_take_it() -> None:
    pods = UnschedulablePods(make_busy(), POD)
    pods.refuse()
    assert pods.wait(60) == []

    pods.put(make_node(gpus=4))

    assert pods.wait(1) == ["pod-1"]


def test_a_retry_that_our_late_watch_refuses_is_made_good() -> None:
    # kube-scheduler has seen the change and tries at once; we refuse on the old state.
    pods = UnschedulablePods(make_busy(), POD)
    old = pods.snapshot.generation
    pods.put(make_node(gpus=4))

    pods.refuse(generation=old)

    assert pods.wait(1) == ["pod-1"]


def test_kube_scheduler_is_given_time_to_try_by_itself() -> None:
    pods = UnschedulablePods(make_busy(), POD)
    pods.refuse()
    pods.wait(1)

    pods.put(make_node(gpus=4))
    pods.wait(0.1)
    pods.accept()

    assert pods.wait(60) == []


def test_a_pod_is_woken_once_until_it_is_refused_again() -> None:
    pods = UnschedulablePods(make_busy(), POD)
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
    pods = UnschedulablePods(make_busy(), pod)
    pods.refuse(pod)

    pods.put(node)

    assert pods.wait(60) == []


def test_a_selector_that_the_changed_node_lacks_wakes_nobody() -> None:
    pod = make_pod(gpus=1, spec={"nodeSelector": {"pool": "b"}})
    pods = UnschedulablePods(make_busy(), pod)
    pods.refuse(pod)

    pods.put(make_node(gpus=4))
    assert pods.wait(10) == []

    pods.put(make_node(gpus=4, labels={"pool": "b"}))
    assert pods.wait(10) == ["pod-1"]


def test_a_full_node_wakes_nobody_and_a_freed_one_does() -> None:
    holder = make_pod(name="holder", gpus=4, node_name="node-1")
    pods = UnschedulablePods(make_busy(), POD, holder)
    pods.refuse()

    pods.put(make_node(gpus=4))
    assert pods.wait(10) == []

    pods.remove(holder)
    assert pods.wait(10) == ["pod-1"]


def test_a_nominated_node_is_exempt_from_the_count() -> None:
    pod = make_pod(gpus=1)
    holder = make_pod(name="holder", gpus=4, node_name="node-1")
    pods = UnschedulablePods(make_busy(), pod, holder)
    pod_request = pods.request_of(pod, nominated_node="node-1")
    pods.wake_ups.note(pod_request, pods.snapshot.generation, 1, is_empty=True)
    pods.wait(1)

    pods.put(make_node(gpus=4))

    assert pods.wait(10) == ["pod-1"]


def test_a_pod_is_forgotten_once_it_is_bound_or_gone() -> None:
    bound, gone = make_pod(name="bound", gpus=1), make_pod(name="gone", gpus=1)
    pods = UnschedulablePods(make_busy(), bound, gone)
    pods.refuse(bound)
    pods.refuse(gone)
    pods.wait(1)

    pods.put(make_pod(name="bound", gpus=1, node_name="node-1"))
    pods.remove(gone)
    pods.put(make_node(gpus=4))

    assert pods.wait(60) == []
    assert pods.wake_ups.is_idle


def test_a_pod_that_the_watch_shows_late_is_woken_then() -> None:
    pods = UnschedulablePods(make_busy())
    pods.refuse()
    pods.put(make_node(gpus=4))
    assert pods.wait(10) == []

    pods.put(POD)

    assert pods.wait(1) == ["pod-1"]


def test_a_pod_that_the_watch_never_shows_is_forgotten() -> None:
    pods = UnschedulablePods(make_busy())
    pods.refuse()
    pods.wait(UNSEEN_SECONDS + 1)

    pods.put(make_node(gpus=4))
    pods.wait(1)

    assert pods.wake_ups.is_idle


def test_a_pod_that_asks_for_nothing_managed_is_never_woken() -> None:
    pods = UnschedulablePods(make_busy(), make_pod(cpu="1"))
    pods.refuse(make_pod(cpu="1"))

    pods.put(make_node(gpus=4))

    assert pods.wait(10) == []
    assert pods.wake_ups.is_idle


def test_after_a_restart_unschedulable_pods_count_as_refused() -> None:
    stuck = make_pod(name="stuck", gpus=1, status=UNSCHEDULABLE)
    pods = UnschedulablePods(make_node(gpus=4), stuck, make_pod(name="new", gpus=1))

    pods.wake_ups.rebuild(pods.snapshot, pods.now)

    assert pods.wait(60) == ["stuck"]


def test_ten_pods_a_second_are_woken() -> None:
    many = [make_pod(name=f"pod-{number:02}", gpus=1) for number in range(30)]
    pods = UnschedulablePods(make_busy(), *many)
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
    pods = UnschedulablePods(make_busy(), first, second)
    pods.refuse(first)
    pods.refuse(second)
    pods.wait(1)
    pods.put(make_node(gpus=4))
    assert pods.wait(0.15) == ["first"]

    pods.put(make_pod(name="first", gpus=4, node_name="node-1"))

    assert pods.wait(60) == []


def test_a_device_class_counts_as_a_change_of_all_nodes() -> None:
    pods = UnschedulablePods(make_node(), POD)
    pods.refuse()
    assert pods.wait(10) == []

    pods.put_device_class("nvidia.com/gpu")

    assert pods.wait(10) == ["pod-1"]


def test_a_resource_that_nobody_had_wakes_the_pod_once_a_node_has_it() -> None:
    pod = make_pod(requests={"nvidia.com/mig-1g.10gb": "1"})
    pods = UnschedulablePods(make_node(gpus=4), pod)
    pods.refuse(pod)
    assert pods.wait(60) == []

    pods.put(make_node(gpus=4, resources={"nvidia.com/mig-1g.10gb": "2"}))

    assert pods.wait(1) == ["pod-1"]


def test_a_pod_that_asks_thousands_of_resources_costs_no_table_of_them() -> None:
    many = {f"nvidia.com/x{number}": "1" for number in range(10_000)}
    pod = make_pod(gpus=1, requests=many)
    pods = UnschedulablePods(
        *(make_node(name=f"n{i}", gpus=4) for i in range(100)), pod
    )
    pods.refuse(pod)

    tracemalloc.start()
    try:
        woken = pods.wait(1)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert woken == []
    assert peak_bytes < 100 * len(many)  # a byte for each node and resource


def test_a_cluster_without_nodes_wakes_nobody() -> None:
    pods = UnschedulablePods(POD)
    pods.refuse()
    assert pods.wait(10) == []

    pods.put(make_node(gpus=1))

    assert pods.wait(10) == ["pod-1"]


def test_without_times_of_change_every_node_counts_as_changed() -> None:
    pods = UnschedulablePods(make_node(gpus=1), POD)
    generation = pods.snapshot.generation
    pods.put(make_node(name="full", gpus=0))
    pods.snapshot = replace(pods.snapshot, changed_at=None)

    pods.refuse(generation=generation)

    assert pods.wait(10) == ["pod-1"]


def test_a_pod_that_changes_what_it_asks_is_judged_by_that() -> None:
    pod = make_pod(gpus=1, spec={"nodeSelector": {"pool": "b"}})
    pods = UnschedulablePods(make_busy(), pod)
    pods.refuse(pod)
    pods.put(make_node(gpus=4))
    assert pods.wait(10) == []

    pods.put(POD)  # as a gated pod may

    assert pods.wait(10) == ["pod-1"]


def test_a_pod_that_changes_otherwise_stays_among_its_kind() -> None:
    pods = UnschedulablePods(make_busy(), POD)
    pods.refuse()
    pods.wait(1)

    pods.put(make_pod(gpus=1, status=UNSCHEDULABLE))
    pods.put(make_node(gpus=4))

    assert pods.wait(10) == ["pod-1"]


def test_what_is_said_of_a_forgotten_pod_is_ignored() -> None:
    pods = UnschedulablePods(make_busy())

    ghost = Wake("ghost", "default", "ghost")

    pods.wake_ups.woken(ghost, 1.0)
    is_news = pods.wake_ups.failed(ghost, 1.0)

    assert pods.wake_ups.is_idle
    assert not is_news


def test_no_more_pods_than_the_limit_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("extender.wakeup.queue.MAX_REFUSED", 2)
    many = [make_pod(name=name, gpus=1) for name in ("a", "b", "c")]
    pods = UnschedulablePods(make_busy(), *many)
    for pod in many:
        pods.refuse(pod)
    pods.wait(1)
    for pod in many:
        pods.refuse(pod)

    pods.put(make_node(gpus=4))

    assert sorted(pods.wait(10)) == ["a", "b"]
