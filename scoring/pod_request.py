"""A pod's effective request: containers, init containers, sidecars, overhead."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from scoring.protocols import (
    ContainerSpec,
    ContainerStatus,
    PodSpec,
    PodStatus,
    ResourceMaps,
)
from scoring.quantity import (
    MAX_QUANTITY,
    QuantityError,
    exact_amount,
    parse_amount,
    shorten,
)
from scoring.resources import Request, any_resource

# What `spec.resources` may set: no GPU can come from there.
POD_LEVEL_RESOURCES: Final = ("cpu", "memory")

POD_LEVEL_PREFIX: Final = "hugepages-"

_THOUSANDTHS: Final = 1000


# Told of the path and the error of each quantity that does not parse.
RequestFault: TypeAlias = Callable[[str, QuantityError], None]


def effective_request(
    spec: PodSpec,
    wanted: Callable[[str], bool],
    on_fault: RequestFault,
    status: PodStatus | None = None,
) -> Request:
    """Return what one pod takes from its node.

    Parameters
    ----------
    wanted : callable
        Says of a resource name whether it is looked at; others are skipped.
    on_fault : callable
        Told of each quantity that does not parse; that entry counts as absent.
    status : PodStatus, optional
        Of a pod in the middle of an in-place resize; see `is_resizing`.

    Returns
    -------
    tuple of (str, int)
        Positive amounts in base units, by resource name; each capped at 2^63 - 1.

    Notes
    -----
    The rule is that of ``k8s.io/component-helpers/resource``: containers and sidecars
    (init containers with ``restartPolicy: Always``) add up; an ordinary init container
    needs its own share beside the sidecars listed before it; the larger of both
    counts, plus overhead. Pod-level resources replace the total of cpu, memory and
    huge pages only. A limit without a request is a request; at pod level only where no
    container asks, as ``pkg/apis/core/v1/defaults.go`` fills them in.

    While a pod is resized, the largest of what is asked, allocated and in use counts,
    for each container and sidecar; what is asked does not where the node has found it
    ``Infeasible``. That is the rule of 1.34 to 1.36; 1.37 takes the largest of the
    pod's three sums, which is less where one container shrinks as another one grows.
    """
    resize = None if status is None else _Resize(status, wanted, on_fault)
    running: dict[str, int] = {}
    for index, container in enumerate(spec.containers or ()):
        path = f"spec.containers[{index}].resources"
        amounts = container_amounts(container.resources, path, wanted, on_fault)
        _add(running, amounts if resize is None else resize.of(container, amounts))
    starting: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    for index, container in enumerate(spec.init_containers or ()):
        path = f"spec.initContainers[{index}].resources"
        amounts = container_amounts(container.resources, path, wanted, on_fault)
        is_sidecar = container.restart_policy == "Always"
        if is_sidecar and resize is not None:
            amounts = resize.of(container, amounts)
        # PERF: what the sidecars before it need of other resources counts already. A
        # pod may have thousands of containers, each with a resource of its own.
        for name, amount in amounts.items():
            needed = sidecars.get(name, 0) + amount
            if is_sidecar:
                sidecars[name] = needed
            starting[name] = max(starting.get(name, 0), needed)
    _add(running, sidecars)
    for name, amount in starting.items():
        running[name] = max(running.get(name, 0), amount)
    if spec.resources is not None:
        _replace_by_pod_level(running, spec.resources, wanted, on_fault, resize)
    if spec.overhead:
        _add(running, read_amounts(spec.overhead, "spec.overhead", wanted, on_fault))
    return tuple(
        sorted(
            (name, min(amount, MAX_QUANTITY))
            for name, amount in running.items()
            if amount > 0
        )
    )


def _replace_by_pod_level(
    total: dict[str, int],
    resources: ResourceMaps,
    wanted: Callable[[str], bool],
    on_fault: RequestFault,
    resize: "_Resize | None",
) -> None:
    """Replace the containers' total by the request of the pod as a whole."""
    path = "spec.resources"
    limits = read_amounts(resources.limits or {}, f"{path}.limits", wanted, on_fault)
    for name, amount in limits.items():
        if _is_pod_level(name):
            total.setdefault(name, amount)
    requests = read_amounts(
        resources.requests or {}, f"{path}.requests", wanted, on_fault
    )
    if resize is not None and requests:
        requests = resize.of_pod(requests)
    total.update(
        {name: amount for name, amount in requests.items() if _is_pod_level(name)}
    )


