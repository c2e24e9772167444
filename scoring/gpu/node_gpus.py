"""GPUs of a node, read from its labels: model, memory, slices and sharing."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from scoring.gpu.models import (
    GIB,
    GpuTable,
    MigProfile,
    Models,
    default_table,
    normal_name,
)
from scoring.quantity import MAX_QUANTITY
from scoring.resources import (
    MIG_PREFIX,
    Request,
    is_amd_partition,
    is_part,
    is_whole_gpu,
)

_AMD_PREFIX: Final = "amd.com/"

_SHARED: Final = ".shared"

_PROFILE: Final = re.compile(r"(?:(\d{1,2})c\.)?(\d{1,2})g\.(\d{1,4})gb\b", re.ASCII)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of the memory of something.

    Attributes
    ----------
    low, high : int
        Bytes; 0 and the largest quantity where nothing is known.
    """

    low: int = 0
    high: int = MAX_QUANTITY

    def shared_by(self, replicas: int) -> "Bounds":
        """Return what one of so many sharers has; 0 for an unknown number."""
        if replicas:
            return Bounds(self.low // replicas, self.high // replicas)
        return Bounds(0, self.high)


ANY_SIZE: Final = Bounds()


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """The GPUs of one node, which are all alike, as far as they are known.

    Attributes
    ----------
    model : str
        Canonical name; the node's own word for a model or family that is not told
        apart further; empty if nothing tells.
    names : frozenset of str
        Every name, in normal form, that certainly holds.
    possible_names : frozenset of str
        Names that may hold: those of models between which the labels do not decide.
    memory : Bounds
        Of a GPU, as its nominal size, or of the part of one that the node has for it.
    is_part : bool
        Whether the node has parts of GPUs under the name of GPUs: a fraction sold by a
        cloud, a virtual GPU, a partition of AMD's.
    is_memory_unread : bool
        Whether a label states a memory that can be none.
    is_shared : bool
        Whether one of ``nvidia.com/gpu`` is a share of something.
    replicas : int
        Number of sharers; 0 if unknown, 1 where it is not shared.
    profile : str
        The MIG profile that one of ``nvidia.com/gpu`` is; empty for a GPU.
    slice_replicas : tuple of (str, int)
        MIG profile, as in resource names -> number of sharers, where above one.
    partition : str
        The mode of AMD's GPUs, as in resource names; empty if unknown or several.
    links : str
        Kind of link between several GPUs, by the model; empty if unknown.
    vendor : str
        ``nvidia``, ``amd`` or ``intel``, by any label; empty if none tells.
    mig : tuple of MigProfile
        Ways to cut instances from each, by the model; empty if unknown or none.
    """

    model: str = ""
    names: frozenset[str] = frozenset()
    possible_names: frozenset[str] = frozenset()
    memory: Bounds = ANY_SIZE
    is_part: bool = False
    is_memory_unread: bool = False
    is_shared: bool = False
    replicas: int = 1
    profile: str = ""
    slice_replicas: tuple[tuple[str, int], ...] = ()
    partition: str = ""
    links: str = ""
    vendor: str = ""
    # PERF: it follows from the model, and hashing it takes longer than all the rest
    mig: tuple[MigProfile, ...] = field(default=(), hash=False)

    @property
    def is_whole(self) -> bool:
        """Whether one of ``nvidia.com/gpu`` is a GPU that nobody else uses."""
        return not (self.is_shared or self.is_part or self.profile)

    @property
    def undivided(self) -> Bounds:
        """Memory of what one of ``nvidia.com/gpu`` is, or is a share of."""
        return _slice_memory(self.profile) if self.profile else self.memory

    def memory_of(self, resource: str) -> Bounds:
        """Return the memory of one unit of `resource`: a GPU, a share or a slice.

        Of a resource whose unit nobody knows, it is not known.
        """
        if resource.startswith(MIG_PREFIX):
            profile = resource.removeprefix(MIG_PREFIX)
            is_share = profile.endswith(_SHARED)
            profile = profile.removesuffix(_SHARED)
            replicas = dict(self.slice_replicas).get(profile, 0 if is_share else 1)
            return _slice_memory(profile).shared_by(replicas)
        if resource.endswith(_SHARED):
            return self.memory.shared_by(self.replicas if self.is_shared else 0)
        if is_whole_gpu(resource):
            return self.undivided.shared_by(self.replicas)
        if is_amd_partition(resource):
            is_mode = resource == f"{_AMD_PREFIX}{self.partition}"
            return self.memory if is_mode else self.memory.shared_by(0)
        return ANY_SIZE


NO_GPUS: Final = NodeGpus()


def _slice_memory(profile: str) -> Bounds:
    """Return the memory of a MIG instance by the name of its profile.

    Compute instances, as in ``1c.3g.40gb``, share that of the GPU instance.
    """
    found = _PROFILE.match(profile)
    if found is None:
        return ANY_SIZE
    slices = int(found[2])
    size = int(found[3]) * GIB
    if found[1] is not None and slices:
        size = size * min(int(found[1]), slices) // slices
    return Bounds(size, size)


DEFAULT_TYPE_LABELS: Final = (
    "nvidia.com/gpu.product",
    "accelerator",
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "eks.amazonaws.com/instance-gpu-name",
    "kubernetes.azure.com/accelerator",
    "cloud.tencent.com/tke-accelerator",
    "aliyun.accelerator/nvidia_name",
    "alibabacloud.com/gpu-model-series",
    "baidu/nvidia_name",
    "amd.com/gpu.product-name",
    "beta.amd.com/gpu.product-name.*",
    "gpu.intel.com/product",
)

DEFAULT_MEMORY_LABELS: Final = (
    "nvidia.com/gpu.memory",
    "karpenter.k8s.aws/instance-gpu-memory",
    "eks.amazonaws.com/instance-gpu-memory",
    "aliyun.accelerator/nvidia_mem",
    "amd.com/gpu.vram",
)

# A GPU shows a little less than its nominal size: a "16 GB" T4 has 15,360 MiB.
MIN_MEMORY_PERCENT: Final = 93

# Less is no whole GPU: neither error correction nor the driver takes so much.
MIN_WHOLE_PERCENT: Final = 75

# What a number without a unit may be of the nominal size to be one of GiB.
_GIB_PERCENT: Final = range(MIN_WHOLE_PERCENT, 111)

_REPLICAS: Final = ".replicas"

_PRODUCT: Final = "nvidia.com/gpu.product"

GPU_COUNT_LABEL: Final = "nvidia.com/gpu.count"

_NVIDIA_GPU: Final = "nvidia.com/gpu"

_REPLICA_LABELS: Final = (
    "nvidia.com/gpu.replicas",
    "cloud.google.com/gke-max-shared-clients-per-gpu",
)

_SHARING_LABELS: Final = (
    "nvidia.com/gpu.sharing-strategy",
    "cloud.google.com/gke-gpu-sharing-strategy",
)

_NOT_SHARED: Final = frozenset({"", "none"})

_SLICE_LABEL: Final = "cloud.google.com/gke-gpu-partition-size"

_AMD_PARTITION: Final = "amd.com/gpu.compute-memory-partition"

# Each followed by a product, with the number of its GPUs.
_AMD_COUNTS: Final = ("beta.amd.com/gpu.product-name.", "amd.com/gpu.product-name.")

# That there is a GPU, whatever its model: of the GPU operators, node feature discovery.
_PRESENT_LABELS: Final = MappingProxyType(
    {
        "nvidia.com/gpu.present": "nvidia",
        "feature.node.kubernetes.io/pci-10de.present": "nvidia",
        "feature.node.kubernetes.io/pci-0302_10de.present": "nvidia",
        "feature.node.kubernetes.io/amd-gpu": "amd",
        "feature.node.kubernetes.io/amd-vgpu": "amd",
    }
)

_VENDOR: Final = re.compile(
    r"(?<![a-z])(?:nvidia|amd|intel)(?![a-z])", re.ASCII | re.IGNORECASE
)

_FIXED_LABELS: Final = frozenset(
    {
        *_PRESENT_LABELS,
        _PRODUCT,
        GPU_COUNT_LABEL,
        _SLICE_LABEL,
        _AMD_PARTITION,
        *_REPLICA_LABELS,
        *_SHARING_LABELS,
    }
)

_MEMORY: Final = re.compile(r"(\d{1,12})(|Mi|MiB|G|GB|Gi|GiB)", re.ASCII)

_COUNT_TEXT: Final = re.compile(r"\d{1,9}", re.ASCII)

_MAX_KNOWN: Final = 8192


class GpuLabelReader:
    """Reads the GPUs of nodes from their labels; any thread may call it.

    Parameters
    ----------
    rules : GpuLabelRules, optional
        Those of the package if not given.
    """

    def __init__(self, rules: "GpuLabelRules | None" = None) -> None:
        self._in_use: _RulesInUse
        self.use(GpuLabelRules(default_table()) if rules is None else rules)

    @property
    def table(self) -> GpuTable:
        """The alias table in use."""
        return self._in_use.rules.table

    @property
    def rules(self) -> "GpuLabelRules":
        """The rules in use."""
        return self._in_use.rules

    def use(self, rules: "GpuLabelRules") -> None:
        """Read by other rules from now on."""
        self._in_use = _RulesInUse(rules)

    def reads(self, label: str) -> bool:
        """Whether a label tells of a node's GPUs."""
        rules = self._in_use
        return label in rules.keys or label.startswith(rules.prefixes)

    def knows(self, name: str) -> bool:
        """Whether `name` is that of a model or family."""
        return bool(self.table.find(name))

    def read(self, labels: Mapping[str, str], capacity: Request) -> NodeGpus:
        """Return what is known of the GPUs of a node with these labels."""
        in_use = self._in_use
        of_gpus = tuple(
            item
            for item in labels.items()
            if item[0] in in_use.keys or item[0].startswith(in_use.prefixes)
        )
        offered = tuple(pair for pair in capacity if is_whole_gpu(pair[0]))
        return in_use.read(of_gpus, offered)


@dataclass(frozen=True, slots=True, eq=False)
class GpuLabelRules:
    """Rules by which labels tell the GPUs of a node.

    Attributes
    ----------
    type_labels : tuple of str
        Labels that name the model; the first that does so counts. With a final ``*``,
        the name stands for the star.
    memory_labels : tuple of str
        Labels with the memory of one GPU, in MiB unless they say another unit.
    """

    table: GpuTable
    type_labels: tuple[str, ...] = DEFAULT_TYPE_LABELS
    memory_labels: tuple[str, ...] = DEFAULT_MEMORY_LABELS

    def read(self, labels: Mapping[str, str], offered: Request = ()) -> NodeGpus:
        """Return what the labels say; `offered` are the node's whole GPUs."""
        label, stated = self.stated_model(labels)
        product, profile, is_marked = without_marks(stated)
        profile = profile or labels.get(_SLICE_LABEL, "")
        replicas = _replicas(labels, is_marked=is_marked)
        partition = labels.get(_AMD_PARTITION, "").lower()
        models, board_part = self.table.find_with_parts(product, label)
        shown, is_unread = (0, False) if profile else self._shown(labels, models)
        if board_part and not 0 < shown * 100 < board_part * MIN_WHOLE_PERCENT:
            shown = board_part
        gpus = NodeGpus(
            is_part=board_part > 0 or is_part(f"{_AMD_PREFIX}{partition}"),
            is_memory_unread=is_unread,
            is_shared=replicas != 1,
            replicas=replicas,
            profile=profile,
            slice_replicas=_slice_replicas(labels),
            partition=partition,
            vendor=self._vendor(labels, label, product),
        )
        if _is_mixed(labels, dict(offered), gpus):
            return gpus
        if not product:
            return replace(gpus, memory=_size(shown, is_part=gpus.is_part))
        return self.identify(gpus, product, models, shown)

    def _vendor(self, labels: Mapping[str, str], label: str, product: str) -> str:
        """Return whose GPUs they are by the labels, of which one says `product`."""
        models = self.table.find(product, label)
        vendors = {self.table.models[name].vendor for name in models}
        stated = [item for item in self.type_labels if item in labels]
        told = (
            *_VENDOR.findall(label),
            *(vendors if len(vendors) == 1 else ()),
            *_VENDOR.findall(product),
            *(word for item in stated for word in _VENDOR.findall(labels[item])),
            *(
                vendor
                for key, vendor in _PRESENT_LABELS.items()
                if labels.get(key) == "true"
            ),
        )
        return next((vendor.lower() for vendor in told), "")

    def identify(
        self, gpus: NodeGpus, product: str, models: Models, shown: int
    ) -> NodeGpus:
        """Return the `gpus`, of which the labels say `product` and so much memory."""
        if not models:
            memory = _size(shown, is_part=gpus.is_part)
            names = frozenset({normal_name(product)})
            return replace(gpus, model=product, names=names, memory=memory)
        memory, models, is_part = self._compared(gpus, models, shown)
        found = [self.table.models[name] for name in sorted(models)]
        names, possible = self.table.names_around(models)
        if gpus.is_part:  # a virtual GPU has a name of its own, too
            names |= {normal_name(product)}
        return replace(
            gpus,
            model=found[0].name if len(found) == 1 else product,
            names=names,
            possible_names=possible,
            memory=memory,
            is_part=is_part,
            links=found[0].links if len(found) == 1 and not is_part else "",
            mig=found[0].mig if len(found) == 1 and not is_part else (),
        )

    def _compared(
        self, gpus: NodeGpus, models: Models, shown: int
    ) -> tuple[Bounds, Models, bool]:
        """Return the memory, the models and whether they are parts, by nominal sizes.

        A memory far below the nominal size is that of a part, whoever states it. Where
        a name stands for several models, those that are too small are out.
        """
        size_of = {name: self.table.models[name].memory for name in models}
        least, most = min(size_of.values()), max(size_of.values())
        if gpus.is_part:
            known = _size(shown, is_part=True)
            return known if shown else Bounds(0, most), models, True
        if not shown:
            return Bounds(least, most), models, False
        memory = _size(shown, is_part=False)
        fitting = {name for name in models if shown <= size_of[name] <= memory.high}
        if fitting:
            sizes = [size_of[name] for name in fitting]
            return Bounds(min(sizes), max(sizes)), frozenset(fitting), False
        larger = {name for name in models if shown <= size_of[name]}
        if larger and all(
            shown * 100 < size_of[name] * MIN_WHOLE_PERCENT for name in larger
        ):
            return _size(shown, is_part=True), frozenset(larger), True
        return Bounds(least, most) if len(models) == 1 else memory, models, False

    def names_model(self, stated: str) -> bool:
        """Whether the value of a type label is more than that there is a GPU."""
        normal = normal_name(stated)
        return bool(normal) and normal not in self.table.no_model

    def stated_model(self, labels: Mapping[str, str]) -> tuple[str, str]:
        """Return the first label that names a model, and the name; else nothing."""
        for label in self.type_labels:
            if label.endswith("*"):
                prefix = label[:-1]
                found = [key[len(prefix) :] for key in labels if key.startswith(prefix)]
                if len(found) > 1:  # several models on one node
                    return "", ""
                name = found[0] if found else ""
            else:
                name = labels.get(label, "")
            if self.names_model(name):
                return label, name
        return "", ""

    def _shown(self, labels: Mapping[str, str], models: Models) -> tuple[int, bool]:
        """Return what the first memory label states, in bytes; 0 where none does.

        Also whether a label states what no GPU has. Those that write 0 know none.
        """
        if self._are_unified(models):
            return 0, False  # what labels state is what the system leaves to the GPU
        is_unread = False
        for label in self.memory_labels:
            found = _MEMORY.fullmatch(labels.get(label, ""))
            if found is None:
                continue
            number = int(found[1])
            if not number:
                continue
            size = number * (GIB if found[2].startswith("G") else GIB // 1024)
            if not found[2] and size < GIB and self._are_gib(number, models):
                size = number * GIB
            if size >= GIB:
                return min(size, MAX_QUANTITY), is_unread
            is_unread = True
        return 0, is_unread

    def _are_unified(self, models: Models) -> bool:
        """Whether one of the models has no memory but that of the system."""
        return any(self.table.models[name].is_unified for name in models)

    def _are_gib(self, number: int, models: Models) -> bool:
        """Whether so many GiB are about the nominal size of one of the models."""
        return any(
            number * GIB * 100 // self.table.models[name].memory in _GIB_PERCENT
            for name in models
        )


class _RulesInUse:
    """One set of rules, the labels that it reads, and what it has read.

    Attributes
    ----------
    keys, prefixes
        Of the labels that are read.
    read : callable
        Those labels of a node, and how many GPUs it offers, to what that says.
    """

    def __init__(self, rules: GpuLabelRules) -> None:
        self.rules = rules
        self.keys = _FIXED_LABELS.union(rules.type_labels, rules.memory_labels)
        starred = (key[:-1] for key in rules.type_labels if key.endswith("*"))
        self.prefixes = (MIG_PREFIX, *_AMD_COUNTS, *starred)
        # PERF: nodes come in few kinds, and a heartbeat changes none of their labels
        self.read = lru_cache(maxsize=_MAX_KNOWN)(
            lambda labels, offered: rules.read(dict(labels), offered)
        )


def _size(shown: int, *, is_part: bool) -> Bounds:
    """Return the memory of a GPU, or a part of one, that shows so much of it."""
    if not shown:
        return ANY_SIZE
    size = shown if is_part else min(shown * 100 // MIN_MEMORY_PERCENT, MAX_QUANTITY)
    return Bounds(size, size)


def without_marks(product: str) -> tuple[str, str, bool]:
    """Return the plain product name, its MIG profile, and whether it is shared."""
    plain = product.removesuffix("-SHARED")
    plain, mark, profile = plain.partition("-MIG-")
    return plain, profile if mark else "", product.endswith("-SHARED")


def _replicas(labels: Mapping[str, str], *, is_marked: bool) -> int:
    """Return how many share a GPU: 1 for nobody, 0 for nobody knows how many.

    A label that says 0 stands for a GPU that MIG has cut up.
    """
    counts = [_number(labels.get(label, "")) for label in _REPLICA_LABELS]
    replicas = max(counts)
    if replicas > 1:
        return replicas
    is_shared = any(labels.get(key, "") not in _NOT_SHARED for key in _SHARING_LABELS)
    return 0 if is_marked or is_shared else 1


def _is_mixed(
    labels: Mapping[str, str], offered: Mapping[str, int], gpus: NodeGpus
) -> bool:
    """Whether the product label speaks for some of the node's GPUs only.

    That of NVIDIA has one value, that of the last model written, where a node has two.
    Its count is of GPUs, or of slices where each GPU is one (MIG strategy ``single``).
    AMD's labeller counts by product, and leaves out a GPU whose product it cannot read,
    as most partitions.
    """
    counted = (
        _number(labels.get(GPU_COUNT_LABEL, "")) * gpus.replicas
    )  # 0 for unknown sharers
    if 0 < counted < offered.get(_NVIDIA_GPU, 0):
        return True
    counts = [
        _number(value) for key, value in labels.items() if key.startswith(_AMD_COUNTS)
    ]
    amd = sum(n for name, n in offered.items() if name.startswith(_AMD_PREFIX))
    return not gpus.is_part and 0 < max(counts, default=0) < amd


def _slice_replicas(labels: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    """Return the MIG profiles whose instances are shared, and by how many."""
    found = []
    for key, value in labels.items():
        if key.startswith(MIG_PREFIX) and key.endswith(_REPLICAS):
            profile = key.removeprefix(MIG_PREFIX).removesuffix(_REPLICAS)
            if _number(value) > 1:
                found.append((profile, _number(value)))
    return tuple(sorted(found))


def _number(text: str) -> int:
    """Return a whole number from a label, 0 where it holds none."""
    return int(text) if _COUNT_TEXT.fullmatch(text) else 0
