"""CPU, memory and other resources per GPU: pod in, pod out.

The arithmetic is exact. For a standard resource the pod has a budget, coefficient times
all its GPUs; what other containers that run beside ask is taken off, the rest is shared
among the GPU containers by GPU count. Any other resource is coefficient times the
container's own GPUs.
"""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from cluster.decode.objects import Pod
from injector.admitted_pod import AdmittedPod, FallenResource, PodIdentity
from injector.resources.budget import Amount, GpuWork, OverBudgetError
from injector.resources.containers import (
    INIT,
    REGULAR,
    ContainerAmounts,
    PodContainers,
    filled_by_limit_ranger,
    read_containers,
)
from injector.resources.fallen import FallenContainer, entries_of, find_fallen
from injector.resources.limit_ranger import FilledIn, FilledValues
from injector.resources.pod_level import POD, PodLevel, read_pod_level
from injector.resources.writer import (
    Filled,
    PodWriter,
    containers_of,
    read_note,
    still_filled,
)
from injector.rules.fields import page_size
from injector.rules.rules import InjectionRule, ResourceRule, Rules
from injector.steps import AdmissionOutcome, AdmissionReason
from scoring.pod_request import extended_fault
from scoring.protocols import LimitDefaults
from scoring.quantity import shorten
from scoring.resources import STANDARD_RESOURCES

_MAX_TYPE: Final = 128  # characters

ExistingMode: TypeAlias = Literal["overwrite", "keep"]


@dataclass(frozen=True, slots=True)
class Injection:
    """Result of the injection for one pod.

    Attributes
    ----------
    message : str
        Of a rejection: why, with the numbers.
    warnings : tuple of str
        For the user.
    audit : mapping
        audit annotation key -> value
    """

    outcome: AdmissionOutcome
    reason: AdmissionReason
    message: str = ""
    warnings: tuple[str, ...] = ()
    audit: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def _unknown_defaults(_namespace: str) -> None:
    """Return that no LimitRange is known."""


class Injector:
    """Applies the rules in force to one pod at a time.

    Holds no state of its own; any thread may call it.

    Parameters
    ----------
    rules : callable
        Returns the rules in force, such as `RuleBook.current`; called once per pod.
    trigger_annotation : str
        The annotation whose value is the GPU type, the key of the rules.
    existing : str
        ``overwrite``: the rule replaces what a GPU container asks and the pod's
        annotations; ``keep``: only what is unset is filled, up to a limit that is set.
    limit_defaults : callable
        Returns what the LimitRanges of a namespace give containers; None if unknown.
    """

    def __init__(
        self,
        rules: Callable[[], Rules],
        *,
        trigger_annotation: str,
        existing: ExistingMode,
        limit_defaults: Callable[[str], LimitDefaults | None] = _unknown_defaults,
    ) -> None:
        self._rules = rules
        self._limit_defaults = limit_defaults
        self._trigger_annotation = trigger_annotation
        self._is_keeping = existing == "keep"

    def apply(
        self, pod: AdmittedPod, fallen: Sequence[FallenResource] = ()
    ) -> Injection:
        """Change `pod` in place; not if it is rejected.

        Parameters
        ----------
        fallen : sequence of FallenResource
            What the pod asked before it fell; the rules of that count where what it
            fell to has none.
        """
        rules, identity = self._rules(), pod.identity
        if identity.namespace in rules.skipped_namespaces:
            return Injection(
                AdmissionOutcome.SKIPPED, AdmissionReason.WHITE_LISTED_NAMESPACE
            )
        gpu_type = pod.annotations.get(self._trigger_annotation)
        if gpu_type is None:
            return Injection(AdmissionOutcome.SKIPPED, AdmissionReason.NO_GPU_TYPE)
        by_resource = rules.of_type(identity.namespace, gpu_type)
        if not by_resource:
            hint = _near_types(rules, identity.namespace, gpu_type)
            warning = (
                f"no rule for GPU type {shorten(gpu_type, 40)}: nothing injected{hint}"
            )
            return _skipped(AdmissionReason.UNKNOWN_GPU_TYPE, warning)
        containers = read_containers(pod.decoded)
        asked = _asked(containers, by_resource)
        fallen = [
            fall
            for fall in fallen
            if fall.target not in by_resource and fall.source in by_resource
        ]
        targets = {fall.target for fall in fallen}
        if containers.faults or len(targets.union(asked)) != 1:
            asked = sorted(targets.union(asked))
            return _not_applicable(containers, asked, by_resource, gpu_type, identity)
        note = read_note(pod.annotations)
        if asked:
            work = _gpu_work(containers, asked[0])
            rule = by_resource[work.gpu_resource]
            entries = [(item, work) for item in rule.resources]
            plan = _Plan(entries, rule.annotations)
        else:
            (target,) = targets
            work = _gpu_work(containers, target)
            plan = _plan_of_fallen(containers, target, fallen, by_resource, note)
            plan.warnings.append(_fallen_warning(gpu_type, target, fallen))
        refused = _refused_by_kubernetes(pod.decoded, work, plan, self._is_keeping)
        if refused:
            # It is refused as it is without us: to write over it would hide why.
            warning = f"nothing injected, Kubernetes refuses the pod: {refused}"
            return _skipped(AdmissionReason.ILLEGAL_QUANTITY, warning)
        task = _Task(
            work,
            gpu_type,
            read_pod_level(pod.decoded, containers, note.get(POD, {})),
            FilledValues(
                filled_by_limit_ranger(pod.annotations),
                note,
                self._limit_defaults(identity.namespace),
            ),
        )
        return _inject(task, plan, self._writer(pod), identity)

    def _writer(self, pod: AdmittedPod) -> PodWriter:
        """Return what writes into `pod`, and over what."""
        annotations = pod.annotations
        filled = filled_by_limit_ranger(annotations)
        tree = pod.edit()
        if self._is_keeping:
            filled |= still_filled(containers_of(tree), annotations)
        return PodWriter(tree, filled, is_keeping=self._is_keeping)


