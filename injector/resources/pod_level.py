"""Amounts for a pod as a whole: what somebody wrote, and what the API server derived.

The API server derives pod level from containers where the pod level is set in part,
``defaultHugePagePodLimits`` and ``defaultPodRequests`` in
``pkg/apis/core/v1/defaults.go``. What it derived is nobody's word, and has to follow
what is injected: the API server refuses a pod whose containers ask more.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from cluster.decode.objects import Pod
from injector.resources.containers import (
    LIMITS,
    NOTHING,
    REQUESTS,
    PodContainers,
    container_side,
)
from injector.rules.fields import page_size
from scoring.quantity import QuantityError, exact_amount, format_quantity
from scoring.resources import CPU

# Of the pod level in a note of what was filled in; no container has this name.
POD: Final = ""

_OVERCOMMITTED: Final = (CPU, "memory")

# resource -> amount
Amounts = Mapping[str, Fraction]


@dataclass(frozen=True, slots=True)
class PodLevel:
    """What ``spec.resources`` says of a pod.

    Attributes
    ----------
    requests, limits : mapping
        resource -> amount, as far as it can be read
    written : frozenset of str
        Resources that somebody set.
    """

    requests: Amounts
    limits: Amounts
    written: frozenset[str]

    def derived_from(self, containers: PodContainers) -> dict[str, dict[str, Fraction]]:
        """Return what the API server derives, by ``requests`` and ``limits``.

        Only resources that nobody set are in it.
        """
        if not (self.requests or self.limits):
            return {}
        limits = {
            name: amount
            for name, amount in total_of(containers, LIMITS).items()
            if page_size(name) and name not in self.written
        }
        if not (limits or self.limits.keys() & self.written):
            return {}
        requests = {
            name: amount
            for name, amount in total_of(containers, REQUESTS).items()
            if name in _OVERCOMMITTED and name not in self.written
        }
        return {REQUESTS: {**requests, **limits}, LIMITS: limits}


def read_pod_level(
    pod: Pod, containers: PodContainers, noted: Mapping[str, Mapping[str, str]]
) -> PodLevel:
    """Return the pod level of `pod`.

    Parameters
    ----------
    noted : mapping
        ``requests`` or ``limits`` -> resource -> quantity that an earlier review wrote
        because it was derived.
    """
    resources = pod.spec.resources
    given = {
        REQUESTS: (resources.requests if resources else None) or {},
        LIMITS: (resources.limits if resources else None) or {},
    }
    amounts = {side: _readable(quantities) for side, quantities in given.items()}
    totals = {side: total_of(containers, side) for side in given}
    names = {*given[REQUESTS], *given[LIMITS]}

    def is_derived(name: str, side: str) -> bool:
        said = given[side].get(name)
        if said is None or amounts[side].get(name) is None:
            return False
        ours = _readable(noted.get(side, {})).get(name)
        return amounts[side][name] in (totals[side].get(name), ours)

    derived = {
        name
        for name in names
        if (
            name in _OVERCOMMITTED
            and name not in given[LIMITS]
            and is_derived(name, REQUESTS)
        )
        or (
            page_size(name)
            and is_derived(name, LIMITS)
            and amounts[REQUESTS].get(name) == amounts[LIMITS][name]
        )
    }
    # Without limits nothing is derived.
    written = frozenset(names - derived if given[LIMITS] else names)
    return PodLevel(amounts[REQUESTS], amounts[LIMITS], written)


def default_pod_level(resources: dict[str, Any], containers: PodContainers) -> None:
    """Derive what ``spec.resources`` lacks, in place, as the API server does."""
    limits = dict(resources.get(LIMITS) or {})
    requests = dict(resources.get(REQUESTS) or {})
    if not (limits or requests):
        return
    for name, amount in total_of(containers, LIMITS).items():
        if page_size(name) and name not in requests:
            limits.setdefault(name, show_derived(name, amount))
    if limits:
        for name, amount in total_of(containers, REQUESTS).items():
            if name in _OVERCOMMITTED:
                requests.setdefault(name, show_derived(name, amount))
        requests = {**limits, **requests}
    resources.update({LIMITS: limits} if limits else {}, **{REQUESTS: requests})


def show_derived(resource: str, amount: Fraction) -> str:
    """Return an amount of the pod level as a quantity."""
    return format_quantity(amount, is_binary=resource != CPU)


def total_of(containers: PodContainers, side: str) -> dict[str, Fraction]:
    """Return what the containers of a pod ask together, exactly.

    As ``AggregateContainerRequests`` in ``k8s.io/component-helpers/resource`` has it:
    an init container that ends needs its own beside the sidecars before it.
    """
    total: dict[str, Fraction] = {}
    for item in containers.regular:
        _add(total, container_side(item, side))
    sidecars: dict[str, Fraction] = {}
    starting: dict[str, Fraction] = {}
    restartable = {item.index for item in containers.sidecars}
    init = sorted(
        (*containers.sidecars, *containers.starting), key=lambda item: item.index
    )
    for item in init:
        amounts = container_side(item, side)
        if item.index in restartable:
            _add(sidecars, amounts)
            needed: Amounts = sidecars
        else:
            alone = dict(sidecars)
            _add(alone, amounts)
            needed = alone
        for name, amount in needed.items():
            starting[name] = max(starting.get(name, NOTHING), amount)
    _add(total, sidecars)
    for name, amount in starting.items():
        total[name] = max(total.get(name, NOTHING), amount)
    return total


def _readable(quantities: Mapping[str, object]) -> dict[str, Fraction]:
    """Return those quantities that can be read."""
    amounts = {}
    for name, quantity in quantities.items():
        try:
            amounts[name] = exact_amount(quantity)
        except QuantityError:
            continue
    return amounts


def _add(total: dict[str, Fraction], amounts: Amounts) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, NOTHING) + amount
