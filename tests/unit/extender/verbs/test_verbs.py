from dataclasses import replace
from itertools import permutations
from typing import Any

import msgspec
import numpy as np
import pytest

from cluster.decode.faults import convert_with_faults
from cluster.decode.objects import Pod
from extender.verbs.lookup import look_up, read_pod_request
from extender.verbs.options import VerbOptions
from extender.verbs.verbs import (
    count_claimed,
    filter_nodes,
    prioritize_nodes,
    shortlisted,
)
from extender.wire import filter as wire
from scoring.feasibility import Verdict
from scoring.snapshot import Snapshot, build_node_index
from service.runtime import build_verb_options
from tests.builders import GPU, make_node, make_pod, make_pod_request, make_snapshot
from tests.extender_app import make_settings

OPTIONS = build_verb_options(make_settings())


def read_pod(tree: dict[str, Any]) -> Pod:
    """Return a pod that must be without fault."""
    pod, faults = convert_with_faults(tree, Pod)
    assert pod is not None, faults
    return pod


def asking(pod: dict[str, Any], *names: str) -> wire.ExtenderArgs:
    """Return a call in the form of names."""
    return wire.ExtenderArgs(read_pod(pod), names)


def asking_with(pod: dict[str, Any], *nodes: dict[str, Any]) -> wire.ExtenderArgs:
    """Return a call in the form of objects."""
    objects = {
        node["metadata"]["name"]: msgspec.Raw(msgspec.json.encode(node))
        for node in nodes
    }
    return wire.ExtenderArgs(read_pod(pod), tuple(objects), objects)


def verdicts_of(
    args: wire.ExtenderArgs, snapshot: Snapshot, options: VerbOptions = OPTIONS
) -> list[int]:
    """Return the verdict on each candidate."""
    result = filter_nodes(look_up(args, snapshot, options), options)
    return [int(verdict) for verdict in result.verdicts]


def priorities_of(
    args: wire.ExtenderArgs, snapshot: Snapshot, options: VerbOptions = OPTIONS
) -> list[int]:
    """Return the priority of each candidate."""
    result = prioritize_nodes(look_up(args, snapshot, options), options)
    return [int(priority) for priority in result]


# --- what the pod asks -------------------------------------------------------


def test_only_managed_resources_are_asked() -> None:
    pod = make_pod(gpus=2, cpu="4", requests={"example.com/fpga": "1"})

    pod_request = read_pod_request(read_pod(pod), OPTIONS)

    assert pod_request.request == (("nvidia.com/gpu", 2),)
    assert (pod_request.primary, pod_request.amount) == ("nvidia.com/gpu", 2)


def test_an_ask_has_type_node_and_identity() -> None:
    pod = make_pod(
        uid="the-uid",
        gpus=1,
        spec={"nodeSelector": {"accelerator": "v100"}},
        status={"nominatedNodeName": "n"},
    )

    pod_request = read_pod_request(read_pod(pod), OPTIONS)

    assert (pod_request.uid, pod_request.accelerator, pod_request.nominated_node) == (
        "the-uid",
        "v100",
        "n",
    )


def test_all_quantities_that_do_not_parse_are_named() -> None:
    pod = make_pod(requests={"nvidia.com/gpu": "1.2.3Gi", "memory": "much"})

    with pytest.raises(wire.WireError) as caught:
        read_pod_request(read_pod(pod), OPTIONS)

    assert [fault.path for fault in caught.value.faults] == [
        f"Pod.spec.containers[0].resources.{kind}['{name}']"
        for kind in ("limits", "requests")
        for name in ("nvidia.com/gpu", "memory")
    ]


def test_a_quantity_of_a_resource_that_no_verb_judges_may_be_unreadable() -> None:
    pod = make_pod(gpus=1, requests={"example.com/fpga": "1.2.3Gi"})

    assert read_pod_request(read_pod(pod), OPTIONS).request == (("nvidia.com/gpu", 1),)


# --- verdicts and priorities -------------------------------------------------


def test_answers_follow_the_order_of_the_question() -> None:
    snapshot = make_snapshot(
        nodes=[make_node(name="a", gpus=8), make_node(name="b", gpus=2)]
    )

    got = verdicts_of(asking(make_pod(gpus=4), "b", "ghost", "a"), snapshot)

    assert got == [Verdict.TOO_FEW, Verdict.UNKNOWN_NODE, Verdict.FEASIBLE]


