"""Which statuses of a pod say that it failed on its node before it ran."""

import math
from typing import Any

import pytest

from cluster.decode.faults import convert_with_faults
from cluster.decode.objects import Pod
from tests.builders import GPU, Tree, make_pod, make_pod_record

NOON = 1795780800.0
NOON_TEXT = "2026-11-27T12:00:00Z"
ONE_TEXT = "2026-11-27T13:00:00Z"
HOOK = (
    "failed to create containerd task: failed to create shim task: OCI runtime create"
    " failed: runc create failed: unable to start container process: error during"
    " container init: error running prestart hook #0: exit status 1, stderr:"
    " nvidia-container-cli: initialization error: nvml error: driver not loaded"
)
NO_COMMAND = (
    "failed to create shim task: OCI runtime create failed: runc create failed: unable"
    ' to start container process: exec: "trian": executable file not found in $PATH'
)
NO_COMMAND_IN_INIT = (
    "unable to start container process: error during container init: exec:"
    ' "/train.sh": permission denied'
)
NO_COMMAND_CRUN = "crun: executable file `trian` not found in $PATH: No such file"


def refused(reason: str, **status: Any) -> Tree:
    """Return the status of a pod that kubelet refused."""
    return {"phase": "Failed", "reason": reason, "startTime": NOON_TEXT, **status}


def waiting(reason: str, message: str = "") -> Tree:
    return {"waiting": {"reason": reason, "message": message}}


def ended(reason: str, message: str = "", at: str | None = NOON_TEXT) -> Tree:
    detail = {"reason": reason, "message": message, "exitCode": 128, "finishedAt": at}
    return {"terminated": detail}


def started(*states: Tree, key: str = "containerStatuses", **status: Any) -> Tree:
    """Return a status with a container for each of these states."""
    items = [{"name": f"c{i}", "state": state} for i, state in enumerate(states)]
    return {"phase": "Pending", key: items, **status}


def failed_at(status: Tree, **pod: Any) -> float | None:
    """Return what the record of a GPU pod on a node says."""
    options = {"gpus": 1, "node_name": "a", **pod}
    return make_pod_record(make_pod(**options, status=status)).failed_at


@pytest.mark.parametrize(
    "status",
    [
        pytest.param(refused("UnexpectedAdmissionError"), id="device plugin refused"),
        pytest.param(refused("UnknownReason"), id="kubelet does not know why"),
        pytest.param(refused("UnexpectedPredicateFailureType"), id="kubelet confused"),
        pytest.param(refused("InvalidNodeInfo"), id="kubelet does not know its node"),
        pytest.param(refused("TopologyAffinityError"), id="no aligned devices"),
        pytest.param(refused(f"OutOf{GPU}"), id="fewer GPUs than the node says"),
        pytest.param(started(ended("StartError", HOOK)), id="containerd"),
        pytest.param(started(ended("ContainerCannotRun", HOOK)), id="Docker"),
        pytest.param(
            started({"running": {}}, ended("StartError", HOOK), phase="Running"),
            id="second container",
        ),
        pytest.param(
            started(ended("StartError", HOOK), key="initContainerStatuses"),
            id="init container",
        ),
        pytest.param(
            {
                "phase": "Running",
                "containerStatuses": [
                    {
                        "state": waiting("CrashLoopBackOff", "back-off 10s"),
                        "lastState": ended("StartError", HOOK),
                    }
                ],
            },
            id="waits for the next attempt",
        ),
    ],
)
def test_what_the_node_may_be_to_blame_for(status: Tree) -> None:
    assert failed_at(status) == NOON


@pytest.mark.parametrize(
    "status",
    [
        pytest.param(started(waiting("RunContainerError", HOOK)), id="not started"),
        pytest.param(started(waiting("CreateContainerError", "CDI")), id="not created"),
        pytest.param(
            started(ended("StartError", HOOK, at=None)), id="ended without a time"
        ),
        pytest.param(
            started(ended("StartError", HOOK, at="noon")), id="ended at no time"
        ),
        pytest.param(
            refused("UnexpectedAdmissionError", startTime=None),
            id="refused without a time",
        ),
    ],
)
def test_without_a_time_it_is_failing_when_seen(status: Tree) -> None:
    assert failed_at(status) == math.inf


def test_the_last_of_several_failures_counts() -> None:
    status = started(
        ended("StartError", HOOK, at=ONE_TEXT), ended("StartError", HOOK, at=NOON_TEXT)
    )

    assert failed_at(status) == NOON + 3600


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"phase": "Running"}, id="no statuses"),
        pytest.param(started({"running": {"startedAt": NOON_TEXT}}), id="running"),
        pytest.param(started({}), id="no state"),
        pytest.param({"phase": "Pending", "containerStatuses": [{}]}, id="nothing"),
        pytest.param(refused("NodeAffinity"), id="labels do not match"),
        pytest.param(refused("NodeShutdown"), id="node shuts down"),
        pytest.param(refused("Evicted"), id="evicted"),
        pytest.param(refused("OutOfcpu"), id="short of CPU"),
        pytest.param(refused("OutOfexample.com/fpga"), id="short of what is not ours"),
        pytest.param(refused("DeadlineExceeded"), id="ran too long"),
        pytest.param(
            refused("UnexpectedAdmissionError", phase="Running"), id="not failed"
        ),
        pytest.param(started(waiting("ContainerCreating")), id="being created"),
        pytest.param(started(waiting("ImagePullBackOff", "401")), id="image pull"),
        pytest.param(started(waiting("ErrImagePull", "404")), id="no image"),
        pytest.param(
            started(waiting("CreateContainerConfigError", 'secret "s" not found')),
            id="no secret",
        ),
        pytest.param(started(waiting("CrashLoopBackOff")), id="crashes"),
        pytest.param(started(ended("Error"), phase="Failed"), id="program ended"),
        pytest.param(started(ended("OOMKilled"), phase="Failed"), id="out of memory"),
        pytest.param(started(ended("Completed"), phase="Succeeded"), id="done"),
        pytest.param(started(ended("StartError", NO_COMMAND)), id="no such command"),
        pytest.param(
            started(ended("StartError", NO_COMMAND_IN_INIT)), id="not executable"
        ),
        pytest.param(
            started(waiting("CreateContainerError", NO_COMMAND_CRUN)), id="crun"
        ),
        pytest.param(
            started(waiting("CreateContainerError", "no command specified")),
            id="no command",
        ),
    ],
)
def test_what_the_node_is_not_to_blame_for(status: Tree) -> None:
    assert failed_at(status) is None


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param({"gpus": None, "cpu": "1"}, id="no managed resource"),
        pytest.param({"node_name": ""}, id="no node"),
    ],
)
def test_only_pods_with_a_managed_resource_on_a_node_count(pod: Tree) -> None:
    assert failed_at(refused("UnexpectedAdmissionError"), **pod) is None


def test_a_status_of_the_wrong_type_is_a_fault_and_hides_nothing_else() -> None:
    tree = make_pod(gpus=1, node_name="a", status={"containerStatuses": [5]})

    pod, faults = convert_with_faults(tree, Pod)

    assert pod is not None
    assert pod.spec.node_name == "a"
    assert [fault.path for fault in faults] == ["status.containerStatuses[0]"]
