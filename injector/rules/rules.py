"""Injection rules, their holder, and the names of what can become of a pod."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from types import MappingProxyType
from typing import TypeAlias

from scoring.resources import STANDARD_RESOURCES


class Outcome(StrEnum):
    """What became of one admission request; a metric label."""

    INJECTED = "injected"
    UNCHANGED = "unchanged"
    SKIPPED = "skipped"
    REJECTED = "rejected"
    FAILED = "failed"


class Reason(StrEnum):
    """Why; a metric label and a log field."""

    NOT_A_CREATE = "not_a_create"
    NOT_A_POD = "not_a_pod"
    NO_OBJECT = "no_object"
    SYSTEM_NAMESPACE = "system_namespace"
    STATIC_POD = "static_pod"
    WHITE_LISTED_NAMESPACE = "white_listed_namespace"
    NO_GPU_TYPE = "no_gpu_type"
    UNKNOWN_GPU_TYPE = "unknown_gpu_type"
    NO_GPU = "no_gpu"
    RULE_APPLIED = "rule_applied"
    ALREADY_APPLIED = "already_applied"
    ILLEGAL_QUANTITY = "illegal_quantity"
    TWO_GPU_RESOURCES = "two_gpu_resources"
    OVER_BUDGET = "over_budget"
    INTERNAL_ERROR = "internal_error"


@dataclass(frozen=True, slots=True)
class ResourceRule:
    """How much of one resource comes with each GPU.

    Attributes
    ----------
    name : str
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
    """What pods of one GPU type get for one GPU resource."""

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
    white_list : frozenset of str
        Namespaces in which nothing is injected.
    """

    default: RuleMap = field(default_factory=lambda: MappingProxyType({}))
    by_namespace: Mapping[str, RuleMap] = field(
        default_factory=lambda: MappingProxyType({})
    )
    white_list: frozenset[str] = frozenset()

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
