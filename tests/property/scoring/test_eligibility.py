"""Node eligibility on columns against one node at a time, and against the rules."""

from typing import Any

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cluster.decode.objects import (
    LabelRequirement,
    NodeRecord,
    NodeSelectorTerm,
    NodeTaint,
    PodConstraints,
    PodToleration,
)
from scoring.eligibility import (
    eligible_columns,
    failed_checks,
    first_failure,
    is_eligible,
)
from tests.builders import make_node, make_node_record, make_snapshot

KEYS = st.sampled_from(["zone", "gpus", "rack"])
VALUES = st.sampled_from(["", "a", "b", "4", "8", "12", "x8"])
EFFECTS = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])

taints = st.builds(NodeTaint, key=KEYS, value=st.none() | VALUES, effect=EFFECTS)
nodes = st.fixed_dictionaries(
    {
        "labels": st.dictionaries(KEYS, VALUES, max_size=3),
        "taints": st.lists(taints, max_size=2),
        "is_ready": st.sampled_from([True, True, True, False]),
        "is_cordoned": st.sampled_from([False, False, True]),
    }
)
tolerations = st.builds(
    PodToleration,
    key=st.none() | KEYS | st.just("node.kubernetes.io/unschedulable"),
    operator=st.sampled_from([None, "", "Equal", "Exists", "Lt"]),
    value=st.none() | VALUES,
    effect=st.none() | EFFECTS,
)
requirements = st.builds(
    LabelRequirement,
    key=KEYS,
    operator=st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
    values=st.none() | st.lists(VALUES, max_size=2).map(tuple),
)
fields = st.builds(
    LabelRequirement,
    key=st.just("metadata.name"),
    operator=st.sampled_from(["In", "NotIn"]),
    values=st.lists(st.sampled_from(["n0", "n1"]), min_size=1, max_size=1).map(tuple),
)
terms = st.builds(
    NodeSelectorTerm,
    expressions=st.none() | st.lists(requirements, max_size=2).map(tuple),
    fields=st.none() | st.lists(fields, max_size=1).map(tuple),
)
pods = st.builds(
    PodConstraints,
    node_name=st.sampled_from(["", "", "", "n0", "elsewhere"]),
    node_selector=st.dictionaries(KEYS, VALUES, max_size=1),
    affinity_terms=st.none() | st.lists(terms, max_size=2).map(tuple),
    tolerations=st.lists(tolerations, max_size=3).map(tuple),
)


def reference(node: NodeRecord, pod: PodConstraints) -> bool:
    """The rules as the Kubernetes pages on scheduling have them, one by one."""
    cordon = NodeTaint("node.kubernetes.io/unschedulable", "NoSchedule")
    effective = [*node.taints, *([cordon] if node.is_cordoned else [])]
    repelling = [taint for taint in effective if taint.effect != "PreferNoSchedule"]
    return (
        node.is_ready
        and pod.node_name in ("", node.name)
        and not any(untolerated(taint, pod.tolerations) for taint in repelling)
        and pod.node_selector.items() <= node.labels.items()
        and (
            pod.affinity_terms is None
            or any(term_holds(term, node) for term in pod.affinity_terms)
        )
    )


def untolerated(taint: NodeTaint, given: tuple[PodToleration, ...]) -> bool:
    for toleration in given:
        is_same_key = (toleration.key or taint.key) == taint.key
        is_same_effect = (toleration.effect or taint.effect) == taint.effect
        is_equal = (toleration.value or "") == (taint.value or "")
        operator = toleration.operator or "Equal"
        matches = {"Exists": True, "Equal": is_equal}.get(operator, False)
        if is_same_key and is_same_effect and matches:
            return False
    return True


def term_holds(term: NodeSelectorTerm, node: NodeRecord) -> bool:
    by_label = [(item, node.labels.get(item.key)) for item in term.expressions or ()]
    by_field = [(item, node.name) for item in term.fields or ()]
    checks = [requirement_holds(item, value) for item, value in by_label + by_field]
    return bool(checks) and all(checks)


def requirement_holds(item: LabelRequirement, value: str | None) -> bool:
    given = set(item.values or ())
    number = int(value) if value is not None and value.isdigit() else None
    bounds = [int(bound) for bound in item.values or () if bound.isdigit()]
    is_one_bound = len(bounds) == len(item.values or ()) == 1
    if item.operator in ("Gt", "Lt") and (number is None or not is_one_bound):
        return False
    return {
        "In": lambda: value in given,
        "NotIn": lambda: bool(given) and value not in given,
        "Exists": lambda: value is not None and not given,
        "DoesNotExist": lambda: value is None and not given,
        "Gt": lambda: (number or 0) > bounds[0],
        "Lt": lambda: (number or 0) < bounds[0],
    }[item.operator]()


def trees_of(drawn: list[dict[str, object]]) -> list[dict[str, Any]]:
    """Return nodes as the API server sends them: without a value that is none."""
    trees = [
        make_node(name=f"n{index}", **msgspec.to_builtins(node))
        for index, node in enumerate(drawn)
    ]
    for tree in trees:
        for taint in tree["spec"].get("taints", ()):
            if taint["value"] is None:
                del taint["value"]
    return trees


@given(st.lists(nodes, min_size=1, max_size=5), pods, st.data())
def test_columns_agree_with_the_rules(
    drawn: list[dict[str, object]], pod: PodConstraints, data: st.DataObject
) -> None:
    trees = trees_of(drawn)
    snapshot = make_snapshot(nodes=trees)
    among = data.draw(st.lists(st.booleans(), min_size=len(trees), max_size=len(trees)))

    got = eligible_columns(snapshot, pod, np.array(among))

    records = [make_node_record(tree) for tree in trees]
    assert got.tolist() == [
        asked and reference(record, pod)
        for asked, record in zip(among, records, strict=True)
    ]
    assert [is_eligible(record, pod) for record in records] == [
        reference(record, pod) for record in records
    ]


@given(st.lists(nodes, max_size=6), pods)
def test_of_all_checks_that_fail_the_first_is_the_failure_of_each_node(
    drawn: list[dict[str, object]], pod: PodConstraints
) -> None:
    records = [make_node_record(tree) for tree in trees_of(drawn)]

    found = failed_checks(records, pod)

    for index, record in enumerate(records):
        fails = [reason for reason, failed in found.items() if failed[index]]
        assert next(iter(fails), None) == first_failure(record, pod)
