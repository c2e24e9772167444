"""The pod that is explained: of the cache, or of a manifest as it would be admitted."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final, Literal, TypeAlias

from cluster.decode.faults import convert_with_faults
from cluster.decode.objects import (
    NodeSelectorTerm,
    Pod,
    PodConstraints,
    PodRecord,
    PodSpec,
)
from cluster.decode.records import constraints_of, list_not_modelled
from extender.explain.refusals import (
    list_limit_refusals,
    list_refusals,
    tell_refusals,
)
from extender.explain.templates import PodTemplate, templates_in
from extender.verbs.lookup import pod_request_of_record, read_pod_request
from extender.verbs.options import VerbOptions
from extender.wire.filter import WireError
from scoring.candidates import PodRequest
from scoring.exclusions import NO_EXCLUSIONS, HostPort, RepelledPods
from scoring.faults import Fault
from scoring.neighbours import Newcomer
from scoring.pod_request import LargestShare
from scoring.protocols import LimitDefaults, LimitMaxima
from scoring.quantity import shorten, show_amount
from scoring.resources import Request
from scoring.snapshot import Snapshot

Origin: TypeAlias = Literal["manifest", "pending", "bound"]

# A table has a row for each, and a pod has room for tens of thousands of them.
MAX_RESOURCES: Final = 256


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What keeps a pod from every node, whatever those are like.

    Attributes
    ----------
    reason_class : str
        A constant text, as those of nodes.
    text : str
        In one clause, to begin a sentence with.
    remedy : str
        What to do; empty where the text says it.
    is_final : bool
        Whether there will be no such pod, so that no node is looked at.
    """

    reason_class: str
    text: str
    remedy: str = ""
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class ReviewedPod:
    """What the webhook would make of a pod.

    Attributes
    ----------
    pod : dict
        As the API server would store it.
    warnings : tuple of str
        For its author.
    refusal : str
        Why it is refused; empty for a pod that is admitted.
    """

    pod: dict[str, Any]
    warnings: tuple[str, ...] = ()
    refusal: str = ""


# Has a template reviewed, holding nothing; raises `WireError` with its faults.
Admit: TypeAlias = Callable[[PodTemplate], ReviewedPod]


