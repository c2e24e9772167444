"""Fallback chains: GPU resources that may stand in for one another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from scoring.faults import Fault
from scoring.names import is_extended_resource
from scoring.resources import ResourceScope

_MIN_MEMBERS: Final = 2


@dataclass(frozen=True, slots=True)
class Chains:
    """The chains of the settings, which must be free of faults.

    Attributes
    ----------
    chains : tuple of tuple of str
        Resource names, each chain from what is wanted most to what is taken last.
    """

    chains: tuple[tuple[str, ...], ...] = ()
    # resource -> the members of its chain that come after it
    _tails: Mapping[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        faults = find_chain_faults(self.chains)
        if faults:
            raise ValueError("; ".join(map(str, faults)))
        tails = {
            resource: chain[index + 1 :]
            for chain in self.chains
            for index, resource in enumerate(chain)
        }
        object.__setattr__(self, "_tails", MappingProxyType(tails))

    def is_member(self, resource: str) -> bool:
        """Whether `resource` is in a chain."""
        return resource in self._tails

    def can_fall(self, resource: str) -> bool:
        """Whether there is something that `resource` can fall to."""
        return bool(self._tails.get(resource))

    def tail(self, resource: str) -> tuple[str, ...]:
        """Return what `resource` can fall to, best first; the last falls to nothing."""
        return self._tails.get(resource, ())

    def sources_of(self, resource: str) -> list[str]:
        """Return what can fall to `resource`."""
        return [name for name, tail in self._tails.items() if resource in tail]

    def in_order(self, resources: Mapping[str, int]) -> list[str]:
        """Return those of `resources` that can fall, in the order of the chains."""
        return [name for name in self._tails if self._tails[name] and name in resources]


def find_chain_faults(
    chains: Sequence[Sequence[str]],
    *,
    scope: ResourceScope | None = None,
    path: str = "fallback.chains",
) -> list[Fault]:
    """Return every fault of configured chains, each with its path.

    Parameters
    ----------
    scope : ResourceScope, optional
        If given, each member must be a resource that is counted.
    path : str
        Of `chains` in the settings.
    """
    faults: list[Fault] = []
    first_seen: dict[str, str] = {}
    for number, chain in enumerate(chains):
        if len(chain) < _MIN_MEMBERS:
            message = f"wanted {_MIN_MEMBERS} resources or more, got {len(chain)}"
            faults.append(Fault(f"{path}[{number}]", message))
        for index, resource in enumerate(chain):
            where = f"{path}[{number}][{index}]"
            message = _fault_of_name(resource, scope)
            if resource in first_seen:
                message = (
                    f"wanted each resource once, got {resource!r},"
                    f" which is also {first_seen[resource]}"
                )
            first_seen.setdefault(resource, where)
            if message:
                faults.append(Fault(where, message))
    return faults


def _fault_of_name(resource: str, scope: ResourceScope | None) -> str:
    """Return what is wrong with a member of a chain; empty if nothing is."""
    if not is_extended_resource(resource):
        return f"wanted an extended resource such as 'nvidia.com/gpu', got {resource!r}"
    if scope is not None and not scope.is_managed(resource):
        return (
            "wanted a resource that managedPrefixes or gpuResources cover,"
            f" got {resource!r}"
        )
    return ""


def short_name(resource: str) -> str:
    """Return the name that records of a fallback use.

    >>> short_name("nvidia.com/mig-2g.20gb"), short_name("nvidia.com/gpu")
    ('2g.20gb', 'gpu')
    """
    return resource.rpartition("/")[2].removeprefix("mig-")
