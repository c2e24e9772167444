"""LimitRanges as far as we read them, and the maxima that they set by namespace."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from cluster.decode.objects import ObjectMeta
from scoring.faults import Fault
from scoring.pod_request import read_amounts
from scoring.protocols import LimitMaxima
from scoring.quantity import QuantityError
from scoring.resources import Request

_CONTAINER: Final = "Container"

_POD: Final = "Pod"


class LimitRangeItem(msgspec.Struct, frozen=True):
    """One entry of ``spec.limits``; defaults and minima are LimitRanger's business."""

    type: str = ""
    max: dict[str, Any] | None = None


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


def limit_range_key(item: LimitRange) -> str:
    """Return namespace and name; empty if there is no name."""
    meta = item.metadata
    return f"{meta.namespace}/{meta.name}" if meta.name else ""


def limit_range_record(item: LimitRange) -> tuple[LimitRangeRecord, list[Fault]]:
    """Return the record of a LimitRange and the faults of its amounts."""
    faults: list[Fault] = []
    found: dict[str, list[Request]] = {_CONTAINER: [], _POD: []}
    for index, limit in enumerate(item.spec.limits or ()):
        if limit.type in found:
            amounts = read_amounts(
                limit.max or {},
                f"spec.limits[{index}].max",
                lambda _name: True,
                lambda path, error: faults.append(_fault(path, error)),
            )
            found[limit.type].append(tuple(amounts.items()))
    maxima = LimitMaxima(_least(found[_CONTAINER]), _least(found[_POD]))
    namespace = item.metadata.namespace
    return LimitRangeRecord(limit_range_key(item), namespace, maxima), faults


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
