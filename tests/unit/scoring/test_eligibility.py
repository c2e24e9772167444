from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from cluster.decode.objects import NodeRecord, Pod, PodConstraints
from cluster.decode.records import constraints_of
from scoring.eligibility import (
    UNSCHEDULABLE,
    UNTOLERATED,
    WRONG_AFFINITY,
    WRONG_NODE_NAME,
    eligible_columns,
    first_failure,
    is_eligible,
)
from tests.builders import make_node, make_node_record, make_snapshot

NO_SCHEDULE = {"key": "team", "value": "ml", "effect": "NoSchedule"}


def constraints(**spec: Any) -> PodConstraints:
    return constraints_of(msgspec.convert({"spec": spec}, Pod))


def affinity(*terms: Mapping[str, Any]) -> PodConstraints:
    required = {"nodeSelectorTerms": list(terms)}
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    return constraints(affinity={"nodeAffinity": {key: required}})


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def node(
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    **rest: Any,
) -> NodeRecord:
    return make_node_record(make_node(labels=labels, taints=taints, **rest))


def test_a_plain_pod_may_go_to_a_plain_node() -> None:
    assert first_failure(node(), constraints()) is None


@pytest.mark.parametrize(
    ("tolerations", "failure"),
    [
        pytest.param([], UNSCHEDULABLE, id="none"),
        pytest.param([{"operator": "Exists"}], None, id="all taints"),
        pytest.param(
            [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}],
            None,
            id="cordon with any effect",
        ),
        pytest.param(
            [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}],
            None,
            id="cordon, equal to an empty value",
        ),
        pytest.param(
            [{"key": "node.kubernetes.io/unschedulable", "effect": "NoExecute"}],
            UNSCHEDULABLE,
            id="cordon with another effect",
        ),
    ],
)
def test_a_cordoned_node_admits_who_tolerates_the_cordon(
    tolerations: list[dict[str, str]], failure: str | None
) -> None:
    got = first_failure(node(is_cordoned=True), constraints(tolerations=tolerations))

    assert got == failure


def test_nobody_may_go_to_a_node_that_is_not_ready() -> None:
    everything = constraints(tolerations=[{"operator": "Exists"}])

    assert first_failure(node(is_ready=False), everything) == UNTOLERATED


def test_a_pod_with_a_node_name_may_go_to_that_node_alone() -> None:
    bound_for_a = constraints(nodeName="a")

    assert first_failure(node(name="a"), bound_for_a) is None
    assert first_failure(node(name="b"), bound_for_a) == WRONG_NODE_NAME


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        pytest.param({"operator": "Exists"}, True, id="exists without a key"),
        pytest.param({"key": "team", "operator": "Exists"}, True, id="exists"),
        pytest.param({"key": "tea", "operator": "Exists"}, False, id="another key"),
        pytest.param({"key": "team", "value": "ml"}, True, id="equal by default"),
        pytest.param(
            {"key": "team", "operator": "Equal", "value": "ml"}, True, id="equal"
        ),
        pytest.param(
            {"key": "team", "operator": "", "value": "ml"}, True, id="empty operator"
        ),
        pytest.param({"key": "team", "value": "web"}, False, id="another value"),
        pytest.param({"key": "team"}, False, id="no value"),
        pytest.param(
            {"key": "team", "operator": "Exists", "effect": ""}, True, id="any effect"
        ),
        pytest.param(
            {"key": "team", "operator": "Exists", "effect": "NoExecute"},
            False,
            id="another effect",
        ),
        pytest.param(
            {"key": "team", "operator": "Gt", "value": "1"}, False, id="greater than"
        ),
        pytest.param(
            {"key": "team", "operator": "Lt", "value": "1"}, False, id="less than"
        ),
    ],
)
def test_toleration_of_a_taint(*, toleration: dict[str, str], tolerates: bool) -> None:
    tainted = node(taints=[NO_SCHEDULE])

    got = first_failure(tainted, constraints(tolerations=[toleration]))

    assert got == (None if tolerates else UNTOLERATED)


@pytest.mark.parametrize(
    ("effect", "failure"),
    [
        pytest.param("NoSchedule", UNTOLERATED, id="keeps pods away"),
        pytest.param("NoExecute", UNTOLERATED, id="throws pods out"),
        pytest.param("PreferNoSchedule", None, id="is only a wish"),
    ],
)
def test_effect_of_a_taint(effect: str, failure: str | None) -> None:
    tainted = node(taints=[{"key": "team", "effect": effect}])

    assert first_failure(tainted, constraints()) == failure


def test_each_taint_must_be_tolerated() -> None:
    tainted = node(taints=[NO_SCHEDULE, {"key": "spot", "effect": "NoExecute"}])
    one = {"key": "team", "operator": "Exists"}
    other = {"key": "spot", "operator": "Exists"}

    assert not is_eligible(tainted, constraints(tolerations=[one]))
    assert is_eligible(tainted, constraints(tolerations=[one, other]))


@pytest.mark.parametrize(
    ("selector", "failure"),
    [
        pytest.param({}, None, id="nothing selected"),
        pytest.param({"zone": "a", "tier": "gold"}, None, id="all labels match"),
        pytest.param({"zone": "a", "tier": "tin"}, WRONG_AFFINITY, id="one differs"),
        pytest.param({"rack": ""}, WRONG_AFFINITY, id="empty value, label absent"),
    ],
)
def test_node_selector(selector: dict[str, str], failure: str | None) -> None:
    labelled = node({"zone": "a", "tier": "gold"})

    assert first_failure(labelled, constraints(nodeSelector=selector)) == failure


