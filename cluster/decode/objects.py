"""Structs of nodes and pods as far as they are read, and the records kept of them."""

from datetime import datetime
from typing import Any, Final

import msgspec

from scoring.exclusions import Exclusions
from scoring.gpu.node_gpus import NO_GPUS, NodeGpus
from scoring.gpu.requirements import NO_GPU_REQUIREMENTS, GpuRequirements
from scoring.packing.mig import MigGpus
from scoring.pod_request import LargestShare
from scoring.quantity import shorten
from scoring.resources import Request
from scoring.topology.devices import Devices
from scoring.topology.layouts import NO_LINKS, NodeLinks

# Of what nobody has checked: the longest name of an object.
MAX_NAME: Final = 253


class _Wire(msgspec.Struct, frozen=True, rename="camel"):
    """Keys as Kubernetes writes them; everything undeclared is skipped unread."""


class OwnerReference(_Wire, frozen=True):
    """One entry of ``metadata.ownerReferences``."""

    uid: str = ""
    controller: bool | None = None
    api_version: str = ""
    kind: str = ""
    name: str = ""


class ObjectMeta(_Wire, frozen=True):
    """``metadata`` of a node or pod."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None


class NodeTaint(_Wire, frozen=True):
    """One entry of a node's ``spec.taints``."""

    key: str
    effect: str = ""
    value: str | None = None


class NodeSpec(_Wire, frozen=True):
    """``spec`` of a node."""

    unschedulable: bool | None = None
    taints: tuple[NodeTaint, ...] | None = None


class Condition(_Wire, frozen=True):
    """One entry of ``status.conditions``."""

    type: str
    status: str
    reason: str | None = None
    last_transition_time: str | None = None


class NodeStatus(_Wire, frozen=True):
    """``status`` of a node. Quantities stay as decoded until they are parsed."""

    capacity: dict[str, Any] | None = None
    allocatable: dict[str, Any] | None = None
    conditions: tuple[Condition, ...] | None = None


class Node(_Wire, frozen=True):
    """A node."""

    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ResourceRequirements(_Wire, frozen=True):
    """``resources`` of a container or a pod."""

    requests: dict[str, Any] | None = None
    limits: dict[str, Any] | None = None


class Container(_Wire, frozen=True):
    """A container or init container."""

    name: str = ""
    resources: ResourceRequirements | None = None
    restart_policy: str | None = None
    # Told, and judged by nobody here, like all that is `Any` below.
    ports: Any = None


class LabelRequirement(_Wire, frozen=True):
    """One requirement of a node selector term."""

    key: str
    operator: str
    values: tuple[str, ...] | None = None


class NodeSelectorTerm(_Wire, frozen=True):
    """Requirements that must all hold."""

    expressions: tuple[LabelRequirement, ...] | None = msgspec.field(
        default=None, name="matchExpressions"
    )
    fields: tuple[LabelRequirement, ...] | None = msgspec.field(
        default=None, name="matchFields"
    )


class NodeSelector(_Wire, frozen=True):
    """Terms of which one must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] | None = None


class NodeAffinity(_Wire, frozen=True):
    """``affinity.nodeAffinity``; preferences are kube-scheduler's business."""

    required: NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(_Wire, frozen=True):
    """``spec.affinity``."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: Any = None
    pod_anti_affinity: Any = None


class PodToleration(_Wire, frozen=True):
    """One entry of ``spec.tolerations``."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class PodSpec(_Wire, frozen=True):
    """``spec`` of a pod."""

    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    overhead: dict[str, Any] | None = None
    resources: ResourceRequirements | None = None
    node_name: str = ""
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[PodToleration, ...] | None = None
    scheduling_gates: tuple[Any, ...] | None = None
    topology_spread_constraints: Any = None
    host_network: Any = None
    volumes: Any = None
    resource_claims: Any = None
    scheduling_group: Any = None
    workload_ref: Any = None  # of Kubernetes 1.35
    # No verdict depends on these, so that nothing is refused for them.
    scheduler_name: Any = ""
    priority: Any = None
    priority_class_name: Any = None
    preemption_policy: Any = None


class StateDetail(_Wire, frozen=True):
    """Why a container waits, or how it ended."""

    reason: str | None = None
    message: str | None = None
    finished_at: str | None = None


class ContainerState(_Wire, frozen=True):
    """A state that a container is or was in; a running one has neither."""

    waiting: StateDetail | None = None
    terminated: StateDetail | None = None


class ContainerStatus(_Wire, frozen=True):
    """One entry of ``status.containerStatuses``."""

    name: str = ""
    state: ContainerState | None = None
    last_state: ContainerState | None = None
    resources: ResourceRequirements | None = None
    allocated_resources: dict[str, Any] | None = None


