"""Plays the kubelets' part: nobody else runs the pods that are bound."""

from collections.abc import Callable
from typing import Final, Self

from tests.e2e.harness.builders import JsonObject, ready_condition
from tests.e2e.harness.client import STRATEGIC_PATCH, ApiClient
from tests.e2e.harness.connection import ApiError
from tests.e2e.harness.following import Follower

FINAL_PHASES: Final = frozenset({"Succeeded", "Failed"})

# pod -> the phase that it should have now, with a reason after a slash if there is one;
# its present phase leaves it alone
PhaseRule = Callable[[JsonObject], str]


def keep_running(pod: JsonObject) -> str:
    """Run a pod and leave it running."""
    phase: str = pod["status"].get("phase", "Pending")
    return phase if phase in FINAL_PHASES else "Running"


def finish_jobs(pod: JsonObject) -> str:
    """Run a pod; one that a Job owns succeeds right after."""
    is_running = pod["status"].get("phase") == "Running"
    owners = pod["metadata"].get("ownerReferences", ())
    if is_running and any(owner["kind"] == "Job" for owner in owners):
        return "Succeeded"
    return keep_running(pod)


class KubeletStandIn:
    """A thread that gives bound pods the phase of a rule and completes deletions.

    It outlives an API server that goes away: it lists and watches again.
    """

    def __init__(self, client: ApiClient, rule: PhaseRule = keep_running) -> None:
        self._client = client
        self._rule = rule
        self._follower = Follower(
            client,
            "Pod",
            on_change=self._handle,
            on_end=lambda _: None,
            query={"fieldSelector": "spec.nodeName!="},
        )

    def __enter__(self) -> Self:
        self._follower.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop; pods keep the phase that they have."""
        self._follower.stop()

    def _handle(self, pod: JsonObject) -> None:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        try:
            if "deletionTimestamp" in pod["metadata"]:
                complete_deletion(self._client, name, namespace=namespace)
                return
            phase, _, reason = self._rule(pod).partition("/")
            if phase != pod["status"].get("phase"):
                set_phase(
                    self._client,
                    name,
                    phase,
                    namespace=namespace,
                    reason=reason or None,
                )
        except ApiError as error:
            # The pod may be gone, or another one of its name be there, by now.
            if error.reason not in {"NotFound", "Conflict"}:
                raise


def write_status(client: ApiClient, pod: JsonObject, status: JsonObject) -> None:
    """Write a part of a pod's status; one of another pod of its name is refused."""
    metadata = pod["metadata"]
    client.patch(
        "Pod",
        metadata["name"],
        {"metadata": {"uid": metadata["uid"]}, "status": status},
        namespace=metadata["namespace"],
        subresource="status",
        content_type=STRATEGIC_PATCH,
    )


def set_phase(
    client: ApiClient,
    pod: str,
    phase: str,
    *,
    namespace: str = "default",
    reason: str | None = None,
) -> None:
    """Write a pod's phase as its kubelet would; ready while it is running."""
    status = {
        "phase": phase,
        "reason": reason,
        "conditions": [ready_condition(is_true=phase == "Running")],
    }
    client.patch(
        "Pod",
        pod,
        {"status": status},
        namespace=namespace,
        subresource="status",
        content_type=STRATEGIC_PATCH,
    )


def complete_deletion(
    client: ApiClient, pod: str, *, namespace: str = "default"
) -> None:
    """End a pod whose graceful deletion is under way."""
    client.delete("Pod", pod, namespace=namespace, grace_seconds=0)
