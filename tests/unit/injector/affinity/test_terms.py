"""Requirements on labels go into every term of a pod, and nothing else changes."""

import copy
from typing import Any, Final

import pytest

from injector.affinity.terms import (
    MAX_TERMS,
    MAX_VALUES,
    add_node_selector_terms,
    build_node_selector_terms,
)
from scoring.gpu.affinity import LabelRule

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
IN_A: Final = {"key": "type", "operator": "In", "values": ["a", "b"]}
IN_Z: Final = {"key": "cloud", "operator": "In", "values": ["z"]}
NOT_S: Final = {"key": "cloud", "operator": "NotIn", "values": ["s"]}
ZONE: Final = {"key": "zone", "operator": "In", "values": ["x"]}
PINNED: Final = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
A: Final = (LabelRule("type", "In", ("a", "b")),)
Z: Final = (LabelRule("cloud", "In", ("z",)),)
NONE_OF: Final = (LabelRule("cloud", "NotIn", ("s",)),)


def with_terms(*terms: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [*terms]}}},
        **more,
    }


def having(*expressions: dict[str, Any]) -> dict[str, Any]:
    return {"matchExpressions": list(expressions)}


@pytest.mark.parametrize(
    ("before", "alternatives", "after"),
    [
        pytest.param({}, (A,), with_terms(having(IN_A)), id="a pod without affinity"),
        pytest.param(
            {"affinity": None}, (A,), with_terms(having(IN_A)), id="affinity null"
        ),
        pytest.param(
            {"affinity": {"nodeAffinity": {REQUIRED: None}}},
            (A,),
            with_terms(having(IN_A)),
            id="requirement null",
        ),
        pytest.param(
            {"affinity": {"podAffinity": {"x": 1}, "nodeAffinity": {"preferred": []}}},
            (A,),
            {
                "affinity": {
                    "podAffinity": {"x": 1},
                    "nodeAffinity": {
                        "preferred": [],
                        REQUIRED: {"nodeSelectorTerms": [having(IN_A)]},
                    },
                }
            },
            id="other kinds of affinity",
        ),
        pytest.param(
            {}, (A, Z), with_terms(having(IN_A), having(IN_Z)), id="a term for each"
        ),
        pytest.param(
            with_terms(having(ZONE), having(NOT_S)),
            (A,),
            with_terms(having(ZONE, IN_A), having(NOT_S, IN_A)),
            id="into each term",
        ),
        pytest.param(
            with_terms(having(ZONE), having(NOT_S)),
            (A, Z),
            with_terms(
                having(ZONE, IN_A),
                having(NOT_S, IN_A),
                having(ZONE, IN_Z),
                having(NOT_S, IN_Z),
            ),
            id="a copy of each term for each alternative",
        ),
        pytest.param(
            with_terms({"matchFields": [PINNED]}),
            (A,),
            with_terms({"matchFields": [PINNED], "matchExpressions": [IN_A]}),
            id="the term of a pod of a DaemonSet",
        ),
        pytest.param(
            with_terms({"matchFields": [PINNED], "matchExpressions": None}),
            (A,),
            with_terms({"matchFields": [PINNED], "matchExpressions": [IN_A]}),
            id="expressions null",
        ),
        pytest.param(
            with_terms({}, having(ZONE)),
            (A,),
            with_terms({}, having(ZONE, IN_A)),
            id="a term that matches nothing is not opened",
        ),
        pytest.param(with_terms(), (A,), with_terms(), id="a list without terms"),
        pytest.param({}, (), {}, id="nothing to require"),
        pytest.param(
            {"nodeSelector": {"zone": "x"}},
            (A,),
            {"nodeSelector": {"zone": "x"}, **with_terms(having(IN_A))},
            id="a node selector of another label",
        ),
        pytest.param(
            with_terms(having({**IN_A, "values": ["a", "c"]})),
            (A,),
            with_terms(having({**IN_A, "values": ["a", "c"]}, IN_A)),
            id="a term that allows more",
        ),
    ],
)
def test_requirements_are_added(
    before: dict[str, Any], alternatives: tuple[Any, ...], after: dict[str, Any]
) -> None:
    spec = copy.deepcopy(before)

    assert add_node_selector_terms(spec, build_node_selector_terms(alternatives))
    assert spec == after


@pytest.mark.parametrize(
    ("spec", "alternatives"),
    [
        pytest.param(with_terms(having(IN_A)), (A,), id="the same"),
        pytest.param(with_terms(having(IN_A), having(IN_Z)), (A, Z), id="one each"),
        pytest.param(
            with_terms(having(ZONE, {**IN_A, "values": ["b"]})), (A,), id="one value"
        ),
        pytest.param({"nodeSelector": {"type": "a"}}, (Z, A), id="node selector"),
        pytest.param(
            {**with_terms(having(ZONE)), "nodeSelector": {"type": "a"}},
            (A,),
            id="node selector beside a term",
        ),
        pytest.param(
            with_terms(having({**NOT_S, "values": ["r", "s"]})),
            (NONE_OF,),
            id="more out",
        ),
        pytest.param(
            with_terms(having(IN_Z)), (NONE_OF,), id="in, and not what is out"
        ),
        pytest.param(
            with_terms(having({"key": "cloud", "operator": "DoesNotExist"})),
            (NONE_OF, (LabelRule("cloud", "DoesNotExist"),)),
            id="no such label",
        ),
        pytest.param(
            with_terms(having({"key": "type", "operator": "Gt", "values": ["1"]})),
            ((LabelRule("type", "Exists"),),),
            id="a comparison needs the label",
        ),
    ],
)
def test_what_a_pod_requires_already_is_not_written_again(
    spec: dict[str, Any], alternatives: tuple[Any, ...]
) -> None:
    before = copy.deepcopy(spec)

    assert add_node_selector_terms(spec, build_node_selector_terms(alternatives))
    assert spec == before


@pytest.mark.parametrize(
    ("spec", "alternatives"),
    [
        pytest.param({}, (Z,) * (MAX_TERMS + 1), id="alternatives"),
        pytest.param(
            with_terms(*[having(ZONE)] * (MAX_TERMS // 2 + 1)), (A, Z), id="terms"
        ),
        pytest.param(
            {},
            ((LabelRule("type", "In", tuple(map(str, range(MAX_VALUES + 1)))),),),
            id="values",
        ),
    ],
)
def test_a_pod_that_would_be_mostly_affinity_stays_as_it_is(
    spec: dict[str, Any], alternatives: tuple[Any, ...]
) -> None:
    before = copy.deepcopy(spec)

    assert not add_node_selector_terms(spec, build_node_selector_terms(alternatives))
    assert spec == before


def test_a_pod_with_many_terms_of_its_own_that_suffice_is_left_alone() -> None:
    spec = with_terms(*[having(IN_A)] * (MAX_TERMS + 1))

    assert add_node_selector_terms(spec, build_node_selector_terms((A,)))
