"""Time at which a pod failed on its node before it ran.

Only what the node may be to blame for: not a missing image, a missing ConfigMap or a
program that ends.
"""

import math
import re
from collections.abc import Callable, Iterator
from typing import Final

from cluster.decode.objects import Pod, PodStatus, StateDetail, parse_time

# kubelet refuses the pod: ``status.reason`` of a Failed pod (kubernetes,
# pkg/kubelet/lifecycle/predicate.go; pkg/kubelet/cm/topologymanager). Not those that
# say that pod and node do not match, or that the node is shutting down.
REFUSALS: Final = frozenset(
    {
        "UnexpectedAdmissionError",
        "UnexpectedPredicateFailureType",
        "UnknownReason",
        "InvalidNodeInfo",
        "TopologyAffinityError",
    }
)

# kubelet puts a resource's name behind it, such as ``OutOfnvidia.com/gpu``: its device
# plugin offers less than the node says.
SHORTAGE: Final = "OutOf"

# The first two are kubelet's (pkg/kubelet/container/sync_result.go and kuberuntime),
# ``StartError`` is containerd's and ``ContainerCannotRun`` Docker's.
START_ERRORS: Final = frozenset(
    {"CreateContainerError", "RunContainerError", "StartError", "ContainerCannotRun"}
)

# A command that the image lacks, in the words of runc and crun: a fault of the pod.
_NO_SUCH_COMMAND: Final = re.compile(
    r"container (?:process|init): exec: |executable file .* not found"
    r"|no command specified"
)


def failed_at(pod: Pod, is_managed: Callable[[str], bool]) -> float | None:
    """Return when `pod` failed on its node before it ran.

    Parameters
    ----------
    is_managed : callable
        Says of which resources a shortage counts.

    Returns
    -------
    float or None
        Seconds since the epoch; infinity while a container waits for another attempt,
        and where no time is given. None for a pod that did not fail so.
    """
    status = pod.status
    if status.reason and _is_refusal(status, is_managed):
        return _time(status.start_time)
    return max(_start_errors(status), default=None)


def _is_refusal(status: PodStatus, is_managed: Callable[[str], bool]) -> bool:
    """Whether kubelet refused the pod for a reason of the node's."""
    reason = status.reason or ""
    return status.phase == "Failed" and (
        reason in REFUSALS
        or (reason.startswith(SHORTAGE) and is_managed(reason.removeprefix(SHORTAGE)))
    )


def _start_errors(status: PodStatus) -> Iterator[float]:
    """Yield the time of each failed start."""
    for group in (status.init_container_statuses, status.container_statuses):
        for container in group or ():
            for state in (container.state, container.last_state):
                if state is None:
                    continue
                if _is_start_error(state.waiting):
                    yield math.inf
                elif state.terminated is not None and _is_start_error(state.terminated):
                    yield _time(state.terminated.finished_at)


def _is_start_error(detail: StateDetail | None) -> bool:
    """Whether a container could not be started, by no fault of its own."""
    return (
        detail is not None
        and detail.reason in START_ERRORS
        and not _NO_SUCH_COMMAND.search(detail.message or "")
    )


def _time(text: str | None) -> float:
    """Return a time in seconds since the epoch, infinity where there is none."""
    try:
        return math.inf if text is None else parse_time(text)
    except ValueError:
        return math.inf
