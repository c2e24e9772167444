"""The real process over an API server: refused pods are looked at again, and woken."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.builders import make_node, make_pod
from tests.fakes.api_http import Status
from tests.fakes.api_server import FakeApiServer
from tests.service_process import ServiceProcess, wait_until

FILTER: Final = "/scheduler/filter"
POD: Final = make_pod(gpus=1)
QUESTION: Final = {"Pod": POD, "Nodes": None, "NodeNames": ["a"]}
READY: Final = make_node(name="a", gpus=4)
BUSY: Final = make_node(
    name="a", gpus=4, labels={"nvidia.com/mig.config.state": "pending"}
)
PATH: Final = "/api/v1/namespaces/default/pods/pod-1/status"
UNSCHEDULABLE: Final = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "lastTransitionTime": "2026-11-27T12:00:01Z",
}


def make_config(
    api: FakeApiServer, folder: Path, extender: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a configuration over an API server, without waits for freshness."""
    kubeconfig = str(api.kubeconfig(folder))
    return {
        "cluster": {"source": "kubernetes", "kubeconfig": kubeconfig},
        "extender": {"freshnessMilliseconds": 0, **extender},
    }


@pytest.fixture
def service(api: FakeApiServer, tmp_path: Path) -> Iterator[ServiceProcess]:
    """Run the process over a busy node and a pending pod."""
    api.put(BUSY, POD)
    with ServiceProcess(tmp_path, make_config(api, tmp_path, {})) as running:
        running.wait_ready()
        yield running


def refused(service: ServiceProcess) -> bool:
    """Ask about the pod, and say whether no node passed."""
    return bool(service.post(FILTER, QUESTION).json()["NodeNames"] == [])


def outcomes(service: ServiceProcess, outcome: str) -> float:
    return service.metric(f'gpu_extender_wake_ups_total{{outcome="{outcome}"}}')


def test_a_refused_pod_is_woken_by_a_patch_of_its_status(
    api: FakeApiServer, service: ServiceProcess
) -> None:
    assert refused(service)

    api.put(READY)
    (patch,) = api.wait_seen("patch", "pods/status", 1)

    assert patch.path == PATH
    metadata = json.loads(patch.body)["metadata"]
    assert metadata["uid"] == POD["metadata"]["uid"]
    assert list(metadata["annotations"]) == ["gpu-extender.io/woken"]
    wait_until(lambda: outcomes(service, "woken") == 1, "the wake-up is counted")
    assert not refused(service)


def test_without_the_right_it_is_said_once(
    api: FakeApiServer, service: ServiceProcess
) -> None:
    api.script("patch", "pods/status", Status(403, "Forbidden"))
    assert refused(service)

    api.put(READY)
    wait_until(lambda: outcomes(service, "forbidden") == 1, "the refusal is counted")

    (line,) = service.logs("pods cannot be woken")
    assert line["wanted"] == "patch on pods/status"


def test_a_patch_that_fails_is_sent_again(
    api: FakeApiServer, service: ServiceProcess
) -> None:
    api.script("patch", "pods/status", Status(500), Status(503))
    assert refused(service)

    api.put(READY)

    wait_until(lambda: outcomes(service, "woken") == 1, "the pod is woken")
    assert outcomes(service, "failed") == 2


def test_after_a_restart_an_unschedulable_pod_is_woken(
    api: FakeApiServer, tmp_path: Path
) -> None:
    api.put(READY, make_pod(gpus=1, status={"conditions": [UNSCHEDULABLE]}))

    with ServiceProcess(tmp_path, make_config(api, tmp_path, {})):
        (patch,) = api.wait_seen("patch", "pods/status", 1)

    assert patch.path == PATH


def test_wake_ups_can_be_switched_off(api: FakeApiServer, tmp_path: Path) -> None:
    api.put(BUSY, POD)
    with ServiceProcess(
        tmp_path, make_config(api, tmp_path, {"wakeUp": False})
    ) as service:
        service.wait_ready()
        assert refused(service)
        api.put(READY)
        wait_until(lambda: not refused(service), "the change is seen")

    assert not api.seen("patch", "pods/status")