@dataclass(frozen=True, slots=True)
class _Task:
    """One pod's containers, what LimitRanger filled in, and what the pod level sets."""

    work: GpuWork
    gpu_type: str
    pod_level: PodLevel
    filled: FilledValues


def _near_types(rules: Rules, namespace: str, gpu_type: str) -> str:
    """Return the types that may have been meant, with a semicolon before them."""
    known = {*rules.default, *rules.by_namespace.get(namespace, ())}
    plain = {name.lower(): name for name in sorted(known)}
    if len(gpu_type) > _MAX_TYPE:
        return ""
    near = difflib.get_close_matches(gpu_type.lower(), list(plain), 1)
    return f"; did you mean {plain[near[0]]!r}?" if near else ""


def _not_applicable(
    containers: PodContainers,
    asked: Sequence[str],
    by_resource: Mapping[str, InjectionRule],
    gpu_type: str,
    identity: PodIdentity,
) -> Injection:
    """Return why no rule can be applied."""
    if containers.faults:
        message = "; ".join(map(str, containers.faults))
        return _rejected(AdmissionReason.ILLEGAL_QUANTITY, identity, message)
    if asked:
        message = f"asks more than one GPU resource: {', '.join(asked)}"
        return _rejected(AdmissionReason.TWO_GPU_RESOURCES, identity, message)
    names = ", ".join(sorted(by_resource))
    is_in_init = any(
        item.count(name) for item in containers.starting for name in by_resource
    )
    who = "only an init container asks" if is_in_init else "no container asks"
    warning = f"GPU type {shorten(gpu_type)}, but {who} for {names}: nothing injected"
    return _skipped(AdmissionReason.NO_GPU, warning)


def _refused_by_kubernetes(
    pod: Pod, work: GpuWork, plan: "_Plan", is_keeping: bool
) -> str:
    """Return what Kubernetes has against amounts that injection would repair."""
    lists = {
        REGULAR: pod.spec.containers or (),
        INIT: pod.spec.init_containers or (),
    }
    names = [work.gpu_resource, *(rule.name for rule, _ in plan.entries)]
    for item in work.gpu_containers:
        faults = [item.huge_pages_fault()]
        for name in names:
            if name not in STANDARD_RESOURCES:
                said = extended_fault(lists[item.kind][item.index].resources, name)
            else:
                said = "" if is_keeping else item.standard_fault(name)
            faults.append(said and f"{name} {said}")
        for fault in filter(None, faults):
            return f"container {shorten(item.name)}: {fault}"
    return ""


def _asked(
    containers: PodContainers, by_resource: Mapping[str, InjectionRule]
) -> list[str]:
    """Return the GPU resources with a rule that the pod asks, sorted."""
    return sorted(
        resource
        for resource in by_resource
        if any(item.count(resource) for item in containers.running)
    )


def _gpu_work(containers: PodContainers, gpu_resource: str) -> GpuWork:
    """Part the containers by whether they have a GPU."""
    counted = [(item, item.count(gpu_resource)) for item in containers.running]
    return GpuWork(
        gpu_resource,
        tuple(item for item, gpus in counted if gpus),
        tuple(gpus for _, gpus in counted if gpus),
        tuple(item for item, gpus in counted if not gpus),
    )


