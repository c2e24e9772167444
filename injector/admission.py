"""One admission request from review to answer: gate, fallback, steps, injection."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from cluster.decode.objects import Pod
from injector.patch import draft_of, encode_patch, json_patch
from injector.resources.inject import Injection, Injector, pod_label
from injector.review import Answer, Review, read_pod
from injector.rules.rules import Outcome, Reason
from injector.steps import (
    MIRROR_ANNOTATION,
    SOURCE_ANNOTATION,
    FallbackResult,
    FallbackStep,
    PodFacts,
    PodStep,
)

_FORBIDDEN: Final = 403

_INTERNAL_ERROR: Final = 500

logger = logging.getLogger(__name__)


class AdmissionObserver(Protocol):
    """Is told what became of each request; any worker thread may call it."""

    def observe_admission(self, outcome: Outcome, reason: Reason) -> None:
        """Count one admission request."""
        ...

    def observe_fallback(self, outcome: str) -> None:
        """Count one pod that the fallback step has seen."""
        ...


@dataclass(frozen=True, slots=True)
class _Decision:
    """What was decided about a pod, and the patch that does it."""

    injection: Injection
    fallback: FallbackResult | None = None
    warnings: tuple[str, ...] = ()
    operations: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class AdmissionOptions:
    """What else is done to pods, and what happens when we fail ourselves.

    Attributes
    ----------
    steps : tuple of PodStep
        Run in order after the fallback and the injection.
    checks : tuple of PodStep
        Run at the end; they warn and change nothing.
    is_fail_open : bool
        Whether a pod passes unchanged when we fail ourselves; see
        `Admission.answer_fault`.
    """

    steps: tuple[PodStep, ...] = ()
    checks: tuple[PodStep, ...] = ()
    is_fail_open: bool = False


def never_late() -> None:
    """Raise an error if the caller has given up: never, where nobody limits it."""


class Admission:
    """Answers admission reviews; holds no state of its own.

    Parameters
    ----------
    injector : Injector
    fallback : FallbackStep or None
        Runs before everything else, on a copy of the pod.
    observer : AdmissionObserver
    options : AdmissionOptions
    """

    def __init__(
        self,
        injector: Injector,
        fallback: FallbackStep | None,
        observer: AdmissionObserver,
        options: AdmissionOptions | None = None,
    ) -> None:
        self._injector = injector
        self._fallback = fallback
        self._observer = observer
        self._options = options or AdmissionOptions()

    def decide(self, review: Review, check: Callable[[], None] = never_late) -> Answer:
        """Return the answer to `review`; raise `ReviewError` if its pod is none.

        `check` is called between two steps, and ends the work by an error.
        """
        reason = skip_reason(review, self._injector.options.skipped_namespaces)
        if reason is None:
            view = read_pod(review.object)
            facts = facts_of(review, view)
            decision = (
                _Decision(Injection(Outcome.SKIPPED, Reason.STATIC_POD))
                if is_static(view)
                else self._mutate(review, facts, check)
            )
        else:
            facts = facts_of(review, Pod())
            decision = _Decision(Injection(Outcome.SKIPPED, reason))
        self._tell(review, facts, decision)
        return _answer(decision)

    def answer_fault(self, review: Review, error: BaseException) -> Answer:
        """Return the answer when deciding about `review` has failed.

        The API server applies ``failurePolicy`` only to calls that fail; an answer
        that it can read is final. So the choice is made here, by `is_fail_open`, which
        belongs beside the policy in the settings: closed, the pod is refused with code
        500 and controllers try again; open, it passes unchanged with a warning.
        """
        logger.error(
            "admission failed",
            exc_info=error,
            extra={
                "fields": {
                    "request_uid": review.uid,
                    "operation": review.operation,
                    "is_fail_open": self._options.is_fail_open,
                }
            },
        )
        self._observer.observe_admission(Outcome.FAILED, Reason.INTERNAL_ERROR)
        if self._options.is_fail_open:
            return Answer(warnings=("gpu-extender failed: the pod was not changed",))
        return Answer(
            is_allowed=False,
            status_code=_INTERNAL_ERROR,
            message="gpu-extender failed on this pod; its log says why",
        )

    def _mutate(
        self, review: Review, facts: PodFacts, check: Callable[[], None]
    ) -> _Decision:
        """Run all steps on a copy of the pod."""
        is_admitted = False
        try:
            decision = self._run_steps(review, facts, check)
            is_admitted = decision.injection.outcome is not Outcome.REJECTED
        finally:
            if self._fallback is not None and not is_admitted:
                self._fallback.release(facts)
        return decision

    def _run_steps(
        self, review: Review, facts: PodFacts, check: Callable[[], None]
    ) -> _Decision:
        """Return what is decided; what the fallback holds for it goes on being held."""
        pod = draft_of(review.object)
        fallback = None
        check()
        if self._fallback is not None:
            fallback = self._fallback.apply(pod, facts)
        check()
        injection = self._injector.apply(pod, facts)
        if injection.outcome is Outcome.REJECTED:
            return _Decision(injection, fallback)
        # Last, so that they see what the pod ends up asking: seen again, it is the same
        # for them.
        warnings = _run(self._options.steps, pod, facts)
        warnings += _run(self._options.checks, pod, facts)
        operations = json_patch(review.object, pod)
        check()
        return _Decision(injection, fallback, tuple(warnings), operations)

    def _tell(self, review: Review, facts: PodFacts, decision: _Decision) -> None:
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
                    "pod": pod_label(facts),
                    "operation": review.operation,
                    "is_dry_run": review.is_dry_run,
                    "outcome": injection.outcome.value,
                    "reason": injection.reason.value,
                    "fallback": fallback.outcome if fallback else None,
                    "patch_operations": len(decision.operations),
                }
            },
        )


def _run(steps: Sequence[PodStep], pod: dict[str, Any], facts: PodFacts) -> list[str]:
    """Run steps in order; return their warnings."""
    return [text for step in steps for text in step.apply(pod, facts)]


def skip_reason(review: Review, skipped_namespaces: frozenset[str]) -> Reason | None:
    """Return why the object of a request is not looked at; None if it is.

    Only the creation of a pod can be changed: of an existing one nearly every field is
    immutable, and a patch would block whoever updates it.
    """
    kind = review.kind
    if (kind.group, kind.kind, review.sub_resource) != ("", "Pod", ""):
        return Reason.NOT_A_POD
    if review.operation != "CREATE":
        return Reason.NOT_A_CREATE
    if review.object is None:
        return Reason.NO_OBJECT
    if review.namespace in skipped_namespaces:
        return Reason.SYSTEM_NAMESPACE
    return None


def is_static(view: Pod) -> bool:
    """Say whether the kubelet runs this pod whatever the API server thinks of it."""
    annotations = view.metadata.annotations or {}
    return (
        MIRROR_ANNOTATION in annotations
        or annotations.get(SOURCE_ANNOTATION, "api") != "api"
    )


def facts_of(review: Review, view: Pod) -> PodFacts:
    """Return the plain facts about the pod of `review`."""
    metadata = view.metadata
    return PodFacts(
        request_uid=review.uid,
        namespace=review.namespace or metadata.namespace,
        name=review.name or metadata.name,
        generate_name=metadata.generate_name,
        owner_uid=view.owner_uid,
        is_dry_run=review.is_dry_run,
    )


def _answer(decision: _Decision) -> Answer:
    """Return what the API server is told of a decision."""
    injection, fallback = decision.injection, decision.fallback
    is_allowed = injection.outcome is not Outcome.REJECTED
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
            *decision.warnings,
            *injection.warnings,
        ),
        audit=audit,
    )
