"""`Fallback`: another GPU resource for a pod whose own is not to be had."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import msgspec

from cluster.decode.gpu_requirements import GpuRequirementsReader
from cluster.decode.objects import Pod
from cluster.decode.records import constraints_of
from cluster.ledger.writer import NotSyncedError
from injector.affinity.step import KnownGpus
from injector.fallback.alternatives import (
    move_resources,
    named_resources,
    original_of,
    read_plans,
    record_of,
)
from injector.fallback.annotations import (
    NOT_WEIGHED,
    FallbackAnnotations,
    Mark,
    write_decision,
)
from injector.fallback.chains import Chains
from injector.fallback.choice import (
    Choice,
    FallbackOutcome,
    Plan,
    choose_plan,
    find_faults,
    outcome_of,
    pending_claims,
    without_pod,
)
from injector.fallback.holds import Holds
from injector.fallback.simulation import Claim
from injector.steps import FallbackResult, PodFacts
from scoring.gpu.requirements import GpuRequirements
from scoring.protocols import Constraints
from scoring.resources import Request
from scoring.snapshot import Snapshot

AUDIT_RECORD: Final = "fallback"

AUDIT_ORIGINAL: Final = "fallback-original"


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
    demands : GpuRequirementsReader
    known_gpus : KnownGpus or None
        By whose labels a pod that fell is kept off GPUs that are too small for it;
        None to leave its affinity alone.
    """

    chains: Chains
    namespaces: frozenset[str] | None
    annotations: FallbackAnnotations
    unschedulable_seconds: float
    demands: GpuRequirementsReader
    known_gpus: KnownGpus | None


@dataclass(frozen=True, slots=True)
class _PodRequests:
    """A pod that is to be weighed: its forms, best first, and where it may go."""

    plans: list[Plan]
    constraints: Constraints
    options: FallbackOptions
    gpu_requirements: GpuRequirements
    mark: Mark = NOT_WEIGHED  # of an earlier review

    @property
    def unchanged(self) -> Plan:
        return self.plans[0]

    @property
    def sources(self) -> list[str]:
        """The resources that the pod asks and that can fall."""
        return self.options.chains.in_order(dict(self.unchanged.request))

    def is_promised(self, promised: Request) -> bool:
        """Say whether this may have been promised to the pod as it is."""
        return self.mark.may_be_of(promised) and not self.is_outdated(promised)

    def is_outdated(self, promised: Request) -> bool:
        """Say whether the pod may have been promised this when it asked otherwise."""
        # PERF: asked of each hold, and most pods come without a mark.
        return bool(self.mark.resources) and self.mark.is_outdated(
            promised, self.unchanged.request, self.sources
        )


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
            self._follow(pod, decoded, facts)
            return FallbackResult(FallbackOutcome.NOT_ASKED)
        annotations = decoded.metadata.annotations or {}
        plans, faults = read_plans(
            decoded.spec,
            options.chains,
            takes_shares=annotations.get(options.annotations.sharing) == "allowed",
        )
        gpu_requirements = options.demands.read_kept(annotations).gpu_requirements
        constraints = constraints_of(decoded)
        faults += find_faults(gpu_requirements, constraints) if plans else []
        if faults:
            return _malformed(str(faults[0]))
        mark = Mark.read(annotations.get(options.annotations.mark, ""))
        asking = _PodRequests(plans, constraints, options, gpu_requirements, mark)
        skipped = _reason_to_skip(annotations, facts, asking)
        if skipped is None and self._is_decided(annotations, facts, asking):
            skipped = FallbackOutcome.ALREADY_WEIGHED
        if skipped is not None:
            return FallbackResult(skipped)
        try:
            choice = self._choose(asking, facts)
        except NotSyncedError:
            warning = (
                "the cluster has not been read yet:"
                f" no fallback was weighed for {','.join(asking.sources)}"
            )
            return FallbackResult(FallbackOutcome.NOT_SYNCED, (warning,))
        return _put_into_effect(pod, asking, choice)

    def _follow(self, pod: dict[str, Any], decoded: Pod, facts: PodFacts) -> None:
        """Take back what was decided about a pod that no longer asks any of it."""
        names = self._options.annotations
        mark = Mark.read((decoded.metadata.annotations or {}).get(names.mark, ""))
        if not mark.resources:
            return
        if mark.is_kept(named_resources(decoded.spec)):
            self._holds.adopt(facts, mark.may_be_of)
        else:
            self._holds.end(facts, mark.may_be_of)
            write_decision(pod, names, NOT_WEIGHED)

    def _is_decided(
        self, annotations: Mapping[str, str], facts: PodFacts, asking: _PodRequests
    ) -> bool:
        """Say whether the pod was weighed as it is now."""
        mark = asking.mark
        if not mark.resources:
            # A record alone is another webhook's: what has fallen once falls no more.
            return asking.options.annotations.record in annotations
        if not set(mark.resources).issuperset(asking.sources):
            return False
        # Fellows may ask other amounts: what was promised to one of them says nothing.
        if self._holds.adopt(facts, asking.is_promised, is_first=True):
            return True
        if self._holds.has(facts, asking.is_outdated):
            return False
        self._holds.adopt(facts, mark.may_be_of)
        return True

    def _choose(self, asking: _PodRequests, facts: PodFacts) -> Choice | None:
        """Choose a form and hold what it takes, in one step."""
        plans, constraints, gpu_requirements = (
            asking.plans,
            asking.constraints,
            asking.gpu_requirements,
        )
        resources = frozenset(name for plan in plans for name, _ in plan.request)
        unschedulable_before = self._clock() - asking.options.unschedulable_seconds

        def choose(snapshot: Snapshot, held: tuple[Claim, ...]) -> Choice | None:
            pending = pending_claims(snapshot, resources, unschedulable_before)
            claims = [*pending, *held]
            return choose_plan(snapshot, plans, constraints, claims, gpu_requirements)

        def weigh(
            snapshot: Snapshot, held: tuple[Claim, ...]
        ) -> tuple[Claim | None, Choice | None]:
            choice = choose(snapshot, held)
            if facts.name and outcome_of(choice) is not FallbackOutcome.KEPT:
                # Looked for only now, among all pods: few have a name already.
                before = without_pod(snapshot, facts.namespace, facts.name)
                choice = choice if before is None else choose(before, held)
            if choice is None:
                return None, None
            plan = choice.plan
            return Claim(plan.request, constraints, plan.gpu, gpu_requirements), choice

        return self._holds.decide(facts, weigh, asking.is_outdated)


