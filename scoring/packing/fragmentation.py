"""Fragmentation: free GPU thousandths that the expected pods cannot use.

The measure of FGD (Weng et al., USENIX ATC 2023): for a shape that can run on a node,
the free thousandths on devices too full for it; for one that cannot, all that is free;
averaged over the mix. Memory is left to the filter.
"""

from functools import lru_cache
from typing import Final

import numpy as np

from scoring.packing.learning import ExpectedPods
from scoring.packing.shapes import WHOLE, Shape
from scoring.packing.workload import Demand, FreeCapacity
from scoring.snapshot import (
    BoolArray,
    Float64Array,
    GpuSupply,
    IndexArray,
    Int64Array,
)

# More than any device has free.
_NO_DEVICE: Final = WHOLE + 1


def fragmentation(free: FreeCapacity, demand: Demand) -> Float64Array:
    """Return how much of each node's free GPUs the mix cannot use.

    Parameters
    ----------
    free : FreeCapacity
        N nodes.
    demand : Demand
        Over the models of `free`.

    Returns
    -------
    float64 array, shape (N,)
        In GPUs, from 0 to what is free on the node. For a shape that asks for no
        device, all that is free counts.

    Examples
    --------
    Half of the pods ask a whole GPU, half of them 0.4: both can use the free GPU, and
    of the 0.5 that are free on the other one only the second kind can.

    >>> from scoring.packing.workload import FreeCapacity, WorkloadMix, build_demand
    >>> mix = WorkloadMix(
    ...     cpu=np.array([1000, 1000]),
    ...     gpus=np.array([1, 1]),
    ...     thousandths=np.array([1000, 400]),
    ...     accepts=np.array([[True, True]]),
    ...     weights=np.array([3.0, 3.0]),
    ... )
    >>> devices = np.array([[1000], [500]])
    >>> free = FreeCapacity(devices, cpu=np.array([8000]), models=np.array([0]))
    >>> fragmentation(free, build_demand(mix))
    array([0.25])
    """
    unusable = _unusable(free, None, demand)
    # Shares that add up to all are taken off with the error of their last digit.
    return np.where(unusable > 0.0, unusable, 0.0)


def gradient(free: FreeCapacity, shape: Shape, demand: Demand) -> Float64Array:
    """Return by how much a pod lowers the fragmentation of each node it is put on.

    A pod that asks for a part of a device gets it from the fullest one that has it.

    Parameters
    ----------
    free : FreeCapacity
        N nodes.
    shape : Shape
        Of the pod.
    demand : Demand
        Over the models of `free`.

    Returns
    -------
    float64 array, shape (N,)
        In GPUs, above 0 where fragmentation falls. It means nothing where the pod does
        not fit; see `fits`.
    """
    unusable = _unusable(free, shape, demand)
    count = len(free.cpu)
    decrease: Float64Array = unusable[:count] - unusable[count:]
    return decrease


def fits(free: FreeCapacity, shape: Shape) -> BoolArray:
    """Return which nodes have the devices and the cpu that a pod asks, shape (N,)."""
    has_both: BoolArray = free.cpu >= shape.cpu
    if shape.gpus:
        enough = np.add.reduce(free.devices >= shape.thousandths, axis=0)
        has_both &= enough >= shape.gpus
    return has_both


def broken_shapes(
    before: FreeCapacity, after: FreeCapacity, expected: ExpectedPods, supply: GpuSupply
) -> list[tuple[Shape, float]]:
    """Return which expected shapes fit on a node before, and do not after.

    Parameters
    ----------
    before, after : FreeCapacity
        One node.

    Returns
    -------
    list of (Shape, float)
        With the part of all pods that come in it, the most frequent first.
    """
    gpus = supply.models[int(before.models[0])]
    total = sum(expected.parts.values())
    found: dict[Shape, float] = {}
    for kind, count in expected.parts.items():
        if kind.shape.gpus and kind.accepts(gpus):
            was, still = (bool(fits(f, kind.shape)[0]) for f in (before, after))
            if was and not still:
                found[kind.shape] = found.get(kind.shape, 0.0) + count / total
    return sorted(found.items(), key=lambda item: -item[1])


def best_fit_device(
    devices: Int64Array, thousandths: int
) -> tuple[Int64Array, Int64Array]:
    """Return what the device that a pod takes has free before and after, shape (N,).

    Of the devices that have `thousandths` free, it is the one that has least; 0 and 0
    where none has. A pod of several whole devices takes such a one several times.

    >>> old, new = best_fit_device(np.array([[1000, 100], [500, 300]]), 400)
    >>> old.tolist(), new.tolist()
    ([500, 0], [100, 0])
    """
    enough = np.where(devices >= thousandths, devices, _NO_DEVICE)
    old: Int64Array = np.minimum.reduce(enough, axis=0, initial=_NO_DEVICE)
    old[old == _NO_DEVICE] = 0
    return old, np.maximum(old - thousandths, 0)