class LargestShare(NamedTuple):
    """The container that asks the most of a resource, and what the pod asks beside it.

    Attributes
    ----------
    container : str
        Its name; empty where no other asks of it, and for what the pod asks as a whole.
    beside : int
        What else counts while it runs: other containers, sidecars, overhead.
    least : int
        What the pod would ask if this container asked nothing.
    overhead : int
        The part of the pod's runtime class.
    """

    resource: str
    container: str = ""
    beside: int = 0
    least: int = 0
    overhead: int = 0


def largest_shares(spec: PodSpec) -> tuple[LargestShare, ...]:
    """Return whose ask decides what a pod asks, of each resource that several ask.

    A pod asks a total, from `least` on, where that container asks `beside` less.
    Quantities that do not parse count as absent.
    """
    read = _Asks()
    for container in spec.containers or ():
        read.add_running(container)
    for container in spec.init_containers or ():
        read.add_starting(container)
    overhead = read_amounts(spec.overhead or {}, "", any_resource, _ignore)
    pod_level = () if spec.resources is None else _pod_level_of(spec.resources)
    found = []
    for resource in sorted({*read.running, *read.starting, *overhead}):
        more = overhead.get(resource, 0)
        share = LargestShare(resource, "", more, more, more)
        is_asked = resource in read.running or resource in read.starting
        if is_asked and resource not in pod_level:
            share = read.largest(resource, more)
        if share != LargestShare(resource):
            found.append(share)
    return tuple(found)


class _Asks:
    """What containers ask, by resource, with what runs beside each."""

    def __init__(self) -> None:
        self._sidecars: dict[str, int] = {}
        # resource -> (container, its ask)
        self.running: dict[str, list[tuple[str, int]]] = {}
        # resource -> (init container, its ask, what the sidecars before it ask)
        self.starting: dict[str, list[tuple[str, int, int]]] = {}

    def add_running(self, container: ContainerSpec) -> None:
        """Take a container that runs until the pod ends."""
        for name, amount in _asks_of(container).items():
            self.running.setdefault(name, []).append((container.name, amount))

    def add_starting(self, container: ContainerSpec) -> None:
        """Take an init container, those before it being known."""
        if container.restart_policy == "Always":
            self.add_running(container)
            _add(self._sidecars, _asks_of(container))
            return
        for name, amount in _asks_of(container).items():
            beside = self._sidecars.get(name, 0)
            asks = self.starting.setdefault(name, [])
            asks.append((container.name, amount, beside))

    def largest(self, resource: str, overhead: int) -> LargestShare:
        """Return the share of the container that decides what the pod asks."""
        running = self.running.get(resource, [])
        starting = self.starting.get(resource, [])
        total = sum(amount for _, amount in running)
        peaks = sorted((amount + beside for _, amount, beside in starting))
        if peaks and peaks[-1] > total:
            container, _, beside = max(starting, key=lambda ask: ask[1] + ask[2])
            least = max(total, beside, *peaks[:-1])
        else:
            container, amount = max(running, key=lambda ask: ask[1])
            beside = total - amount
            least = max(beside, *peaks[-1:], 0)
        is_only = len(running) + len(starting) == 1
        name = "" if is_only else container
        return LargestShare(
            resource, name, beside + overhead, least + overhead, overhead
        )


def _asks_of(container: ContainerSpec) -> dict[str, int]:
    amounts = container_amounts(container.resources, "", any_resource, _ignore)
    return {name: amount for name, amount in amounts.items() if amount}


def _ignore(_path: str, _error: QuantityError) -> None:
    """Take no notice of a quantity that does not parse."""


def _pod_level_of(resources: ResourceMaps) -> frozenset[str]:
    """Return which resources a pod asks as a whole, whatever its containers do."""
    return frozenset(filter(_is_pod_level, resources.requests or ()))


def is_resizing(spec: PodSpec, status: PodStatus) -> bool:
    """Whether the status tells of other amounts than the spec asks.

    Read as text: a kubelet repeats the quantities of the spec.
    """
    asked = {container.name: container.resources for container in spec.containers or ()}
    for container in spec.init_containers or ():
        asked[container.name] = container.resources
    for item in (
        *(status.container_statuses or ()),
        *(status.init_container_statuses or ()),
    ):
        if item.resources is not None and not _is_same(
            asked.get(item.name), item.resources, item.allocated_resources
        ):
            return True
    return status.resources is not None and not _is_same(
        spec.resources, status.resources, status.allocated_resources
    )


def _is_same(
    asked: ResourceMaps | None, used: ResourceMaps, allocated: Mapping[str, Any] | None
) -> bool:
    """Whether all three say the same; what is in use is all said, if nothing is."""
    requests = (asked and asked.requests) or {}
    return (used.requests or {}) == requests and (allocated or requests) == requests


