"""The GPUs that NVIDIA's device plugin takes: a model of its best-effort policy.

The scheduler chooses a node, and the kubelet asks the device plugin which of the free
GPUs it prefers. The rules are those of ``gpuallocator/besteffort_policy.go`` in
NVIDIA/go-gpuallocator: all free GPUs are divided into sets of the asked size so that
the sum of the sets' scores is largest, and the best set of that division is taken; of
equals the first in the order of the indexes.
"""

from functools import lru_cache
from itertools import combinations
from typing import Final

from scoring.topology.layouts import LinkLayout, gpus_of, is_switched, set_of
from scoring.topology.links import NODE, PHB, PIX, PXB, SYS

# Of a path over PCIe, and of one NVLink.
_PATH_SCORES: Final = {PIX: 50, PXB: 40, PHB: 30, NODE: 20, SYS: 10}

_LINK_SCORE: Final = 100

# More GPUs have millions of divisions.
MOST_GPUS: Final = 8


def pair_scores(layout: LinkLayout) -> tuple[tuple[int, ...], ...]:
    """Return the policy's score of each pair.

    A matrix hides the path over PCIe of pairs with NVLink: it is taken for that of a
    usual machine, two GPUs on a switch and half of them on a socket. Links to a switch
    count for nothing, since the policy does not see where they lead.
    """
    count, half = layout.count, max(layout.count // 2, 1)
    switched = [is_switched(row) for row in layout.matrix]

    def score(i: int, j: int) -> int:
        entry = layout.matrix[i][j]
        if entry <= 0:
            return _PATH_SCORES.get(entry, 0)
        path = PIX if i // 2 == j // 2 else PHB if i // half == j // half else SYS
        links = 0 if layout.is_uniform or switched[i] or switched[j] else entry
        return _PATH_SCORES[path] + _LINK_SCORE * links

    return tuple(tuple(score(i, j) for j in range(count)) for i in range(count))


class Policy:
    """The choices of the device plugin on one layout of at most `MOST_GPUS`."""

    def __init__(self, layout: LinkLayout) -> None:
        self._scores = pair_scores(layout)
        # (free GPUs, size, padding left) -> score of the best division, its sets
        self._divided: dict[tuple[int, int, int], tuple[int, tuple[int, ...]]] = {}
        self._set_scores: dict[int, int] = {}

    def pick(self, free: int, size: int) -> int:
        """Return the `size` GPUs that are taken of `free`; 0 if there are too few."""
        if size < 1 or free.bit_count() < size:
            return 0
        if size == 1:
            return free & -free
        _, sets = self._divide(free, size, -free.bit_count() % size)
        return max(
            (found for found in sets if found.bit_count() == size),
            key=self._score_of,  # `max` keeps the first of equals
        )

    def _divide(
        self, free: int, size: int, padding: int
    ) -> tuple[int, tuple[int, ...]]:
        """Return the best division into sets of `size`; one has all padding."""
        if not free:
            return 0, ()
        key = (free, size, padding)
        if key not in self._divided:
            self._divided[key] = self._best_division(free, size, padding)
        return self._divided[key]

    def _best_division(
        self, free: int, size: int, padding: int
    ) -> tuple[int, tuple[int, ...]]:
        first, *others = gpus_of(free)
        best: tuple[int, tuple[int, ...]] = (-1, ())
        # A set without padding and one with all of it; the policy goes by the index,
        # and padding comes after all GPUs.
        choices = [
            (set_of((first, *rest)), padding) for rest in combinations(others, size - 1)
        ]
        if padding:
            partly = size - padding
            choices += [
                (set_of((first, *rest)), 0) for rest in combinations(others, partly - 1)
            ]
            choices.sort(key=lambda choice: _order(choice[0], size))
        for taken, left_padding in choices:
            left = free & ~taken
            total, sets = self._divide(left, size, left_padding)
            total += self._score_of(taken)
            if total > best[0]:
                best = (total, (taken, *sets))
        return best

    def _score_of(self, gpus: int) -> int:
        if gpus not in self._set_scores:
            pairs = combinations(gpus_of(gpus), 2)
            self._set_scores[gpus] = sum(self._scores[i][j] for i, j in pairs)
        return self._set_scores[gpus]


def _order(gpus: int, size: int) -> tuple[int, ...]:
    """Return where a set stands in the order in which the policy tries them."""
    found = gpus_of(gpus)
    return (*found, *[1 << 10] * (size - len(found)))


@lru_cache(maxsize=256)
def policy_of(layout: LinkLayout) -> Policy:
    """Return the one policy of a layout, with what it has chosen so far."""
    return Policy(layout)
