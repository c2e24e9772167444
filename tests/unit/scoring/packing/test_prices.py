"""What is expected of a cluster, and what pods take of its nodes."""

from types import MappingProxyType

import numpy as np
import pytest

from scoring.gpu.node_gpus import NO_GPUS, NodeGpus
from scoring.packing.fragmentation import fragmentation
from scoring.packing.learning import (
    NOBODY_EXPECTED,
    ExpectedPods,
    ExpectedShape,
    asked_of,
    typical_of,
)
from scoring.packing.prices import PRIOR_PODS, outlook_of
from scoring.packing.shapes import Shape
from scoring.packing.workload import FreeCapacity, build_supply, mix_on
from scoring.snapshot import GpuSupply

T4 = NodeGpus("T4", frozenset({"t4"}))
SHARED_T4 = NodeGpus("T4", frozenset({"t4"}), replicas=4)
H100 = NodeGpus("H100", frozenset({"h100", "hopper"}))


def supply(*, units: tuple[int, ...] = (0, 0, 0, 0)) -> GpuSupply:
    """Return that of four nodes: three of T4 in two kinds, one of H100."""
    return build_supply(
        (T4, SHARED_T4, H100),
        np.array([0, 0, 1, 2]),
        np.array([8, 8, 2, 2]),
        np.array(units),
    )


def test_a_model_is_one_however_its_gpus_are_told_or_shared() -> None:
    found = supply()

    assert found.models == (T4, H100)
    assert found.model_of.tolist() == [0, 0, 1]
    assert (found.counts.tolist(), found.most) == ([18, 2], 8)


@pytest.mark.parametrize(
    ("units", "unit"),
    [
        pytest.param((0, 0, 0, 0), 0, id="nobody shares"),
        pytest.param((0, 0, 250, 0), 250, id="one does"),
        pytest.param((250, 100, 100, 0), 100, id="what most nodes have"),
    ],
)
def test_a_share_is_what_it_is_on_most_nodes(
    units: tuple[int, int, int, int], unit: int
) -> None:
    assert supply(units=units).unit == unit


def test_a_supply_is_like_another_that_says_the_same() -> None:
    assert supply().is_like(supply())
    assert not supply().is_like(supply(units=(0, 0, 250, 0)))
    fewer = build_supply((T4,), np.array([0]), np.array([8]), np.array([0]))
    assert not supply().is_like(fewer)


def test_a_shape_is_accepted_by_every_name_of_a_model() -> None:
    parts = {
        ExpectedShape(Shape(0, 1)): 1.0,
        ExpectedShape(Shape(0, 1), frozenset({"hopper", "a100"})): 2.0,
    }

    mix = mix_on(parts, supply())

    assert mix.accepts.tolist() == [[True, False], [True, True]]
    assert mix.weights.tolist() == [1.0, 2.0]


def test_nobody_is_expected_at_first() -> None:
    outlook = outlook_of(NOBODY_EXPECTED, supply())

    assert outlook.demand.gpus.tolist() == [0]
    assert outlook.insistence.tolist() == [0.0, 0.0]


def test_an_outlook_is_computed_once() -> None:
    there = supply()

    assert outlook_of(NOBODY_EXPECTED, there) is outlook_of(NOBODY_EXPECTED, there)


@pytest.mark.parametrize(
    ("pods", "insisting"),
    [
        # Half of the GPUs are asked of H100 alone, which has a tenth of them.
        pytest.param(np.inf, [0.0, 5.0], id="given"),
        # As many again insist on both alike.
        pytest.param(PRIOR_PODS, [0.25 / 0.9, 5.0 + 2.5], id="learned of few"),
        pytest.param(0.0, None, id="learned of nobody"),
    ],
)
def test_what_few_pods_tell_is_smoothed(
    pods: float, insisting: list[float] | None
) -> None:
    shapes = {
        ExpectedShape(Shape(0, 1)): 1.0,
        ExpectedShape(Shape(0, 1), frozenset({"h100"})): 1.0,
    }

    found = outlook_of(ExpectedPods(MappingProxyType(shapes), pods), supply())

    if insisting is None:
        assert np.isfinite(found.insistence).all()
    else:
        assert found.insistence == pytest.approx(insisting)


def test_rare_shapes_insist_with_the_others() -> None:
    usual = {ExpectedShape(Shape(0, 1)): 90.0}
    rare = {ExpectedShape(Shape(n, 1), frozenset({"h100"})): 1.0 for n in range(10)}

    found = outlook_of(ExpectedPods(usual, asked=asked_of({**usual, **rare})), supply())

    # A tenth of the GPUs is asked of H100 alone, which has a tenth of them.
    assert found.insistence == pytest.approx([0.0, 1.0])
    assert found.demand.gpus.tolist() == [0, 1]
    assert found.demand.cpu_steps.tolist() == [0]


