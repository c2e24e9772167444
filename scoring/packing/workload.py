"""`WorkloadMix`: request shapes of expected pods, and how often each comes.

`build_demand` sums it up for `fragmentation`; `FreeCapacity` is what nodes have left.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from scoring.gpu.node_gpus import NodeGpus
from scoring.packing.learning import LearnedMix
from scoring.packing.shapes import WHOLE, Shape
from scoring.snapshot import (
    BoolArray,
    Float64Array,
    GpuSupply,
    IndexArray,
    Int64Array,
)


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

    def part(self, part: slice | IndexArray) -> "FreeCapacity":
        """Return some of them."""
        if isinstance(part, slice) and part == slice(None):
            return self
        return FreeCapacity(self.devices[:, part], self.cpu[part], self.models[part])

    def alone(self, index: int) -> "FreeCapacity":
        """Return one node of them, for a change of its own."""
        part = slice(index, index + 1)
        return FreeCapacity(
            self.devices[:, part].copy(), self.cpu[part].copy(), self.models[part]
        )

    def take_for(self, index: int, shape: Shape) -> None:
        """Take from one node what a pod there holds, as far as it is there.

        Of shares the fullest device that has enough gives them, as in `gradient`.
        """
        self.cpu[index] = max(int(self.cpu[index]) - shape.cpu, 0)
        devices = self.devices[:, index]
        enough = np.flatnonzero(devices >= shape.thousandths)
        first = enough[np.argsort(devices[enough], kind="stable")][: shape.gpus]
        devices[first] -= shape.thousandths

    def give_back(self, index: int, shape: Shape, count: int) -> None:
        """Free on one node what a pod there holds, of `count` devices.

        Which ones it holds nobody says here: those that lack so much, the emptiest
        first.
        """
        self.cpu[index] += shape.cpu
        devices = self.devices[:count, index]
        lacking = np.flatnonzero(devices <= WHOLE - shape.thousandths)
        last = lacking[np.argsort(-devices[lacking], kind="stable")][: shape.gpus]
        devices[last] += shape.thousandths


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


def mix_on(parts: LearnedMix, supply: GpuSupply) -> WorkloadMix:
    """Return a mix on the GPU models of a cluster.

    Parameters
    ----------
    parts : mapping
        M shapes, and how often each comes.
    supply : GpuSupply
        K models.
    """
    shapes = [expected.shape for expected in parts]
    accepts = [
        [expected.accepts(model) for expected in parts] for model in supply.models
    ]
    return WorkloadMix(
        cpu=np.array([shape.cpu for shape in shapes], dtype=np.int64),
        gpus=np.array([shape.gpus for shape in shapes], dtype=np.int64),
        thousandths=np.array([shape.thousandths for shape in shapes], dtype=np.int64),
        accepts=np.array(accepts, dtype=np.bool_).reshape(len(accepts), len(shapes)),
        weights=np.array(list(parts.values()), dtype=np.float64),
    )


_ModelKey: TypeAlias = tuple[str, frozenset[str], bool]


def _model_key(kind: NodeGpus) -> _ModelKey:
    """Return what tells models of a supply apart.

    Shares and slices under the name of GPUs are one of their own: pods that ask a type
    do not take them.
    """
    return kind.model, kind.names, kind.is_whole


def build_supply(
    kinds: Sequence[NodeGpus],
    codes: Int64Array,
    device_counts: Int64Array,
    units: Int64Array,
) -> GpuSupply:
    """Return what GPUs a cluster has.

    Parameters
    ----------
    kinds : sequence of NodeGpus
    codes : int64 array, shape (N,)
        Index of each node's GPUs in `kinds`.
    device_counts : int64 array, shape (N,)
        GPUs of each node.
    units : int64 array, shape (N,)
        Thousandths that one share is; 0 for a node that shares none.
    """
    row_of: dict[_ModelKey, int] = {}
    rows = [row_of.setdefault(_model_key(kind), len(row_of)) for kind in kinds]
    # Of each model any kind will do: they are told apart by what models do not decide.
    models = tuple(kinds[rows.index(row)] for row in range(len(row_of)))
    model_of = np.array(rows, dtype=np.int64)
    counts = np.zeros(len(models), dtype=np.int64)
    np.add.at(counts, model_of[codes], device_counts)
    shared = np.bincount(units, minlength=1)
    shared[0] = 0
    most = int(device_counts.max(initial=0))
    for array in (model_of, counts):
        array.setflags(write=False)
    return GpuSupply(models, model_of, counts, int(shared.argmax()), most)


def supply_beside(own: GpuSupply, cluster: GpuSupply) -> GpuSupply:
    """Return the supply of a cluster, as nodes see it that are not in it yet.

    Parameters
    ----------
    own : GpuSupply
        Of these nodes alone; of their GPUs those count of which the cluster has none.
    """
    row_of = {_model_key(kind): row for row, kind in enumerate(cluster.models)}
    models, counts, rows = list(cluster.models), cluster.counts.tolist(), []
    for kind, count in zip(own.models, own.counts.tolist(), strict=True):
        key = _model_key(kind)
        if key not in row_of:
            row_of[key] = len(models)
            models.append(kind)
            counts.append(count)
        rows.append(row_of[key])
    model_of = np.array(rows, dtype=np.int64)[own.model_of]
    supply = np.array(counts, dtype=np.int64)
    for array in (model_of, supply):
        array.setflags(write=False)
    unit = cluster.unit or own.unit
    return GpuSupply(tuple(models), model_of, supply, unit, own.most)


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """A mix, summed up over the shapes that ask for the same devices.

    Shapes of one group differ in cpu and accepted models alone. A node serves a group
    as a whole or not at all as far as its devices go; how much of the group's weight
    its cpu and model serve is a look-up.

    Attributes
    ----------
    least : int64 array, shape (G + 1,)
        Thousandths that each device must have free for a group, ascending. Row 0 is no
        group: it stands for all that is free, here and in what follows.
    gpus : int64 array, shape (G + 1,)
        Number of devices that a group asks, 1 or more; 0 in row 0.
    cpu_steps : int64 array, shape (S,)
        Distinct cpu requests in millicores, ascending.
    served : float64 array, shape (G + 1, K * (S + 1))
        Weight of the shapes of a group that a node of a model serves whose free cpu
        reaches so many of the steps, by ``model * (S + 1) + steps reached``. Row 0 has
        ones.
    """

    least: Int64Array
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
    cpu_steps, step_of = np.unique(mix.cpu[asking], return_inverse=True)
    models, steps = len(mix.accepts), len(cpu_steps) + 1
    least, gpus = np.concatenate((np.zeros((2, 1), dtype=np.int64), groups), axis=1)
    served = np.zeros((len(gpus), models, steps))
    served[0] = 1.0
    for index, shape in enumerate(asking.tolist()):
        # A node serves the shape from the step on that is its cpu request.
        row, step = group_of[index] + 1, step_of[index] + 1
        served[row, mix.accepts[:, shape], step:] += weights[shape]
    return Demand(least, gpus, cpu_steps, served.reshape(len(gpus), models * steps))
