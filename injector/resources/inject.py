"""CPU, memory and other resources per GPU: pod in, pod out.

The arithmetic is exact. For a standard resource the pod has a budget, coefficient times
all its GPUs; what other containers that run beside ask is taken off, the rest is shared
among the GPU containers by GPU count. Any other resource is coefficient times the
container's own GPUs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from cluster.decode.objects import Pod
from injector.resources.budget import Amount, GpuWork, OverBudgetError
from injector.resources.containers import (
    ContainerAmounts,
    PodContainers,
    filled_by_limit_ranger,
    read_containers,
)
from injector.resources.writer import PodWriter, still_filled
from injector.review import read_pod
from injector.rules.rules import InjectionRule, Outcome, Reason, ResourceRule, Rules
from injector.steps import PodFacts
from scoring.quantity import shorten

ExistingMode: TypeAlias = Literal["overwrite", "keep"]


@dataclass(frozen=True, slots=True)
class InjectorOptions:
    """What an operator can choose.

    Attributes
    ----------
    trigger_annotation : str
        The annotation whose value is the GPU type, the key of the rules.
    existing : str
        ``overwrite``: the rule replaces what a GPU container asks and the pod's
        annotations; ``keep``: only what is unset is filled, up to a limit that is set.
    skipped_namespaces : frozenset of str
        System namespaces and our own: their pods pass untouched by every step.
    """

    trigger_annotation: str
    existing: ExistingMode
    skipped_namespaces: frozenset[str]


@dataclass(frozen=True, slots=True)
class Injection:
    """What became of one pod.

    Attributes
    ----------
    message : str
        Of a rejection: why, with the numbers.
    warnings : tuple of str
        For the user.
    audit : mapping
        audit annotation key -> value
    """

    outcome: Outcome
    reason: Reason
    message: str = ""
    warnings: tuple[str, ...] = ()
    audit: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


class Injector:
    """Applies the rules in force to one pod at a time.

    Holds no state of its own; any thread may call it.

    Parameters
    ----------
    rules : callable
        Returns the rules in force, such as `RuleBook.current`; called once per pod.
    options : InjectorOptions
    """

    def __init__(self, rules: Callable[[], Rules], options: InjectorOptions) -> None:
        self._rules = rules
        self.options = options

    def apply(self, pod: dict[str, Any], facts: PodFacts) -> Injection:
        """Change `pod`, a copy of our own, in place; not if it is rejected.

        Raises `ReviewError` if it is no pod.
        """
        rules = self._rules()
        if facts.namespace in rules.white_list:
            return Injection(Outcome.SKIPPED, Reason.WHITE_LISTED_NAMESPACE)
        view = read_pod(pod)
        annotations = view.metadata.annotations or {}
        gpu_type = annotations.get(self.options.trigger_annotation)
        if gpu_type is None:
            return Injection(Outcome.SKIPPED, Reason.NO_GPU_TYPE)
        by_resource = rules.of_type(facts.namespace, gpu_type)
        if not by_resource:
            warning = f"no rule for GPU type {shorten(gpu_type)}: nothing injected"
            return _skipped(Reason.UNKNOWN_GPU_TYPE, warning)
        containers = read_containers(view)
        asked = _asked(containers, by_resource)
        if containers.faults or len(asked) != 1:
            return _not_applicable(containers, asked, by_resource, gpu_type, facts)
        work = _gpu_work(containers, asked[0])
        filled = filled_by_limit_ranger(annotations)
        is_keeping = self.options.existing == "keep"
        if is_keeping:
            filled |= still_filled(pod["spec"]["containers"], annotations)
        writer = PodWriter(pod, filled, is_keeping=is_keeping)
        return _inject(
            _Task(work, by_resource[work.gpu_resource], gpu_type, _pod_level(view)),
            writer,
            facts,
        )


@dataclass(frozen=True, slots=True)
class _Task:
    """One pod's containers, the rule that applies, and what the pod level sets."""

    work: GpuWork
    rule: InjectionRule
    gpu_type: str
    pod_level: frozenset[str]


