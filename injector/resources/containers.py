"""Exact amounts of each container of a pod, and which of them LimitRanger filled in."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final

from cluster.decode.objects import Container, Pod
from injector.admitted_pod import LIMIT_RANGER_ANNOTATION
from injector.rules.fields import page_size
from scoring.faults import Fault
from scoring.quantity import QuantityError, exact_amount, shorten

NOTHING: Final = Fraction(0)

REQUESTS: Final = "requests"

LIMITS: Final = "limits"

REGULAR: Final = "containers"

INIT: Final = "initContainers"

_KINDS: Final = MappingProxyType({REGULAR: "container", INIT: "init container"})

# "cpu, memory request for container main", as the admission plugin writes it:
# plugin/pkg/admission/limitranger/admission.go
# A line break ends no name: a clause in which it did would be tried at each "for".
_FILLED: Final = re.compile(
    r"(.+) (request|limit) for (?:init )?container (.+)", re.DOTALL
)

_FILLED_PREFIX: Final = "LimitRanger plugin set: "


@dataclass(frozen=True, slots=True)
class ContainerAmounts:
    """Requests and limits of one container, in cores, bytes and pieces.

    Attributes
    ----------
    index : int
        Position among the containers of its kind.
    kind : str
        Name of the list that it is in, ``containers`` or ``initContainers``.
    requests, limits : mapping
        resource -> amount
    """

    index: int
    name: str
    requests: Mapping[str, Fraction]
    limits: Mapping[str, Fraction]
    kind: str = REGULAR

    @property
    def place(self) -> tuple[str, int]:
        """The list that it is in, and its position there."""
        return self.kind, self.index

    def requested(self, resource: str) -> Fraction:
        """Return the request, else the limit, else 0."""
        return self.requests.get(resource, self.limits.get(resource, NOTHING))

    def standard_fault(self, resource: str) -> str:
        """Return why Kubernetes refuses amounts of cpu and the like, if it does."""
        request, limit = self.requests.get(resource), self.limits.get(resource)
        if request is None or limit is None or request <= limit:
            return ""
        return "request is above its limit"

    def huge_pages_fault(self) -> str:
        """Return why Kubernetes refuses the huge pages that are asked, if it does."""
        asked = {**self.requests, **self.limits}
        pages = {name: size for name in asked if (size := page_size(name))}
        for name, size in pages.items():
            for side in (self.requests, self.limits):
                if side.get(name, NOTHING) % size:
                    return f"{name} is not a whole number of pages"
        if pages and asked.keys().isdisjoint(("cpu", "memory")):
            return f"{min(pages)} needs cpu or memory beside it"
        return ""

    def count(self, gpu_resource: str) -> int:
        """Return how many GPUs the container gets: its limit, else its request."""
        amount = self.limits.get(gpu_resource)
        if amount is None:
            amount = self.requests.get(gpu_resource)
        return 0 if amount is None else math.ceil(amount)


@dataclass(frozen=True, slots=True)
class PodContainers:
    """The containers of a pod that run side by side.

    Attributes
    ----------
    sidecars : tuple of ContainerAmounts
        Init containers that go on running.
    starting : tuple of ContainerAmounts
        Init containers that end before the others start.
    faults : tuple of Fault
        Quantities that Kubernetes would not accept, of any container.
    """

    regular: tuple[ContainerAmounts, ...]
    sidecars: tuple[ContainerAmounts, ...]
    starting: tuple[ContainerAmounts, ...]
    faults: tuple[Fault, ...]

    @property
    def running(self) -> tuple[ContainerAmounts, ...]:
        """Those that run side by side, the regular ones first."""
        return (*self.regular, *self.sidecars)


def container_side(container: ContainerAmounts, side: str) -> Mapping[str, Fraction]:
    """Return the requests or the limits of `container`."""
    return container.requests if side == REQUESTS else container.limits


def read_containers(pod: Pod) -> PodContainers:
    """Return what the containers of `pod` ask."""
    faults: list[Fault] = []
    init_containers = pod.spec.init_containers or ()
    all_init = _amounts_of(init_containers, INIT, faults)
    restartable = {
        index
        for index, container in enumerate(init_containers)
        if container.restart_policy == "Always"
    }
    return PodContainers(
        regular=_amounts_of(pod.spec.containers or (), REGULAR, faults),
        sidecars=tuple(item for item in all_init if item.index in restartable),
        starting=tuple(item for item in all_init if item.index not in restartable),
        faults=tuple(faults),
    )


def _amounts_of(
    containers: Sequence[Container], kind: str, faults: list[Fault]
) -> tuple[ContainerAmounts, ...]:
    """Return the amounts of containers of one kind; add to `faults`."""
    found = []
    for index, container in enumerate(containers):
        name = container.name or str(index)
        resources = container.resources
        requests = resources.requests if resources else None
        limits = resources.limits if resources else None
        where = _KINDS[kind], name
        found.append(
            ContainerAmounts(
                index,
                name,
                _exact(requests or {}, (*where, "request"), faults),
                _exact(limits or {}, (*where, "limit"), faults),
                kind,
            )
        )
    return tuple(found)


def _exact(
    quantities: Mapping[str, Any], where: tuple[str, str, str], faults: list[Fault]
) -> dict[str, Fraction]:
    """Return exact amounts; what is no quantity is left out and named.

    Parameters
    ----------
    where : tuple of (str, str, str)
        Kind and name of the container, and which of its quantities these are.
    faults : list of Fault
        Is added to.
    """
    amounts: dict[str, Fraction] = {}
    for resource, quantity in quantities.items():
        try:
            amounts[resource] = exact_amount(quantity)
        except QuantityError as error:
            kind, name, side = where
            path = f"{kind} {shorten(name)}: {side} of {shorten(resource)}"
            faults.append(Fault(path, str(error)))
    return amounts


def filled_by_limit_ranger(
    annotations: Mapping[str, str],
) -> frozenset[tuple[str, str, str]]:
    """Return what LimitRanger set in containers and init containers.

    Returns
    -------
    frozenset of (str, str, str)
        Container name, ``requests`` or ``limits``, resource.
    """
    text = annotations.get(LIMIT_RANGER_ANNOTATION)
    if not text:
        return frozenset()
    return frozenset(_filled(text.removeprefix(_FILLED_PREFIX).split("; ")))


def _filled(clauses: Iterable[str]) -> Iterable[tuple[str, str, str]]:
    """Yield container, map and resource of each clause that is understood."""
    for clause in clauses:
        match = _FILLED.fullmatch(clause)
        if match is not None:
            resources, side, container = match.groups()
            for resource in resources.split(", "):
                yield container, f"{side}s", resource
