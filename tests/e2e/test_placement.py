"""Where kube-scheduler puts GPU pods, asking the extender as deployed."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest

from tests.e2e.harness.amounts import amounts_listed
from tests.e2e.harness.builders import GPU, JsonObject, make_node, make_pod
from tests.e2e.harness.classic import CLASSIC, NodeState, Rule, winner
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.pods import nodes_of_pods, wait_until_bound, wait_until_refused
from tests.e2e.harness.product import Product
from tests.e2e.harness.waiting import stays_true, wait_for

MIG_1G: Final = "nvidia.com/mig-1g.10gb"
GPU_MEMORY: Final = "nvidia.com/gpu-memory"
NVLINK: Final = {"gpu-interconnect": "nvlink"}
CACHE_SECONDS: Final = 5.0

# 0 %, 25 %, 62 % and 87 % of eight GPUs in use; the third one alone has no NVLink.
QUARTERS: Final = (
    NodeState("empty", 8, 0, has_nvlink=True),
    NodeState("quarter", 8, 2, has_nvlink=True),
    NodeState("target", 8, 5),
    NodeState("nearly-full", 8, 7, has_nvlink=True),
)


def make_nodes(
    states: Sequence[NodeState], resource: str = GPU, **more: Any
) -> list[JsonObject]:
    """Return the nodes of some states."""
    return [
        make_node(
            state.name,
            resources={resource: state.total},
            labels=NVLINK if state.has_nvlink else None,
            **more,
        )
        for state in states
    ]


def make_occupants(
    states: Sequence[NodeState], resource: str = GPU
) -> list[JsonObject]:
    """Return the pods that use what is used, on their nodes already."""
    return [
        make_pod(
            f"on-{state.name}", resources={resource: state.used}, node_name=state.name
        )
        for state in states
        if state.used
    ]


def put_on_the_plane(
    plane: ControlPlane, states: Sequence[NodeState], resource: str = GPU
) -> None:
    """Create nodes and what runs on them."""
    plane.client.create_many(make_nodes(states, resource))
    plane.client.create_many(make_occupants(states, resource))


def wait_until_counted(product: Product) -> None:
    """Wait until the cache has what a fresh list has."""
    wait_for(
        lambda: product.amounts() == amounts_listed(product.client),
        timeout_seconds=CACHE_SECONDS,
        what="cache up to date",
    )


@pytest.mark.parametrize(
    ("scoring", "rule", "amount", "expected"),
    [
        pytest.param({}, CLASSIC, 1, "target", id="as shipped"),
        # All nodes are equal in topology: the little that utilization counts decides.
        pytest.param(
            {"weights": {"utilization": 10, "typeMatch": 0, "topology": 90}},
            Rule(utilization=10, type_match=0, topology=90),
            1,
            "target",
            id="topology decides nothing for one GPU",
        ),
        pytest.param(
            {
                "weights": {"utilization": 100, "typeMatch": 0, "topology": 0},
                "targetUtilization": {"low": 0.2, "high": 0.3},
            },
            Rule(utilization=100, type_match=0, topology=0, low=0.2, high=0.3),
            1,
            "quarter",
            id="a lower target",
        ),
        # 50 + 16 + 200 on the quarter-full node with NVLink, 50 + 40 + 100 on target.
        pytest.param(
            {"weights": {"utilization": 40, "typeMatch": 0, "topology": 200}},
            Rule(utilization=40, type_match=0, topology=200),
            2,
            "quarter",
            id="topology above utilization for two GPUs",
        ),
        pytest.param(
            {
                "weights": {"utilization": 200, "typeMatch": 0, "topology": 10},
                "maxScore": 100,
            },
            Rule(utilization=200, type_match=0, topology=10, max_score=100),
            2,
            "target",
            id="utilization above topology for two GPUs on a wider scale",
        ),
    ],
)
def test_a_gpu_pod_lands_where_the_score_says(
    control_plane: ControlPlane,
    scoring: Mapping[str, Any],
    rule: Rule,
    amount: int,
    expected: str,
) -> None:
    put_on_the_plane(control_plane, QUARTERS)
    with_room = [node for node in QUARTERS if node.total - node.used >= amount]
    assert winner(with_room, amount=amount, rule=rule) == expected

    with Product(control_plane, settings={"scoring": scoring}) as product:
        product.start_all()
        product.client.create(make_pod("train", gpus=amount))
        node = wait_until_bound(product.client, "train")

    assert node == expected


def test_pods_one_by_one_go_where_the_rule_says(
    control_plane: ControlPlane, product: Product
) -> None:
    totals = {"node-a": 10, "node-b": 7, "node-c": 16}
    used = {"node-a": 4, "node-b": 0, "node-c": 8}
    states = [NodeState(name, totals[name], used[name]) for name in totals]
    put_on_the_plane(control_plane, states)
    product.start_all()

    for number in range(3):
        states = [NodeState(name, totals[name], used[name]) for name in totals]
        expected = winner(states, amount=1, lead=1)
        product.client.create(make_pod(f"train-{number}", gpus=1))
        assert wait_until_bound(product.client, f"train-{number}") == expected
        used[expected] += 1
        wait_until_counted(product)


def test_a_pod_without_gpu_is_never_sent_to_us(
    control_plane: ControlPlane, product: Product
) -> None:
    put_on_the_plane(control_plane, QUARTERS)
    product.start_all()

    product.client.create_many(make_pod(f"web-{i}", cpu="100m") for i in range(5))
    wait_for(
        lambda: len(nodes_of_pods(product.client)) == 5 + 3,
        timeout_seconds=20,
        what="plain pods bound",
    )

    assert (product.calls_of("filter"), product.calls_of("prioritize")) == (0, 0)


def test_the_accelerator_of_the_node_selector_is_honoured(
    control_plane: ControlPlane, product: Product
) -> None:
    # By the score alone the T4 node would win.
    states = [NodeState("v100", 8, 0), NodeState("t4", 8, 5)]
    for state in states:
        control_plane.client.create(
            make_node(
                state.name,
                gpus=state.total,
                labels={"accelerator": f"nvidia-tesla-{state.name}"},
            )
        )
    control_plane.client.create_many(make_occupants(states))
    product.start_all()
    client = product.client

    client.create(make_pod("any", gpus=1))
    selector = {"accelerator": "nvidia-tesla-v100"}
    client.create(make_pod("picky", gpus=1, node_selector=selector))
    selector = {"accelerator": "nvidia-tesla-p4"}
    client.create(make_pod("hopeless", gpus=1, node_selector=selector))

    assert wait_until_bound(client, "any") == "t4"
    assert wait_until_bound(client, "picky") == "v100"
    assert wait_until_refused(client, "hopeless")["reason"] == "Unschedulable"


def test_two_gpu_pods_prefer_the_nvlink_node(
    control_plane: ControlPlane, product: Product
) -> None:
    states = [NodeState("pcie-a", 8), NodeState("nvlink", 8, has_nvlink=True)]
    states += [NodeState("pcie-b", 8), NodeState("pcie-c", 8)]
    put_on_the_plane(control_plane, states)
    product.start_all()

    product.client.create(make_pod("pair", gpus=2))

    assert winner(states, amount=2) == "nvlink"
    assert wait_until_bound(product.client, "pair") == "nvlink"


def test_mig_pods_are_scored_by_their_own_resource(
    control_plane: ControlPlane, product: Product
) -> None:
    states = [NodeState("a", 14, 0), NodeState("b", 14, 10), NodeState("c", 14, 3)]
    client = control_plane.client
    client.create_many(make_nodes(states, MIG_1G, gpus=8))
    client.create_many(make_occupants(states, MIG_1G))
    # By whole GPUs, node a would be at its target.
    client.create(make_pod("cards", gpus=5, node_name="a"))
    client.create(make_node("cards-only", gpus=8))
    product.start_all()

    client.create(make_pod("slice", resources={MIG_1G: 1}))

    assert winner(states, amount=1) == "b"
    assert wait_until_bound(client, "slice") == "b"
    assert product.calls_of("filter") == 1


def test_gpu_memory_is_managed_and_counted(
    control_plane: ControlPlane, product: Product
) -> None:
    client = control_plane.client
    client.create(make_node("node-a", resources={GPU_MEMORY: 64}))
    client.create(make_node("node-b", gpus=4))
    product.start_all()

    client.create(make_pod("shared", resources={GPU_MEMORY: 24}))
    node = wait_until_bound(client, "shared")
    wait_until_counted(product)

    assert node == "node-a"
    assert product.calls_of("filter") == 1
    assert product.amounts()["node-a"][GPU_MEMORY] == (64, 24)


def test_a_node_whose_gpus_are_being_changed_gets_no_pod_until_it_is_done(
    control_plane: ControlPlane, product: Product
) -> None:
    client = control_plane.client
    label = "nvidia.com/mig.config.state"
    client.create(make_node("node-a", gpus=4, labels={label: "pending"}))
    client.create(make_node("plain"))
    product.start_all()

    client.create(make_pod("train", gpus=1))
    refusal = wait_until_refused(client, "train")
    stays_true(
        lambda: not nodes_of_pods(client), for_seconds=1, what="pod without a node"
    )
    client.patch("Node", "node-a", {"metadata": {"labels": {label: "success"}}})

    assert refusal["reason"] == "Unschedulable"
    assert "GPUs are not ready" in refusal["message"]
    assert wait_until_bound(client, "train") == "node-a"
