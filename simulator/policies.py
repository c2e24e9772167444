"""`Policy`: who scores nodes in a replay. Random and BestFit, to compare with.

BestFit is the one of the published runs of the trace.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias

import numpy as np

from cluster.decode.objects import PodRecord
from scoring.resources import CPU
from scoring.snapshot import IndexArray, Int64Array
from simulator.cluster import Cluster
from simulator.devices import first, tightest
from simulator.pods import WHOLE, QueuedPod

# Free thousandths of a node's GPUs, and a share, to the GPU that it is taken of.
ChooseGpu: TypeAlias = Callable[[Int64Array, int], int]

TIGHTEST: Final = "tightest"

CHOICES: Final[Mapping[str, ChooseGpu]] = {TIGHTEST: tightest, "first": first}


class Policy(Protocol):
    """Judges and scores the nodes that kube-scheduler offers for a pod."""

    def rate(
        self, pod: QueuedPod, columns: IndexArray
    ) -> tuple[IndexArray, Int64Array]:
        """Return those of the columns that pass, and the score of each."""
        ...

    def gpu_of(self, pod: QueuedPod, column: int) -> int:
        """Return the GPU of which a pod gets its share on a node."""
        ...

    def placed(self, record: PodRecord) -> None:
        """Take note that a pod is bound to a node."""
        ...


class RandomPolicy:
    """One fitting node is as good as another, and one GPU as another."""

    def __init__(self, cluster: Cluster, random: np.random.Generator) -> None:
        self._cluster = cluster
        self._random = random

    def rate(
        self, _pod: QueuedPod, columns: IndexArray
    ) -> tuple[IndexArray, Int64Array]:
        """Return all columns, with equal scores."""
        return columns, np.zeros(len(columns), dtype=np.int64)

    def gpu_of(self, pod: QueuedPod, column: int) -> int:
        """Return any GPU that has the share free."""
        fitting = np.flatnonzero(self._cluster.devices.free[column] >= pod.share)
        return int(fitting[self._random.integers(len(fitting))])

    def placed(self, record: PodRecord) -> None:
        """Take no notice."""


# Millicores and thousandths of a GPU at which nothing is left to win.
MOST_CPU: Final = 2 * 128_000

MOST_GPUS: Final = 2 * 8 * WHOLE


class BestFit:
    """The node on which the least of CPU and GPUs is left over, in hundredths."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def rate(
        self, pod: QueuedPod, columns: IndexArray
    ) -> tuple[IndexArray, Int64Array]:
        """Return all columns, with what is left there subtracted from 100."""
        cpu = self._cluster.free(CPU).take(columns) - pod.cpu
        gpus = self._cluster.devices.free[columns].sum(axis=1) - pod.asked
        scores = 100 * (1 - cpu / MOST_CPU - gpus / MOST_GPUS)
        return columns, np.trunc(scores).astype(np.int64)

    def gpu_of(self, pod: QueuedPod, column: int) -> int:
        """Return the GPU with the least free that has the share."""
        return tightest(self._cluster.devices.free[column], pod.share)

    def placed(self, record: PodRecord) -> None:
        """Take no notice."""
