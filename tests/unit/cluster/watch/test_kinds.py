"""Lists and watch lines to changes, where an object does not decode."""

import json
from typing import Any

import pytest

from cluster.api.protocol import ApiError
from cluster.decode.objects import DeviceClass, DeviceClassSpec, ObjectMeta
from cluster.ledger.changes import (
    DeviceClassesListed,
    NodeGone,
    NodeSeen,
    PodGone,
    PodSeen,
)
from cluster.watch.kinds import (
    Listing,
    WatchedKind,
    device_classes_kind,
    nodes_kind,
    pods_kind,
)
from tests.builders import BUILDER, GPU, Tree, make_node, make_pod

DEEP = b"[" * 100_000 + b"]" * 100_000  # beyond what any Python takes


def read_list(kind: WatchedKind[Any, Any], *trees: Tree) -> Listing[Any]:
    """Return the list that a page of these objects makes."""
    listing: Listing[Any] = Listing()
    page = {"metadata": {"resourceVersion": "7"}, "items": list(trees)}
    kind.read_page(json.dumps(page).encode(), listing)
    return listing


def line_of(event_type: str, tree: Any) -> bytes:
    """Return a watch line."""
    return json.dumps({"type": event_type, "object": tree}).encode()


def make_class(name: str, resource: str | None) -> DeviceClass:
    """Return a DeviceClass that carries a resource."""
    return DeviceClass(ObjectMeta(name=name), DeviceClassSpec(resource))


def test_one_faulty_object_does_not_spoil_its_page() -> None:
    broken = make_node(name="b", gpus=4)
    broken["metadata"]["labels"] = "no mapping"

    listing = read_list(
        nodes_kind(BUILDER), make_node(name="a"), broken, make_node(name="c")
    )

    assert [record.name for record in listing.records] == ["a", "b", "c"]
    assert dict(listing.records[1].allocatable)[GPU] == 4
    assert listing.partial == {"b"}
    assert listing.faults == [
        "metadata.labels: wanted object | null, got str: 'no mapping'"
    ]


def test_a_quantity_that_does_not_parse_makes_an_object_faulty() -> None:
    listing = read_list(nodes_kind(BUILDER), make_node(name="a", gpus="many"))

    assert listing.partial == {"a"}
    assert len(listing.faults) == 1


@pytest.mark.parametrize(
    "tree",
    [
        pytest.param({"spec": {}}, id="no metadata"),
        pytest.param({"metadata": {"name": 5}}, id="a name that is no text"),
        pytest.param("a node", id="no object"),
    ],
)
def test_an_object_that_cannot_be_told_from_others_is_left_out(tree: Any) -> None:
    kind = nodes_kind(BUILDER)

    listing = read_list(kind, tree, make_node(name="a"))
    event = kind.read_event(line_of("ADDED", tree))

    assert [record.name for record in listing.records] == ["a"]
    assert len(listing.faults) == 1
    assert event.change is None
    assert event.fault


def test_a_faulty_object_in_a_watch_says_so_to_the_ledger() -> None:
    pod = make_pod(spec={"nodeSelector": 5})

    event = pods_kind(BUILDER).read_event(line_of("MODIFIED", pod))

    assert isinstance(event.change, PodSeen)
    assert event.change.is_partial
    assert "nodeSelector" in event.fault


def test_a_sound_object_in_a_watch_is_whole() -> None:
    event = nodes_kind(BUILDER).read_event(line_of("ADDED", make_node()))

    assert isinstance(event.change, NodeSeen)
    assert not event.change.is_partial
    assert not event.fault


def test_a_faulty_object_is_deleted_by_its_name() -> None:
    node = make_node(name="a")
    node["spec"] = 5

    event = nodes_kind(BUILDER).read_event(line_of("DELETED", node))

    assert event.change == NodeGone("a")
    assert event.fault


def hopeless(tree: Tree) -> Tree:
    """Return a pod or node with more faults than are looked for."""
    tree["spec"]["tolerations"] = tree["spec"]["taints"] = [{"key": 1}] * 60
    tree["metadata"]["resourceVersion"] = "12"
    return tree


def test_a_hopeless_object_in_a_list_keeps_its_last_record() -> None:
    nodes = read_list(
        nodes_kind(BUILDER), hopeless(make_node(name="a")), make_node(name="b")
    )
    pods = read_list(pods_kind(BUILDER), hopeless(make_pod(uid="u")))

    assert ([record.name for record in nodes.records], nodes.partial) == (["b"], {"a"})
    assert (pods.records, pods.partial) == ([], {"u"})
    assert (len(nodes.faults), len(pods.faults)) == (1, 1)


@pytest.mark.parametrize(
    "tree",
    [
        pytest.param(hopeless(make_pod(uid="u")), id="too many faults"),
        pytest.param(
            {"metadata": {"uid": "u", "resourceVersion": "12"}, "spec": 5, "status": 5},
            id="nothing but metadata",
        ),
        pytest.param(
            {"metadata": {"uid": "u", "resourceVersion": "12", "labels": 5}},
            id="labels that are none",
        ),
    ],
)
def test_a_hopeless_object_that_is_deleted_goes(tree: Tree) -> None:
    event = pods_kind(BUILDER).read_event(line_of("DELETED", tree))

    assert event.change == PodGone("u")
    assert event.resource_version == "12"
    assert event.fault


