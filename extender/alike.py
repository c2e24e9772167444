"""`Alike`: what was computed of a candidate, for others of which the same is known.

PERF: for one changed node nearly all that judging and scoring take is to begin some
hundred numpy operations. Most nodes of a cluster are in one of few states, so that the
result is at hand; ``bench.scheduler``
"""

from collections.abc import Callable, Hashable
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scoring.candidates import Ask, Candidates, Shape

# Arrays over nodes, shape (N,) or (C,).
Arrays: TypeAlias = tuple[NDArray[Any], ...]
Compute: TypeAlias = Callable[[Candidates, Ask], Arrays]
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


class Alike:
    """Computes results, and remembers those of few candidates; any thread may call it.

    It has no effect on results: what is remembered equals what would be computed.

    Parameters
    ----------
    compute : callable
        Each candidate's result depends on that candidate and the pod alone.
    """

    def __init__(self, compute: Compute) -> None:
        self._compute = compute
        self._known: dict[Shape, _Known] = {}

    def __call__(self, candidates: Candidates, ask: Ask) -> Arrays:
        """Return what `compute` gives for the candidates, arrays of shape (C,)."""
        if max(len(candidates.known), len(ask.request)) > MAX_FEW:
            return self._compute(candidates, ask)
        rows = rows_of(candidates)
        known = self._known.get(ask.shape)
        if known is not None:
            found = [known.results.get(row) for row in rows]
            if found and None not in found:
                values = zip(*found, strict=True)
                return tuple(map(np.array, values, known.dtypes))
        arrays = self._compute(candidates, ask)
        self._keep(ask.shape, rows, arrays)
        return arrays

    def _keep(self, shape: Shape, rows: list[Row], arrays: Arrays) -> None:
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
    type_names, card_kinds = candidates.type_names, candidates.card_kinds
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
        [card_kinds[code] for code in candidates.card_codes.tolist()],
        candidates.tenants.tolist(),
        candidates.exclusive.tolist(),
    )
    return list(zip(*columns, strict=True))
