"""Resource names, and the scope of those that are looked at."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from scoring.bounded import BoundedDict

# Resource name and amount in base units, by name; amounts are positive.
Request: TypeAlias = tuple[tuple[str, int], ...]

# Names come from requests: there is no end to them.
MAX_REMEMBERED: Final = 4096

_MAX_REMEMBERED_NAME: Final = 317

# `[<compute>c.]<slices>g.<memory>gb`, with `.me` and the like behind it
_PROFILE_MEMORY: Final = re.compile(r"/mig-(?:\d+c\.)?\d+g\.(\d+)gb(?![a-z0-9])")

NVIDIA_GPU: Final = "nvidia.com/gpu"

# Shares of GPUs, under the name that NVIDIA's device plugin gives them.
SHARED_GPU: Final = "nvidia.com/gpu.shared"
MIG_PREFIX: Final = "nvidia.com/mig-"

CPU: Final = "cpu"

PODS: Final = "pods"

STANDARD_RESOURCES: Final = (CPU, "memory", "ephemeral-storage")

BYTE_RESOURCES: Final = ("memory", "ephemeral-storage")


@dataclass(frozen=True, slots=True)
class ResourceScope:
    """Scope of the resources that are looked at.

    Attributes
    ----------
    gpu_resources : tuple of str
        Exact names, or name prefixes ending in ``*``, that make a pod a GPU pod.
    managed_prefixes : tuple of str
        Prefixes of the resources that are counted.
    """

    gpu_resources: tuple[str, ...]
    managed_prefixes: tuple[str, ...]

    def is_gpu(self, resource: str) -> bool:
        """Whether `resource` makes a pod a GPU pod."""
        return any(
            resource.startswith(pattern[:-1])
            if pattern.endswith("*")
            else resource == pattern
            for pattern in self.gpu_resources
        )

    def is_managed(self, resource: str) -> bool:
        """Whether pods are judged on `resource`."""
        return resource.startswith(self.managed_prefixes) or self.is_gpu(resource)


def any_resource(_resource: str) -> bool:
    """Say that every resource counts, whatever its name."""
    return True


class Remembered(BoundedDict[str, bool]):
    """Answers of a predicate by resource name, each computed once.

    PERF: a look-up instead of a call for each quantity of each pod;
    bench/extender/http.py
    """

    def __init__(self, predicate: Callable[[str], bool]) -> None:
        super().__init__(MAX_REMEMBERED)
        self._predicate = predicate

    def __missing__(self, resource: str) -> bool:
        if len(resource) > _MAX_REMEMBERED_NAME:
            return self._predicate(resource)
        return self.keep(resource, self._predicate(resource))


# Whose GPUs they are that a resource or a label tells of.
GPU_VENDORS: Final = frozenset({"nvidia", "amd", "intel"})

# Makers of other things, too, whose GPUs have a domain of their own.
_GPU_DOMAIN: Final = "gpu."

_MAKERS_OF_MORE: Final = frozenset({"intel"})

# Compute modes of AMD: in each but the first, a card is several devices.
_AMD_PARTITION: Final = re.compile(r"amd\.com/[sdtqc]px_nps\d", re.ASCII)

_AMD_WHOLE: Final = "amd.com/spx_"


def vendor_of(key: str) -> str:
    """Return the second-level domain of a resource or label; empty without a domain.

    >>> vendor_of("nvidia.com/gpu"), vendor_of("gpu.intel.com/i915"), vendor_of("cpu")
    ('nvidia', 'intel', '')
    """
    domain, slash, _ = key.partition("/")
    return domain.rpartition(".")[0].rpartition(".")[2] if slash else ""


def is_of_gpus(resource: str) -> bool:
    """Whether a resource counts GPUs, or belongs to them, by its domain.

    >>> is_of_gpus("gpu.intel.com/i915"), is_of_gpus("intel.com/sriov_nic")
    (True, False)
    """
    vendor = vendor_of(resource)
    return vendor in GPU_VENDORS and (
        vendor not in _MAKERS_OF_MORE or resource.startswith(_GPU_DOMAIN)
    )


def is_amd_partition(resource: str) -> bool:
    """Say whether a resource is named by the compute and memory mode of AMD's cards.

    >>> is_amd_partition("amd.com/cpx_nps4"), is_amd_partition("amd.com/gpu")
    (True, False)
    """
    return _AMD_PARTITION.fullmatch(resource) is not None


def is_part(resource: str) -> bool:
    """Say whether `resource` names parts of cards by itself: slices or shares.

    >>> is_part("nvidia.com/mig-1g.10gb"), is_part("nvidia.com/gpu.shared")
    (True, True)
    >>> is_part("amd.com/cpx_nps4"), is_part("amd.com/spx_nps1"), is_part("amd.com/gpu")
    (True, False, False)
    """
    return (
        "/mig-" in resource
        or resource.endswith(".shared")
        or (is_amd_partition(resource) and not resource.startswith(_AMD_WHOLE))
    )


def profile_memory_gib(resource: str) -> int:
    """Return the memory that a MIG profile has by its name; 0 where it names none.

    >>> profile_memory_gib("nvidia.com/mig-3g.40gb"), profile_memory_gib("x.com/gpu")
    (40, 0)
    """
    match = _PROFILE_MEMORY.search(resource)
    return int(match[1]) if match else 0


def is_whole_gpu(resource: str) -> bool:
    """Whether `resource` names whole GPUs, as opposed to slices or shares.

    >>> is_whole_gpu("nvidia.com/gpu"), is_whole_gpu("nvidia.com/mig-1g.10gb")
    (True, False)
    >>> is_whole_gpu("amd.com/spx_nps1"), is_whole_gpu("amd.com/cpx_nps4")
    (True, False)
    """
    return resource.endswith("/gpu") or (
        resource.startswith(_AMD_WHOLE) and is_amd_partition(resource)
    )