def test_an_empty_cluster_knows_no_node() -> None:
    snapshot = make_snapshot()
    args = asking(make_pod(gpus=1), "a", "b")

    assert verdicts_of(args, snapshot) == [Verdict.UNKNOWN_NODE] * 2
    assert priorities_of(args, snapshot) == [0, 0]


def test_a_pod_that_asks_nothing_of_ours_passes_and_scores_0() -> None:
    snapshot = make_snapshot(nodes=[make_node(name="a")])
    args = asking(make_pod(cpu="1"), "a", "ghost")

    assert verdicts_of(args, snapshot) == [Verdict.FEASIBLE] * 2
    assert priorities_of(args, snapshot) == [0, 0]


def test_own_share_counts_neither_in_the_verdict_nor_in_the_score() -> None:
    nodes = [make_node(name="a", gpus=4), make_node(name="b", gpus=4)]
    own = make_pod(name="own", gpus=4, node_name="a")
    snapshot = make_snapshot(nodes=nodes, pods=[own])
    asks_again = asking(make_pod(name="own", gpus=4), "a", "b")

    assert verdicts_of(asks_again, snapshot) == [Verdict.FEASIBLE] * 2
    assert priorities_of(asks_again, snapshot) == [10, 10]  # both idle, so equal


def test_weights_and_maximum_are_those_of_the_options() -> None:
    scoring = {"weights": {"utilization": 0, "topology": 0}, "maxScore": 7}
    options = build_verb_options(make_settings({"scoring": scoring}))
    nodes = [
        make_node(name="a", gpus=4, labels={"accelerator": "v100"}),
        make_node(name="b", gpus=4),
    ]
    pod = make_pod(gpus=1, spec={"nodeSelector": {"accelerator": "v100"}})

    got = priorities_of(asking(pod, "a", "b"), make_snapshot(nodes=nodes), options)

    assert got == [7, 0]


# --- templates: nodes that only the call knows ---------------------------


def test_a_template_is_judged_by_its_own_labels_and_amounts() -> None:
    pod = make_pod(gpus=2, spec={"nodeSelector": {"accelerator": "v100"}})
    nodes = [
        make_node(name="fits", gpus=2, labels={"accelerator": "v100"}),
        make_node(name="other", gpus=2, labels={"accelerator": "t4"}),
        make_node(name="small", gpus=1, labels={"accelerator": "v100"}),
        make_node(name="cpu"),
    ]

    got = verdicts_of(asking_with(pod, *nodes), make_snapshot())

    assert got == [
        Verdict.FEASIBLE,
        Verdict.WRONG_TYPE,
        Verdict.TOO_FEW,
        Verdict.NO_GPU,
    ]


def test_a_template_may_have_its_gpus_through_a_device_class() -> None:
    snapshot = make_snapshot(
        nodes=[make_node(name="known")], device_class_resources=["nvidia.com/gpu"]
    )

    got = verdicts_of(
        asking_with(make_pod(gpus=1), make_node(name="known"), make_node(name="new")),
        snapshot,
    )

    assert got == [Verdict.FEASIBLE] * 2


def test_a_template_takes_part_in_the_scores() -> None:
    snapshot = make_snapshot(
        nodes=[make_node(name="known", gpus=4)],
        pods=[make_pod(name="holder", gpus=3, node_name="known")],
    )
    args = asking_with(
        make_pod(gpus=1), make_node(name="known", gpus=4), make_node(name="new", gpus=4)
    )

    assert priorities_of(args, snapshot) == [10, 0]  # u 0.75 -> 135; u 0 -> 95


RANKED = build_verb_options(make_settings({"scoring": {"normalize": "rank"}}))


@pytest.mark.parametrize("known", ["", "m", "az", "zam", "amz"])
@pytest.mark.parametrize("asked", list(permutations("amz")))
def test_equal_nodes_rank_by_name_in_the_cache_or_not(
    known: str, asked: tuple[str, ...]
) -> None:
    snapshot = make_snapshot(nodes=[make_node(name=name, gpus=8) for name in known])
    args = asking_with(
        make_pod(gpus=1), *(make_node(name=name, gpus=8) for name in asked)
    )

    priorities = dict(zip(asked, priorities_of(args, snapshot, RANKED), strict=True))

    assert priorities == {"a": 10, "m": 4, "z": 0}
    assert shortlist_of(args, snapshot) == [asked.index("a")]