class PodStatus(_Wire, frozen=True):
    """``status`` of a pod."""

    phase: str = ""
    reason: str | None = None
    start_time: str | None = None
    nominated_node_name: str = ""
    conditions: tuple[Condition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    resources: ResourceRequirements | None = None
    allocated_resources: dict[str, Any] | None = None


class Pod(_Wire, frozen=True):
    """A pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def key(self) -> str:
        """The UID; namespace and name where there is none, as in a dump.

        Empty for a pod that has no name either.
        """
        meta = self.metadata
        if meta.uid or not meta.name:
            return meta.uid
        return f"{meta.namespace or 'default'}/{meta.name}"

    @property
    def priority(self) -> int:
        """The priority that the API server gave it; 0 where there is none."""
        value = self.spec.priority
        return value if isinstance(value, int) else 0

    @property
    def may_preempt(self) -> bool:
        """Whether kube-scheduler may evict others for it."""
        return bool(self.spec.preemption_policy != "Never")

    @property
    def group(self) -> str:
        """The group that it is scheduled with; empty for none."""
        for reference, keys in (
            (self.spec.scheduling_group, ("podGroupName",)),
            (self.spec.workload_ref, ("name", "podGroup")),
        ):
            if isinstance(reference, dict):
                names = [str(reference.get(key, ""))[:MAX_NAME] for key in keys]
                return "/".join(filter(None, names))
        return ""

    @property
    def owner(self) -> OwnerReference | None:
        """The pod's controller; None for a pod without one."""
        owners = self.metadata.owner_references or ()
        return next((owner for owner in owners if owner.controller), None)

    @property
    def owner_uid(self) -> str:
        """The UID of the pod's controller; empty for a pod without one."""
        return "" if self.owner is None else self.owner.uid


class DeviceClassSpec(_Wire, frozen=True):
    """``spec`` of a DeviceClass."""

    extended_resource_name: str | None = None


class DeviceClass(_Wire, frozen=True):
    """A DeviceClass; it may stand behind an extended resource."""

    metadata: ObjectMeta
    spec: DeviceClassSpec = DeviceClassSpec()


class NodeRecord(msgspec.Struct, frozen=True):
    """Record of a node.

    Attributes
    ----------
    allocatable, capacity : tuple of (str, int)
        Positive amounts, in base units.
    is_faulted : bool
        Whether a fault signal says that the GPUs are not ready.
    gpus : NodeGpus
        What its labels say of its GPUs.
    links : NodeLinks
        What its annotation, or their model, says of their links.
    uid : str
        Another one under the same name is another node.
    mig : MigGpus or None
        Its GPUs without instances, where these are made on demand.
    """

    name: str
    labels: dict[str, str]
    taints: tuple[NodeTaint, ...]
    is_ready: bool
    is_cordoned: bool
    is_faulted: bool
    allocatable: Request
    capacity: Request
    gpus: NodeGpus = NO_GPUS
    uid: str = ""
    links: NodeLinks = NO_LINKS
    mig: MigGpus | None = None

    def mentioned(self) -> set[str]:
        """Return the names of the resources that the node has or had."""
        return {name for name, _ in (*self.allocatable, *self.capacity)}


class PodConstraints(msgspec.Struct, frozen=True):
    """Constraints of a pod on its node, from its own spec."""

    node_name: str = ""
    node_selector: dict[str, str] = {}
    affinity_terms: tuple[NodeSelectorTerm, ...] | None = None
    tolerations: tuple[PodToleration, ...] = ()


NO_CONSTRAINTS: Final = PodConstraints()


class PodRecord(msgspec.Struct, frozen=True, gc=False):
    """Record of a pod: small, since there may be 100,000 of them.

    Attributes
    ----------
    request : tuple of (str, int)
        Effective request, in base units; equal ones are shared.
    is_managed : bool
        Whether it asks for a resource that we manage.
    created, unschedulable_since : float
        Seconds since the epoch.
    constraints : PodConstraints
        Kept while the pod has no node, empty afterwards.
    gpu_requirements : GpuRequirements
        What it wants of the GPUs themselves.
    rule_key : str
        What of that the table of models decides; see `KeptRequirements`.
    nominated_node : str
        Where kube-scheduler makes room for it; empty once it has a node.
    scheduler_name : str
        Which scheduler is to place it.
    priority : int
        That of its priority class; 0 without one.
    may_preempt : bool
        Whether kube-scheduler may evict others for it.
    not_modelled : tuple of str
        Its wishes that kube-scheduler follows and nobody here; empty once it has a
        node.
    annotation_fault : str
        Why its annotations about GPUs cannot be read; empty if they can.
    owner : OwnerReference or None
        Its controller, of a managed pod; None once it has a node.
    devices : Devices or None
        Which GPUs it holds, once it has a node; None where nothing says so.
    job : str
        Equal for managed pods of one job; empty for a pod of none.
    exclusions : Exclusions or None
        What it keeps others from where it runs, and the host ports that it takes; equal
        ones are shared. None for nothing.
    labels : mapping
        Of a managed pod, while it waits; empty for others.
    group : str
        The one that it is scheduled with (gang scheduling); empty for none, and once it
        has a node.
    shares : tuple of LargestShare
        Of resources that more than one container asks, or whose asks are not all of
        it; equal ones are shared. Empty once it has a node.
    selected_models : tuple of str
        GPU models of which its node selector or its required node affinity names one,
        of a managed pod without a list of types; empty for any.
    """

    uid: str
    namespace: str
    name: str
    generate_name: str
    owner_uid: str
    node_name: str
    is_terminal: bool
    request: Request
    is_managed: bool
    created: float
    is_gated: bool
    unschedulable_since: float | None
    constraints: PodConstraints
    failed_at: float | None = None
    gpu_requirements: GpuRequirements = NO_GPU_REQUIREMENTS
    rule_key: str = ""
    nominated_node: str = ""
    scheduler_name: str = ""
    priority: int = 0
    not_modelled: tuple[str, ...] = ()
    annotation_fault: str = ""
    owner: OwnerReference | None = None
    devices: Devices | None = None
    job: str = ""
    shares: tuple[LargestShare, ...] = ()
    group: str = ""
    exclusions: Exclusions | None = None
    labels: dict[str, str] = {}
    may_preempt: bool = True
    selected_models: tuple[str, ...] = ()


def parse_time(text: str) -> float:
    """Return an RFC 3339 time in seconds since the epoch; raise `ValueError`."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:  # it would be read in the time zone of this machine
        raise ValueError(f"time: wanted an offset from UTC, got {shorten(text)}")
    return moment.timestamp()
