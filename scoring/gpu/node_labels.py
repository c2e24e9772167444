"""Label values of GPU models as their writers spell them, and back to nodes' GPUs."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Final, TypeAlias

from scoring.gpu.models import GpuTable, Models, normal_name
from scoring.gpu.node_gpus import (
    MIN_MEMORY_PERCENT,
    GpuLabelRules,
    NodeGpus,
    without_marks,
)
from scoring.names import MAX_NAME_LENGTH, is_name
from scoring.protocols import NodeFacts

_Form: TypeAlias = Callable[[str], str]

PRODUCT_LABEL: Final = "nvidia.com/gpu.product"

_BLANKS: Final = re.compile(r"\s+")

_VENDOR: Final = re.compile(r"nvidia[-_ ]", re.IGNORECASE)


def _bare(name: str) -> str:
    return _VENDOR.sub("", name, count=1) if _VENDOR.match(name) else name


def _lower(name: str) -> str:
    return _bare(name).lower()


def _prefixed(name: str) -> str:
    bare = _bare(name)
    return bare if "tesla" in bare.lower() else f"NVIDIA-{bare}"  # no driver does


def _lower_prefixed(name: str) -> str:
    return f"nvidia-{_lower(name)}"


def _underscored(name: str) -> str:
    return name.replace("-", "_")


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writer of a label: its forms, and the vendor of its GPUs; empty for any."""

    forms: tuple[_Form, ...]
    vendor: str = ""


# What each writes: GPU Feature Discovery takes the driver's name, with NVIDIA- before
# it since about R450; the values of the clouds are those of gpu_models.toml's sources.
_CLOUD: Final = _Writer((_lower_prefixed,), "nvidia")

_BY_LABEL: Final[Mapping[str, _Writer]] = MappingProxyType(
    {
        PRODUCT_LABEL: _Writer((_bare, _prefixed), "nvidia"),
        "cloud.google.com/gke-accelerator": _CLOUD,
        "k8s.amazonaws.com/accelerator": _CLOUD,
        "cloud.tencent.com/tke-accelerator": _CLOUD,
        "karpenter.k8s.aws/instance-gpu-name": _Writer((_lower,)),
        "eks.amazonaws.com/instance-gpu-name": _Writer((_lower,)),
        "kubernetes.azure.com/accelerator": _Writer(()),  # the vendor, no model
        "aliyun.accelerator/nvidia_name": _Writer((_bare, _prefixed), "nvidia"),
        "alibabacloud.com/gpu-model-series": _Writer((_bare,)),
        "baidu/nvidia_name": _Writer((_bare,), "nvidia"),
        "amd.com/gpu.product-name": _Writer((_bare, _underscored), "amd"),
        "beta.amd.com/gpu.product-name.*": _Writer((_underscored,), "amd"),
        "gpu.intel.com/product": _Writer((_bare, _underscored), "intel"),
    }
)

# A label made by hand can have any of them.
_BY_HAND: Final = _Writer((_bare, _lower, _prefixed, _lower_prefixed))


def label_values(label: str, name: str, vendors: Iterable[str] = ()) -> list[str]:
    """Return the values of `label` that say `name`, as its writer writes it.

    Parameters
    ----------
    name : str
        Of a model or family.
    vendors : iterable of str
        Of the models that it stands for; none if nobody knows.

    Examples
    --------
    >>> label_values("nvidia.com/gpu.product", "A100-SXM4-40GB", ["nvidia"])
    ['A100-SXM4-40GB', 'NVIDIA-A100-SXM4-40GB']
    >>> label_values("cloud.google.com/gke-accelerator", "A100-80GB", ["nvidia"])
    ['nvidia-a100-80gb']
    """
    writer = _BY_LABEL.get(label, _BY_HAND)
    known = set(vendors)
    if known and writer.vendor and writer.vendor not in known:
        return []
    is_nvidia = not known or "nvidia" in known
    words = _BLANKS.sub("-", name.strip())
    values = dict.fromkeys(
        form(words)
        for form in writer.forms
        if is_nvidia or form not in (_prefixed, _lower_prefixed)
    )
    return [value for value in values if is_label_value(value, label)]


