"""`Cluster`: the nodes as kube-scheduler has them, each placement counted at once."""

from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np

from cluster.decode.objects import PodConstraints, PodRecord
from scoring.eligibility import eligible_columns
from scoring.resources import SHARED_GPU, Request
from scoring.snapshot import BoolArray, Int64Array, Snapshot
from scoring.topology.devices import Devices as Allocated
from simulator.devices import Devices
from simulator.pods import QueuedPod

GPU: Final = "nvidia.com/gpu"


class Cluster:
    """The state that placement changes.

    Parameters
    ----------
    snapshot : Snapshot
        At the start, with the records of its nodes.
    is_sharing : bool
        Whether GPUs are shared by thousandths: a whole GPU counts in `SHARED_GPU`, too,
        and a GPU of which a share is taken counts as taken in `GPU`.

    Attributes
    ----------
    requested : int64 array, shape (R, N)
        In base units, by the rows of `snapshot`.
    """

    def __init__(
        self, snapshot: Snapshot, devices: Devices, *, is_sharing: bool = False
    ) -> None:
        self.snapshot = snapshot
        self.devices = devices
        self.requested: Int64Array = snapshot.requested.copy()
        self._is_sharing = is_sharing
        self._row_of = {name: row for row, name in enumerate(snapshot.resources)}
        # constraints as text -> eligible nodes: these do not change in a replay
        self._eligible: dict[bytes, BoolArray] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the nodes, by column."""
        return self.snapshot.nodes.names

    def free(self, resource: str) -> Int64Array:
        """Return what is left of a resource on each node, shape (N,)."""
        row = self._row_of.get(resource)
        if row is None:
            return np.zeros(len(self.names), dtype=np.int64)
        free: Int64Array = self.snapshot.allocatable[row] - self.requested[row]
        return free

    def fitting(self, pod: QueuedPod) -> BoolArray:
        """Return which nodes pass kube-scheduler's own checks, shape (N,).

        Those of `scoring.eligibility`, and of all amounts; of shared GPUs also that
        the share fits on one of them.
        """
        fits = self._eligible_for(pod.record.constraints).copy()
        for resource, amount in pod.record.request:
            if resource in self.snapshot.device_class_resources:
                continue
            fits &= self.free(resource) >= amount
        if pod.gpus:
            fits &= self.devices.holding(pod)
        return fits

    def _eligible_for(self, constraints: PodConstraints) -> BoolArray:
        key = msgspec.json.encode(constraints)
        eligible = self._eligible.get(key)
        if eligible is None:
            everywhere = np.ones(len(self.names), dtype=np.bool_)
            eligible = eligible_columns(self.snapshot, constraints, everywhere)
            self._eligible[key] = eligible
        return eligible

    def place(self, pod: QueuedPod, column: int, gpu: int) -> PodRecord:
        """Bind a pod to a node; return its record there.

        `gpu` is the GPU that a share is taken of.
        """
        opened, taken = self.devices.take(column, pod, gpu) if pod.gpus else (0, [])
        request, told = pod.record.request, None
        if self._is_sharing and pod.gpus:
            request = _with_both_counts(request, opened, pod.asked)
            # As an agent on the node would write in `gpu-extender.io/allocated`.
            told = Allocated(tuple((str(index), pod.share) for index in taken))
        for resource, amount in request:
            row = self._row_of.get(resource)
            if row is not None:
                self.requested[row, column] += amount
        return msgspec.structs.replace(
            pod.record, node_name=self.names[column], request=request, devices=told
        )


def _with_both_counts(request: Request, opened: int, asked: int) -> Request:
    """Return a request with what it takes of GPUs as a whole and of their thousandths.

    >>> _with_both_counts((("cpu", 1), ("nvidia.com/gpu.shared", 300)), 1, 300)
    (('cpu', 1), ('nvidia.com/gpu', 1), ('nvidia.com/gpu.shared', 300))
    """
    amounts: Mapping[str, int] = {
        **dict(request),
        **({GPU: opened} if opened else {}),
        SHARED_GPU: asked,
    }
    return tuple(sorted(amounts.items()))
