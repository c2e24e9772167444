"""Results that calls share, at three levels: of a call, of all nodes, of one node.

`FilterMemo` keeps the last filter calls. The prioritize call that follows one takes its
pod request and its candidates' columns, and decodes nothing.

`SharedResults` keeps verdicts and totals of all nodes by request. Pods of one request,
such as those of one Job, get the same ones from a node until that node changes. So they
are computed for all nodes at once, brought up to date for the nodes that changed, and a
call takes its candidates' part.

`RowResults` keeps results of single candidates, by everything they depend on: most
nodes of a cluster are in one of few states. PERF: for one changed node nearly all that
judging and scoring take is to begin some hundred numpy operations; ``bench.scheduler``

None of them has an effect on answers: whatever is kept equals what would be computed.
What each wins is in docs/decisions/0006-speed.md.
"""

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cluster.ledger.writer import SnapshotSource
from extender.verbs.call import FilterOutcome, VerbCall
from scoring.bounded import BoundedDict
from scoring.candidates import (
    Candidates,
    LabelKeys,
    PodRequest,
    RequestKey,
    take_columns,
)
from scoring.packing.learning import ExpectedPods
from scoring.snapshot import GpuSupply, IndexArray, NodeIndex, Snapshot

# Arrays over nodes, shape (N,) or (C,).
Arrays: TypeAlias = tuple[NDArray[Any], ...]

Compute: TypeAlias = Callable[[Candidates, PodRequest], Arrays]

Row: TypeAlias = tuple[Hashable, ...]

# kube-scheduler asks about one pod at a time; each call kept keeps a snapshot alive.
MAX_CALLS: Final = 4


@dataclass(frozen=True, slots=True, eq=False)
class FilterCall:
    """An answered filter call, as far as the prioritize call after it goes on from it.

    Attributes
    ----------
    expected_prioritize_body : bytes
        The prioritize call about what passed, as kube-scheduler writes it.
    options : object
        The `VerbOptions` that it was answered by, told apart by identity.
    indexes : index array
        Of the candidates that were answered.
    """

    expected_prioritize_body: bytes
    options: object
    verb_call: VerbCall
    indexes: IndexArray


class FilterMemo:
    """Remembers the last filter calls for the prioritize calls that follow them.

    kube-scheduler asks to prioritize what passed the filter, in the order of the
    answer and with the same bytes for the pod. Any thread may call it.

    Parameters
    ----------
    source : SnapshotSource
        Its present snapshot is the one that a recalled call is about.
    """

    def __init__(self, source: SnapshotSource) -> None:
        self._source = source
        self._calls: deque[FilterCall] = deque(maxlen=MAX_CALLS)

    def filtered(self, outcome: FilterOutcome) -> None:
        """Remember an answered filter call, if its prioritize call can be told."""
        answer = outcome.answer
        if answer.expected_prioritize_body is not None:
            self._calls.append(
                FilterCall(
                    answer.expected_prioritize_body,
                    outcome.options,
                    outcome.verb_call,
                    answer.indexes,
                )
            )

    def recall(self, body: bytes, options: object) -> FilterCall | None:
        """Return the filter call whose answered candidates `body` asks about."""
        for call in reversed(tuple(self._calls)):
            if call.expected_prioritize_body == body:
                return self._brought_up_to_date(call, options)
        return None

    def _brought_up_to_date(
        self, call: FilterCall, options: object
    ) -> FilterCall | None:
        """Return the call as if it were about the present snapshot, None if it is not.

        The pod before this one is bound meanwhile, so the snapshot is often a newer
        one. As long as the nodes are the same ones, so are their columns.
        """
        verb_call, snapshot = call.verb_call, self._source.current()
        if (
            call.options is not options
            or verb_call.snapshot.nodes is not snapshot.nodes
        ):
            return None
        if verb_call.snapshot is snapshot:
            return call
        return replace(call, verb_call=replace(verb_call, snapshot=snapshot))


# Requests whose results are kept, each by `SharedResults` and by `RowResults`.
MAX_REQUESTS: Final = 128

EVERYTHING: Final = slice(None)

# Both are told apart by identity.
Basis: TypeAlias = tuple[GpuSupply, ExpectedPods] | None


def _basis(snapshot: Snapshot, pod_request: PodRequest) -> Basis:
    """Return the mix of pods and the supply of GPUs, if scores go by them."""
    if pod_request.cpu is None:
        return None
    return snapshot.gpus.supply, snapshot.expected


@dataclass(frozen=True, slots=True, eq=False)
class ResultsOfNodes:
    """Arrays of shape (N,) as of one generation.

    Attributes
    ----------
    basis : tuple
        What all nodes' results depend on together.
    """

    generation: int
    nodes: NodeIndex
    device_class_resources: frozenset[str]
    basis: Basis
    arrays: Arrays

    def is_of(self, snapshot: Snapshot) -> bool:
        """Whether the arrays are those of `snapshot`."""
        return self.generation == snapshot.generation and self.nodes is snapshot.nodes

    def suits(self, snapshot: Snapshot) -> bool:
        """Whether only the nodes that changed up to `snapshot` have to be computed."""
        return (
            self.generation <= snapshot.generation
            and self.nodes is snapshot.nodes
            and self.device_class_resources == snapshot.device_class_resources
        )