# Above this many nodes, products of whole numbers take longer than they save.
MAX_AT_ONCE: Final = 128


def _unusable(free: FreeCapacity, shape: Shape | None, demand: Demand) -> Float64Array:
    """Return what is free on each node less what the mix can use, in GPUs.

    To the last digit the same for a node whichever others it is computed with: shares
    are taken off one after the other.

    Returns
    -------
    float64 array, shape (N,), or (2 N,) for a pod of `shape`: before it, then after it
    """
    cpu, models, gpus = free.cpu, free.models, None
    taken: Int64Array = np.empty((0, len(cpu)), dtype=np.int64)
    if shape is not None:
        # PERF: side by side, and from what a taken device has before and after alone,
        # since for one changed node nearly all the time is to begin numpy operations;
        # bench/extender/packing.py
        cpu = np.concatenate((cpu, cpu - shape.cpu))
        models = np.concatenate((models, models))
        gpus = shape.gpus
        if gpus:
            taken = np.stack(best_fit_device(free.devices, shape.thousandths))
    reached = demand.cpu_steps.searchsorted(cpu, side="right")
    served_at = models * (len(demand.cpu_steps) + 1) + reached
    counted = _counted(len(free.devices), gpus)
    way = _all_at_once if len(free.cpu) <= MAX_AT_ONCE else _group_by_group
    unusable = way(free.devices, taken, counted, served_at, demand)
    unusable /= WHOLE
    return unusable


@lru_cache(maxsize=64)
def _counted(depth: int, gpus: int | None) -> Int64Array:
    """Return how often each row of devices counts, in one state or in two.

    Parameters
    ----------
    depth : int
        D devices, each of which counts once.
    gpus : int or None
        How many devices a pod takes, None for no pod. What such a device has before and
        after stands in two more rows, which count in the second state alone.

    Returns
    -------
    int64 array, shape (1, D) without a pod, (2, D) for one that takes none, (2, D + 2)
    """
    counted = np.ones((1 if gpus is None else 2, depth), dtype=np.int64)
    if gpus:
        counted = np.hstack((counted, np.array([[0, 0], [-gpus, gpus]])))
    counted.setflags(write=False)
    return counted


def _all_at_once(
    devices: Int64Array,
    taken: Int64Array,
    counted: Int64Array,
    served_at: IndexArray,
    demand: Demand,
) -> Float64Array:
    """Return what `_unusable` does, in thousandths.

    `taken` is what a taken device has before and after, shape (2, N), or (0, N).
    """
    devices = np.concatenate((devices, taken))
    enough = devices >= demand.least[:, np.newaxis, np.newaxis]
    rows = (len(enough), len(served_at))
    parts = demand.served.take(served_at, axis=1)
    parts *= (counted @ (devices * enough)).reshape(rows)
    parts *= (counted @ enough).reshape(rows) >= demand.gpus[:, np.newaxis]
    unusable: Float64Array = np.subtract.reduce(parts, axis=0)
    return unusable


def _group_by_group(
    devices: Int64Array,
    taken: Int64Array,
    counted: Int64Array,
    served_at: IndexArray,
    demand: Demand,
) -> Float64Array:
    """Return what `_all_at_once` does, for many nodes."""
    free = _in_states(devices, taken, counted)
    unusable: Float64Array = free.astype(np.float64)
    at, sums, counts = 0, free, free
    for row in range(1, len(demand.least)):
        least, gpus = int(demand.least[row]), int(demand.gpus[row])
        if least != at:
            at, enough, held = least, devices >= least, taken >= least
            sums = _in_states(devices * enough, taken * held, counted)
            counts = _in_states(enough, held, counted)
        part = demand.served[row].take(served_at)
        part *= sums
        part *= counts >= gpus
        unusable -= part
    return unusable


def _in_states(
    values: Int64Array | BoolArray, taken: Int64Array | BoolArray, counted: Int64Array
) -> Int64Array:
    """Return ``counted @ values``, which numpy does slowly for many, shape (S * N,)."""
    before: Int64Array = np.add.reduce(values, axis=0, dtype=np.int64)
    if len(counted) == 1:
        return before
    change = counted[1, len(values) :] @ taken
    return np.concatenate((before, before + change))
