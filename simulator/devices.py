"""`Devices`: how much of each GPU is free, and which GPUs a pod gets on its node."""

from typing import Final

import numpy as np

from scoring.resources import is_whole_gpu
from scoring.snapshot import BoolArray, Int64Array, Snapshot
from simulator.pods import WHOLE, QueuedPod

# A share does not fit; above all that is free of a GPU.
_NO_FIT: Final = np.iinfo(np.int64).max


class Devices:
    """Free thousandths of each GPU of each node.

    Attributes
    ----------
    free : int64 array, shape (N, G)
        0..1000; G is the number of GPUs of the largest node, and what a smaller node
        lacks is 0.
    total : int64 array, shape (N,)
        Thousandths of the node's GPUs.
    """

    def __init__(self, free: Int64Array, total: Int64Array) -> None:
        self.free = free
        self.total = total

    def holding(self, pod: QueuedPod) -> BoolArray:
        """Return which nodes have the pod's GPUs free, shape (N,)."""
        fitting = np.count_nonzero(self.free >= pod.share, axis=1)
        holding: BoolArray = fitting >= pod.gpus
        return holding

    def take(self, column: int, pod: QueuedPod, chosen: int) -> tuple[int, list[int]]:
        """Give a pod its GPUs on a node.

        `chosen` is the GPU of a pod that takes a share; others get the first ones.

        Returns
        -------
        tuple of int and list of int
            How many of them were free as a whole, and which they are.
        """
        row = self.free[column]
        if pod.share < WHOLE:
            opened = int(row[chosen] == WHOLE)
            row[chosen] -= pod.share
            return opened, [chosen]
        taken = np.flatnonzero(row == WHOLE)[: pod.gpus]
        row[taken] = 0
        return pod.gpus, taken.tolist()


def tightest(row: Int64Array, share: int) -> int:
    """Return the index of the GPU with the least free that still has `share`.

    >>> tightest(np.array([1000, 300, 500]), 400)
    2
    """
    return int(np.where(row >= share, row, _NO_FIT).argmin())


def first(row: Int64Array, share: int) -> int:
    """Return the index of the first GPU that has `share` free.

    >>> first(np.array([300, 1000, 500]), 400)
    1
    """
    return int((row >= share).argmax())


def devices_of(snapshot: Snapshot) -> Devices:
    """Return the GPUs of a cluster by the counts of whole ones.

    Parts of GPUs under names of their own are left out: which GPU they lie on, no
    count tells.
    """
    count = len(snapshot.nodes.names)
    total = np.zeros(count, dtype=np.int64)
    taken = np.zeros(count, dtype=np.int64)
    for row, resource in enumerate(snapshot.resources):
        if is_whole_gpu(resource):
            total += snapshot.allocatable[row]
            taken += np.minimum(snapshot.requested[row], snapshot.allocatable[row])
    places = np.arange(int(total.max(initial=0)))
    is_free = (places >= taken[:, None]) & (places < total[:, None])
    return Devices(is_free * np.int64(WHOLE), total * WHOLE)