@pytest.mark.parametrize("more", [{}, {"nvidia.com/gpu.replicas": "4"}])
def test_a_template_scores_as_the_same_node_of_the_cluster(
    more: dict[str, str],
) -> None:
    rare = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    plenty = {"nvidia.com/gpu.product": "Tesla-T4"}
    known = make_node(name="known", gpus=8, labels=rare)
    nodes = [make_node(name=f"t{i}", gpus=8, labels=plenty) for i in range(4)]
    nodes.append(make_node(name="beside", gpus=8, labels=rare | more))
    scoring = {
        "profile": "packing",
        "normalize": "absolute",
        "maxScore": 100,
        "expectedPods": [{"types": ["H100"]}, {"weight": 3}],
    }
    options = build_verb_options(make_settings({"scoring": scoring}))
    new = make_node(name="new", gpus=8, labels=rare)
    asked = asking_with(make_pod(gpus=8), known, new)

    verb_call = look_up(asked, make_snapshot(nodes=[known, *nodes]), options)
    of_known, of_new = prioritize_nodes(verb_call, options).tolist()

    assert of_new == of_known


def test_all_faults_of_all_templates_are_named() -> None:
    bad_labels = make_node(name="a")
    bad_labels["metadata"]["labels"] = 7
    bad_amounts = make_node(name="b", gpus="1.2.3Gi", cpu="-1")

    with pytest.raises(wire.WireError) as caught:
        look_up(
            asking_with(make_pod(gpus=1), bad_labels, bad_amounts),
            make_snapshot(),
            OPTIONS,
        )

    assert {fault.path for fault in caught.value.faults} == {
        "Nodes['a'].metadata.labels",
        "Nodes['b'].status.allocatable['nvidia.com/gpu']",
        "Nodes['b'].status.allocatable['cpu']",
        "Nodes['b'].status.capacity['nvidia.com/gpu']",
        "Nodes['b'].status.capacity['cpu']",
    }


def test_trust_counts_the_nodes_where_we_are_behind() -> None:
    options = build_verb_options(make_settings({"extender": {"counts": "trust"}}))
    snapshot = make_snapshot(
        nodes=[make_node(name="a", gpus=4), make_node(name="b", gpus=4)],
        pods=[make_pod(name="holder", gpus=3, node_name="a")],
    )

    result = filter_nodes(
        look_up(asking(make_pod(gpus=2), "a", "b"), snapshot, options), options
    )

    assert result.verdicts.tolist() == [Verdict.FEASIBLE] * 2
    assert result.count_mismatches == 1


def test_priorities_are_int64_in_the_shape_of_the_question() -> None:
    snapshot = make_snapshot(nodes=[make_node(name="a", gpus=1)])

    got = prioritize_nodes(
        look_up(asking(make_pod(gpus=1)), snapshot, OPTIONS), OPTIONS
    )

    assert (got.dtype, got.shape) == (np.dtype(np.int64), (0,))


def test_a_name_that_comes_again_is_one_candidate() -> None:
    options = build_verb_options(make_settings())
    snapshot = make_snapshot(nodes=[make_node(name=name, gpus=4) for name in "abc"])

    verb_call = look_up(
        asking(make_pod(gpus=2), "b", "a", "b", "ghost", "a", "ghost"),
        snapshot,
        options,
    )

    assert list(verb_call.names) == ["b", "a", "ghost"]
    assert verb_call.literals() == ["b", "a", "ghost"]
    assert verb_call.columns.tolist() == [1, 0, -1]


# --- shortlist ---------------------------------------------------------------

SHORT = build_verb_options(
    make_settings({"scoring": {"shortlist": 1, "normalize": "rank"}})
)


def holding(**gpus: int) -> Snapshot:
    """Return nodes of 8 GPUs with so many in use."""
    return make_snapshot(
        nodes=[make_node(name=name, gpus=8) for name in gpus],
        pods=[
            make_pod(name=f"on-{name}", gpus=used, node_name=name)
            for name, used in gpus.items()
            if used
        ],
    )


def shortlist_of(
    args: wire.ExtenderArgs, snapshot: Snapshot, options: VerbOptions = SHORT
) -> list[int] | None:
    """Return the indexes of the shortlist, None for all that are feasible."""
    verb_call = look_up(args, snapshot, options)
    indexes = shortlisted(verb_call, filter_nodes(verb_call, options), options)
    return None if indexes is None else indexes.tolist()


