"""`Shape` of a pod's request, and the GPUs of nodes that share theirs.

A share is counted in thousandths of a GPU. What one unit of `SHARED_GPU` stands for
depends on the node: a thousandth, or a replica of time-slicing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from scoring.resources import CPU, SHARED_GPU, Request, is_whole_gpu
from scoring.topology.devices import Devices, index_of

# Thousandths of one device that is entirely free.
WHOLE: Final = 1000

# Devices of one node that are looked at, and that one pod is taken to ask at most.
MAX_DEVICES: Final = 16

MAX_GPUS: Final = 1024

# Millicores; any more is a mistake, and would not add up.
MAX_CPU: Final = 2**40

# Index of a GPU, and how many thousandths of it.
Told: TypeAlias = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """Request of one pod, as far as packing looks at it.

    Attributes
    ----------
    cpu : int
        Millicores.
    gpus : int
        Number of devices; 0 for a pod that asks for none.
    thousandths : int
        Of each of them, 1 to 1000. Below 1000 for one device only.
    """

    cpu: int
    gpus: int
    thousandths: int = WHOLE

    @property
    def total(self) -> int:
        """Thousandths of a device that it takes in all."""
        return self.gpus * self.thousandths


def shape_of(request: Request, unit: int) -> Shape:
    """Return the shape of a request.

    Parameters
    ----------
    request : tuple of (str, int)
    unit : int
        Thousandths that one of `SHARED_GPU` is; 0 where nobody knows. What cannot be
        told in GPUs, such as slices, counts as none.

    Examples
    --------
    >>> shape_of((("cpu", 4000), ("nvidia.com/gpu", 2)), 0)
    Shape(cpu=4000, gpus=2, thousandths=1000)
    >>> shape_of((("nvidia.com/gpu.shared", 1),), 250)
    Shape(cpu=0, gpus=1, thousandths=250)
    """
    amounts = dict(request)
    cpu = min(amounts.get(CPU, 0), MAX_CPU)
    share = amounts.get(SHARED_GPU, 0) * unit
    if not share:
        whole = sum(amount for name, amount in request if is_whole_gpu(name))
        return Shape(cpu, min(whole, MAX_GPUS))
    if share < WHOLE:
        return Shape(cpu, 1, share)
    return Shape(cpu, min(-(-share // WHOLE), MAX_GPUS))


@dataclass(frozen=True, slots=True)
class SharedGpus:
    """GPUs of a node that pods share.

    Attributes
    ----------
    count : int
        0 for a node that shares none, or of which nobody knows.
    unit : int
        Thousandths of a GPU that one of `SHARED_GPU` is.
    """

    count: int = 0
    unit: int = 0


NOTHING_SHARED: Final = SharedGpus()


def shared_gpus(allocatable: Request, replicas: int) -> SharedGpus:
    """Return what a node shares.

    Parameters
    ----------
    allocatable : tuple of (str, int)
        Where whole GPUs stand beside shares, both count the same GPUs.
    replicas : int
        Sharers of each GPU by the node's label, for shares that stand alone.

    Examples
    --------
    >>> shared_gpus((("nvidia.com/gpu.shared", 16),), 4)
    SharedGpus(count=4, unit=250)
    >>> shared_gpus((("nvidia.com/gpu", 8), ("nvidia.com/gpu.shared", 8000)), 1)
    SharedGpus(count=8, unit=1)
    """
    units = next((amount for name, amount in allocatable if name == SHARED_GPU), 0)
    if not units:
        return NOTHING_SHARED
    whole = sum(amount for name, amount in allocatable if is_whole_gpu(name))
    sharers = units // whole if whole else replicas
    if not (1 < sharers <= WHOLE and units % sharers == 0):
        return NOTHING_SHARED
    return SharedGpus(min(units // sharers, MAX_DEVICES), WHOLE // sharers)


def told_shares(devices: Devices | None, ids: tuple[str, ...]) -> Told | None:
    """Return the GPUs that a pod is said to hold; None where nothing says so.

    `ids` are the UUIDs of the node's GPUs, as far as they are known.
    """
    if devices is None or not devices.is_readable:
        return None
    told = [(index_of(name, ids), share) for name, share in devices.shares]
    return None if any(index < 0 for index, _ in told) else tuple(told)


def is_possible(told: Told, request: Request, shared: SharedGpus) -> bool:
    """Whether a pod can hold what it is said to hold of a node that shares its GPUs.

    Each GPU is there and named once, and all shares together are what it asks, or are
    off by less than a thousandth for each unit where these are no whole number.

    >>> quarters = SharedGpus(count=2, unit=250)
    >>> is_possible(((1, 250),), (("nvidia.com/gpu.shared", 1),), quarters)
    True
    >>> is_possible(((1, 1000),), (("nvidia.com/gpu.shared", 1),), quarters)
    False
    """
    units = dict(request).get(SHARED_GPU, 0)
    asked = units * shared.unit or shape_of(request, shared.unit).total
    slack = units if WHOLE % shared.unit else 0
    indexes = [index for index, _ in told]
    return (
        len(set(indexes)) == len(indexes)
        and max(indexes, default=0) < shared.count
        and 0 <= sum(share for _, share in told) - asked <= slack
    )


def free_thousandths(
    count: int, holders: Iterable[tuple[int, Told | None]]
) -> tuple[int, ...]:
    """Return what is free of each of a node's shared GPUs.

    Parameters
    ----------
    count : int
    holders : iterable of (int, Told or None)
        Thousandths that each pod holds, and of which GPUs. Where nothing says so, the
        largest take first, each of the fullest GPU that has enough.

    Examples
    --------
    >>> free_thousandths(2, [(300, ((1, 300),)), (600, None), (400, None)])
    (600, 100)
    """
    free = [WHOLE] * count
    untold: list[int] = []
    for held, told in holders:
        if told is None:
            untold.append(held)
            continue
        for index, share in told:
            if index < count:
                free[index] = max(free[index] - share, 0)
    for held in sorted(untold, reverse=True):
        left = min(held, WHOLE * count)
        while left > 0:
            share = min(left, WHOLE)
            enough = [one for one in free if one >= share]
            index = free.index(min(enough) if enough else max(free))
            free[index] = max(free[index] - share, 0)
            left -= share
    return tuple(free)
