"""`WorkloadMix`: request shapes of expected pods, and how often each comes.

`build_demand` sums it up for `fragmentation`; `FreeCapacity` is what nodes have left.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from scoring.snapshot import BoolArray, Float64Array, Int64Array

# Thousandths of one device that is entirely free.
WHOLE: Final = 1000


@dataclass(frozen=True, slots=True)
class Shape:
    """Request of one pod, as far as packing looks at it.

    Attributes
    ----------
    cpu : int
        Millicores.
    gpus : int
        Number of devices; 0 for a pod that asks for none.
    thousandths : int
        Of each of them, 1 to 1000. Below 1000 for one device only.
    """

    cpu: int
    gpus: int
    thousandths: int = WHOLE

    @property
    def total(self) -> int:
        """Thousandths of a device that it takes in all."""
        return self.gpus * self.thousandths


@dataclass(frozen=True, slots=True, eq=False)
class FreeCapacity:
    """What is free on N nodes of at most D devices.

    Attributes
    ----------
    devices : int64 array, shape (D, N)
        Free thousandths of each device, 0 to 1000; 0 where a node has fewer.
    cpu : int64 array, shape (N,)
        Free millicores, not below 0.
    models : int64 array, shape (N,)
        Index of each node's GPU model, 0 to K - 1.
    """

    devices: Int64Array
    cpu: Int64Array
    models: Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadMix:
    """M request shapes, on nodes of K GPU models.

    Attributes
    ----------
    cpu : int64 array, shape (M,)
        Millicores.
    gpus : int64 array, shape (M,)
        Number of devices, 0 or more.
    thousandths : int64 array, shape (M,)
        Of each device, 1 to 1000.
    accepts : bool array, shape (K, M)
        True where the shape may run on the model.
    weights : float64 array, shape (M,)
        How often each comes, none below 0.
    """

    cpu: Int64Array
    gpus: Int64Array
    thousandths: Int64Array
    accepts: BoolArray
    weights: Float64Array


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """A mix, summed up over the shapes that ask for the same devices.

    Shapes of one group differ in cpu and accepted models alone. A node serves a group
    as a whole or not at all as far as its devices go; how much of the group's weight
    its cpu and model serve is a look-up.

    Attributes
    ----------
    thresholds : int64 array, shape (T,)
        Distinct thousandths that a device must have free, ascending.
    threshold_of : int64 array, shape (G,)
        Index in `thresholds` of what a group asks of each device.
    gpus : int64 array, shape (G,)
        Number of devices that a group asks, 1 or more.
    cpu_steps : int64 array, shape (S,)
        Distinct cpu requests in millicores, ascending.
    served : float64 array, shape (G, K * (S + 1))
        Weight of the shapes of a group that a node of a model serves whose free cpu
        reaches so many of the steps, by ``model * (S + 1) + steps reached``.
    """

    thresholds: Int64Array
    threshold_of: Int64Array
    gpus: Int64Array
    cpu_steps: Int64Array
    served: Float64Array


def build_demand(mix: WorkloadMix) -> Demand:
    """Sum up a mix.

    Weights are scaled to add up to 1 over all shapes, those that ask for no device
    included: nodes serve those whatever their devices, so they stand in no group.

    Parameters
    ----------
    mix : WorkloadMix
        M may be 0: then nothing is in demand.

    Returns
    -------
    Demand
    """
    weights = mix.weights / (mix.weights.sum() or 1.0)
    asking = np.flatnonzero(mix.gpus > 0)
    wanted = np.stack([mix.thousandths[asking], mix.gpus[asking]])
    groups, group_of = np.unique(wanted, axis=1, return_inverse=True)
    group_of = group_of.reshape(-1)  # numpy 2.0 keeps an axis that others leave out
    thresholds, threshold_of = np.unique(groups[0], return_inverse=True)
    cpu_steps, step_of = np.unique(mix.cpu[asking], return_inverse=True)
    models, steps = len(mix.accepts), len(cpu_steps) + 1
    served = np.zeros((groups.shape[1], models, steps))
    for index, shape in enumerate(asking.tolist()):
        # A node serves the shape from the step on that is its cpu request.
        served[group_of[index], mix.accepts[:, shape], step_of[index] + 1 :] += weights[
            shape
        ]
    return Demand(
        thresholds,
        threshold_of.astype(np.int64),
        groups[1],
        cpu_steps,
        served.reshape(len(served), models * steps),
    )
