"""`nearness`: how near nodes are to the pods of one job, by the domains they share."""

from collections.abc import Sequence

import numpy as np

from scoring.topology.layouts import Float64Array, Int64Array


def nearness(
    candidates: Sequence[Int64Array],
    siblings: Sequence[Int64Array],
    counts: Int64Array,
) -> Float64Array:
    """Return how near each candidate is to the siblings of a pod.

    Parameters
    ----------
    candidates : sequence of int64 array, shape (C,)
        For each kind of domain, the code of each candidate's own; 0 for none.
    siblings : sequence of int64 array, shape (S,)
        The same of the nodes that siblings are on.
    counts : int64 array, shape (S,)
        How many are on each.

    Returns
    -------
    float64 array, shape (C,)
        The part of the siblings that share a candidate's domain, 0 to 1, as the mean
        over the kinds that some sibling's node has: where nobody can be near, it does
        not count. 0 where no kind is left.
    """
    near = np.zeros(len(candidates[0]) if candidates else 0)
    kinds = 0
    for own, theirs in zip(candidates, siblings, strict=True):
        codes = max(own.max(initial=0), theirs.max(initial=0)) + 1
        here = np.bincount(theirs, weights=counts, minlength=codes)
        here[0] = 0.0
        if here.any():
            near += here[own] / counts.sum()
            kinds += 1
    return near / max(kinds, 1)
