"""Warnings for pods larger than the nodes of the cluster."""

import sys
from typing import Final

from cluster.decode.gpu_requirements import GpuRequirementsReader
from cluster.ledger.writer import SnapshotCell
from injector.admitted_pod import AdmittedPod, PodIdentity
from injector.warnings.capacity import CapacityCheck
from tests.builders import SCOPE, Tree, make_node, make_snapshot
from tests.defaults import GPU_ANNOTATIONS
from tests.fakes.webhook import (
    AMD,
    Webhook,
    both,
    container,
    gpus,
    make_pod,
    make_webhook,
)

IDENTITY: Final = PodIdentity("request", "ml", "p", "", "", is_dry_run=False)


def checking(*nodes: Tree) -> Webhook:
    cell = SnapshotCell()
    if nodes:
        cell.publish(make_snapshot(nodes=nodes))
    check = CapacityCheck(cell, SCOPE, GpuRequirementsReader(GPU_ANNOTATIONS))
    return make_webhook(steps=(check,))


def test_a_pod_larger_than_the_largest_node_is_told_with_both_numbers() -> None:
    webhook = checking(
        make_node(name="small", gpus=2, cpu="64", memory="512Gi"),
        make_node(name="old", gpus=8, cpu="16", memory="48Gi"),
        make_node(name="older", gpus=8, cpu="12", memory="56Gi"),
    )

    answered = webhook.send(make_pod(container("a", gpus(8))))

    assert answered.is_allowed
    assert answered.warnings == [
        (
            "cpu 32 is more than the 16 that the largest node with 8 nvidia.com/gpu"
            " offers; it will stay pending"
        ),
        (
            "memory 64Gi is more than the 56Gi that the largest node with 8"
            " nvidia.com/gpu offers; it will stay pending"
        ),
    ]


def test_only_nodes_with_the_type_that_is_wanted_count() -> None:
    product = "nvidia.com/gpu.product"
    webhook = checking(
        make_node(gpus=8, cpu="128", labels={product: "NVIDIA-A100-SXM4-80GB"}),
        make_node(name="v", gpus=8, cpu="16", labels={product: "Tesla-V100-SXM2-32GB"}),
        make_node(name="unknown", gpus=8, cpu="128"),
    )
    pod = make_pod(container("a", gpus(8)))

    assert webhook.send(pod).warnings == [
        (
            "cpu 32 is more than the 16 that the largest node with 8 nvidia.com/gpu of"
            " the kind it wants offers; it will stay pending"
        ),
    ]


def test_where_no_node_has_the_type_of_the_rule_all_nodes_count() -> None:
    webhook = checking(
        make_node(gpus=8, cpu="16", labels={"nvidia.com/gpu.product": "NVIDIA-L4"})
    )

    assert webhook.send(make_pod(container("a", gpus(8)))).warnings == [
        (
            "cpu 32 is more than the 16 that the largest node with 8 nvidia.com/gpu"
            " offers; it will stay pending"
        ),
    ]


def test_where_no_node_has_the_type_that_is_demanded_nothing_is_said() -> None:
    webhook = checking(
        make_node(gpus=8, cpu="16", labels={"nvidia.com/gpu.product": "NVIDIA-L4"})
    )
    gpu_requirements = {"gpu-extender.io/gpu-type": "V100"}

    answered = webhook.send(
        make_pod(container("a", gpus(8)), annotations=gpu_requirements)
    )

    assert answered.amounts("a")["cpu"] == "32"
    assert answered.warnings == []


def test_a_pod_that_fits_is_not_warned_of() -> None:
    webhook = checking(make_node(gpus=8, cpu="64", memory="256Gi"))

    assert webhook.send(make_pod(container("a", gpus(8)))).warnings == []


def test_a_cordoned_node_counts_too() -> None:
    webhook = checking(
        make_node(name="ready", gpus=1, cpu="2"),
        make_node(name="cordoned", gpus=1, cpu="64", is_cordoned=True),
    )

    assert webhook.send(make_pod(container("a", gpus(1)))).warnings == []


def test_no_node_with_these_gpus_says_nothing_of_the_rest() -> None:
    webhook = checking(make_node(gpus=1, cpu="2"))

    assert webhook.send(make_pod(container("a", gpus(2)))).warnings == []


def test_a_resource_that_nobody_offers_says_nothing() -> None:
    webhook = checking(make_node(gpus=1, cpu="2"))

    assert webhook.send(make_pod(container("a", both({AMD: "1"})))).warnings == []


def test_pods_without_gpus_are_not_looked_at() -> None:
    webhook = checking(make_node(gpus=1, cpu="2"))
    pod = make_pod(container("a", both({"cpu": "64"})), gpu_type=None)

    assert webhook.send(pod).warnings == []


def test_nothing_is_said_before_the_first_snapshot() -> None:
    assert checking().send(make_pod(container("a", gpus(8)))).warnings == []


def test_what_no_node_has_is_not_remembered() -> None:
    resource = "nvidia.com/mig-" + "x" * 1_000_000
    cell = SnapshotCell()
    cell.publish(make_snapshot(nodes=[make_node(gpus=1)]))
    check = CapacityCheck(cell, SCOPE, GpuRequirementsReader(GPU_ANNOTATIONS))
    pod = make_pod(container("a", both({resource: "1"})))
    before = sys.getrefcount(resource)

    check.apply(AdmittedPod(pod, IDENTITY))

    assert sys.getrefcount(resource) == before
