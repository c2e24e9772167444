from typing import Any

import pytest

import cluster.ledger.pods
from cluster.ledger.changes import (
    Change,
    DeviceClassesListed,
    NodeGone,
    NodeSeen,
    NodesListed,
    PodGone,
    PodSeen,
    PodsListed,
)
from cluster.ledger.ledger import Ledger
from cluster.ledger.pods import MAX_BINDINGS, MAX_RECENT_PODS, OverlaidMap
from scoring.snapshot import Snapshot
from tests.builders import (
    GPU,
    Tree,
    make_ledger,
    make_node,
    make_node_record,
    make_pod,
    make_pod_record,
)

MIG = "nvidia.com/mig-1g.10gb"


def node_seen(**node: Any) -> NodeSeen:
    return NodeSeen(make_node_record(make_node(**node)))


def pod_seen(**pod: Any) -> PodSeen:
    return PodSeen(make_pod_record(make_pod(**pod)))


def pods_listed(*pods: Tree) -> PodsListed:
    return PodsListed(tuple(make_pod_record(pod) for pod in pods))


def free(snapshot: Snapshot, resource: str = GPU) -> dict[str, int]:
    amounts = snapshot.free(resource).tolist()
    return dict(zip(snapshot.nodes.names, amounts, strict=True))


def test_a_ledger_is_synced_when_nodes_and_pods_are_listed() -> None:
    ledger = Ledger()
    synced = [ledger.is_synced]
    for change in (NodesListed(()), PodsListed(())):
        ledger.apply(change)
        synced.append(ledger.is_synced)

    assert synced == [False, False, True]


def test_single_objects_do_not_make_it_synced() -> None:
    ledger = Ledger()

    ledger.apply(node_seen(gpus=8))
    ledger.apply(pod_seen(gpus=1))

    assert not ledger.is_synced
    assert ledger.counts() == {"nodes": 1, "pods": 1}


def test_generations_increase_although_nothing_changed() -> None:
    ledger = make_ledger(nodes=[make_node()])

    assert [ledger.build().generation for _ in range(3)] == [1, 2, 3]


def test_an_earlier_snapshot_does_not_change() -> None:
    ledger = make_ledger(nodes=[make_node(gpus=8)])
    before = ledger.build()

    ledger.apply(pod_seen(gpus=3, node_name="node-1"))
    ledger.apply(node_seen(gpus=4))
    after = ledger.build()

    assert (free(before), free(after)) == ({"node-1": 8}, {"node-1": 1})
    assert (len(before.bound_pods), len(after.bound_pods)) == (0, 1)


def test_a_pod_counts_once_however_often_it_is_seen() -> None:
    ledger = make_ledger(nodes=[make_node(gpus=8)])

    for _ in range(3):
        ledger.apply(pod_seen(gpus=3, node_name="node-1"))

    assert free(ledger.build()) == {"node-1": 5}


def test_a_pod_is_known_by_its_uid_not_by_its_name() -> None:
    ledger = make_ledger(nodes=[make_node(gpus=8)])

    ledger.apply(pod_seen(name="same", uid="a", gpus=1, node_name="node-1"))
    ledger.apply(pod_seen(name="same", uid="b", gpus=2, node_name="node-1"))
    ledger.apply(PodGone("a"))

    assert free(ledger.build()) == {"node-1": 6}


def test_a_pods_old_share_is_taken_out_before_its_new_one_goes_in() -> None:
    ledger = make_ledger(nodes=[make_node(gpus=8)])

    ledger.apply(pod_seen(gpus=3, node_name="node-1"))
    ledger.apply(pod_seen(gpus=5, node_name="node-1"))

    assert free(ledger.build()) == {"node-1": 3}


def test_a_pending_pod_that_is_bound_is_no_longer_pending() -> None:
    ledger = make_ledger(nodes=[make_node(gpus=8)], pods=[make_pod(gpus=3)])
    before = ledger.build()

    ledger.apply(pod_seen(gpus=3, node_name="node-1"))
    after = ledger.build()

    assert ([pod.uid for pod in before.pending], free(before)) == (
        ["uid-of-default-pod-1"],
        {"node-1": 8},
    )
    assert (after.pending, free(after)) == ((), {"node-1": 5})


