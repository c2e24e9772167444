"""`Candidates`: the columns of a snapshot that one request asks about."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from scoring.objects import Request
from scoring.resources import ResourceScope, is_whole_card
from scoring.snapshot import BoolArray, IndexArray, Int64Array, Snapshot


@dataclass(frozen=True, slots=True)
class Ask:
    """What one pod asks of a node.

    Attributes
    ----------
    uid : str
        Empty for a pod that has none yet.
    request : tuple of (str, int)
        The managed part of its effective request.
    primary : str
        Its own GPU resource; empty where it asks for nothing that we manage.
    accelerator : str or None
        ``nodeSelector.accelerator``.
    nominated_node : str
        ``status.nominatedNodeName``; empty for none.
    """

    uid: str
    request: Request
    primary: str
    accelerator: str | None
    nominated_node: str

    @property
    def amount(self) -> int:
        """How many of its own GPU resource the pod asks."""
        return dict(self.request).get(self.primary, 0)


def primary_resource(request: Request, scope: ResourceScope) -> str:
    """Return the pod's own GPU resource: whole cards first, then by name.

    A pod without any takes the first other managed resource; with none of those
    either, the empty string.
    """
    names = [name for name, _ in request]
    gpus = [name for name in names if scope.is_gpu(name)]
    whole = [name for name in gpus if is_whole_card(name)]
    return next(iter(whole or gpus or names), "")


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """What is known of C candidates with respect to one pod's request.

    The rows of the tables are the pod's Q requested resources, in its order. The
    asking pod's own share is already taken out of `requested`.

    Attributes
    ----------
    known : bool array, shape (C,)
        False where the snapshot has no such node; the other arrays mean nothing there.
    columns : index array, shape (C,)
        Column of each node in the snapshot.
    allocatable, requested : int64 array, shape (Q, C)
        In base units.
    offered : bool array, shape (Q, C)
        True where capacity or allocatable is above 0, or a DeviceClass carries it.
    claimed : bool array, shape (Q, C)
        True where only a DeviceClass carries the resource: no amounts are known.
    faulted : bool array, shape (C,)
    type_codes : int64 array, shape (C,)
        Code of the node's ``accelerator`` label in `type_names`; 0 for none. Read only
        for a pod that asks a type.
    type_names : sequence of str
        Code -> label value; entry 0 is the empty string.
    linked : bool array, shape (C,)
        True where the node says that its GPUs are joined by NVLink. Read only for a
        pod that asks several.
    nominated : bool array, shape (C,)
        True for the pod's nominated node.
    """

    known: BoolArray
    columns: IndexArray
    allocatable: Int64Array
    requested: Int64Array
    offered: BoolArray
    claimed: BoolArray
    faulted: BoolArray
    type_codes: Int64Array
    type_names: Sequence[str]
    linked: BoolArray
    nominated: BoolArray


@dataclass(frozen=True, slots=True)
class LabelKeys:
    """Node labels that the classic profile reads.

    Attributes
    ----------
    accelerator : str
        Names the GPU type, for ``nodeSelector.accelerator``.
    interconnect : str
        ``nvlink`` where the GPUs of the node are joined.
    """

    accelerator: str = "accelerator"
    interconnect: str = "gpu-interconnect"


def take_candidates(
    snapshot: Snapshot, names: Sequence[str], ask: Ask, keys: LabelKeys
) -> Candidates:
    """Select the nodes `names` of `snapshot`, in that order.

    Parameters
    ----------
    snapshot : Snapshot
    names : sequence of str, length C
        A name that is repeated is a candidate as often; see `has_repeats`.
    ask : Ask
    keys : LabelKeys

    Returns
    -------
    Candidates
    """
    count = len(names)
    found = np.fromiter(
        map(snapshot.nodes.column_of.get, names, repeat(-1)), np.intp, count
    )
    known = found >= 0
    if not snapshot.nodes.names:  # nothing to take columns from
        return _nothing_known(known, len(ask.request))
    columns = np.maximum(found, 0)
    tables = _take_tables(snapshot, columns, ask)
    allocatable, requested, offered = tables
    if ask.uid:
        _take_out_own_share(snapshot, found, requested, ask)
    claimed = np.zeros_like(offered)
    for row, (resource, _) in enumerate(ask.request):
        if resource in snapshot.device_class_resources:
            claimed[row] = ~offered[row]
    nothing = np.zeros(count, dtype=np.bool_)
    nominated = nothing
    if ask.nominated_node:
        nominated = found == snapshot.nodes.column_of.get(ask.nominated_node, -2)
    type_codes, type_names = _take_types(snapshot, columns, ask, keys)
    link = snapshot.labels.get(keys.interconnect)
    linked = nothing
    if link is not None and ask.amount > 1:
        linked = link.codes.take(columns) == link.code_of.get("nvlink", -1)
    return Candidates(
        known=known,
        columns=columns,
        allocatable=allocatable,
        requested=requested,
        offered=offered | claimed,
        claimed=claimed,
        faulted=snapshot.faulted.take(columns),
        type_codes=type_codes,
        type_names=type_names,
        linked=linked,
        nominated=nominated,
    )


def _take_types(
    snapshot: Snapshot, columns: IndexArray, ask: Ask, keys: LabelKeys
) -> tuple[Int64Array, Sequence[str]]:
    """Return code and names of the GPU types, if the pod asks one."""
    kind = snapshot.labels.get(keys.accelerator)
    if kind is None or ask.accelerator is None:
        return np.zeros(len(columns), dtype=np.int64), ("",)
    return kind.codes.take(columns), ("", *kind.code_of)


def _take_tables(
    snapshot: Snapshot, columns: IndexArray, ask: Ask
) -> tuple[Int64Array, Int64Array, BoolArray]:
    """Return allocatable, requested and offered, shape (Q, C), fresh arrays."""
    shape = (len(ask.request), len(columns))
    allocatable = np.zeros(shape, dtype=np.int64)
    requested = np.zeros(shape, dtype=np.int64)
    offered = np.zeros(shape, dtype=np.bool_)
    for row, (resource, _) in enumerate(ask.request):
        source = snapshot.row_of(resource)
        if source is not None:
            # PERF: `take` of a contiguous row, and "clip" since numpy writes to a
            # buffer first where it has to check the columns; bench/test_kernels.py
            for table, taken in (
                (snapshot.allocatable, allocatable),
                (snapshot.requested, requested),
                (snapshot.offered, offered),
            ):
                table[source].take(columns, out=taken[row], mode="clip")
    return allocatable, requested, offered


def has_repeats(names: Sequence[str], candidates: Candidates, node_count: int) -> bool:
    """Say whether a name stands in `names` more than once.

    PERF: by columns, a third of what a set of names takes; bench/test_verbs.py
    """
    if not candidates.known.all():
        return len(set(names)) < len(names)
    seen = np.zeros(node_count, dtype=np.bool_)
    seen[candidates.columns] = True
    return int(np.count_nonzero(seen)) < len(names)


def _take_out_own_share(
    snapshot: Snapshot,
    found: IndexArray,
    requested: Int64Array,
    ask: Ask,
) -> None:
    """Subtract what the asking pod itself holds: it never counts against itself."""
    share = snapshot.shares.get(ask.uid)
    if share is None:
        return
    column = snapshot.nodes.column_of.get(share.node_name, -2)
    held = dict(share.request)
    here = found == column
    for row, (resource, _) in enumerate(ask.request):
        requested[row, here] -= held.get(resource, 0)


def _nothing_known(known: BoolArray, rows: int) -> Candidates:
    """Return candidates of which no node is in the snapshot."""
    amounts = np.zeros((rows, len(known)), dtype=np.int64)
    flags = np.zeros((rows, len(known)), dtype=np.bool_)
    return Candidates(
        known=known,
        columns=np.zeros(len(known), dtype=np.intp),
        allocatable=amounts,
        requested=amounts,
        offered=flags,
        claimed=flags,
        faulted=known,
        type_codes=np.zeros(len(known), dtype=np.int64),
        type_names=("",),
        linked=known,
        nominated=known,
    )