def test_a_shortlist_has_the_best_feasible_nodes() -> None:
    snapshot = holding(idle=0, good=5, full=8, fair=3)

    args = asking(make_pod(gpus=1), "idle", "full", "good", "fair")

    assert shortlist_of(args, snapshot) == [2]  # u 0.625 is within the target


def test_a_shortlist_is_in_the_order_of_the_question() -> None:
    scoring = {"shortlist": 16, "normalize": "rank"}
    options = replace(
        build_verb_options(make_settings({"scoring": scoring})), shortlist=2
    )
    snapshot = holding(idle=0, good=5, fair=3)

    args = asking(make_pod(gpus=1), "fair", "idle", "good")

    assert shortlist_of(args, snapshot, options) == [0, 2]


def test_equal_nodes_are_taken_by_name() -> None:
    args = asking(make_pod(gpus=1), "c", "a", "b")

    assert shortlist_of(args, holding(a=0, b=0, c=0)) == [1]


def test_nothing_is_left_out_where_no_more_are_feasible() -> None:
    args = asking(make_pod(gpus=4), "a", "b")

    assert shortlist_of(args, holding(a=0, b=8)) is None


def test_a_pod_that_asks_nothing_of_ours_is_offered_all() -> None:
    assert shortlist_of(asking(make_pod(cpu="1"), "a", "b"), holding(a=0, b=0)) is None


# --- assumed pods ------------------------------------------------------------


def test_scores_count_pods_under_way_and_verdicts_do_not() -> None:
    scoring = {"strategy": "binpack"}
    options = build_verb_options(make_settings({"scoring": scoring}))
    verb_call = look_up(
        asking(make_pod(gpus=4), "a", "b", "ghost"), holding(a=0, b=4), options
    )
    assumed = {"a": [make_pod_request(6)], "ghost": [make_pod_request(1)]}

    assert (
        filter_nodes(verb_call, options).verdicts.tolist()[:2] == [Verdict.FEASIBLE] * 2
    )
    assert prioritize_nodes(verb_call, options).tolist() == [0, 10, 0]
    placed = prioritize_nodes(verb_call, options, assumed=assumed)
    assert placed.tolist() == [10, 0, 0]


# --- failing nodes -----------------------------------------------------------


def test_a_failing_node_scores_0_and_takes_no_part() -> None:
    snapshot = holding(broken=5, good=3, fair=1)
    is_broken = np.array([name == "broken" for name in snapshot.nodes.names])
    is_broken.setflags(write=False)
    args = asking(make_pod(gpus=1), "broken", "good", "fair")

    before = priorities_of(args, snapshot)
    after = priorities_of(args, replace(build_copy(snapshot), failing=is_broken))

    assert before == [10, 5, 0]
    assert after == [0, 10, 0]
    assert (
        verdicts_of(args, replace(build_copy(snapshot), failing=is_broken)) == [0] * 3
    )


def test_a_failing_node_comes_last_in_a_shortlist() -> None:
    snapshot = holding(broken=5, fair=1)
    is_broken = np.array([True, False])
    is_broken.setflags(write=False)
    args = asking(make_pod(gpus=1), "broken", "fair")

    assert shortlist_of(args, replace(build_copy(snapshot), failing=is_broken)) == [1]


def build_copy(snapshot: Snapshot) -> Snapshot:
    """Return the same state under an index of its own, which nothing was kept for."""
    return replace(snapshot, nodes=build_node_index(snapshot.nodes.names))


# --- DeviceClasses -----------------------------------------------------------


@pytest.mark.parametrize(
    ("classes", "count"),
    [
        pytest.param([GPU], 1, id="one node has no GPUs of its own"),
        pytest.param([], 0, id="no DeviceClass"),
        pytest.param(["nvidia.com/other"], 0, id="another resource"),
    ],
)
def test_nodes_that_pass_by_a_device_class_are_counted(
    classes: list[str], count: int
) -> None:
    snapshot = make_snapshot(
        nodes=[make_node(name="a", gpus=4), make_node(name="b")],
        device_class_resources=classes,
    )
    verb_call = look_up(asking(make_pod(gpus=1), "a", "b", "ghost"), snapshot, OPTIONS)

    assert count_claimed(verb_call, filter_nodes(verb_call, OPTIONS), OPTIONS) == count