def is_label_value(text: str, label: str = "") -> bool:
    """Whether Kubernetes takes `text` as a value of `label`.

    If that ends in a star, the value replaces it.
    """
    beginning = label.rpartition("/")[2][:-1] if label.endswith("*") else ""
    return len(beginning + text) <= MAX_NAME_LENGTH and is_name(text)


@dataclass(frozen=True, slots=True)
class LabelledGpus:
    """Nodes of one kind: those of their labels that tell of the GPUs, and the GPUs."""

    labels: tuple[tuple[str, str], ...]
    gpus: NodeGpus


@dataclass(frozen=True, slots=True)
class GpuLabels:
    """Labels of nodes that tell of their GPUs."""

    rules: GpuLabelRules
    _keys: frozenset[str] = field(init=False)
    _prefixes: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        labels = (*self.rules.type_labels, *self.rules.memory_labels)
        starred = tuple(key[:-1] for key in labels if key.endswith("*"))
        object.__setattr__(self, "_keys", frozenset(labels))
        object.__setattr__(self, "_prefixes", starred)

    def kind_of(self, node: NodeFacts) -> LabelledGpus:
        """Return the kind of a node."""
        labels = tuple(
            item
            for item in sorted(node.labels.items())
            if item[0] in self._keys or item[0].startswith(self._prefixes)
        )
        return LabelledGpus(labels, node.gpus)


def values_of(kind: LabelledGpus, label: str) -> Iterator[str]:
    """Yield what the nodes of a kind have under a label, which may end in a star."""
    if not label.endswith("*"):
        yield from (value for key, value in kind.labels if key == label)
        return
    prefix = label[:-1]
    for key, _ in kind.labels:
        if key.startswith(prefix):
            yield key.removeprefix(prefix)


# Names of one table in all forms, each judged for every pod that asks for a type.
_MAX_KNOWN: Final = 8192


def gpus_by_label(
    rules: GpuLabelRules, label: str, stated: str
) -> tuple[NodeGpus, ...]:
    """Return what the GPUs may be where `label` is the one that tells the model.

    All other labels are open. A name of several models stands for all of them, and for
    each part that a memory label can tell from the rest; memory and sharing are the
    best that they can be.
    """
    product, _, _ = without_marks(stated)
    scoped = rules.table.label_names.get(label, {})
    return _readings(rules, label if normal_name(product) in scoped else "", stated)


@lru_cache(maxsize=_MAX_KNOWN)
def _readings(rules: GpuLabelRules, label: str, stated: str) -> tuple[NodeGpus, ...]:
    """Return the readings; `label` is empty where it changes no meaning."""
    product, profile, is_marked = without_marks(stated)
    replicas = 0 if is_marked else 1
    models, board_part = rules.table.find_with_parts(product, label)
    gpus = NodeGpus(
        is_part=board_part > 0,
        is_shared=is_marked,
        replicas=replicas,
        profile=profile,
    )
    if not product:
        return (gpus,)
    parts = {models}
    if not profile:  # the memory label is then that of a slice
        parts |= _alike_in_memory(models, rules.table)
    return tuple(
        rules.identify(gpus, product, part, board_part)
        for part in sorted(parts, key=sorted)
    )


def _alike_in_memory(models: Models, table: GpuTable) -> set[Models]:
    """Return the parts of `models` that one value of a memory label can mean."""
    size_of = {name: table.models[name].memory for name in models}
    parts = set()
    for least in size_of.values():
        for most in size_of.values():
            if least <= most and most * MIN_MEMORY_PERCENT // 100 <= least:
                sizes = range(least, most + 1)
                parts.add(frozenset(m for m in models if size_of[m] in sizes))
    return parts
