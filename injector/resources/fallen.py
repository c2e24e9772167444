"""GPU resources without a rule to which a pod fell: the rule that it had counts on.

A fall never takes resources away. Each container gets the coefficients of what it
asked, times what it asked of that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from injector.admitted_pod import FallenResource
from injector.resources.budget import GpuWork
from injector.resources.containers import ContainerAmounts, PodContainers
from injector.rules.rules import InjectionRule, ResourceRule
from scoring.quantity import scale_of, whole_total

# In a note of what was filled in: what a container asked before it fell.
BEFORE: Final = "fallback"

# container -> side -> resource -> quantity
Note = Mapping[str, Mapping[str, Mapping[str, str]]]


@dataclass(frozen=True, slots=True)
class FallenContainer:
    """A container that fell to a resource without a rule.

    Attributes
    ----------
    asked : tuple of (str, int)
        What it asked, of what has a rule, and how many.
    """

    amounts: ContainerAmounts
    asked: tuple[tuple[str, int], ...]


def find_fallen(
    containers: PodContainers,
    target: str,
    fallen: Sequence[FallenResource],
    note: Note,
) -> list[FallenContainer]:
    """Return the containers that fell to `target`, with what they asked before.

    Parameters
    ----------
    fallen : sequence of FallenResource
        Those that fell to `target` from what has a rule.
    note : mapping
        Of an earlier review: by it a container that asked `target` itself is told
        apart, which a record leaves open.
    """
    is_noted = any(BEFORE in sides for sides in note.values())
    found = []
    for item in containers.running:
        left = item.count(target)
        asked = []
        for fall in fallen:
            if fall.container not in ("", item.name):
                continue
            count = fall.count
            if not count:
                before = note.get(item.name, {}).get(BEFORE, {})
                count = _whole(before.get(fall.source)) if is_noted else left
            count = min(count, left)
            if count:
                asked.append((fall.source, count))
                left -= count
        if asked:
            found.append(FallenContainer(item, tuple(asked)))
    return found


def _whole(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdecimal() else 0


def entries_of(
    containers: PodContainers,
    fallen: Sequence[FallenContainer],
    rules: Mapping[str, InjectionRule],
) -> list[tuple[ResourceRule, GpuWork]]:
    """Return each resource to inject, and for which containers.

    Where one resource fell, it is as if it were still asked. Where several did, each
    container is entitled to what its own rules give, and shares are in proportion.
    """
    sources = {source: 0 for item in fallen for source, _ in item.asked}
    for item in fallen:
        for source, count in item.asked:
            sources[source] += count
    if len(sources) == 1:
        (source,) = sources
        counts = tuple(count for item in fallen for _, count in item.asked)
        work = _work(containers, fallen, counts, source)
        return [(rule, work) for rule in rules[source].resources]
    what = ", ".join(f"{count} {source}" for source, count in sources.items())
    found = []
    for rule in _all_rules(sources, rules):
        unit = ResourceRule(rule.name, Fraction(1, scale_of(rule.name)), rule.is_binary)
        units = [_entitled(item, rule.name, rules) for item in fallen]
        getting = [item for item, amount in zip(fallen, units, strict=True) if amount]
        work = _work(containers, getting, tuple(filter(None, units)), "", what)
        if getting:
            found.append((unit, work))
    return found


def _all_rules(
    sources: Mapping[str, int], rules: Mapping[str, InjectionRule]
) -> list[ResourceRule]:
    """Return one rule for each resource that any source has one for."""
    by_name = {
        rule.name: rule for source in sources for rule in rules[source].resources
    }
    return list(by_name.values())


def _entitled(
    item: FallenContainer, name: str, rules: Mapping[str, InjectionRule]
) -> int:
    """Return how many base units the rules of what it asked give a container."""
    return sum(
        whole_total(name, rule.per_gpu, count)
        for source, count in item.asked
        for rule in rules[source].resources
        if rule.name == name
    )


def _work(
    containers: PodContainers,
    getting: Sequence[FallenContainer],
    counts: tuple[int, ...],
    gpu_resource: str,
    what: str = "",
) -> GpuWork:
    places = {item.amounts.place for item in getting}
    return GpuWork(
        gpu_resource,
        tuple(item.amounts for item in getting),
        counts,
        tuple(item for item in containers.running if item.place not in places),
        what,
    )
