"""The harness itself: processes of the real control plane, without the service."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.harness.builders import GPU, JsonObject, make_node, make_pod
from tests.e2e.harness.churn import Churn
from tests.e2e.harness.connection import ApiError, UnreachableError
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.kubelet import finish_jobs, set_phase
from tests.e2e.harness.pods import (
    nodes_of_pods,
    wait_until_bound,
    wait_until_gone,
    wait_until_phase,
    wait_until_refused,
)
from tests.e2e.harness.process import ProcessError
from tests.e2e.harness.service import REPOSITORY, http_get
from tests.e2e.harness.waiting import wait_for

RESTART_SECONDS: Final = 60.0


def test_the_minor_asked_for_is_running(
    control_plane: ControlPlane, minor: str
) -> None:
    version = control_plane.client.request("GET", "/version")

    assert f"{version['major']}.{version['minor']}" == minor


def test_a_pod_is_bound_runs_and_goes(control_plane: ControlPlane) -> None:
    client = control_plane.client
    client.create(make_node("node-a", gpus=4))
    control_plane.start_scheduler()
    control_plane.start_kubelet()

    # The grace period is long: only the kubelet's part ends the pod in time.
    client.create(make_pod("train", gpus=1, grace_seconds=300))
    node = wait_until_bound(client, "train")
    wait_until_phase(client, "train", "Running")
    client.delete("Pod", "train")
    wait_until_gone(client, "train")

    assert node == "node-a"


def test_a_pod_that_fits_nowhere_says_why(control_plane: ControlPlane) -> None:
    client = control_plane.client
    client.create_many(make_node(f"node-{i}", gpus=1) for i in range(2))
    control_plane.start_scheduler()

    client.create(make_pod("big", gpus=2))
    refusal = wait_until_refused(client, "big")

    assert refusal["reason"] == "Unschedulable"
    assert f"2 Insufficient {GPU}" in refusal["message"]


def test_many_nodes_and_pods_are_made_in_parallel(control_plane: ControlPlane) -> None:
    client = control_plane.client

    nodes = client.create_many(make_node(f"node-{i}", gpus=8) for i in range(100))
    pods = client.create_many(make_pod(gpus=1) for _ in range(100))
    control_plane.start_scheduler()
    wait_for(
        lambda: len(nodes_of_pods(client)) == len(pods),
        timeout_seconds=60,
        what="all pods bound",
    )
    client.delete_many("Pod", [pod["metadata"]["name"] for pod in pods])

    assert [node["metadata"]["name"] for node in nodes[:2]] == ["node-0", "node-1"]
    assert client.list("Pod") == ()


def test_data_survives_a_killed_api_server(fresh_control_plane: ControlPlane) -> None:
    plane, client = fresh_control_plane, fresh_control_plane.client
    plane.start_scheduler()
    plane.start_kubelet()
    client.create(make_node("node-a", gpus=4))
    client.create(make_pod("before", gpus=1))
    wait_until_bound(client, "before")

    plane.api_server.kill()
    with pytest.raises(UnreachableError):
        client.list("Pod")
    plane.api_server.start()
    client.create(make_pod("after", gpus=1))
    wait_until_bound(client, "after", timeout_seconds=RESTART_SECONDS)
    wait_until_phase(client, "after", "Running", timeout_seconds=RESTART_SECONDS)

    assert nodes_of_pods(client) == {"before": "node-a", "after": "node-a"}


def test_data_survives_a_stopped_and_a_killed_etcd(
    fresh_control_plane: ControlPlane,
) -> None:
    plane, client = fresh_control_plane, fresh_control_plane.client
    client.create(make_node("node-a"))

    plane.etcd.restart()
    wait_for(
        lambda: client.create(make_node("node-b")),
        timeout_seconds=RESTART_SECONDS,
        what="writes after etcd was stopped",
        ignoring=(ApiError, UnreachableError),
    )
    plane.etcd.kill()
    plane.etcd.start()
    nodes = wait_for(
        lambda: client.list("Node"),
        timeout_seconds=RESTART_SECONDS,
        what="reads after etcd was killed",
        ignoring=(ApiError, UnreachableError),
    )

    assert [node["metadata"]["name"] for node in nodes] == ["node-a", "node-b"]


def test_history_is_gone_after_a_compaction(fresh_control_plane: ControlPlane) -> None:
    plane, client = fresh_control_plane, fresh_control_plane.client
    client.create(make_node("node-a"))
    version = client.list_page("Node")["metadata"]["resourceVersion"]
    client.patch("Node", "node-a", {"metadata": {"labels": {"x": "y"}}})

    plane.compact_etcd()
    # The running API server may have the old state in memory, a new one cannot.
    plane.api_server.kill()
    plane.api_server.start()

    query = {"resourceVersion": version, "resourceVersionMatch": "Exact"}
    with pytest.raises(ApiError) as refused:
        client.list_page("Node", query=query)
    assert refused.value.status == 410


def test_churn_goes_on_over_a_killed_api_server(
    fresh_control_plane: ControlPlane,
) -> None:
    plane, client = fresh_control_plane, fresh_control_plane.client
    client.create(make_node("node-a", gpus=8))

    with Churn(
        client,
        lambda i: make_pod(f"churn-{i}", gpus=1, node_name="node-a"),
        total=200,
        per_second=50,
        keep=20,
    ) as churn:
        wait_for(lambda: churn.created > 50, timeout_seconds=30, what="churn going")
        plane.api_server.kill()
        plane.api_server.start()
        churn.finish(RESTART_SECONDS)

    assert churn.failed_calls > 0
    assert len(client.list("Pod")) == churn.created - churn.deleted


def test_every_process_stops_on_sigterm(fresh_control_plane: ControlPlane) -> None:
    plane = fresh_control_plane
    scheduler = plane.start_scheduler()
    controllers = plane.start_controller_manager()
    pids = [
        process.pid
        for process in (scheduler, controllers, plane.api_server, plane.etcd)
    ]

    for process in (scheduler, controllers, plane.api_server, plane.etcd):
        process.stop()

    assert [pid for pid in pids if not has_ended(pid)] == []


def test_a_process_that_does_not_start_says_why(control_plane: ControlPlane) -> None:
    with pytest.raises(ProcessError, match="no kind"):
        control_plane.start_scheduler({"apiVersion": "v1", "kind": "Unheard"})


def test_a_process_that_ends_by_itself_is_a_fault(control_plane: ControlPlane) -> None:
    scheduler = control_plane.start_scheduler()
    os.kill(scheduler.pid, signal.SIGKILL)
    wait_for(lambda: not scheduler.is_running, timeout_seconds=20, what="end")

    with pytest.raises(ProcessError, match="kube-scheduler: wanted it running"):
        control_plane.reset()


def test_controllers_make_pods_and_jobs_complete(control_plane: ControlPlane) -> None:
    client, kubectl = control_plane.client, control_plane.kubectl
    client.create(make_node("node-a", gpus=4))
    control_plane.start_scheduler()
    control_plane.start_controller_manager()
    control_plane.start_kubelet(finish_jobs)
    template = make_pod(gpus=1, spec={"restartPolicy": "Never"})
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"completions": 2, "template": {"spec": template["spec"]}},
    }

    def succeeded() -> int:
        status = kubectl.json("get", "job", "train")["status"]
        return int(status.get("succeeded", 0))

    kubectl("create", "-f", "-", stdin=json.dumps(job))
    wait_for(lambda: succeeded() == 2, timeout_seconds=60, what="job complete")


def test_a_pod_can_be_made_to_fail(control_plane: ControlPlane) -> None:
    client = control_plane.client
    client.create(make_pod("broken", gpus=1, node_name="node-a"))

    set_phase(client, "broken", "Failed", reason="UnexpectedAdmissionError")

    status = client.get("Pod", "broken")["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "UnexpectedAdmissionError")


def test_a_service_account_without_a_role_is_refused_and_recorded(
    control_plane: ControlPlane,
) -> None:
    account: JsonObject = {"apiVersion": "v1", "kind": "ServiceAccount"}
    control_plane.client.apply({**account, "metadata": {"name": "nobody"}})
    token = control_plane.client.service_account_token("default", "nobody")

    with pytest.raises(ApiError) as refused:
        control_plane.client_with(token).request("GET", "/api/v1/secrets")
    call = wait_for(
        lambda: next((c for c in control_plane.calls() if "secrets" in c.uri), None),
        timeout_seconds=20,
        what="refused call in the audit log",
    )

    assert refused.value.status == 403
    assert call.is_refused
    assert call.is_of("nobody")


def test_objects_of_the_test_before_are_gone(control_plane: ControlPlane) -> None:
    assert control_plane.client.list("Pod") == ()
    assert control_plane.client.list("Node") == ()


def test_nothing_is_left_running_after_a_killed_test_run(
    minor: str, tmp_path: Path
) -> None:
    script = tmp_path / "killed.py"
    script.write_text(
        "import os, pathlib, signal\n"
        "from tests.e2e import build\n"
        "from tests.e2e.harness.control_plane import ControlPlane\n"
        "from tests.e2e.harness.reaper import Reaper\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        f"binaries = build.locate({minor!r})\n"
        "plane = ControlPlane(binaries, folder=folder / 'plane',\n"
        "                     log_folder=folder / 'logs', reaper=Reaper())\n"
        "plane.start()\n"
        "print(plane.etcd.pid, plane.api_server.pid, plane.ports.etcd, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    *pids, port = map(int, done.stdout.split())

    wait_for(
        lambda: all(has_ended(pid) for pid in pids),
        timeout_seconds=20,
        what=f"end of {pids}",
    )
    assert len(pids) == 2
    # Its threads end one by one: what reaches the last of them is reset.
    with pytest.raises(ConnectionError):
        http_get(port, "/health")


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or only waits for its parent to take note."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return True
    return status.rpartition(")")[2].split()[0] == "Z"
