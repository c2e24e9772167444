"""Choice of the first alternative that fits beside all pods on their way."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import numpy as np

from injector.fallback.simulation import (
    ANY_GPU,
    MinimumGpu,
    PendingClaim,
    TrialPlacement,
    is_costly,
)
from scoring.faults import Fault
from scoring.gpu.requirements import GpuRequirements
from scoring.protocols import Constraints, PendingPod, SelectorTerm, Toleration
from scoring.resources import Request
from scoring.snapshot import Int64Array, Snapshot

# Stands for "some, nobody knows how much"; sums of a few stay below 2^63.
UNKNOWN_AMOUNT: Final = 2**58


@dataclass(frozen=True, slots=True)
class Alternative:
    """One form that the pod can take; the first of all is the pod unchanged.

    Attributes
    ----------
    substitutions : tuple of (str, str)
        Resource and what it becomes, for those that change; nothing becomes what
        changes itself.
    request : tuple of (str, int)
        What the pod then asks of its node, as far as chains are concerned.
    more : tuple of (str, int)
        What it asks beside that once everything has been injected.
    """

    substitutions: tuple[tuple[str, str], ...]
    request: Request
    gpu: MinimumGpu = ANY_GPU
    more: Request = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """The alternative to take, and whether there is room now rather than one day."""

    alternative: Alternative
    is_free: bool


def find_faults(
    gpu_requirements: GpuRequirements, constraints: Constraints
) -> list[Fault]:
    """Return why no fallback can be chosen for a pod that says this of itself."""
    faults = []
    if not gpu_requirements.is_readable:
        message = "what the pod wants of the cards cannot be read"
        faults.append(Fault("metadata.annotations", message))
    if is_costly(constraints):
        message = "it takes too long to compare so many requirements with nodes"
        faults.append(Fault("spec", message))
    return faults


def pending_claims(
    snapshot: Snapshot,
    resources: frozenset[str],
    unschedulable_before: float,
    priority: int = 0,
) -> list[PendingClaim]:
    """Return the pending pods that ask for any of `resources`, oldest first.

    Before those come the pods for which kube-scheduler makes room on a node, each with
    that node: it keeps the room for them.

    Parameters
    ----------
    unschedulable_before : float
        Seconds since the epoch. A pod that kube-scheduler has called unschedulable
        since then, or longer, does not count, nor does one with scheduling gates.
    priority : int
        Of the pod that is decided about. A pod of a lower one is kept no room from it.
    """
    # Equal requests are one object in a ledger's records.
    asking: dict[Request, bool] = {}
    found, nominated = [], []
    for pod in snapshot.pending:
        is_asking = asking.get(pod.request)
        if is_asking is None:
            is_asking = any(name in resources for name, _ in pod.request)
            asking[pod.request] = is_asking
        if not is_asking or pod.is_gated:
            continue
        if pod.nominated_node and pod.priority >= priority:
            nominated.append(pod)
            continue
        since = pod.unschedulable_since
        if since is None or since > unschedulable_before:
            found.append(pod)
    for pods in (found, nominated):
        pods.sort(key=lambda pod: (pod.created, pod.uid))
    return [
        *(
            _claim_of(pod, _only_on(pod.nominated_node, pod.constraints))
            for pod in nominated
        ),
        *(_claim_of(pod, pod.constraints) for pod in found),
    ]


def _claim_of(pod: PendingPod, constraints: Constraints) -> PendingClaim:
    """Return what a pending pod takes."""
    return PendingClaim(pod.request, constraints, gpu_requirements=pod.gpu_requirements)


@dataclass(frozen=True, slots=True)
class _NodeConstraints:
    """The constraints of a pod that is to go to one node."""

    node_name: str
    node_selector: Mapping[str, str]
    affinity_terms: tuple[SelectorTerm, ...] | None
    tolerations: tuple[Toleration, ...]


def _only_on(node_name: str, constraints: Constraints) -> Constraints:
    """Return `constraints` with the node that kube-scheduler makes room on."""
    return _NodeConstraints(
        node_name,
        constraints.node_selector,
        constraints.affinity_terms,
        constraints.tolerations,
    )


def without_pod(snapshot: Snapshot, namespace: str, name: str) -> Snapshot | None:
    """Return the cluster without the pod of that name; None if it has none.

    A pod can be created once none of its name is left: what a snapshot still shows of
    one is gone, such as the last pod of a StatefulSet that comes back at once.
    """
    who = namespace, name
    bound = [
        share
        for share in snapshot.bound_pods.values()
        if (share.namespace, share.name) == who
    ]
    pending = tuple(pod for pod in snapshot.pending if (pod.namespace, pod.name) != who)
    if not bound and len(pending) == len(snapshot.pending):
        return None
    shares = [(share.node_name, share.request) for share in bound]
    requested = snapshot.requested_with(shares, sign=-1)
    return replace(snapshot, requested=requested, pending=pending)


def choose_alternative(
    snapshot: Snapshot,
    alternatives: Sequence[Alternative],
    unchanged: Alternative,
    claim_of: Callable[[Alternative], PendingClaim],
    claims: Iterable[PendingClaim],
) -> Choice | None:
    """Return the first alternative with room now, else that could ever have room.

    Parameters
    ----------
    alternatives : sequence of Alternative
        Best first, the unchanged pod before all others if it may be weighed.
    unchanged : Alternative
        Of its amounts what nobody knows counts as free.
    claim_of : callable
        Returns what the pod takes in one of them.
    claims : iterable of PendingClaim
        Pods on their way, in the order in which they are to be placed.

    Returns
    -------
    Choice or None
        None where no eligible node offers enough for any alternative.
    """
    own = dict(unchanged.request)
    named = {name for item in alternatives for name, _ in item.request}
    free = {name: _free(snapshot, name, is_own=name in own) for name in named}
    other_names = {name for item in alternatives for name, _ in item.more} - named
    # No node has what pods alone name, and they may name thousands.
    others = [name for name in other_names if _is_known(snapshot, name)]
    placement = TrialPlacement(
        snapshot,
        free,
        {name: _free(snapshot, name, is_own=True) for name in others},
    )
    for other in claims:
        placement.place(other)
    own_claims = [
        (item, claim_of(item))
        for item in alternatives
        if all(name in named or name in others for name, _ in item.more)
    ]
    for alternative, claim in own_claims:
        if placement.fits(claim):
            return Choice(alternative, is_free=True)
    supply = TrialPlacement(
        snapshot,
        {name: _supply(snapshot, name) for name in named},
        {name: _supply(snapshot, name) for name in others},
    )
    for alternative, claim in own_claims:
        if supply.fits(claim):
            return Choice(alternative, is_free=False)
    return None


def _is_known(snapshot: Snapshot, resource: str) -> bool:
    """Whether any node may have the resource."""
    return (
        snapshot.row_of(resource) is not None
        or resource in snapshot.device_class_resources
    )


def _supply(snapshot: Snapshot, resource: str) -> Int64Array:
    """Return what there is of `resource` on each node, in use or not, shape (N,)."""
    row = snapshot.row_of(resource)
    if row is None:
        return _or_unknown(snapshot, resource, snapshot.free(resource))
    return _or_unknown(snapshot, resource, snapshot.allocatable[row])


def _free(snapshot: Snapshot, resource: str, *, is_own: bool) -> Int64Array:
    """Return what is free of `resource` on each node, shape (N,).

    Of amounts that nobody knows, the pod's own resource counts as free and another as
    not free: ignorance never changes a pod.
    """
    free = snapshot.free(resource)
    return _or_unknown(snapshot, resource, free) if is_own else free


def _or_unknown(snapshot: Snapshot, resource: str, known: Int64Array) -> Int64Array:
    """Return `known`, with plenty wherever only a DeviceClass carries `resource`."""
    if resource not in snapshot.device_class_resources:
        return known
    row = snapshot.row_of(resource)
    if row is None:
        return np.full_like(known, UNKNOWN_AMOUNT)
    return np.where(snapshot.offered[row], known, UNKNOWN_AMOUNT)


class FallbackOutcome(StrEnum):
    """Outcome of the fallback for a pod; the values are metric labels."""

    NOT_ASKED = "not_asked"
    """It asks for nothing that can fall."""
    NAMESPACE_EXCLUDED = "namespace_excluded"
    OPTED_OUT = "opted_out"
    ALREADY_WEIGHED = "already_weighed"
    NOT_SYNCED = "not_synced"
    MALFORMED = "malformed"
    KEPT = "kept"
    """There is room for it as it is."""
    KEPT_FULL = "kept_full"
    """There is room neither for it as it is nor for another form; its own exists."""
    CHANGED = "changed"
    CHANGED_FULL = "changed_full"
    """Its own resource exists nowhere; what it was changed to is not free now."""
    NOWHERE = "nowhere"
    """No node offers enough of any resource that it could take."""


def fallback_outcome(choice: Choice | None) -> FallbackOutcome:
    """Return what becomes of a pod for which `choice` was made; None for none."""
    if choice is None:
        return FallbackOutcome.NOWHERE
    if choice.alternative.substitutions:
        full = FallbackOutcome.CHANGED_FULL
        return FallbackOutcome.CHANGED if choice.is_free else full
    return FallbackOutcome.KEPT if choice.is_free else FallbackOutcome.KEPT_FULL
