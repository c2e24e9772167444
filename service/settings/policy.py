"""Settings of the extender: labels, verdicts, scores."""

from types import MappingProxyType
from typing import Annotated, Final, Literal

import pydantic

from scoring.candidates import LabelKeys
from scoring.gpu.models import GpuTable, normal_name
from scoring.gpu.requirements import MAX_TYPES
from scoring.names import is_namespace, is_subdomain
from scoring.packing.learning import MAX_SHAPES, ExpectedPods, ExpectedShape
from scoring.packing.shapes import MAX_CPU, MAX_DEVICES, WHOLE, Shape
from scoring.profiles import CLASSIC, PACKING_TERMS, PROFILES
from scoring.terms import ScoreOptions, compatible_names
from service.settings.names import AnnotationKey, LabelKey
from service.settings.process import NonEmpty, SettingsModel

# Fewer leave kube-scheduler's own score plugins too little choice.
MIN_SHORTLIST: Final = 16

DEFAULT_DOMAINS: Final = (
    "nvidia.com/gpu.clique",
    "topology.kubernetes.io/rack",
    "topology.kubernetes.io/zone",
)


DEFAULT_POOLS: Final = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "karpenter.sh/nodepool",
    "kubernetes.azure.com/agentpool",
)


class LabelSettings(SettingsModel):
    """Labels that the score reads, of nodes but for `job`; `pools` is for metrics."""

    accelerator: LabelKey = pydantic.Field(
        default="accelerator",
        description="GPU type of a node, for pods with a nodeSelector on it.",
    )
    interconnect: LabelKey = pydantic.Field(
        default="gpu-interconnect",
        description="`nvlink` where a node's GPUs are joined.",
    )
    domains: Annotated[tuple[LabelKey, ...], pydantic.Field(max_length=8)] = (
        pydantic.Field(
            default=DEFAULT_DOMAINS,
            description="What the pods of a job had better share, the nearest first,"
            " for the weight `domain`. Each value names one clique, rack or zone of the"
            " whole cluster.",
        )
    )
    job: LabelKey | None = pydantic.Field(
        default=None,
        description="Of pods: those of one namespace with the same value are of one"
        " job, and others of none. Without it, those of one controller are.",
    )
    pools: Annotated[tuple[LabelKey, ...], pydantic.Field(max_length=16)] = (
        pydantic.Field(
            default=DEFAULT_POOLS,
            description="What names a node's pool in `gpu_extender_gpus`; the first"
            " that a node has counts.",
        )
    )

    def keys(self) -> LabelKeys:
        """Return those of nodes."""
        return LabelKeys(self.accelerator, self.interconnect, self.domains)


