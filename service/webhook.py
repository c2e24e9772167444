"""The webhook's parts, built from settings, and what a reload swaps in them."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cluster.decode.gpu_requirements import GpuRequirementsReader
from cluster.ledger.writer import NotSyncedError, SnapshotSource
from injector.admission import (
    Admission,
    AdmissionObserver,
    AdmissionOptions,
    TakeNotes,
)
from injector.admitted_pod import FILLED_ANNOTATION, AdmittedPod, FallenResource
from injector.affinity.step import AffinityStep, KnownGpus
from injector.fallback.annotations import FallbackAnnotations
from injector.fallback.chains import Chains
from injector.fallback.fallback import Fallback, FallbackOptions
from injector.fallback.holds import Holds
from injector.http import MutateResource
from injector.resources.inject import Injector
from injector.rules.conflicts import RuleContext
from injector.rules.file import load_rules
from injector.rules.rules import RuleBook, Rules
from injector.steps import (
    AdmissionOutcome,
    AdmissionReason,
    PodStep,
    SchedulerStep,
    TolerationStep,
)
from injector.warnings.capacity import CapacityCheck, LimitCheck
from injector.warnings.gpu_types import GpuTypeCheck
from injector.warnings.names import NameCheck
from injector.warnings.offers import OfferCheck
from scoring.gpu.node_gpus import GpuLabelReader, GpuLabelRules
from scoring.gpu.requirements import GpuAnnotations
from scoring.protocols import LimitDefaults
from scoring.resources import Request, ResourceScope
from service.settings.settings import Settings
from service.settings.webhook import FallbackSettings, InjectionSettings


class Uncounted:
    """Observer of reviews that only somebody wants to know the outcome of."""

    def observe_admission(
        self, _outcome: AdmissionOutcome, _reason: AdmissionReason
    ) -> None:
        """Take no notice."""

    def observe_fallback(self, _outcome: str) -> None:
        """Take no notice."""


class Webhook:
    """Holds what the webhook consists of; built once.

    Parameters
    ----------
    folder : Path
        Of the configuration file.
    before_choice : callable
        Told of each fallback that is about to be chosen.
    clock : callable
        Returns seconds since 1970, as the API server counts them.
    tell : callable
        Takes what people should know of a pod that was reviewed.
    """

    def __init__(  # noqa: PLR0913 - the last three are optional and named
        self,
        source: SnapshotSource,
        settings: Settings,
        metrics: AdmissionObserver,
        folder: Path,
        *,
        before_choice: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
        tell: TakeNotes = lambda _pod, _notes: None,
    ) -> None:
        injection, fallback = settings.injection, settings.fallback
        scope = settings.scope()
        self._injection = injection
        self.rules_path = (
            None if injection.rules_file is None else folder / injection.rules_file
        )
        self._rules = RuleBook(Rules())
        gpu_rules = settings.gpu_types.rules()
        self._gpu_reader = GpuRequirementsReader(
            settings.gpu_annotations(), GpuLabelReader(gpu_rules)
        )
        self._known_gpus = (
            KnownGpus(source, gpu_rules) if injection.type_affinity else None
        )
        self._context = build_rule_context(
            injection, fallback, self._gpu_reader.annotations
        )
        self.holds = Holds(source, hold_seconds=fallback.hold_seconds)
        injector = Injector(
            self._rules.current,
            trigger_annotation=injection.trigger_annotation,
            existing=injection.existing,
            limit_defaults=partial(_limit_defaults, source),
        )
        self._fallback = Fallback(
            self.holds,
            build_fallback_options(fallback, self._gpu_reader, self._known_gpus),
            complete=partial(_injected_request, injector),
            before_choice=before_choice,
            clock=clock,
        )
        self.admission = Admission(
            self._fallback,
            injector,
            self._build_steps(source, scope, settings),
            metrics,
            AdmissionOptions(
                skipped_namespaces=frozenset(injection.skipped_namespaces),
                is_fail_open=injection.failure_policy == "Ignore",
            ),
            capacity=CapacityCheck(source, scope, self._gpu_reader),
            tell=tell,
        )
        self.resource = MutateResource(self.admission)

    def _build_steps(
        self, source: SnapshotSource, scope: ResourceScope, all_settings: Settings
    ) -> tuple[PodStep, ...]:
        """Return what follows fallback and injection, in the order in which it runs."""
        settings = self._injection
        steps: list[PodStep] = []
        if settings.scheduler_name is not None:
            steps.append(
                SchedulerStep(
                    scope, settings.scheduler_name, settings.scheduler_opt_out_label
                )
            )
        if settings.toleration:
            steps.append(TolerationStep(scope))
        if self._known_gpus is not None:
            steps.append(AffinityStep(self._known_gpus, self._gpu_reader, scope))
        return (
            *steps,
            LimitCheck(source, scope),
            GpuTypeCheck(self._gpu_reader, scope, source),
            OfferCheck(source, scope, self._gpu_reader),
            NameCheck(
                scope,
                _annotations_of(all_settings),
                _labels_of(all_settings),
            ),
        )

    def load_rules(self) -> None:
        """Put the rule file to use; raise `RulesError` with all its faults."""
        if self.rules_path is not None:
            self._rules.replace(load_rules(self.rules_path, self._context))

    def use_gpus(self, rules: GpuLabelRules) -> None:
        """Tell models and families by other rules from now on."""
        self._gpu_reader.use(rules)
        if self._known_gpus is not None:
            self._known_gpus.use(rules)

    def use(self, fallback: FallbackSettings) -> None:
        """Take new chains and namespaces; holds stay as they are.

        Raises `RulesError`, and takes nothing, if the rule file and the chains clash.
        """
        context = build_rule_context(
            self._injection, fallback, self._gpu_reader.annotations
        )
        if context != self._context and self.rules_path is not None:
            self._rules.replace(load_rules(self.rules_path, context))
        self._context = context
        self._fallback.use(
            build_fallback_options(fallback, self._gpu_reader, self._known_gpus)
        )


def _annotations_of(settings: Settings) -> frozenset[str]:
    """Return the annotations of pods that are read or written."""
    return frozenset(
        (
            *settings.gpu_annotations().names,
            *settings.fallback.annotations.model_dump().values(),
            settings.injection.trigger_annotation,
            settings.extender.wake_up_annotation,
            FILLED_ANNOTATION,
            "gpu-extender.io/allocated",
        )
    )


def _labels_of(settings: Settings) -> frozenset[str]:
    """Return the labels of pods that are read."""
    read = (settings.injection.scheduler_opt_out_label, settings.labels.job)
    return frozenset(filter(None, read))


def _injected_request(
    injector: Injector, pod: AdmittedPod, fallen: tuple[FallenResource, ...]
) -> Request | None:
    """Return what the pod asks once it is injected, None if that is refused."""
    injection = injector.apply(pod, fallen)
    if injection.outcome is AdmissionOutcome.REJECTED:
        return None
    return pod.request


def _limit_defaults(source: SnapshotSource, namespace: str) -> LimitDefaults | None:
    """Return what the LimitRanges of a namespace give; None while that is unknown."""
    try:
        return source.current().limit_defaults.get(namespace)
    except NotSyncedError:
        return None


def build_rule_context(
    injection: InjectionSettings,
    fallback: FallbackSettings,
    gpu_annotations: GpuAnnotations,
) -> RuleContext:
    """Return what a rule file must leave alone.

    Where there are chains, also what a pod says that it wants of the GPUs: a node was
    chosen by it before a rule could change it.
    """
    names = fallback.annotations
    decisions = {names.mark, names.record, names.opt_out}
    if fallback.chains:
        decisions.update(gpu_annotations.names)
    return RuleContext(
        injection.trigger_annotation,
        frozenset(decisions),
        frozenset(name for chain in fallback.chains for name in chain[:-1]),
        gpu_annotations,
    )


def build_fallback_options(
    settings: FallbackSettings,
    gpu_reader: GpuRequirementsReader,
    known_gpus: KnownGpus | None,
) -> FallbackOptions:
    """Return what the settings say of the fallback."""
    return FallbackOptions(
        chains=Chains(settings.chains),
        namespaces=(
            None if settings.namespaces is None else frozenset(settings.namespaces)
        ),
        annotations=FallbackAnnotations(**settings.annotations.model_dump()),
        unschedulable_seconds=settings.unschedulable_seconds,
        gpu_reader=gpu_reader,
        require_gpus=None if known_gpus is None else known_gpus.require,
    )
