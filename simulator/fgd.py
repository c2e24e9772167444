"""`FragmentationDescent`: the published policy FGD, to compare with.

Fragmentation gradient descent, after the paper named in `simulator.fragmentation`: a
pod goes where it makes the fragments fewest, or more by the least.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from cluster.decode.objects import PodRecord
from scoring.resources import CPU
from scoring.snapshot import Float64Array, IndexArray, Int64Array
from simulator.cluster import Cluster
from simulator.fragmentation import Mix, fragments
from simulator.pods import WHOLE, QueuedPod, Shape

# Thousandths of a GPU at which a gradient counts as large: the published runs round
# the score to hundredths on this curve.
STEEPNESS: Final = 1000.0


@dataclass(slots=True)
class _Gradients:
    """What placing a pod of one shape would change, on all nodes.

    Attributes
    ----------
    gains : float64 array, shape (N,)
        By how many thousandths of a GPU fragments become fewer.
    gpus : int64 array, shape (N,)
        The GPU on which they do, for a share.
    seen : int
        How many placements they take into account.
    """

    gains: Float64Array
    gpus: Int64Array
    seen: int = 0


@dataclass(slots=True)
class FragmentationDescent:
    """Keeps gradients by the shape of pods, brought up to date where pods came.

    Attributes
    ----------
    models : int64 array, shape (N,)
        Code of each node's model, as in the mix.
    """

    cluster: Cluster
    mix: Mix
    models: Int64Array
    _kept: dict[Shape, _Gradients] = field(default_factory=dict)
    _changed: list[int] = field(default_factory=list)

    def rate(
        self, pod: QueuedPod, columns: IndexArray
    ) -> tuple[IndexArray, Int64Array]:
        """Return all columns, with a score from 0 to 100 of the gradient."""
        gains = self._gradients(pod).gains.take(columns)
        scores = np.floor(100 / (1 + np.exp(-gains / STEEPNESS)))
        return columns, scores.astype(np.int64)

    def gpu_of(self, pod: QueuedPod, column: int) -> int:
        """Return the GPU on which a share leaves the fewest fragments."""
        return int(self._gradients(pod).gpus[column])

    def placed(self, record: PodRecord) -> None:
        """Note which node has changed."""
        node = self.cluster.snapshot.nodes.column_of[record.node_name]
        self._changed.append(node)

    def _gradients(self, pod: QueuedPod) -> _Gradients:
        """Return the gradients for a pod, as of now."""
        kept = self._kept.get(pod.shape)
        if kept is None:
            count = len(self.cluster.names)
            kept = _Gradients(np.zeros(count), np.zeros(count, dtype=np.int64))
            self._kept[pod.shape] = kept
            stale = np.arange(count)
        else:
            stale = np.unique(np.array(self._changed[kept.seen :], dtype=np.intp))
        kept.seen = len(self._changed)
        if len(stale):
            kept.gains[stale], kept.gpus[stale] = self._computed(pod, stale)
        return kept

    def _computed(
        self, pod: QueuedPod, columns: IndexArray
    ) -> tuple[Float64Array, Int64Array]:
        """Return gain and GPU on some nodes; what does not fit gains minus infinity."""
        free = self.cluster.devices.free[columns]
        free_cpu = self.cluster.free(CPU).take(columns)
        models = self.models[columns]
        before = fragments(self.mix, free_cpu, free, models)
        rows, gpus, after_free = _placements(free, pod)
        after = fragments(self.mix, free_cpu[rows] - pod.cpu, after_free, models[rows])
        gains = np.full((len(columns), max(free.shape[1], 1)), -np.inf)
        gains[rows, gpus] = before[rows] - after
        best = gains.argmax(axis=1)
        return gains[np.arange(len(columns)), best], best


def _placements(
    free: Int64Array, pod: QueuedPod
) -> tuple[IndexArray, IndexArray, Int64Array]:
    """Return row, GPU and what is free afterwards of each way to place a pod.

    Whole GPUs are all alike: such a pod has one way, which stands at GPU 0.
    """
    if pod.gpus and pod.share < WHOLE:
        rows, gpus = np.nonzero(free >= pod.share)
        after = free[rows]
        after[np.arange(len(rows)), gpus] -= pod.share
        return rows, gpus, after
    whole = free == WHOLE
    rows = np.flatnonzero(np.count_nonzero(whole, axis=1) >= pod.gpus)
    taken = whole & (np.cumsum(whole, axis=1) <= pod.gpus)
    after = np.where(taken, 0, free)[rows]
    return rows, np.zeros(len(rows), dtype=np.intp), after
