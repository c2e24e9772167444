"""Forms that a pod can take along its chains, and putting one into effect."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from cluster.decode.objects import Container, PodSpec, ResourceRequirements
from injector.admitted_pod import FallenResource
from injector.fallback.chains import Chains, short_name
from injector.fallback.choice import Alternative
from injector.fallback.simulation import MinimumGpu
from scoring.faults import Fault
from scoring.pod_request import (
    RequestFault,
    container_amounts,
    effective_request,
    extended_fault,
)
from scoring.quantity import QuantityError, parse_amount
from scoring.resources import any_resource, is_whole_gpu, profile_memory_gib

# A pod that asks for one resource has a handful; more need several long chains at once.
MAX_ALTERNATIVES: Final = 256

# Containers, in all forms together; a pod may have thousands.
MAX_REREAD: Final = 8192

# Characters; one that we write names each container once for each of its resources.
_MAX_RECORD: Final = 16384

CONTAINER_LISTS: Final = ("containers", "initContainers")


@dataclass(frozen=True, slots=True)
class ContainerChange:
    """A change of one container: what it asked before, and what became of it.

    Attributes
    ----------
    substitutions : tuple of (str, str)
        Resource and what it became.
    original : tuple of (str, int)
        Resource and how many of it were asked.
    """

    container: str
    substitutions: tuple[tuple[str, str], ...]
    original: tuple[tuple[str, int], ...]


def named_resources(spec: PodSpec) -> Iterator[str]:
    """Yield each resource that a container names, however much it asks of it."""
    for container in (*(spec.containers or ()), *(spec.init_containers or ())):
        if container.resources is not None:
            yield from container.resources.limits or ()
            yield from container.resources.requests or ()


def read_alternatives(
    spec: PodSpec, chains: Chains, *, takes_shares: bool
) -> tuple[list[Alternative], list[Fault]]:
    """Return the alternatives of a pod as `build_alternatives` does, and its faults."""
    faults: list[Fault] = []

    def collect(path: str, error: QuantityError) -> None:
        faults.append(Fault(path, str(error)))

    amounts = chain_amounts(spec, chains, collect)
    faults += refused_amounts(spec, chains)
    return build_alternatives(amounts, chains, takes_shares=takes_shares), faults


def refused_amounts(spec: PodSpec, chains: Chains) -> Iterator[Fault]:
    """Yield what Kubernetes has against the pod: a change must not hide it.

    A request without a limit beside limits of other members would get one.
    """
    for name, containers in (
        ("containers", spec.containers),
        ("initContainers", spec.init_containers),
    ):
        for index, container in enumerate(containers or ()):
            for message in _refused_in(container.resources, chains):
                yield Fault(f"spec.{name}[{index}].resources", message)


def _refused_in(
    resources: ResourceRequirements | None, chains: Chains
) -> Iterator[str]:
    if resources is None:
        return
    limits, requests = resources.limits or {}, resources.requests or {}
    members = list(filter(chains.is_member, {**requests, **limits}))
    is_limited = any(member in limits for member in members)
    for member in members:
        said = extended_fault(resources, member)
        if not said and is_limited and member not in limits:
            said = "request without a limit"
        if said:
            yield f"{member}: {said}"


def chain_amounts(spec: PodSpec, chains: Chains, on_fault: RequestFault) -> PodSpec:
    """Return `spec` with nothing left in it but amounts of chain members, as requests.

    Limits are what containers ask where they have no request, as always.
    """

    def reduced(containers: Sequence[Container] | None, name: str) -> Iterator[Any]:
        for index, container in enumerate(containers or ()):
            path = f"spec.{name}[{index}].resources"
            amounts = container_amounts(
                container.resources, path, chains.is_member, on_fault
            )
            yield _asking(container, amounts)

    return PodSpec(
        containers=tuple(reduced(spec.containers, "containers")),
        init_containers=tuple(reduced(spec.init_containers, "initContainers")),
    )


def build_alternatives(
    amounts: PodSpec, chains: Chains, *, takes_shares: bool
) -> list[Alternative]:
    """Return the forms that the pod can take, best first; the first changes nothing.

    Parameters
    ----------
    amounts : PodSpec
        As `chain_amounts` returns it.
    takes_shares : bool
        Whether shared and sliced GPUs may stand in for whole ones.

    Returns
    -------
    list of Alternative
        Empty if the pod asks for nothing that can fall.

    Notes
    -----
    The same resource becomes the same in all containers. Of several resources the
    fewest steps altogether come first, and among equals those that spare the resources
    named first in the chains.
    """
    unchanged = _effective(amounts, {})
    sources = chains.in_order(dict(unchanged))
    if not sources:
        return []
    alternatives = [Alternative((), unchanged)]
    containers = len(amounts.containers or ()) + len(amounts.init_containers or ())
    most = min(MAX_ALTERNATIVES, 1 + MAX_REREAD // max(containers, 1))
    for substitutions in islice(_all_substitutions(sources, chains), 1, most):
        request = _effective(amounts, dict(substitutions))
        gpu = _minimum_gpu(substitutions, takes_shares)
        alternatives.append(Alternative(substitutions, request, gpu))
    return alternatives


def _all_substitutions(
    sources: Sequence[str], chains: Chains
) -> Iterator[tuple[tuple[str, str], ...]]:
    """Yield what `sources` can become, the fewest steps first: none at first.

    Nothing falls to what itself falls further, to push out what might have stayed.
    """
    tails = [chains.tail(source) for source in sources]
    for steps in _by_steps([len(tail) for tail in tails]):
        substitutions = tuple(
            (source, tail[step - 1])
            for source, tail, step in zip(sources, tails, steps, strict=True)
            if step
        )
        if {source for source, _ in substitutions}.isdisjoint(
            target for _, target in substitutions
        ):
            yield substitutions


def substitute_resources(
    pod: dict[str, Any], substitutions: Mapping[str, str]
) -> list[ContainerChange]:
    """Make the substitutions in every container that asks; return what changed.

    Requests and limits both change. What the container asks of a target already is
    added to. No target may be a source, as in an `Alternative`.
    """
    changes = []
    for name in CONTAINER_LISTS:
        for container in pod["spec"].get(name) or ():
            change = _substitute_in(container, substitutions)
            if change is not None:
                changes.append(change)
    return changes


def fallen_resources(changes: Sequence[ContainerChange]) -> tuple[FallenResource, ...]:
    """Return the changes by container and resource."""
    return tuple(
        FallenResource(change.container, source, target, dict(change.original)[source])
        for change in changes
        for source, target in change.substitutions
    )


def read_record(
    text: str, ended_with: Collection[str], chains: Chains
) -> tuple[FallenResource, ...]:
    """Return what a record of an earlier review says that fell.

    Parameters
    ----------
    text : str
        As `format_record` returns it; anybody may have written it.
    ended_with : collection of str
        The resources of the pod's mark. What fell to anything else, or not along a
        chain, is left out.
    """
    found = []
    for entry in text.split(",") if len(text) <= _MAX_RECORD else ():
        container, _, names = entry.rpartition("=")
        source_name, _, target_name = names.partition("->")
        found += [
            FallenResource(container, source, target)
            for target in ended_with
            for source in chains.sources_of(target)
            if short_name(target) == target_name and short_name(source) == source_name
        ]
    return tuple(found)


def format_record(changes: Sequence[ContainerChange]) -> str:
    """Return the changes as one line; containers are named where they differ.

    >>> one = ContainerChange("a", (("nvidia.com/mig-2g.20gb", "nvidia.com/gpu"),), ())
    >>> format_record([one])
    '2g.20gb->gpu'
    """
    is_same = len({change.substitutions for change in changes}) == 1
    return ",".join(
        f"{'' if is_same else change.container + '='}"
        f"{short_name(source)}->{short_name(target)}"
        for change in (changes[:1] if is_same else changes)
        for source, target in change.substitutions
    )


def format_original(changes: Sequence[ContainerChange]) -> str:
    """Return what the changed containers asked before, as one line."""
    return ",".join(
        f"{change.container}:{resource}={amount}"
        for change in changes
        for resource, amount in change.original
    )


def _asking(container: Container, amounts: dict[str, int]) -> Container:
    """Return a container that asks `amounts` and nothing else."""
    return Container(
        name=container.name,
        resources=ResourceRequirements(requests=amounts),
        restart_policy=container.restart_policy,
    )


def _effective(
    amounts: PodSpec, substitutions: Mapping[str, str]
) -> tuple[tuple[str, int], ...]:
    """Return the effective request that the pod has after `substitutions`.

    Each form has one of its own: an init container and a container that ask for
    different resources take the larger share of one resource, not the sum.
    """

    def moved(containers: Sequence[Container] | None) -> tuple[Container, ...]:
        return tuple(
            _asking(container, _substituted_amounts(container, substitutions))
            for container in containers or ()
        )

    spec = PodSpec(
        containers=moved(amounts.containers),
        init_containers=moved(amounts.init_containers),
    )
    return effective_request(spec, any_resource, lambda _path, _error: None)


def _substituted_amounts(
    container: Container, substitutions: Mapping[str, str]
) -> dict[str, int]:
    moved: dict[str, int] = {}
    requests = container.resources.requests if container.resources else None
    for resource, amount in (requests or {}).items():
        target = substitutions.get(resource, resource)
        moved[target] = moved.get(target, 0) + amount
    return moved


def _by_steps(limits: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield all tuples up to `limits`, by their sum, then as numbers sort.

    >>> list(_by_steps([1, 2]))
    [(0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (1, 2)]
    """
    for total in range(sum(limits) + 1):
        yield from _with_sum(limits, total)


