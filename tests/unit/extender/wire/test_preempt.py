import json
from typing import Any, Final

import pytest

from extender.wire.fields import MAX_FAULTS, TooLargeError
from extender.wire.filter import WireError
from extender.wire.preempt import Victims, decode_preempt_args, encode_preempt_result
from tests.builders import make_pod

POD = make_pod(name="high", gpus=8)


def body_of(**keys: Any) -> bytes:
    """Return a body; keys that are not given are absent."""
    return json.dumps({"Pod": POD, **keys}).encode()


def meta(victims: bytes) -> bytes:
    """Return a body with these victims by UID on the node ``a``, as raw JSON."""
    return b'{"Pod":%b,"NodeNameToMetaVictims":{"a":%b}}' % (
        json.dumps(POD).encode(),
        victims,
    )


def full(victims: bytes) -> bytes:
    """Return a body with these victims as whole pods, as raw JSON."""
    return meta(victims).replace(b"MetaVictims", b"Victims")


# --- decoding ------------------------------------------------------------------


def test_victims_by_uid_are_read_in_their_order() -> None:
    args = decode_preempt_args(
        body_of(
            NodeNameToVictims=None,
            NodeNameToMetaVictims={
                "b": {"Pods": [{"UID": "2"}, {"UID": "1"}], "NumPDBViolations": 1},
                "a": {"Pods": [], "NumPDBViolations": 0},
            },
        )
    )

    assert args.pod.metadata.name == "high"
    assert list(args.victims.items()) == [
        ("b", Victims(("2", "1"), 1)),
        ("a", Victims((), 0)),
    ]


def test_victims_as_whole_pods_are_read() -> None:
    victims = [make_pod(name="x", uid="x", gpus=1, node_name="a")]
    args = decode_preempt_args(
        body_of(
            NodeNameToVictims={"a": {"Pods": victims, "NumPDBViolations": 2}},
            NodeNameToMetaVictims=None,
        )
    )

    assert args.victims == {"a": Victims(("x",), 2)}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            meta(b'{"pods":[{"uid":"u"}],"numpdbviolations":0}').replace(
                b"NodeNameToMetaVictims", b"nodenametometavictims"
            ),
            id="lower case",
        ),
        pytest.param(
            meta(b'{"PODS":[{"Uid":"u"}]}').replace(b'"Pod"', b'"pod"'),
            id="mixed case, no number",
        ),
        pytest.param(
            meta(b'{"Pods":[{"UID":"u","x":1}],"NumPDBViolations":null,"y":[]}'),
            id="more keys, null for the number",
        ),
        pytest.param(
            full(b'{"pods":[{"metadata":{"uid":"u"},"spec":7}]}'),
            id="whole pods are read as far as their UID",
        ),
    ],
)
def test_unusual_but_legal_bodies(body: bytes) -> None:
    assert decode_preempt_args(body).victims == {"a": Victims(("u",), 0)}


@pytest.mark.parametrize(
    "victims", [b"{}", b'{"Pods":null}', b'{"Pods":[]}', b'{"Pods": null }']
)
def test_an_empty_list_of_victims_is_read_in_every_spelling(victims: bytes) -> None:
    assert decode_preempt_args(meta(victims)).victims == {"a": Victims(())}
    assert decode_preempt_args(full(victims)).victims == {"a": Victims(())}


