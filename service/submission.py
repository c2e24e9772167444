"""Pods as the API server would send them for review, and a preview of the answer."""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import jsonpatch

from extender.explain.pod import ReviewedPod
from extender.explain.templates import PodTemplate, templates_in
from extender.wire.filter import WireError
from injector.resources.containers import LIMITS, REQUESTS, read_containers
from injector.resources.pod_level import default_pod_level
from injector.review import (
    Answer,
    Review,
    ReviewError,
    decode_pod,
    decode_review,
)
from scoring.faults import Fault
from scoring.names import is_namespace

CREATE: Final = "CREATE"

_CONTAINERS: Final = ("containers", "initContainers")


def as_json(tree: Any) -> Any:
    """Return a tree as it is after a passage through JSON.

    What YAML shares by an anchor is a value of its own in each place then, and keys are
    text. Raises `ValueError` or `RecursionError` if JSON cannot say it.
    """
    return json.loads(json.dumps(tree, allow_nan=False))


def fill_requests(pod: dict[str, Any]) -> None:
    """Set in place what the API server derives: requests, and the pod level.

    Admission comes after defaulting, ``SetDefaults_Pod`` in
    ``pkg/apis/core/v1/defaults.go``: with ``existing: keep``, a request that equals a
    limit is one that was set. `pod` must be one that `decode_pod` takes.
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
    spec = pod.get("spec") or {}
    if spec.get("resources"):
        default_pod_level(spec["resources"], read_containers(decode_pod(pod)))


def build_review(
    pod: Mapping[str, Any], namespace: str, uid: str, *, is_dry_run: bool = False
) -> bytes:
    """Return the AdmissionReview of a pod that is about to be created."""
    metadata = pod.get("metadata") or {}
    request = {
        "uid": uid,
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": metadata.get("name") or "",
        "namespace": namespace,
        "operation": CREATE,
        "dryRun": is_dry_run,
        "object": pod,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return json.dumps({**review, "request": request}).encode()


def _containers(pod: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield regular and init containers."""
    spec = pod.get("spec") or {}
    for key in _CONTAINERS:
        yield from spec.get(key) or ()


DEFAULT_NAMESPACE: Final = "default"

_OBJECT: Final = "request.object"


@dataclass(frozen=True, slots=True)
class Submission:
    """A pod as the API server would send it for review."""

    pod: dict[str, Any]
    namespace: str

    @property
    def label(self) -> str:
        """Namespace and name, or what the name will begin with."""
        metadata = self.pod.get("metadata") or {}
        name = metadata.get("name") or f"{metadata.get('generateName') or ''}*"
        return f"{self.namespace}/{name}"


def read_submissions(tree: Any, namespace: str) -> list[Submission]:
    """Return the pods of one object of a manifest; raise `WireError`.

    A pod from a template is named as its controller would begin to name it.
    """
    return [read_submission(template, namespace) for template in templates_in(tree)]


def read_submission(template: PodTemplate, namespace: str = "") -> Submission:
    """Return one pod of an object; raise `WireError`."""
    found, prefix = template.tree, template.path
    try:
        pod: dict[str, Any] = as_json(found)
        if prefix:
            pod = _as_controller(pod)
        view = decode_pod(pod)
    except ReviewError as error:
        raise WireError(
            [
                Fault(_path_in_manifest(fault.path, prefix), fault.message)
                for fault in error.faults
            ]
        ) from error
    except (ValueError, RecursionError) as error:
        raise WireError([Fault(prefix.rstrip(".") or "object", str(error))]) from error
    own = view.metadata.namespace
    if namespace and own and own != namespace:
        message = f"wanted {namespace!r}, as the command line has it, got {own!r}"
        raise WireError([Fault("metadata.namespace", message)])
    chosen = own or namespace or DEFAULT_NAMESPACE
    if not is_namespace(chosen):
        message = f"wanted the name of a namespace, got {chosen!r}"
        raise WireError([Fault("metadata.namespace", message)])
    fill_requests(pod)
    return Submission(pod, chosen)


def _path_in_manifest(path: str, prefix: str) -> str:
    """Return the path of a fault of a review as the author of a manifest knows it."""
    return prefix + path.removeprefix(_OBJECT).removeprefix(".") or "object"


def _as_controller(template: dict[str, Any]) -> dict[str, Any]:
    """Return the pod that a controller makes of its template."""
    metadata = template.get("metadata")
    if isinstance(metadata, dict):
        name = metadata.pop("name", "")
        metadata = {"generateName": f"{name}-", **metadata}
    return {"apiVersion": "v1", "kind": "Pod", **template, "metadata": metadata}


def preview_by(
    decide: Callable[[Review], Answer],
) -> Callable[[PodTemplate], ReviewedPod]:
    """Return what reviews a pod of a manifest as a dry run, which holds nothing.

    `decide` is `Admission.preview`, of the webhook's own configuration.
    """

    def preview(template: PodTemplate) -> ReviewedPod:
        submission = read_submission(template)
        pod = submission.pod
        # By its UID pods are told apart that have yet to be named.
        body = build_review(
            pod, submission.namespace, str(uuid.uuid4()), is_dry_run=True
        )
        try:
            answer = decide(decode_review(body))
        except ReviewError as error:
            faults = [
                Fault(_path_in_manifest(fault.path, template.path), fault.message)
                for fault in error.faults
            ]
            raise WireError(faults) from error
        warnings = tuple(answer.warnings)
        if not answer.is_allowed:
            return ReviewedPod(pod, warnings, answer.message)
        patch = json.loads(answer.patch) if answer.patch else []
        return ReviewedPod(jsonpatch.apply_patch(pod, patch), warnings)

    return preview
