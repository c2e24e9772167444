"""Nodes and pods to records, with every fault and its path.

A fault never hides the rest of an object: what is wrong is left out and named, what
is right is decoded. The caller decides what a fault means.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from sys import intern
from types import MappingProxyType
from typing import Any, Final

from cluster.decode.exclusions import read_exclusions
from cluster.decode.gpu_requirements import GpuRequirementsReader
from cluster.decode.objects import (
    NO_CONSTRAINTS,
    Affinity,
    Node,
    NodeRecord,
    NodeSelectorTerm,
    Pod,
    PodConstraints,
    PodRecord,
    PodSpec,
    PodStatus,
    parse_time,
)
from cluster.decode.start_errors import failed_at
from scoring.bounded import BoundedDict
from scoring.faults import Fault
from scoring.gpu.node_gpus import GPU_COUNT_LABEL, GpuLabelReader, NodeGpus
from scoring.gpu.requirements import (
    UNREADABLE,
    GpuAnnotations,
    GpuRequirements,
    GpuRequirementsError,
)
from scoring.packing.mig import MigGpus, is_on_demand, no_instances
from scoring.pod_request import (
    LargestShare,
    effective_request,
    is_resizing,
    largest_shares,
    read_amounts,
)
from scoring.quantity import QuantityError, shorten
from scoring.resources import (
    MIG_PREFIX,
    NVIDIA_GPU,
    PODS,
    SHARED_GPU,
    STANDARD_RESOURCES,
    Remembered,
    Request,
    ResourceScope,
    any_resource,
)
from scoring.topology.devices import (
    UNREADABLE_DEVICES,
    Devices,
    DevicesError,
    read_devices,
)
from scoring.topology.layouts import NO_LINKS, NodeLinks, links_of_node
from scoring.topology.links import LinkData, LinksError, read_links


@dataclass(frozen=True, slots=True)
class FaultSignals:
    """Signals on a node that its GPUs are not ready.

    Attributes
    ----------
    label_values : mapping
        label key -> values with which the GPUs can be used; any other value, the
        label being there, is a fault
    product_labels : tuple of str
        Labels that carry the product name; ``-MIG-INVALID`` at its end is a fault.
    conditions : mapping
        condition type -> status that is a fault
    """

    label_values: Mapping[str, frozenset[str]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    product_labels: tuple[str, ...] = ()
    conditions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def found_on(self, labels: Mapping[str, str], statuses: Mapping[str, str]) -> bool:
        """Whether any signal is raised."""
        return (
            any(
                labels[key] not in usable
                for key, usable in self.label_values.items()
                if key in labels
            )
            or any(
                labels.get(key, "").endswith("-MIG-INVALID")
                for key in self.product_labels
            )
            or any(
                statuses.get(kind) == status for kind, status in self.conditions.items()
            )
        )


TERMINAL_PHASES: Final = frozenset({"Succeeded", "Failed"})

# Texts of some hundred characters; a cluster has far fewer templates of pods.
MAX_KNOWN_REQUESTS: Final = 8192

MAX_KEY_LENGTH: Final = 4096  # or few pods with much in them would take it all

_COUNT: Final = re.compile(r"\d{1,3}", re.ASCII)


@dataclass(frozen=True, slots=True)
class LinkAnnotations:
    """Annotations that tell which GPUs are joined, and who holds them.

    Attributes
    ----------
    links : str
        Of nodes: the link matrix.
    allocated : str
        Of pods: the GPUs that they hold.
    """

    links: str = "gpu-extender.io/links"
    allocated: str = "gpu-extender.io/allocated"


def _read_link_data(text: str) -> LinkData | str:
    """Return what links a text tells of; of one that cannot be read, the error."""
    try:
        return read_links(text)
    except LinksError as error:
        return str(error)


def _read_devices(text: str) -> Devices:
    try:
        return read_devices(text)
    except DevicesError:
        return UNREADABLE_DEVICES


# PERF: nodes come in few kinds, and a heartbeat changes none of their links; a pod's
# GPUs stay the same. Longer texts are read each time: annotations may have 256 KiB.
_LINK_DATA: Final = lru_cache(maxsize=512)(_read_link_data)

_DEVICES: Final = lru_cache(maxsize=4096)(_read_devices)

_MAX_KEPT_LINKS: Final = 8192

_MAX_KEPT_DEVICES: Final = 1024


def reread_links(
    links: NodeLinks, gpus: NodeGpus, labels: Mapping[str, str], capacity: Request
) -> NodeLinks:
    """Return the links of a node whose GPUs are told by other rules now."""
    if links.fault and links.data is None:
        return links
    count = dict(capacity).get(NVIDIA_GPU, 0)
    return links_of_node(gpus, count, links.data, machine=_stated_count(labels))


def _stated_count(labels: Mapping[str, str]) -> int:
    """Return how many GPUs a node has by its label; 0 where it says nothing."""
    stated = labels.get(GPU_COUNT_LABEL, "")
    return int(stated) if _COUNT.fullmatch(stated) else 0


def mig_on_demand(
    gpus: NodeGpus,
    labels: Mapping[str, str],
    allocatable: Request,
    capacity: Request,
) -> MigGpus | None:
    """Return the GPUs of a node that makes MIG instances on demand; None for others."""
    offered = {
        name.removeprefix(MIG_PREFIX): amount
        for name, amount in allocatable
        if name.startswith(MIG_PREFIX)
    }
    if not offered or gpus.is_shared or gpus.profile or gpus.slice_replicas:
        return None
    # GPUs that are not cut stay so when they are sick.
    whole = max(dict(pairs).get(NVIDIA_GPU, 0) for pairs in (allocatable, capacity))
    count = _stated_count(labels) - whole
    is_so = is_on_demand(gpus.mig, count, offered)
    return no_instances(gpus.mig, count) if is_so else None


@lru_cache(maxsize=65536)
def shared(request: Request) -> Request:
    """Return the one kept copy of an equal request."""
    return request


# PERF: an empty mapping of its own for each of 100,000 pods takes 6 MB.
_NO_LABELS: Final[dict[str, str]] = {}


@lru_cache(maxsize=4096)
def _kept(shares: tuple[LargestShare, ...]) -> tuple[LargestShare, ...]:
    """Return the one kept copy of equal shares: pods of a template have the same."""
    return shares


@dataclass(frozen=True, slots=True)
class RecordBuilder:
    """Turns decoded objects into records.

    Attributes
    ----------
    requirements_reader : GpuRequirementsReader
        Reads those annotations.
    job_label : str
        Label that pods of one job share; empty where they share their controller.
    is_managed : callable
        That of `scope`, remembered.
    """

    scope: ResourceScope
    annotations: GpuAnnotations
    signals: FaultSignals = field(default_factory=FaultSignals)
    gpus: GpuLabelReader = field(default_factory=GpuLabelReader)
    links: LinkAnnotations = field(default_factory=LinkAnnotations)
    job_label: str = ""
    requirements_reader: GpuRequirementsReader = field(
        init=False, repr=False, compare=False
    )
    # what the request depends on, as text -> the request and whether it is managed
    _requests: BoundedDict[str, tuple[Request, bool]] = field(
        default_factory=lambda: BoundedDict(MAX_KNOWN_REQUESTS),
        init=False,
        repr=False,
        compare=False,
    )
    is_managed: Callable[[str], bool] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        reader = GpuRequirementsReader(self.annotations, self.gpus)
        object.__setattr__(self, "requirements_reader", reader)
        remembered = Remembered(self.scope.is_managed)
        object.__setattr__(self, "is_managed", remembered.__getitem__)

    def node_record(self, node: Node) -> tuple[NodeRecord, list[Fault]]:
        """Return the record of `node` and the faults of its fields."""
        faults: list[Fault] = []
        collect = _collector(faults)
        labels = node.metadata.labels or {}
        statuses = {item.type: item.status for item in node.status.conditions or ()}
        status = node.status
        allocatable, capacity = (
            _positive(read_amounts(amounts or {}, path, any_resource, collect))
            for path, amounts in (
                ("status.allocatable", status.allocatable),
                ("status.capacity", status.capacity),
            )
        )
        gpus = self.gpus.read(labels, capacity)
        return NodeRecord(
            name=node.metadata.name,
            labels=labels,
            taints=node.spec.taints or (),
            is_ready=statuses.get("Ready") == "True",
            is_cordoned=bool(node.spec.unschedulable),
            is_faulted=self.signals.found_on(labels, statuses),
            gpus=gpus,
            allocatable=allocatable,
            capacity=capacity,
            uid=node.metadata.uid,
            links=self._links_of(node, gpus, capacity),
            mig=mig_on_demand(gpus, labels, allocatable, capacity),
        ), faults

    def _links_of(self, node: Node, gpus: NodeGpus, capacity: Request) -> NodeLinks:
        """Return the links of a node's GPUs; a fault in its annotation is kept there.

        It is no fault of the node: all else of it counts.
        """
        count = dict(capacity).get(NVIDIA_GPU, 0)
        # Of GPUs that are shared under a name of their own, UUIDs may be told.
        if not count and not dict(capacity).get(SHARED_GPU):
            return NO_LINKS
        text = (node.metadata.annotations or {}).get(self.links.links)
        if text is None:
            machine = _stated_count(node.metadata.labels or {})
            return links_of_node(gpus, count, None, machine=machine)
        data = (_LINK_DATA if len(text) <= _MAX_KEPT_LINKS else _read_link_data)(text)
        if isinstance(data, str):
            return links_of_node(gpus, count, None, data)
        return links_of_node(gpus, count, data)

    def _devices_of(self, pod: Pod) -> Devices | None:
        """Return the GPUs that a bound pod holds; None where nothing says so."""
        text = (pod.metadata.annotations or {}).get(self.links.allocated)
        if text is None:
            return None
        return (_DEVICES if len(text) <= _MAX_KEPT_DEVICES else _read_devices)(text)

    def pod_record(self, pod: Pod) -> tuple[PodRecord, list[Fault]]:
        """Return the record of `pod` and the faults of its fields."""
        faults: list[Fault] = []
        meta, spec = pod.metadata, pod.spec
        request, is_managed = self.held_by(pod, faults)
        kept = self.requirements_reader.read_kept(
            meta.annotations if is_managed else None
        )
        readable = kept.gpu_requirements.is_readable
        has_models = is_managed and not kept.gpu_requirements.types
        is_read = has_models or not spec.node_name
        wanted = constraints_of(pod) if is_read else NO_CONSTRAINTS
        return PodRecord(
            uid=pod.key,
            namespace=intern(meta.namespace),
            name=meta.name,
            generate_name=intern(meta.generate_name),
            owner_uid=intern(pod.owner_uid),
            node_name=intern(spec.node_name),
            is_terminal=pod.status.phase in TERMINAL_PHASES,
            request=request,
            is_managed=is_managed,
            created=_time(meta.creation_timestamp, "metadata.creationTimestamp", faults)
            or 0.0,
            is_gated=bool(spec.scheduling_gates),
            unschedulable_since=_unschedulable_since(pod, faults),
            constraints=NO_CONSTRAINTS if spec.node_name else wanted,
            failed_at=(
                failed_at(pod, self.is_managed)
                if is_managed and spec.node_name
                else None
            ),
            gpu_requirements=kept.gpu_requirements,
            rule_key=kept.rule_key,
            nominated_node="" if spec.node_name else pod.status.nominated_node_name,
            scheduler_name=(
                intern(spec.scheduler_name)
                if isinstance(spec.scheduler_name, str)
                else ""
            ),
            priority=pod.priority,
            not_modelled=() if spec.node_name else tuple(list_not_modelled(spec)),
            annotation_fault="" if readable else self._annotation_fault(pod),
            owner=pod.owner if is_managed and not spec.node_name else None,
            devices=self._devices_of(pod) if is_managed and spec.node_name else None,
            job=intern(self.job_of(pod)) if is_managed else "",
            shares=() if spec.node_name else _kept(largest_shares(spec)),
            exclusions=read_exclusions(pod),
            labels=(
                meta.labels or _NO_LABELS
                if is_managed and not spec.node_name
                else _NO_LABELS
            ),
            may_preempt=pod.may_preempt,
            group="" if spec.node_name else intern(pod.group),
            selected_models=self.selected_models(wanted) if has_models else (),
        ), faults

    def selected_models(self, constraints: PodConstraints) -> tuple[str, ...]:
        """Return the GPU models of which labels of a node must name one.

        Empty where a node of any will do, as by one term that names none.
        """
        if named := self._model_of(constraints.node_selector):
            return (named,)
        found: dict[str, None] = {}
        for term in constraints.affinity_terms or ():
            if not (term.expressions or term.fields):
                continue  # an empty term matches no node
            models = self._models_of(term)
            if not models:
                return ()
            found.update(dict.fromkeys(models))
        return tuple(found)

    def _models_of(self, term: NodeSelectorTerm) -> tuple[str, ...]:
        """Return the models that the first requirement of a term on models names."""
        for one in () if term.fields else term.expressions or ():
            if one.operator == "In" and self.gpus.reads(one.key):
                models = [
                    self._model_of({one.key: value}) for value in one.values or ()
                ]
                if models and all(models):
                    return tuple(models)
        return ()

    def _model_of(self, labels: Mapping[str, str]) -> str:
        """Return the model that labels name; empty for none."""
        return intern(self.gpus.read(labels, ()).model) if labels else ""

    def job_of(self, pod: Pod) -> str:
        """Return what names the job that a pod is of; empty for none."""
        if not self.job_label:
            return pod.owner_uid
        value = (pod.metadata.labels or {}).get(self.job_label)
        return f"{pod.metadata.namespace or 'default'}/{value}" if value else ""

    def _annotation_fault(self, pod: Pod) -> str:
        """Return which annotation about GPUs cannot be read, and why."""
        try:
            self.requirements_reader.read(pod.metadata.annotations)
        except GpuRequirementsError as error:
            return "; ".join(f"annotation {fault}" for fault in error.faults)
        return ""

    def held_by(self, pod: Pod, faults: list[Fault]) -> tuple[Request, bool]:
        """Return what the pod takes from its node, and whether any of it is managed."""
        spec = pod.spec
        # PERF: pods of one template ask for the same; `bench.cluster.cache` shows the
        # sync. A text tells 1, "1" and true apart, which are equal as keys.
        parts = (spec.containers, spec.init_containers, spec.overhead, spec.resources)
        resized = _resized(pod)
        key = repr(parts)
        if resized is None and key in self._requests:
            return self._requests[key]
        sound = len(faults)
        request = effective_request(spec, any_resource, _collector(faults), resized)
        known = (
            shared(tuple(sorted((*request, (PODS, 1))))),
            any(self.is_managed(name) for name, _ in request),
        )
        if resized is None and len(faults) == sound and len(key) <= MAX_KEY_LENGTH:
            self._requests.keep(key, known)
        return known

    def judged_request_of(self, pod: Pod, faults: list[Fault]) -> Request:
        """Return what of the request the verbs, or kube-scheduler, always judge."""
        return effective_request(pod.spec, self._is_judged, _collector(faults))

    def _is_judged(self, resource: str) -> bool:
        return resource in STANDARD_RESOURCES or self.is_managed(resource)

    def gpu_requirements_of(self, pod: Pod, faults: list[Fault]) -> GpuRequirements:
        """Return what the pod wants of the GPUs; add to `faults`."""
        try:
            return self.requirements_reader.read(pod.metadata.annotations)
        except GpuRequirementsError as error:
            faults.extend(
                Fault(f"metadata.annotations[{fault.path!r}]", fault.message)
                for fault in error.faults
            )
            return UNREADABLE


def _resized(pod: Pod) -> PodStatus | None:
    """Return the status of a bound pod whose resize it tells of; None for others."""
    if pod.spec.node_name and is_resizing(pod.spec, pod.status):
        return pod.status
    return None


CLAIMS: Final = "resource claims"


def list_not_modelled(spec: PodSpec) -> Iterator[str]:
    """Yield the wishes of a spec that kube-scheduler follows and we do not model.

    What only weighs with it, and refuses no node, begins with ``preferred``.
    """
    if spread := _mappings(spec.topology_spread_constraints):
        hard = [c for c in spread if c.get("whenUnsatisfiable") != "ScheduleAnyway"]
        keys = _named(c.get("topologyKey") for c in hard or spread)
        yield f"{'' if hard else 'preferred '}topology spread{keys}"
    affinity = spec.affinity or Affinity()
    terms = [affinity.pod_affinity, affinity.pod_anti_affinity]
    if kinds := _mappings(terms):
        is_hard = any(kind.get(_REQUIRED) for kind in kinds)
        if is_hard or any(kinds):
            yield f"{'' if is_hard else 'preferred '}pod affinity"
    claims = [
        volume.get("persistentVolumeClaim") or volume.get("ephemeral")
        for volume in _mappings(spec.volumes)
    ]
    if any(claims):
        names = (claim.get("claimName") for claim in _mappings(claims))
        yield f"volumes{_named(names)}"
    if claimed := spec.resource_claims:
        fields = ("resourceClaimName", "resourceClaimTemplateName", "name")
        names = (next(filter(None, map(c.get, fields)), "") for c in _mappings(claimed))
        yield f"{CLAIMS}{_named(names)}"


_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"

# Of names in one text that is kept of a pod.
_MAX_NAMED: Final = 3

_MAX_NAME: Final = 63


def _mappings(items: object) -> list[Mapping[str, Any]]:
    """Return the objects of a list that nobody has checked."""
    return [i for i in items if isinstance(i, dict)] if isinstance(items, list) else []


def _named(names: Iterable[object]) -> str:
    """Return some names in brackets; nothing where there are none."""
    texts = [name[:_MAX_NAME] for name in names if isinstance(name, str) and name]
    more = ["..."] if len(texts) > _MAX_NAMED else []
    return f" ({', '.join([*texts[:_MAX_NAMED], *more])})" if texts else ""


def constraints_of(pod: Pod) -> PodConstraints:
    """Return the constraints of the pod on its node, from its own spec."""
    spec = pod.spec
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required if affinity else None
    return PodConstraints(
        node_name=spec.node_name,
        node_selector=spec.node_selector or {},
        affinity_terms=(
            None if required is None else required.node_selector_terms or ()
        ),
        tolerations=spec.tolerations or (),
    )


def _unschedulable_since(pod: Pod, faults: list[Fault]) -> float | None:
    """Return since when kube-scheduler says that the pod fits nowhere."""
    for index, item in enumerate(pod.status.conditions or ()):
        if item.type == "PodScheduled" and (item.status, item.reason) == (
            "False",
            "Unschedulable",
        ):
            path = f"status.conditions[{index}].lastTransitionTime"
            return _time(item.last_transition_time, path, faults)
    return None


def _time(text: str | None, path: str, faults: list[Fault]) -> float | None:
    """Return a time in seconds since the epoch, None where there is none."""
    if text is None:
        return None
    try:
        return parse_time(text)
    except ValueError:
        faults.append(Fault(path, f"wanted an RFC 3339 time, got {shorten(text)}"))
        return None


def _collector(faults: list[Fault]) -> Callable[[str, QuantityError], None]:
    """Return a receiver of quantity errors that appends to `faults`."""

    def collect(path: str, error: QuantityError) -> None:
        faults.append(Fault(path, str(error)))

    return collect


def _positive(amounts: Mapping[str, int]) -> Request:
    """Return the amounts above 0, sorted by name."""
    return shared(
        tuple(sorted((name, amount) for name, amount in amounts.items() if amount))
    )
