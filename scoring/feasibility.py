"""Feasible candidates, and why the others fail.

A reason is a constant text, without numbers and node names: kube-scheduler retries a
pod for ever whose message changes from attempt to attempt.
"""

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

import numpy as np

from scoring.candidates import (
    LABELLED,
    OTHERS,
    PARTS,
    Candidates,
    PodRequest,
    free_gpus,
)
from scoring.gpu.suitability import Suitability, suitability
from scoring.resources import is_whole_gpu
from scoring.snapshot import BoolArray, Int64Array
from scoring.topology.tables import lookup_of


class Verdict(IntEnum):
    """The checks by how near a node comes to taking the pod.

    The first that fails is the verdict. Their order is that of the numbers, but that
    GPUs which labels tell of and which are not ready come before what is absent.
    """

    FEASIBLE = 0
    UNKNOWN_NODE = 1
    NO_GPU = 2
    NO_SUCH_RESOURCE = 3
    IN_PARTS = 4
    NOT_READY = 5
    TOO_FEW = 6
    WRONG_TYPE = 7
    TYPE_UNKNOWN = 8
    TOO_LITTLE_MEMORY = 9
    UNLINKED = 10
    NOT_ALONE = 11
    NOT_ALONE_NOW = 12
    INSUFFICIENT = 13


# PERF: numpy looks an enum over before it takes it for a number;
# bench/scoring/test_kernels.py
FEASIBLE: Final = int(Verdict.FEASIBLE)


@dataclass(frozen=True, slots=True)
class FailureReason:
    """Reason of a failed node, as kube-scheduler is told it.

    Attributes
    ----------
    is_resolvable : bool
        True where evicting other pods can help: the node goes into ``FailedNodes``,
        else into ``FailedAndUnresolvableNodes``.
    """

    text: str
    is_resolvable: bool = False


_NOT_ALONE: Final = "GPUs are not shared with this pod"

REASONS: Final[dict[Verdict, FailureReason]] = {
    Verdict.UNKNOWN_NODE: FailureReason("Node is not known to gpu-extender"),
    Verdict.NO_GPU: FailureReason("Node has no GPU"),
    Verdict.NO_SUCH_RESOURCE: FailureReason("Node does not offer the GPU resource"),
    Verdict.IN_PARTS: FailureReason("GPUs are cut or shared"),
    Verdict.NOT_READY: FailureReason("GPUs are not ready"),
    Verdict.TOO_FEW: FailureReason("Too few GPUs on the node"),
    Verdict.WRONG_TYPE: FailureReason("GPU type does not match"),
    Verdict.TYPE_UNKNOWN: FailureReason("GPU type unknown"),
    Verdict.TOO_LITTLE_MEMORY: FailureReason("Too little GPU memory"),
    Verdict.UNLINKED: FailureReason("GPUs are not linked"),
    Verdict.NOT_ALONE: FailureReason(_NOT_ALONE),
    Verdict.NOT_ALONE_NOW: FailureReason(_NOT_ALONE, is_resolvable=True),
    Verdict.INSUFFICIENT: FailureReason("Insufficient GPUs", is_resolvable=True),
}


_UNSUITABLE: Final[dict[Suitability, Verdict]] = {
    Suitability.WRONG_TYPE: Verdict.WRONG_TYPE,
    Suitability.TYPE_UNKNOWN: Verdict.TYPE_UNKNOWN,
    Suitability.TOO_LITTLE_MEMORY: Verdict.TOO_LITTLE_MEMORY,
}


@dataclass(frozen=True, slots=True, eq=False)
class Feasibility:
    """The filter's result for C candidates.

    Attributes
    ----------
    verdicts : int64 array, shape (C,)
        Values of `Verdict`.
    mismatched : bool array, shape (C,)
        True for candidates that pass although our own count of them is too low.
    """

    verdicts: Int64Array
    mismatched: BoolArray

    @property
    def count_mismatches(self) -> int:
        """Number of candidates that pass although our own count is too low."""
        return int(np.count_nonzero(self.mismatched))

    @property
    def feasible(self) -> BoolArray:
        """True for the candidates that pass, bool array of shape (C,)."""
        feasible: BoolArray = self.verdicts == FEASIBLE
        return feasible


