"""Answers as they stand on the wire."""

import json

import msgspec
import numpy as np
import pytest

from extender.wire.answers import (
    encode_filter_result,
    encode_priorities,
    encode_refusals,
    join_names,
    join_objects,
    literal,
)
from scoring.feasibility import REASONS, Verdict


def literals(*names: str) -> list[str]:
    """Return names as they stand between quotes in JSON."""
    return [literal(name) for name in names]


def test_every_verdict_goes_to_its_map_with_its_text() -> None:
    verdicts = np.array(list(Verdict), dtype=np.int64)
    names = literals(*(verdict.name for verdict in Verdict))

    kept, refused = join_names([names[0]]), encode_refusals(names, verdicts)
    answer = json.loads(encode_filter_result(kept, refused, has_objects=False))

    resolvable = {v.name: r.text for v, r in REASONS.items() if r.is_resolvable}
    unresolvable = {v.name: r.text for v, r in REASONS.items() if not r.is_resolvable}
    assert answer == {
        "Nodes": None,
        "NodeNames": ["FEASIBLE"],
        "FailedNodes": resolvable,
        "FailedAndUnresolvableNodes": unresolvable,
        "Error": "",
    }


def test_reasons_are_constant_texts() -> None:
    assert [reason.text for reason in REASONS.values()] == [
        "Node is not known to gpu-extender",
        "Node has no GPU",
        "Node does not offer the GPU resource",
        "GPUs are cut or shared",
        "GPUs are not ready",
        "Too few GPUs on the node",
        "GPU type does not match",
        "GPU type unknown",
        "Too little GPU memory",
        "GPUs are not linked",
        "GPUs are not shared with this pod",
        "GPUs are not shared with this pod",
        "Insufficient GPUs",
    ]


def test_objects_are_joined_as_they_came() -> None:
    nodes = [msgspec.Raw(b'{"metadata": {"name":"a"} }'), msgspec.Raw(b'{"x":1}')]

    refused = encode_refusals(literals("a", "b"), np.array([0, 2]))
    answer = encode_filter_result(join_objects(nodes[:1]), refused, has_objects=True)

    assert answer == (
        b'{"Nodes":{"metadata":{},"items":[{"metadata": {"name":"a"} }]},'
        b'"NodeNames":null,"FailedNodes":{},'
        b'"FailedAndUnresolvableNodes":{"b":"Node has no GPU"},"Error":""}'
    )


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        pytest.param([], b"[]", id="nobody"),
        pytest.param([0], b'[{"Host":"n0","Score":0}]', id="one"),
        pytest.param(
            [10, 0, 100],
            b'[{"Host":"n0","Score":10},{"Host":"n1","Score":0},'
            b'{"Host":"n2","Score":100}]',
            id="several",
        ),
    ],
)
def test_priorities_are_a_bare_array_of_integers(
    scores: list[int], expected: bytes
) -> None:
    names = literals(*(f"n{i}" for i in range(len(scores))))

    assert encode_priorities(names, np.array(scores, dtype=np.int64)) == expected


def test_a_name_that_looks_like_a_joint_is_left_whole() -> None:
    name = ',{"Host":'

    answer = json.loads(encode_priorities(literals(name, name), np.array([1, 2])))

    assert answer == [{"Host": name, "Score": 1}, {"Host": name, "Score": 2}]
