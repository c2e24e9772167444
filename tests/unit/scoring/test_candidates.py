import numpy as np
import pytest

from scoring.candidates import LabelKeys, PodRequest, primary_resource
from scoring.resources import Request
from scoring.snapshot import find_columns, has_repeats
from tests.builders import (
    GPU,
    SCOPE,
    make_node,
    make_pod,
    make_snapshot,
    take_candidates,
)

MIG = "nvidia.com/mig-1g.10gb"
KEYS = LabelKeys()


def asking(
    *request: tuple[str, int],
    uid: str = "",
    nominated_node: str = "",
    accelerator: str | None = None,
) -> PodRequest:
    return PodRequest(
        uid=uid,
        request=request,
        primary=primary_resource(request, SCOPE),
        accelerator=accelerator,
        nominated_node=nominated_node,
    )


@pytest.mark.parametrize(
    ("request_of_pod", "primary"),
    [
        pytest.param((), "", id="asks nothing"),
        pytest.param(((GPU, 1),), GPU, id="whole GPUs"),
        pytest.param(((MIG, 1),), MIG, id="a MIG slice"),
        pytest.param(
            (("amd.com/gpu", 1), (MIG, 1)), "amd.com/gpu", id="whole GPUs come first"
        ),
        pytest.param(
            (("nvidia.com/gpumem", 1), (MIG, 1)), MIG, id="a GPU resource comes first"
        ),
        pytest.param(
            (("nvidia.com/gpumem", 1),), "nvidia.com/gpumem", id="another managed one"
        ),
    ],
)
def test_a_pods_own_gpu_resource(request_of_pod: Request, primary: str) -> None:
    assert primary_resource(request_of_pod, SCOPE) == primary


def test_the_amount_is_that_of_the_own_resource() -> None:
    assert asking((GPU, 3), (MIG, 2)).amount == 3
    assert asking().amount == 0


def test_columns_follow_the_order_of_the_names() -> None:
    snapshot = make_snapshot(
        nodes=[make_node(name=name, gpus=gpus) for name, gpus in [("a", 1), ("b", 2)]]
    )

    taken = take_candidates(snapshot, ["b", "a", "b"], asking((GPU, 1)), KEYS)

    assert taken.allocatable.tolist() == [[2, 1, 2]]
    assert taken.columns.tolist() == [1, 0, 1]


def test_unknown_names_are_marked() -> None:
    snapshot = make_snapshot(nodes=[make_node(name="a", gpus=1)])

    taken = take_candidates(snapshot, ["ghost", "a"], asking((GPU, 1)), KEYS)

    assert taken.known.tolist() == [False, True]


def test_an_empty_cluster_knows_nobody() -> None:
    taken = take_candidates(make_snapshot(), ["a", "b"], asking((GPU, 1)), KEYS)

    assert taken.known.tolist() == [False, False]
    assert taken.allocatable.shape == (1, 2)
    assert taken.type_names == ("",)


def test_no_names_give_no_candidates() -> None:
    snapshot = make_snapshot(nodes=[make_node(gpus=1)])

    taken = take_candidates(snapshot, [], asking((GPU, 1)), KEYS)

    assert taken.known.shape == (0,)
    assert taken.allocatable.shape == (1, 0)


def test_rows_are_the_pods_resources_in_its_order() -> None:
    snapshot = make_snapshot(
        nodes=[make_node(gpus=8, resources={MIG: "7"})],
        pods=[make_pod(requests={MIG: "2"}, gpus=3, node_name="node-1")],
    )

    taken = take_candidates(snapshot, ["node-1"], asking((MIG, 1), (GPU, 1)), KEYS)

    assert taken.allocatable.tolist() == [[7], [8]]
    assert taken.requested.tolist() == [[2], [3]]


def test_a_resource_that_nobody_offers_has_an_empty_row() -> None:
    snapshot = make_snapshot(nodes=[make_node(gpus=8)])

    taken = take_candidates(snapshot, ["node-1"], asking((MIG, 1)), KEYS)

    assert taken.allocatable.tolist() == [[0]]
    assert taken.offered.tolist() == [[False]]
    assert taken.claimed.tolist() == [[False]]


def test_the_asking_pods_own_share_is_taken_out_on_its_node_alone() -> None:
    snapshot = make_snapshot(
        nodes=[make_node(name="a", gpus=8), make_node(name="b", gpus=8)],
        pods=[
            make_pod(name="me", gpus=3, node_name="a", uid="me"),
            make_pod(name="x", gpus=1, node_name="a"),
            make_pod(name="y", gpus=2, node_name="b"),
        ],
    )

    taken = take_candidates(snapshot, ["a", "b"], asking((GPU, 3), uid="me"), KEYS)

    assert taken.requested.tolist() == [[1, 2]]
    row = snapshot.row_of(GPU)
    assert row is not None
    assert snapshot.requested[row].tolist() == [4, 2]


