"""What can happen to the cluster, as the ledger is told of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from cluster.objects import NodeRecord, PodRecord
from scoring.cards import NodeCards
from scoring.objects import LimitMaxima, Request


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node was added or changed.

    Attributes
    ----------
    is_partial : bool
        Whether a part of it did not decode; a record kept before then stays.
    """

    record: NodeRecord
    is_partial: bool = False


@dataclass(frozen=True, slots=True)
class NodeGone:
    """A node was deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class NodesListed:
    """A complete list: it replaces, it does not merge.

    Attributes
    ----------
    partial : frozenset of str
        Names of nodes that did not decode, or in part only; records kept before stay.
    """

    records: tuple[NodeRecord, ...]
    partial: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PodSeen:
    """A pod was added or changed; `is_partial` as in `NodeSeen`."""

    record: PodRecord
    is_partial: bool = False


@dataclass(frozen=True, slots=True)
class PodGone:
    """A pod was deleted."""

    uid: str


@dataclass(frozen=True, slots=True)
class PodsListed:
    """A complete list, as `NodesListed`; `partial` holds UIDs."""

    records: tuple[PodRecord, ...]
    partial: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DeviceClassesListed:
    """The extended resources that DeviceClasses carry, all of them."""

    resources: frozenset[str]


@dataclass(frozen=True, slots=True)
class LimitRangesListed:
    """What the LimitRanges of each namespace allow at most, all of them."""

    maxima: Mapping[str, LimitMaxima]


@dataclass(frozen=True, slots=True)
class CardsChanged:
    """Cards are told by other rules from now on.

    Attributes
    ----------
    read : callable
        Labels and capacity of a node to its cards.
    """

    read: Callable[[Mapping[str, str], Request], NodeCards]

    def reread(self, record: NodeRecord) -> NodeRecord:
        """Return the record with its cards told anew."""
        cards = self.read(record.labels, record.capacity)
        return msgspec.structs.replace(record, cards=cards)


Change: TypeAlias = (
    NodeSeen
    | NodeGone
    | NodesListed
    | PodSeen
    | PodGone
    | PodsListed
    | DeviceClassesListed
    | LimitRangesListed
    | CardsChanged
)
