"""What the API server refuses of the amounts of a pod, in its own words.

What LimitRanger says of amounts that are stated (``plugin/pkg/admission/limitranger``)
stands here, too; what it fills in first is not known, and refuses nothing here.

The checks of ``validateResourceRequirements`` in ``pkg/apis/core/validation`` of
Kubernetes 1.37, on amounts that can be read: limits and requests agree, and extended
resources are whole.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from typing import Any, Final, TypeAlias

from cluster.decode.objects import PodSpec, ResourceRequirements
from scoring.names import is_extended_resource
from scoring.protocols import LimitDefaults, LimitMaxima
from scoring.quantity import (
    QuantityError,
    exact_amount,
    format_quantity,
    scale_of,
    shorten,
)
from scoring.resources import BYTE_RESOURCES, Request

HUGE_PAGES: Final = "hugepages-"

# A text of three lines has room for two.
MAX_TOLD: Final = 2

# Limits and requests by resource, in cores, bytes or pieces.
_Sides: TypeAlias = tuple[dict[str, Fraction], dict[str, Fraction]]

# Without one of them, huge pages are refused.
_COMPUTE: Final = frozenset({"cpu", "memory"})

_THOUSANDTHS: Final = 1000


@dataclass(frozen=True, slots=True)
class Refusal:
    """One field that the API server refuses.

    Attributes
    ----------
    text : str
        As it writes it, with the path.
    remedy : str
        What the pod's author would write.
    """

    text: str
    remedy: str


def list_refusals(spec: PodSpec, prefix: str = "") -> list[Refusal]:
    """Return what is refused of a pod's containers, and of the pod as a whole.

    `prefix` stands before each path, as that of a template does.
    """
    found: list[Refusal] = []
    for key, containers in (
        ("initContainers", spec.init_containers),
        ("containers", spec.containers),
    ):
        for index, container in enumerate(containers or ()):
            if container.resources is not None:
                path = f"{prefix}spec.{key}[{index}].resources"
                found += _refusals_of(container.resources, path)
    if spec.resources is not None:
        found += _refusals_of(spec.resources, f"{prefix}spec.resources")
    return found


def _refusals_of(resources: ResourceRequirements, path: str) -> Iterator[Refusal]:
    """Yield what is refused of one ``resources``."""
    limits, requests = resources.limits or {}, resources.requests or {}
    for side, amounts in (("limits", limits), ("requests", {**limits, **requests})):
        for name, given in amounts.items():
            amount = _read(given)
            if (
                is_extended_resource(name)
                and math.ceil(amount * _THOUSANDTHS) % _THOUSANDTHS
            ):
                where = f"{path}.{side}[{name}]"
                text = f'{where}: Invalid value: "{_show(given)}": must be an integer'
                yield Refusal(text, f"ask for a whole number of {name}")
    for name, given in requests.items():
        yield from _unequal(name, given, limits, path)
    names = {*limits, *requests}
    if any(map(_is_huge, names)) and not names & _COMPUTE:
        text = f"{path}: Forbidden: HugePages require cpu or memory"
        yield Refusal(text, "state cpu or memory beside the huge pages")


def list_limit_refusals(
    spec: PodSpec, maxima: LimitMaxima, defaults: LimitDefaults
) -> list[Refusal]:
    """Return what the LimitRanges of a namespace refuse of a pod, whatever else it is.

    Parameters
    ----------
    maxima, defaults
        Of the namespace.
    """
    found: list[Refusal] = []
    for container in (*(spec.init_containers or ()), *(spec.containers or ())):
        sides = _sides(container.resources)
        where = f"in container {shorten(container.name)}"
        found += _outside("max", "Container", maxima.container, sides, where)
        found += _outside("min", "Container", defaults.minima, sides, where)
        found += _above_ratio(defaults, sides, where)
    if spec.resources is None:  # those of the pod as a whole count in their place
        sums: _Sides = {}, {}
        for container in spec.containers or ():
            own = _sides(container.resources)
            for total, amounts in zip(sums, own, strict=True):
                for name, given in amounts.items():
                    total[name] = total.get(name, Fraction(0)) + given
        found += _outside("max", "Pod", maxima.pod, sums, "in all containers")
    return found


def _sides(resources: ResourceRequirements | None) -> _Sides:
    """Return limits and requests; a limit alone is the request, too."""
    if resources is None:
        return {}, {}
    limits = {name: _read(given) for name, given in (resources.limits or {}).items()}
    requests = resources.requests or {}
    return limits, limits | {name: _read(given) for name, given in requests.items()}


def _outside(
    bound: str,
    kind: str,
    enforced: Request,
    sides: _Sides,
    where: str,
) -> Iterator[Refusal]:
    """Yield where an amount is above a maximum, or below a minimum.

    `bound` is the field of the LimitRange, ``max`` or ``min``. Of a maximum,
    LimitRanger looks at the limit first, of a minimum at the request.
    """
    is_max = bound == "max"
    named = [("limit", sides[0]), ("request", sides[1])]
    for name, amount in enforced:
        most = Fraction(amount, scale_of(name))
        for side, amounts in named if is_max else named[::-1]:
            given = amounts.get(name)
            if given is None or not (given > most if is_max else given < most):
                continue
            word = "maximum" if is_max else "minimum"
            wanted = _in_units(name, most)
            least = "most" if is_max else "least"
            has = _in_units(name, given)
            yield Refusal(
                f"{word} {name} usage per {kind} is {wanted}, but {side} is {has}",
                f"ask for at {least} {wanted} {name} {where}, or have that {bound}"
                " changed",
            )
            break


def _above_ratio(
    defaults: LimitDefaults, sides: _Sides, where: str
) -> Iterator[Refusal]:
    """Yield where a limit is too many times the request."""
    for name, ratio in defaults.ratios:
        limit, request = (amounts.get(name) for amounts in sides)
        if limit is None or not request or limit / request <= ratio:
            continue
        most = format_quantity(ratio, is_binary=False)
        yield Refusal(
            f"{name} max limit to request ratio per Container is {most}, but provided"
            f" ratio is {float(limit / request):.6f}",
            f"request more {name} {where}, or lower its limit, to at most {most} times"
            " the request",
        )


def _in_units(resource: str, amount: Fraction) -> str:
    return format_quantity(amount, is_binary=resource in BYTE_RESOURCES)


def _unequal(
    name: str, given: Any, limits: Mapping[str, Any], path: str
) -> Iterator[Refusal]:
    """Yield what is refused of a request beside the limit of the same resource."""
    is_equal_wanted = is_extended_resource(name) or _is_huge(name)
    if name not in limits:
        if is_equal_wanted:
            yield Refusal(
                f"{path}.limits: Required value: Limit must be set for non"
                " overcommitable resources",
                f"state {name} under limits, as under requests",
            )
        return
    request, limit = _read(given), _read(limits[name])
    told = f'{path}.requests: Invalid value: "{_show(given)}": must be'
    if is_equal_wanted and request != limit:
        yield Refusal(
            f"{told} equal to {name} limit of {_show(limits[name])}",
            f"state the same {name} under requests and limits",
        )
    elif request > limit:
        yield Refusal(
            f"{told} less than or equal to {name} limit of {_show(limits[name])}",
            f"request no more {name} than the limit, or raise that",
        )


def tell_refusals(refusals: list[Refusal]) -> tuple[str, str]:
    """Return the first refusals as one text, and what mends them as another.

    >>> tell_refusals([Refusal("a", "x"), Refusal("b", "x"), Refusal("c", "y")])
    ('a; b; and 1 more', 'x')
    """
    texts = [refusal.text for refusal in refusals[:MAX_TOLD]]
    more = len(refusals) - MAX_TOLD
    last = [f"and {more} more"] if more > 0 else []
    remedies = dict.fromkeys(refusal.remedy for refusal in refusals[:MAX_TOLD])
    return "; ".join(chain(texts, last)), ", and ".join(remedies)


def _is_huge(name: str) -> bool:
    return name.startswith(HUGE_PAGES)


def _read(given: Any) -> Fraction:
    """Return a quantity in cores, bytes or pieces; nothing for one that is none."""
    try:
        return exact_amount(given)
    except QuantityError:
        return Fraction(0)  # told as a fault of the manifest


def _show(given: Any) -> str:
    """Return a quantity as the API server prints it."""
    text = str(given)
    return format_quantity(_read(given), is_binary=text.endswith("i"))