class _Resize:
    """What the status of a pod says that its containers, or it as a whole, take."""

    def __init__(
        self, status: PodStatus, wanted: Callable[[str], bool], on_fault: RequestFault
    ) -> None:
        self._status = status
        self._wanted = wanted
        self._on_fault = on_fault
        self._is_infeasible = _is_infeasible(status)
        self._containers: dict[str, tuple[str, ContainerStatus]] = {}
        for key, statuses in (
            ("containerStatuses", status.container_statuses),
            ("initContainerStatuses", status.init_container_statuses),
        ):
            for index, item in enumerate(statuses or ()):
                self._containers[item.name] = f"status.{key}[{index}]", item

    def of(self, container: ContainerSpec, asked: dict[str, int]) -> dict[str, int]:
        """Return the amounts of a container or sidecar that asks so much."""
        path, status = self._containers.get(container.name, ("", None))
        if status is None or status.resources is None:
            return asked
        return self._largest(
            asked, status.resources.requests, status.allocated_resources, path
        )

    def of_pod(self, asked: dict[str, int]) -> dict[str, int]:
        """Return the amounts of a pod that asks so much as a whole."""
        status = self._status
        if status.resources is None:
            return asked
        return self._largest(
            asked, status.resources.requests, status.allocated_resources, "status"
        )

    def _largest(
        self,
        asked: Mapping[str, int],
        used: Mapping[str, Any] | None,
        allocated: Mapping[str, Any] | None,
        path: str,
    ) -> dict[str, int]:
        """Return, by resource, the largest amount that counts."""
        largest = {} if self._is_infeasible else dict(asked)
        for quantities, where in (
            (used, f"{path}.resources.requests"),
            (allocated, f"{path}.allocatedResources"),
        ):
            amounts = read_amounts(
                quantities or {}, where, self._wanted, self._on_fault
            )
            for name, amount in amounts.items():
                largest[name] = max(amount, largest.get(name, 0))
        return largest


def _is_infeasible(status: PodStatus) -> bool:
    """Whether the node has refused the resize for good."""
    for condition in status.conditions or ():
        if condition.type == "PodResizePending":
            return condition.reason == "Infeasible"
    return False


def _is_pod_level(name: str) -> bool:
    """Whether ``spec.resources`` may set the resource."""
    return name in POD_LEVEL_RESOURCES or name.startswith(POD_LEVEL_PREFIX)


def container_amounts(
    resources: ResourceMaps | None,
    path: str,
    wanted: Callable[[str], bool],
    on_fault: RequestFault,
) -> dict[str, int]:
    """Return one container's amounts: its requests, else its limits."""
    if resources is None:
        return {}
    amounts: dict[str, int] = {}
    if resources.limits:
        amounts = read_amounts(resources.limits, f"{path}.limits", wanted, on_fault)
    if resources.requests:
        amounts.update(
            read_amounts(resources.requests, f"{path}.requests", wanted, on_fault)
        )
    return amounts


def extended_fault(resources: ResourceMaps | None, name: str) -> str:
    """Return why Kubernetes refuses what a container asks of an extended resource.

    Empty if it does not, and for a quantity that cannot be read, which others name. A
    request without a limit is not named, either: Kubernetes refuses it, and injection
    gives it the limit.

    Notes
    -----
    ``ValidateResourceQuantityValue`` and ``validateResourceRequirements`` in
    ``pkg/apis/core/validation/validation.go``: whole pieces, once rounded up to a
    thousandth, and equal.
    """
    if resources is None:
        return ""
    given = {
        side: quantities[name]
        for side, quantities in (
            ("request", resources.requests or {}),
            ("limit", resources.limits or {}),
        )
        if name in quantities
    }
    try:
        amounts = {side: exact_amount(quantity) for side, quantity in given.items()}
    except QuantityError:
        return ""
    for side, amount in amounts.items():
        if math.ceil(amount * _THOUSANDTHS) % _THOUSANDTHS:
            return f"{side} {shorten(given[side])} is not a whole number"
    if len(set(amounts.values())) > 1:
        said = " and ".join(f"{side} {given[side]}" for side in given)
        return f"{said} are not equal"
    return ""


def read_amounts(
    quantities: Mapping[str, Any],
    path: str,
    wanted: Callable[[str], bool],
    on_fault: RequestFault,
) -> dict[str, int]:
    """Return the wanted `quantities` in base units; faults go to `on_fault`."""
    amounts: dict[str, int] = {}
    for name, quantity in quantities.items():
        if wanted(name):
            try:
                amounts[name] = parse_amount(name, quantity)
            except QuantityError as error:
                on_fault(f"{path}[{name!r}]", error)
    return amounts


def _add(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    """Add `amounts` to `total` in place."""
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount
