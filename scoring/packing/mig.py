"""Places for MIG instances on the GPUs of a node, and what one more of them breaks.

An instance takes a window of a GPU's memory slices and may begin at a few of them only,
so it is not how many slices are free that counts, but which. Compute slices never bind
apart from these.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from scoring.gpu.models import MigProfile
from scoring.resources import MIG_PREFIX, Request
from scoring.topology.devices import Devices
from scoring.topology.layouts import Float64Array, Int64Array

Geometry: TypeAlias = tuple[MigProfile, ...]

# Beside the bits of at most eight memory slices: an instance has the media engines, of
# which a GPU has one set for the profiles named ``+me``.
MEDIA: Final = 1 << 8

MASKS: Final = 2 * MEDIA

# More than a node has.
MAX_GPUS: Final = 16

# Name that NVIDIA's DRA driver gives an instance: the GPU, the profile without dots,
# the number of the profile, and the slice where it begins.
_INSTANCE: Final = re.compile(
    r"gpu-(?P<gpu>\d{1,3})-mig-(?P<profile>[0-9a-z-]{1,32})-\d{1,3}-(?P<start>\d)",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class MigGpus:
    """GPUs of a node on which instances are made on demand.

    Attributes
    ----------
    geometry : tuple of MigProfile
        Of each of them.
    occupied : tuple of int
        For each GPU, the memory slices in use as a bit mask, and `MEDIA`.
    numbers : tuple of int
        Number of each GPU, as the names of instances have it.
    """

    # PERF: of two that have the same slices in use, the geometry is most often the same
    geometry: Geometry = field(hash=False)
    occupied: tuple[int, ...]
    numbers: tuple[int, ...]


class Placement(NamedTuple):
    """Instances of one pod on a node, and what they take away.

    Attributes
    ----------
    price : float
        0 to 1: 0 where no larger profile loses a place, 1 where all lose their last.
    windows : tuple of (int, int)
        Number of the GPU of each instance, and the slice where it begins.
    before, after : tuple of int
        Places for one more instance of each profile on the whole node.
    gpus : MigGpus
        With the instances.
    """

    price: float
    windows: tuple[tuple[int, int], ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    gpus: MigGpus


def window(profile: MigProfile, start: int) -> int:
    """Return what an instance takes of a GPU, as a mask.

    >>> bin(window(MigProfile("3g.40gb", 3, 4, 2, (0, 4)), 4))
    '0b11110000'
    """
    slices = ((1 << profile.memory_slices) - 1) << start
    return slices | (MEDIA if has_media(profile) else 0)


def has_media(profile: MigProfile) -> bool:
    """Whether the profile comes with the media engines."""
    return "+me" in profile.name


@lru_cache(maxsize=64)
def count_places(geometry: Geometry) -> Int64Array:
    """Return how many more instances fit a GPU, by profile and what is in use.

    Windows of one profile do not overlap, so it is the number of those that are free.

    Returns
    -------
    int64 array, shape (P, `MASKS`)
    """
    masks = np.arange(MASKS, dtype=np.int64)
    rows = []
    for profile in geometry:
        windows = [window(profile, start) for start in profile.starts]
        free = np.sum([(masks & taken) == 0 for taken in windows], axis=0)
        rows.append(np.minimum(free, profile.at_most))
    places = np.array(rows, dtype=np.int64)
    places.setflags(write=False)
    return places


@lru_cache(maxsize=64)
def weigh_profiles(geometry: Geometry, index: int) -> Float64Array:
    """Return how much it counts that each profile loses its places, shape (P,).

    Those larger than the one at `index` count by their memory slices and add up to 1;
    where there are none, all is 0. Forms with media engines have the same windows as
    those without, and do not count.
    """
    asked = geometry[index]
    size = (asked.compute_slices, asked.memory_slices)
    weights = np.array(
        [
            0.0
            if "+" in other.name or (other.compute_slices, other.memory_slices) <= size
            else float(other.memory_slices)
            for other in geometry
        ]
    )
    weights /= max(weights.sum(), 1.0)
    weights.setflags(write=False)
    return weights


@lru_cache(maxsize=8192)
def place(gpus: MigGpus, profile: str, amount: int = 1) -> Placement | None:
    """Return where instances go that a pod asks for; None where there is no place.

    Each goes where it breaks least, as the driver does on one GPU; of equals to the
    fullest GPU, there to the highest slice.

    Parameters
    ----------
    profile : str
        As resource names have it: ``1g.10gb.me`` for ``1g.10gb+me``.
    amount : int
        Number of instances.
    """
    index = index_of(gpus.geometry, profile)
    if index is None:
        return None
    occupied, windows = list(gpus.occupied), []
    before = places_on(gpus)
    for _ in range(amount):
        found = _cheapest(gpus.geometry, index, occupied)
        if found is None:
            return None
        gpu, start = found
        windows.append((gpus.numbers[gpu], start))
        occupied[gpu] |= window(gpus.geometry[index], start)
    taken = replace(gpus, occupied=tuple(occupied))
    after = places_on(taken)
    price = min(_loss(before, after, weigh_profiles(gpus.geometry, index)), 1.0)
    return Placement(
        price, tuple(windows), tuple(before.tolist()), tuple(after.tolist()), taken
    )


def _cheapest(
    geometry: Geometry, index: int, occupied: list[int]
) -> tuple[int, int] | None:
    """Return GPU and slice where one more instance breaks least."""
    profile, weights = geometry[index], weigh_profiles(geometry, index)
    places = count_places(geometry)
    before = places[:, occupied].sum(axis=1)
    options = []
    for gpu, taken in enumerate(occupied):
        for start in profile.starts:
            own = window(profile, start)
            if taken & own:
                continue
            after = before - places[:, taken] + places[:, taken | own]
            loss = _loss(before, after, weights)
            options.append((loss, -taken.bit_count(), -start, gpu))
    if not options:
        return None
    _, _, start, gpu = min(options)
    return gpu, -start


def _loss(before: Int64Array, after: Int64Array, weights: Float64Array) -> float:
    """Return the part of the places that is lost, by profile, weighed."""
    lost = (before - after) / np.maximum(before, 1)
    return float(weights @ lost)


def places_on(gpus: MigGpus) -> Int64Array:
    """Return how many more instances of each profile the node has places for."""
    places: Int64Array = count_places(gpus.geometry)[:, list(gpus.occupied)].sum(axis=1)
    return places


def place_all(
    gpus: MigGpus, instances: Iterable[tuple[str, int]]
) -> list[tuple[str, Placement]] | None:
    """Return where instances of several profiles go, the largest first.

    Each placement is on what those before it leave; None where one has no place.

    Parameters
    ----------
    instances : iterable of (str, int)
        Profile, as resource names have it, and number.
    """

    def size(pair: tuple[str, int]) -> int:
        index = index_of(gpus.geometry, pair[0])
        return -1 if index is None else gpus.geometry[index].memory_slices

    found: list[tuple[str, Placement]] = []
    for profile, amount in sorted(instances, key=size, reverse=True):
        placement = place(gpus, profile, amount)
        if placement is None:
            return None
        found.append((profile, placement))
        gpus = placement.gpus
    return found


def price(gpus: MigGpus | None, instances: Iterable[tuple[str, int]]) -> float:
    """Return what larger profiles lose by all instances of a pod together, 0 to 1.

    0 where nothing is known of the GPUs: with a static layout an instance that is there
    is taken, and no place is lost. 1 where there is no place that we know of.
    """
    if gpus is None:
        return 0.0
    found = place_all(gpus, instances)
    if found is None:
        return 1.0
    return min(sum(placement.price for _, placement in found), 1.0)


def index_of(geometry: Geometry, profile: str) -> int | None:
    """Return the index of the profile that a resource is named after."""
    names = [_resource_form(known.name) for known in geometry]
    return names.index(profile) if profile in names else None


def _resource_form(name: str) -> str:
    """Return the name of a profile as it stands in names of resources."""
    return name.replace("+", ".")


def with_pod(gpus: MigGpus | None, request: Request) -> MigGpus | None:
    """Return the GPUs with the instances that a pod asks for, as far as they fit."""
    for resource, amount in request:
        if gpus is not None and resource.startswith(MIG_PREFIX):
            found = place(gpus, resource.removeprefix(MIG_PREFIX), amount)
            gpus = gpus if found is None else found.gpus
    return gpus


def without_pod(gpus: MigGpus | None, instances: Iterable[str]) -> MigGpus | None:
    """Return the GPUs without instances of a pod that is on them, given by name."""
    if gpus is None:
        return None
    occupied = dict(zip(gpus.numbers, gpus.occupied, strict=True))
    for name in instances:
        found = _read_instance(gpus.geometry, name)
        if found is not None and found[0] in occupied:
            occupied[found[0]] &= ~window(*found[1:])
    return replace(gpus, occupied=tuple(occupied.values()))


def no_instances(geometry: Geometry, count: int) -> MigGpus:
    """Return GPUs without any."""
    return MigGpus(geometry, (0,) * count, tuple(range(count)))


def is_on_demand(geometry: Geometry, count: int, offered: Mapping[str, int]) -> bool:
    """Whether a node offers more instances than can be there at once.

    What offers so much must make them when they are asked for. A layout that fits is
    taken to be static, as is one with a profile that the GPUs do not have.

    Parameters
    ----------
    count : int
        GPUs that are cut.
    offered : mapping
        profile, as resource names have it -> instances
    """
    if not geometry or not offered or not 0 < count <= MAX_GPUS:
        return False
    profiles = {_resource_form(profile.name): profile for profile in geometry}
    if not offered.keys() <= profiles.keys():
        return False
    compute = sum(profiles[name].compute_slices * n for name, n in offered.items())
    memory = sum(profiles[name].memory_slices * n for name, n in offered.items())
    largest = max(geometry, key=lambda profile: profile.compute_slices)
    return (
        compute > largest.compute_slices * count
        or memory > largest.memory_slices * count
    )


def read_state(
    empty: MigGpus, pods: Iterable[tuple[Request, Devices | None]]
) -> tuple[MigGpus | None, bool]:
    """Return the GPUs of a node with the instances of its pods.

    Parameters
    ----------
    empty : MigGpus
        Without any.
    pods : iterable of (Request, Devices or None)
        What each asks, and what says which instances it has.

    Returns
    -------
    MigGpus or None
        None where it is not known.
    bool
        Whether that is since the pods' annotations contradict the node.
    """
    told, is_told = [], True
    for request, devices in pods:
        asked = {
            name.removeprefix(MIG_PREFIX): amount
            for name, amount in request
            if name.startswith(MIG_PREFIX)
        }
        if not asked:
            continue
        if devices is not None and not devices.is_readable:
            return None, True
        names = [name for name, _ in devices.shares] if devices is not None else []
        is_told &= bool(names) and all(map(_INSTANCE.fullmatch, names))
        told.append((asked, names))
    if not is_told:
        return None, False
    state = occupy(empty, told)
    return state, state is None


def occupy(
    empty: MigGpus, pods: Iterable[tuple[Mapping[str, int], Collection[str]]]
) -> MigGpus | None:
    """Return the GPUs with the instances of pods; None where these cannot be.

    Parameters
    ----------
    empty : MigGpus
        Without any.
    pods : iterable of (mapping, collection of str)
        What each asks, profile to number, and the names of the instances that it has,
        such as ``gpu-0-mig-1g10gb-19-4``.
    """
    occupied: dict[int, int] = {}
    for asked, instances in pods:
        held = Counter[str]()
        for name in instances:
            found = _read_instance(empty.geometry, name)
            if found is None:
                return None
            gpu, profile, start = found
            taken = window(profile, start)
            if start not in profile.starts or occupied.get(gpu, 0) & taken:
                return None
            occupied[gpu] = occupied.get(gpu, 0) | taken
            held[_resource_form(profile.name)] += 1
        if held != Counter(asked):
            return None
    if len(occupied) > len(empty.numbers):
        return None
    others = [number for number in empty.numbers if number not in occupied]
    occupied |= dict.fromkeys(others[: len(empty.numbers) - len(occupied)], 0)
    numbers = tuple(sorted(occupied))
    return MigGpus(empty.geometry, tuple(occupied[n] for n in numbers), numbers)


def _read_instance(geometry: Geometry, name: str) -> tuple[int, MigProfile, int] | None:
    """Return GPU, profile and start of an instance; None for what is none."""
    found = _INSTANCE.fullmatch(name)
    if found is None:
        return None
    for profile in geometry:
        if profile.name.replace(".", "").replace("+", "-") == found["profile"]:
            return int(found["gpu"]), profile, int(found["start"])
    return None
