"""Preempt against the filter, asked about a cluster without the victims."""

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cluster.decode.faults import convert_with_faults
from cluster.decode.objects import Pod
from extender.verbs.lookup import look_up
from extender.verbs.preempt import preempt_nodes
from extender.verbs.verbs import filter_nodes
from extender.wire.filter import ExtenderArgs
from extender.wire.preempt import (
    PreemptArgs,
    Victims,
    decode_preempt_args,
    encode_preempt_result,
)
from service.runtime import build_verb_options
from tests.builders import GPU, Tree, make_node, make_pod, make_snapshot
from tests.extender_app import make_settings

OPTIONS = build_verb_options(make_settings())
MIG = "nvidia.com/mig-1g.10gb"
NODES = ("n0", "n1", "n2", "ghost")
PODS = ("p0", "p1", "p2", "p3", "asking", "unseen")
AMOUNTS = st.dictionaries(st.sampled_from((GPU, MIG)), st.integers(0, 8), max_size=2)


@dataclass(frozen=True, slots=True)
class Case:
    """A cluster, a pod that wants in, and who is to leave which node."""

    nodes: list[Tree]
    pods: list[Tree]
    asking: Tree
    victims: dict[str, Victims]


@st.composite
def pods(draw: st.DrawFn, uid: str, node_name: str = "") -> Tree:
    requests = {name: str(amount) for name, amount in draw(AMOUNTS).items()}
    alone = {"gpu-extender.io/exclusive": "true"} if draw(st.booleans()) else {}
    return make_pod(
        name=uid, uid=uid, requests=requests, node_name=node_name, annotations=alone
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    nodes = [
        make_node(name=name, resources=draw(AMOUNTS), capacity=draw(AMOUNTS))
        for name in NODES[:-1]
    ]
    bound = [
        draw(pods(uid, draw(st.sampled_from(("", *NODES)))))
        for uid in PODS[:-1]
        if draw(st.booleans())
    ]
    victims = st.builds(
        Victims,
        st.lists(st.sampled_from(PODS), max_size=4).map(tuple),
        st.integers(-(2**63), 2**63 - 1),
    )
    return Case(
        nodes,
        bound,
        draw(pods("asking")),
        draw(st.dictionaries(st.sampled_from(NODES), victims)),
    )


def read(tree: Tree) -> Pod:
    pod, faults = convert_with_faults(tree, Pod)
    assert pod is not None, faults
    return pod


def passes_without(case: Case, node: str) -> bool:
    """Say whether the filter takes the node of a cluster without its victims."""
    gone = set(case.victims[node].uids)
    staying = [
        pod
        for pod in case.pods
        if pod["spec"].get("nodeName") != node or pod["metadata"]["uid"] not in gone
    ]
    snapshot = make_snapshot(nodes=case.nodes, pods=staying)
    args = ExtenderArgs(read(case.asking), (node,))
    result = filter_nodes(look_up(args, snapshot, OPTIONS), OPTIONS)
    return bool(result.feasible.all())


@given(cases())
def test_a_node_stays_exactly_if_the_filter_takes_it_without_the_victims(
    case: Case,
) -> None:
    args = PreemptArgs(read(case.asking), case.victims)
    snapshot = make_snapshot(nodes=case.nodes, pods=case.pods)

    kept = preempt_nodes(args, snapshot, OPTIONS).kept

    assert kept == {
        node: victims
        for node, victims in case.victims.items()
        if passes_without(case, node)
    }


def has_null(value: Any) -> bool:
    """Say whether there is a null anywhere in a value."""
    if isinstance(value, dict):
        return any(map(has_null, value.values()))
    if isinstance(value, list):
        return any(map(has_null, value))
    return value is None


@given(
    st.dictionaries(
        st.text(),
        st.builds(
            Victims,
            st.lists(st.text(min_size=1)).map(tuple),
            st.integers(-(2**63), 2**63 - 1),
        ),
    )
)
def test_what_is_encoded_is_decoded_again_and_has_no_null(
    victims: dict[str, Victims],
) -> None:
    answer = json.loads(encode_preempt_result(victims))

    args = decode_preempt_args(json.dumps({"Pod": make_pod(), **answer}).encode())

    assert not has_null(answer)
    assert list(args.victims.items()) == list(victims.items())
