from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from scoring.snapshot import (
    LabelColumn,
    Snapshot,
    SnapshotError,
    build_node_index,
    read_only,
)
from tests.builders import GPU, make_node, make_pod, make_snapshot


def small_snapshot() -> Snapshot:
    """Return two nodes and one resource, without anything that may be left out."""
    table = read_only(np.array([[8, 4]], dtype=np.int64))
    return Snapshot(
        generation=1,
        nodes=build_node_index(("a", "b")),
        resources=(GPU,),
        allocatable=table,
        requested=read_only(np.array([[2, 5]], dtype=np.int64)),
        offered=read_only(np.array([[True, True]])),
        schedulable=read_only(np.array([True, True])),
        faulted=read_only(np.array([False, False])),
    )


def test_free_is_what_is_left_and_never_below_0() -> None:
    assert small_snapshot().free(GPU).tolist() == [6, 0]


def test_no_node_is_failing_unless_it_is_said() -> None:
    assert small_snapshot().failing.tolist() == [False, False]


def test_nothing_is_free_of_a_resource_that_nobody_offers() -> None:
    snapshot = small_snapshot()

    assert snapshot.row_of("amd.com/gpu") is None
    assert snapshot.free("amd.com/gpu").tolist() == [0, 0]


def test_a_resource_has_a_row() -> None:
    assert small_snapshot().row_of(GPU) == 0


@pytest.mark.parametrize(
    "name",
    ["allocatable", "requested", "offered", "schedulable", "faulted", "failing"],
)
def test_a_writeable_array_is_refused(name: str) -> None:
    snapshot = small_snapshot()
    changed: dict[str, Any] = {name: np.array(getattr(snapshot, name))}

    with pytest.raises(SnapshotError, match=f"{name}: wanted a read-only array"):
        replace(snapshot, **changed)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        pytest.param("allocatable", np.zeros((1, 3), dtype=np.int64), id="N is off"),
        pytest.param("requested", np.zeros((2, 2), dtype=np.int64), id="R is off"),
        pytest.param("requested", np.zeros((1, 2), dtype=np.float64), id="floats"),
        pytest.param("offered", np.zeros((1, 2), dtype=np.int64), id="not bool"),
        pytest.param("schedulable", np.zeros(3, dtype=np.bool_), id="too long"),
        pytest.param("faulted", np.zeros((1, 2), dtype=np.bool_), id="a table"),
        pytest.param("failing", np.zeros(0, dtype=np.bool_), id="of no node"),
    ],
)
def test_an_array_of_another_shape_or_dtype_is_refused(
    name: str, array: np.ndarray[Any, Any]
) -> None:
    changed: dict[str, Any] = {name: read_only(array)}

    with pytest.raises(SnapshotError, match=f"{name}: wanted .*, got "):
        replace(small_snapshot(), **changed)


def test_a_label_column_of_another_length_is_refused() -> None:
    codes = read_only(np.zeros(3, dtype=np.int64))

    with pytest.raises(SnapshotError, match=r"labels\['zone'\]"):
        replace(
            small_snapshot(),
            labels=MappingProxyType({"zone": LabelColumn(codes, {})}),
        )


def test_facts_of_other_nodes_are_refused() -> None:
    snapshot = make_snapshot(nodes=[make_node(name="a"), make_node(name="b")])

    with pytest.raises(SnapshotError, match="facts: wanted 2 nodes, got 1"):
        replace(snapshot, facts=snapshot.facts[:1])


def test_facts_may_be_left_out() -> None:
    assert replace(small_snapshot(), facts=()).facts == ()


def test_node_names_must_be_unique() -> None:
    with pytest.raises(SnapshotError, match="got a duplicate"):
        build_node_index(("a", "b", "a"))


def test_an_index_knows_columns_and_the_order_of_names() -> None:
    index = build_node_index(("b", "c", "a"))

    assert dict(index.column_of) == {"b": 0, "c": 1, "a": 2}
    assert index.order.tolist() == [1, 2, 0]


def test_nobody_can_write_to_what_a_snapshot_holds() -> None:
    snapshot = make_snapshot(
        nodes=[make_node(gpus=8, labels={"accelerator": "x"})],
        pods=[make_pod(gpus=1, node_name="node-1")],
    )
    arrays = [
        snapshot.allocatable,
        snapshot.requested,
        snapshot.offered,
        snapshot.schedulable,
        snapshot.faulted,
        snapshot.nodes.order,
        *(column.codes for column in snapshot.labels.values()),
    ]

    assert not any(array.flags.writeable for array in arrays)
    for mapping in (snapshot.labels, snapshot.bound_pods):
        assert not hasattr(mapping, "__setitem__")


def test_a_read_only_array_is_a_copy() -> None:
    source = np.array([1, 2, 3])

    copy = read_only(source)
    source[0] = 9

    assert copy.tolist() == [1, 2, 3]
    assert not copy.flags.writeable
