"""Changes of the cluster, as the ledger is told of them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

import msgspec

from cluster.decode.limit_ranges import LimitRangeRecord, defaults_of, maxima_of
from cluster.decode.objects import NodeRecord, PodRecord
from cluster.decode.records import mig_on_demand, reread_links
from scoring.gpu.node_gpus import NodeGpus
from scoring.gpu.requirements import GpuRequirements
from scoring.protocols import LimitDefaults, LimitMaxima
from scoring.resources import Request


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
    """The bounds and defaults that LimitRanges set in each namespace, all of them."""

    maxima: Mapping[str, LimitMaxima]
    defaults: Mapping[str, LimitDefaults] = field(
        default_factory=lambda: MappingProxyType({})
    )

    @classmethod
    def of(cls, records: Iterable[LimitRangeRecord]) -> "LimitRangesListed":
        """Return what these LimitRanges set together."""
        records = tuple(records)
        return cls(maxima_of(records), defaults_of(records))


@dataclass(frozen=True, slots=True)
class GpuModelsChanged:
    """GPUs, and names of models, are told by other rules from now on.

    Attributes
    ----------
    read : callable
        Labels and capacity of a node to its GPUs.
    read_gpu_requirements : callable
        What a pod wanted, and its rule key, to what it wants now.
    """

    read: Callable[[Mapping[str, str], Request], NodeGpus]
    read_gpu_requirements: Callable[[GpuRequirements, str], GpuRequirements]

    def reread(
        self, nodes: Iterable[NodeRecord], pods: Iterable[PodRecord]
    ) -> list[NodeSeen | PodSeen]:
        """Return all records that these rules may read otherwise, read again."""
        seen: list[NodeSeen | PodSeen] = []
        for node in nodes:
            gpus = self.read(node.labels, node.capacity)
            links = reread_links(node.links, gpus, node.labels, node.capacity)
            mig = mig_on_demand(gpus, node.labels, node.allocatable, node.capacity)
            fresh = msgspec.structs.replace(node, gpus=gpus, links=links, mig=mig)
            seen.append(NodeSeen(fresh))
        known: dict[
            tuple[GpuRequirements, str], GpuRequirements
        ] = {}  # pods share few of them
        for pod in pods:
            if pod.rule_key:
                key = (pod.gpu_requirements, pod.rule_key)
                if key not in known:
                    known[key] = self.read_gpu_requirements(*key)
                seen.append(
                    PodSeen(msgspec.structs.replace(pod, gpu_requirements=known[key]))
                )
        return seen


Change: TypeAlias = (
    NodeSeen
    | NodeGone
    | NodesListed
    | PodSeen
    | PodGone
    | PodsListed
    | DeviceClassesListed
    | LimitRangesListed
    | GpuModelsChanged
)
