"""Injection rules, and their holder."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import TypeAlias

from scoring.resources import STANDARD_RESOURCES


@dataclass(frozen=True, slots=True)
class ResourceRule:
    """Amount of one resource that comes with each GPU.

    Attributes
    ----------
    per_gpu : Fraction
        Above 0, in cores, bytes or pieces.
    is_binary : bool
        Whether amounts are printed with ``Ki``, ``Mi`` and so on.
    """

    name: str
    per_gpu: Fraction
    is_binary: bool

    @property
    def is_standard(self) -> bool:
        """Whether the pod has one budget of it that all containers share."""
        return self.name in STANDARD_RESOURCES


@dataclass(frozen=True, slots=True)
class InjectionRule:
    """Resources and annotations for pods of one GPU type with one GPU resource."""

    resources: tuple[ResourceRule, ...] = ()
    # annotation key -> value
    annotations: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


# GPU type -> GPU resource -> rule
RuleMap: TypeAlias = Mapping[str, Mapping[str, InjectionRule]]


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules of one rule file.

    Attributes
    ----------
    default : mapping
        GPU type -> GPU resource -> rule
    by_namespace : mapping
        namespace -> GPU type -> GPU resource -> rule
    skipped_namespaces : frozenset of str
        Namespaces in which nothing is injected.
    """

    default: RuleMap = field(default_factory=lambda: MappingProxyType({}))
    by_namespace: Mapping[str, RuleMap] = field(
        default_factory=lambda: MappingProxyType({})
    )
    skipped_namespaces: frozenset[str] = frozenset()

    def entries(self) -> Iterator[tuple[str, InjectionRule]]:
        """Yield each rule behind its path in the file."""
        maps = {"resourceMap": self.default}
        for namespace, types in self.by_namespace.items():
            maps[f"namespaceResourceMap.{namespace}"] = types
        for path, types in maps.items():
            for gpu_type, rules in types.items():
                for resource, rule in rules.items():
                    yield f"{path}.{gpu_type}.{resource}", rule

    def of_type(self, namespace: str, gpu_type: str) -> dict[str, InjectionRule]:
        """Return GPU resource -> rule; a namespace's rule replaces the default whole.

        Empty if the type has no rule.
        """
        own = self.by_namespace.get(namespace, {}).get(gpu_type, {})
        return {**self.default.get(gpu_type, {}), **own}


class RuleBook:
    """Holds the rules in force.

    One thread calls `replace` when the file has changed; workers call `current` once
    per request and never see half of a change.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def current(self) -> Rules:
        """Return the rules in force."""
        return self._rules

    def replace(self, rules: Rules) -> None:
        """Put `rules` in force."""
        self._rules = rules
