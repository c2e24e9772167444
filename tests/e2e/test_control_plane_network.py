"""The harness itself: the proxy, and servers that the control plane calls."""

import contextlib
import queue
import threading
import time
from collections.abc import Iterator
from typing import Final

import pytest

from tests.e2e.harness.builders import GPU, JsonObject, make_node, make_pod
from tests.e2e.harness.client import ApiClient
from tests.e2e.harness.connection import UnreachableError
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.pods import wait_until_bound, wait_until_refused
from tests.e2e.harness.proxy import TcpProxy
from tests.e2e.harness.recording import RecordingServer, allow, prefer
from tests.e2e.harness.scheduler_log import extender_error_lines
from tests.e2e.harness.waiting import stays_true, wait_for

TEMPLATE: Final = f"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
extenders:
- urlPrefix: http://127.0.0.1:8888/scheduler
  filterVerb: filter
  prioritizeVerb: prioritize
  weight: 10
  httpTimeout: 1s
  nodeCacheCapable: true
  managedResources:
  - name: {GPU}
"""


def webhook(server: RecordingServer, bundle: str) -> JsonObject:
    """Return the registration of a webhook for every pod that is created."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "recording"},
        "webhooks": [
            {
                "name": "recording.example.com",
                "clientConfig": {"url": f"{server.url}/mutate", "caBundle": bundle},
                "rules": [{**rule, "operations": ["CREATE"]}],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ],
    }


@pytest.fixture
def proxy(control_plane: ControlPlane) -> TcpProxy:
    """A proxy in front of the API server."""
    return control_plane.start_proxy()


@pytest.fixture
def through_proxy(control_plane: ControlPlane, proxy: TcpProxy) -> ApiClient:
    """A client that reaches the API server through the proxy only."""
    token = control_plane.users.harness.token
    return control_plane.client_with(token, server=proxy.url)


@contextlib.contextmanager
def added_pods(client: ApiClient) -> Iterator["queue.Queue[str]"]:
    """Watch pods in a thread and give the names of those that were added."""
    added: queue.Queue[str] = queue.Queue()
    version = client.list_page("Pod")["metadata"]["resourceVersion"]
    stream = client.watch("Pod", resource_version=version)

    def follow() -> None:
        for event in stream:
            if event["type"] == "ADDED":
                added.put(event["object"]["metadata"]["name"])

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield added
    finally:
        stream.close()
        thread.join()


def test_the_scheduler_calls_an_extender_with_node_names(
    control_plane: ControlPlane,
) -> None:
    client = control_plane.client
    names = [f"node-{i}" for i in range(4)]
    client.create_many(make_node(name, gpus=4) for name in names)

    with RecordingServer(prefer("node-2")) as extender:
        scheduler = control_plane.start_scheduler(TEMPLATE, extender_url=extender.url)
        client.create(make_pod("plain", cpu="1"))
        client.create(make_pod("gpu", gpus=1))
        node = wait_until_bound(client, "gpu")
        wait_until_bound(client, "plain")

    assert node == "node-2"
    (asked,) = extender.asked("/scheduler/filter")
    assert asked["Pod"]["metadata"]["name"] == "gpu"
    assert sorted(asked["NodeNames"]) == names
    assert asked["Nodes"] is None
    assert len(extender.asked("/scheduler/prioritize")) == 1
    assert extender_error_lines(scheduler.log_text(), extender.url) == ()


def test_errors_of_an_extender_are_found_in_the_schedulers_log(
    control_plane: ControlPlane,
) -> None:
    client = control_plane.client
    client.create(make_node("node-a", gpus=4))

    with RecordingServer(prefer("node-a")) as extender:
        extender.status = 503
        scheduler = control_plane.start_scheduler(TEMPLATE, extender_url=extender.url)
        client.create(make_pod("gpu", gpus=1))
        refusal = wait_until_refused(client, "gpu")
        lines = wait_for(
            lambda: extender_error_lines(scheduler.log_text(), extender.url),
            timeout_seconds=20,
            what="error line about the extender",
        )
        extender.status = 200
        wait_until_bound(client, "gpu")

    assert refusal["reason"] == "SchedulerError"
    assert "503" in lines[0]


def test_an_extender_that_nobody_serves_is_found_in_the_schedulers_log(
    control_plane: ControlPlane,
) -> None:
    client = control_plane.client
    client.create(make_node("node-a", gpus=4))
    with RecordingServer(prefer("node-a")) as extender:
        gone = extender.url

    scheduler = control_plane.start_scheduler(TEMPLATE, extender_url=gone)
    client.create(make_pod("gpu", gpus=1))

    lines = wait_for(
        lambda: extender_error_lines(scheduler.log_text(), gone),
        timeout_seconds=20,
        what="error line about the extender",
    )
    assert "connection refused" in lines[0]


def test_the_api_server_calls_a_webhook_with_a_certificate_of_the_run(
    control_plane: ControlPlane,
) -> None:
    client = control_plane.client
    pair = control_plane.authority.issue("webhook")

    with RecordingServer(allow, pair) as server:
        client.create(webhook(server, control_plane.authority.bundle))

        def creation_is_seen() -> bool:
            client.create(make_pod(generate_name="seen-"))
            return bool(server.calls)

        # The API server learns of the registration through a watch of its own.
        wait_for(creation_is_seen, timeout_seconds=20, what="call of the webhook")
        client.delete(
            "MutatingWebhookConfiguration",
            "recording",
            api_version="admissionregistration.k8s.io/v1",
        )

    (review, *_) = server.asked("/mutate")
    assert review["request"]["object"]["metadata"]["generateName"] == "seen-"


def test_a_held_watch_is_silent_until_it_is_released(
    control_plane: ControlPlane, proxy: TcpProxy, through_proxy: ApiClient
) -> None:
    with added_pods(through_proxy) as added:
        proxy.hold()
        control_plane.client.create(make_pod("held"))
        stays_true(added.empty, for_seconds=0.5, what="watch silent")
        proxy.release()

        assert added.get(timeout=20) == "held"


def test_a_delayed_watch_is_late(
    control_plane: ControlPlane, proxy: TcpProxy, through_proxy: ApiClient
) -> None:
    with added_pods(through_proxy) as added:
        proxy.delay(0.4)
        started = time.monotonic()
        control_plane.client.create(make_pod("late"))
        name = added.get(timeout=20)
        waited_seconds = time.monotonic() - started

    assert name == "late"
    assert waited_seconds >= 0.4


def test_a_cut_watch_ends_and_a_refusing_proxy_lets_nobody_in(
    proxy: TcpProxy, through_proxy: ApiClient
) -> None:
    version = through_proxy.list_page("Pod")["metadata"]["resourceVersion"]
    stream = through_proxy.watch("Pod", resource_version=version)

    proxy.refuse()
    proxy.cut()

    assert list(stream) == []
    with pytest.raises(UnreachableError):
        through_proxy.list("Pod")
    proxy.refuse(on=False)
    assert through_proxy.list("Pod") == ()


def test_the_proxy_outlives_a_killed_api_server(
    fresh_control_plane: ControlPlane,
) -> None:
    plane = fresh_control_plane
    proxy = plane.start_proxy()
    through_proxy = plane.client_with(plane.users.harness.token, server=proxy.url)
    through_proxy.create(make_node("node-a"))

    plane.api_server.kill()
    with pytest.raises(UnreachableError):
        through_proxy.list("Node")
    plane.api_server.start()

    assert len(through_proxy.list("Node")) == 1
