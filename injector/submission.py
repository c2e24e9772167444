"""A pod as a manifest has it, brought to the form in which the API server sends it."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from injector.containers import LIMITS, REQUESTS

CREATE: Final = "CREATE"
_CONTAINERS: Final = ("containers", "initContainers")


def as_json(tree: Any) -> Any:
    """Return a tree as it is after a passage through JSON.

    What YAML shares by an anchor is a value of its own in each place then, and keys are
    text. Raises `ValueError` or `RecursionError` if JSON cannot say it.
    """
    return json.loads(json.dumps(tree, allow_nan=False))


def fill_requests(pod: dict[str, Any]) -> None:
    """Set each request that only a limit stands for, in place.

    Admission comes after defaulting, ``SetDefaults_Pod`` in
    ``pkg/apis/core/v1/defaults.go``: with ``existing: keep``, a request that equals a
    limit is one that was set. `pod` must be one that `read_pod` takes.
    """
    for container in _containers(pod):
        resources: dict[str, Any] = container.get("resources") or {}
        limits = resources.get(LIMITS)
        if limits:
            requests = resources.get(REQUESTS) or {}
            resources[REQUESTS] = {
                **requests,
                **{name: limits[name] for name in limits if name not in requests},
            }


def build_review(pod: Mapping[str, Any], namespace: str, uid: str) -> bytes:
    """Return the AdmissionReview of a pod that is about to be created."""
    metadata = pod.get("metadata") or {}
    request = {
        "uid": uid,
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": metadata.get("name") or "",
        "namespace": namespace,
        "operation": CREATE,
        "dryRun": False,
        "object": pod,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return json.dumps({**review, "request": request}).encode()


def _containers(pod: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield regular and init containers."""
    spec = pod.get("spec") or {}
    for key in _CONTAINERS:
        yield from spec.get(key) or ()
