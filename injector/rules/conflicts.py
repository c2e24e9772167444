"""Conflicts of rules with themselves, with the fallback and with other writers.

The API server may have a pod reviewed again after another webhook; the second review
must find nothing to do.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Final

from injector.admitted_pod import (
    FILLED_ANNOTATION,
    LIMIT_RANGER_ANNOTATION,
    MIRROR_ANNOTATION,
    SOURCE_ANNOTATION,
)
from injector.rules.rules import InjectionRule, RuleMap, Rules
from scoring.faults import Fault
from scoring.gpu.requirements import GpuAnnotations, GpuRequirementsError
from scoring.quantity import format_quantity
from scoring.resources import BYTE_RESOURCES, profile_memory_gib

_PAGE: Final = 4096

# annotation -> who else writes or reads it
_OTHERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        LIMIT_RANGER_ANNOTATION: "LimitRanger says in it what it filled in",
        FILLED_ANNOTATION: "it says what a review has filled in",
        MIRROR_ANNOTATION: "it would make the pod a mirror pod",
        SOURCE_ANNOTATION: "kubelets say in it where a pod comes from",
    }
)


@dataclass(frozen=True, slots=True)
class RuleContext:
    """Annotations and resources by which the rest of the webhook goes.

    Attributes
    ----------
    trigger_annotation : str
        The annotation by which a rule is found.
    decisions : frozenset of str
        Annotations that decide whether a fallback is chosen for a pod.
    falling : frozenset of str
        Resources that can fall back to another one.
    gpu_annotations : GpuAnnotations
        By which a pod says what it wants of the GPUs.
    """

    trigger_annotation: str
    decisions: frozenset[str]
    falling: frozenset[str]
    gpu_annotations: GpuAnnotations

    def annotation_fault(self, key: str) -> str:
        """Return why no rule may set an annotation; empty if one may."""
        if key == self.trigger_annotation:
            return "a rule must not change what it was found by"
        if key in self.decisions:
            return "a rule must not change what fallback goes by"
        return f"a rule must not set it: {_OTHERS[key]}" if key in _OTHERS else ""

    def value_fault(self, key: str, value: str) -> str:
        """Return why pods with such an annotation would never be scheduled, if so."""
        try:
            self.gpu_annotations.parse({key: value})
        except GpuRequirementsError as error:
            return error.faults[0].message
        return ""


@dataclass(frozen=True, slots=True)
class _Row:
    """The rules of one GPU type in one namespace, as they are in force there.

    Attributes
    ----------
    path, default_path : str
        Of the namespace's own rules for the type, and of the default ones.
    own, rules : mapping
        GPU resource -> rule: the namespace's own ones, and all in force.
    """

    path: str
    default_path: str
    own: Mapping[str, InjectionRule]
    rules: Mapping[str, InjectionRule]

    def path_of(self, gpu_resource: str) -> str:
        """Return where the rule of a GPU resource stands."""
        path = self.path if gpu_resource in self.own else self.default_path
        return f"{path}.{gpu_resource}"


def find_conflicts(
    rules: Rules, paths: Mapping[tuple[str, str], str], context: RuleContext
) -> list[Fault]:
    """Return a fault for each resource that no rule may inject.

    Parameters
    ----------
    paths : mapping
        Path of a rule and name of a resource -> path of its entry.

    Notes
    -----
    A GPU resource of the same type, in any namespace where both are in force: the pod
    would ask two of them, and be refused. A resource that can fall back: a
    fallback would be chosen for the pod.
    """
    found: dict[Fault, None] = {}
    for row in _rows(rules):
        for gpu_resource, rule in row.rules.items():
            for item in rule.resources:
                message = _conflict(item.name, gpu_resource, row, context)
                if message:
                    path = paths[row.path_of(gpu_resource), item.name]
                    found[Fault(path, message)] = None
    return list(found)


def _conflict(resource: str, gpu_resource: str, row: _Row, context: RuleContext) -> str:
    """Return why the rule of `gpu_resource` may not inject; empty if it may."""
    if resource in row.rules:
        is_apart = (resource in row.own) != (gpu_resource in row.own)
        where = f", see {row.path_of(resource)}" if is_apart else ""
        return f"{resource!r} is a GPU resource of this type{where}"
    if resource in context.falling:
        return f"{resource!r} can fall back to another resource, see fallback.chains"
    return ""


def _rows(rules: Rules) -> Iterator[_Row]:
    """Yield the rules of each type as they are in force by default and where not."""
    maps: dict[str, RuleMap] = {"resourceMap": rules.default} | {
        f"namespaceResourceMap.{namespace}": types
        for namespace, types in rules.by_namespace.items()
    }
    for path, types in maps.items():
        for gpu_type, own in types.items():
            default = rules.default.get(gpu_type, {})
            yield _Row(
                f"{path}.{gpu_type}",
                f"resourceMap.{gpu_type}",
                own,
                {**default, **own},
            )


def list_fallback_gaps(rules: Rules, chains: Iterable[Sequence[str]]) -> list[str]:
    """Return a warning for each rule that a pod leaves, or loses by, when it falls."""
    found: dict[str, None] = {}
    for row in _rows(rules):
        for chain in chains:
            for index, source in enumerate(chain):
                if source in row.rules:
                    for target in chain[index + 1 :]:
                        found.update(dict.fromkeys(_gaps(row, source, target)))
    return list(found)


def _gaps(row: _Row, source: str, target: str) -> Iterator[str]:
    """Yield what a pod of `source` has less of as one of `target`.

    A smaller slice may give less, as its memory is less.
    """
    if target not in row.rules:
        yield (
            f"{row.path_of(source)}: falls to {target}, which has no rule for this"
            f" type: that of {source} applies"
        )
        return
    given = {item.name: item for item in row.rules[target].resources}
    before, then = profile_memory_gib(source), profile_memory_gib(target)
    part = min(Fraction(then, before), Fraction(1)) if before and then else Fraction(1)
    part_of = " in proportion to its memory" if part < 1 else ""
    for item in row.rules[source].resources:
        after = given[item.name].per_gpu if item.name in given else Fraction(0)
        if after < item.per_gpu * part:
            less, more = (
                format_quantity(amount, is_binary=item.is_binary)
                for amount in (after, item.per_gpu)
            )
            yield (
                f"{row.path_of(target)}: {less} {item.name} per GPU is less{part_of}"
                f" than the {more} of {source}, which falls to it"
            )


def list_tiny_amounts(rules: Rules) -> list[str]:
    """Return a warning for each rule that gives too few bytes for a container."""
    return [
        f"{path}: {item.per_gpu} bytes of {item.name} per GPU start no container; is"
        " the unit missing?"
        for path, rule in rules.entries()
        for item in rule.resources
        if item.name in BYTE_RESOURCES and item.per_gpu < _PAGE
    ]