def test_who_takes_either_of_two_models_insists_on_both_as_they_have_gpus() -> None:
    a100 = NodeGpus("A100", frozenset({"a100"}))
    there = build_supply(
        (T4, H100, a100), np.array([0, 1, 2]), np.array([8, 6, 2]), np.zeros(3, int)
    )
    either = ExpectedShape(Shape(0, 1), frozenset({"h100", "a100"}))
    parts = {ExpectedShape(Shape(0, 1)): 1.0, either: 1.0}

    found = outlook_of(ExpectedPods(parts), there).insistence

    # Half of what is asked is asked of half of the GPUs.
    assert found == pytest.approx([0.0, 1.0, 1.0])


def test_nobody_insists_where_pods_take_any_model() -> None:
    shapes = {ExpectedShape(Shape(0, 1)): 1.0}

    found = outlook_of(ExpectedPods(MappingProxyType(shapes), 10.0), supply())

    assert found.insistence.tolist() == [0.0, 0.0]


def test_a_cluster_without_gpus_has_an_outlook() -> None:
    none = build_supply((NO_GPUS,), np.array([0]), np.array([0]), np.array([0]))
    shapes = {ExpectedShape(Shape(0, 1), frozenset({"h100"})): 1.0}

    found = outlook_of(ExpectedPods(MappingProxyType(shapes)), none)

    assert found.insistence.tolist() == [0.0]


def test_the_most_frequent_shapes_stand_for_all() -> None:
    common, rare = ExpectedShape(Shape(0, 1)), ExpectedShape(Shape(0, 2))

    assert typical_of({rare: 1, common: 99}) == {common: 1.0}


def free_of(*devices: int) -> FreeCapacity:
    return FreeCapacity(
        np.array([[one] for one in devices]), np.array([8000]), np.array([0])
    )


@pytest.mark.parametrize(
    ("shape", "left"),
    [
        pytest.param(Shape(1000, 0), [1000, 300, 500], id="cpu"),
        pytest.param(Shape(1000, 1, 400), [1000, 300, 100], id="a share"),
        pytest.param(Shape(1000, 2), [0, 300, 500], id="whole ones, so far as there"),
        pytest.param(Shape(9000, 1, 1000), [0, 300, 500], id="more cpu than there is"),
    ],
)
def test_what_a_pod_takes(shape: Shape, left: list[int]) -> None:
    free = free_of(1000, 300, 500)

    free.take_for(0, shape)

    assert free.devices[:, 0].tolist() == left
    assert free.cpu.tolist() == [max(8000 - shape.cpu, 0)]


@pytest.mark.parametrize(
    ("shape", "free_again"),
    [
        pytest.param(Shape(1000, 0), [1000, 300, 500], id="cpu"),
        pytest.param(Shape(1000, 1, 400), [1000, 300, 900], id="a share"),
        pytest.param(Shape(1000, 1, 700), [1000, 1000, 500], id="of the one it fits"),
        pytest.param(
            Shape(1000, 1), [1000, 300, 500], id="a whole one that none lacks"
        ),
    ],
)
def test_what_a_pod_gives_back(shape: Shape, free_again: list[int]) -> None:
    free = free_of(1000, 300, 500, 0)

    free.give_back(0, shape, 3)

    assert free.devices[:, 0].tolist() == [*free_again, 0]
    assert free.cpu.tolist() == [9000]


def test_who_excludes_a_model_insists_on_the_others() -> None:
    shapes = {ExpectedShape(Shape(0, 1), excluded=frozenset({"t4"})): 1.0}

    assert mix_on(shapes, supply()).accepts.tolist() == [[False], [True]]
    assert outlook_of(ExpectedPods(shapes), supply()).insistence.tolist() == [0.0, 10.0]


def test_fragmentation_is_never_below_zero() -> None:
    # Five fifths that add up to one and a little more.
    parts = {ExpectedShape(Shape(cpu, 1 + cpu % 2)): 0.2 for cpu in range(5)}
    demand = outlook_of(ExpectedPods(MappingProxyType(parts)), supply()).demand
    free = FreeCapacity(np.full((8, 1), 1000), np.array([9]), np.array([0]))

    (found,) = fragmentation(free, demand).tolist()

    assert str(found) == "0.0"
