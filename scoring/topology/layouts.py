"""Layouts: link matrices of known machines, and the bandwidth of every set of GPUs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from scoring.gpu.node_gpus import NodeGpus
from scoring.topology.links import (
    MAX_GPUS,
    NODE,
    PHB,
    PIX,
    PXB,
    SYS,
    LinkData,
    LinkMatrix,
    LinksError,
)

Float64Array = NDArray[np.float64]

Int64Array = NDArray[np.int64]

BoolArray = NDArray[np.bool_]

# GB/s, both directions together. Of PCIe the order matters, and that the best path is
# slower than one NVLink; the figure for a single switch is PCIe 3.0 x16 as NCCL plans.
PATH_BANDWIDTH: Final = {PIX: 24.0, PXB: 22.0, PHB: 20.0, NODE: 16.0, SYS: 12.0}

LINK_BANDWIDTH: Final = 50.0

# A GPU has no more; where its pairs together would need more, a switch joins them.
MOST_LINKS: Final = 18


def is_switched(row: Iterable[int]) -> bool:
    """Whether a GPU's links lead to a switch, by its row of a matrix.

    >>> is_switched((0, 18, 16)), is_switched((0, 12, -5)), is_switched((0, 6, 6, 6))
    (True, False, False)
    """
    return sum(max(entry, 0) for entry in row) > MOST_LINKS


# Above it, a set is as fast as its weakest GPU: all ways to cut it would take too long.
_MAX_CUT: Final = 8

# Sets are told by bit masks: bit i stands for GPU i.
_WORD: Final = np.int64


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class LinkLayout:
    """The GPUs of a machine and their links; one object for equal ones.

    Attributes
    ----------
    matrix : tuple of tuples of int
        As `scoring.topology.links` has it.
    bandwidth : float64 array, shape (2^n,)
        Of each set of GPUs in GB/s, both directions: what the narrowest cut through it
        carries over NVLink; where NVLink does not join all of it, the slowest path over
        PCIe. 0 for a set of less than two.
    is_linked : bool array, shape (2^n,)
        True for sets of two and more that NVLink joins, within the set.
    is_uniform : bool
        Whether all pairs are alike, so that the number of GPUs says all of a set.
    """

    matrix: LinkMatrix
    bandwidth: Float64Array
    is_linked: BoolArray
    is_uniform: bool

    @property
    def count(self) -> int:
        """Number of GPUs."""
        return len(self.matrix)

    @property
    def full(self) -> int:
        """The set of all GPUs."""
        return (1 << len(self.matrix)) - 1


# links, and the bandwidth of one -> their layout, as long as a node has it: another one
# for equal links would pass for a change of the node
_IN_USE: Final[WeakValueDictionary[tuple[LinkMatrix, float, int], LinkLayout]] = (
    WeakValueDictionary()
)


@lru_cache(maxsize=256)
def layout_of(
    matrix: LinkMatrix,
    link_bandwidth: float = LINK_BANDWIDTH,
    most_links: int = MOST_LINKS,
) -> LinkLayout:
    """Return the layout of a sound matrix; any thread may call it.

    Parameters
    ----------
    link_bandwidth : float
        Of one NVLink in GB/s, both directions.
    most_links : int
        Of one GPU, whose links to a switch each pair shows anew. Fewer than a pair has
        are of another machine, and count for nothing.
    """
    sums = [sum(max(entry, 0) for entry in row) for row in matrix]
    is_exceeded = any(most_links < links <= MOST_LINKS for links in sums)
    if not is_exceeded or most_links < max(map(max, matrix)):
        most_links = MOST_LINKS
    key = matrix, link_bandwidth, most_links
    layout = _IN_USE.get(key)
    if layout is None:
        # Threads that meet here may get two, and one of them stays.
        layout = _IN_USE.setdefault(key, _computed(*key))
    return layout


def _computed(matrix: LinkMatrix, link_bandwidth: float, most_links: int) -> LinkLayout:
    count = len(matrix)
    bandwidth = _slowest_paths(matrix)
    is_linked = np.zeros(1 << count, dtype=np.bool_)
    for members in _components(matrix):
        cut = np.minimum(_links_of_cut(matrix, members), most_links)
        sets = np.zeros(1, dtype=_WORD)  # the same sets, told by bits of all GPUs
        for member in members:
            sets = np.concatenate([sets, sets | (1 << member)])
        joined = cut > 0
        is_linked[sets[joined]] = True
        bandwidth[sets[joined]] = cut[joined] * link_bandwidth
    entries = {row[j] for i, row in enumerate(matrix) for j in range(i)}
    for array in (bandwidth, is_linked):
        array.setflags(write=False)
    return LinkLayout(matrix, bandwidth, is_linked, len(entries) <= 1)


def sizes_of_sets(count: int) -> Int64Array:
    """Return the number of GPUs in each set of `count`, shape (2^count,)."""
    sizes = np.zeros(1, dtype=_WORD)
    for _ in range(count):
        sizes = np.concatenate([sizes, sizes + 1])
    return sizes


def _slowest_paths(matrix: LinkMatrix) -> Float64Array:
    """Return the bandwidth of the slowest path over PCIe in each set, shape (2^n,)."""
    slowest = np.full(1, np.inf)
    for gpu, row in enumerate(matrix):
        to_others = np.full(1, np.inf)
        for other in range(gpu):
            path = PATH_BANDWIDTH.get(row[other], np.inf)
            to_others = np.concatenate([to_others, np.minimum(to_others, path)])
        slowest = np.concatenate([slowest, np.minimum(slowest, to_others)])
    slowest[np.isinf(slowest)] = 0.0
    return slowest


def _components(matrix: LinkMatrix) -> list[list[int]]:
    """Return the groups of two and more GPUs that NVLink joins."""
    left, groups = set(range(len(matrix))), []
    while left:
        group, fresh = set[int](), {min(left)}
        while fresh:
            group |= fresh
            fresh = {j for i in fresh for j, n in enumerate(matrix[i]) if n > 0} - group
        left -= group
        if len(group) > 1:
            groups.append(sorted(group))
    return groups


def _links_of_cut(matrix: LinkMatrix, members: list[int]) -> Float64Array:
    """Return the links of the narrowest cut through each set of `members`.

    Shape (2^m,); 0 where NVLink does not join the set, or it has less than two GPUs.
    """
    links = np.array([[max(matrix[i][j], 0) for j in members] for i in members])
    count = len(members)
    if any(is_switched(row) for row in links.tolist()):
        # A switch: each GPU has its own links to it, whoever is at the other end.
        return _weakest(links, has_switch=True)
    if count > _MAX_CUT:
        return _weakest(links, has_switch=False)
    inside = np.zeros(1)
    for gpu in range(count):
        to_others = np.zeros(1)
        for other in range(gpu):
            to_others = np.concatenate([to_others, to_others + links[gpu, other]])
        inside = np.concatenate([inside, inside + to_others])
    every = np.arange(1, 1 << count)
    one, other_side = (side.ravel() for side in np.meshgrid(every, every))
    apart = (one & other_side) == 0
    one, other_side = one[apart], other_side[apart]
    whole = one | other_side
    cut = np.full(1 << count, np.inf)
    np.minimum.at(cut, whole, inside[whole] - inside[one] - inside[other_side])
    cut[np.isinf(cut)] = 0.0
    return cut


def _weakest(links: Int64Array, *, has_switch: bool) -> Float64Array:
    """Return the links of the weakest GPU into each set that is joined.

    To its other members together; behind a switch to any of them.
    """
    count = len(links)
    sets = np.arange(1 << count)
    weakest = np.full(1 << count, np.inf)
    each, combine = links.astype(np.float64), np.minimum if has_switch else np.add
    if has_switch:
        each[links == 0] = np.inf
    for gpu in range(count):
        of_gpu = np.full(1, np.inf if has_switch else 0.0)
        for other in range(count):
            of_gpu = np.concatenate([of_gpu, combine(of_gpu, each[gpu, other])])
        has = (sets >> gpu) & 1 == 1
        weakest[has] = np.minimum(weakest[has], of_gpu[has])
    neighbours = [int(((row > 0) << np.arange(count)).sum()) for row in links]
    reached = sets & -sets
    for _ in range(count):
        for gpu in range(count):
            reached |= np.where((reached >> gpu) & 1, neighbours[gpu] & sets, 0)
    weakest[(reached != sets) | (sizes_of_sets(count) < 2)] = 0.0  # noqa: PLR2004
    return weakest


def _uniform(count: int, entry: int) -> LinkMatrix:
    return tuple(
        tuple(entry if i != j else 0 for j in range(count)) for i in range(count)
    )


def _direct(count: int, links: Mapping[tuple[int, int], int]) -> LinkMatrix:
    """Return a machine of two sockets, PCIe switches of two GPUs, and some links."""

    def entry(i: int, j: int) -> int:
        if i == j:
            return 0
        found = links.get((min(i, j), max(i, j)), 0)
        half = max(count // 2, 1)
        path = PIX if i // 2 == j // 2 else PHB if i // half == j // half else SYS
        return found or path

    return tuple(tuple(entry(i, j) for j in range(count)) for i in range(count))


def pcie_box(count: int) -> LinkMatrix:
    """Return GPUs without NVLink: switches of two, and two sockets from four on."""
    return _direct(count, {})


def bridged(count: int, of: int, links: int) -> LinkMatrix:
    """Return GPUs in a row that NVLink bridges of two or four join, group by group."""
    groups = (range(start, min(start + of, count)) for start in range(0, count, of))
    return _direct(
        count, {(i, j): links for g in groups for i in g for j in g if i < j}
    )


# Links of DGX-1, by pair: the second half is the first one, GPU i opposite to i + 4.
_V100_HALF: Final = {(0, 1): 1, (0, 2): 1, (0, 3): 2, (1, 2): 2, (1, 3): 1, (2, 3): 2}

_V100_ACROSS: Final = {(0, 4): 2, (1, 5): 2, (2, 6): 1, (3, 7): 1}


def _cube_mesh(
    half: Mapping[tuple[int, int], int], across: Mapping[tuple[int, int], int]
) -> LinkMatrix:
    other = {(i + 4, j + 4): links for (i, j), links in half.items()}
    return _direct(8, {**half, **other, **across})


_DGX_1_V100: Final = _cube_mesh(_V100_HALF, _V100_ACROSS)

# One link to each neighbour.
_DGX_1_P100: Final = _cube_mesh(
    dict.fromkeys(_V100_HALF, 1), dict.fromkeys(_V100_ACROSS, 1)
)


def _half(matrix: LinkMatrix) -> LinkMatrix:
    count = len(matrix) // 2
    return tuple(row[:count] for row in matrix[:count])


# name, as annotations give it -> links, and the bandwidth of one
NAMED_LAYOUTS: Final[Mapping[str, tuple[LinkMatrix, float]]] = MappingProxyType(
    {
        "dgx-1-p100": (_DGX_1_P100, 40.0),
        "dgx-1-v100": (_DGX_1_V100, 50.0),
        "p3.8xlarge": (_half(_DGX_1_V100), 50.0),
        "dgx-2": (_uniform(16, 6), 50.0),
        "hgx-a100-4": (_uniform(4, 4), 50.0),
        "dgx-a100": (_uniform(8, 12), 50.0),
        "hgx-h100-4": (_uniform(4, 6), 50.0),
        "dgx-h100": (_uniform(8, 18), 50.0),
        "hgx-b200": (_uniform(8, 18), 100.0),
        **{
            f"bridged-pairs-{count}": (bridged(count, 2, 12), 50.0)
            for count in (2, 4, 6, 8)
        },
        **{f"bridged-fours-{count}": (bridged(count, 4, 6), 50.0) for count in (4, 8)},
        **{f"pcie-{count}": (pcie_box(count), 50.0) for count in (2, 4, 8)},
    }
)

# Beginning of a model's name -> NVLinks of one GPU, and the bandwidth of one. Sources:
# makers' data sheets; those of export-limited parts are not confirmed.
_NVLINKS: Final = (
    ("P100", 4, 40.0),
    ("V100", 6, 50.0),
    ("A800", 8, 50.0),
    ("H800", 8, 50.0),
    ("A100", 12, 50.0),
    ("H100", 18, 50.0),
    ("H200", 18, 50.0),
    ("H20", 18, 50.0),
    ("GH200", 18, 50.0),
    ("B200", 18, 100.0),
    ("B300", 18, 100.0),
    ("GB200", 18, 100.0),
    ("GB300", 18, 100.0),
    ("A40", 4, 28.0),
    ("RTX-A", 4, 28.0),
    ("RTX-3090", 4, 28.0),
)

# Models of which four GPUs are joined without a switch, each with a third of its links.
_MESH_OF_FOUR: Final = ("A100", "A800", "H100", "H200")

_FOUR: Final = 4


def _nvlinks_of(model: str) -> tuple[int, float]:
    """Return the NVLinks of one GPU, and the bandwidth of one; 0 links if unknown."""
    return next(
        ((links, rate) for start, links, rate in _NVLINKS if model.startswith(start)),
        (0, LINK_BANDWIDTH),
    )


def layout_of_model(
    model: str, kind: str, count: int, machine: int = 0
) -> LinkLayout | None:
    """Return the layout of a machine by its GPUs; None where that leaves it open.

    Parameters
    ----------
    model : str
        Canonical name.
    kind : str
        `GpuModel.links`. Which GPUs a bridge joins is not known of any model.
    machine : int
        GPUs of the machine, where some of them are cut; else 0.
    """
    if not 0 < count <= MAX_GPUS:
        return None
    links, rate = _nvlinks_of(model)
    if kind == "none":
        return layout_of(pcie_box(count))
    if kind == "clique" and links:
        is_mesh = max(count, machine) == _FOUR and model.startswith(_MESH_OF_FOUR)
        return layout_of(_uniform(count, links // 3 if is_mesh else links), rate, links)
    if kind == "cube-mesh" and machine <= count:
        whole = _DGX_1_P100 if model.startswith("P100") else _DGX_1_V100
        if count == len(whole):
            return layout_of(whole, rate, links)
        if count == len(whole) // 2:
            return layout_of(_half(whole), rate, links)
    return None


@dataclass(frozen=True, slots=True)
class NodeLinks:
    """Links of one node, and where they are known from.

    Attributes
    ----------
    data : LinkData or None
        What its annotation says; None without one, or where it cannot be read.
    layout : LinkLayout or None
        None where nothing is known.
    is_measured : bool
        Whether it is the annotation that says so, not the model.
    fault : str
        Why the annotation counts for nothing; empty if it counts, or there is none.
    """

    data: LinkData | None = None
    layout: LinkLayout | None = None
    is_measured: bool = False
    fault: str = ""

    @property
    def ids(self) -> tuple[str, ...]:
        """UUIDs of the GPUs in their order; empty if unknown."""
        return self.data.ids if self.data is not None and not self.fault else ()


NO_LINKS: Final = NodeLinks()


def links_of_node(
    gpus: NodeGpus,
    count: int,
    data: LinkData | None,
    fault: str = "",
    *,
    machine: int = 0,
) -> NodeLinks:
    """Return the links of a node: by its annotation, else by model and count.

    Parameters
    ----------
    count : int
        Units of ``nvidia.com/gpu`` that the node has, healthy or not.
    data : LinkData or None
        What the annotation says.
    fault : str
        Why it cannot be read. Nothing is known then: the node has said that it differs
        from what its model suggests.
    machine : int
        GPUs of the node by its label, those that MIG has cut with them; 0 if unknown.
    """
    if not gpus.is_whole or not count:
        return NodeLinks(data, fault=fault)
    if fault:
        return NodeLinks(fault=fault)
    if data is None:
        layout = layout_of_model(gpus.model, gpus.links, count, machine)
        return NodeLinks(layout=layout)
    try:
        measured = _layout_of_data(data, gpus.model, count)
    except LinksError as error:
        return NodeLinks(data, fault=str(error))
    return NodeLinks(data, measured, is_measured=True)


def _layout_of_data(data: LinkData, model: str, count: int) -> LinkLayout:
    """Return what an annotation describes; raise `LinksError`."""
    links, rate = _nvlinks_of(model)
    matrix = data.matrix
    if data.layout:
        if data.layout not in NAMED_LAYOUTS:
            known = ", ".join(NAMED_LAYOUTS)
            raise LinksError(f"unknown layout {data.layout[:64]!r}; known: {known}")
        matrix, rate = NAMED_LAYOUTS[data.layout]
    if len(matrix) != count:
        raise LinksError(f"it is about {len(matrix)} GPUs, the node has {count}")
    if data.ids and len(data.ids) != count:
        raise LinksError(f"ids: wanted {count}, got {len(data.ids)}")
    return layout_of(matrix, rate, links or MOST_LINKS)


def set_of(gpus: Iterable[int]) -> int:
    """Return the bit mask of some GPUs."""
    return sum(1 << gpu for gpu in set(gpus))


def gpus_of(mask: int) -> tuple[int, ...]:
    """Return the GPUs of a bit mask, in their order."""
    return tuple(gpu for gpu in range(mask.bit_length()) if mask >> gpu & 1)
