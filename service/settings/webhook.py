"""Settings of the webhook: injection and fallback."""

from typing import Literal

import pydantic

from service.settings.names import AnnotationKey, LabelKey, NamespaceName, SchedulerName
from service.settings.process import PositiveSeconds, Seconds, SettingsModel


class InjectionSettings(SettingsModel):
    """Resources per GPU, by GPU type and namespace."""

    rules_file: str | None = pydantic.Field(
        default=None,
        description="Rule file in the form of gpuinjector, JSON or YAML, relative to"
        " this file; read again when it changes. Without one nothing is injected.",
    )
    existing: Literal["overwrite", "keep"] = pydantic.Field(
        default="overwrite",
        description="`overwrite`: a rule replaces what a GPU container asks; `keep`:"
        " it fills what is unset.",
    )
    trigger_annotation: AnnotationKey = pydantic.Field(
        default="task.bkbcs.tencent.com/gpu-type",
        description="Annotation whose value is the GPU type, the key of the rules.",
    )
    failure_policy: Literal["Fail", "Ignore"] = pydantic.Field(
        default="Fail",
        description="What becomes of a pod when its review fails by a fault of ours:"
        " refused, or passed unchanged with a warning. It should equal the"
        " registration's.",
    )
    scheduler_name: SchedulerName | None = pydantic.Field(
        default=None,
        description="Scheduler that every pod asking a managed resource is sent to, for"
        " a cluster with a scheduler of its own for GPUs. Without one, none is set.",
    )
    scheduler_opt_out_label: LabelKey = pydantic.Field(
        default="gpu-extender.io/scheduler",
        description="Label that, with the value `keep`, leaves a pod its scheduler.",
    )
    toleration: bool = pydantic.Field(
        default=False,
        description="Whether GPU pods get a toleration of taints named like their"
        " resource.",
    )
    type_affinity: bool = pydantic.Field(
        default=True,
        description="Whether the type and memory that a pod demands of its GPUs are"
        " written into it as required node affinity, and what keeps a pod that fell"
        " back off GPUs that are too small.",
    )
    skipped_namespaces: tuple[NamespaceName, ...] = pydantic.Field(
        default=(
            "kube-system",
            "kube-public",
            "kube-node-lease",
            "gpu-extender",
            # Of the operators that make a node's GPUs usable in the first place.
            "gpu-operator",
            "nvidia-gpu-operator",
            "nvidia-dra-driver-gpu",
            "kube-amd-gpu",
        ),
        description="Namespaces whose pods pass untouched.",
    )


class FallbackAnnotationSettings(SettingsModel):
    """Annotations that fallback reads and writes."""

    opt_out: AnnotationKey = pydantic.Field(
        default="gpu-extender.io/fallback",
        description="`never` on a pod that must keep its resource.",
    )
    sharing: AnnotationKey = pydantic.Field(
        default="gpu-extender.io/sharing",
        description="`allowed` on a pod that takes shared GPUs for whole ones.",
    )
    record: AnnotationKey = pydantic.Field(
        default="gpu-webhook.k8s.io/fallback",
        description="Written: what was changed, such as `2g.20gb->gpu`.",
    )
    mark: AnnotationKey = pydantic.Field(
        default="gpu-extender.io/fallback-weighed",
        description="Written: the final resource of a pod that was weighed.",
    )


class FallbackSettings(SettingsModel):
    """Substitutes for a MIG slice that is not free."""

    chains: tuple[tuple[str, ...], ...] = pydantic.Field(
        default=(),
        description="Resources, each list from the best to the last resort; a resource"
        " stands in one list only.",
    )
    hold_seconds: PositiveSeconds = pydantic.Field(
        default=10.0,
        description="How long an admitted pod that is not seen holds its place.",
    )
    unschedulable_seconds: Seconds = pydantic.Field(
        default=60.0,
        description="How long kube-scheduler must have called a pending pod"
        " unschedulable for it to be no longer counted.",
    )
    namespaces: tuple[NamespaceName, ...] | None = pydantic.Field(
        default=None, description="Where fallback is on; without it, everywhere."
    )
    annotations: FallbackAnnotationSettings = pydantic.Field(
        default=FallbackAnnotationSettings(), description="Names of the annotations."
    )
