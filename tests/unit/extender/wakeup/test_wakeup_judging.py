"""Judging of unschedulable pods: the moments of it, and how many nodes at a time."""

from dataclasses import replace
from typing import Any

import pytest

from cluster.decode.records import RecordBuilder
from extender.wakeup.feasible_nodes import MAX_COST
from extender.wakeup.queue import MAX_JUDGED
from scoring.eligibility import REQUIREMENT_COST
from scoring.gpu.models import GpuModel, default_table, extended_table
from scoring.gpu.node_gpus import GpuLabelReader, GpuLabelRules
from tests.builders import SCOPE, Tree, make_node, make_pod
from tests.defaults import GPU_ANNOTATIONS
from tests.fakes.unschedulable_pods import (
    POD,
    TICK_SECONDS,
    UnschedulablePods,
    make_busy,
)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="the same ones"),
        pytest.param(
            {"scoring": {"shortlist": 32, "normalize": "rank"}}, id="of answers"
        ),
        pytest.param({"scoring": {"weights": {"utilization": 9}}}, id="of scores"),
        pytest.param({"gpuTypes": {"aliases": {"H100": ["Green"]}}}, id="of cards"),
    ],
)
def test_settings_that_judging_does_not_depend_on_wake_nobody(
    settings: dict[str, Any],
) -> None:
    pods = UnschedulablePods(make_node(gpus=4), POD)
    pods.refuse()
    assert pods.wait(10) == []

    pods.use_settings(**settings)

    assert pods.wait(10) == []


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"labels": {"accelerator": "type"}}, id="labels"),
        pytest.param(
            {"managedPrefixes": ["nvidia.com/", "amd.com/", "x.org/"]},
            id="resources",
        ),
    ],
)
def test_settings_that_judging_depends_on_count_as_a_change(
    settings: dict[str, Any],
) -> None:
    pods = UnschedulablePods(make_node(gpus=4), POD)
    pods.refuse()
    assert pods.wait(10) == []

    pods.use_settings(**settings)

    assert pods.wait(10) == ["pod-1"]


def test_a_pod_is_woken_when_its_rule_key_no_longer_refuses_a_node() -> None:
    acme = GpuLabelRules(extended_table([GpuModel("Acme-1", 2**30)], {}))
    builder = RecordBuilder(
        SCOPE,
        gpus=GpuLabelReader(acme),
        annotations=replace(GPU_ANNOTATIONS, is_rule_key_filter=True),
    )
    pod = make_pod(gpus=1, annotations={builder.annotations.rule_key: "Acme-1"})
    node = make_node(gpus=4, labels={"nvidia.com/gpu.product": "NVIDIA-L4"})
    pods = UnschedulablePods(node, pod, builder=builder)
    pods.refuse(pod)
    assert pods.wait(10) == []

    pods.use_gpus(GpuLabelRules(default_table()))

    assert pods.wait(10) == ["pod-1"]


def test_many_kinds_of_pods_are_judged_in_turn() -> None:
    many = [
        make_pod(name=f"pod-{number:03}", gpus=1, cpu=f"{number + 1}m")
        for number in range(3 * MAX_JUDGED)
    ]
    pods = UnschedulablePods(make_busy(), *many)
    for pod in many:
        pods.refuse(pod)
    pods.wait(1)

    pods.put(make_node(gpus=400))

    assert sorted(pods.wait(60)) == [pod["metadata"]["name"] for pod in many]


def many_words(*names: str, count: int = 2 * MAX_COST // REQUIREMENT_COST) -> Tree:
    """Return affinity for the nodes of these names that takes long to read."""
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": names}
    term = {"matchExpressions": [expression]}
    never = {"matchExpressions": [{"key": "none", "operator": "Exists"}]}
    required = {"nodeSelectorTerms": [*([never] * count), term]}
    return {
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
        }
    }


def test_affinity_that_takes_long_is_read_a_node_at_a_time() -> None:
    names = [f"node-{number}" for number in range(5)]
    pod = make_pod(gpus=1, spec=many_words("node-4"))
    pods = UnschedulablePods(*map(make_busy, names), pod)
    pods.refuse(pod)
    pods.wait(1)
    for name in names:
        pods.put(make_node(name=name, gpus=4))

    # Settling, then a look for each of the nodes before the last one.
    assert pods.wait(4 * TICK_SECONDS) == []
    assert pods.wait(10) == ["pod-1"]


def test_pods_that_are_judged_soon_do_not_wait_for_those_that_take_long() -> None:
    names = [f"node-{number}" for number in range(100)]
    slow = make_pod(name="slow", gpus=1, spec=many_words("none"))
    pods = UnschedulablePods(*map(make_busy, names), slow, POD)
    pods.refuse(slow)
    pods.refuse()
    pods.wait(1)
    for name in names:
        pods.put(make_node(name=name, gpus=4))

    assert pods.wait(0.2) == ["pod-1"]
    assert pods.wait(60) == []