def test_a_hopeless_object_that_changes_stays_as_it_was() -> None:
    tree = hopeless(make_pod(uid="u"))

    event = pods_kind(BUILDER).read_event(line_of("MODIFIED", tree))

    assert event.change is None
    assert event.resource_version == "12"
    assert event.fault


@pytest.mark.parametrize(
    "tree",
    [
        pytest.param({"spec": {}}, id="no metadata"),
        pytest.param({"metadata": {"name": 5}}, id="a name that is no text"),
        pytest.param({"metadata": 5}, id="metadata that are none"),
        pytest.param("a node", id="no object"),
    ],
)
def test_a_deletion_of_an_object_without_a_name_changes_nothing(tree: Any) -> None:
    event = nodes_kind(BUILDER).read_event(line_of("DELETED", tree))

    assert event.change is None
    assert event.fault


def test_a_bookmark_changes_nothing_but_the_version() -> None:
    tree = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": "12746", "creationTimestamp": None},
        "spec": {"containers": None},
        "status": {},
    }

    event = pods_kind(BUILDER).read_event(line_of("BOOKMARK", tree))

    assert event.change is None
    assert event.resource_version == "12746"
    assert not event.fault


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b'{"type":"ADDED","object":{', id="half a line"),
        pytest.param(b'{"type":"ADDED","object":' + DEEP + b"}", id="too deep"),
        pytest.param(
            b'{"type":"ADDED","object":{"metadata":5,"x":"\xff"}}', id="no text"
        ),
        pytest.param(b'{"object":{}}', id="no type"),
        pytest.param(b'{"type":1,"object":{}', id="no type and half a line"),
    ],
)
def test_a_line_that_is_no_event_is_an_error_of_the_server(line: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        nodes_kind(BUILDER).read_event(line)

    assert caught.value.reason == "undecodable"


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"<html>", id="no JSON"),
        pytest.param(b'{"items":[]}', id="no metadata"),
        pytest.param(b'{"metadata":{},"items":[' + DEEP + b"]}", id="too deep"),
    ],
)
def test_a_page_that_is_no_list_is_an_error_of_the_server(page: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        nodes_kind(BUILDER).read_page(page, Listing())

    assert caught.value.reason == "undecodable"


@pytest.mark.parametrize(
    ("status", "reason", "code"),
    [
        pytest.param({"code": 410, "message": "old"}, "expired", 410, id="expired"),
        pytest.param({"code": 500, "message": "x"}, "error_event", 500, id="another"),
        pytest.param({"code": "?"}, "error_event", 0, id="no Status"),
    ],
)
def test_an_error_event_is_raised(status: Tree, reason: str, code: int) -> None:
    with pytest.raises(ApiError) as caught:
        pods_kind(BUILDER).read_event(line_of("ERROR", status))

    assert (caught.value.reason, caught.value.status) == (reason, code)


def test_an_error_event_that_looks_like_a_pod_is_raised() -> None:
    with pytest.raises(ApiError):
        pods_kind(BUILDER).read_event(line_of("ERROR", {"metadata": {}, "code": 410}))


def test_device_classes_without_a_resource_carry_none() -> None:
    kind = device_classes_kind()
    tree: Tree = {"metadata": {"name": "gpu.example.com"}, "spec": {}}
    listing = read_list(kind, tree)

    change = kind.listed(tuple(listing.records), frozenset(listing.partial))

    assert change == DeviceClassesListed(frozenset())


def test_a_device_class_that_decodes_in_part_in_a_list_keeps_its_resource() -> None:
    kind = device_classes_kind()
    sound: Tree = {"metadata": {"name": "a"}, "spec": {"extendedResourceName": GPU}}
    faulty: Tree = {"metadata": {"name": "a"}, "spec": {"extendedResourceName": 5}}
    kind.listed(tuple(read_list(kind, sound).records), frozenset())
    listing = read_list(kind, faulty)

    change = kind.listed(tuple(listing.records), frozenset(listing.partial))

    assert listing.partial == {"a"}
    assert change == DeviceClassesListed(frozenset({GPU}))


def test_a_device_class_of_which_nothing_decodes_in_a_list_keeps_its_resource() -> None:
    table = device_classes_kind()
    table.listed((make_class("a", GPU), make_class("b", GPU)), frozenset())

    kept = table.listed((), frozenset("a"))
    never_seen = table.listed((), frozenset("c"))

    assert kept == DeviceClassesListed(frozenset({GPU}))
    assert never_seen == DeviceClassesListed(frozenset())


def test_a_device_class_that_stops_decoding_keeps_its_resource() -> None:
    table = device_classes_kind()
    table.listed((make_class("a", GPU), make_class("b", None)), frozenset())

    listed = table.listed((make_class("a", None), make_class("b", GPU)), frozenset("a"))
    seen = table.seen(make_class("a", None), True)  # noqa: FBT003 - a field
    gone = table.gone("a")
    new = table.seen(make_class("c", "amd.com/gpu"), True)  # noqa: FBT003

    assert listed == seen == DeviceClassesListed(frozenset({GPU}))
    assert gone == DeviceClassesListed(frozenset({GPU}))  # b carries it, too
    assert new == DeviceClassesListed(frozenset({GPU, "amd.com/gpu"}))
