"""`Standings`: what has been computed of all nodes, for the pods that ask alike.

Pods of one shape, such as those of one Job, get the same verdict and the same total
from a node until that node changes. So both are computed for all nodes at once, kept,
and brought up to date for the nodes that changed; a call takes its candidates' part.
It has no effect on answers: whatever is kept equals what would be computed anew.
"""

import threading
from dataclasses import dataclass
from typing import Final

import numpy as np

from extender.alike import Alike, Arrays, Compute
from scoring.candidates import Ask, LabelKeys, Shape, take_columns
from scoring.snapshot import IndexArray, NodeIndex, Snapshot

MAX_KEPT: Final = 128
EVERYTHING: Final = slice(None)


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """Arrays of shape (N,) as of one generation."""

    generation: int
    nodes: NodeIndex
    device_class_resources: frozenset[str]
    arrays: Arrays

    def is_of(self, snapshot: Snapshot) -> bool:
        """Say whether it holds what `snapshot` says."""
        return self.generation == snapshot.generation and self.nodes is snapshot.nodes

    def suits(self, snapshot: Snapshot) -> bool:
        """Say whether nothing but its changed nodes has to be computed."""
        return (
            self.generation <= snapshot.generation
            and self.nodes is snapshot.nodes
            and self.device_class_resources == snapshot.device_class_resources
        )


class Standings:
    """Keeps the newest standing of each shape; any thread may call it.

    Parameters
    ----------
    compute : callable
        Each candidate's result depends on that candidate and the pod alone.
    keys : LabelKeys
    max_kept : int
        How many shapes are remembered.
    """

    def __init__(
        self, compute: Compute, keys: LabelKeys, max_kept: int = MAX_KEPT
    ) -> None:
        self.compute = Alike(compute)
        self.keys = keys
        self._max_kept = max_kept
        self._lock = threading.Lock()
        self._kept: dict[Shape, Standing] = {}  # the one asked for last stands last

    def take(
        self,
        snapshot: Snapshot,
        columns: IndexArray,
        ask: Ask,
        part: slice = EVERYTHING,
    ) -> Arrays:
        """Return what is computed for some nodes, whoever the asking pod is.

        Parameters
        ----------
        snapshot : Snapshot
            With at least one node.
        columns : index array, shape (C,)
            Those below 0 get the result of any other node.
        ask : Ask
            Its own share and its nominated node are left out of account.
        part : slice
            Which of the computed arrays are wanted.

        Returns
        -------
        tuple of arrays, shape (C,)
            Writeable.
        """
        shape = ask.shape
        kept = self._kept.get(shape)
        if kept is None or not kept.is_of(snapshot):
            request, primary, accelerator, demand = shape
            anybody = Ask("", request, primary, accelerator, "", demand)
            kept = self._bring_up_to_date(kept, snapshot, anybody)
            self._keep(shape, kept)
        # PERF: "wrap" looks at no bounds twice, and takes -1; bench/test_verbs.py
        return tuple(array.take(columns, mode="wrap") for array in kept.arrays[part])

    def _bring_up_to_date(
        self, kept: Standing | None, snapshot: Snapshot, ask: Ask
    ) -> Standing:
        """Return the standing of `snapshot`; compute what `kept` does not have."""
        if kept is None or not kept.suits(snapshot):
            every = np.arange(len(snapshot.nodes.names), dtype=np.intp)
            arrays = self._computed(snapshot, every, ask)
        else:
            arrays = kept.arrays
            changed = snapshot.changed_since(kept.generation)
            if len(changed):
                part = self._computed(snapshot, changed, ask)
                arrays = tuple(array.copy() for array in arrays)
                for array, fresh in zip(arrays, part, strict=True):
                    array[changed] = fresh
        return Standing(
            snapshot.generation, snapshot.nodes, snapshot.device_class_resources, arrays
        )

    def _computed(self, snapshot: Snapshot, columns: IndexArray, ask: Ask) -> Arrays:
        return self.compute(take_columns(snapshot, columns, ask, self.keys), ask)

    def _keep(self, shape: Shape, standing: Standing) -> None:
        with self._lock:
            before = self._kept.pop(shape, None)
            if before is not None and before.generation > standing.generation:
                standing = before  # a call on an older snapshot came later
            self._kept[shape] = standing
            if len(self._kept) > self._max_kept:
                del self._kept[next(iter(self._kept))]
