"""Fragmentation and prices on random nodes and mixes against plain Python."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scoring.packing.fragmentation import (
    best_fit_device,
    fits,
    fragmentation,
    gradient,
)
from scoring.packing.prices import CORES_PER_GPU, cpu_excess, insistence, remainder
from scoring.packing.shapes import WHOLE, Shape
from scoring.packing.workload import (
    Demand,
    FreeCapacity,
    WorkloadMix,
    build_demand,
)

MODELS = 3
CPU = st.integers(0, 12).map(lambda cores: cores * 1000)
THOUSANDTHS = st.sampled_from((1, 250, 400, 500, 810, 1000))


@dataclass(frozen=True, slots=True)
class Node:
    """What is free on one node."""

    devices: list[int]
    cpu: int
    model: int


@dataclass(frozen=True, slots=True)
class Expected:
    """A shape of the mix."""

    shape: Shape
    accepts: frozenset[int]
    weight: float


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    gpus = draw(st.integers(0, 4))
    return Shape(draw(CPU), gpus, draw(THOUSANDTHS) if gpus == 1 else WHOLE)


NODES = st.lists(
    st.builds(
        Node,
        st.lists(st.sampled_from((0, 190, 400, 500, 1000)), min_size=4, max_size=4),
        CPU,
        st.integers(0, MODELS - 1),
    ),
    max_size=6,
)
MIXES = st.lists(
    st.builds(
        Expected,
        shapes(),
        st.frozensets(st.integers(0, MODELS - 1)),
        st.integers(0, 5).map(float),
    ),
    max_size=6,
)


def free_on(nodes: list[Node]) -> FreeCapacity:
    devices = np.array([n.devices for n in nodes], dtype=np.int64).reshape(-1, 4).T
    return FreeCapacity(
        devices,
        np.array([n.cpu for n in nodes], dtype=np.int64),
        np.array([n.model for n in nodes], dtype=np.int64),
    )


def mix_of(expected: list[Expected]) -> WorkloadMix:
    return WorkloadMix(
        cpu=np.array([e.shape.cpu for e in expected], dtype=np.int64),
        gpus=np.array([e.shape.gpus for e in expected], dtype=np.int64),
        thousandths=np.array([e.shape.thousandths for e in expected], dtype=np.int64),
        accepts=np.array(
            [[model in e.accepts for e in expected] for model in range(MODELS)],
            dtype=np.bool_,
        ).reshape(MODELS, len(expected)),
        weights=np.array([e.weight for e in expected]),
    )


def demand_of(expected: list[Expected]) -> Demand:
    return build_demand(mix_of(expected))


def runs_on(node: Node, shape: Shape) -> bool:
    enough = [free for free in node.devices if free >= shape.thousandths]
    return node.cpu >= shape.cpu and len(enough) >= shape.gpus


def plain_fragmentation(node: Node, expected: list[Expected]) -> float:
    total = sum(node.devices)
    if not sum(e.weight for e in expected):
        return total / WHOLE
    weighted = 0.0
    for e in expected:
        can_use = e.shape.gpus and node.model in e.accepts and runs_on(node, e.shape)
        weighted += e.weight * (
            sum(free for free in node.devices if free < e.shape.thousandths)
            if can_use
            else total
        )
    return weighted / sum(e.weight for e in expected) / WHOLE


def with_pod(node: Node, shape: Shape) -> Node:
    devices = list(node.devices)
    for _ in range(shape.gpus):
        tightest = min(free for free in devices if free >= shape.thousandths)
        devices[devices.index(tightest)] -= shape.thousandths
    return Node(devices, node.cpu - shape.cpu, node.model)


@given(nodes=NODES, expected=MIXES)
def test_fragmentation_is_that_of_each_node_alone(
    nodes: list[Node], expected: list[Expected]
) -> None:
    wanted = [plain_fragmentation(node, expected) for node in nodes]

    found = fragmentation(free_on(nodes), demand_of(expected))

    assert found == pytest.approx(wanted)
    assert (found <= [sum(node.devices) / WHOLE + 1e-9 for node in nodes]).all()
    assert (found >= -1e-9).all()


@given(nodes=NODES, expected=MIXES, shape=shapes())
def test_gradient_is_the_difference_of_two_full_computations(
    nodes: list[Node], expected: list[Expected], shape: Shape
) -> None:
    nodes = [node for node in nodes if runs_on(node, shape)]
    demand = demand_of(expected)
    after = fragmentation(free_on([with_pod(n, shape) for n in nodes]), demand)

    found = gradient(free_on(nodes), shape, demand)

    assert found == pytest.approx(fragmentation(free_on(nodes), demand) - after)


@given(nodes=NODES, expected=MIXES, shape=shapes())
def test_gradient_is_finite_where_the_pod_does_not_fit(
    nodes: list[Node], expected: list[Expected], shape: Shape
) -> None:
    found = gradient(free_on(nodes), shape, demand_of(expected))

    assert np.isfinite(found).all()


@given(nodes=NODES, shape=shapes())
def test_fitting_nodes_are_those_that_run_the_pod(
    nodes: list[Node], shape: Shape
) -> None:
    found = fits(free_on(nodes), shape)

    assert found.tolist() == [runs_on(node, shape) for node in nodes]


@given(nodes=NODES, thousandths=THOUSANDTHS)
def test_a_share_is_taken_of_the_fullest_device_that_has_it(
    nodes: list[Node], thousandths: int
) -> None:
    wanted = [min((f for f in n.devices if f >= thousandths), default=0) for n in nodes]

    before, after = best_fit_device(free_on(nodes).devices, thousandths)

    assert before.tolist() == wanted
    assert after.tolist() == [max(free - thousandths, 0) for free in wanted]


@given(nodes=NODES, shape=shapes())
def test_remainder_is_what_a_pod_leaves(nodes: list[Node], shape: Shape) -> None:
    found = remainder(free_on(nodes), shape)

    assert found == pytest.approx(
        [
            max(sum(node.devices) - shape.total, 0) / WHOLE
            + max(node.cpu - shape.cpu, 0) / 1000 / CORES_PER_GPU
            for node in nodes
        ]
    )


@given(
    nodes=st.lists(st.tuples(CPU, st.integers(0, 8)), max_size=6),
    shape=shapes(),
)
def test_excess_is_cpu_beyond_that_of_the_gpus_taken(
    nodes: list[tuple[int, int]], shape: Shape
) -> None:
    cpu = np.array([cpu for cpu, _ in nodes], dtype=np.int64)
    devices = np.array([devices for _, devices in nodes], dtype=np.int64)

    found = cpu_excess(cpu, devices, shape)

    assert found == pytest.approx(
        [
            max(shape.cpu - cpu / max(devices, 1) * shape.total / WHOLE, 0) / 1000
            if shape.gpus
            else 0.0
            for cpu, devices in nodes
        ]
    )


@given(
    expected=MIXES,
    supply=st.lists(st.integers(0, 20), min_size=MODELS, max_size=MODELS),
    prior=st.sampled_from((0.0, 0.5, 20.0)),
)
def test_insistence_is_demand_for_some_models_by_their_supply(
    expected: list[Expected], supply: list[int], prior: float
) -> None:
    there = {model for model, gpus in enumerate(supply) if gpus}
    asked = sum(e.weight * e.shape.total for e in expected)
    picky = [e for e in expected if not there <= e.accepts]
    insisting = sum(e.weight * e.shape.total for e in picky)
    wanted = [0.0] * MODELS
    for model, gpus in enumerate(supply):
        if asked and gpus:
            named = prior * insisting / len(there)
            for e in picky:
                if model in e.accepts:
                    accepted = sum(supply[one] for one in e.accepts)
                    named += e.weight * e.shape.total * gpus / accepted
            wanted[model] = named / asked / (gpus / sum(supply))

    found = insistence(mix_of(expected), np.array(supply, dtype=np.int64), prior)

    assert found == pytest.approx(wanted)


@given(
    nodes=st.lists(NODES.filter(bool), min_size=1, max_size=2),
    expected=MIXES,
    shape=shapes(),
    at_once=st.sampled_from((0, 1, 512)),
)
def test_a_gradient_is_the_same_whichever_nodes_it_is_computed_with(
    nodes: list[list[Node]], expected: list[Expected], shape: Shape, at_once: int
) -> None:
    every = [node for part in nodes for node in part]
    demand = demand_of(expected)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scoring.packing.fragmentation.MAX_AT_ONCE", at_once)
        together = gradient(free_on(every), shape, demand).tolist()
        left = fragmentation(free_on(every), demand).tolist()

    # To the last digit: what is kept of a node equals what would be computed with all.
    assert together == [gradient(free_on([n]), shape, demand)[0] for n in every]
    assert left == [fragmentation(free_on([n]), demand)[0] for n in every]