class FaultSignalSettings(SettingsModel):
    """Labels and conditions of a node whose GPUs are not ready."""

    labels: dict[LabelKey, tuple[str, ...]] = pydantic.Field(
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
    product_labels: tuple[LabelKey, ...] = pydantic.Field(
        default=("nvidia.com/gpu.product",),
        description="Labels whose value ends in `-MIG-INVALID` for a faulty layout.",
    )
    conditions: dict[str, Literal["True", "False", "Unknown"]] = pydantic.Field(
        default={},
        description="Node condition type to the status that is a fault, such as"
        " `AcceleratedHardwareReady: 'False'`.",
    )


DEFAULT_SCHEDULER_LEASE: Final = "kube-system/kube-scheduler"


def _object_path(text: str) -> str:
    namespace, _, name = text.partition("/")
    if not (is_namespace(namespace) and is_subdomain(name)):
        raise ValueError(f"wanted NAMESPACE/NAME of a Lease, got {text!r}")
    return text


class ExtenderSettings(SettingsModel):
    """Judgement of the verbs."""

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
    wake_up_annotation: AnnotationKey = pydantic.Field(
        default="gpu-extender.io/woken",
        description="Annotation that is written to wake a pod.",
    )
    events: bool = pydantic.Field(
        default=True,
        description="Whether Events tell on pods that have been pending for half a"
        " minute why they are, and on their owners. Source `kubernetes`, and in a pod"
        " that holds the lease, only; takes the right to create `events`.",
    )
    scheduler_config_file: str | None = pydantic.Field(
        default=None,
        description="KubeSchedulerConfiguration that kube-scheduler is started with,"
        " relative to this file, where we can read it: `/doctor` compares it with what"
        " nodes offer and with `deadlineMilliseconds`.",
    )
    scheduler_lease: Annotated[str, pydantic.AfterValidator(_object_path)] = (
        pydantic.Field(
            default=DEFAULT_SCHEDULER_LEASE,
            description="Namespace and name of the Lease of the kube-scheduler that"
            " calls us: a replica that is never called because another host leads is"
            " told apart by it. With `injection.schedulerName`, the default is not"
            " looked at: it is another scheduler's.",
        )
    )
    deadline_milliseconds: Annotated[int, pydantic.Field(ge=10, le=60_000)] = (
        pydantic.Field(
            default=800,
            description="Age of a call at which the work on it stops with 504. Below"
            " kube-scheduler's `httpTimeout`, after which it has given up.",
        )
    )


class WeightSettings(SettingsModel):
    """Weight of each score term, in hundredths; defaults are those of `classic`."""

    utilization: Annotated[int, pydantic.Field(ge=0, le=1000)] = pydantic.Field(
        default=40, description="How near to the wanted allocation ratio the node is."
    )
    type_match: Annotated[int, pydantic.Field(ge=0, le=1000)] = pydantic.Field(
        default=30, description="Whether the node has the asked GPU type."
    )
    topology: Annotated[int, pydantic.Field(ge=0, le=1000)] = pydantic.Field(
        default=30, description="Whether several GPUs of one pod are joined."
    )
    fragmentation: Annotated[int, pydantic.Field(ge=0, le=1000)] = pydantic.Field(
        default=0,
        description="How useful what is left of the node stays to the pods that are"
        " expected, those without GPUs included.",
    )
    scarcity: Annotated[int, pydantic.Field(ge=0, le=1000)] = pydantic.Field(
        default=0,
        description="How little other pods insist on the node's GPU model.",
    )
    domain: Annotated[int, pydantic.Field(ge=0, le=1000)] = pydantic.Field(
        default=0,
        description="How near the node is to other pods of the same job: in their"
        " NVLink clique, rack or zone (`labels.domains`).",
    )
    mig: Annotated[int, pydantic.Field(ge=0, le=1000)] = pydantic.Field(
        default=0,
        description="How little a MIG instance that is made on demand breaks for larger"
        " profiles, where the places of those that are there are known.",
    )


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


class ExpectedPodSettings(SettingsModel):
    """Pods of one shape that are expected."""

    cpu_millicores: Annotated[int, pydantic.Field(ge=0, le=MAX_CPU)] = pydantic.Field(
        default=0, description="CPU of each pod."
    )
    gpus: Annotated[int, pydantic.Field(ge=0, le=MAX_DEVICES)] = pydantic.Field(
        default=1, description="GPUs of each pod; 0 for none."
    )
    thousandths: Annotated[int, pydantic.Field(ge=1, le=WHOLE)] = pydantic.Field(
        default=WHOLE, description="Of each GPU; below 1000 with one GPU only."
    )
    types: Annotated[tuple[NonEmpty, ...], pydantic.Field(max_length=MAX_TYPES)] = (
        pydantic.Field(
            default=(),
            description="GPU models or families that they accept; empty for any.",
        )
    )
    weight: Annotated[float, pydantic.Field(gt=0, le=1e9, allow_inf_nan=False)] = (
        pydantic.Field(default=1.0, description="How many come, beside the others.")
    )

    @pydantic.model_validator(mode="after")
    def _whole_gpus(self) -> "ExpectedPodSettings":
        if self.thousandths < WHOLE and self.gpus != 1:
            raise ValueError(
                f"thousandths: wanted {WHOLE} with {self.gpus} GPUs,"
                f" got {self.thousandths}"
            )
        return self

    @property
    def shape(self) -> ExpectedShape:
        """What it is in the mix."""
        return ExpectedShape(
            Shape(self.cpu_millicores, self.gpus, self.thousandths),
            frozenset(map(normal_name, self.types)),
            is_whole=bool(self.types) and self.thousandths == WHOLE,
        )


class ScoringSettings(SettingsModel):
    """Ranking of feasible nodes."""

    profile: Literal["classic", "packing", "spread", "training"] = pydantic.Field(
        default=CLASSIC,
        description="A tested set of weights, `normalize` and `strategy`, which are the"
        " defaults of these keys, and how the terms are combined.",
    )
    weights: WeightSettings = pydantic.Field(
        default=WeightSettings(),
        description="Weight of each term, in hundredths.",
        validate_default=True,
    )

    @pydantic.field_validator("weights")
    @classmethod
    def _weights_by_profile(
        cls, own: WeightSettings, info: pydantic.ValidationInfo
    ) -> WeightSettings:
        """Fill in the profile's weights where the file says nothing."""
        profile = PROFILES[info.data.get("profile", CLASSIC)]
        weights = own.model_copy()
        for key, field in WeightSettings.model_fields.items():
            if key not in own.model_fields_set:
                value = profile.weights.get(field.alias or key, 0)
                object.__setattr__(weights, key, value)  # stays one that is not given
        if not any(weights.model_dump().values()):
            raise ValueError("wanted at least one weight above 0, got none")
        return weights

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
        description="How the order of a pod's list of GPU types counts: `strict` gives"
        " each node of an earlier type a higher priority than all of a later one, as"
        " far as `maxScore` has room; `weighted` leaves it to the weight of"
        " `typeMatch`.",
    )
    strategy: Literal["target", "binpack", "spread"] = pydantic.Field(
        default="target",
        description="Which nodes the utilization term prefers: those near"
        " `targetUtilization`, the fullest ones, or the emptiest ones. `binpack` fills"
        " best with `normalize: rank`: among equals, kube-scheduler draws lots.",
    )
    topology: Literal["auto", "label", "graded"] = pydantic.Field(
        default="auto",
        description="What the topology term goes by. `graded`: the set of GPUs that the"
        " pod would get, and what that breaks, wherever annotation or model tell the"
        " links; `label`: `labels.interconnect` alone; `auto`: `graded` for several"
        " GPUs on nodes with a link matrix of their own, `label` otherwise.",
    )
    expected_pods: Annotated[
        tuple[ExpectedPodSettings, ...], pydantic.Field(max_length=MAX_SHAPES)
    ] = pydantic.Field(
        default=(),
        description="The pods that come, for the weights `fragmentation` and"
        " `scarcity`. Empty to learn that from those that came.",
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
    def _by_profile(self) -> "ScoringSettings":
        """Fill in what the profile says where the file says nothing."""
        profile = PROFILES[self.profile]
        for key in ("normalize", "strategy"):
            if key not in self.model_fields_set:
                object.__setattr__(self, key, getattr(profile, key))
        return self

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

    @property
    def is_packing(self) -> bool:
        """Whether scores go by what is left of nodes."""
        weights = self.weights.model_dump(by_alias=True)
        return any(weights[name] for name in PACKING_TERMS)

    def with_profile(self, profile: str) -> "ScoringSettings":
        """Return the same with another profile; keys that the file gives stay."""
        given = self.model_dump(by_alias=True, exclude_unset=True)
        return ScoringSettings.model_validate({**given, "profile": profile})

    def options(self, table: GpuTable) -> ScoreOptions:
        """Return what the terms read of them; `table` knows names of GPU types."""
        types = self.compatible_types
        return ScoreOptions(
            self.target_utilization.low,
            self.target_utilization.high,
            MappingProxyType({k: frozenset(v) for k, v in types.items()}),
            self.strategy,
            compatible_names(table, types),
            self.topology,
            self._expected(),
        )

    def _expected(self) -> ExpectedPods | None:
        """Return the pods that are expected; None where that is to be learned."""
        if not self.expected_pods:
            return None
        parts: dict[ExpectedShape, float] = {}
        for item in self.expected_pods:
            parts[item.shape] = parts.get(item.shape, 0.0) + item.weight
        return ExpectedPods(MappingProxyType(parts))
