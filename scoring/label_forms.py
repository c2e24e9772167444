"""How the names of GPU models are written as values of labels, by who writes them."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

_Form: TypeAlias = Callable[[str], str]

PRODUCT_LABEL: Final = "nvidia.com/gpu.product"
_MAX_LENGTH: Final = 63
_VALUE: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)
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
    """Who writes a label: how, and for cards of which vendor; empty for any."""

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
    label : str
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
    """Say whether Kubernetes takes `text` as a value of `label`.

    If that ends in a star, the value stands in its place.
    """
    beginning = label.rpartition("/")[2][:-1] if label.endswith("*") else ""
    is_short = len(beginning + text) <= _MAX_LENGTH
    return is_short and _VALUE.fullmatch(text) is not None