def _reason_to_skip(
    annotations: Mapping[str, str], facts: PodFacts, asking: _PodRequests
) -> FallbackOutcome | None:
    """Return why the pod takes no part, None if it does."""
    options = asking.options
    if not asking.plans:
        return FallbackOutcome.NOT_ASKED
    if options.namespaces is not None and facts.namespace not in options.namespaces:
        return FallbackOutcome.NAMESPACE_EXCLUDED
    if annotations.get(options.annotations.opt_out) == "never":
        return FallbackOutcome.OPTED_OUT
    return None


def _put_into_effect(
    pod: dict[str, Any], asking: _PodRequests, choice: Choice | None
) -> FallbackResult:
    """Change the pod as chosen and mark it as weighed."""
    names, sources = asking.options.annotations, asking.sources
    plan = asking.unchanged if choice is None else choice.plan
    moves = dict(plan.moves)
    record, audit = "", {}
    if moves:
        changes = move_resources(pod, moves)
        record = record_of(changes)
        audit = {AUDIT_RECORD: record, AUDIT_ORIGINAL: original_of(changes)}
    mark = Mark.of(moves.get(source, source) for source in sources)
    is_further = asking.mark.is_kept(dict(asking.unchanged.request))
    write_decision(pod, names, mark, record, is_further=is_further)
    outcome = outcome_of(choice)
    warnings = _warnings_of(outcome, asking, plan)
    if moves and asking.options.known_gpus is not None:
        warnings += asking.options.known_gpus.require(pod, plan.gpu)
    return FallbackResult(outcome, warnings, MappingProxyType(audit))


def _warnings_of(
    outcome: FallbackOutcome, asking: _PodRequests, plan: Plan
) -> tuple[str, ...]:
    """Return what the user should know."""
    if outcome is FallbackOutcome.NOWHERE:
        sources = ",".join(asking.sources)
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
