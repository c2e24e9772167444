"""What can happen to the cluster, as the ledger is told of it."""

from dataclasses import dataclass
from typing import TypeAlias

from cluster.objects import NodeRecord, PodRecord


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
        Names of nodes of which a part did not decode; records kept before stay.
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


Change: TypeAlias = (
    NodeSeen
    | NodeGone
    | NodesListed
    | PodSeen
    | PodGone
    | PodsListed
    | DeviceClassesListed
)
