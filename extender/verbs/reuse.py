"""Results that calls share: per node and request, per state of a node, per pod.

Pods of one request, such as those of one Job, get the same verdict and the same total
from a node until that node changes. So both are computed for all nodes at once, kept,
and brought up to date for the nodes that changed; a call takes its candidates' part.
It has no effect on answers: whatever is kept equals what would be computed.

PERF: for one changed node nearly all that judging and scoring take is to begin some
hundred numpy operations. Most nodes of a cluster are in one of few states, so that the
result is at hand; ``bench.scheduler``
"""

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scoring.candidates import (
    Candidates,
    LabelKeys,
    PodRequest,
    RequestKey,
    take_columns,
)
from scoring.snapshot import IndexArray, NodeIndex, Snapshot

# Arrays over nodes, shape (N,) or (C,).
Arrays: TypeAlias = tuple[NDArray[Any], ...]

Compute: TypeAlias = Callable[[Candidates, PodRequest], Arrays]

Row: TypeAlias = tuple[Hashable, ...]

# Above this many candidates numpy is the faster way; and more resources than these are
# asked by mistake or malice, and would take memory.
MAX_FEW: Final = 8

MAX_SHAPES: Final = 128

MAX_ROWS: Final = 1024


class _Known(NamedTuple):
    """Results for one shape of request: row of a candidate -> one value per array."""

    dtypes: tuple[np.dtype[Any], ...]
    results: dict[Row, tuple[Any, ...]]


class RowResults:
    """Computes results, and remembers those of few candidates; any thread may call it.

    It has no effect on results: what is remembered equals what would be computed.

    Parameters
    ----------
    compute : callable
        Each candidate's result depends on that candidate and the pod alone.
    """

    def __init__(self, compute: Compute) -> None:
        self._compute = compute
        self._known: dict[RequestKey, _Known] = {}

    def __call__(self, candidates: Candidates, pod_request: PodRequest) -> Arrays:
        """Return what `compute` gives for the candidates, arrays of shape (C,)."""
        if max(len(candidates.known), len(pod_request.request)) > MAX_FEW:
            return self._compute(candidates, pod_request)
        rows = rows_of(candidates)
        known = self._known.get(pod_request.request_key)
        if known is not None:
            found = [known.results.get(row) for row in rows]
            if found and None not in found:
                values = zip(*found, strict=True)
                return tuple(map(np.array, values, known.dtypes))
        arrays = self._compute(candidates, pod_request)
        self._keep(pod_request.request_key, rows, arrays)
        return arrays

    def _keep(self, shape: RequestKey, rows: list[Row], arrays: Arrays) -> None:
        known = self._known.get(shape)
        if known is None:
            if len(self._known) >= MAX_SHAPES:
                self._known = {}
            known = _Known(tuple(array.dtype for array in arrays), {})
            self._known[shape] = known
        if len(known.results) >= MAX_ROWS:
            known.results.clear()
        values = zip(*(array.tolist() for array in arrays), strict=True)
        known.results.update(zip(rows, values, strict=True))


def rows_of(candidates: Candidates) -> list[Row]:
    """Return all that is known of each candidate but its column, length C."""
    type_names, gpu_kinds = candidates.type_names, candidates.gpu_kinds
    columns = (
        candidates.known.tolist(),
        *candidates.allocatable.tolist(),
        *candidates.requested.tolist(),
        *candidates.offered.tolist(),
        *candidates.claimed.tolist(),
        candidates.faulted.tolist(),
        candidates.failing.tolist(),
        [type_names[code] for code in candidates.type_codes.tolist()],
        candidates.linked.tolist(),
        candidates.nominated.tolist(),
        [gpu_kinds[code] for code in candidates.gpu_codes.tolist()],
        candidates.gpu_pods.tolist(),
        candidates.exclusive_gpu_pods.tolist(),
    )
    return list(zip(*columns, strict=True))


MAX_KEPT: Final = 128

EVERYTHING: Final = slice(None)


@dataclass(frozen=True, slots=True, eq=False)
class ResultsOfNodes:
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


class SharedResults:
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
        self.compute = RowResults(compute)
        self.keys = keys
        self._max_kept = max_kept
        self._lock = threading.Lock()
        self._kept: dict[
            RequestKey, ResultsOfNodes
        ] = {}  # the one asked for last stands last

    def take(
        self,
        snapshot: Snapshot,
        columns: IndexArray,
        pod_request: PodRequest,
        part: slice = EVERYTHING,
    ) -> Arrays:
        """Return what is computed for some nodes, whoever the asking pod is.

        Parameters
        ----------
        snapshot : Snapshot
            With at least one node.
        columns : index array, shape (C,)
            Those below 0 get the result of any other node.
        pod_request : PodRequest
            Its own share and its nominated node are left out of account.
        part : slice
            Which of the computed arrays are wanted.

        Returns
        -------
        tuple of arrays, shape (C,)
            Writeable.
        """
        shape = pod_request.request_key
        kept = self._kept.get(shape)
        if kept is None or not kept.is_of(snapshot):
            request, primary, accelerator, gpu_requirements = shape
            anybody = PodRequest(
                "", request, primary, accelerator, "", gpu_requirements
            )
            kept = self._bring_up_to_date(kept, snapshot, anybody)
            self._keep(shape, kept)
        # PERF: "wrap" looks at no bounds twice, and takes -1;
        # bench/extender/test_verbs.py
        return tuple(array.take(columns, mode="wrap") for array in kept.arrays[part])

    def _bring_up_to_date(
        self, kept: ResultsOfNodes | None, snapshot: Snapshot, pod_request: PodRequest
    ) -> ResultsOfNodes:
        """Return the standing of `snapshot`; compute what `kept` does not have."""
        if kept is None or not kept.suits(snapshot):
            every = np.arange(len(snapshot.nodes.names), dtype=np.intp)
            arrays = self._computed(snapshot, every, pod_request)
        else:
            arrays = kept.arrays
            changed = snapshot.changed_since(kept.generation)
            if len(changed):
                part = self._computed(snapshot, changed, pod_request)
                arrays = tuple(array.copy() for array in arrays)
                for array, fresh in zip(arrays, part, strict=True):
                    array[changed] = fresh
        return ResultsOfNodes(
            snapshot.generation, snapshot.nodes, snapshot.device_class_resources, arrays
        )

    def _computed(
        self, snapshot: Snapshot, columns: IndexArray, pod_request: PodRequest
    ) -> Arrays:
        return self.compute(
            take_columns(snapshot, columns, pod_request, self.keys), pod_request
        )

    def _keep(self, shape: RequestKey, standing: ResultsOfNodes) -> None:
        with self._lock:
            before = self._kept.pop(shape, None)
            if before is not None and before.generation > standing.generation:
                standing = before  # a call on an older snapshot came later
            self._kept[shape] = standing
            if len(self._kept) > self._max_kept:
                del self._kept[next(iter(self._kept))]
