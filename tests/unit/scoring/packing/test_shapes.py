"""Shapes of requests, and what is free of GPUs that pods share."""

import pytest

from scoring.packing.shapes import (
    MAX_CPU,
    MAX_DEVICES,
    MAX_GPUS,
    NOTHING_SHARED,
    Shape,
    SharedGpus,
    Told,
    free_thousandths,
    shape_of,
    shared_gpus,
    told_shares,
)
from scoring.resources import Request
from scoring.topology.devices import UNREADABLE_DEVICES, Devices, read_devices

GPU = "nvidia.com/gpu"
SHARED = "nvidia.com/gpu.shared"


@pytest.mark.parametrize(
    ("request_", "unit", "shape"),
    [
        pytest.param((), 0, Shape(0, 0), id="nothing"),
        pytest.param((("cpu", 500), ("memory", 9)), 0, Shape(500, 0), id="cpu"),
        pytest.param(((GPU, 4),), 250, Shape(0, 4), id="whole"),
        pytest.param((("amd.com/gpu", 2),), 0, Shape(0, 2), id="of another vendor"),
        pytest.param(((SHARED, 1),), 0, Shape(0, 0), id="a share of nobody knows what"),
        pytest.param(((SHARED, 3),), 250, Shape(0, 1, 750), id="three quarters"),
        pytest.param(((SHARED, 4),), 250, Shape(0, 1), id="all shares of one"),
        pytest.param(((SHARED, 5),), 250, Shape(0, 2), id="more than one"),
        pytest.param(
            ((GPU, 1), (SHARED, 300)), 1, Shape(0, 1, 300), id="under both counts"
        ),
        pytest.param((("nvidia.com/mig-1g.10gb", 1),), 1, Shape(0, 0), id="a slice"),
        pytest.param(
            (("cpu", 2**62), (GPU, 2**62)), 0, Shape(MAX_CPU, MAX_GPUS), id="too much"
        ),
    ],
)
def test_a_request_has_a_shape(request_: Request, unit: int, shape: Shape) -> None:
    assert shape_of(request_, unit) == shape


@pytest.mark.parametrize(
    ("allocatable", "replicas", "shared"),
    [
        pytest.param(((GPU, 8),), 1, NOTHING_SHARED, id="whole ones alone"),
        pytest.param(((SHARED, 16),), 4, SharedGpus(4, 250), id="replicas"),
        pytest.param(((SHARED, 12),), 3, SharedGpus(4, 333), id="thirds"),
        pytest.param(((SHARED, 16),), 0, NOTHING_SHARED, id="of unknown number"),
        pytest.param(
            ((SHARED, 15),), 4, NOTHING_SHARED, id="that do not come out even"
        ),
        pytest.param(((GPU, 2), (SHARED, 2000)), 1, SharedGpus(2, 1), id="both counts"),
        pytest.param(((GPU, 2), (SHARED, 2)), 1, NOTHING_SHARED, id="one share each"),
        pytest.param(((GPU, 1), (SHARED, 1001)), 1, NOTHING_SHARED, id="too fine"),
        pytest.param(
            ((SHARED, 400),), 4, SharedGpus(MAX_DEVICES, 250), id="more than are read"
        ),
    ],
)
def test_what_a_node_shares(
    allocatable: Request, replicas: int, shared: SharedGpus
) -> None:
    assert shared_gpus(allocatable, replicas) == shared


@pytest.mark.parametrize(
    ("devices", "told"),
    [
        pytest.param(None, None, id="nothing"),
        pytest.param(UNREADABLE_DEVICES, None, id="nothing readable"),
        pytest.param(read_devices("1=500, GPU-a"), ((1, 500), (0, 1000)), id="both"),
        pytest.param(read_devices("1, GPU-c"), None, id="one that nobody knows"),
    ],
)
def test_which_gpus_a_pod_is_said_to_hold(
    devices: Devices | None, told: Told | None
) -> None:
    assert told_shares(devices, ("GPU-a", "GPU-b")) == told


@pytest.mark.parametrize(
    ("holders", "free"),
    [
        pytest.param([], (1000, 1000), id="nobody"),
        pytest.param([(300, ((1, 300),))], (1000, 700), id="told"),
        pytest.param([(300, ((5, 300),))], (1000, 1000), id="told of none there"),
        pytest.param(
            [(900, ((0, 900),)), (900, ((0, 900),))], (0, 1000), id="too much"
        ),
        pytest.param([(300, None), (600, None)], (100, 1000), id="the largest first"),
        pytest.param([(600, None), (600, None)], (400, 400), id="where it fits"),
        pytest.param([(600, None)] * 3, (0, 400), id="where it does not"),
        pytest.param([(2000, None)], (0, 0), id="whole ones"),
        pytest.param([(9000, None)], (0, 0), id="more than there is"),
    ],
)
def test_what_is_free_of_each_gpu(
    holders: list[tuple[int, Told | None]], free: tuple[int, ...]
) -> None:
    assert free_thousandths(2, holders) == free