@dataclass(slots=True)
class _Plan:
    """What is to be written into a pod, and why that cannot be.

    Attributes
    ----------
    entries : sequence of (ResourceRule, GpuWork)
        Each resource to inject, and for which containers.
    annotations : mapping
        Of the rule.
    fallen : sequence of FallenContainer
        Containers that get what they asked before they fell.
    amounts : list of (ResourceRule, GpuWork, sequence of Amount)
    lowered : list of (FilledIn, Fraction)
        What LimitRanger filled in, and what is left of it.
    faults : list of str
        Budgets that do not suffice.
    """

    entries: Sequence[tuple[ResourceRule, GpuWork]]
    annotations: Mapping[str, str]
    fallen: Sequence[FallenContainer] = ()
    amounts: list[tuple[ResourceRule, GpuWork, Sequence[Amount]]] = field(
        default_factory=list
    )
    lowered: list[tuple[FilledIn, Fraction]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def compute(self, task: _Task, writer: PodWriter) -> None:
        """Compute all amounts."""
        for rule, work in self.entries:
            if rule.name in task.pod_level.written:
                self.warnings.append(
                    f"{rule.name} is set for the pod as a whole: not injected; remove"
                    " it from spec.resources to change that"
                )
                continue
            if not any(writer.is_open(item, rule.name) for item in work.gpu_containers):
                continue
            filled = task.filled.of(rule.name, work.others) if rule.is_standard else []
            try:
                amounts, left = work.amounts(rule, filled)
            except OverBudgetError as error:
                self.faults.append(str(error))
            else:
                self.amounts.append((rule, work, amounts))
                self.lowered += zip(filled, left, strict=True)


def _plan_of_fallen(
    containers: PodContainers,
    target: str,
    fallen: Sequence[FallenResource],
    by_resource: Mapping[str, InjectionRule],
    note: Filled,
) -> _Plan:
    """Return what containers get that fell to `target`, which has no rule."""
    found = find_fallen(containers, target, fallen, note)
    annotations: dict[str, str] = {}
    for fall in fallen:
        annotations = {**by_resource[fall.source].annotations, **annotations}
    return _Plan(entries_of(containers, found, by_resource), annotations, found)


def _fallen_warning(
    gpu_type: str, target: str, fallen: Sequence[FallenResource]
) -> str:
    """Return what the user is told where a rule is missing."""
    sources = ", ".join(dict.fromkeys(fall.source for fall in fallen))
    return (
        f"no rule for GPU type {shorten(gpu_type, 24)} and {target}: that of {sources}"
        " applies"
    )


def _inject(
    task: _Task, plan: _Plan, writer: PodWriter, identity: PodIdentity
) -> Injection:
    """Write what the rule gives, or nothing at all if a budget does not suffice."""
    plan.compute(task, writer)
    if plan.faults:
        message = "; ".join(plan.faults)
        return _rejected(AdmissionReason.OVER_BUDGET, identity, message)
    # Kubernetes wants these as request and limit alike.
    pieces = [rule.name for rule, _ in plan.entries if not rule.is_standard]
    for container in task.work.gpu_containers:
        for resource in (task.work.gpu_resource, *pieces):
            writer.mirror(container, resource)
    for value, amount in plan.lowered:
        writer.lower(value, amount)
    # Huge pages last: by then it is known what stands beside them.
    by_page = sorted(plan.amounts, key=lambda item: page_size(item[0].name))
    for rule, work, amounts in by_page:
        plan.warnings += _fill(work.gpu_containers, rule, amounts, writer)
    for item in plan.fallen:
        writer.note_before(item)
    writer.derive_pod_level(task.pod_level)
    writer.annotate(plan.annotations)
    writer.note_filled()
    return Injection(
        *(
            (AdmissionOutcome.INJECTED, AdmissionReason.RULE_APPLIED)
            if writer.is_changed
            else (AdmissionOutcome.UNCHANGED, AdmissionReason.ALREADY_APPLIED)
        ),
        warnings=(
            *writer.replaced_warnings(task.gpu_type),
            *writer.warnings,
            *plan.warnings,
        ),
        audit=MappingProxyType(writer.audit()),
    )


def _fill(
    containers: Sequence[ContainerAmounts],
    rule: ResourceRule,
    amounts: Sequence[Amount],
    writer: PodWriter,
) -> list[str]:
    """Write one resource into the GPU containers; return what to tell the user."""
    warnings: list[str] = []
    for container, amount in zip(containers, amounts, strict=True):
        if not writer.is_open(container, rule.name):
            continue
        if page_size(rule.name) and not writer.has_cpu_or_memory(container):
            warnings.append(
                f"container {shorten(container.name)}: {rule.name} not injected, it"
                " needs cpu or memory in the container"
            )
        elif amount.value:
            writer.fill(container, rule.name, amount)
        else:
            warnings.append(
                f"container {shorten(container.name)}: less than one {rule.name}, not"
                " injected"
            )
    return warnings


def _skipped(reason: AdmissionReason, warning: str) -> Injection:
    """Return that nothing is injected, and tell the user."""
    return Injection(AdmissionOutcome.SKIPPED, reason, warnings=(warning,))


def _rejected(
    reason: AdmissionReason, identity: PodIdentity, message: str
) -> Injection:
    """Return a refusal that names the pod."""
    return Injection(
        AdmissionOutcome.REJECTED, reason, message=f"pod {identity.label}: {message}"
    )
