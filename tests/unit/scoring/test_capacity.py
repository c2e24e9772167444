"""What candidates have for a pod, GPU by GPU."""

from typing import Any, Final

import numpy as np

from scoring.candidates import Capacity, PodRequest
from scoring.gpu.models import default_table
from scoring.packing.shapes import MAX_DEVICES, Shape
from scoring.terms import fragmentation
from tests.builders import GPU, make_node, make_pod, make_snapshot, take_candidates
from tests.extender_app import make_settings

SHARED: Final = "nvidia.com/gpu.shared"
ASK: Final = PodRequest("", ((GPU, 2),), GPU, None, "", cpu=4000)
NODES: Final = (
    make_node(name="whole", gpus=4, cpu="16"),
    make_node(name="shares", cpu="8", resources={GPU: "2", SHARED: "2000"}),
    make_node(name="cpu", cpu="32"),
)


def capacity_of(
    *pods: dict[str, Any], pod_request: PodRequest = ASK, nodes: Any = NODES
) -> Capacity:
    snapshot = make_snapshot(nodes=nodes, pods=pods)
    names = [node["metadata"]["name"] for node in nodes]
    capacity = take_candidates(snapshot, names, pod_request).capacity
    assert capacity is not None
    return capacity


def test_a_pod_whose_cpu_no_score_goes_by_needs_none() -> None:
    ask = PodRequest("", ((GPU, 2),), GPU, None, "")
    snapshot = make_snapshot(nodes=NODES)

    assert take_candidates(snapshot, ["whole"], ask).capacity is None


def test_what_is_free_is_told_by_gpu() -> None:
    capacity = capacity_of(
        make_pod(name="a", gpus=1, cpu="3", node_name="whole"),
        make_pod(name="b", requests={SHARED: "300"}, cpu="1", node_name="shares"),
        make_pod(name="c", cpu="40", node_name="cpu"),
    )

    assert capacity.shape_at(0) == Shape(4000, 2)
    assert capacity.free.devices.T.tolist() == [
        [1000, 1000, 1000, 0],
        [700, 1000, 0, 0],
        [0, 0, 0, 0],
    ]
    assert capacity.free.cpu.tolist() == [13_000, 7000, 0]
    assert capacity.allocatable_cpu.tolist() == [16_000, 8000, 32_000]
    assert capacity.device_count.tolist() == [4, 2, 0]


def test_the_share_of_the_asking_pod_is_free() -> None:
    held = make_pod(name="own", uid="own", gpus=2, cpu="4", node_name="whole")
    ask = PodRequest("own", ((GPU, 2),), GPU, None, "", cpu=4000)

    capacity = capacity_of(held, pod_request=ask)

    assert capacity.free.devices[:, 0].tolist() == [1000] * 4
    assert capacity.free.cpu.tolist()[0] == 16_000


def test_gpus_beyond_a_number_are_not_looked_at() -> None:
    huge = make_node(name="huge", gpus=2**62, cpu=str(2**60))

    capacity = capacity_of(nodes=(huge,))

    assert capacity.device_count.tolist() == [MAX_DEVICES]
    assert capacity.free.devices.tolist() == [[1000]] * MAX_DEVICES


def test_a_cluster_without_gpus_or_cpu_has_room_for_nothing() -> None:
    bare = make_node(name="bare")
    del bare["status"]["allocatable"]["cpu"]
    bare["status"]["capacity"] = dict(bare["status"]["allocatable"])

    capacity = capacity_of(nodes=(bare,))

    assert capacity.free.devices.shape == (0, 1)
    assert capacity.free.cpu.tolist() == [0]
    assert capacity.free.models.dtype == np.int64


def test_what_is_held_of_gpus_that_are_gone_takes_none_of_others() -> None:
    held = make_pod(requests={"amd.com/gpu": "1"}, node_name="whole")
    others = make_node(name="amd", resources={"amd.com/gpu": "1"})

    alone, beside = (
        capacity_of(held, nodes=(NODES[0], *more)) for more in ((), (others,))
    )

    assert alone.free.devices[:, 0].tolist() == [1000] * 4
    assert beside.free.devices[:, 0].tolist() == [1000] * 4


def test_a_share_is_what_each_node_says_that_it_is() -> None:
    nodes = [
        make_node(
            name=name,
            labels={"nvidia.com/gpu.replicas": replicas},
            resources={"nvidia.com/gpu.shared": replicas},
        )
        for name, replicas in (("a", "4"), ("b", "4"), ("c", "7"))
    ]
    shared = {"nvidia.com/gpu.shared": "1"}
    pods = [make_pod(name=f"p{i}", requests=shared, node_name="c") for i in range(6)]
    snapshot = make_snapshot(nodes=nodes, pods=pods)
    pod = PodRequest(
        "", (("nvidia.com/gpu.shared", 1),), "nvidia.com/gpu.shared", None, "", cpu=0
    )
    options = make_settings({"scoring": {"profile": "packing"}}).scoring.options(
        default_table()
    )

    candidates = take_candidates(snapshot, ["a", "b", "c"], pod)

    assert candidates.capacity is not None
    totals = [candidates.capacity.shape_at(i).total for i in range(3)]
    assert totals == [250, 250, 142]
    assert (fragmentation(candidates, pod, options) > 0).all()  # the last share fits
