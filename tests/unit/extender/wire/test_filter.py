import json
import tracemalloc
from typing import Any, Final

import msgspec
import pytest

from extender.wire.fields import MAX_KEYS, MAX_TREE_BYTES, TooLargeError
from extender.wire.filter import WireError, decode_args, decode_node
from scoring.faults import Fault
from tests.builders import make_node, make_pod

POD = make_pod()
LONG_TEXT = "x" * MAX_TREE_BYTES


def body_of(**keys: Any) -> bytes:
    """Return a body; keys that are not given are absent."""
    return json.dumps(keys).encode()


# --- decoding ----------------------------------------------------------------


def test_names_are_read_in_their_order() -> None:
    args = decode_args(body_of(Pod=make_pod(gpus=2), Nodes=None, NodeNames=["b", "a"]))

    assert list(args.names) == ["b", "a"]
    assert args.nodes is None
    assert args.pod.metadata.name == "pod-1"


@pytest.mark.parametrize("more", [{}, {"Nodes": None}])
def test_a_pod_larger_than_any_of_an_api_server_is_refused(
    more: dict[str, None],
) -> None:
    pod = {**POD, "metadata": {**POD["metadata"], "annotations": {"a": LONG_TEXT}}}

    with pytest.raises(WireError) as caught:
        decode_args(body_of(Pod=pod, **more, NodeNames=["a"]))

    (fault,) = caught.value.faults
    assert fault.path == "Pod"
    assert fault.message.startswith(f"wanted at most {MAX_TREE_BYTES} bytes, got 7")


def test_an_object_of_too_many_keys_is_not_read_to_its_end() -> None:
    body = b'{"Pod":{},' + b'"x":[1,2],' * MAX_KEYS + b"]"

    with pytest.raises(WireError) as caught:
        decode_args(body)

    (fault,) = caught.value.faults
    assert str(fault).startswith(f"body: wanted at most {MAX_KEYS} keys")


def test_names_may_be_longer_than_a_pod_whatever_the_form() -> None:
    names = [f"{number:0253}" for number in range(MAX_TREE_BYTES // 253)]

    args = decode_args(body_of(pod=POD, nodenames=names))

    assert list(args.names) == names


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param({"Pod": POD, "NodeNames": ["a"]}, id="Nodes is absent"),
        pytest.param({"pod": POD, "nodes": None, "nodenames": ["a"]}, id="lower case"),
        pytest.param({"POD": POD, "NODENAMES": ["a"], "X": 1}, id="a key more"),
        pytest.param({"Pod": POD | {"x": [1]}, "NodeNames": ["a"]}, id="odd pod keys"),
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
    body = b'{"Pod":%b,"Nodes":{"items":[%b, %b]}}' % (
        json.dumps(POD).encode(),
        first,
        second,
    )

    args = decode_args(body)

    assert list(args.names) == ["a"]
    assert args.nodes is not None
    assert bytes(args.nodes["a"]) == first


def test_a_list_without_items_has_no_nodes() -> None:
    args = decode_args(body_of(Pod=POD, Nodes={"metadata": {}, "items": None}))

    assert (list(args.names), args.nodes) == ([], {})


def test_an_error_holds_every_fault_with_its_path() -> None:
    body = body_of(Pod=POD | {"spec": {"containers": [1, 2]}}, NodeNames=["a", 3])

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


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param(b'"labels":{"x":"\xff"}', id="no UTF-8"),
        pytest.param(b'"labels":' + b"[" * 50_000 + b"]" * 50_000, id="deep nesting"),
    ],
)
def test_an_object_that_cannot_be_read_at_all_is_refused(rest: bytes) -> None:
    with pytest.raises(WireError) as caught:
        decode_node(msgspec.Raw(b'{"metadata":{"name":"a",%b}}' % rest), "a")

    assert [fault.path for fault in caught.value.faults] == ["Nodes['a']"]


def test_the_faults_of_an_object_name_the_node() -> None:
    raw = msgspec.Raw(b'{"metadata":{"name":"a","labels":1},"spec":[]}')

    with pytest.raises(WireError) as caught:
        decode_node(raw, "a")

    assert [fault.path for fault in caught.value.faults] == [
        "Nodes['a'].metadata.labels",
        "Nodes['a'].spec",
    ]


@pytest.mark.parametrize(
    ("change", "paths"),
    [
        pytest.param({"metadata": {"uid": "u"}}, ["Pod.metadata.name"], id="no name"),
        pytest.param(
            {"metadata": {"name": "p", "uid": ""}}, ["Pod.metadata.uid"], id="no UID"
        ),
        pytest.param({"spec": {}}, ["Pod.spec.containers"], id="no containers"),
        pytest.param(
            {"spec": {"containers": []}}, ["Pod.spec.containers"], id="none of them"
        ),
        pytest.param(
            {"metadata": {"uid": 7}, "spec": []},
            ["Pod.metadata.uid", "Pod.spec", "Pod.metadata.name"],
            id="a fault is not told twice",
        ),
    ],
)
@pytest.mark.parametrize(
    "separators",
    [
        pytest.param((",", ":"), id="written as kube-scheduler does"),
        pytest.param((", ", ": "), id="with spaces"),
    ],
)
def test_what_is_no_pod_of_an_api_server_is_refused(
    change: dict[str, Any], paths: list[str], separators: tuple[str, str]
) -> None:
    body = json.dumps(
        {"Pod": POD | change, "Nodes": None, "NodeNames": ["a"]}, separators=separators
    )

    with pytest.raises(WireError) as caught:
        decode_args(body.encode())

    assert [fault.path for fault in caught.value.faults] == paths


