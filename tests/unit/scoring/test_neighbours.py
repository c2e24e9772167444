from collections.abc import Mapping
from typing import Any, Final

import pytest

from scoring.exclusions import ANY_ADDRESS, HostPort, LabelCondition, RepelledPods
from scoring.neighbours import Newcomer, labels_of_repelled, look_around, matches
from tests.builders import Tree, make_node, make_pod, make_snapshot

HOST: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
NOISY: Final = {"matchLabels": {"noisy": "true"}}


@pytest.mark.parametrize(
    ("one", "other", "is_conflict"),
    [
        (HostPort(80), HostPort(80), True),
        (HostPort(80), HostPort(81), False),
        (HostPort(80), HostPort(80, "UDP"), False),
        (HostPort(80, address="10.0.0.1"), HostPort(80, address="10.0.0.2"), False),
        (HostPort(80, address="10.0.0.1"), HostPort(80, address="10.0.0.1"), True),
        (HostPort(80, address="10.0.0.1"), HostPort(80, address=ANY_ADDRESS), True),
    ],
)
def test_two_ports_of_one_host_conflict(
    one: HostPort, other: HostPort, is_conflict: bool
) -> None:
    assert one.conflicts_with(other) is is_conflict
    assert other.conflicts_with(one) is is_conflict


NAME: Final = LabelCondition("kubernetes.io/metadata.name", "In", ("ml",))
TEAM: Final = LabelCondition("team", "Exists")
IS_NOISY: Final = LabelCondition("noisy", "In", ("true",))


@pytest.mark.parametrize(
    ("namespaces", "further", "conditions", "verdict"),
    [
        pytest.param(("ml",), None, (IS_NOISY,), True, id="named namespace"),
        pytest.param(("ml",), None, (), True, id="every pod"),
        pytest.param(("ml",), None, None, False, id="no pod"),
        pytest.param(("web",), None, (IS_NOISY,), False, id="another namespace"),
        pytest.param((), (), (IS_NOISY,), True, id="every namespace"),
        pytest.param((), (NAME,), (IS_NOISY,), True, id="namespace by its name"),
        pytest.param(
            (), (LabelCondition(NAME.key, "In", ("web",)), TEAM), (), False, id="not it"
        ),
        pytest.param((), (TEAM,), (IS_NOISY,), None, id="nobody here knows"),
        pytest.param(
            (),
            (TEAM,),
            (LabelCondition("noisy", "DoesNotExist"),),
            False,
            id="no label",
        ),
        pytest.param(
            ("ml",),
            None,
            (LabelCondition("a", "NotIn", ("b",)),),
            True,
            id="lacking it",
        ),
    ],
)
def test_a_pod_is_one_of_those_that_are_repelled(
    namespaces: tuple[str, ...],
    further: tuple[LabelCondition, ...] | None,
    conditions: tuple[LabelCondition, ...] | None,
    verdict: bool | None,
) -> None:
    term = RepelledPods(HOST, namespaces, further, conditions)

    assert matches(term, Newcomer("u", "ml", {"noisy": "true"})) is verdict


def repelling(name: str, node: str, term: Mapping[str, Any] | None = None) -> Tree:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    given = {"labelSelector": NOISY, "topologyKey": HOST, **(term or {})}
    affinity = {"podAntiAffinity": {required: [given]}}
    return make_pod(name=name, node_name=node, spec={"affinity": affinity})


def serving(name: str, node: str, port: int) -> Tree:
    container = {"name": "c", "ports": [{"containerPort": 1, "hostPort": port}]}
    return make_pod(name=name, node_name=node, containers=[container])


NODES: Final = [
    make_node(name="a", labels={ZONE: "1"}),
    make_node(name="b", labels={ZONE: "1"}),
    make_node(name="c", labels={ZONE: "2"}),
    make_node(name="d"),
]
NEWCOMER: Final = Newcomer("u", "default", {"noisy": "true"}, (HostPort(80),))


def test_nodes_are_kept_from_a_pod_by_ports_and_by_zone() -> None:
    pods = [
        serving("s", "b", 80),
        serving("other", "a", 81),
        repelling("r", "a", {"topologyKey": ZONE}),
        repelling("by-host", "c"),
        repelling("where no label is", "d", {"topologyKey": ZONE}),
        repelling("of others", "d", {"labelSelector": None}),
        serving("on no node that is here", "gone", 80),
    ]

    found = look_around(make_snapshot(nodes=NODES, pods=pods), NEWCOMER)

    assert found.taken.tolist() == [False, True, False, False]
    assert found.repelled.tolist() == [True, True, True, False]
    assert {column: pod.name for column, pod in found.takers.items()} == {1: "s"}
    names = {column: pod.name for column, (pod, _) in found.repellers.items()}
    assert names == {0: "r", 1: "r", 2: "by-host"}
    assert found.is_known


def test_a_pod_does_not_keep_itself_away() -> None:
    pods = [serving("s", "a", 80), repelling("r", "b")]
    snapshot = make_snapshot(nodes=NODES, pods=pods)

    for uid, mask in (
        ("uid-of-default-s", "taken"),
        ("uid-of-default-r", "repelled"),
    ):
        found = look_around(snapshot, Newcomer(uid, "default", NEWCOMER.labels, ()))
        assert not getattr(found, mask).any()


def test_what_cannot_be_decided_is_known_to_be_unknown() -> None:
    selector = {"matchLabels": {"team": "x"}}
    pod = repelling("r", "a", {"namespaceSelector": selector})

    found = look_around(make_snapshot(nodes=NODES, pods=[pod]), NEWCOMER)

    assert not found.is_known
    assert not found.repelled.any()


def test_the_labels_that_running_pods_read_are_those_of_their_terms() -> None:
    serves = make_snapshot(nodes=NODES, pods=[serving("s", "a", 80)])
    repels = make_snapshot(
        nodes=NODES,
        pods=[repelling("r", "a"), repelling("q", "b", {"labelSelector": None})],
    )

    assert labels_of_repelled(serves) is None
    assert labels_of_repelled(repels) == frozenset({"noisy"})
