"""What a test wants to know of pods, and waits for."""

from collections.abc import Mapping
from typing import Final

from tests.e2e.harness.builders import JsonObject
from tests.e2e.harness.client import ApiClient
from tests.e2e.harness.connection import ApiError, UnreachableError
from tests.e2e.harness.waiting import wait_for

BIND_SECONDS: Final = 20.0


def node_of(pod: JsonObject) -> str:
    """Return the node that a pod is bound to, or nothing."""
    name: str = pod["spec"].get("nodeName", "")
    return name


def condition_of(pod: JsonObject, kind: str) -> JsonObject:
    """Return a condition of a pod, empty if it has none of that type."""
    conditions = pod["status"].get("conditions", ())
    return next((found for found in conditions if found["type"] == kind), {})


def nodes_of_pods(
    client: ApiClient, *, namespace: str = "default", labels: str = ""
) -> Mapping[str, str]:
    """Return pod name -> node name, of bound pods that a label selector finds."""
    query = {"labelSelector": labels} if labels else None
    pods = client.list("Pod", namespace=namespace, query=query)
    return {pod["metadata"]["name"]: node_of(pod) for pod in pods if node_of(pod)}


def wait_until_bound(
    client: ApiClient,
    pod: str,
    *,
    namespace: str = "default",
    timeout_seconds: float = BIND_SECONDS,
) -> str:
    """Wait until a pod is bound and return its node, also over a restart."""
    return wait_for(
        lambda: node_of(client.get("Pod", pod, namespace=namespace)),
        timeout_seconds=timeout_seconds,
        what=f"pod {pod} bound",
        ignoring=(UnreachableError,),
    )


def wait_until_refused(
    client: ApiClient,
    pod: str,
    *,
    namespace: str = "default",
    timeout_seconds: float = BIND_SECONDS,
) -> JsonObject:
    """Wait until a pod could not be scheduled; return the condition that says why.

    Its `reason` is Unschedulable, or SchedulerError when the extender failed.
    """

    def refusal() -> JsonObject | None:
        found = condition_of(
            client.get("Pod", pod, namespace=namespace), "PodScheduled"
        )
        return found if found.get("status") == "False" else None

    return wait_for(refusal, timeout_seconds=timeout_seconds, what=f"pod {pod} refused")


def wait_until_phase(
    client: ApiClient,
    pod: str,
    phase: str,
    *,
    namespace: str = "default",
    timeout_seconds: float = BIND_SECONDS,
) -> None:
    """Wait until a pod is in a phase."""
    wait_for(
        lambda: (
            client.get("Pod", pod, namespace=namespace)["status"].get("phase") == phase
        ),
        timeout_seconds=timeout_seconds,
        what=f"pod {pod} {phase}",
        ignoring=(UnreachableError,),
    )


def wait_until_gone(
    client: ApiClient,
    pod: str,
    *,
    namespace: str = "default",
    timeout_seconds: float = BIND_SECONDS,
) -> None:
    """Wait until a pod is deleted."""

    def is_gone() -> bool:
        return not client.exists("Pod", pod, namespace=namespace)

    wait_for(is_gone, timeout_seconds=timeout_seconds, what=f"pod {pod} gone")


def delete_quietly(client: ApiClient, pod: str, *, namespace: str = "default") -> None:
    """Delete a pod at once; one that is gone already is as good."""
    try:
        client.delete("Pod", pod, namespace=namespace, grace_seconds=0)
    except ApiError as error:
        if error.reason != "NotFound":
            raise
