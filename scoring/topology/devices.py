"""Devices that pods hold, as an annotation tells them, and the sets that are free."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from scoring.quantity import shorten
from scoring.topology.layouts import LinkLayout, NodeLinks
from scoring.topology.links import MAX_ID

# In place of a set of free GPUs: nobody says which are in use; or it is said so that it
# cannot be.
NOT_TOLD: Final = -1

CONTRADICTED: Final = -2

WHOLE: Final = 1000

# Devices that one pod may name.
MAX_DEVICES: Final = 64

UUID_PREFIX: Final = "GPU-"

_SHARE: Final = re.compile(r"\d{1,4}", re.ASCII)

_INDEX: Final = re.compile(r"\d{1,3}", re.ASCII)


class DevicesError(ValueError):
    """An annotation about devices that cannot be read."""


@dataclass(frozen=True, slots=True)
class Devices:
    """GPUs that a pod holds.

    Attributes
    ----------
    shares : tuple of (str, int)
        Index or UUID of a GPU, and how many thousandths of it.
    is_readable : bool
        False where the annotation cannot be read.
    """

    shares: tuple[tuple[str, int], ...] = ()
    is_readable: bool = True


UNREADABLE_DEVICES: Final = Devices(is_readable=False)


def read_devices(text: str) -> Devices:
    """Return the GPUs that an annotation names; raise `DevicesError`.

    >>> read_devices("0, GPU-1f2e=500").shares
    (('0', 1000), ('GPU-1f2e', 500))
    """
    parts = text.split(",")
    if len(parts) > MAX_DEVICES:
        raise DevicesError(f"wanted at most {MAX_DEVICES} GPUs")
    shares: dict[str, int] = {}
    for part in parts:
        name, equals, share = (word.strip() for word in part.partition("="))
        if not 0 < len(name) <= MAX_ID or not name.isprintable():
            raise DevicesError("wanted indexes or UUIDs of GPUs, such as '0,3'")
        thousandths = int(share) if _SHARE.fullmatch(share) else 0
        if equals and not 0 < thousandths <= WHOLE:
            raise DevicesError(f"wanted 1 to {WHOLE} after =, got {shorten(share)}")
        if name in shares:
            raise DevicesError(f"{name!r} stands there twice")
        shares[name] = thousandths if equals else WHOLE
    return Devices(tuple(shares.items()))


def has_unknown_ids(devices: Devices, ids: tuple[str, ...]) -> bool:
    """Whether GPUs are named by UUID where nobody says which of the node's those are.

    >>> has_unknown_ids(read_devices("0,GPU-a"), ())
    True
    """
    return not ids and any(name.startswith(UUID_PREFIX) for name, _ in devices.shares)


def index_of(name: str, ids: tuple[str, ...]) -> int:
    """Return the index of a GPU by its UUID or its index; -1 for neither.

    >>> index_of("GPU-b", ("GPU-a", "GPU-b")), index_of("3", ()), index_of("GPU-c", ())
    (1, 3, -1)
    """
    if name in ids:
        return ids.index(name)
    return int(name) if _INDEX.fullmatch(name) else -1


def held_set(devices: Devices, links: NodeLinks) -> int:
    """Return the set of GPUs that are held, in whole or in part.

    `CONTRADICTED` where one of them is none of the node's, or is named twice.
    """
    held, count = 0, links.layout.count if links.layout is not None else 0
    for name, _ in devices.shares:
        gpu = index_of(name, links.ids)
        if not 0 <= gpu < count or held >> gpu & 1:
            return CONTRADICTED
        held |= 1 << gpu
    return held


def free_set(
    links: NodeLinks,
    allocatable: int,
    holders: Iterable[tuple[int, Devices | None]],
) -> int:
    """Return the set of free GPUs of a node, or why it is not known.

    Parameters
    ----------
    allocatable : int
        Where it is not the number of GPUs, some are sick, and nobody says which.
    holders : iterable of (int, Devices or None)
        Number of whole GPUs of each pod on the node, and what says which.
    """
    layout = links.layout
    if layout is None or allocatable != layout.count:
        return NOT_TOLD
    held, is_told = 0, True
    for gpus, devices in holders:
        if not gpus:
            continue
        if devices is None or (
            len(devices.shares) == gpus and has_unknown_ids(devices, links.ids)
        ):
            is_told = False
            continue
        own = held_set(devices, links) if devices.is_readable else CONTRADICTED
        if own < 0 or own & held or own.bit_count() != gpus:
            return CONTRADICTED
        held |= own
    return layout.full & ~held if is_told else NOT_TOLD


@dataclass(frozen=True, slots=True)
class LinkKind:
    """Links that nodes have in common.

    Attributes
    ----------
    layout : LinkLayout or None
        None where nothing is known.
    is_measured : bool
        Whether the nodes themselves say so; else it is what their model has.
    """

    layout: LinkLayout | None = None
    is_measured: bool = False


UNKNOWN_LINKS: Final = LinkKind()
