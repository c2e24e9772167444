"""Settings of what is decided: labels, verdicts, scores, injection, fallback."""

from types import MappingProxyType
from typing import Annotated, Final, Literal

import pydantic

from scoring.gpu_models import GpuTable
from scoring.strategies import ScoreOptions, compatible_names
from service.process_settings import NonEmpty, PositiveSeconds, Seconds, SettingsModel

# Fewer leave kube-scheduler's own score plugins too little choice.
MIN_SHORTLIST: Final = 16


class LabelSettings(SettingsModel):
    """Node labels that the classic score reads."""

    accelerator: NonEmpty = pydantic.Field(
        default="accelerator",
        description="GPU type of a node, for pods with a nodeSelector on it.",
    )
    interconnect: NonEmpty = pydantic.Field(
        default="gpu-interconnect",
        description="`nvlink` where a node's GPUs are joined.",
    )


class FaultSignalSettings(SettingsModel):
    """What on a node says that its GPUs are not ready."""

    labels: dict[str, tuple[str, ...]] = pydantic.Field(
        default={
            "nvidia.com/mig.config.state": ("success",),
            "nvidia.com/gpu-driver-upgrade-state": (
                "",
                "upgrade-done",
                "upgrade-required",
            ),
        },
        description="Label key to the values with which the GPUs can be used.",
    )
    product_labels: tuple[str, ...] = pydantic.Field(
        default=("nvidia.com/gpu.product",),
        description="Labels whose value ends in `-MIG-INVALID` for a faulty layout.",
    )
    conditions: dict[str, Literal["True", "False", "Unknown"]] = pydantic.Field(
        default={},
        description="Node condition type to the status that is a fault, such as"
        " `AcceleratedHardwareReady: 'False'`.",
    )


class ExtenderSettings(SettingsModel):
    """How the verbs judge."""

    counts: Literal["trust", "enforce"] | None = pydantic.Field(
        default=None,
        description="`enforce` refuses a node whose free GPUs are too few by our own"
        " count; `trust` leaves that to kube-scheduler, which knows of pods that are"
        " not bound yet. Default: `enforce` for the source `file`, else `trust`.",
    )
    placements_under_way: bool = pydantic.Field(
        default=True,
        description="Whether scores count a pod on the node that was just answered as"
        " the best one, until it is seen there, for 2 s at most. Source `kubernetes`"
        " only.",
    )
    freshness_milliseconds: Annotated[int, pydantic.Field(ge=0, le=200)] = (
        pydantic.Field(
            default=20,
            description="How long a filter call whose answer would be empty, or that"
            " names an unknown node, waits for the next snapshot; 0 for not at all."
            " Five calls a second wait, the others do not. Source `kubernetes` only.",
        )
    )
    wake_up: bool = pydantic.Field(
        default=True,
        description="Whether a pod that was refused on every offered node is woken when"
        " some node would take it. Source `kubernetes` only; takes the right to patch"
        " `pods/status`.",
    )
    wake_up_annotation: NonEmpty = pydantic.Field(
        default="gpu-extender.io/woken",
        description="Annotation that is written to wake a pod.",
    )
    deadline_milliseconds: Annotated[int, pydantic.Field(ge=10, le=60_000)] = (
        pydantic.Field(
            default=800,
            description="Age of a call at which the work on it stops with 504. Below"
            " kube-scheduler's `httpTimeout`, after which it has given up.",
        )
    )


class WeightSettings(SettingsModel):
    """Weight of each score term, in hundredths."""

    utilization: Annotated[int, pydantic.Field(ge=0, le=1000)] = pydantic.Field(
        default=40, description="How near to the wanted allocation ratio the node is."
    )
    type_match: Annotated[int, pydantic.Field(ge=0, le=1000)] = pydantic.Field(
        default=30, description="Whether the node has the asked GPU type."
    )
    topology: Annotated[int, pydantic.Field(ge=0, le=1000)] = pydantic.Field(
        default=30, description="Whether several GPUs of one pod are joined."
    )

    @pydantic.model_validator(mode="after")
    def _some_weight(self) -> "WeightSettings":
        if not self.utilization + self.type_match + self.topology:
            raise ValueError("wanted at least one weight above 0, got none")
        return self


class TargetSettings(SettingsModel):
    """Allocation ratio at which a node scores best."""

    low: Annotated[float, pydantic.Field(gt=0, lt=1)] = pydantic.Field(
        default=0.6, description="Ratio from which a node scores 100."
    )
    high: Annotated[float, pydantic.Field(gt=0, lt=1)] = pydantic.Field(
        default=0.8, description="Ratio up to which a node scores 100."
    )

    @pydantic.model_validator(mode="after")
    def _in_order(self) -> "TargetSettings":
        if self.low > self.high:
            raise ValueError(f"wanted low <= high, got {self.low} > {self.high}")
        return self