def test_a_share_on_a_node_that_is_gone_changes_nothing() -> None:
    snapshot = make_snapshot(
        nodes=[make_node(name="a", gpus=8)],
        pods=[make_pod(name="me", uid="me", gpus=3, node_name="gone")],
    )

    taken = take_candidates(snapshot, ["a", "ghost"], asking((GPU, 3), uid="me"), KEYS)

    assert taken.requested[0, 0] == 0


def test_a_pod_that_holds_nothing_has_no_share() -> None:
    snapshot = make_snapshot(
        nodes=[make_node(gpus=8)], pods=[make_pod(gpus=3, node_name="node-1")]
    )

    taken = take_candidates(snapshot, ["node-1"], asking((GPU, 3), uid="me"), KEYS)

    assert taken.requested.tolist() == [[3]]


def test_a_resource_of_a_device_class_is_claimed_where_no_node_offers_it() -> None:
    snapshot = make_snapshot(
        nodes=[make_node(name="dra"), make_node(name="plugin", gpus=8)],
        device_class_resources=[GPU],
    )

    taken = take_candidates(snapshot, ["dra", "plugin"], asking((GPU, 1)), KEYS)

    assert taken.claimed.tolist() == [[True, False]]
    assert taken.offered.tolist() == [[True, True]]


def test_label_values_come_with_their_codes() -> None:
    labels = [
        {"accelerator": "v100", "gpu-interconnect": "nvlink"},
        {"accelerator": "t4", "gpu-interconnect": "pcie"},
        {},
        {"accelerator": "v100"},
    ]
    nodes = [
        make_node(name=str(number), gpus=1, labels=own)
        for number, own in enumerate(labels)
    ]

    taken = take_candidates(
        make_snapshot(nodes=nodes),
        ["0", "1", "2", "3"],
        asking((GPU, 2), accelerator="v100"),
        KEYS,
    )

    values = [taken.type_names[code] for code in taken.type_codes]
    assert values == ["v100", "t4", "", "v100"]
    assert taken.linked.tolist() == [True, False, False, False]


def test_without_label_columns_nothing_is_known_of_types_and_links() -> None:
    snapshot = make_snapshot(
        nodes=[make_node(gpus=1, labels={"gpu-interconnect": "nvlink"})], label_keys=()
    )

    taken = take_candidates(snapshot, ["node-1"], asking((GPU, 1)), KEYS)

    assert taken.type_codes.tolist() == [0]
    assert taken.type_names == ("",)
    assert taken.linked.tolist() == [False]


def test_other_label_keys_can_be_read() -> None:
    snapshot = make_snapshot(
        nodes=[make_node(gpus=1, labels={"my/type": "x", "my/link": "nvlink"})],
        label_keys=("my/type", "my/link"),
    )

    taken = take_candidates(
        snapshot,
        ["node-1"],
        asking((GPU, 2), accelerator="x"),
        LabelKeys("my/type", "my/link"),
    )

    assert taken.type_names[int(taken.type_codes[0])] == "x"
    assert taken.linked.all()


@pytest.mark.parametrize(
    ("nominated_node", "nominated"),
    [
        pytest.param("b", [False, True, False], id="a candidate"),
        pytest.param("", [False, False, False], id="none"),
        pytest.param("c", [False, False, False], id="no candidate"),
        pytest.param("ghost", [False, False, False], id="an unknown node"),
    ],
)
def test_the_nominated_node_is_marked(
    nominated_node: str, nominated: list[bool]
) -> None:
    snapshot = make_snapshot(nodes=[make_node(name=name, gpus=1) for name in "abc"])

    taken = take_candidates(
        snapshot,
        ["a", "b", "ghost"],
        asking((GPU, 1), nominated_node=nominated_node),
        KEYS,
    )

    assert taken.nominated.tolist() == nominated


def test_faults_of_nodes_are_taken_along() -> None:
    snapshot = make_snapshot(
        nodes=[
            make_node(
                name="a", gpus=1, labels={"nvidia.com/mig.config.state": "pending"}
            ),
            make_node(name="b", gpus=1),
        ]
    )

    taken = take_candidates(snapshot, ["b", "a"], asking((GPU, 1)), KEYS)

    assert taken.faulted.tolist() == [False, True]
    assert taken.faulted.dtype == np.bool_


@pytest.mark.parametrize(
    ("names", "repeated"),
    [
        pytest.param(["a", "b"], False, id="each once"),
        pytest.param(["a", "b", "a"], True, id="a known name twice"),
        pytest.param(["ghost", "a"], False, id="an unknown name"),
        pytest.param(["ghost", "a", "ghost"], True, id="an unknown name twice"),
        pytest.param([], False, id="none"),
    ],
)
def test_repeated_names_are_noticed(names: list[str], repeated: bool) -> None:
    snapshot = make_snapshot(nodes=[make_node(name=name, gpus=1) for name in "abc"])

    columns = find_columns(snapshot, names)
    found = None if (columns < 0).any() else columns

    assert has_repeats(names, found, 3) == repeated
