"""Fragmentation of free GPUs, as seen by the pods that are asked for most.

After Weng, Yang et al., "Beware of Fragmentation", USENIX ATC 2023: what is free on a
node is a fragment for a class of pods that cannot use it; fragments are weighed by how
often that class is asked for.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from scoring.snapshot import BoolArray, Float64Array, Int64Array
from simulator.pods import QueuedPod

# The classes that stand for all pods make up so much of them.
COVERAGE: Final = 0.95


@dataclass(frozen=True, slots=True, eq=False)
class Mix:
    """The M classes of pods that are asked for most.

    Attributes
    ----------
    parts : float64 array, shape (M,)
        Part of the pods of all M classes.
    cpu, gpus : int64 array, shape (M,)
        Millicores; number of GPUs, 0 for a class that asks for none.
    shares : int64 array, shape (S,)
        Distinct thousandths of a GPU, ascending.
    share_of : int64 array, shape (M,)
        Index of each class in `shares`.
    accepts : bool array, shape (M, K)
        Which of the K models of the cluster each class accepts.
    """

    parts: Float64Array
    cpu: Int64Array
    gpus: Int64Array
    shares: Int64Array
    share_of: Int64Array
    accepts: BoolArray


def mix_of(pods: Iterable[QueuedPod], models: Sequence[str]) -> Mix:
    """Return the classes that make up `COVERAGE` of the pods, most frequent first."""
    counts = Counter(pod.shape for pod in pods)
    total = counts.total()
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    covered, kept = 0, 0
    while kept < len(ordered) and covered < COVERAGE * total:
        covered += ordered[kept][1]
        kept += 1
    shapes = [shape for shape, _ in ordered[:kept]]
    shares = np.unique([share for _, _, share, _ in shapes])
    return Mix(
        parts=np.array([count for _, count in ordered[:kept]]) / max(covered, 1),
        cpu=np.array([cpu for cpu, _, _, _ in shapes], dtype=np.int64),
        gpus=np.array([gpus for _, gpus, _, _ in shapes], dtype=np.int64),
        shares=shares.astype(np.int64),
        share_of=np.searchsorted(shares, [share for _, _, share, _ in shapes]),
        accepts=np.array(
            [
                [not accepted or model in accepted for model in models]
                for _, _, _, accepted in shapes
            ],
            dtype=np.bool_,
        ).reshape(kept, len(models)),
    )


def fragments(
    mix: Mix, free_cpu: Int64Array, free: Int64Array, models: Int64Array
) -> Float64Array:
    """Return the fragments on each of X nodes.

    Parameters
    ----------
    free_cpu : int64 array, shape (X,)
        Millicores.
    free : int64 array, shape (X, G)
        Thousandths of each GPU.
    models : int64 array, shape (X,)
        Code of the node's model.

    Returns
    -------
    float64 array, shape (X,)
        Thousandths of a GPU. All that is free is a fragment for a class that cannot run
        there or that asks for no GPU; for others, GPUs with less than their share.
    """
    fitting = free[:, :, None] >= mix.shares  # (X, G, S)
    usable = np.einsum("xg,xgs->xs", free, fitting)
    counts = np.count_nonzero(fitting, axis=1)
    can_run = (
        (free_cpu[:, None] >= mix.cpu)
        & (counts[:, mix.share_of] >= mix.gpus)
        & (mix.gpus > 0)
        & mix.accepts.T[models]
    )
    used: Float64Array = np.where(can_run, usable[:, mix.share_of], 0) @ mix.parts
    fragmented: Float64Array = free.sum(axis=1) - used
    return fragmented