def judge(
    candidates: Candidates, pod_request: PodRequest, *, is_enforcing: bool
) -> Feasibility:
    """Judge each candidate by the checks of `Verdict`.

    Parameters
    ----------
    candidates : Candidates, C nodes
    is_enforcing : bool
        Whether too low a free count refuses a node. If not, kube-scheduler's own count
        is trusted, which has pods that we do not see yet.

    Notes
    -----
    A pod that asks for nothing that we manage passes everywhere, on unknown nodes too.
    The nominated node is exempt from the free count alone: the victims that make room
    on it may still be ending.
    """
    count = len(candidates.known)
    if not pod_request.request:
        return Feasibility(
            np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.bool_)
        )
    is_short = _in_any_row(short_of(candidates, pod_request)) & ~candidates.nominated
    checks = failed_checks(candidates, pod_request, is_short)
    if is_enforcing:
        checks.append((Verdict.INSUFFICIENT, is_short))
    verdicts = np.zeros(count, dtype=np.int64)
    for verdict, failed in reversed(checks):  # the first check has the last word
        verdicts[failed] = int(verdict)
    return Feasibility(verdicts, is_short & (verdicts == FEASIBLE))


def failed_checks(
    candidates: Candidates, pod_request: PodRequest, is_short: BoolArray
) -> list[tuple[Verdict, BoolArray]]:
    """Return where each check fails but that of free amounts, in their order.

    Parameters
    ----------
    pod_request : PodRequest
        Asks something that we manage.
    is_short : bool array, shape (C,)
        Where our count of free amounts is too low.
    """
    needed = _needed(pod_request)
    counted = ~candidates.claimed
    lacking = ~candidates.offered
    # All GPUs of a kind are unhealthy: capacity is there, allocatable is not.
    is_unhealthy = _in_any_row((candidates.allocatable == 0) & counted)
    checks = [(Verdict.UNKNOWN_NODE, ~candidates.known)]
    if lacking.any():  # PERF: kube-scheduler offers no others
        checks.extend(_absence_checks(candidates, pod_request, lacking))
    checks += [
        (Verdict.NOT_READY, candidates.faulted | is_unhealthy),
        (Verdict.TOO_FEW, _in_any_row((candidates.allocatable < needed) & counted)),
    ]
    if pod_request.accelerator is not None:
        checks.append((Verdict.WRONG_TYPE, ~_matching_type(candidates, pod_request)))
    if pod_request.gpu_requirements.is_of_gpus:
        checks.extend(_gpu_checks(candidates, pod_request))
    if wants_linked_set(pod_request):
        checks.append((Verdict.UNLINKED, _unlinked(candidates, pod_request)))
    # kube-scheduler's own trial of evictions knows counts alone: where those suffice it
    # would find that nobody has to go, and take that for an error. A nominated node on
    # which no eviction helped would have it evict elsewhere, though.
    not_alone = would_share(candidates, pod_request)
    may_resolve = is_short | candidates.nominated
    checks.append((Verdict.NOT_ALONE_NOW, not_alone & may_resolve))
    checks.append((Verdict.NOT_ALONE, not_alone))
    return checks


def _absence_checks(
    candidates: Candidates, pod_request: PodRequest, lacking: BoolArray
) -> list[tuple[Verdict, BoolArray]]:
    """Return where a resource is not there, by what is there instead.

    `lacking` is True where a node does not offer a resource, shape (Q, C).
    """
    whole = np.array([[is_whole_gpu(name)] for name, _ in pod_request.request])
    lacks_gpus = _in_any_row(lacking & whole)
    has_parts, has_others, is_labelled = (
        (candidates.instead & bit) > 0 for bit in (PARTS, OTHERS, LABELLED)
    )
    return [
        # Devices go while MIG or the driver is being changed: that they are absent
        # must not hide why.
        (Verdict.NOT_READY, candidates.faulted & is_labelled),
        (Verdict.IN_PARTS, lacks_gpus & has_parts),
        (Verdict.NO_GPU, lacks_gpus & ~has_others),
        (Verdict.NO_SUCH_RESOURCE, _in_any_row(lacking)),
    ]


