"""Tables of a layout: for each set of free GPUs and size, what a pod gets and breaks.

They are computed once for each layout and size; scoring a node is a look-up.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from scoring.topology.devices import NOT_TOLD, LinkKind
from scoring.topology.layouts import (
    BoolArray,
    Float64Array,
    Int64Array,
    LinkLayout,
    sizes_of_sets,
)
from scoring.topology.policy import MOST_GPUS, policy_of

# GB/s that are worth 100, and those that are worth 50: NVLink 5 through a switch, and
# the best path over PCIe. Each doubling in between is worth the same.
_TOP: Final = 1800.0

_MIDDLE: Final = 25.0

_FULL_WORTH: Final = 100.0

_MIDDLE_WORTH: Final = 50.0

# Of a point lost to what is left. Small, so that it decides between sets that are about
# as good, and never outweighs half of the bandwidth.
LOSS_PRICE: Final = 0.1


def worth(bandwidth: Float64Array | float) -> Float64Array:
    """Return what a set of so many GB/s is worth, 0..100; 0 for no set.

    >>> [round(float(worth(found)), 1) for found in (0, 12, 25, 50, 900, 1800)]
    [0.0, 41.4, 50.0, 58.1, 91.9, 100.0]
    """
    found = np.maximum(np.asarray(bandwidth, dtype=np.float64), 1e-9)
    step = (_FULL_WORTH - _MIDDLE_WORTH) / math.log2(_TOP / _MIDDLE)
    value: Float64Array = np.clip(
        _FULL_WORTH - step * np.log2(_TOP / found), 0.0, _FULL_WORTH
    )
    return value


@dataclass(frozen=True, slots=True, eq=False)
class LinkTable:
    """What a pod of one size gets on one layout of n GPUs.

    Arrays of shape (2^n,) go by the set of free GPUs, those of shape (n+1,) by their
    number, averaged over its sets. Where fewer are free than are asked, there is
    nothing: 0, and False.

    Attributes
    ----------
    best : float64 array, shape (2^n,)
        Bandwidth of the best set that is free, GB/s.
    quality : float64 array, shape (2^n,)
        The same relative to the best set of the empty node, 0..1.
    is_linked : bool array, shape (2^n,)
        Whether a linked set is free.
    picked : int64 array, shape (2^n,)
        The set that the device plugin takes.
    loss : float64 array, shape (2^n,)
        How much less the best sets of what is left are worth than those before, 0..100.
    score : float64 array, shape (2^n,)
        What `picked` is worth, less the price of the loss; 100 less the price for one.
    score_by_count : float64 array, shape (n+1,)
    """

    best: Float64Array
    quality: Float64Array
    is_linked: BoolArray
    picked: Int64Array
    loss: Float64Array
    score: Float64Array
    score_by_count: Float64Array


# The usual sizes of 64 layouts; one of 16 GPUs takes megabytes.
@lru_cache(maxsize=320)
def table_of(layout: LinkLayout, size: int) -> LinkTable:
    """Return the table for pods that ask `size` GPUs, from 1 to all of them."""
    best = best_sets(layout, size)
    picked = _picked(layout, size)
    is_enough = picked > 0
    left = np.arange(1 << layout.count) & ~picked
    value = value_of_free(layout)
    loss = np.where(is_enough, value - value[left], 0.0)
    own = worth(layout.bandwidth[picked]) if size > 1 else np.full(len(left), 100.0)
    score = np.where(is_enough, np.clip(own - LOSS_PRICE * loss, 0.0, 100.0), 0.0)
    most = best[layout.full]
    quality = best / most if most else is_enough.astype(np.float64)
    is_linked = _any_subset(layout.is_linked, layout.count, size)
    by_count = averages(layout, score)
    for array in (best, quality, is_linked, picked, loss, score, by_count):
        array.setflags(write=False)
    return LinkTable(best, quality, is_linked, picked, loss, score, by_count)


def prepare(layout: LinkLayout) -> None:
    """Compute the tables for pods that ask a power of two of GPUs, as most do.

    PERF: they take a tenth of a second for a layout, on the request path two thirds of
    all that a call may take where a cluster has a few; ``bench.scoring.nvlink_fleet``
    """
    for size in (1, 2, 4, 8, 16):
        if size <= layout.count:
            table_of(layout, size)


def best_sets(layout: LinkLayout, size: int) -> Float64Array:
    """Return the bandwidth of the best set of `size` in each set of free GPUs."""
    sizes = sizes_of_sets(layout.count)
    return _over_subsets(np.where(sizes == size, layout.bandwidth, 0.0), layout.count)


def _any_subset(holds: BoolArray, count: int, size: int) -> BoolArray:
    of_size = holds & (sizes_of_sets(count) == size)
    found: BoolArray = _over_subsets(of_size.astype(np.float64), count) > 0
    return found


def _over_subsets(values: Float64Array, count: int) -> Float64Array:
    """Return for each set the largest value of its subsets, shape (2^count,)."""
    largest = values.copy()
    for gpu in range(count):
        halves = largest.reshape(-1, 2, 1 << gpu)
        np.maximum(halves[:, 1], halves[:, 0], out=halves[:, 1])
    return largest


@lru_cache(maxsize=64)
def value_of_free(layout: LinkLayout) -> Float64Array:
    """Return what the free GPUs are worth to later pods, 0..100, shape (2^n,).

    The worth of the best set of 2, 4, 8 and 16, each by its number of GPUs: the larger
    ones are the harder to come by.
    """
    sizes = [size for size in (2, 4, 8, 16) if size <= layout.count]
    value = np.zeros(1 << layout.count)
    for size in sizes:
        value += size / sum(sizes) * worth(best_sets(layout, size))
    value.setflags(write=False)
    return value


def _picked(layout: LinkLayout, size: int) -> Int64Array:
    """Return the set that the device plugin takes of each set of free GPUs.

    Where all pairs are alike, the first ones. On machines of more than eight that are
    not, a best set: what the device plugin would do there, nobody can wait for.
    """
    every = np.arange(1 << layout.count)
    if layout.is_uniform or size == 1:
        return _first(every, size)
    if layout.count <= MOST_GPUS:
        pick = policy_of(layout).pick
        return np.array([pick(free, size) for free in every.tolist()], dtype=np.int64)
    sizes = sizes_of_sets(layout.count)
    best = np.where(sizes == size, layout.bandwidth, -1.0)
    picked = np.where(sizes == size, every, 0)
    for gpu in range(layout.count):
        sets, values = picked.reshape(-1, 2, 1 << gpu), best.reshape(-1, 2, 1 << gpu)
        better = values[:, 0] >= values[:, 1]
        np.copyto(sets[:, 1], sets[:, 0], where=better)
        np.copyto(values[:, 1], values[:, 0], where=better)
    return picked


def _first(free: Int64Array, size: int) -> Int64Array:
    """Return the first `size` GPUs of each set; 0 where they are fewer."""
    taken, left = np.zeros_like(free), free.copy()
    for _ in range(size):
        lowest = left & -left
        taken |= lowest
        left &= ~lowest
        taken[lowest == 0] = 0
    return taken


def averages(layout: LinkLayout, values: Float64Array) -> Float64Array:
    """Return the mean of `values` by the number of free GPUs, shape (n+1,).

    Over all sets of that number: any set comes about where pods of one GPU come and go
    between others, whatever the device plugin prefers, and each in as many ways, which
    are the divisions of the others among pods.
    """
    sizes = sizes_of_sets(layout.count)
    mean: Float64Array = np.bincount(sizes, values) / np.bincount(sizes)
    return mean


def set_without(kind: LinkKind, free: int, gpus: int) -> int:
    """Return the set that stays free once a pod has got so many GPUs of it.

    `NOT_TOLD` where that cannot be foretold.
    """
    layout = kind.layout
    if not gpus or free < 0:
        return free
    if layout is None or not 0 < gpus <= free.bit_count() or free > layout.full:
        return NOT_TOLD
    return free & ~int(table_of(layout, gpus).picked[free])


@dataclass(frozen=True, slots=True, eq=False)
class LinkLookup:
    """Tables of all kinds of links of a cluster for one size, end to end.

    Attributes
    ----------
    first, count : int64 array, shape (K,)
        Where the entries of a kind begin, and its number of GPUs. From there on they go
        by the number of free GPUs, and after those by the set of them.
    score : float64 array, shape (E,)
    is_linked : bool array, shape (E,)
        False only where it is known that no linked set is free.
    is_enough : bool array, shape (E,)
        Whether as many are free as are asked.
    picked : int64 array, shape (E,)
        What is taken of a set; 0 where only the number is known.
    is_known : bool array, shape (K,)
    is_ever_linked : bool array, shape (K,)
        Whether the empty node has a linked set; True where nothing is known.
    """

    first: Int64Array
    count: Int64Array
    score: Float64Array
    is_linked: BoolArray
    is_enough: BoolArray
    picked: Int64Array
    is_known: BoolArray
    is_ever_linked: BoolArray

    def entries(
        self, codes: Int64Array, free_sets: Int64Array, free: Int64Array
    ) -> Int64Array:
        """Return the entry of each node, shape (C,).

        By its set of free GPUs; by their number where the set is not known, or has
        fewer than are asked while kube-scheduler says that there are enough.

        Parameters
        ----------
        free : int64 array, shape (C,)
            How many are free.
        """
        first, count = self.first[codes], self.count[codes]
        by_count = first + np.clip(free, 0, count)
        known = (free_sets >= 0) & (free_sets < np.left_shift(1, count))
        by_set = first + count + 1 + np.where(known, free_sets, 0)
        entries: Int64Array = np.where(known & self.is_enough[by_set], by_set, by_count)
        return entries


# One for each size that is asked: the kinds are those of one snapshot, nearly always.
@lru_cache(maxsize=32)
def lookup_of(kinds: tuple[LinkKind, ...], size: int) -> LinkLookup:
    """Return the tables of some kinds of links for pods that ask `size` GPUs."""
    parts: list[tuple[Float64Array, BoolArray, BoolArray, Int64Array]] = []
    count, known, ever = [], [], []
    for kind in kinds:
        layout = kind.layout
        if layout is None or layout.count < size:
            no, zero = np.zeros(2), np.zeros(2, dtype=np.int64)
            parts.append((no, no == 0, no != 0, zero))
            count.append(0)
        else:
            table, of_count = table_of(layout, size), np.arange(layout.count + 1)
            parts.append(
                (
                    np.concatenate([table.score_by_count, table.score]),
                    np.concatenate([of_count >= 0, table.is_linked]),
                    np.concatenate([of_count >= size, table.picked > 0]),
                    np.concatenate([of_count * 0, table.picked]),
                )
            )
            count.append(layout.count)
        known.append(layout is not None)
        ever.append(
            layout is None
            or layout.count < size
            or bool(table_of(layout, size).is_linked[layout.full])
        )
    lengths = [len(part[0]) for part in parts]
    score, is_linked, is_enough, picked = (
        np.concatenate(arrays) for arrays in zip(*parts, strict=True)
    )
    return LinkLookup(
        np.cumsum([0, *lengths[:-1]]),
        np.array(count, dtype=np.int64),
        score,
        is_linked,
        is_enough,
        picked,
        np.array(known),
        np.array(ever),
    )