class SharedResults:
    """Keeps the newest results of each request; any thread may call it.

    Parameters
    ----------
    compute : callable
        Each candidate's result depends on that candidate and the pod alone.
    max_kept : int
        How many requests are remembered.
    """

    def __init__(
        self, compute: Compute, keys: LabelKeys, max_kept: int = MAX_REQUESTS
    ) -> None:
        self.compute = RowResults(compute)
        self.keys = keys
        self._lock = threading.Lock()
        # request -> its results; the one asked for last stands last
        self._kept = BoundedDict[RequestKey, ResultsOfNodes](max_kept)

    def take(
        self,
        snapshot: Snapshot,
        columns: IndexArray,
        pod_request: PodRequest,
        part: slice = EVERYTHING,
    ) -> Arrays:
        """Return the results of some nodes, which are the same for every asking pod.

        Parameters
        ----------
        snapshot : Snapshot
            With at least one node.
        columns : index array, shape (C,)
            Those below 0 get the result of any other node.
        pod_request : PodRequest
            Its own share and its nominated node are left out of account.
        part : slice
            The computed arrays that are wanted.

        Returns
        -------
        tuple of arrays, shape (C,)
            Writeable.
        """
        key = pod_request.request_key
        kept = self._kept.get(key)
        if kept is None or not kept.is_of(snapshot):
            request, primary, accelerator, gpu_requirements, cpu = key
            anybody = PodRequest(
                "", request, primary, accelerator, "", gpu_requirements, cpu=cpu
            )
            kept = self._bring_up_to_date(kept, snapshot, anybody)
            self._keep(key, kept)
        # PERF: "wrap" looks at no bounds twice, and takes -1;
        # bench/extender/test_verbs.py
        return tuple(array.take(columns, mode="wrap") for array in kept.arrays[part])

    def _bring_up_to_date(
        self, kept: ResultsOfNodes | None, snapshot: Snapshot, pod_request: PodRequest
    ) -> ResultsOfNodes:
        """Return the results on `snapshot`; compute what `kept` does not have."""
        basis = _basis(snapshot, pod_request)
        if kept is None or not (kept.suits(snapshot) and kept.basis == basis):
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
            snapshot.generation,
            snapshot.nodes,
            snapshot.device_class_resources,
            basis,
            arrays,
        )

    def _computed(
        self, snapshot: Snapshot, columns: IndexArray, pod_request: PodRequest
    ) -> Arrays:
        return self.compute(
            take_columns(snapshot, columns, pod_request, self.keys), pod_request
        )

    def _keep(self, key: RequestKey, results: ResultsOfNodes) -> None:
        with self._lock:
            before = self._kept.get(key)
            if before is not None and before.generation > results.generation:
                results = before  # a call on an older snapshot came later
            self._kept.keep_newest(key, results)


# Above this many candidates numpy is the faster way; and more resources than these are
# asked by mistake or malice, and would take memory.
MAX_FEW: Final = 8

MAX_ROWS: Final = 1024


class _KnownRows(NamedTuple):
    """Results for one request: row of a candidate -> one value per array."""

    dtypes: tuple[np.dtype[Any], ...]
    results: BoundedDict[Row, tuple[Any, ...]]


class RowResults:
    """Computes results, and remembers those of few candidates; any thread may call it.

    Parameters
    ----------
    compute : callable
        Each candidate's result depends on that candidate and the pod alone.
    """

    def __init__(self, compute: Compute) -> None:
        self._compute = compute
        self._known = BoundedDict[RequestKey, _KnownRows](MAX_REQUESTS)

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

    def _keep(self, key: RequestKey, rows: list[Row], arrays: Arrays) -> None:
        known = self._known.get(key)
        if known is None:
            dtypes = tuple(array.dtype for array in arrays)
            known = self._known.keep(key, _KnownRows(dtypes, BoundedDict(MAX_ROWS)))
        values = zip(*(array.tolist() for array in arrays), strict=True)
        known.results.keep_all(zip(rows, values, strict=True))


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
        candidates.instead.tolist(),
        candidates.gpu_pods.tolist(),
        candidates.exclusive_gpu_pods.tolist(),
        [candidates.link_kinds[code] for code in candidates.link_codes.tolist()],
        candidates.free_sets.tolist(),
        candidates.nearness.tolist(),
        *_capacity_columns(candidates),
        candidates.mig.tolist(),
    )
    return list(zip(*columns, strict=True))


def _capacity_columns(candidates: Candidates) -> Iterator[list[Hashable]]:
    """Yield what packing reads of each candidate."""
    capacity = candidates.capacity
    if capacity is None:
        return
    yield from capacity.free.devices.tolist()
    yield capacity.free.cpu.tolist()
    yield capacity.free.models.tolist()
    yield capacity.allocatable_cpu.tolist()
    yield capacity.device_count.tolist()
    yield capacity.units.tolist()
    # Told apart by identity: as long as they are kept, nothing else is the same.
    count = len(candidates.known)
    yield [capacity.supply] * count
    yield [capacity.expected] * count