def _gpu_checks(
    candidates: Candidates, pod_request: PodRequest
) -> list[tuple[Verdict, BoolArray]]:
    """Return where the GPUs are not what the pod wants of them."""
    suitability_of_kind = np.array(
        [
            suitability(kind, pod_request.gpu_requirements, pod_request.request)
            for kind in candidates.gpu_kinds
        ],
        dtype=np.int64,
    )
    found = suitability_of_kind[candidates.gpu_codes]
    return [(verdict, found == int(kind)) for kind, verdict in _UNSUITABLE.items()]


def wants_linked_set(pod_request: PodRequest) -> bool:
    """Whether the pod insists on linked GPUs, and asks several."""
    is_required = pod_request.gpu_requirements.linked == "required"
    return is_required and pod_request.reads_links and pod_request.gpus > 1


def _unlinked(candidates: Candidates, pod_request: PodRequest) -> BoolArray:
    """Return where no linked set of the size is free, or ever there.

    Nodes of which the links are not known pass; so do those of which nobody knows which
    GPUs are free, as long as the empty node has such a set.
    """
    lookup = lookup_of(candidates.link_kinds, pod_request.gpus)
    entries = lookup.entries(
        candidates.link_codes, candidates.free_sets, free_gpus(candidates, pod_request)
    )
    unlinked: BoolArray = ~(
        lookup.is_ever_linked[candidates.link_codes] & lookup.is_linked[entries]
    )
    return unlinked


def would_share(candidates: Candidates, pod_request: PodRequest) -> BoolArray:
    """Return where the pod, or one that is there, would not have the GPUs alone."""
    others = (
        candidates.gpu_pods
        if pod_request.gpu_requirements.is_exclusive
        else candidates.exclusive_gpu_pods
    )
    not_alone: BoolArray = others > 0
    return not_alone


def _in_any_row(table: BoolArray) -> BoolArray:
    """Return where a table of shape (Q, C) is True in any row, shape (C,)."""
    # PERF: nearly every pod asks for one resource; bench/scoring/test_kernels.py
    in_any: BoolArray = (
        table[0] if len(table) == 1 else np.logical_or.reduce(table, axis=0)
    )
    return in_any


def _needed(pod_request: PodRequest) -> Int64Array:
    """Return the asked amounts, int64 of shape (Q, 1)."""
    return np.array([amount for _, amount in pod_request.request], dtype=np.int64)[
        :, None
    ]


def short_of(candidates: Candidates, pod_request: PodRequest) -> BoolArray:
    """Return where our count of free amounts is too low, bool of shape (Q, C)."""
    free = np.maximum(candidates.allocatable - candidates.requested, 0)
    is_short: BoolArray = (free < _needed(pod_request)) & ~candidates.claimed
    return is_short


def counted_as_full(candidates: Candidates, pod_request: PodRequest) -> Candidates:
    """Return the candidates with all amounts taken that are too few for the pod.

    kube-scheduler says that they suffice, so we are the one behind: that node passes,
    and is scored as the full node that we see.
    """
    is_short = short_of(candidates, pod_request)
    if not is_short.any():
        return candidates
    return replace(
        candidates,
        requested=np.where(is_short, candidates.allocatable, candidates.requested),
    )


def _matching_type(candidates: Candidates, pod_request: PodRequest) -> BoolArray:
    """Return where the node's ``accelerator`` label is exactly the one asked."""
    labelled = candidates.type_names[1:]  # entry 0 stands for nodes without the label
    code = (
        labelled.index(pod_request.accelerator) + 1
        if pod_request.accelerator in labelled
        else -1
    )
    is_match: BoolArray = candidates.type_codes == code
    return is_match


def shown_verdict(verdicts: Int64Array) -> Verdict | None:
    """Return the one verdict that all refused nodes show, or None.

    When no candidate is feasible, all of them carry the text of the check furthest
    down that any of them reached: kube-scheduler offers a sample of the nodes, and
    counts per reason that differ from sample to sample are a changing text, too.

    >>> shown_verdict(np.array([2, 6, 2]))
    <Verdict.TOO_FEW: 6>
    >>> shown_verdict(np.array([2, 0, 2])) is None
    True
    """
    if len(verdicts) == 0 or not verdicts.all():
        return None
    return Verdict(int(verdicts.max()))
