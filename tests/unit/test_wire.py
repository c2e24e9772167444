import json
from typing import Any

import msgspec
import numpy as np
import pytest

from cluster.decode import Fault
from extender.answers import encode_filter_result, encode_priorities, quote_name
from extender.wire import WireError, decode_args, decode_node, split_names_body
from scoring.feasibility import REASONS, Verdict
from tests.builders import make_node, make_pod


def body_of(**keys: Any) -> bytes:
    """Return a body; keys that are not given are absent."""
    return json.dumps(keys).encode()


def quoted(*names: str) -> np.ndarray[Any, np.dtype[np.object_]]:
    """Return names as the snapshot keeps them."""
    array = np.empty(len(names), dtype=object)
    array[:] = [quote_name(name) for name in names]
    return array


# --- decoding ----------------------------------------------------------------


def test_names_are_read_in_their_order() -> None:
    args = decode_args(body_of(Pod=make_pod(gpus=2), Nodes=None, NodeNames=["b", "a"]))

    assert list(args.names) == ["b", "a"]
    assert args.nodes is None
    assert args.pod.metadata.name == "pod-1"


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param({"Pod": {}, "NodeNames": ["a"]}, id="Nodes is absent"),
        pytest.param({"pod": {}, "nodes": None, "nodenames": ["a"]}, id="lower case"),
        pytest.param({"POD": {}, "NODENAMES": ["a"], "X": 1}, id="a key more"),
        pytest.param({"Pod": {"x": [1]}, "NodeNames": ["a"]}, id="unknown pod keys"),
    ],
)
def test_legal_bodies_of_the_form_of_names(keys: dict[str, Any]) -> None:
    args = decode_args(json.dumps(keys).encode())

    assert (list(args.names), args.nodes) == (["a"], None)


def test_objects_keep_their_very_bytes_and_the_first_of_a_name_wins() -> None:
    first, second = (
        b'{ "metadata":{"name":"a"}, "n": 1.0 }',
        b'{"metadata":{"name":"a"}}',
    )
    body = b'{"Pod":{},"Nodes":{"items":[%b, %b]}}' % (first, second)

    args = decode_args(body)

    assert list(args.names) == ["a"]
    assert args.nodes is not None
    assert bytes(args.nodes["a"]) == first


def test_a_list_without_items_has_no_nodes() -> None:
    args = decode_args(body_of(Pod={}, Nodes={"metadata": {}, "items": None}))

    assert (list(args.names), args.nodes) == ([], {})


def test_an_error_holds_every_fault_with_its_path() -> None:
    body = body_of(Pod={"spec": {"containers": [1, 2]}}, NodeNames=["a", 3])

    with pytest.raises(WireError) as caught:
        decode_args(body)

    assert [fault.path for fault in caught.value.faults] == [
        "Pod.spec.containers[0]",
        "Pod.spec.containers[1]",
        "NodeNames[1]",
    ]


def test_an_error_shows_the_first_twenty_faults_each_cut() -> None:
    faults = [Fault("path", "x" * 1000)] * 25

    text = str(WireError(faults))

    assert text.endswith("; and 5 more")
    assert text.count("; ") == 20
    assert len(text) < 21 * 260


def test_the_node_of_an_object_is_read() -> None:
    raw = msgspec.Raw(json.dumps(make_node(name="a", gpus=4)).encode())

    node = decode_node(raw, "a")

    assert node.status.allocatable is not None
    assert node.status.allocatable["nvidia.com/gpu"] == "4"


def test_the_faults_of_an_object_name_the_node() -> None:
    raw = msgspec.Raw(b'{"metadata":{"name":"a","labels":1},"spec":[]}')

    with pytest.raises(WireError) as caught:
        decode_node(raw, "a")

    assert [fault.path for fault in caught.value.faults] == [
        "Nodes['a'].metadata.labels",
        "Nodes['a'].spec",
    ]


def test_a_body_of_names_is_split_into_its_parts() -> None:
    body = b'{"Pod": {"a":1},"Nodes":null,"NodeNames": ["x"]}'

    assert split_names_body(body) == (b'{"a":1}', b'["x"]')
    assert split_names_body(b'{"Pod":{},"Nodes":{"items":[]}}') is None
    assert split_names_body(b"{") is None


# --- encoding ----------------------------------------------------------------


def test_every_verdict_goes_to_its_map_with_its_text() -> None:
    verdicts = np.array(list(Verdict), dtype=np.int64)
    names = quoted(*(verdict.name for verdict in Verdict))

    answer = json.loads(encode_filter_result(names, verdicts, None))

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
        "GPUs are not ready",
        "Too few GPUs on the node",
        "GPU type does not match",
        "Insufficient GPUs",
    ]


def test_objects_are_joined_as_they_came() -> None:
    nodes = [msgspec.Raw(b'{"metadata": {"name":"a"} }'), msgspec.Raw(b'{"x":1}')]

    answer = encode_filter_result(quoted("a", "b"), np.array([0, 2]), nodes)

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
    names = quoted(*(f"n{i}" for i in range(len(scores))))

    assert encode_priorities(names, np.array(scores, dtype=np.int64)) == expected


def test_a_name_that_looks_like_a_joint_is_left_whole() -> None:
    name = ',{"Host":'

    answer = json.loads(encode_priorities(quoted(name, name), np.array([1, 2])))

    assert answer == [{"Host": name, "Score": 1}, {"Host": name, "Score": 2}]
