"""Warnings for what no node has."""

from typing import Final

import pytest

from cluster.decode.gpu_requirements import GpuRequirementsReader
from cluster.ledger.writer import SnapshotCell
from injector.warnings.offers import OfferCheck
from tests.builders import SCOPE, Tree, make_node, make_snapshot
from tests.defaults import GPU_ANNOTATIONS
from tests.fakes.webhook import Webhook, both, container, make_pod, make_webhook

MEMORY: Final = "gpu-extender.io/min-gpu-memory"
LINKED: Final = "gpu-extender.io/linked"
A100: Final = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
L4: Final = {"nvidia.com/gpu.product": "NVIDIA-L4"}
NODES: Final = (
    make_node(name="a", gpus=8, labels=A100),
    make_node(name="b", gpus=4, labels=L4),
    make_node(name="c", resources={"nvidia.com/mig-3g.40gb": "2"}),
)


def checking(*nodes: Tree) -> Webhook:
    cell = SnapshotCell()
    cell.publish(make_snapshot(nodes=nodes))
    check = OfferCheck(cell, SCOPE, GpuRequirementsReader(GPU_ANNOTATIONS))
    return make_webhook(steps=(check,))


@pytest.mark.parametrize(
    ("asked", "annotations", "said"),
    [
        pytest.param(
            {"nvidia.com/gpus": "1"},
            {},
            "no node offers 'nvidia.com/gpus'; did you mean nvidia.com/gpu?",
            id="a plural",
        ),
        pytest.param(
            {"nvidia.com/mig-3g.20gb": "1"},
            {},
            "no node offers 'nvidia.com/mig-3g.20gb'; did you mean"
            " nvidia.com/mig-3g.40gb?",
            id="a profile of another model",
        ),
        pytest.param(
            {"amd.com/gpu": "1"},
            {},
            "no node offers 'amd.com/gpu'; there are nvidia.com/gpu,"
            " nvidia.com/mig-3g.40gb",
            id="another vendor",
        ),
        pytest.param(
            {"nvidia.com/gpu": "16"},
            {},
            "no node has 16 nvidia.com/gpu: the largest has 8; ask for fewer in one"
            " pod",
            id="more than a node has",
        ),
        pytest.param(
            {"nvidia.com/mig-3g.40gb": "3"},
            {},
            "no node has 3 nvidia.com/mig-3g.40gb: the largest has 2; ask for fewer in"
            " one pod",
            id="more slices than a node has",
        ),
        pytest.param(
            {"nvidia.com/gpu": "1"},
            {MEMORY: "400Gi"},
            f"annotation {MEMORY}: no node has nvidia.com/gpu of 400Gi, the largest"
            " have 80Gi",
            id="more memory than a GPU has",
        ),
        pytest.param(
            {"nvidia.com/mig-3g.40gb": "1"},
            {MEMORY: "41Gi"},
            f"annotation {MEMORY}: no node has nvidia.com/mig-3g.40gb of 41Gi, the"
            " largest have 40Gi",
            id="more memory than a slice has",
        ),
        pytest.param(
            {"nvidia.com/mig-3g.40gb": "2"},
            {LINKED: "required"},
            f"annotation {LINKED}: 'nvidia.com/mig-3g.40gb' are parts of GPUs, which"
            " are never linked: no node will do",
            id="linked slices",
        ),
        pytest.param(
            {"nvidia.com/mig-3g.40gb": "2"},
            {LINKED: "required", "gpu-extender.io/sharing": "allowed"},
            "",
            id="linked slices, where any will do",
        ),
        pytest.param({"nvidia.com/gpu": "2"}, {LINKED: "required"}, "", id="linked"),
        pytest.param({"nvidia.com/gpu": "8"}, {MEMORY: "80Gi"}, "", id="what there is"),
        pytest.param({"rdma/hca": "1"}, {}, "", id="what is not managed"),
    ],
)
def test_what_no_node_has_is_told_with_what_there_is(
    asked: dict[str, str], annotations: dict[str, str], said: str
) -> None:
    pod = make_pod(container("a", both(asked)), gpu_type=None, annotations=annotations)

    answered = checking(*NODES).send(pod)

    assert answered.is_allowed
    assert answered.warnings == ([said] if said else [])


def test_nothing_is_said_of_a_cluster_without_nodes() -> None:
    pod = make_pod(container("a", both({"nvidia.com/gpus": "1"})), gpu_type=None)

    assert checking().send(pod).warnings == []


def test_a_cluster_without_gpus_is_told() -> None:
    pod = make_pod(container("a", both({"nvidia.com/gpu": "1"})), gpu_type=None)

    assert checking(make_node()).send(pod).warnings == [
        "no node offers 'nvidia.com/gpu', nor any other GPU resource"
    ]


def test_memory_that_is_not_known_is_not_compared() -> None:
    pod = make_pod(
        container("a", both({"nvidia.com/gpu": "1"})),
        gpu_type=None,
        annotations={MEMORY: "400Gi"},
    )

    assert checking(make_node(gpus=8)).send(pod).warnings == []


def test_before_the_nodes_are_known_nothing_is_said() -> None:
    check = OfferCheck(SnapshotCell(), SCOPE, GpuRequirementsReader(GPU_ANNOTATIONS))
    pod = make_pod(container("a", both({"nvidia.com/gpus": "1"})), gpu_type=None)

    assert make_webhook(steps=(check,)).send(pod).warnings == []
