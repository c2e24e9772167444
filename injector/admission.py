"""One admission request from review to answer: fallback, injection, the other steps."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from cluster.decode.objects import Pod
from injector.admitted_pod import AdmittedPod, PodIdentity, identify, is_static
from injector.fallback.choice import FallbackOutcome
from injector.fallback.fallback import Fallback, FallbackResult
from injector.patch import draft_of, encode_patch, json_patch
from injector.resources.inject import Injection, Injector
from injector.review import Answer, Review, decode_pod
from injector.steps import AdmissionOutcome, AdmissionReason, PodStep

_FORBIDDEN: Final = 403

_INTERNAL_ERROR: Final = 500

_FALLEN: Final = frozenset({FallbackOutcome.CHANGED, FallbackOutcome.CHANGED_FULL})

logger = logging.getLogger(__name__)


class AdmissionObserver(Protocol):
    """Counts outcomes of requests; any worker thread may call it."""

    def observe_admission(
        self, outcome: AdmissionOutcome, reason: AdmissionReason
    ) -> None:
        """Count one admission request."""
        ...

    def observe_fallback(self, outcome: str) -> None:
        """Count one pod that the fallback step has seen."""
        ...


@dataclass(frozen=True, slots=True)
class AdmissionOptions:
    """Pods that are not looked at, and the answer when we fail ourselves.

    Attributes
    ----------
    skipped_namespaces : frozenset of str
        System namespaces and our own: their pods pass untouched by every step.
    is_fail_open : bool
        Whether a pod passes unchanged when we fail ourselves; see
        `Admission.answer_fault`.
    """

    skipped_namespaces: frozenset[str]
    is_fail_open: bool


@dataclass(frozen=True, slots=True)
class ReviewNotes:
    """What people should know of a pod that a review lets through.

    Attributes
    ----------
    warnings : tuple of str
        Those of the answer, but for what is said of a fall.
    fall : tuple of str
        What is said of a fall; empty where the pod did not fall.
    targets : frozenset of str
        The resources that it fell to.
    """

    warnings: tuple[str, ...]
    fall: tuple[str, ...] = ()
    targets: frozenset[str] = frozenset()


# Told of each pod that is no dry run and of which there is something to know.
TakeNotes: TypeAlias = Callable[[PodIdentity, ReviewNotes], None]


@dataclass(frozen=True, slots=True)
class _Decision:
    """Decision about a pod, and the patch that does it."""

    injection: Injection
    fallback: FallbackResult | None = None
    warnings: tuple[str, ...] = ()
    operations: list[dict[str, Any]] = field(default_factory=list)
    capacity: tuple[str, ...] = ()


def _untold(_pod: PodIdentity, _notes: ReviewNotes) -> None:
    """Tell nobody."""


def never_late() -> None:
    """Raise an error if the caller has given up: never, where nobody limits it."""


class Admission:
    """Answers admission reviews; holds no state of its own.

    Parameters
    ----------
    fallback : Fallback
        Runs first: injection goes by the GPU resource that the pod ends up with.
    steps : sequence of PodStep
        Run last, in this order, and so see what the pod ends up asking; those that
        only warn stand at the end.
    capacity : PodStep, optional
        Warns of what no node is large enough for, in the answer alone: why a pod is
        pending, people are told by itself.
    tell : callable
        Takes what people should know of a pod; they may not see the answer.
    """

    def __init__(  # noqa: PLR0913 - each is one part of the webhook
        self,
        fallback: Fallback,
        injector: Injector,
        steps: Sequence[PodStep],
        observer: AdmissionObserver,
        options: AdmissionOptions,
        *,
        capacity: PodStep | None = None,
        tell: TakeNotes = _untold,
    ) -> None:
        self._fallback = fallback
        self._injector = injector
        self._steps = tuple(steps)
        self._capacity = capacity
        self._observer = observer
        self._options = options
        self._tell_people = tell

    def decide(self, review: Review, check: Callable[[], None] = never_late) -> Answer:
        """Return the answer to `review`; raise `ReviewError` if its pod is none.

        `check` is called between two steps, and ends the work by an error.
        """
        identity, decision = self._decide(review, check)
        self._tell(review, identity, decision)
        answer = _answer(decision)
        if answer.warnings and answer.is_allowed and not identity.is_dry_run:
            notes = _notes_of(decision)
            if notes.warnings or notes.fall:
                self._tell_people(identity, notes)
        return answer

    def preview(self, review: Review, check: Callable[[], None] = never_late) -> Answer:
        """Return what `decide` would, for somebody who only wants to know.

        It is neither counted nor logged; `review` is a dry run, so nothing is held.
        """
        return _answer(self._decide(review, check)[1])

    def _decide(
        self, review: Review, check: Callable[[], None]
    ) -> tuple[PodIdentity, _Decision]:
        """Return the pod's names, and what is decided about it."""
        reason = skip_reason(review, self._options.skipped_namespaces)
        decoded = decode_pod(review.object) if reason is None else Pod()
        if reason is None and is_static(decoded):
            reason = AdmissionReason.STATIC_POD
        identity = identify(review, decoded)
        if reason is None:
            pod = AdmittedPod(draft_of(review.object), identity, decoded)
            return identity, self._mutate(review, pod, check)
        return identity, _Decision(Injection(AdmissionOutcome.SKIPPED, reason))

    def answer_fault(
        self, review: Review, error: BaseException, *, is_late: bool = False
    ) -> Answer:
        """Return the answer when deciding about `review` has failed.

        The API server applies ``failurePolicy`` only to calls that fail; an answer
        that it can read is final. So the choice is made here, by `is_fail_open`, which
        belongs beside the policy in the settings: closed, the pod is refused with code
        500 and controllers try again; open, it passes unchanged with a warning.

        Parameters
        ----------
        is_late : bool
            Whether only the time was over: the next review may well be in time.
        """
        fields = {
            "request_uid": review.uid,
            "operation": review.operation,
            "is_fail_open": self._options.is_fail_open,
        }
        if is_late:
            fields["error"] = str(error)
            logger.warning("admission too late", extra={"fields": fields})
        else:
            logger.error("admission failed", exc_info=error, extra={"fields": fields})
        self._observer.observe_admission(
            AdmissionOutcome.FAILED, AdmissionReason.INTERNAL_ERROR
        )
        if self._options.is_fail_open:
            return Answer(
                warnings=(
                    "gpu-extender failed: the pod was not changed; create it again",
                )
            )
        return Answer(
            is_allowed=False,
            status_code=_INTERNAL_ERROR,
            message="gpu-extender failed on this pod; its log says why",
        )

    def _mutate(
        self, review: Review, pod: AdmittedPod, check: Callable[[], None]
    ) -> _Decision:
        """Run all steps; what the fallback holds for a pod not admitted is released."""
        is_admitted = False
        try:
            decision = self._run_steps(review, pod, check)
            is_admitted = decision.injection.outcome is not AdmissionOutcome.REJECTED
        finally:
            if not is_admitted:
                self._fallback.release(pod.identity)
        return decision

    def _run_steps(
        self, review: Review, pod: AdmittedPod, check: Callable[[], None]
    ) -> _Decision:
        """Return what is decided; what the fallback holds for it goes on being held."""
        check()
        fallback = self._fallback.apply(pod)
        check()
        injection = self._injector.apply(pod, fallback.fallen)
        if injection.outcome is AdmissionOutcome.REJECTED:
            return _Decision(injection, fallback)
        warnings = tuple(text for step in self._steps for text in step.apply(pod))
        capacity = () if self._capacity is None else self._capacity.apply(pod)
        operations = json_patch(review.object, pod.tree)
        check()
        return _Decision(injection, fallback, warnings, operations, capacity)

    def _tell(self, review: Review, identity: PodIdentity, decision: _Decision) -> None:
        """Count and log one decision."""
        injection, fallback = decision.injection, decision.fallback
        self._observer.observe_admission(injection.outcome, injection.reason)
        if fallback is not None:
            self._observer.observe_fallback(fallback.outcome)
        if not logger.isEnabledFor(logging.DEBUG):
            return
        logger.debug(
            "admission reviewed",
            extra={
                "fields": {
                    "request_uid": review.uid,
                    "pod": identity.label,
                    "operation": review.operation,
                    "is_dry_run": review.is_dry_run,
                    "outcome": injection.outcome.value,
                    "reason": injection.reason.value,
                    "fallback": fallback.outcome if fallback else None,
                    "patch_operations": len(decision.operations),
                }
            },
        )