def test_a_pod_counts_until_its_phase_is_terminal() -> None:
    ledger = make_ledger(
        nodes=[make_node(gpus=8)],
        pods=[
            make_pod(name="a", gpus=4, node_name="node-1", phase="Succeeded"),
            make_pod(name="b", gpus=4, node_name="node-1", phase="Failed"),
            make_pod(name="c", gpus=2, node_name="node-1", phase="Running"),
        ],
    )
    before = free(ledger.build())

    ledger.apply(pod_seen(name="c", gpus=2, node_name="node-1", phase="Succeeded"))
    after = ledger.build()

    assert (before, free(after)) == ({"node-1": 6}, {"node-1": 8})
    assert dict(after.bound_pods) == {}


def test_a_deletion_timestamp_frees_nothing_until_the_pod_is_gone() -> None:
    ending: Tree = {"metadata": {"deletionTimestamp": "2026-11-27T12:00:00Z"}}
    pod = make_pod(gpus=8, node_name="node-1", **ending)
    ledger = make_ledger(nodes=[make_node(gpus=8)], pods=[pod])
    restarted = make_ledger(nodes=[make_node(gpus=8)], pods=[pod])

    assert free(ledger.build()) == free(restarted.build()) == {"node-1": 0}

    ledger.apply(PodGone("uid-of-default-pod-1"))

    assert free(ledger.build()) == {"node-1": 8}


def test_a_pod_that_is_gone_twice_is_taken_out_once() -> None:
    ledger = make_ledger(
        nodes=[make_node(gpus=8)], pods=[make_pod(gpus=3, node_name="node-1", uid="u")]
    )

    for _ in range(2):
        ledger.apply(PodGone("u"))

    assert free(ledger.build()) == {"node-1": 8}


def test_a_terminal_pod_that_goes_changes_nothing() -> None:
    pod = make_pod(gpus=3, node_name="node-1", phase="Failed", uid="u")
    ledger = make_ledger(nodes=[make_node(gpus=8)], pods=[pod])

    ledger.apply(PodGone("u"))

    assert free(ledger.build()) == {"node-1": 8}
    assert ledger.counts()["pods"] == 0


def test_a_pod_on_an_unknown_node_waits_for_it() -> None:
    ledger = make_ledger(pods=[make_pod(gpus=3, node_name="later")])
    before = ledger.build()

    ledger.apply(node_seen(name="later", gpus=8))

    assert free(before) == {}
    assert free(ledger.build()) == {"later": 5}


def test_a_node_that_goes_and_returns_finds_its_pods() -> None:
    ledger = make_ledger(
        nodes=[make_node(name="a", gpus=8), make_node(name="b", gpus=8)],
        pods=[make_pod(gpus=3, node_name="a")],
    )
    seen = [free(ledger.build())]
    for change in (NodeGone("a"), NodeGone("a"), node_seen(name="a", gpus=8)):
        ledger.apply(change)
        seen.append(free(ledger.build()))

    assert seen == [{"a": 5, "b": 8}, {"b": 8}, {"b": 8}, {"b": 8, "a": 5}]


def test_devices_that_go_and_come_back_need_no_restart() -> None:
    ledger = make_ledger(
        nodes=[make_node(gpus=8)], pods=[make_pod(gpus=4, node_name="node-1")]
    )
    amounts: list[int] = []
    for gpus in (8, 0, None, 8):
        ledger.apply(node_seen(gpus=gpus))
        amounts.append(free(ledger.build())["node-1"])

    assert amounts == [4, 0, 0, 4]


def test_a_relist_of_pods_replaces() -> None:
    ledger = make_ledger(
        nodes=[make_node(gpus=8)],
        pods=[make_pod(name="p1", gpus=8, node_name="node-1")],
    )

    ledger.apply(pods_listed(make_pod(name="p2", gpus=1, node_name="node-1")))

    assert free(ledger.build()) == {"node-1": 7}
    assert ledger.counts() == {"nodes": 1, "pods": 1}


