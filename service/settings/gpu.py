"""Settings of GPU types: names of them on nodes, and in requests of pods."""

from types import MappingProxyType
from typing import Annotated, Literal

import pydantic

from cluster.decode.records import LinkAnnotations
from scoring.gpu.models import GpuModel, extended_table
from scoring.gpu.node_gpus import (
    DEFAULT_MEMORY_LABELS,
    DEFAULT_TYPE_LABELS,
    GpuLabelRules,
)
from scoring.gpu.requirements import GpuAnnotations, is_askable
from scoring.quantity import QuantityError, parse_quantity
from service.settings.names import AnnotationKey, LabelKey, NamePattern
from service.settings.process import NonEmpty, SettingsModel


def _askable(name: str) -> str:
    """Return a name that an annotation can ask for; raise `ValueError` for another."""
    if not is_askable(name):
        raise ValueError(
            "wanted a name that a pod can ask for: letters, digits, blanks and"
            f" ._+()/- after a first letter or digit, got {name!r}"
        )
    return name


GpuName = Annotated[NonEmpty, pydantic.AfterValidator(_askable)]


class GpuModelSettings(SettingsModel):
    """A GPU model that the package does not know."""

    memory: NonEmpty = pydantic.Field(
        description="Nominal size of one GPU, such as `48Gi`."
    )
    names: tuple[GpuName, ...] = pydantic.Field(
        default=(), description="Its names in labels, beside its own."
    )
    families: tuple[GpuName, ...] = pydantic.Field(
        default=(), description="Wider names that take it in, known ones or new ones."
    )
    unified: bool = pydantic.Field(
        default=False,
        description="Whether the memory is that of the system: labels say nothing of"
        " it.",
    )

    @pydantic.field_validator("memory")
    @classmethod
    def _quantity(cls, memory: str) -> str:
        try:
            amount = parse_quantity(memory)
        except QuantityError as error:
            raise ValueError(str(error)) from error
        if not amount:
            raise ValueError(f"wanted an amount of memory above 0, got {memory!r}")
        return memory

    def model(self, name: str) -> GpuModel:
        """Return the model of that name."""
        return GpuModel(
            name,
            parse_quantity(self.memory),
            families=self.families,
            names=self.names,
            is_unified=self.unified,
        )


class GpuTypeSettings(SettingsModel):
    """Names of GPU models on nodes."""

    type_labels: tuple[NamePattern, ...] = pydantic.Field(
        default=DEFAULT_TYPE_LABELS,
        description="Labels that name a node's model; the first that does so counts."
        " With a final `*`, the name is what stands in its place.",
    )
    memory_labels: tuple[LabelKey, ...] = pydantic.Field(
        default=DEFAULT_MEMORY_LABELS,
        description="Labels with the memory of one GPU, in MiB unless they say another"
        " unit; less than three quarters of a model's nominal size means a part of"
        " one.",
    )
    aliases: dict[GpuName, tuple[GpuName, ...]] = pydantic.Field(
        default={},
        description="Model or family to more names of it. A name stands for one model"
        " or family only.",
    )
    models: dict[GpuName, GpuModelSettings] = pydantic.Field(
        default={}, description="More models."
    )

    def rules(self) -> GpuLabelRules:
        """Return by what GPUs are told; raise `GpuTableError` with every fault."""
        models = [item.model(name) for name, item in self.models.items()]
        table = extended_table(models, MappingProxyType(self.aliases))
        return GpuLabelRules(table, self.type_labels, self.memory_labels)


class LinkAnnotationSettings(SettingsModel):
    """Annotations that tell which GPUs are joined, and who holds them."""

    links: AnnotationKey = pydantic.Field(
        default=LinkAnnotations().links,
        description="Of nodes: the text of `nvidia-smi topo -m`, or JSON.",
    )
    allocated: AnnotationKey = pydantic.Field(
        default=LinkAnnotations().allocated,
        description="Of pods: indexes or UUIDs of the GPUs that they hold,"
        " or names of their MIG instances.",
    )

    def names(self) -> LinkAnnotations:
        """Return both names."""
        return LinkAnnotations(self.links, self.allocated)


class DemandSettings(SettingsModel):
    """Annotations by which a pod says what it wants of the GPUs."""

    gpu_type: AnnotationKey = pydantic.Field(
        default="gpu-extender.io/gpu-type",
        description="Accepted models or families, the most wanted first; `!` excludes.",
    )
    min_gpu_memory: AnnotationKey = pydantic.Field(
        default="gpu-extender.io/min-gpu-memory",
        description="Memory that each GPU, share or slice must have, such as `40Gi`.",
    )
    exclusive: AnnotationKey = pydantic.Field(
        default="gpu-extender.io/exclusive",
        description="`true`: no other GPU pod on the node.",
    )
    linked: AnnotationKey = pydantic.Field(
        default="gpu-extender.io/linked",
        description="`required`: NVLink joins the pod's GPUs, nodes without such a set"
        " are refused. `preferred` refuses none, and leaves it to `topology`.",
    )
    rule_key: Literal["ignore", "score", "filter"] = pydantic.Field(
        default="score",
        description="What `injection.triggerAnnotation` does beside injection, where"
        " its value names a model or family and the pod has no list of types: nothing,"
        " score nodes of that type higher, or refuse all others, too.",
    )

    def annotations(self, sharing: str, rule_key: str) -> GpuAnnotations:
        """Return all names; those of two annotations are settings elsewhere."""
        return GpuAnnotations(
            gpu_type=self.gpu_type,
            min_memory=self.min_gpu_memory,
            sharing=sharing,
            exclusive=self.exclusive,
            linked=self.linked,
            rule_key="" if self.rule_key == "ignore" else rule_key,
            is_rule_key_filter=self.rule_key == "filter",
        )