def skip_reason(
    review: Review, skipped_namespaces: frozenset[str]
) -> AdmissionReason | None:
    """Return why the object of a request is not looked at; None if it is.

    Only the creation of a pod can be changed: of an existing one nearly every field is
    immutable, and a patch would block whoever updates it.
    """
    kind = review.kind
    if (kind.group, kind.kind, review.sub_resource) != ("", "Pod", ""):
        return AdmissionReason.NOT_A_POD
    if review.operation != "CREATE":
        return AdmissionReason.NOT_A_CREATE
    if review.object is None:
        return AdmissionReason.NO_OBJECT
    if review.namespace in skipped_namespaces:
        return AdmissionReason.SYSTEM_NAMESPACE
    return None


def _notes_of(decision: _Decision) -> ReviewNotes:
    """Return what people should know, with what is said of a fall for itself."""
    fallback = decision.fallback
    warnings = (*decision.warnings, *decision.injection.warnings)
    if fallback is None or fallback.outcome not in _FALLEN:
        return ReviewNotes((*(fallback.warnings if fallback else ()), *warnings))
    targets = frozenset(fall.target for fall in fallback.fallen)
    return ReviewNotes(warnings, fallback.warnings, targets)


def _answer(decision: _Decision) -> Answer:
    """Return what the API server is told of a decision."""
    injection, fallback = decision.injection, decision.fallback
    is_allowed = injection.outcome is not AdmissionOutcome.REJECTED
    audit = {}
    if not is_allowed or decision.operations:
        audit["injection"] = injection.reason.value
        audit.update(injection.audit)
    if is_allowed and fallback is not None:
        audit.update(fallback.audit)
    return Answer(
        is_allowed=is_allowed,
        patch=encode_patch(decision.operations),
        status_code=0 if is_allowed else _FORBIDDEN,
        message=injection.message,
        warnings=(
            *(fallback.warnings if fallback else ()),
            *decision.capacity,
            *decision.warnings,
            *injection.warnings,
        ),
        audit=audit,
    )
