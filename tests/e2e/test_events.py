"""Events on pods that wait, on the real API server, which takes and lists them."""

import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Final

from tests.e2e.harness.builders import JsonObject, make_node, make_pod
from tests.e2e.harness.client import ApiClient
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.product import DEPLOY, NAME, Product
from tests.e2e.harness.waiting import wait_for

EVENTS_API: Final = "events.k8s.io/v1"
OWN_POD: Final = "gpu-extender-0"
WOKEN: Final = "gpu-extender.io/woken"
PODS: Final = 5000
OWNERS: Final = 50
PENDING_SECONDS: Final = 30.0
# For a machine that does other things, too; how long it takes is a figure, not a bar.
OWNER_SECONDS: Final = 240.0
RATE: Final = 10


def start_elected(product: Product) -> None:
    """Start the service in a pod that takes the Lease, and kube-scheduler."""
    product.plane.kubectl("apply", "-f", str(DEPLOY / "lease.yaml"))
    pod = make_pod(OWN_POD, namespace=NAME, scheduler_name="nobody")
    uid = product.client.create(pod)["metadata"]["uid"]
    env = {"POD_NAME": OWN_POD, "POD_NAMESPACE": NAME, "POD_UID": uid}
    product.start(env=env)
    product.start_scheduler()


def events_of(client: ApiClient) -> list[JsonObject]:
    """Return all that gpu-extender has told."""
    found = client.list("Event", namespace="default", api_version=EVENTS_API)
    return [e for e in found if e["reportingController"].startswith("gpu-extender")]


def told(client: ApiClient) -> Mapping[str, JsonObject]:
    """Return what was told of each object, by name."""
    return {event["regarding"]["name"]: event for event in events_of(client)}


def owned_pod(name: str, owner: str, *, gpus: int) -> JsonObject:
    """Return a pod of a controller, of which nothing else exists."""
    pod = make_pod(name, gpus=gpus)
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": owner}
    pod["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
    return pod


def test_the_event_of_a_pod_says_what_an_explanation_begins_with(
    control_plane: ControlPlane, product: Product
) -> None:
    client = product.client
    client.create_many(make_node(f"n{i}", gpus=2) for i in range(3))
    client.create(make_node("cordoned", gpus=8))
    client.patch("Node", "cordoned", {"spec": {"unschedulable": True}})
    start_elected(product)
    client.create(make_pod("large", gpus=4))
    client.create(owned_pod("of-a-job", "train", gpus=16))
    names = {"large", "of-a-job", "train"}
    wait_for(
        lambda: told(client).keys() >= names,
        timeout_seconds=PENDING_SECONDS + 15,
        what="pods and owner told",
    )

    for name in ("large", "of-a-job"):
        path = f"/explain?namespace=default&pod={name}"
        sentence = product.get_json(path)["summary"]["sentence"]
        assert told(client)[name]["note"] == f"{sentence}."
        shown = control_plane.kubectl("describe", "pod", name)
        assert f"{sentence}." in shown
        assert "GPUPodPending" in shown
    assert told(client)["train"]["regarding"]["kind"] == "Job"


def test_a_storm_is_told_slowly_once_and_to_every_owner(product: Product) -> None:
    client = product.client
    client.create_many(make_node(f"n{i}", gpus=2) for i in range(20))
    start_elected(product)
    client.create_many(
        owned_pod(f"pod-{i}", f"job-{i % OWNERS}", gpus=4 + i % OWNERS)
        for i in range(PODS)
    )
    owners = {f"job-{i}" for i in range(OWNERS)}
    stopping = threading.Event()

    def add_nodes() -> None:
        number = 0
        while not stopping.wait(1.0):
            number += 1
            client.create(make_node(f"more-{number}", gpus=1))

    adding = threading.Thread(target=add_nodes)
    adding.start()
    begun = time.monotonic()
    try:
        wait_for(
            # Events of other tests' owners are still there.
            lambda: told(client).keys() >= owners,
            timeout_seconds=PENDING_SECONDS + OWNER_SECONDS,
            what="every owner told",
            poll_seconds=0.5,
        )
        all_told = time.monotonic() - begun
        stopping.wait(20.0)  # for more of what must not be
    finally:
        stopping.set()
        adding.join()

    events = events_of(client)
    by_second = Counter(e["metadata"]["creationTimestamp"] for e in events)
    by_pod = Counter(
        e["regarding"]["uid"] for e in events if e["regarding"]["kind"] == "Pod"
    )
    print(  # noqa: T201 - figures, shown with -rP
        f"{PODS} pods: every owner told {all_told:.1f} s after the last came;"
        f" {len(events)} Events, most in a second {max(by_second.values())}"
    )
    assert max(by_second.values()) <= RATE + 1  # whole seconds of another clock
    assert max(by_pod.values()) == 1
    woken = [
        p for p in client.list("Pod") if WOKEN in p["metadata"].get("annotations", {})
    ]
    assert woken == []
