"""What refuses a pod after the webhook has admitted it."""

import contextlib
from collections.abc import Iterator
from http import HTTPStatus
from typing import Final

from tests.e2e.harness.builders import JsonObject, make_pod
from tests.e2e.harness.client import ApiClient
from tests.e2e.harness.connection import ApiError
from tests.e2e.harness.waiting import wait_for

POLICY_API: Final = "admissionregistration.k8s.io/v1"
POLICY: Final = "ValidatingAdmissionPolicy"
BINDING: Final = "ValidatingAdmissionPolicyBinding"
NAME: Final = "deny-by-label"
DENIED: Final = {"denied": "by-policy"}
FULL_NAMESPACE: Final = "no-room"
KNOWN_SECONDS: Final = 20.0


@contextlib.contextmanager
def policy_by_label(client: ApiClient) -> Iterator[None]:
    """Refuse pods with the labels `DENIED` by an admission policy."""
    everything = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
    }
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [everything]},
        "validations": [
            {
                "expression": "!has(object.metadata.labels)"
                " || !('denied' in object.metadata.labels)",
                "message": "denied by policy",
            }
        ],
    }
    bound = {"policyName": NAME, "validationActions": ["Deny"]}
    client.apply(_object(POLICY, spec))
    client.apply(_object(BINDING, bound))
    try:
        _wait_until_refused(client, make_pod(labels=DENIED))
        yield
    finally:
        for kind in (BINDING, POLICY):
            client.delete(kind, NAME, api_version=POLICY_API)


def make_full_namespace(client: ApiClient) -> None:
    """Make the namespace `FULL_NAMESPACE`, whose quota is for no pods at all."""
    name = {"name": FULL_NAMESPACE}
    client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": name})
    hard = {"pods": "0"}
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none", "namespace": FULL_NAMESPACE},
        "spec": {"hard": hard},
    }
    client.apply(quota)
    # As its controller would: without a status the quota is not counted by.
    client.patch(
        "ResourceQuota",
        "none",
        {"status": {"hard": hard, "used": {"pods": "0"}}},
        namespace=FULL_NAMESPACE,
        subresource="status",
    )
    _wait_until_refused(client, make_pod(namespace=FULL_NAMESPACE))


def _object(kind: str, spec: JsonObject) -> JsonObject:
    metadata = {"name": NAME}
    return {"apiVersion": POLICY_API, "kind": kind, "metadata": metadata, "spec": spec}


def _wait_until_refused(client: ApiClient, pod: JsonObject) -> None:
    """Wait until the API server would not create `pod`, by its policies or quotas."""

    def is_refused() -> bool:
        try:
            client.create(pod, query={"dryRun": "All"})
        except ApiError as error:
            # 422 where a policy names no other status
            return error.status in {
                HTTPStatus.FORBIDDEN,
                HTTPStatus.UNPROCESSABLE_ENTITY,
            }
        return False

    wait_for(is_refused, timeout_seconds=KNOWN_SECONDS, what="pod refused")
