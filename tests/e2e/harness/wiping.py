"""Delete what a test has left in a control plane that the next one uses, too."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from tests.e2e.harness.client import ApiClient
from tests.e2e.harness.connection import ApiError
from tests.e2e.harness.waiting import wait_for

WIPE_SECONDS: Final = 60.0
# Owners before what they own, so that nothing comes back; API version and kind.
CLUSTER_WIDE: Final = (
    ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"),
    ("resource.k8s.io/v1", "DeviceClass"),
    ("resource.k8s.io/v1", "ResourceSlice"),
    ("v1", "Node"),
)
NAMESPACED: Final = (
    ("v1", "ResourceQuota"),
    ("v1", "LimitRange"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "ReplicaSet"),
    ("batch/v1", "Job"),
    ("v1", "Pod"),
    ("resource.k8s.io/v1", "ResourceClaim"),
    ("resource.k8s.io/v1", "ResourceClaimTemplate"),
    ("policy/v1", "PodDisruptionBudget"),
)


def wipe(client: ApiClient) -> None:
    """Delete nodes, workloads, limits and webhooks of all namespaces."""
    wait_for(
        lambda: not _delete_all(client),
        timeout_seconds=WIPE_SECONDS,
        what="objects of the last test gone",
    )


def _delete_all(client: ApiClient) -> int:
    """Delete everything once and return how many objects there were."""
    found = 0
    with ThreadPoolExecutor(client.connection.connections) as threads:
        for api_version, kind in CLUSTER_WIDE + NAMESPACED:
            items = client.list(kind, api_version=api_version)
            delete = partial(_delete, client, api_version, kind)
            found += len(list(threads.map(delete, (i["metadata"] for i in items))))
    return found


def _delete(
    client: ApiClient, api_version: str, kind: str, metadata: dict[str, str]
) -> None:
    name, namespace = metadata["name"], metadata.get("namespace", "default")
    try:
        if metadata.get("finalizers"):
            # Whoever would take them away has been stopped already.
            client.patch(
                kind,
                name,
                {"metadata": {"finalizers": None}},
                namespace=namespace,
                api_version=api_version,
            )
        client.delete(
            kind, name, namespace=namespace, api_version=api_version, grace_seconds=0
        )
    except ApiError as error:
        if error.reason != "NotFound":
            raise
