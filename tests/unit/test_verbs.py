from typing import Any

import msgspec
import numpy as np
import pytest

from cluster.decode import convert_with_faults
from cluster.objects import Pod
from extender import wire
from extender.verbs import (
    VerbOptions,
    filter_nodes,
    pose,
    prioritize_nodes,
    read_ask,
)
from scoring.feasibility import Verdict
from scoring.snapshot import Snapshot
from service.runtime import build_verb_options
from tests.builders import make_node, make_pod, make_snapshot
from tests.extender_app import make_settings

OPTIONS = build_verb_options(make_settings())


def read_pod(tree: dict[str, Any]) -> Pod:
    """Return a pod that must be without fault."""
    pod, faults = convert_with_faults(tree, Pod)
    assert pod is not None, faults
    return pod


def asking(pod: dict[str, Any], *names: str) -> wire.ExtenderArgs:
    """Return a question in the form of names."""
    return wire.ExtenderArgs(read_pod(pod), names)


def asking_with(pod: dict[str, Any], *nodes: dict[str, Any]) -> wire.ExtenderArgs:
    """Return a question in the form of objects."""
    objects = {
        node["metadata"]["name"]: msgspec.Raw(msgspec.json.encode(node))
        for node in nodes
    }
    return wire.ExtenderArgs(read_pod(pod), tuple(objects), objects)


def verdicts_of(
    args: wire.ExtenderArgs, snapshot: Snapshot, options: VerbOptions = OPTIONS
) -> list[int]:
    """Return the verdict on each candidate."""
    result = filter_nodes(pose(args, snapshot, options), options)
    return [int(verdict) for verdict in result.verdicts]


def priorities_of(
    args: wire.ExtenderArgs, snapshot: Snapshot, options: VerbOptions = OPTIONS
) -> list[int]:
    """Return the priority of each candidate."""
    result = prioritize_nodes(pose(args, snapshot, options), options)
    return [int(priority) for priority in result]


# --- what the pod asks -------------------------------------------------------


def test_only_managed_resources_are_asked() -> None:
    pod = make_pod(gpus=2, cpu="4", requests={"example.com/fpga": "1"})

    ask = read_ask(read_pod(pod), OPTIONS)

    assert ask.request == (("nvidia.com/gpu", 2),)
    assert (ask.primary, ask.amount) == ("nvidia.com/gpu", 2)


def test_an_ask_has_type_node_and_identity() -> None:
    pod = make_pod(
        uid="the-uid",
        gpus=1,
        spec={"nodeSelector": {"accelerator": "v100"}},
        status={"nominatedNodeName": "n"},
    )

    ask = read_ask(read_pod(pod), OPTIONS)

    assert (ask.uid, ask.accelerator, ask.nominated_node) == ("the-uid", "v100", "n")


def test_all_quantities_that_do_not_parse_are_named() -> None:
    pod = make_pod(requests={"nvidia.com/gpu": "1.2.3Gi", "memory": "much"})

    with pytest.raises(wire.WireError) as caught:
        read_ask(read_pod(pod), OPTIONS)

    assert [fault.path for fault in caught.value.faults] == [
        f"Pod.spec.containers[0].resources.{kind}['{name}']"
        for kind in ("limits", "requests")
        for name in ("nvidia.com/gpu", "memory")
    ]


def test_a_quantity_of_a_resource_we_do_not_track_is_not_ours_to_judge() -> None:
    pod = make_pod(gpus=1, requests={"example.com/fpga": "1.2.3Gi"})

    assert read_ask(read_pod(pod), OPTIONS).request == (("nvidia.com/gpu", 1),)


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


# --- templates: nodes that only the question knows ---------------------------


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


def test_all_faults_of_all_templates_are_named() -> None:
    bad_labels = make_node(name="a")
    bad_labels["metadata"]["labels"] = 7
    bad_amounts = make_node(name="b", gpus="1.2.3Gi", cpu="-1")

    with pytest.raises(wire.WireError) as caught:
        pose(
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
        pose(asking(make_pod(gpus=2), "a", "b"), snapshot, options), options
    )

    assert result.verdicts.tolist() == [Verdict.FEASIBLE] * 2
    assert result.disagreements == 1


def test_priorities_are_int64_in_the_shape_of_the_question() -> None:
    snapshot = make_snapshot(nodes=[make_node(name="a", gpus=1)])

    got = prioritize_nodes(pose(asking(make_pod(gpus=1)), snapshot, OPTIONS), OPTIONS)

    assert (got.dtype, got.shape) == (np.dtype(np.int64), (0,))


def test_a_name_that_comes_again_is_one_candidate() -> None:
    options = build_verb_options(make_settings())
    snapshot = make_snapshot(nodes=[make_node(name=name, gpus=4) for name in "abc"])

    question = pose(
        asking(make_pod(gpus=2), "b", "a", "b", "ghost", "a", "ghost"),
        snapshot,
        options,
    )

    assert list(question.names) == ["b", "a", "ghost"]
    assert question.quoted.tolist() == [b'"b"', b'"a"', b'"ghost"']
    assert question.candidates.known.tolist() == [True, True, False]