def _not_applicable(
    containers: PodContainers,
    asked: Sequence[str],
    by_resource: Mapping[str, InjectionRule],
    gpu_type: str,
    facts: PodFacts,
) -> Injection:
    """Return why no rule can be applied."""
    if containers.faults:
        message = "; ".join(map(str, containers.faults))
        return _rejected(Reason.ILLEGAL_QUANTITY, facts, message)
    if asked:
        message = f"asks more than one GPU resource: {', '.join(asked)}"
        return _rejected(Reason.TWO_GPU_RESOURCES, facts, message)
    names = ", ".join(sorted(by_resource))
    warning = (
        f"GPU type {shorten(gpu_type)}, but no container asks for {names}:"
        " nothing injected"
    )
    return _skipped(Reason.NO_GPU, warning)


def _asked(
    containers: PodContainers, by_resource: Mapping[str, InjectionRule]
) -> list[str]:
    """Return the GPU resources with a rule that the pod asks, sorted."""
    return sorted(
        resource
        for resource in by_resource
        if any(item.count(resource) for item in containers.regular)
    )


def _gpu_work(containers: PodContainers, gpu_resource: str) -> GpuWork:
    """Part the containers by whether they have a GPU."""
    counted = [(item, item.count(gpu_resource)) for item in containers.regular]
    plain = tuple(item for item, gpus in counted if not gpus)
    return GpuWork(
        gpu_resource,
        tuple(item for item, gpus in counted if gpus),
        tuple(gpus for _, gpus in counted if gpus),
        (*plain, *containers.sidecars),
    )


def _inject(task: _Task, writer: PodWriter, facts: PodFacts) -> Injection:
    """Write what the rule gives, or nothing at all if a budget does not suffice."""
    amounts: list[tuple[ResourceRule, Sequence[Amount]]] = []
    faults: list[str] = []
    warnings: list[str] = []
    containers = task.work.gpu_containers
    for rule in task.rule.resources:
        if rule.name in task.pod_level:
            warnings.append(f"{rule.name} is set for the pod as a whole: not injected")
        elif any(writer.is_open(item, rule.name) for item in containers):
            try:
                amounts.append((rule, task.work.amounts(rule)))
            except OverBudgetError as error:
                faults.append(str(error))
    if faults:
        return _rejected(Reason.OVER_BUDGET, facts, "; ".join(faults))
    # Kubernetes wants these as request and limit alike.
    pieces = [rule.name for rule in task.rule.resources if not rule.is_standard]
    for container in containers:
        for resource in (task.work.gpu_resource, *pieces):
            writer.mirror(container, resource)
    for rule, shares in amounts:
        warnings += _fill(containers, rule, shares, writer)
    writer.annotate(task.rule.annotations)
    writer.note_filled()
    return Injection(
        *(
            (Outcome.INJECTED, Reason.RULE_APPLIED)
            if writer.is_changed
            else (Outcome.UNCHANGED, Reason.ALREADY_APPLIED)
        ),
        warnings=(
            *writer.replaced_warnings(task.gpu_type),
            *writer.warnings,
            *warnings,
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
        if amount.value:
            writer.fill(container, rule.name, amount)
        else:
            warnings.append(
                f"container {shorten(container.name)}: less than one {rule.name}, not"
                " injected"
            )
    return warnings


def _pod_level(view: Pod) -> frozenset[str]:
    """Return the resources that ``spec.resources`` sets."""
    resources = view.spec.resources
    if resources is None:
        return frozenset()
    return frozenset(resources.requests or {}) | frozenset(resources.limits or {})


def _skipped(reason: Reason, warning: str) -> Injection:
    """Return that nothing is injected, and tell the user."""
    return Injection(Outcome.SKIPPED, reason, warnings=(warning,))


def _rejected(reason: Reason, facts: PodFacts, message: str) -> Injection:
    """Return a refusal that names the pod."""
    return Injection(
        Outcome.REJECTED, reason, message=f"pod {pod_label(facts)}: {message}"
    )


def pod_label(facts: PodFacts) -> str:
    """Return namespace and name; ``w-*`` for a pod whose name will be generated."""
    return f"{facts.namespace}/{facts.name or f'{facts.generate_name}*'}"
