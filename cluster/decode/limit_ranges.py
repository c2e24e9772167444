"""LimitRanges as far as we read them, and what they set by namespace."""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final

import msgspec

from cluster.decode.objects import ObjectMeta
from scoring.faults import Fault
from scoring.pod_request import read_amounts
from scoring.protocols import LimitDefaults, LimitMaxima
from scoring.quantity import QuantityError, exact_amount
from scoring.resources import Request, any_resource

_CONTAINER: Final = "Container"

_POD: Final = "Pod"


class LimitRangeItem(msgspec.Struct, frozen=True, rename="camel"):
    """One entry of ``spec.limits``."""

    type: str = ""
    max: dict[str, Any] | None = None
    min: dict[str, Any] | None = None
    default: dict[str, Any] | None = None
    default_request: dict[str, Any] | None = None
    max_limit_request_ratio: dict[str, Any] | None = None


class LimitRangeSpec(msgspec.Struct, frozen=True):
    """``spec`` of a LimitRange."""

    limits: tuple[LimitRangeItem, ...] | None = None


class LimitRange(msgspec.Struct, frozen=True):
    """A LimitRange."""

    metadata: ObjectMeta
    spec: LimitRangeSpec = LimitRangeSpec()


class LimitRangeRecord(msgspec.Struct, frozen=True, gc=False):
    """Record of a LimitRange.

    Attributes
    ----------
    key : str
        Namespace and name.
    """

    key: str
    namespace: str
    maxima: LimitMaxima
    defaults: LimitDefaults = LimitDefaults()


def limit_range_key(item: LimitRange) -> str:
    """Return namespace and name; empty if there is no name."""
    meta = item.metadata
    return f"{meta.namespace}/{meta.name}" if meta.name else ""


def limit_range_record(item: LimitRange) -> tuple[LimitRangeRecord, list[Fault]]:
    """Return the record of a LimitRange and the faults of its amounts."""
    faults: list[Fault] = []
    maxima: dict[str, list[Request]] = {_CONTAINER: [], _POD: []}
    given: list[LimitDefaults] = []
    for index, limit in enumerate(item.spec.limits or ()):
        where = f"spec.limits[{index}]"
        if limit.type in maxima:
            maxima[limit.type].append(_amounts(limit.max, f"{where}.max", faults))
        if limit.type == _CONTAINER:
            given.append(
                LimitDefaults(
                    _amounts(limit.default, f"{where}.default", faults),
                    _amounts(limit.default_request, f"{where}.defaultRequest", faults),
                    _amounts(limit.min, f"{where}.min", faults),
                    _ratios(limit.max_limit_request_ratio, where, faults),
                )
            )
    record = LimitRangeRecord(
        limit_range_key(item),
        item.metadata.namespace,
        LimitMaxima(_least(maxima[_CONTAINER]), _least(maxima[_POD])),
        _together(given),
    )
    return record, faults


def _amounts(
    quantities: dict[str, Any] | None, path: str, faults: list[Fault]
) -> Request:
    """Return amounts in base units; add to `faults`."""
    amounts = read_amounts(
        quantities or {},
        path,
        any_resource,
        lambda path, error: faults.append(_fault(path, error)),
    )
    return tuple(amounts.items())


def _ratios(
    quantities: dict[str, Any] | None, where: str, faults: list[Fault]
) -> tuple[tuple[str, Fraction], ...]:
    """Return ratios, which are no amounts of their resource; add to `faults`."""
    ratios = []
    for name, quantity in (quantities or {}).items():
        try:
            ratios.append((name, exact_amount(quantity)))
        except QuantityError as error:
            path = f"{where}.maxLimitRequestRatio[{name!r}]"
            faults.append(_fault(path, error))
    return tuple(ratios)


def defaults_of(
    records: Iterable[LimitRangeRecord],
) -> Mapping[str, LimitDefaults]:
    """Return namespace -> defaults, the strictest minima and ratios."""
    by_namespace: dict[str, list[LimitDefaults]] = {}
    for record in records:
        if record.defaults != LimitDefaults():
            by_namespace.setdefault(record.namespace, []).append(record.defaults)
    return MappingProxyType(
        {namespace: _together(found) for namespace, found in by_namespace.items()}
    )


def _together(defaults: Iterable[LimitDefaults]) -> LimitDefaults:
    """Return what holds where all of them do."""
    limits: set[tuple[str, int]] = set()
    requests: set[tuple[str, int]] = set()
    minima: dict[str, int] = {}
    ratios: dict[str, Fraction] = {}
    for item in defaults:
        limits.update(item.limits)
        requests.update(item.requests)
        for name, amount in item.minima:
            minima[name] = max(amount, minima.get(name, amount))
        for name, ratio in item.ratios:
            ratios[name] = min(ratio, ratios.get(name, ratio))
    return LimitDefaults(
        tuple(sorted(limits)),
        tuple(sorted(requests)),
        tuple(sorted(minima.items())),
        tuple(sorted(ratios.items())),
    )


def maxima_of(records: Iterable[LimitRangeRecord]) -> Mapping[str, LimitMaxima]:
    """Return namespace -> maxima; of several LimitRanges, the lowest count."""
    by_namespace: dict[str, list[LimitMaxima]] = {}
    for record in records:
        if record.maxima.container or record.maxima.pod:
            by_namespace.setdefault(record.namespace, []).append(record.maxima)
    return MappingProxyType(
        {
            namespace: LimitMaxima(
                _least([item.container for item in found]),
                _least([item.pod for item in found]),
            )
            for namespace, found in by_namespace.items()
        }
    )


def _least(requests: Iterable[Request]) -> Request:
    """Return the least amount of each resource."""
    least: dict[str, int] = {}
    for request in requests:
        for name, amount in request:
            least[name] = min(amount, least.get(name, amount))
    return tuple(sorted(least.items()))


def _fault(path: str, error: QuantityError) -> Fault:
    return Fault(path, str(error))