def _with_sum(limits: Sequence[int], total: int) -> Iterator[tuple[int, ...]]:
    if not limits:
        yield ()
        return
    rest = sum(limits[1:])
    for first in range(max(total - rest, 0), min(limits[0], total) + 1):
        for others in _with_sum(limits[1:], total - first):
            yield (first, *others)


def _minimum_gpu(
    substitutions: Sequence[tuple[str, str]], takes_shares: bool
) -> MinimumGpu:
    """Return what a GPU must be like on which a slice of a GPU is to run."""
    onto_gpus = [source for source, target in substitutions if is_whole_gpu(target)]
    if not onto_gpus:
        return MinimumGpu()
    return MinimumGpu(
        is_whole=not takes_shares,
        memory_gib=max(profile_memory_gib(source) for source in onto_gpus),
    )


def _substitute_in(
    container: dict[str, Any], substitutions: Mapping[str, str]
) -> ContainerChange | None:
    """Make the substitutions in one container; return what changed, if anything."""
    resources = container.get("resources") or {}
    maps = [resources[key] for key in ("limits", "requests") if resources.get(key)]
    concerned = {*substitutions, *substitutions.values()}
    asked: dict[str, int] = {}
    for quantities in maps:  # a request counts before a limit
        for resource in concerned & quantities.keys():
            asked[resource] = parse_amount(resource, quantities[resource])
    applied = tuple(item for item in substitutions.items() if asked.get(item[0]))
    if not applied:
        return None
    for target in dict.fromkeys(target for _, target in applied):
        sources = [source for source, became in applied if became == target]
        total = asked.get(target, 0) + sum(asked[source] for source in sources)
        for quantities in maps:
            if not quantities.keys().isdisjoint((*sources, target)):
                for source in sources:
                    quantities.pop(source, None)
                quantities[target] = str(total)
    original = tuple((source, asked[source]) for source, _ in applied)
    return ContainerChange(container.get("name", ""), applied, original)