def test_a_relist_of_nodes_replaces() -> None:
    ledger = make_ledger(nodes=[make_node(name="a", gpus=8), make_node(name="b")])

    ledger.apply(NodesListed((make_node_record(make_node(name="c", gpus=1)),)))

    assert free(ledger.build()) == {"c": 1}


def test_a_relist_of_device_classes_replaces() -> None:
    ledger = make_ledger(device_class_resources=[GPU])

    ledger.apply(DeviceClassesListed(frozenset({MIG})))

    assert ledger.build().device_class_resources == frozenset({MIG})


def test_an_object_of_which_a_part_did_not_decode_keeps_its_last_record() -> None:
    ledger = make_ledger(
        nodes=[make_node(gpus=8)], pods=[make_pod(gpus=3, node_name="node-1")]
    )
    node, pod = make_node_record(make_node()), make_pod_record(make_pod())

    ledger.apply(NodeSeen(node, is_partial=True))
    ledger.apply(PodSeen(pod, is_partial=True))
    ledger.apply(NodesListed((node,), frozenset({node.name})))
    ledger.apply(PodsListed((pod,), frozenset({pod.uid})))

    assert free(ledger.build()) == {"node-1": 5}


def test_a_new_object_counts_with_the_part_that_did_decode() -> None:
    ledger = make_ledger()

    ledger.apply(NodeSeen(make_node_record(make_node(gpus=8)), is_partial=True))
    pod = make_pod_record(make_pod(gpus=3, node_name="node-1"))
    ledger.apply(PodSeen(pod, is_partial=True))

    assert free(ledger.build()) == {"node-1": 5}


@pytest.mark.parametrize(
    ("change", "has_changes"),
    [
        pytest.param(pod_seen(gpus=3, node_name="node-1"), False, id="same pod"),
        pytest.param(node_seen(gpus=8), False, id="same node"),
        pytest.param(PodGone("ghost"), False, id="unknown pod gone"),
        pytest.param(NodeGone("ghost"), False, id="unknown node gone"),
        pytest.param(
            DeviceClassesListed(frozenset({GPU})), False, id="same device classes"
        ),
        pytest.param(
            pod_seen(name="b", gpus=1, phase="Failed"), False, id="new terminal pod"
        ),
        pytest.param(pod_seen(name="b", gpus=1), True, id="new pending pod"),
        pytest.param(
            pod_seen(gpus=3, node_name="node-1", phase="Failed"), True, id="pod ends"
        ),
        pytest.param(PodGone("uid-of-default-pod-1"), True, id="pod gone"),
        pytest.param(node_seen(gpus=7), True, id="changed node"),
        pytest.param(NodeGone("node-1"), True, id="node gone"),
        pytest.param(DeviceClassesListed(frozenset()), True, id="device class gone"),
    ],
)
def test_changes_that_make_no_difference_are_told_apart(
    change: Change, has_changes: bool
) -> None:
    ledger = make_ledger(
        nodes=[make_node(gpus=8)],
        pods=[make_pod(gpus=3, node_name="node-1")],
        device_class_resources=[GPU],
    )
    ledger.build()

    ledger.apply(change)

    assert ledger.has_changes is has_changes


def test_a_fresh_ledger_has_something_to_tell() -> None:
    assert Ledger().has_changes


def test_arrivals_are_numbered_and_begin_after_the_first_list() -> None:
    ledger = make_ledger(nodes=[make_node(gpus=8)], pods=[make_pod(name="old", gpus=1)])

    ledger.apply(pod_seen(name="old", gpus=1))
    ledger.apply(
        pod_seen(
            name="new",
            namespace="ml",
            gpus=2,
            owner_uid="job",
            metadata={"generateName": "new-"},
        )
    )
    ledger.apply(pod_seen(name="plain", cpu="1"))
    ledger.apply(pod_seen(name="done", gpus=1, phase="Failed"))
    ledger.apply(pods_listed(make_pod(name="missed", gpus=1, node_name="node-1")))
    arrivals = ledger.build().recent_pods

    assert [(item.sequence, item.name) for item in arrivals] == [
        (1, "new"),
        (2, "missed"),
    ]
    first = arrivals[0]
    assert (first.namespace, first.generate_name, first.owner_uid) == (
        "ml",
        "new-",
        "job",
    )
    assert dict(first.request)[GPU] == 2
    assert first.uid == "uid-of-ml-new"
    assert first.owner is not None
    assert (first.owner.kind, first.owner.name) == ("Job", "owner")


def test_only_the_latest_arrivals_are_kept() -> None:
    ledger = make_ledger()

    for number in range(MAX_RECENT_PODS + 3):
        ledger.apply(pod_seen(name=str(number), gpus=1))
    arrivals = ledger.build().recent_pods

    assert len(arrivals) == MAX_RECENT_PODS
    assert (arrivals[0].sequence, arrivals[-1].sequence) == (4, MAX_RECENT_PODS + 3)


def test_a_pod_that_gets_its_node_is_a_binding_and_no_other_is() -> None:
    ledger = make_ledger(
        nodes=[make_node(gpus=8)],
        pods=[make_pod(name="old", gpus=1), make_pod(name="own", node_name="node-1")],
    )

    for name in ("old", "new", "done", "plain"):
        ledger.apply(pod_seen(name=name, gpus=None if name == "plain" else 1))
    spec = {"schedulerName": "gpu-scheduler"}
    ledger.apply(pod_seen(name="old", gpus=1, node_name="node-1", spec=spec))
    ledger.apply(pod_seen(name="plain", node_name="node-1"))
    ledger.apply(pod_seen(name="born-bound", gpus=1, node_name="node-1"))
    ledger.apply(pod_seen(name="done", gpus=1, node_name="node-1", phase="Failed"))
    before = ledger.build().bindings
    ledger.apply(pod_seen(name="old", gpus=1, node_name="node-1", labels={"a": "b"}))
    ledger.apply(pod_seen(name="new", gpus=2, node_name="node-1"))
    after = ledger.build().bindings

    assert [(item.sequence, item.uid, item.scheduler_name) for item in before] == [
        (1, "uid-of-default-old", "gpu-scheduler")
    ]
    assert [item.uid for item in after[1:]] == ["uid-of-default-new"]
    assert dict(after[1].request)[GPU] == 2


def test_only_the_latest_bindings_are_kept() -> None:
    ledger = make_ledger(nodes=[make_node(gpus=8)])

    for number in range(MAX_BINDINGS + 3):
        ledger.apply(pod_seen(name=str(number), gpus=1))
        ledger.apply(pod_seen(name=str(number), gpus=1, node_name="node-1"))
    bindings = ledger.build().bindings

    assert len(bindings) == MAX_BINDINGS
    assert (bindings[0].sequence, bindings[-1].sequence) == (4, MAX_BINDINGS + 3)


def test_shares_are_those_of_bound_pods_with_a_managed_resource() -> None:
    snapshot = make_ledger(
        nodes=[make_node(gpus=8)],
        pods=[
            make_pod(name="bound", uid="bound", gpus=3, node_name="node-1"),
            make_pod(name="plain", cpu="1", node_name="node-1"),
            make_pod(name="pending", gpus=1),
        ],
    ).build()

    assert list(snapshot.bound_pods) == ["bound"]
    assert snapshot.bound_pods["bound"].node_name == "node-1"
    assert dict(snapshot.bound_pods["bound"].request)[GPU] == 3


def test_shares_are_right_while_their_base_is_made_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster.ledger.pods, "MAX_OVERLAY", 3)
    ledger = make_ledger(nodes=[make_node(gpus=8)])
    expected: dict[str, str] = {}
    kept: list[tuple[Snapshot, dict[str, str]]] = []

    for number in range(20):
        uid = f"u{number}"
        ledger.apply(pod_seen(name=uid, uid=uid, gpus=1, node_name="node-1"))
        expected[uid] = "node-1"
        if number % 3 == 2:
            ledger.apply(PodGone(f"u{number - 2}"))
            del expected[f"u{number - 2}"]
        kept.append((ledger.build(), dict(expected)))

    for snapshot, wanted in kept:
        held = {uid: share.node_name for uid, share in snapshot.bound_pods.items()}
        assert held == wanted
        assert len(snapshot.bound_pods) == len(wanted)


def test_a_share_that_is_gone_is_not_in_the_map() -> None:
    record = make_pod_record(make_pod(gpus=1, node_name="a"))
    shares = OverlaidMap(
        {"a": record, "b": record}, {"b": None, "c": record, "d": None}
    )

    assert list(shares) == ["a", "c"]
    assert "b" not in shares
    assert "d" not in shares
    with pytest.raises(KeyError):
        shares["b"]
    with pytest.raises(KeyError):
        shares["ghost"]


def test_amounts_above_the_cap_are_shown_as_the_cap() -> None:
    most = 2**63 - 1
    pods = [
        make_pod(name=name, uid=name, gpus=most, node_name="node-1") for name in "abc"
    ]
    ledger = make_ledger(nodes=[make_node(gpus=most)], pods=pods)
    row = ledger.build().row_of(GPU)
    assert row is not None

    seen = [int(ledger.build().requested[row, 0])]
    for uid in "abc":
        ledger.apply(PodGone(uid))
        seen.append(int(ledger.build().requested[row, 0]))

    assert seen == [most, most, most, 0]


def test_what_a_node_offers_is_capacity_or_allocatable() -> None:
    snapshot = make_ledger(
        nodes=[
            make_node(name="sick", gpus=0, capacity={GPU: "8"}),
            make_node(name="none"),
            make_node(name="zero", gpus=0),
            make_node(name="odd", gpus=8, capacity={GPU: "0"}),
        ]
    ).build()
    row = snapshot.row_of(GPU)
    assert row is not None

    assert snapshot.offered[row].tolist() == [True, False, False, True]
    assert snapshot.allocatable[row].tolist() == [0, 0, 0, 8]


def test_pods_that_keep_others_away_are_known_while_they_are_bound() -> None:
    ported = {"name": "c", "ports": [{"containerPort": 1, "hostPort": 80}]}
    ledger = make_ledger(nodes=[make_node(name="a")])
    seen = []
    for more in ({}, {"node_name": "a"}, {"node_name": "a", "phase": "Failed"}):
        ledger.apply(pod_seen(name="p", containers=[ported], **more))
        ledger.apply(pod_seen(name="plain", gpus=1, node_name="a"))
        seen.append([pod.name for pod in ledger.build().excluding])

    assert seen == [[], ["p"], []]


def test_cordoned_and_unready_nodes_are_not_schedulable() -> None:
    snapshot = make_ledger(
        nodes=[
            make_node(name="a"),
            make_node(name="b", is_cordoned=True),
            make_node(name="c", is_ready=False),
        ]
    ).build()

    assert snapshot.schedulable.tolist() == [True, False, False]


def test_label_columns_follow_changes_of_the_labels() -> None:
    ledger = make_ledger(
        nodes=[
            make_node(name="a", labels={"accelerator": "v100"}),
            make_node(name="b", labels={"accelerator": "v100"}),
            make_node(name="c"),
        ]
    )

    def values(snapshot: Snapshot) -> list[str]:
        column = snapshot.labels["accelerator"]
        value_of = {code: value for value, code in column.code_of.items()}
        return [value_of.get(int(code), "") for code in column.codes]

    before = ledger.build()
    ledger.apply(node_seen(name="b", labels={"accelerator": "t4"}))
    ledger.apply(node_seen(name="c", labels={"accelerator": "v100"}))
    after = ledger.build()

    assert values(before) == ["v100", "v100", ""]
    assert values(after) == ["v100", "t4", "v100"]


