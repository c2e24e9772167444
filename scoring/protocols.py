"""Protocols of nodes and pods as scoring reads them; `cluster` decodes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

from scoring.exclusions import Exclusions
from scoring.gpu.node_gpus import NodeGpus
from scoring.gpu.requirements import GpuRequirements
from scoring.resources import Request
from scoring.topology.devices import Devices
from scoring.topology.layouts import NodeLinks


@dataclass(frozen=True, slots=True)
class LimitMaxima:
    """Maxima that the LimitRanges of a namespace allow.

    Attributes
    ----------
    container, pod : tuple of (str, int)
        Of each container, and of all containers of a pod together.
    """

    container: Request = ()
    pod: Request = ()


@dataclass(frozen=True, slots=True)
class LimitDefaults:
    """What the LimitRanges of a namespace give containers, and want of them at least.

    Attributes
    ----------
    limits, requests : tuple of (str, int)
        What containers without get; of several LimitRanges, all.
    minima : tuple of (str, int)
        What a container must ask at least.
    ratios : tuple of (str, Fraction)
        How many times the request a container's limit may be.
    """

    limits: Request = ()
    requests: Request = ()
    minima: Request = ()
    ratios: tuple[tuple[str, Fraction], ...] = ()


@dataclass(frozen=True, slots=True)
class FailingNode:
    """A node on which pods of several owners failed lately before they ran.

    Attributes
    ----------
    since : float
        When the pod failed that made it one, in seconds since the epoch.
    pods : tuple of str
        Namespace and name of the latest failed pod of each owner, oldest first.
    """

    since: float
    pods: tuple[str, ...]


class ResourceMaps(Protocol):
    """``resources`` of a container or a pod; values as decoded."""

    @property
    def requests(self) -> Mapping[str, Any] | None: ...
    @property
    def limits(self) -> Mapping[str, Any] | None: ...


class ContainerSpec(Protocol):
    """A container, as far as its request matters."""

    @property
    def name(self) -> str: ...
    @property
    def resources(self) -> ResourceMaps | None: ...
    @property
    def restart_policy(self) -> str | None: ...


class PodSpec(Protocol):
    """A pod's ``spec``, as far as its request matters."""

    @property
    def containers(self) -> Sequence[ContainerSpec] | None: ...
    @property
    def init_containers(self) -> Sequence[ContainerSpec] | None: ...
    @property
    def overhead(self) -> Mapping[str, Any] | None: ...
    @property
    def resources(self) -> ResourceMaps | None: ...


class ConditionStatus(Protocol):
    """One entry of ``status.conditions``."""

    @property
    def type(self) -> str: ...
    @property
    def reason(self) -> str | None: ...


class ContainerStatus(Protocol):
    """What a kubelet says of a container's resources."""

    @property
    def name(self) -> str: ...
    @property
    def resources(self) -> ResourceMaps | None: ...
    @property
    def allocated_resources(self) -> Mapping[str, Any] | None: ...


class PodStatus(Protocol):
    """A pod's ``status``, as far as an in-place resize is told there."""

    @property
    def conditions(self) -> Sequence[ConditionStatus] | None: ...
    @property
    def container_statuses(self) -> Sequence[ContainerStatus] | None: ...
    @property
    def init_container_statuses(self) -> Sequence[ContainerStatus] | None: ...
    @property
    def resources(self) -> ResourceMaps | None: ...
    @property
    def allocated_resources(self) -> Mapping[str, Any] | None: ...


class Toleration(Protocol):
    """One entry of ``spec.tolerations``."""

    @property
    def key(self) -> str | None: ...
    @property
    def operator(self) -> str | None: ...
    @property
    def value(self) -> str | None: ...
    @property
    def effect(self) -> str | None: ...


class Taint(Protocol):
    """One entry of a node's ``spec.taints``."""

    @property
    def key(self) -> str: ...
    @property
    def value(self) -> str | None: ...
    @property
    def effect(self) -> str: ...


class NodeFacts(Protocol):
    """One node, its amounts apart."""

    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def taints(self) -> tuple[Taint, ...]: ...
    @property
    def is_ready(self) -> bool: ...
    @property
    def is_cordoned(self) -> bool: ...
    @property
    def gpus(self) -> NodeGpus: ...
    @property
    def links(self) -> NodeLinks: ...


class SelectorRequirement(Protocol):
    """One requirement of a node selector term, on a label or a field."""

    @property
    def key(self) -> str: ...
    @property
    def operator(self) -> str: ...
    @property
    def values(self) -> tuple[str, ...] | None: ...


class SelectorTerm(Protocol):
    """Requirements that must all hold."""

    @property
    def expressions(self) -> tuple[SelectorRequirement, ...] | None: ...
    @property
    def fields(self) -> tuple[SelectorRequirement, ...] | None: ...


class Constraints(Protocol):
    """Constraints of a pod on its node, from its own spec."""

    @property
    def node_name(self) -> str: ...
    @property
    def node_selector(self) -> Mapping[str, str]: ...
    @property
    def affinity_terms(self) -> tuple[SelectorTerm, ...] | None: ...
    @property
    def tolerations(self) -> tuple[Toleration, ...]: ...


class NamedPod(Protocol):
    """A pod, by its names."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...


class PlacedPod(NamedPod, Protocol):
    """A pod that has its node."""

    @property
    def node_name(self) -> str: ...


class PendingPod(NamedPod, Protocol):
    """A pod that has no node yet and asks for a managed resource."""

    @property
    def uid(self) -> str: ...
    @property
    def created(self) -> float: ...
    @property
    def request(self) -> Request: ...
    @property
    def is_gated(self) -> bool: ...
    @property
    def unschedulable_since(self) -> float | None: ...
    @property
    def nominated_node(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def constraints(self) -> Constraints: ...
    @property
    def gpu_requirements(self) -> GpuRequirements: ...


class Binding(Protocol):
    """A pod with a managed resource that was seen to get its node.

    ``sequence`` numbers the bindings of one ledger from 1; ``created`` is in seconds
    since 1970, 0 where it is not known.
    """

    @property
    def sequence(self) -> int: ...
    @property
    def uid(self) -> str: ...
    @property
    def scheduler_name(self) -> str: ...
    @property
    def request(self) -> Request: ...
    @property
    def created(self) -> float: ...


class Owner(Protocol):
    """The controller of a pod."""

    @property
    def uid(self) -> str: ...
    @property
    def api_version(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def name(self) -> str: ...


class RecentPod(NamedPod, Protocol):
    """A pod with a managed resource, as it was first seen.

    ``sequence`` numbers them in one ledger from 1.
    """

    @property
    def sequence(self) -> int: ...
    @property
    def generate_name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def owner(self) -> Owner | None: ...
    @property
    def owner_uid(self) -> str: ...
    @property
    def request(self) -> Request: ...
    @property
    def constraints(self) -> Constraints: ...


class ExcludingPod(PlacedPod, Protocol):
    """A bound pod, as far as it keeps others from its node."""

    @property
    def uid(self) -> str: ...
    @property
    def exclusions(self) -> Exclusions | None: ...


class BoundPod(PlacedPod, Protocol):
    """A bound pod: its node, and what it holds there."""

    @property
    def request(self) -> Request: ...
    @property
    def gpu_requirements(self) -> GpuRequirements: ...
    @property
    def devices(self) -> Devices | None: ...
    @property
    def job(self) -> str: ...
