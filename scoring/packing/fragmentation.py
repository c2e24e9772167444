"""Fragmentation: free GPU thousandths that the expected pods cannot use.

The measure of FGD (Weng et al., USENIX ATC 2023): for a shape that can run on a node,
the free thousandths on devices too full for it; for one that cannot, all that is free;
averaged over the mix. Memory is left to the filter.
"""

from typing import Final

import numpy as np

from scoring.packing.learning import ExpectedPods
from scoring.packing.shapes import WHOLE, Shape
from scoring.packing.workload import Demand, FreeCapacity
from scoring.snapshot import BoolArray, Float64Array, GpuSupply, Int64Array

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
    sums, counts = _usable(free.devices, demand.thresholds)
    total = np.add.reduce(free.devices, axis=0)
    unusable = _unusable(total, sums, counts, free.cpu, free.models, demand)
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

    Notes
    -----
    Each threshold changes by the devices that the pod takes alone, so nothing is
    summed over devices again.
    """
    sums, counts = _usable(free.devices, demand.thresholds)
    total = np.add.reduce(free.devices, axis=0)
    # PERF: before and after side by side, since for one changed node nearly all the
    # time is to begin numpy operations; bench/scoring/test_kernels.py
    states = [(total, sums, counts, free.cpu)]
    if shape.gpus:
        old, new = best_fit_device(free.devices, shape.thousandths)
        least = demand.thresholds[:, np.newaxis]
        is_lost, is_kept = old >= least, new >= least
        sums = sums - shape.gpus * (old * is_lost - new * is_kept)
        counts = counts - shape.gpus * (is_lost & ~is_kept)
        total = total - shape.gpus * (old - new)
    states.append((total, sums, counts, free.cpu - shape.cpu))
    total, sums, counts, cpu = (
        np.concatenate(parts, axis=-1) for parts in zip(*states, strict=True)
    )
    models = np.concatenate((free.models, free.models))
    unusable = _unusable(total, sums, counts, cpu, models, demand)
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
    names = supply.models[int(before.models[0])].names
    total = sum(expected.parts.values())
    found: dict[Shape, float] = {}
    for kind, count in expected.parts.items():
        if kind.shape.gpus and kind.accepts(names):
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


# Above this many nodes, arrays over thresholds or groups, too, would leave the caches.
MAX_AT_ONCE: Final = 512


def _usable(
    devices: Int64Array, thresholds: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Return sum and number of the devices with so much free, each of shape (T, N)."""
    if devices.shape[1] <= MAX_AT_ONCE:
        enough = devices >= thresholds[:, np.newaxis, np.newaxis]
        return (
            np.add.reduce(devices * enough, axis=1),
            np.add.reduce(enough, axis=1, dtype=np.int64),
        )
    shape = (len(thresholds), devices.shape[1])
    sums, counts = np.empty(shape, np.int64), np.empty(shape, np.int64)
    for row, least in enumerate(thresholds.tolist()):
        enough = devices >= least
        np.add.reduce(enough, axis=0, dtype=np.int64, out=counts[row])
        np.add.reduce(devices * enough, axis=0, out=sums[row])
    return sums, counts


def _unusable(  # noqa: PLR0913, PLR0917 - the parts of one node's state
    total: Int64Array,
    sums: Int64Array,
    counts: Int64Array,
    cpu: Int64Array,
    models: Int64Array,
    demand: Demand,
) -> Float64Array:
    """Return what is free on each node less what the mix can use, in GPUs.

    To the last digit the same for a node whichever others it is computed with: shares
    are taken off one after the other.
    """
    reached = np.searchsorted(demand.cpu_steps, cpu, side="right")
    served_at = models * (len(demand.cpu_steps) + 1) + reached
    unusable: Float64Array = total.astype(np.float64)
    if len(cpu) <= 2 * MAX_AT_ONCE:
        of = demand.threshold_of
        parts = np.empty((len(of) + 1, len(cpu)))
        parts[0] = unusable
        np.multiply(demand.served[:, served_at], sums[of], out=parts[1:])
        parts[1:] *= counts[of] >= demand.gpus[:, np.newaxis]
        np.subtract.reduce(parts, axis=0, out=unusable)
    else:
        groups = zip(demand.threshold_of.tolist(), demand.gpus.tolist(), strict=True)
        for row, (threshold, gpus) in enumerate(groups):
            part = demand.served[row].take(served_at)
            part *= sums[threshold]
            part *= counts[threshold] >= gpus
            unusable -= part
    unusable /= WHOLE
    return unusable
