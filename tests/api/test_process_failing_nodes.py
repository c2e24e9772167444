"""The real process over an API server whose pods fail before they run."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from tests.builders import Tree, make_node, make_pod
from tests.fakes.api_server import FakeApiServer
from tests.service_process import ServiceProcess, wait_until

FAILING: Final = "gpu_extender_failing_nodes"


def config_over(api: FakeApiServer, folder: Path, **failing: Any) -> dict[str, Any]:
    """Return a configuration over an API server."""
    return {
        "cluster": {
            "source": "kubernetes",
            "kubeconfig": str(api.kubeconfig(folder)),
            "failingNodes": failing,
        }
    }


def text_of(seconds: float) -> str:
    """Return a time as Kubernetes writes it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def refused_pod(name: str, at: float) -> Tree:
    """Return a pod that kubelet refused at a time."""
    status = {"reason": "UnexpectedAdmissionError", "startTime": text_of(at)}
    return make_pod(name=name, gpus=1, node_name="a", phase="Failed", status=status)


def unstarted_pod(name: str, at: float) -> Tree:
    """Return a pod whose container could not be started at a time."""
    detail = {"reason": "StartError", "exitCode": 128, "finishedAt": text_of(at)}
    states = [{"name": "main", "state": {"terminated": detail}, "restartCount": 0}]
    return make_pod(
        name=name,
        gpus=1,
        node_name="a",
        phase="Failed",
        status={"containerStatuses": states},
    )


def test_a_node_is_failing_for_a_while_and_then_not(
    api: FakeApiServer, tmp_path: Path
) -> None:
    api.put(make_node(name="a", gpus=4), make_node(name="b", gpus=4))
    with ServiceProcess(tmp_path, config_over(api, tmp_path, seconds=2)) as service:
        service.wait_ready()
        before = service.metric(FAILING)

        def is_failing() -> bool:
            # Anew until it is seen, should that take longer than the time to remember.
            api.put(refused_pod("x", time.time()), unstarted_pod("y", time.time()))
            return service.metric(FAILING) == 1

        wait_until(is_failing, "the node is failing")
        wait_until(lambda: service.metric(FAILING) == 0, "it is sound again")
        assert before == 0


def test_failures_outlive_a_restart_and_old_ones_are_not_new(
    api: FakeApiServer, tmp_path: Path
) -> None:
    now = time.time()
    api.put(make_node(name="a", gpus=4), refused_pod("x", now), refused_pod("y", now))
    with ServiceProcess(tmp_path, config_over(api, tmp_path)) as service:
        service.wait_ready()
        lately = service.metric(FAILING)

    api.put(refused_pod("x", now - 3600), refused_pod("y", now - 3600))
    with ServiceProcess(tmp_path, config_over(api, tmp_path)) as service:
        service.wait_ready()
        long_ago = service.metric(FAILING)

    assert (lately, long_ago) == (1, 0)


@pytest.mark.parametrize("ahead", [-7200, -3600, -700, 700, 3600, 7200])
def test_what_failed_just_now_by_the_servers_clock_failed_just_now(
    api: FakeApiServer, tmp_path: Path, ahead: float
) -> None:
    api.clock_offset_seconds = -ahead  # ours is ahead of the API server's
    there = time.time() - ahead
    api.put(make_node(name="a", gpus=4))
    api.put(refused_pod("x", there), unstarted_pod("y", there))
    with ServiceProcess(tmp_path, config_over(api, tmp_path)) as service:
        service.wait_ready()
        lately = service.metric(FAILING)

    api.put(refused_pod("x", there - 3600), unstarted_pod("y", there - 3600))
    with ServiceProcess(tmp_path, config_over(api, tmp_path)) as service:
        service.wait_ready()
        long_ago = service.metric(FAILING)

    assert (lately, long_ago) == (1, 0)