HEAD = b'{"Pod":%b,"Nodes":null,' % json.dumps(POD).encode()
OTHER_POD = json.dumps(make_pod(name="other")).encode()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(HEAD + b'"NodeNames":["a"],"Pod":%b}' % OTHER_POD, id="the pod"),
        pytest.param(
            b'{"Pod":%b,' % OTHER_POD + HEAD[1:] + b'"NodeNames":["a"]}',
            id="the pod at the beginning",
        ),
        pytest.param(HEAD + b'"NodeNames":["a"],"NodeNames":["b"]}', id="the names"),
        pytest.param(HEAD + b'"NodeNames":["a"], "NodeNames":[]}', id="with a space"),
        pytest.param(HEAD + b'"NodeNames":[],"Nodes":null}', id="the nodes"),
        pytest.param(
            b'{"Pod":{"a":1,"Nodes":null,"NodeNames":["a"]},"Pod":%b,"Nodes":null,'
            b'"NodeNames":["a"]}' % OTHER_POD,
            id="the pod, with something like names in it",
        ),
        pytest.param(
            HEAD + b'"NodeNames":["a"],"\\u004eodeNames":["b"]}', id="an escaped key"
        ),
    ],
)
def test_a_key_that_stands_twice_is_refused(body: bytes) -> None:
    with pytest.raises(WireError, match="wanted each key once"):
        decode_args(body)


def test_within_the_pod_the_last_of_two_values_counts_as_for_go() -> None:
    twice = OTHER_POD.replace(
        b'"metadata":', b'"metadata":{"name":"first"},"metadata":'
    )
    assert twice != OTHER_POD
    body = b'{"Pod":%b,"Nodes":null,"NodeNames":["a"]}'

    assert decode_args(body % twice).pod == decode_args(body % OTHER_POD).pod


@pytest.mark.parametrize(
    "names",
    [b'["a]"]', b'["a"] ', b'["a","b"]', b"[]", b' ["a\\u005d"]', b'["]","],\\"[]"]'],
)
def test_names_are_the_same_whichever_way_a_body_takes(names: bytes) -> None:
    args = decode_args(HEAD + b'"NodeNames":%b}' % names)

    assert args.names == json.loads(names)


MANY: Final = 2_000_000

# The key "metadata", as a client may write it, too.
ESCAPED: Final = (
    b"met\\u0061data",
    b"\\u006detadata",
    b"\\u006Detadata",
    b"me\\u0074\\u0061data",
    b"metadat\\u0061",
    b"".join(b"\\u%04x" % letter for letter in b"metadata"),
)


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param(
            b'"Nodes":null,"NodeNames":["n"%b]' % (b',"n"' * MANY), id="names"
        ),
        pytest.param(b'"nodenames":["n"%b]' % (b',"n"' * MANY), id="in small letters"),
        pytest.param(b'"NodeNames":[0%b]' % (b",0" * MANY), id="that are none"),
        pytest.param(b'"NodeNames":[{}%b]' % (b",{}" * MANY), id="that are objects"),
        pytest.param(
            b'"Nodes":{"items":[{"metadata":{"name":"n"}}%b]}'
            % (b',{"metadata":{"name":"n"}}' * MANY),
            id="nodes",
        ),
        pytest.param(
            b'"Nodes":{"items":[%b]}'
            % b",".join(b'{"met\\u0061data":{"name":"n%d"}}' % i for i in range(200)),
            id="nodes, spelt otherwise",
        ),
        *(
            pytest.param(
                b'"Nodes":{"items":[%b%b]}' % (item, (b"," + item) * (MANY // 4)),
                id=f"nodes with {spelling.decode()}",
            )
            for spelling in ESCAPED
            for item in [b'{"%b":{"name":"n"}}' % spelling]
        ),
        pytest.param(
            b'"Nodes":{"items":[{"metadata":5}%b]}' % (b',{"metadata":5}' * MANY),
            id="nodes without a name",
        ),
    ],
)
def test_more_nodes_than_any_cluster_has_are_not_decoded(keys: bytes) -> None:
    body = HEAD[: HEAD.index(b'"Nodes"')] + keys + b"}"
    tracemalloc.start()
    try:
        with pytest.raises(TooLargeError, match="wanted at most 100 nodes, got more"):
            decode_args(body, 100)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 3 * len(body) + 2**20  # copies of the bytes, and no object


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param(
            {"Nodes": None, "NodeNames": [f"n{i}" for i in range(100)]}, id="names"
        ),
        pytest.param({"nodenames": [f"n{i}" for i in range(100)]}, id="small letters"),
        pytest.param(
            {"Nodes": {"items": [make_node(name=f"n{i}") for i in range(100)]}},
            id="nodes",
        ),
    ],
)
def test_as_many_nodes_as_there_may_be_are_read(keys: dict[str, Any]) -> None:
    args = decode_args(body_of(Pod=POD, **keys), 100)

    assert list(args.names) == [f"n{i}" for i in range(100)]


def test_a_list_of_what_is_no_node_ends_at_the_first() -> None:
    body = b'{"Pod":{},"Nodes":{"items":[{}%b]}}' % (b",{}" * MANY)
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match=r"Nodes\.items: .*metadata"):
            decode_args(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 3 * len(body) + 2**20


# --- encoding ----------------------------------------------------------------