def test_no_candidates_are_no_fault() -> None:
    assert decode_preempt_args(body_of(NodeNameToMetaVictims={})).victims == {}


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        pytest.param(b"", "body: input data was truncated", id="empty"),
        pytest.param(b"[]", "body: wanted object, got array", id="list"),
        pytest.param(
            b"{}",
            "Pod: wanted an object, got none; NodeNameToMetaVictims: wanted either"
            " NodeNameToMetaVictims or NodeNameToVictims, got neither",
            id="nothing in it",
        ),
        pytest.param(
            body_of(NodeNameToMetaVictims={}, NodeNameToVictims={}),
            "NodeNameToMetaVictims: wanted either NodeNameToMetaVictims or"
            " NodeNameToVictims, got both",
            id="both forms",
        ),
        pytest.param(
            body_of(NodeNameToMetaVictims=[]),
            "NodeNameToMetaVictims: wanted object, got array",
            id="list of candidates",
        ),
        pytest.param(
            meta(b"null"),
            "NodeNameToMetaVictims['a']: wanted object, got null",
            id="null for a node's victims",
        ),
        pytest.param(
            meta(b'{"Pods":[null,7,{},{"UID":7},{"UID":""},{"UID":null}]}'),
            "NodeNameToMetaVictims['a'].Pods[0]: wanted object, got null;"
            " NodeNameToMetaVictims['a'].Pods[1]: wanted object, got int;"
            " NodeNameToMetaVictims['a'].Pods[2].UID: wanted a UID, got none;"
            " NodeNameToMetaVictims['a'].Pods[3].UID: wanted str, got int;"
            " NodeNameToMetaVictims['a'].Pods[4].UID: wanted a UID, got none;"
            " NodeNameToMetaVictims['a'].Pods[5].UID: wanted str, got null",
            id="what names no pod",
        ),
        pytest.param(
            full(b'{"Pods":[null,{},{"metadata":{"uid":7}},{"metadata":{"uid":""}}]}'),
            "NodeNameToVictims['a'].Pods[0]: wanted object, got null;"
            " NodeNameToVictims['a'].Pods[1]: object missing required field metadata;"
            " NodeNameToVictims['a'].Pods[2]: wanted str, got int - at $.metadata.uid;"
            " NodeNameToVictims['a'].Pods[3].metadata.uid: wanted a UID, got none",
            id="objects that are no pods",
        ),
        pytest.param(
            meta(b'{"Pods":{},"NumPDBViolations":1.0}'),
            "NodeNameToMetaVictims['a'].NumPDBViolations: wanted int, got float;"
            " NodeNameToMetaVictims['a'].Pods: wanted array, got object",
            id="wrong types",
        ),
        pytest.param(
            meta(b'{"NumPDBViolations":9223372036854775808}'),
            "NodeNameToMetaVictims['a'].NumPDBViolations: wanted int <= 9223372036854",
            id="a number beyond 64 bits",
        ),
        pytest.param(
            meta(b'{"Pods":[],"pods":[]}'),
            "NodeNameToMetaVictims['a']: wanted each key once, got 'Pods, pods'",
            id="a key in two casings",
        ),
        pytest.param(
            meta(b'{},"b":{},"a":{"Pods":[{"UID":"u"}]}'),
            "NodeNameToMetaVictims['a']: wanted each node once, got it twice",
            id="a node twice",
        ),
        pytest.param(
            b'{"Pod":{"metadata":{"uid":7},"spec":{"containers":[{},7]}},'
            b'"NodeNameToMetaVictims":{"a":7}}',
            "Pod.metadata.uid: wanted str, got int: 7;"
            " Pod.spec.containers[1]: wanted object, got int: 7;"
            " Pod.metadata.name: wanted a name, got none;"
            " NodeNameToMetaVictims['a']: wanted object, got int",
            id="every fault of the pod and of the victims",
        ),
        pytest.param(
            meta(b"[" * 50_000 + b"]" * 50_000),
            "body: maximum recursion depth exceeded",
            id="deep nesting",
        ),
    ],
)
def test_a_bad_body_is_refused_with_all_its_faults(body: bytes, complaint: str) -> None:
    with pytest.raises(WireError) as caught:
        decode_preempt_args(body)

    assert str(caught.value).startswith(complaint)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(meta(b'{"Pods":[%b7]}' % (b"7," * 10_000)), id="victims"),
        pytest.param(
            meta(b"7," + b",".join(b'"n%d":7' % i for i in range(10_000))), id="nodes"
        ),
    ],
)
def test_of_a_body_that_is_all_faults_some_are_told(body: bytes) -> None:
    with pytest.raises(WireError) as caught:
        decode_preempt_args(body)

    assert len(caught.value.faults) == MAX_FAULTS
    assert str(caught.value).endswith("; and many more")


# --- encoding ------------------------------------------------------------------


def test_the_answer_has_the_form_of_uids_and_no_null() -> None:
    kept = {"a": Victims(("1", "2"), 1), "é\u2028": Victims(())}

    assert encode_preempt_result(kept) == (
        b'{"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"1"},{"UID":"2"}],'
        b'"NumPDBViolations":1},"\xc3\xa9\xe2\x80\xa8":{"Pods":[],'
        b'"NumPDBViolations":0}}}'
    )


def test_nothing_kept_is_an_empty_map() -> None:
    assert encode_preempt_result({}) == b'{"NodeNameToMetaVictims":{}}'


MANY: Final = 1_000_000


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            meta(b'{"Pods":[{"UID":"u"}%b]}' % (b',{"UID":"u"}' * MANY)),
            id="victims on one node",
        ),
        pytest.param(
            full(
                b'{"Pods":[{"metadata":{"uid":"u"}}%b]}'
                % (b',{"metadata":{"uid":"u"}}' * MANY)
            ),
            id="victims as whole pods",
        ),
        pytest.param(
            full(
                b'{"Pods":[{"met\\u0061data":{"uid":"u"}}%b]}'
                % (b',{"met\\u0061data":{"uid":"u"}}' * MANY)
            ),
            id="victims as whole pods, spelt otherwise",
        ),
        pytest.param(
            meta(b"{}%b" % (b',"n":{}' * MANY)), id="one node again and again"
        ),
        pytest.param(
            meta(b"{}," + b",".join(b'"n%d":{}' % i for i in range(100))), id="one more"
        ),
        pytest.param(
            full(b"{}," + b",".join(b'"n%d":{}' % i for i in range(100))),
            id="one more, with whole pods",
        ),
        pytest.param(
            meta(b"{}," + b",".join(b'"n%d":7' % i for i in range(200_000))),
            id="nodes without victims",
        ),
    ],
)
def test_more_than_any_cluster_has_is_not_decoded(body: bytes) -> None:
    with pytest.raises(TooLargeError, match=r"wanted at most 1[60]*00 (nodes|victims)"):
        decode_preempt_args(body, 100)


def test_as_many_nodes_as_there_may_be_are_read() -> None:
    body = meta(b"{}," + b",".join(b'"n%d":{}' % i for i in range(99)))

    assert len(decode_preempt_args(body, 100).victims) == 100
