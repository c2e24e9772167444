"""`Fallback`: another GPU resource for a pod whose own is not to be had."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

import msgspec

from cluster.cache import NotSyncedError
from cluster.decode import Fault, constraints_of
from cluster.demands import DemandReader
from cluster.objects import Pod
from injector.affinity import KnownCards
from injector.chains import Chains
from injector.facts import FallbackResult, PodFacts
from injector.holds import Holds
from injector.moves import (
    build_plans,
    chain_amounts,
    move_resources,
    named_resources,
    original_of,
    record_of,
)
from injector.room import Claim
from injector.weighing import Choice, Plan, choose_plan, pending_claims
from scoring.demand import Demand
from scoring.objects import Constraints
from scoring.resources import QuantityError
from scoring.snapshot import Snapshot

AUDIT_RECORD: Final = "fallback"
AUDIT_ORIGINAL: Final = "fallback-original"


class FallbackOutcome(StrEnum):
    """What became of a pod; the values are metric labels."""

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


@dataclass(frozen=True, slots=True)
class FallbackAnnotations:
    """Names of the annotations that fallback reads and writes.

    Attributes
    ----------
    opt_out : str
        ``never`` on a pod that must not be changed.
    sharing : str
        ``allowed`` on a pod that takes shared or sliced cards for whole ones.
    record : str
        Written: what was changed.
    mark : str
        Written: the resource that the pod ended with, on every pod that was weighed.
    """

    opt_out: str = "gpu-extender.io/fallback"
    sharing: str = "gpu-extender.io/sharing"
    record: str = "gpu-webhook.k8s.io/fallback"
    mark: str = "gpu-extender.io/fallback-weighed"


@dataclass(frozen=True, slots=True)
class FallbackOptions:
    """What an operator may set, and change while the webhook runs.

    Attributes
    ----------
    chains : Chains
    namespaces : frozenset of str or None
        Where fallback is on; None for everywhere.
    annotations : FallbackAnnotations
    unschedulable_seconds : float
        A pending pod counts until kube-scheduler has called it unschedulable this long.
    demands : DemandReader
    known_cards : KnownCards or None
        By whose labels a pod that fell is kept off cards that are too small for it;
        None to leave its affinity alone.
    """

    chains: Chains = field(default_factory=Chains)
    namespaces: frozenset[str] | None = None
    annotations: FallbackAnnotations = field(default_factory=FallbackAnnotations)
    unschedulable_seconds: float = 60.0
    demands: DemandReader = field(default_factory=DemandReader)
    known_cards: KnownCards | None = None


@dataclass(frozen=True, slots=True)
class _Asking:
    """A pod that is to be weighed: its forms, best first, and where it may go."""

    plans: list[Plan]
    constraints: Constraints
    options: FallbackOptions
    demand: Demand

    @property
    def unchanged(self) -> Plan:
        return self.plans[0]

    @property
    def sources(self) -> list[str]:
        """The resources that the pod asks and that can fall."""
        return self.options.chains.in_order(dict(self.unchanged.request))


class Fallback:
    """The step of the webhook that runs before injection; any thread may call it.

    Parameters
    ----------
    holds : Holds
    options : FallbackOptions
    clock : callable
        Returns seconds since the epoch, as the API server counts them.
    """

    def __init__(
        self,
        holds: Holds,
        options: FallbackOptions,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._holds = holds
        self._options = options
        self._clock = clock

    def use(self, options: FallbackOptions) -> None:
        """Take new options; pods that are being weighed keep the old ones."""
        self._options = options

    def release(self, facts: PodFacts) -> None:
        """Give back what `apply` holds for this request; twice does no harm."""
        self._holds.release(facts)

    def apply(self, pod: dict[str, Any], facts: PodFacts) -> FallbackResult:
        """Change `pod`, a copy of our own, in place."""
        options = self._options
        try:
            decoded = msgspec.convert(pod, Pod)
        except msgspec.ValidationError as error:
            return _malformed(str(error))
        if not any(map(options.chains.can_fall, named_resources(decoded.spec))):
            return FallbackResult(FallbackOutcome.NOT_ASKED)
        faults: list[Fault] = []
        plans = _plans_of(decoded, options, faults)
        demand = options.demands.read_kept(decoded.metadata.annotations)
        if plans and not demand.is_readable:
            message = "what the pod wants of the cards cannot be read"
            faults.append(Fault("metadata.annotations", message))
        if faults:
            return _malformed(str(faults[0]))
        skipped = _reason_to_skip(decoded, facts, plans, options)
        if skipped is not None:
            return FallbackResult(skipped)
        asking = _Asking(plans, constraints_of(decoded), options, demand)
        try:
            choice = self._choose(asking, facts)
        except NotSyncedError:
            warning = (
                "the cluster has not been read yet:"
                f" no fallback was weighed for {_joined(asking.sources)}"
            )
            return FallbackResult(FallbackOutcome.NOT_SYNCED, (warning,))
        return _put_into_effect(pod, asking, choice)

    def _choose(self, asking: _Asking, facts: PodFacts) -> Choice | None:
        """Choose a form and hold what it takes, in one step."""
        plans, constraints, demand = asking.plans, asking.constraints, asking.demand
        resources = frozenset(name for plan in plans for name, _ in plan.request)
        unschedulable_before = self._clock() - asking.options.unschedulable_seconds

        def weigh(
            snapshot: Snapshot, held: tuple[Claim, ...]
        ) -> tuple[Claim | None, Choice | None]:
            pending = pending_claims(snapshot, resources, unschedulable_before)
            claims = [*pending, *held]
            choice = choose_plan(snapshot, plans, constraints, claims, demand)
            if choice is None:
                return None, None
            plan = choice.plan
            return Claim(plan.request, constraints, plan.card, demand), choice

        return self._holds.decide(facts, weigh)


def _plans_of(pod: Pod, options: FallbackOptions, faults: list[Fault]) -> list[Plan]:
    """Return the forms that `pod` can take; add to `faults` what does not parse."""

    def collect(path: str, error: QuantityError) -> None:
        faults.append(Fault(path, str(error)))

    annotations = pod.metadata.annotations or {}
    amounts = chain_amounts(pod.spec, options.chains, collect)
    return build_plans(
        amounts,
        options.chains,
        takes_shares=annotations.get(options.annotations.sharing) == "allowed",
    )


def _reason_to_skip(
    pod: Pod, facts: PodFacts, plans: list[Plan], options: FallbackOptions
) -> FallbackOutcome | None:
    """Return why the pod is not weighed, None if it is."""
    names = options.annotations
    annotations = pod.metadata.annotations or {}
    if not plans:
        return FallbackOutcome.NOT_ASKED
    # A record without a mark is another webhook's: what has fallen once falls no more.
    if names.mark in annotations or names.record in annotations:
        return FallbackOutcome.ALREADY_WEIGHED
    if options.namespaces is not None and facts.namespace not in options.namespaces:
        return FallbackOutcome.NAMESPACE_EXCLUDED
    if annotations.get(names.opt_out) == "never":
        return FallbackOutcome.OPTED_OUT
    return None


def _put_into_effect(
    pod: dict[str, Any], asking: _Asking, choice: Choice | None
) -> FallbackResult:
    """Change the pod as chosen and mark it as weighed."""
    names, sources = asking.options.annotations, asking.sources
    plan = asking.unchanged if choice is None else choice.plan
    moves = dict(plan.moves)
    written = {names.mark: _joined(moves.get(source, source) for source in sources)}
    audit: Mapping[str, str] = MappingProxyType({})
    if moves:
        changes = move_resources(pod, moves)
        record, original = record_of(changes), original_of(changes)
        written[names.record] = record
        audit = MappingProxyType({AUDIT_RECORD: record, AUDIT_ORIGINAL: original})
    metadata = pod.setdefault("metadata", {})
    metadata["annotations"] = {**(metadata.get("annotations") or {}), **written}
    outcome = _outcome_of(choice)
    warnings = _warnings_of(outcome, asking, plan)
    if moves and asking.options.known_cards is not None:
        warnings += asking.options.known_cards.require(pod, plan.card)
    return FallbackResult(outcome, warnings, audit)


def _outcome_of(choice: Choice | None) -> FallbackOutcome:
    if choice is None:
        return FallbackOutcome.NOWHERE
    if choice.plan.moves:
        full = FallbackOutcome.CHANGED_FULL
        return FallbackOutcome.CHANGED if choice.is_free else full
    return FallbackOutcome.KEPT if choice.is_free else FallbackOutcome.KEPT_FULL


def _warnings_of(
    outcome: FallbackOutcome, asking: _Asking, plan: Plan
) -> tuple[str, ...]:
    """Return what the user should know."""
    if outcome is FallbackOutcome.NOWHERE:
        sources = _joined(asking.sources)
        return (
            f"no node that fits offers {sources} or what could stand in: unchanged",
        )
    is_free = outcome is FallbackOutcome.CHANGED
    return tuple(
        f"{source} was changed to {target}: the former is not free on a node that fits"
        if is_free
        else f"{source} was changed to {target}, not free now: no node has the former"
        for source, target in plan.moves
    )


def _malformed(fault: str) -> FallbackResult:
    warning = f"no fallback was weighed: {fault}"
    return FallbackResult(FallbackOutcome.MALFORMED, (warning,))


def _joined(names: Any) -> str:
    """Return different names, joined, in order."""
    return ",".join(dict.fromkeys(names))