@dataclass(frozen=True, slots=True)
class AdmissionChange:
    """What the webhook changed, as far as kube-scheduler sees it.

    Attributes
    ----------
    change : str
        In one line; empty for nothing.
    injected : tuple of (str, int)
        Amounts that come from it, in base units.
    """

    change: str
    injected: Request = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Subject:
    """A pod with all that an explanation reads of it.

    Attributes
    ----------
    origin : str
        Whether it comes from a manifest, or is pending or bound in the cache.
    node_name : str
        Where it is bound; empty for a pod without a node.
    pod_request : PodRequest
        What the verbs judge it by.
    request : tuple of (str, int)
        Its whole effective request, with its one ``pods``.
    shares : tuple of LargestShare
        Whose ask decides, of the resources that more ask than one container.
    constraints : PodConstraints
        Without the node that it has already.
    not_modelled : tuple of str
        Its wishes that kube-scheduler follows and this explanation leaves out.
    notes : tuple of str
        For the reader, on how the pod was read.
    obstacles : tuple of Obstacle
        What keeps it from every node.
    replicas : int
        How many such pods its object asks for.
    is_created : bool
        Whether the API server has it already: it was admitted then.
    admission : AdmissionChange or None
        None for a pod that was not reviewed.
    priority : int
    may_preempt : bool
        Whether kube-scheduler may evict others for it.
    priority_class : str
        Of a manifest that names its class and not the number behind; else empty.
    labels : mapping
        Its own; empty for a pod that has a node in the cache.
    ports : tuple of HostPort
        Host ports that it takes.
    repels : tuple of RepelledPods
        Whom it wants away by required anti-affinity; those of its kind, too, perhaps.
    written_terms : tuple of NodeSelectorTerm or None
        Its required node affinity before the webhook added to it; None without one, and
        for a pod that is there already, of which nobody knows.
    spec : PodSpec or None
        As it would be admitted; None for a pod that is there already.
    """

    namespace: str
    name: str
    origin: Origin
    node_name: str
    pod_request: PodRequest
    request: Request
    constraints: PodConstraints
    not_modelled: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()
    scheduler_name: str = ""
    replicas: int = 1
    is_created: bool = False
    admission: AdmissionChange | None = None
    priority: int = 0
    may_preempt: bool = True
    priority_class: str = ""
    shares: tuple[LargestShare, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[HostPort, ...] = ()
    repels: tuple[RepelledPods, ...] = ()
    written_terms: tuple[NodeSelectorTerm, ...] | None = None
    spec: PodSpec | None = None

    @property
    def newcomer(self) -> Newcomer | None:
        """The pod as those that run see it; None for one whose labels are not kept."""
        if self.origin == "bound":
            return None
        uid = self.pod_request.uid
        return Newcomer(uid, self.namespace, self.labels, self.ports)

    @property
    def is_placed(self) -> bool:
        """Whether it names its node before kube-scheduler could look at it."""
        return bool(self.node_name) and not self.is_created

    @property
    def is_judged(self) -> bool:
        """Whether nodes are judged for it: not for a pod that nobody takes as it is.

        Calls about a pod that cannot be read are answered 400.
        """
        return self.pod_request.gpu_requirements.is_readable and not any(
            obstacle.is_final for obstacle in self.obstacles
        )


def find_subject(
    snapshot: Snapshot, namespace: str, name: str, options: VerbOptions
) -> Subject | None:
    """Return a pending or bound pod of the cache that asks a managed resource.

    Raises `WireError` for one that asks too many of them.
    """
    for pod in _records_of(snapshot, name):
        if pod.namespace == namespace:
            return subject_of_record(pod, options)
    return None


def namespaces_of(snapshot: Snapshot, name: str) -> list[str]:
    """Return the namespaces that have a pod of a name, as `find_subject` looks."""
    return sorted({pod.namespace for pod in _records_of(snapshot, name)})


def _records_of(snapshot: Snapshot, name: str) -> Iterator[PodRecord]:
    """Yield the pods of a name, of all namespaces."""
    for pod in chain(snapshot.pending, snapshot.bound_pods.values()):
        if isinstance(pod, PodRecord) and pod.name == name:
            yield pod


def subject_of_record(record: PodRecord, options: VerbOptions) -> Subject:
    """Return a pod of the cache; of its containers nothing is kept there.

    Raises `WireError` for one that asks too many resources.
    """
    if faults := list(_excess(record.request)):
        raise WireError(faults)
    notes = []
    if record.node_name:
        notes.append(
            f"The pod has a node already, {record.node_name}; its selectors,"
            " tolerations and labels are no longer kept, so the checks on them are"
            " left out."
        )
    return Subject(
        namespace=record.namespace,
        name=record.name,
        origin="bound" if record.node_name else "pending",
        node_name=record.node_name,
        pod_request=pod_request_of_record(record, options),
        request=record.request,
        constraints=record.constraints,
        not_modelled=record.not_modelled,
        notes=tuple(notes),
        obstacles=() if record.node_name else tuple(_obstacles(record, options)),
        scheduler_name=record.scheduler_name,
        is_created=True,
        priority=record.priority,
        may_preempt=record.may_preempt,
        shares=record.shares,
        labels=record.labels,
        ports=(record.exclusions or NO_EXCLUSIONS).ports,
        repels=(record.exclusions or NO_EXCLUSIONS).repels,
    )


GATED: Final = "schedulingGates"

GROUPED: Final = "schedulingGroup"

UNREADABLE: Final = "annotation"

OTHER_SCHEDULER: Final = "otherScheduler"

REFUSED: Final = "refused"

INVALID: Final = "invalid"

LIMIT_RANGE: Final = "limitRange"


def _obstacles(record: PodRecord, options: VerbOptions) -> Iterator[Obstacle]:
    """Yield what keeps a pod from every node, wherever the pod comes from."""
    if record.annotation_fault and record.is_managed:
        yield Obstacle(
            UNREADABLE,
            f"The pod will not be scheduled: {record.annotation_fault}",
            "mend the annotation, and create the pod again",
        )
    if record.is_gated:
        yield Obstacle(
            GATED,
            "Scheduling gates hold the pod: kube-scheduler does not look at it before"
            " they are gone",
            "have whoever set spec.schedulingGates take them away",
        )
    if record.group:
        of = f"{record.namespace or 'default'}/{record.group}"
        yield Obstacle(
            GROUPED,
            f"The pod waits for its group, {of}: kube-scheduler looks at it once the"
            " group is there, with as many pods as a gang wants",
            f"see that the group {of} is there, and enough of its pods",
        )
    names = options.scheduler_names
    if names and record.is_managed and record.scheduler_name not in names:
        ours = " or ".join(sorted(filter(None, names)))
        yield Obstacle(
            OTHER_SCHEDULER,
            f"The pod waits for another scheduler, {shorten(record.scheduler_name)}:"
            f" {ours}, which asks gpu-extender, leaves it alone",
            f"set spec.schedulerName to {ours}, or see why"
            f" {shorten(record.scheduler_name)} does not place it",
        )


def _excess(request: Request) -> Iterator[Fault]:
    """Yield a fault where a pod asks too many resources to be explained."""
    if len(request) > MAX_RESOURCES:
        said = f"wanted at most {MAX_RESOURCES} resources, got {len(request)}"
        yield Fault("spec.containers", said)


def read_subjects(
    tree: Any, options: VerbOptions, admit: Admit | None = None
) -> list[Subject]:
    """Return the pods of a manifest.

    Parameters
    ----------
    tree : Any
        A Pod, or an object with templates for pods, as a decoder leaves it. A name and
        a UID are not needed.
    admit : callable, optional
        Has a pod reviewed that is yet to be created.

    Raises
    ------
    WireError
        With every fault and its path.
    """
    return [read_template(template, options, admit) for template in templates_in(tree)]


def read_subject(tree: Any, options: VerbOptions) -> Subject:
    """Return the first pod of a manifest, as `read_subjects` does."""
    return read_template(templates_in(tree)[0], options)


def read_template(
    template: PodTemplate, options: VerbOptions, admit: Admit | None = None
) -> Subject:
    """Return the pod of a template, as it would be admitted; raise `WireError`."""
    # Reading prunes a tree of what is faulty.
    written = template.tree if admit is None else deepcopy(template.tree)
    pod, record, pod_request = _read_pod(written, template.path, options)
    subject = _subject_of_pod(pod, record, pod_request, template, options)
    if admit is None or subject.is_created:
        return subject
    review = admit(template)
    if review.refusal:
        refused = Obstacle(REFUSED, f"The webhook refuses the pod: {review.refusal}")
        admission = AdmissionChange("", (), review.warnings)
        return replace(
            subject, obstacles=(refused, *subject.obstacles), admission=admission
        )
    admitted = _subject_of_pod(
        *_read_pod(review.pod, template.path, options), template, options
    )
    changes = ", ".join(_changes(subject, admitted))
    change = f"The webhook changes it: {changes}" if changes else ""
    injected = tuple(_injected(subject, admitted, options))
    return replace(
        admitted,
        name=subject.name,
        namespace=subject.namespace,
        admission=AdmissionChange(change, injected, review.warnings),
        written_terms=subject.written_terms,
    )


def _read_pod(
    tree: dict[str, Any], prefix: str, options: VerbOptions
) -> tuple[Pod, PodRecord, PodRequest]:
    """Return a pod in all forms that are read of it; `tree` is pruned in place."""
    pod, faults = convert_with_faults(tree, Pod)
    if pod is not None and not pod.spec.containers and not faults:
        faults.append(Fault("spec.containers", "wanted containers, got none"))
    if pod is None:
        raise _at(prefix, faults)
    record, found = options.builder.pod_record(pod)
    found += _excess(record.request)
    if faults or found:
        raise _at(prefix, faults + found)
    if record.annotation_fault:  # judged as one of the cache, of which no more is kept
        return pod, record, pod_request_of_record(record, options)
    try:
        return pod, record, read_pod_request(pod, options)
    except WireError as error:
        found = [
            Fault(fault.path.removeprefix("Pod."), fault.message)
            for fault in error.faults
        ]
        raise _at(prefix, found) from error


def _at(prefix: str, faults: Iterable[Fault]) -> WireError:
    """Return the error of all faults, each told once, behind a path."""
    told = dict.fromkeys(faults)
    return WireError([Fault(prefix + fault.path, fault.message) for fault in told])


def _subject_of_pod(
    pod: Pod,
    record: PodRecord,
    pod_request: PodRequest,
    template: PodTemplate,
    options: VerbOptions,
) -> Subject:
    notes = [template.note] if template.note else []
    is_created = bool(pod.metadata.uid or pod.metadata.creation_timestamp)
    # kube-scheduler does not look at a pod that names its node.
    is_placed = bool(record.node_name) and not is_created
    obstacles = [] if is_placed else [*_obstacles(record, options)]
    if not is_created:
        obstacles += _refused(pod.spec, template.path)
    if pod.spec.node_name and is_created:
        notes.append(
            f"The pod has a node already, {pod.spec.node_name}; it is explained as if"
            " it had none."
        )
    return Subject(
        namespace=record.namespace or "default",
        name=record.name or record.generate_name,
        origin="manifest",
        node_name=pod.spec.node_name,
        pod_request=pod_request,
        request=record.request,
        # `kubectl get pod -o yaml` prints the node of a bound pod, which would then
        # be the only one that it may go to.
        constraints=_without_node(constraints_of(pod)),
        not_modelled=(*list_not_modelled(pod.spec), *template.not_modelled),
        notes=tuple(notes),
        obstacles=tuple(obstacles),
        scheduler_name=record.scheduler_name,
        replicas=template.replicas,
        priority=record.priority,
        may_preempt=record.may_preempt,
        priority_class=_unknown_class(pod.spec),
        shares=record.shares,
        labels=pod.metadata.labels or {},
        ports=(record.exclusions or NO_EXCLUSIONS).ports,
        repels=(record.exclusions or NO_EXCLUSIONS).repels,
        is_created=is_created,
        written_terms=None if is_created else record.constraints.affinity_terms,
        spec=None if is_created else pod.spec,
    )


def _unknown_class(spec: PodSpec) -> str:
    """Return the priority class that the API server has yet to look up."""
    name = spec.priority_class_name
    return name if isinstance(name, str) and spec.priority is None else ""


def _refused(spec: PodSpec, prefix: str) -> Iterator[Obstacle]:
    """Yield that the API server refuses what a pod asks, in its words."""
    if refusals := list_refusals(spec, prefix):
        told, remedy = tell_refusals(refusals)
        text = f"The API server refuses the pod: {told}"
        yield Obstacle(INVALID, text, remedy, is_final=True)


def with_limit_ranges(subject: Subject, snapshot: Snapshot) -> Subject:
    """Return a pod with what the LimitRanges of its namespace refuse, if they do."""
    maxima = snapshot.limit_maxima.get(subject.namespace, LimitMaxima())
    defaults = snapshot.limit_defaults.get(subject.namespace, LimitDefaults())
    if subject.spec is None:
        return subject
    refusals = list_limit_refusals(subject.spec, maxima, defaults)
    if not refusals:
        return subject
    told, remedy = tell_refusals(refusals)
    text = f"A LimitRange of namespace {subject.namespace} refuses the pod: {told}"
    refused = Obstacle(LIMIT_RANGE, text, remedy)
    return replace(subject, obstacles=(*subject.obstacles, refused))


def _without_node(constraints: PodConstraints) -> PodConstraints:
    return PodConstraints(
        node_selector=constraints.node_selector,
        affinity_terms=constraints.affinity_terms,
        tolerations=constraints.tolerations,
    )


def _changes(written: Subject, admitted: Subject) -> Iterator[str]:
    """Yield what kube-scheduler sees otherwise than it was written."""
    before, after = dict(written.request), dict(admitted.request)
    for name in sorted({**before, **after}):
        old, new = before.get(name, 0), after.get(name, 0)
        if old != new:
            was = f" instead of {show_amount(name, old)}" if old else ""
            yield f"{show_amount(name, new)} {name}{was}" if new else f"no {name}"
    if written.constraints.affinity_terms != admitted.constraints.affinity_terms:
        yield "node affinity for its GPUs"
    if written.constraints.node_selector != admitted.constraints.node_selector:
        yield "another node selector"
    if written.constraints.tolerations != admitted.constraints.tolerations:
        yield "tolerations"
    if written.scheduler_name != admitted.scheduler_name:
        yield f"schedulerName {admitted.scheduler_name}"


def _injected(
    written: Subject, admitted: Subject, options: VerbOptions
) -> Iterator[tuple[str, int]]:
    """Yield the amounts beside GPUs that the webhook chose."""
    before = dict(written.request)
    for name, amount in admitted.request:
        if before.get(name) != amount and not options.builder.is_managed(name):
            yield name, amount