def test_names_are_indexed_again_only_when_the_nodes_change() -> None:
    ledger = make_ledger(nodes=[make_node(name="a", gpus=1)])
    first = ledger.build()
    ledger.apply(pod_seen(gpus=1, node_name="a"))
    with_pod = ledger.build()
    ledger.apply(node_seen(name="a", gpus=1, resources={MIG: "7"}))
    with_resource = ledger.build()
    ledger.apply(node_seen(name="b"))
    with_node = ledger.build()

    assert first.nodes is with_pod.nodes
    assert first.nodes is with_resource.nodes
    assert with_node.nodes.names == ("a", "b")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            node_seen(name="b", gpus=4, resources={MIG: "7"}), id="node, new resource"
        ),
        pytest.param(
            pod_seen(name="q", requests={MIG: "2"}, node_name="b"),
            id="pod, new resource",
        ),
        pytest.param(
            pod_seen(name="q", requests={MIG: "2"}, node_name="ghost"),
            id="pod, new resource on an unknown node",
        ),
        pytest.param(node_seen(name="c", gpus=2), id="new node"),
        pytest.param(NodeGone("a"), id="node gone"),
        pytest.param(pod_seen(gpus=1, node_name="b"), id="pod moves"),
        pytest.param(PodGone("uid-of-default-pod-1"), id="pod gone"),
        pytest.param(node_seen(name="b", labels={"accelerator": "x"}), id="GPUs gone"),
    ],
)
def test_a_changed_snapshot_says_what_one_made_anew_says(
    change: Change,
) -> None:
    ledger = make_ledger(
        nodes=[make_node(name="a", gpus=8), make_node(name="b", gpus=4)],
        pods=[make_pod(gpus=3, node_name="a")],
    )
    ledger.build()

    ledger.apply(change)
    changed = ledger.build()
    ledger._is_layout_stale = True
    anew = ledger.build()

    assert changed.nodes.names == anew.nodes.names
    for resource in {*changed.resources, *anew.resources}:
        assert free(changed, resource) == free(anew, resource)
    assert changed.schedulable.tolist() == anew.schedulable.tolist()
    assert changed.facts == anew.facts
    assert dict(changed.bound_pods) == dict(anew.bound_pods)


def test_what_pods_alone_ask_takes_no_room_in_a_snapshot() -> None:
    made_up = {f"nvidia.com/x{number}": "1" for number in range(1000)}
    ledger = make_ledger(
        nodes=[make_node(name="a", gpus=8)],
        pods=[make_pod(gpus=3, requests=made_up, node_name="a")],
    )

    snapshot = ledger.build()

    assert not {*made_up} & {*snapshot.resources}
    assert free(snapshot) == {"a": 5}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(node_seen(name="b", resources={MIG: "7"}), id="by a node"),
        pytest.param(DeviceClassesListed(frozenset({MIG})), id="by a device class"),
    ],
)
def test_a_resource_that_can_be_had_from_now_on_has_its_pods_counted(
    change: Change,
) -> None:
    ledger = make_ledger(
        nodes=[make_node(name="a", gpus=8), make_node(name="b")],
        pods=[make_pod(requests={MIG: "2"}, node_name="a")],
    )
    before = ledger.build()

    ledger.apply(change)

    snapshot = ledger.build()
    row = snapshot.row_of(MIG)
    assert before.row_of(MIG) is None
    assert row is not None
    assert snapshot.requested[row].tolist() == [2, 0]


def test_whoever_scheduled_a_pod_it_counts() -> None:
    ledger = make_ledger(
        nodes=[make_node(gpus=8)],
        pods=[
            make_pod(
                name=name, gpus=1, node_name="node-1", spec={"schedulerName": name}
            )
            for name in ("default-scheduler", "other", "daemon")
        ],
    )

    assert free(ledger.build()) == {"node-1": 5}


def changed_since(snapshot: Snapshot, generation: int) -> list[str]:
    columns = snapshot.changed_since(generation).tolist()
    return [snapshot.nodes.names[column] for column in columns]


def test_a_snapshot_says_which_nodes_changed_since_another() -> None:
    ledger = make_ledger(nodes=[make_node(name="a"), make_node(name="b")])
    first = ledger.build()
    ledger.apply(pod_seen(uid="u", node_name="b", gpus=1))
    second = ledger.build()
    third = ledger.build()

    assert changed_since(first, 0) == ["a", "b"]
    assert changed_since(second, first.generation) == ["b"]
    assert changed_since(third, second.generation) == []
    assert changed_since(third, first.generation) == ["b"]


def test_another_layout_does_not_make_old_nodes_new() -> None:
    ledger = make_ledger(nodes=[make_node(name="a"), make_node(name="b")])
    first = ledger.build()
    ledger.apply(node_seen(name="c"))
    ledger.apply(NodeGone("a"))
    second = ledger.build()

    assert changed_since(second, first.generation) == ["c"]
