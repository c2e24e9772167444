"""The packing profile through the verbs: what a pod leaves to those that come next."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest

from cluster.decode.faults import convert_with_faults
from cluster.decode.objects import Pod
from cluster.ledger.changes import PodSeen
from extender.verbs.call import VerbCall
from extender.verbs.lookup import pod_request_of_record, read_pod_request
from extender.verbs.options import VerbOptions
from extender.verbs.verbs import (
    NOTHING_ASSUMED,
    Assumed,
    filter_nodes,
    prioritize_nodes,
    total_nodes,
)
from scoring.packing.learning import ExpectedPods, ExpectedShape
from scoring.packing.shapes import Shape
from scoring.snapshot import Snapshot, find_columns
from service.runtime import build_verb_options
from tests.builders import (
    GPU,
    Tree,
    make_ledger,
    make_node,
    make_pod,
    make_pod_record,
    make_snapshot,
)
from tests.extender_app import PRIORITIZE, ExtenderApp, make_settings

SHARED: Final = "nvidia.com/gpu.shared"
TYPE: Final = "gpu-extender.io/gpu-type"
PRODUCT: Final = "nvidia.com/gpu.product"


def options_for(*expected: Mapping[str, Any], **scoring: Any) -> VerbOptions:
    tree = {"profile": "packing", "expectedPods": list(expected), **scoring}
    return build_verb_options(make_settings({"scoring": tree}))


def decoded(tree: Tree) -> Pod:
    pod, faults = convert_with_faults(tree, Pod)
    assert pod is not None, faults
    return pod


FULL_NODES: Final = {"gpus": 8, "weight": 1}
SINGLE: Final = {"gpus": 1, "weight": 1}


def priorities(
    pod: Tree,
    snapshot: Snapshot,
    options: VerbOptions,
    assumed: Assumed = NOTHING_ASSUMED,
) -> dict[str, int]:
    names = snapshot.nodes.names
    ask = read_pod_request(decoded(pod), options)
    call = VerbCall(ask, names, find_columns(snapshot, names), snapshot)
    found = prioritize_nodes(call, options, assumed=assumed)
    return dict(zip(names, found.tolist(), strict=True))


def best(*args: Any, **more: Any) -> str:
    found = priorities(*args, **more)
    (name,) = [name for name, score in found.items() if score == 10]
    return name


def cluster(**used: int) -> Snapshot:
    """Return nodes of eight GPUs of which so many are in use."""
    return make_snapshot(
        nodes=[make_node(name=name, gpus=8) for name in used],
        pods=[
            make_pod(name=f"on-{name}", gpus=gpus, node_name=name)
            for name, gpus in used.items()
            if gpus
        ],
    )


def test_a_small_pod_leaves_the_empty_node_to_a_large_one() -> None:
    snapshot = cluster(a=0, b=1, c=0)

    assert best(make_pod(gpus=1), snapshot, options_for(FULL_NODES, SINGLE)) == "b"


def test_equal_nodes_are_told_apart_by_name() -> None:
    snapshot = cluster(b=0, a=0)

    assert best(make_pod(gpus=1), snapshot, options_for(SINGLE)) == "a"


def test_a_model_that_others_insist_on_is_left_to_them() -> None:
    snapshot = make_snapshot(
        nodes=[
            make_node(name="rare", gpus=2, labels={PRODUCT: "NVIDIA-H100-PCIe"}),
            make_node(name="usual", gpus=8, labels={PRODUCT: "Tesla-T4"}),
        ]
    )
    insisting = {"gpus": 1, "types": ["H100"]}

    assert best(make_pod(gpus=1), snapshot, options_for(SINGLE)) == "rare"
    options = options_for(SINGLE, insisting)
    assert best(make_pod(gpus=1), snapshot, options) == "usual"


def test_a_pod_that_takes_the_cpu_of_free_gpus_goes_elsewhere() -> None:
    snapshot = make_snapshot(
        nodes=[
            make_node(name="a-gpus", gpus=8, cpu="8"),
            make_node(name="b-cpu", cpu="64"),
        ]
    )
    needy = {"gpus": 1, "cpuMillicores": 4000}

    found = priorities(make_pod(cpu="6"), snapshot, options_for(needy))

    assert found == {"a-gpus": 0, "b-cpu": 10}


def test_a_pod_without_gpus_has_no_priorities_by_the_classic_profile() -> None:
    snapshot = cluster(a=0, b=1)
    options = build_verb_options(make_settings())

    assert priorities(make_pod(cpu="6"), snapshot, options) == {"a": 0, "b": 0}


def test_a_pod_without_gpus_passes_everywhere() -> None:
    snapshot, options = cluster(a=8, b=1), options_for(SINGLE)
    ask = read_pod_request(decoded(make_pod(cpu="1")), options)
    names = (*snapshot.nodes.names, "unknown")
    call = VerbCall(ask, names, find_columns(snapshot, names), snapshot)

    assert filter_nodes(call, options).feasible.all()
    assert prioritize_nodes(call, options).tolist()[-1] == 0


def test_shares_fill_the_gpu_that_is_broken_already() -> None:
    sharing = {GPU: "2", SHARED: "2000"}
    snapshot = make_snapshot(
        nodes=[make_node(name=name, resources=sharing) for name in "ab"],
        pods=[make_pod(name="p", requests={SHARED: "400"}, node_name="b")],
    )
    pod = make_pod(name="q", requests={SHARED: "500"})

    assert best(pod, snapshot, options_for(SINGLE)) == "b"


def test_placements_under_way_count() -> None:
    snapshot, options = cluster(a=0, b=7, c=0), options_for(FULL_NODES, SINGLE)
    placed = read_pod_request(decoded(make_pod(name="x", gpus=1)), options)

    pod = make_pod(gpus=1)
    assert best(pod, snapshot, options) == "b"
    assert best(pod, snapshot, options, {"b": (placed,)}) == "a"
    assert priorities(pod, snapshot, options, {"b": (placed,)})["b"] == 0


def test_a_device_class_that_tells_no_amounts_is_in_the_middle() -> None:
    snapshot = make_snapshot(
        nodes=[make_node(name="claims"), make_node(name="full", gpus=8)],
        pods=[make_pod(name="p", gpus=8, node_name="full")],
        device_class_resources=[GPU],
    )
    options = options_for(SINGLE)
    ask = read_pod_request(decoded(make_pod(gpus=1)), options)
    names = snapshot.nodes.names
    call = VerbCall(ask, names, find_columns(snapshot, names), snapshot)

    totals = dict(
        zip(names, total_nodes(call, options, NOTHING_ASSUMED)[0], strict=True)
    )

    assert totals == {"claims": 75.0, "full": 50.0}


@pytest.mark.parametrize("expected", [(), (SINGLE,)], ids=["learned", "given"])
def test_pods_of_other_cpu_have_results_of_their_own(
    expected: tuple[Mapping[str, Any], ...],
) -> None:
    snapshot = make_snapshot(
        nodes=[
            make_node(name="large", gpus=2, cpu="64"),
            make_node(name="small", gpus=2, cpu="8"),
        ]
    )
    options = options_for(*expected)

    assert best(make_pod(gpus=1, cpu="2"), snapshot, options) == "small"
    assert best(make_pod(gpus=1, cpu="9"), snapshot, options) == "large"


def test_what_is_kept_goes_by_the_mix_of_the_snapshot() -> None:
    options = options_for()
    snapshot = cluster(a=0, b=1)
    mixes = [ExpectedPods({ExpectedShape(Shape(0, gpus)): 1.0}) for gpus in (8, 1)]
    pod = make_pod(gpus=1)
    ask = read_pod_request(decoded(pod), options)
    totals = []
    for generation, mix in enumerate(mixes, snapshot.generation):
        now = replace(
            snapshot,
            generation=generation,
            expected=mix,
            changed_at=snapshot.changed_at,
        )
        names = now.nodes.names
        call = VerbCall(ask, names, find_columns(now, names), now)
        totals.append(total_nodes(call, options, NOTHING_ASSUMED)[0].tolist())
        fresh = options_for()
        assert totals[-1] == total_nodes(call, fresh, NOTHING_ASSUMED)[0].tolist()

    assert totals[0] != totals[1]


def test_a_mix_is_learned_from_the_pods_that_come() -> None:
    ledger = make_ledger(nodes=[make_node(name=name, gpus=8) for name in "abc"])
    for number in range(20):
        pod = make_pod(name=f"p{number}", gpus=8, cpu="1")
        ledger.apply(PodSeen(make_pod_record(pod)))
    one = make_pod(name="one", gpus=1, node_name="c")
    ledger.apply(PodSeen(make_pod_record(one)))

    assert best(make_pod(gpus=1), ledger.build(), options_for()) == "c"


def test_a_pod_of_the_cache_asks_for_the_same() -> None:
    options = options_for()
    pod = make_pod(gpus=1, cpu="3500m")

    read = read_pod_request(decoded(pod), options)

    assert read.cpu == 3500
    assert pod_request_of_record(make_pod_record(pod), options) == read
    classic = build_verb_options(make_settings())
    assert read_pod_request(decoded(pod), classic).cpu is None


def test_nodes_that_only_the_request_knows_are_scored() -> None:
    app = ExtenderApp(
        nodes=[make_node(name="a", gpus=8)],
        settings={"scoring": {"profile": "packing", "expectedPods": [SINGLE]}},
    )
    nodes: Iterable[Tree] = [make_node(name="a", gpus=8), make_node(name="t", gpus=1)]

    found = app.call_with_objects(PRIORITIZE, make_pod(gpus=1), nodes)

    assert {row["Host"]: row["Score"] for row in json.loads(found)} == {"a": 0, "t": 10}


@pytest.mark.parametrize("profile", ["packing", "spread", "training"])
def test_each_profile_gives_one_node_the_top(profile: str) -> None:
    options = build_verb_options(make_settings({"scoring": {"profile": profile}}))

    found = priorities(make_pod(gpus=2), cluster(a=0, b=3, c=6), options)

    assert sorted(found.values())[-2:] != [10, 10]
    assert np.max(list(found.values())) == 10
    assert best(make_pod(gpus=2), cluster(a=0, b=3, c=6), options) == (
        "a" if profile == "spread" else "c"
    )


def test_a_cluster_without_whole_gpus_is_packed_by_its_shares() -> None:
    labels = {"nvidia.com/gpu.count": "2", "nvidia.com/gpu.replicas": "4"}
    snapshot = make_snapshot(
        nodes=[
            make_node(name=name, resources={SHARED: "8"}, labels=labels)
            for name in ("free", "used")
        ],
        pods=[make_pod(name="on-used", requests={SHARED: "1"}, node_name="used")],
    )
    options = options_for(SINGLE)

    found = priorities(make_pod(requests={SHARED: "1"}), snapshot, options)

    assert GPU not in snapshot.resources
    assert found == {"free": 0, "used": 10}


def test_a_cluster_without_gpus_is_packed_by_its_cores() -> None:
    snapshot = make_snapshot(
        nodes=[make_node(name=name) for name in ("free", "used")],
        pods=[make_pod(name="on-used", cpu="8", node_name="used")],
    )

    found = priorities(make_pod(cpu="1"), snapshot, options_for(SINGLE))

    assert found == {"free": 0, "used": 10}


def test_gpus_of_every_vendor_are_packed() -> None:
    amd = "amd.com/gpu"
    snapshot = make_snapshot(
        nodes=[
            make_node(name="nvidia", gpus=8),
            make_node(name="empty", resources={amd: "8"}),
            make_node(name="begun", resources={amd: "8"}),
        ],
        pods=[make_pod(name="on-begun", requests={amd: "4"}, node_name="begun")],
    )

    assert best(make_pod(requests={amd: "1"}), snapshot, options_for(FULL_NODES)) == (
        "begun"
    )
