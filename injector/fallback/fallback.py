"""`Fallback`: another GPU resource for a pod whose own is not free."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, TypeAlias

from cluster.decode.gpu_requirements import GpuRequirementsReader
from cluster.decode.records import constraints_of
from cluster.ledger.writer import NotSyncedError
from injector.admitted_pod import AdmittedPod, FallenResource, PodIdentity
from injector.fallback.alternatives import (
    fallen_resources,
    format_original,
    format_record,
    named_resources,
    read_alternatives,
    read_record,
    substitute_resources,
)
from injector.fallback.annotations import (
    NO_MARK,
    FallbackAnnotations,
    FallbackMark,
    write_decision,
)
from injector.fallback.chains import Chains
from injector.fallback.choice import (
    Alternative,
    Choice,
    FallbackOutcome,
    choose_alternative,
    fallback_outcome,
    find_faults,
    pending_claims,
    without_pod,
)
from injector.fallback.holds import Holds
from injector.fallback.simulation import MinimumGpu, PendingClaim
from injector.patch import draft_of
from scoring.gpu.requirements import GpuRequirements
from scoring.protocols import Constraints
from scoring.quantity import shorten
from scoring.resources import PODS, Request
from scoring.snapshot import Snapshot

AUDIT_RECORD: Final = "fallback"

AUDIT_ORIGINAL: Final = "fallback-original"

# Given a pod and what fell in it, returns its request after the later steps, if any.
CompleteRequest: TypeAlias = Callable[
    [AdmittedPod, tuple[FallenResource, ...]], Request | None
]

# Writes into a pod what the GPUs of its node must be like; returns warnings.
RequireGpus: TypeAlias = Callable[[AdmittedPod, MinimumGpu], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class FallbackOptions:
    """Settings of the fallback, which may change while the webhook runs.

    Attributes
    ----------
    namespaces : frozenset of str or None
        Where fallback is on; None for everywhere.
    unschedulable_seconds : float
        A pending pod counts until kube-scheduler has called it unschedulable this long.
    require_gpus : callable or None
        Keeps a pod that fell off GPUs that are too small for it; None to leave its
        affinity alone.
    """

    chains: Chains
    namespaces: frozenset[str] | None
    annotations: FallbackAnnotations
    unschedulable_seconds: float
    gpu_reader: GpuRequirementsReader
    require_gpus: RequireGpus | None


@dataclass(frozen=True, slots=True)
class FallbackResult:
    """Result of the fallback for one pod.

    Attributes
    ----------
    outcome : str
        One of a small fixed set; a metric label.
    warnings : tuple of str
        For the user, each short.
    audit : mapping
        audit annotation key -> value
    fallen : tuple of FallenResource
        What fell, in this review or an earlier one.
    """

    outcome: str
    warnings: tuple[str, ...] = ()
    audit: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    fallen: tuple[FallenResource, ...] = ()


@dataclass(frozen=True, slots=True)
class _Case:
    """A pod to decide about: its alternatives, best first, and where it may go.

    Attributes
    ----------
    mark : FallbackMark
        Of an earlier review.
    """

    pod: AdmittedPod
    alternatives: list[Alternative]
    constraints: Constraints
    options: FallbackOptions
    gpu_requirements: GpuRequirements
    mark: FallbackMark

    @property
    def unchanged(self) -> Alternative:
        return self.alternatives[0]

    @property
    def sources(self) -> list[str]:
        """The resources that the pod asks and that can fall."""
        return self.options.chains.in_order(dict(self.unchanged.request))

    def is_promised(self, promised: Request) -> bool:
        """Whether this may have been promised to the pod as it is."""
        return self.mark.may_be_of(promised) and not self.is_outdated(promised)

    def is_outdated(self, promised: Request) -> bool:
        """Whether the pod may have been promised this when it asked otherwise."""
        # PERF: asked of each hold, and most pods come without a mark.
        return bool(self.mark.resources) and self.mark.is_outdated(
            promised, self.unchanged.request, self.sources
        )

    def claim_of(self, alternative: Alternative) -> PendingClaim:
        """Return what the pod takes in one of its forms."""
        return PendingClaim(
            alternative.request,
            self.constraints,
            alternative.gpu,
            self.gpu_requirements,
            alternative.more,
        )


class Fallback:
    """The first step of the webhook; any thread may call it.

    Parameters
    ----------
    complete : callable
        Returns what the pod asks of its node once the later steps are done with it;
        None if they refuse it. It may change the pod.
    before_choice : callable
        Told of each choice whose outcome is held, just before it is made.
    clock : callable
        Returns seconds since the epoch, as the API server counts them.
    """

    def __init__(
        self,
        holds: Holds,
        options: FallbackOptions,
        *,
        complete: CompleteRequest = lambda pod, _fallen: pod.request,
        before_choice: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._holds = holds
        self._complete = complete
        self._options = options
        self._before_choice = before_choice
        self._clock = clock

    def use(self, options: FallbackOptions) -> None:
        """Take new options; pods that are being decided about keep the old ones."""
        self._options = options

    def release(self, identity: PodIdentity) -> None:
        """Give back what `apply` holds for this request; twice does no harm."""
        self._holds.release(identity)

    def apply(self, pod: AdmittedPod) -> FallbackResult:
        """Change `pod` in place, if another resource serves it better."""
        options = self._options
        spec, annotations = pod.decoded.spec, pod.annotations
        mark = FallbackMark.read(annotations.get(options.annotations.mark, ""))
        if not any(map(options.chains.can_fall, named_resources(spec))):
            is_kept = self._follow(pod, mark)
            fallen = _fallen_before(pod, mark, options) if is_kept else ()
            return FallbackResult(FallbackOutcome.NOT_ASKED, fallen=fallen)
        alternatives, faults = read_alternatives(
            spec,
            options.chains,
            takes_shares=annotations.get(options.annotations.sharing) == "allowed",
        )
        gpu_requirements = options.gpu_reader.read_kept(annotations).gpu_requirements
        constraints = constraints_of(pod.decoded)
        if alternatives:
            faults += find_faults(gpu_requirements, constraints)
        if faults:
            warning = f"no fallback was weighed: {faults[0]}"
            return FallbackResult(FallbackOutcome.MALFORMED, (warning,))
        case = _Case(pod, alternatives, constraints, options, gpu_requirements, mark)
        skipped = _reason_to_skip(case)
        if skipped is None and self._is_decided(case):
            skipped = FallbackOutcome.ALREADY_WEIGHED
        if skipped is not None:
            fallen = _fallen_before(pod, mark, options)
            return FallbackResult(skipped, fallen=fallen)
        return self._weigh(case)

    def _weigh(self, case: _Case) -> FallbackResult:
        """Choose a form for the pod, and change the pod so."""
        said = _opt_out_warnings(case)
        try:
            choice = self._choose(case)
        except NotSyncedError:
            warning = (
                "the cluster has not been read yet: no fallback was weighed for"
                f" {','.join(case.sources)}; create the pod again"
            )
            return FallbackResult(FallbackOutcome.NOT_SYNCED, (*said, warning))
        result = _put_into_effect(case, choice)
        return replace(result, warnings=(*said, *result.warnings))

    def _follow(self, pod: AdmittedPod, mark: FallbackMark) -> bool:
        """Take back what was decided about a pod that no longer asks any of it.

        Returns whether a decision stands.
        """
        if not mark.resources:
            return False
        is_kept = mark.is_kept(named_resources(pod.decoded.spec))
        if is_kept:
            self._holds.adopt(pod.identity, mark.may_be_of)
        else:
            self._holds.end(pod.identity, mark.may_be_of)
            write_decision(pod.edit(), self._options.annotations, NO_MARK)
        return is_kept

    def _is_decided(self, case: _Case) -> bool:
        """Whether the pod was decided about as it is now."""
        mark, identity = case.mark, case.pod.identity
        if not mark.resources:
            # A record alone is another webhook's: what has fallen once falls no more.
            return case.options.annotations.record in case.pod.annotations
        if not set(mark.resources).issuperset(case.sources):
            return False
        # Fellows may ask other amounts: what was promised to one of them says nothing.
        if self._holds.adopt(identity, case.is_promised, is_first=True):
            return True
        if self._holds.has(identity, case.is_outdated):
            return False
        self._holds.adopt(identity, mark.may_be_of)
        return True

    def _weighable(self, case: _Case) -> list[Alternative]:
        """Return the forms with all that the pod asks in each, once it is injected.

        A form that injection would refuse is left out; if it would refuse all, the pod
        is best left as it is.
        """
        found = []
        for alternative in case.alternatives:
            draft = AdmittedPod(draft_of(dict(case.pod.tree)), case.pod.identity)
            changes = substitute_resources(
                draft.edit(), dict(alternative.substitutions)
            )
            request = self._complete(draft, fallen_resources(changes))
            if request is not None:
                weighed = {name for name, _ in alternative.request}
                others = (pair for pair in request if pair[0] not in weighed)
                more = ((PODS, 1), *others)
                found.append(replace(alternative, more=more))
        return found or [case.unchanged]

    def _choose(self, case: _Case) -> Choice | None:
        """Choose a form and hold what it takes, in one step."""
        forms, identity = self._weighable(case), case.pod.identity
        resources = frozenset(name for item in forms for name, _ in item.request)
        unschedulable_before = self._clock() - case.options.unschedulable_seconds

        def choose_on(
            snapshot: Snapshot, held: tuple[PendingClaim, ...]
        ) -> Choice | None:
            pending = pending_claims(
                snapshot, resources, unschedulable_before, case.pod.decoded.priority
            )
            return choose_alternative(
                snapshot,
                forms,
                case.unchanged,
                case.claim_of,
                [*pending, *held],
            )

        def choose(
            snapshot: Snapshot, held: tuple[PendingClaim, ...]
        ) -> tuple[PendingClaim | None, Choice | None]:
            choice = choose_on(snapshot, held)
            if identity.name and fallback_outcome(choice) is not FallbackOutcome.KEPT:
                # Looked for only now, among all pods: few have a name already.
                before = without_pod(snapshot, identity.namespace, identity.name)
                choice = choice if before is None else choose_on(before, held)
            if choice is None:
                return None, None
            return case.claim_of(choice.alternative), choice

        if not identity.is_dry_run:
            self._before_choice()
        return self._holds.decide(identity, choose, case.is_outdated)


def _fallen_before(
    pod: AdmittedPod, mark: FallbackMark, options: FallbackOptions
) -> tuple[FallenResource, ...]:
    """Return what fell in an earlier review."""
    record = pod.annotations.get(options.annotations.record, "")
    return read_record(record, mark.resources, options.chains)


def _reason_to_skip(case: _Case) -> FallbackOutcome | None:
    """Return why the pod takes no part, None if it does."""
    options = case.options
    if not case.alternatives:
        return FallbackOutcome.NOT_ASKED
    namespace = case.pod.identity.namespace
    if options.namespaces is not None and namespace not in options.namespaces:
        return FallbackOutcome.NAMESPACE_EXCLUDED
    if is_off(case.pod.annotations.get(options.annotations.opt_out)):
        return FallbackOutcome.OPTED_OUT
    return None


_OFF: Final = frozenset(
    ("", "never", "false", "no", "off", "none", "n", "f", "0", "disabled", "disable")
)


def is_off(text: str | None) -> bool:
    """Whether an annotation turns fallback off: ``never``, and what means the same.

    >>> is_off("Never"), is_off("false"), is_off(""), is_off("yes"), is_off(None)
    (True, True, True, False, False)
    """
    return text is not None and text.strip().lower() in _OFF


def _opt_out_warnings(case: _Case) -> tuple[str, ...]:
    """Return a warning for an opt-out that is none."""
    name = case.options.annotations.opt_out
    text = case.pod.annotations.get(name)
    if text is None or is_off(text):
        return ()
    known = f"annotation {name}: {shorten(text, 24)} is not known, fallback stays on"
    return (f"{known}; use 'never' to turn it off",)


def _put_into_effect(case: _Case, choice: Choice | None) -> FallbackResult:
    """Change the pod as chosen and mark it as decided about."""
    options = case.options
    alternative = case.unchanged if choice is None else choice.alternative
    substitutions = dict(alternative.substitutions)
    fallen = _fallen_before(case.pod, case.mark, options)
    tree = case.pod.edit()
    record, audit = "", {}
    if substitutions:
        changes = substitute_resources(tree, substitutions)
        record = format_record(changes)
        fallen = fallen_resources(changes)
        audit = {AUDIT_RECORD: record, AUDIT_ORIGINAL: format_original(changes)}
    mark = FallbackMark.of(substitutions.get(source, source) for source in case.sources)
    is_further = case.mark.is_kept(dict(case.unchanged.request))
    write_decision(tree, options.annotations, mark, record, is_further=is_further)
    outcome = fallback_outcome(choice)
    warnings = _warnings_of(outcome, case, alternative)
    if substitutions and options.require_gpus is not None:
        warnings += options.require_gpus(case.pod, alternative.gpu)
    return FallbackResult(outcome, warnings, MappingProxyType(audit), fallen)


def _warnings_of(
    outcome: FallbackOutcome, case: _Case, alternative: Alternative
) -> tuple[str, ...]:
    """Return what the user should know."""
    if outcome is FallbackOutcome.NOWHERE:
        sources = ",".join(case.sources)
        lacking = f"no ready node has {sources}, or a fallback, and all else it asks"
        return (f"{lacking}: unchanged",)
    keep = f"{case.options.annotations.opt_out}=never keeps it"
    is_free = outcome is FallbackOutcome.CHANGED
    why = "not free on a fitting node" if is_free else "on no node, nor that free now"
    return tuple(
        f"{source} was changed to {target}: {why}; {keep}"
        for source, target in alternative.substitutions
    )