class ScoringSettings(SettingsModel):
    """How feasible nodes are ranked."""

    profile: Literal["classic"] = pydantic.Field(
        default="classic", description="A tested way to combine the terms."
    )
    weights: WeightSettings = pydantic.Field(
        default=WeightSettings(), description="Weight of each term, in hundredths."
    )
    target_utilization: TargetSettings = pydantic.Field(
        default=TargetSettings(),
        description="Part of a node's GPUs in use at which it scores 100.",
    )
    normalize: Literal["minMax", "absolute", "rank"] = pydantic.Field(
        default="minMax",
        description="How totals become priorities. `minMax` stretches the candidates'"
        " totals over the whole range; `absolute` maps the range that totals can have,"
        " so that small differences stay small; `rank` gives the best node `maxScore`"
        " alone, and the others their place.",
    )
    type_order: Literal["strict", "weighted"] = pydantic.Field(
        default="strict",
        description="How the order of a pod's list of GPU types counts: `strict` puts"
        " each node of an earlier type before all of a later one, `weighted` leaves it"
        " to the weight of `typeMatch`.",
    )
    strategy: Literal["target", "binpack", "spread"] = pydantic.Field(
        default="target",
        description="Which nodes the utilization term prefers: those near"
        " `targetUtilization`, the fullest ones, or the emptiest ones.",
    )
    shortlist: Annotated[int, pydantic.Field(ge=0, le=10_000)] = pydantic.Field(
        default=0,
        description="How many feasible nodes filter answers at most; 0 for all. With"
        " 32, kube-scheduler scores and sends 32 nodes instead of hundreds, and its own"
        " score plugins choose among those 32. 1 decides alone: preferred affinity and"
        " spreading are ignored. Otherwise 16 or more. Not with `normalize: minMax`,"
        " and not with another filter extender behind this one.",
    )
    max_score: Annotated[int, pydantic.Field(ge=1, le=100)] = pydantic.Field(
        default=10,
        description="Priority of the best node. kube-scheduler's contract says 10; it"
        " does not check, and multiplies a higher one into its own scores.",
    )

    @pydantic.model_validator(mode="after")
    def _shortlist(self) -> "ScoringSettings":
        if 1 < self.shortlist < MIN_SHORTLIST:
            raise ValueError(
                f"shortlist: wanted 0, 1, or {MIN_SHORTLIST} or more,"
                f" got {self.shortlist}"
            )
        if self.shortlist and self.normalize == "minMax":
            raise ValueError(
                "shortlist: wanted normalize rank or absolute with it, got minMax,"
                " which would stretch the differences among the best to the full range"
            )
        return self

    compatible_types: dict[str, tuple[str, ...]] = pydantic.Field(
        default={
            "nvidia-tesla-v100": ("nvidia-tesla-a100",),
            "nvidia-tesla-a100": ("nvidia-tesla-v100",),
            "nvidia-tesla-t4": ("nvidia-rtx-3080", "nvidia-rtx-3090"),
        },
        description="Asked GPU type to the types that score 70 for it. The filter"
        " takes the asked type alone.",
    )

    def options(self, table: GpuTable) -> ScoreOptions:
        """Return what the terms read of them; `table` knows names of GPU types."""
        types = self.compatible_types
        return ScoreOptions(
            self.target_utilization.low,
            self.target_utilization.high,
            MappingProxyType({k: frozenset(v) for k, v in types.items()}),
            self.strategy,
            compatible_names(table, types),
        )


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
    trigger_annotation: str = pydantic.Field(
        default="task.bkbcs.tencent.com/gpu-type",
        description="Annotation whose value is the GPU type, the key of the rules.",
    )
    failure_policy: Literal["Fail", "Ignore"] = pydantic.Field(
        default="Fail",
        description="What becomes of a pod when its review fails by a fault of ours:"
        " refused, or passed unchanged with a warning. It should equal the"
        " registration's.",
    )
    scheduler_name: str | None = pydantic.Field(
        default=None,
        description="Scheduler that every pod asking a managed resource is sent to, for"
        " a cluster with a scheduler of its own for GPUs. Without one, none is set.",
    )
    scheduler_opt_out_label: str = pydantic.Field(
        default="gpu-extender.io/scheduler",
        description="Label that, with the value `keep`, leaves a pod its scheduler.",
    )
    toleration: bool = pydantic.Field(
        default=False,
        description="Whether GPU pods get a toleration of taints named like their"
        " resource.",
    )
    skipped_namespaces: tuple[str, ...] = pydantic.Field(
        default=("kube-system", "kube-public", "kube-node-lease", "gpu-extender"),
        description="Namespaces whose pods pass untouched.",
    )


class FallbackAnnotationSettings(SettingsModel):
    """Annotations that fallback reads and writes."""

    opt_out: str = pydantic.Field(
        default="gpu-extender.io/fallback",
        description="`never` on a pod that must keep its resource.",
    )
    sharing: str = pydantic.Field(
        default="gpu-extender.io/sharing",
        description="`allowed` on a pod that takes shared cards for whole ones.",
    )
    record: str = pydantic.Field(
        default="gpu-webhook.k8s.io/fallback",
        description="Written: what was changed, such as `2g.20gb->gpu`.",
    )
    mark: str = pydantic.Field(
        default="gpu-extender.io/fallback-weighed",
        description="Written: the final resource of a pod that was weighed.",
    )


class FallbackSettings(SettingsModel):
    """What a pod gets whose MIG slice is not free."""

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
    namespaces: tuple[str, ...] | None = pydantic.Field(
        default=None, description="Where fallback is on; without it, everywhere."
    )
    annotations: FallbackAnnotationSettings = pydantic.Field(
        default=FallbackAnnotationSettings(), description="Names of the annotations."
    )
