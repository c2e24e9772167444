"""Prices beside fragmentation: what is left of a node, and whom its GPUs are kept for.

All are in GPUs, as the gradient is. Their constants were found on seeds 40 and 41 of
the public trace, which the proof of the profile does not use.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from scoring.packing.fragmentation import gradient
from scoring.packing.learning import ExpectedPods
from scoring.packing.shapes import WHOLE, Shape
from scoring.packing.workload import (
    Demand,
    FreeCapacity,
    WorkloadMix,
    build_demand,
    mix_on,
)
from scoring.snapshot import Float64Array, GpuSupply, Int64Array

# Cores that count as much as a GPU in what is left over.
CORES_PER_GPU: Final = 16.0

# GPUs a pod costs for each GPU, or so many cores, that it leaves free.
BEST_FIT_PRICE: Final = 0.05 / 16

# GPUs a pod costs for each core that it takes beyond its part of the node's.
CPU_PRICE: Final = 0.01

# GPUs a pod costs for each GPU of a model that others insist on as much as on all
# models together.
SCARCITY_PRICE: Final = 1.0

# Pods that count before any has come: as many of them as insist are taken to insist on
# all models alike, so that the few of a rare model are kept until its pods come.
PRIOR_PODS: Final = 150.0

_MILLICORES: Final = 1000.0


def remainder(free: FreeCapacity, shape: Shape) -> Float64Array:
    """Return what a pod leaves free on each node: GPUs, and cores counted as such.

    Parameters
    ----------
    free : FreeCapacity
        N nodes.
    shape : Shape
        Of the pod.

    Returns
    -------
    float64 array, shape (N,)
        Not below 0.
    """
    gpus = np.maximum(np.add.reduce(free.devices, axis=0) - shape.total, 0) / WHOLE
    cores = np.maximum(free.cpu - shape.cpu, 0) / _MILLICORES
    left: Float64Array = gpus + cores / CORES_PER_GPU
    return left


def cpu_excess(
    allocatable_cpu: Int64Array, device_count: Int64Array, shape: Shape
) -> Float64Array:
    """Return the cores that a pod takes beyond those of the GPUs that it takes.

    Parameters
    ----------
    allocatable_cpu : int64 array, shape (N,)
        Millicores.
    device_count : int64 array, shape (N,)
        Devices of each node, 0 for one without.
    shape : Shape
        Of the pod. One without GPUs takes no GPU's cores, and costs nothing.

    Returns
    -------
    float64 array, shape (N,)
        In cores, not below 0.
    """
    if not shape.gpus:
        return np.zeros(len(allocatable_cpu))
    own = allocatable_cpu / np.maximum(device_count, 1) * (shape.total / WHOLE)
    excess: Float64Array = np.maximum(shape.cpu - own, 0.0) / _MILLICORES
    return excess


def insistence(
    mix: WorkloadMix, supply: Int64Array, prior: float = 0.0
) -> Float64Array:
    """Return how much more of each model is insisted on than there is of it.

    Parameters
    ----------
    mix : WorkloadMix
        M shapes on K models.
    supply : int64 array, shape (K,)
        GPUs of each model, none below 0.
    prior : float
        Part of the demand that insists which is added, spread over all models that
        there are.

    Returns
    -------
    float64 array, shape (K,)
        The part of the GPUs asked for that shapes ask of the model which do not accept
        all models that there are, by the model's part of all GPUs. What may be one of
        several models is asked of each as it has GPUs. 0 where nobody insists, or there
        are none.

    Examples
    --------
    A quarter of the demand is for the second model, which has an eighth of the GPUs.

    >>> mix = WorkloadMix(
    ...     cpu=np.array([0, 0]),
    ...     gpus=np.array([1, 1]),
    ...     thousandths=np.array([1000, 1000]),
    ...     accepts=np.array([[True, False], [True, True]]),
    ...     weights=np.array([0.75, 0.25]),
    ... )
    >>> insistence(mix, np.array([70, 10])).tolist()
    [0.0, 2.0]
    """
    asked = mix.weights * mix.gpus * mix.thousandths
    there = supply > 0
    picky = asked * ~mix.accepts[there].all(axis=0)
    accepted = mix.accepts.T @ supply
    of_each_gpu = mix.accepts @ (picky / np.maximum(accepted, 1))
    all_asked, all_supply = asked.sum(), supply.sum()
    if not all_asked or not all_supply:
        return np.zeros(len(supply))
    more = prior * picky.sum() / np.count_nonzero(there)
    part: Float64Array = np.zeros(len(supply))
    np.divide(more, supply, out=part, where=there)
    part[there] += of_each_gpu[there]
    part *= all_supply / all_asked
    return part


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """Expectation of a cluster's pods, in the form that prices are computed from.

    Attributes
    ----------
    insistence : float64 array, shape (K,)
        By model, as `insistence` returns it.
    """

    demand: Demand
    insistence: Float64Array


# PERF: a mix is renewed some thirty times in 10,000 pods, and each call asks
@lru_cache(maxsize=8)
def outlook_of(expected: ExpectedPods, supply: GpuSupply) -> Outlook:
    """Return the outlook of a cluster; both are told apart by identity."""
    mix = mix_on(expected.parts, supply)
    # Shapes that are rare one by one may be most of what insists on a rare model.
    asked = mix if expected.asked is None else mix_on(expected.asked, supply)
    prior = PRIOR_PODS / max(expected.pods, 1.0)
    return Outlook(build_demand(mix), insistence(asked, supply.counts, prior))


def placement_gain(
    free: FreeCapacity,
    shape: Shape,
    outlook: Outlook,
    allocatable_cpu: Int64Array,
    device_count: Int64Array,
) -> Float64Array:
    """Return what a placement wins: `gradient` less the prices of what is left over.

    Parameters
    ----------
    free : FreeCapacity
        N nodes.
    allocatable_cpu, device_count : int64 array, shape (N,)
        As in `cpu_excess`.

    Returns
    -------
    float64 array, shape (N,)
        In GPUs. It means nothing where the pod does not fit.
    """
    gain: Float64Array = gradient(free, shape, outlook.demand)
    gain -= BEST_FIT_PRICE * remainder(free, shape)
    gain -= CPU_PRICE * cpu_excess(allocatable_cpu, device_count, shape)
    return gain
