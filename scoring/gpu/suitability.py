"""Suitability of a node's GPUs for the GPU requirements of a pod."""

from enum import IntEnum
from typing import Final

from scoring.gpu.models import normal_name
from scoring.gpu.node_gpus import NodeGpus
from scoring.gpu.requirements import GpuRequirements
from scoring.resources import (
    PODS,
    STANDARD_RESOURCES,
    Request,
    is_part,
    is_whole_gpu,
)

# Of a whole request, whose memory would be taken for that of a GPU.
NEVER_OF_GPUS: Final = frozenset((*STANDARD_RESOURCES, PODS))


class Suitability(IntEnum):
    """The checks in their order; the first that fails decides."""

    SUITS = 0
    WRONG_TYPE = 1
    TYPE_UNKNOWN = 2
    TOO_LITTLE_MEMORY = 3


def suitability(
    gpus: NodeGpus, gpu_requirements: GpuRequirements, request: Request
) -> Suitability:
    """Return the first check that `gpus` fail.

    Parameters
    ----------
    request : tuple of (str, int)
        The managed part of the pod's request. Memory is that of one unit of each
        resource in it: of a GPU, a share or a slice.

    Returns
    -------
    Suitability
        `TYPE_UNKNOWN` where the labels leave open type or memory, whichever decides.
    """
    of_type = _of_kind(gpus, gpu_requirements, request)
    if of_type is not Suitability.SUITS or not gpu_requirements.min_memory:
        return of_type
    sizes = [gpus.memory_of(resource) for resource in _units(request)]
    if any(size.high < gpu_requirements.min_memory for size in sizes):
        return Suitability.TOO_LITTLE_MEMORY
    if any(size.low < gpu_requirements.min_memory for size in sizes):
        return Suitability.TYPE_UNKNOWN
    return Suitability.SUITS


def may_suit(
    gpus: NodeGpus, gpu_requirements: GpuRequirements, request: Request
) -> bool:
    """Whether `gpus` suit if memory that is not known is large enough."""
    of_type = _of_kind(gpus, gpu_requirements, request)
    return of_type is Suitability.SUITS and may_hold(gpus, gpu_requirements, request)


def may_hold(
    gpus: NodeGpus, gpu_requirements: GpuRequirements, request: Request
) -> bool:
    """Whether memory is enough as far as it is known, whatever the type."""
    return all(
        gpus.memory_of(resource).high >= gpu_requirements.min_memory
        for resource in _units(request)
    )


def _of_kind(
    gpus: NodeGpus, gpu_requirements: GpuRequirements, request: Request
) -> Suitability:
    """Return whether all but the memory suits."""
    if not gpu_requirements.is_readable:
        return Suitability.WRONG_TYPE
    if gpu_requirements.wants_whole_gpus:
        whole_gpus = any(is_whole_gpu(resource) for resource, _ in request)
        if whole_gpus and not gpus.is_whole:
            return Suitability.WRONG_TYPE
        parts = any(is_part(resource) for resource, _ in request)
        if parts and gpu_requirements.linked == "required":
            return Suitability.WRONG_TYPE
    return _of_type(gpus, gpu_requirements)


def _of_type(gpus: NodeGpus, gpu_requirements: GpuRequirements) -> Suitability:
    """Return whether the type is accepted and not excluded; unknown is neither."""
    excluded = frozenset(map(normal_name, gpu_requirements.excluded))
    if excluded & gpus.names:
        return Suitability.WRONG_TYPE
    accepted = frozenset(map(normal_name, gpu_requirements.types))
    if (accepted or excluded) and not gpus.names:
        return Suitability.TYPE_UNKNOWN
    if accepted and not accepted & gpus.names:
        is_open = bool(accepted & gpus.possible_names)
        return Suitability.TYPE_UNKNOWN if is_open else Suitability.WRONG_TYPE
    if excluded & gpus.possible_names:
        return Suitability.TYPE_UNKNOWN
    return Suitability.SUITS


def choice_of(gpus: NodeGpus, names: tuple[str, ...]) -> int:
    """Return the index in `names` of the first that holds; their number for none."""
    return next(
        (index for index, name in enumerate(names) if normal_name(name) in gpus.names),
        len(names),
    )


def _units(request: Request) -> list[str]:
    """Return the resources whose units are GPUs or parts of them.

    Where there are none of them, all that may be of a GPU, such as
    ``nvidia.com/gpu-memory``, but not ``cpu``.
    """
    names = [name for name, _ in request if name not in NEVER_OF_GPUS]
    return [name for name in names if is_whole_gpu(name) or is_part(name)] or names
