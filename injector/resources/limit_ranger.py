"""Amounts that LimitRanger filled in beside GPU containers: nobody's wish.

They come off the budget like others, but make way for the GPU containers: at most half
of what users' own values leave is theirs.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Final

from injector.resources.containers import (
    LIMITS,
    NOTHING,
    REQUESTS,
    ContainerAmounts,
    container_side,
)
from scoring.protocols import LimitDefaults
from scoring.quantity import QuantityError, exact_amount, scale_of, split_by_gpus
from scoring.resources import BYTE_RESOURCES

# What LimitRanger had filled in before it was lowered, in a note of what was filled in;
# the names are those of the fields of a LimitRange.
ORIGINALS: Final = MappingProxyType({REQUESTS: "defaultRequest", LIMITS: "default"})

# A container that has less than a page of memory cannot start.
PAGE: Final = 4096

# container -> side -> resource -> quantity
Note = Mapping[str, Mapping[str, Mapping[str, str]]]


@dataclass(frozen=True, slots=True)
class FilledIn:
    """A request that LimitRanger filled in, and its limit if that was filled in, too.

    Attributes
    ----------
    request : Fraction
        As LimitRanger had it.
    limit : Fraction or None
        The same; None where the limit is somebody's own, or there is none.
    least : int
        Base units below which the request may not be lowered.
    """

    container: ContainerAmounts
    resource: str
    request: Fraction
    limit: Fraction | None
    least: int

    @property
    def units(self) -> int:
        """The request in whole base units, rounded up."""
        return math.ceil(self.request * scale_of(self.resource))


@dataclass(frozen=True, slots=True)
class FilledValues:
    """All that LimitRanger may have filled in on one pod.

    Attributes
    ----------
    named : frozenset of (str, str, str)
        Container, ``requests`` or ``limits``, resource, by LimitRanger's annotation.
    note : mapping
        What an earlier review filled in and lowered.
    defaults : LimitDefaults or None
        Of the pod's namespace; None where they are not known.
    """

    named: frozenset[tuple[str, str, str]]
    note: Note
    defaults: LimitDefaults | None

    def of(
        self, resource: str, containers: Iterable[ContainerAmounts]
    ) -> list[FilledIn]:
        """Return what was filled in of `resource` in `containers`."""
        if not (self.named or self.note):
            return []
        found = (self._of_one(resource, item) for item in containers)
        return [item for item in found if item is not None]

    def _of_one(self, resource: str, container: ContainerAmounts) -> FilledIn | None:
        request = self._filled(container, REQUESTS, resource)
        if request is None:
            return None
        limit = self._filled(container, LIMITS, resource)
        own_limit = container.limits.get(resource) if limit is None else None
        least = self._least(resource, own_limit)
        return FilledIn(container, resource, request, limit, least)

    def _filled(
        self, container: ContainerAmounts, side: str, resource: str
    ) -> Fraction | None:
        """Return what LimitRanger set; None if the value is somebody's word."""
        value = container_side(container, side).get(resource)
        if value is None:
            return None
        noted = self.note.get(container.name, {})
        ours = _exact(noted.get(side, {}).get(resource))
        original = _exact(noted.get(ORIGINALS[side], {}).get(resource))
        if original is not None:  # whatever else stands there, somebody has written
            return original if value in (ours, original) else None
        if (container.name, side, resource) not in self.named:
            return None
        return value if self._may_be_default(side, resource, value) else None

    def _may_be_default(self, side: str, resource: str, value: Fraction) -> bool:
        """Whether a LimitRange can have given `value`; those unknown can."""
        if self.defaults is None:
            return True
        defaults = self.defaults.limits if side == LIMITS else self.defaults.requests
        amount = value * scale_of(resource)
        return any(
            name == resource and default == math.ceil(amount)
            for name, default in defaults
        )

    def _least(self, resource: str, own_limit: Fraction | None) -> int:
        """Return the base units below which a request would be refused or useless."""
        least = PAGE if resource in BYTE_RESOURCES else 1
        if self.defaults is None:
            return least
        least = max(least, dict(self.defaults.minima).get(resource, 0))
        ratio = dict(self.defaults.ratios).get(resource)
        if ratio and own_limit is not None:
            least = max(least, math.ceil(own_limit * scale_of(resource) / ratio))
        return least


NO_FILLED_VALUES: Final = FilledValues(frozenset(), MappingProxyType({}), None)


def lower(values: Sequence[FilledIn], pool: Fraction) -> list[Fraction]:
    """Return what remains of each of `values` where `pool` is left for them and others.

    Parameters
    ----------
    values : sequence of FilledIn
        Of one resource.
    pool : Fraction
        In cores, bytes or pieces; above 0.

    Returns
    -------
    list of Fraction
        The requests as they are, if they take no more than half of `pool`. Else they
        shrink to that half in proportion, in whole base units, a remainder going to
        the largest fraction; none below what it must have at least.
    """
    if not values:
        return []
    asked = [item.request for item in values]
    if sum(asked, NOTHING) <= pool / 2:
        return asked
    scale = scale_of(values[0].resource)
    half = int(pool * scale // 2)
    shares = _in_proportion(half, [item.units for item in values])
    lowered = [
        min(max(share, item.least), item.units)
        for share, item in zip(shares, values, strict=True)
    ]
    return [
        item.request if units == item.units else Fraction(units, scale)
        for units, item in zip(lowered, values, strict=True)
    ]


def _in_proportion(pool: int, weights: Sequence[int]) -> list[int]:
    """Share `pool` by `weights`, to the last unit; nothing where they are all 0."""
    return split_by_gpus(pool, weights) if any(weights) else [0] * len(weights)


def _exact(text: str | None) -> Fraction | None:
    """Return a noted quantity; None if it cannot be read."""
    try:
        return None if text is None else exact_amount(text)
    except QuantityError:
        return None
