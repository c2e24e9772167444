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
        Code of the node's ``accelerator`` label in `type_names`; 0 for none.
    type_names : sequence of str
        Code -> label value; entry 0 is the empty string.
    linked : bool array, shape (C,)
        True where the node says that its GPUs are joined by NVLink.
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

    def only(self, selected: BoolArray) -> "Candidates":
        """Return the selected candidates, bool array of shape (C,), in their order."""
        places = np.flatnonzero(selected)
        return Candidates(
            known=self.known.take(places),
            columns=self.columns.take(places),
            # PERF: `take` along rows costs a quarter of a mask; bench/test_verbs.py
            allocatable=self.allocatable.take(places, axis=1),
            requested=self.requested.take(places, axis=1),
            offered=self.offered.take(places, axis=1),
            claimed=self.claimed.take(places, axis=1),
            faulted=self.faulted.take(places),
            type_codes=self.type_codes.take(places),
            type_names=self.type_names,
            linked=self.linked.take(places),
            nominated=self.nominated.take(places),
        )


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
        Without duplicates.
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
    kind = snapshot.labels.get(keys.accelerator)
    link = snapshot.labels.get(keys.interconnect)
    nominated = np.zeros(count, dtype=np.bool_)
    if ask.nominated_node:
        nominated = found == snapshot.nodes.column_of.get(ask.nominated_node, -2)
    return Candidates(
        known=known,
        columns=columns,
        allocatable=allocatable,
        requested=requested,
        offered=offered | claimed,
        claimed=claimed,
        faulted=snapshot.faulted.take(columns),
        type_codes=(
            np.zeros(count, dtype=np.int64)
            if kind is None
            else kind.codes.take(columns)
        ),
        type_names=("", *kind.code_of) if kind is not None else ("",),
        linked=(
            np.zeros(count, dtype=np.bool_)
            if link is None
            else link.codes.take(columns) == link.code_of.get("nvlink", -1)
        ),
        nominated=nominated,
    )


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