@pytest.mark.parametrize(
    ("requirement", "holds"),
    [
        pytest.param(expression("zone", "In", "a", "b"), True, id="in"),
        pytest.param(expression("zone", "In", "b"), False, id="not one of them"),
        pytest.param(expression("rack", "In", "a"), False, id="in, label absent"),
        pytest.param(expression("zone", "In"), False, id="in nothing"),
        pytest.param(expression("zone", "NotIn", "b"), True, id="not in"),
        pytest.param(expression("zone", "NotIn", "a"), False, id="not in, but is"),
        pytest.param(expression("rack", "NotIn", "a"), True, id="not in, label absent"),
        pytest.param(expression("zone", "NotIn"), False, id="not in nothing"),
        pytest.param(expression("zone", "Exists"), True, id="exists"),
        pytest.param(expression("rack", "Exists"), False, id="exists, label absent"),
        pytest.param(
            expression("zone", "Exists", "a"), False, id="exists with a value"
        ),
        pytest.param(expression("rack", "DoesNotExist"), True, id="does not exist"),
        pytest.param(expression("zone", "DoesNotExist"), False, id="exists after all"),
        pytest.param(
            expression("rack", "DoesNotExist", "a"), False, id="absence with a value"
        ),
        pytest.param(expression("gpus", "Gt", "7"), True, id="greater"),
        pytest.param(expression("gpus", "Gt", "8"), False, id="not greater, equal"),
        pytest.param(expression("gpus", "Gt", "007"), True, id="leading zeros"),
        pytest.param(expression("gpus", "Lt", "9"), True, id="less"),
        pytest.param(expression("gpus", "Lt", "8"), False, id="not less, equal"),
        pytest.param(expression("gpus", "Gt", "7", "6"), False, id="two bounds"),
        pytest.param(expression("gpus", "Gt"), False, id="no bound"),
        pytest.param(expression("gpus", "Gt", "7.5"), False, id="bound not whole"),
        pytest.param(expression("gpus", "Gt", "-1"), False, id="bound with a sign"),
        pytest.param(
            expression("gpus", "Lt", str(2**63)), False, id="bound beyond 64 bits"
        ),
        pytest.param(
            expression("gpus", "Lt", "9" * 5000), False, id="bound of many digits"
        ),
        pytest.param(
            expression("gpus", "Lt", str(2**63 - 1)), True, id="largest bound"
        ),
        pytest.param(expression("zone", "Gt", "1"), False, id="label not a number"),
        pytest.param(expression("rack", "Lt", "1"), False, id="less, label absent"),
        pytest.param(expression("zone", "Like", "a"), False, id="unknown operator"),
    ],
)
def test_required_affinity_on_a_label(
    *, requirement: dict[str, Any], holds: bool
) -> None:
    labelled = node({"zone": "a", "gpus": "8"})

    got = first_failure(labelled, affinity({"matchExpressions": [requirement]}))

    assert got == (None if holds else WRONG_AFFINITY)


@pytest.mark.parametrize(
    ("field", "holds"),
    [
        pytest.param(expression("metadata.name", "In", "a"), True, id="name"),
        pytest.param(expression("metadata.name", "In", "b"), False, id="other name"),
        pytest.param(expression("metadata.name", "NotIn", "b"), True, id="not b"),
        pytest.param(expression("metadata.name", "NotIn", "a"), False, id="not a"),
        pytest.param(expression("metadata.name", "Exists"), False, id="no value"),
        pytest.param(
            expression("metadata.name", "Gt", "1"), False, id="operator not for fields"
        ),
        pytest.param(
            expression("metadata.name", "In", "a", "b"), False, id="two values"
        ),
        pytest.param(expression("metadata.uid", "In", "a"), False, id="other field"),
    ],
)
def test_required_affinity_on_the_name(*, field: dict[str, Any], holds: bool) -> None:
    got = is_eligible(node(name="a"), affinity({"matchFields": [field]}))

    assert got == holds


IN_A = {"matchExpressions": [expression("zone", "In", "a")]}
IN_B = {"matchExpressions": [expression("zone", "In", "b")]}


@pytest.mark.parametrize(
    ("terms", "holds"),
    [
        pytest.param([IN_B, IN_A], True, id="one term is enough"),
        pytest.param([IN_B, IN_B], False, id="no term holds"),
        pytest.param([{}], False, id="an empty term matches nothing"),
        pytest.param([{}, IN_A], True, id="an empty term beside another"),
        pytest.param([], False, id="no terms match nothing"),
        pytest.param(
            [
                {
                    "matchExpressions": [
                        *IN_A["matchExpressions"],
                        *IN_B["matchExpressions"],
                    ]
                }
            ],
            False,
            id="all requirements of a term must hold",
        ),
        pytest.param(
            [{**IN_A, "matchFields": [expression("metadata.name", "In", "other")]}],
            False,
            id="labels and fields must both hold",
        ),
    ],
)
def test_terms_of_required_affinity(
    *, terms: list[dict[str, Any]], holds: bool
) -> None:
    assert is_eligible(node({"zone": "a"}), affinity(*terms)) == holds


def test_only_the_nodes_asked_about_are_eligible() -> None:
    snapshot = make_snapshot(nodes=[make_node(name=name) for name in "abc"])

    got = eligible_columns(snapshot, constraints(), np.array([True, False, True]))

    assert got.tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("name", "eligible"),
    [
        pytest.param("b", [False, True, False], id="asked about"),
        pytest.param("c", [False, False, False], id="not asked about"),
        pytest.param("d", [False, False, False], id="unknown"),
    ],
)
def test_a_node_name_leaves_one_column(name: str, eligible: list[bool]) -> None:
    snapshot = make_snapshot(nodes=[make_node(name=name) for name in "abc"])

    got = eligible_columns(
        snapshot, constraints(nodeName=name), np.array([True, True, False])
    )

    assert got.tolist() == eligible
