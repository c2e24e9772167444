"""The kubelet's own judgement of a pod that names its node, past kube-scheduler.

What ``pkg/kubelet/lifecycle/predicate.go`` of Kubernetes 1.37 looks at: amounts, node
affinity and selector, host ports, and NoExecute taints. It does not look at cordons or
other taints, and ignores an extended resource that its node does not offer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from extender.explain.scheduler_checks import show_misses
from scoring.eligibility import WRONG_AFFINITY, failed_checks, tolerates_all
from scoring.names import is_extended_resource
from scoring.neighbours import Neighbourhood
from scoring.protocols import Constraints, ExcludingPod, NodeFacts
from scoring.quantity import show_free
from scoring.resources import Request
from scoring.snapshot import Snapshot

CHECKED: Final = "amounts, node affinity, host ports and NoExecute taints"


UNKNOWN_NODE: Final = "nodeNameUnknown"

REFUSES: Final = "kubeletRefuses"

IGNORES: Final = "kubeletIgnores"

NOT_READY: Final = "nodeNotReady"

TAKES: Final = "fits"


@dataclass(frozen=True, slots=True)
class KubeletVerdict:
    """A kubelet's verdict on a pod, to be told.

    Attributes
    ----------
    reason_class : str
        A constant text; `TAKES` where the pod would run.
    sentence : str
        Without a full stop.
    """

    reason_class: str
    sentence: str


def judge_by_kubelet(
    snapshot: Snapshot,
    name: str,
    request: Request,
    constraints: Constraints,
    around: Neighbourhood,
) -> KubeletVerdict:
    """Return the verdict of the kubelet of a node, which may not be there.

    Parameters
    ----------
    request : tuple of (str, int)
        All that the pod asks, its one ``pods`` included, in base units.
    around : Neighbourhood
        What the pods of all nodes keep it from.
    """
    column = snapshot.nodes.column_of.get(name)
    if column is None:
        return KubeletVerdict(
            UNKNOWN_NODE,
            f"No kubelet takes the pod: spec.nodeName is {name}, which the cluster does"
            " not have, and kube-scheduler does not look at a pod that names its node",
        )
    node = snapshot.facts[column]
    past = "spec.nodeName is set, past kube-scheduler and gpu-extender"
    offered = {
        resource
        for row, resource in enumerate(snapshot.resources)
        if snapshot.offered[row, column]
    }
    ignored = tuple(
        resource
        for resource, _ in request
        if resource not in offered and is_extended_resource(resource)
    )
    counted = tuple(pair for pair in request if pair[0] not in ignored)
    failures = [
        *_shortages(snapshot, column, counted),
        *_other_failures(node, constraints, around.takers.get(column)),
    ]
    if failures:
        reason, detail = failures[0]
        said = f"The kubelet of {name} refuses the pod, {reason}: {detail}; {past}"
        return KubeletVerdict(REFUSES, said)
    if ignored:
        said = (
            f"The kubelet of {name} starts the pod without {', '.join(ignored)}, which"
            f" the node does not offer; {past}"
        )
        return KubeletVerdict(IGNORES, said)
    if not node.is_ready:
        said = f"The kubelet of {name} starts nothing: the node is not ready; {past}"
        return KubeletVerdict(NOT_READY, said)
    said = f"The kubelet of {name} takes the pod, by {CHECKED}; {past}"
    return KubeletVerdict(TAKES, said)


def _shortages(
    snapshot: Snapshot, column: int, request: Request
) -> Iterator[tuple[str, str]]:
    """Yield reason and numbers of each resource that is short."""
    for resource, asked in request:
        row = snapshot.row_of(resource)
        allocatable = 0 if row is None else int(snapshot.allocatable[row, column])
        requested = 0 if row is None else int(snapshot.requested[row, column])
        if allocatable - requested < asked:
            detail = show_free(resource, asked, allocatable, requested)
            yield f"OutOf{resource}", detail


def _other_failures(
    node: NodeFacts, constraints: Constraints, taker: ExcludingPod | None
) -> Iterator[tuple[str, str]]:
    """Yield reason and detail of each check that is not of amounts."""
    if failed_checks([node], constraints)[WRONG_AFFINITY].any():
        missed = show_misses(node, constraints)
        yield "NodeAffinity", missed or "no term of the required node affinity holds"
    if taker is not None:
        yield "NodePorts", f"{taker.namespace}/{taker.name} has the host port"
    evicting = [taint for taint in node.taints if taint.effect == "NoExecute"]
    if not tolerates_all(constraints.tolerations, evicting):
        yield "TaintToleration", "a NoExecute taint is not tolerated"
