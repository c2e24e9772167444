"""What kube-scheduler may evict for a pod that fits nowhere now.

Of what holds a node, only pods with a managed resource are known one by one, so that
there may be more to evict than is told.
"""

from typing import Final

import numpy as np

from cluster.decode.objects import PodRecord
from extender.explain.explain import Explanation
from extender.explain.failed_checks import TOO_FULL, FailedChecks
from scoring.snapshot import BoolArray, IndexArray

NEVER: Final = "preemptionPolicy is Never: kube-scheduler evicts no pod for it"


def tell_preemption(explanation: Explanation, checks: FailedChecks) -> str:
    """Return in one clause whether others may be evicted for the pod; else nothing.

    Nothing is said where no node would have room if pods of lower priority were gone.
    """
    subject = explanation.subject
    full = np.flatnonzero(_is_only_full(explanation, checks))
    if not len(full):
        return ""
    if subject.priority_class:
        return (
            f"Preemption is not considered: the value of priority class"
            f" {subject.priority_class} is not known here"
        )
    count = _count_freed(explanation, checks, full)
    if not count:
        return ""
    if not subject.may_preempt:
        return NEVER
    nodes = "1 node" if count == 1 else f"{count} nodes"
    return (
        "Preemption: kube-scheduler may evict GPU pods of lower priority for it, on"
        f" {nodes}"
    )


def _is_only_full(explanation: Explanation, checks: FailedChecks) -> BoolArray:
    """Return which nodes lack what others hold, and nothing else."""
    full = np.zeros(len(explanation.verb_call.names), dtype=np.bool_)
    beside = np.zeros_like(full)
    for check in checks.failed:
        if check.kind == TOO_FULL:
            full |= check.failed
        else:
            beside |= check.failed
    return full & ~beside


def _count_freed(
    explanation: Explanation, checks: FailedChecks, full: IndexArray
) -> int:
    """Return how many full nodes have room without GPU pods of lower priority."""
    snapshot, priority = explanation.verb_call.snapshot, explanation.subject.priority
    lower = [
        (pod.node_name, pod.request)
        for pod in snapshot.bound_pods.values()
        if isinstance(pod, PodRecord) and pod.priority < priority
    ]
    if not lower:
        return 0
    columns = explanation.verb_call.columns[full]
    freed = snapshot.requested - snapshot.requested_with(lower, sign=-1)
    has_room = np.ones(len(full), dtype=np.bool_)
    for check in checks.failed:
        row = snapshot.row_of(check.resource)
        if check.kind == TOO_FULL and check.gives is not None and row is not None:
            enough = check.gives[full] + freed[row, columns] >= check.asked
            has_room &= enough | ~check.failed[full]
    return int(np.count_nonzero(has_room))
