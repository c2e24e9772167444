"""A webhook of the real parts without a socket, and pods to send to it."""

import base64
import copy
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import falcon
import falcon.testing
import jsonpatch

from cluster.ledger.writer import SnapshotCell
from injector.admission import (
    Admission,
    AdmissionObserver,
    AdmissionOptions,
    TakeNotes,
)
from injector.fallback.fallback import Fallback
from injector.fallback.holds import Holds
from injector.http import MutateResource, is_under_review, reject_malformed
from injector.resources.inject import ExistingMode, Injector
from injector.review import ReviewError
from injector.rules.file import parse_rules
from injector.rules.rules import RuleBook, Rules
from injector.steps import AdmissionOutcome, AdmissionReason, PodStep
from scoring.protocols import LimitDefaults
from tests.defaults import FALLBACK_OPTIONS, HOLD_SECONDS, RULE_CONTEXT, SETTINGS

GPU = "nvidia.com/gpu"
AMD = "amd.com/gpu"
SHM = "nvidia.com/shm"
TRIGGER = "task.bkbcs.tencent.com/gpu-type"
NETWORKS = "tke.cloud.tencent.com/networks"

_uids = itertools.count()


def per_gpu(name: str, coefficient: float, unit: str = "") -> dict[str, Any]:
    return {"name": name, "coefficient": coefficient, "unit": unit}


def rule(
    *resources: dict[str, Any], annotations: Mapping[str, str] | None = None
) -> dict[str, Any]:
    return {"resourceList": list(resources), "annotations": annotations or {}}


# 4 cores and 8Gi for each GPU of a V100.
C1: dict[str, Any] = {
    "resourceMap": {
        "V100": {
            GPU: rule(
                per_gpu("cpu", 4000, "m"),
                per_gpu("memory", 8, "Gi"),
                annotations={NETWORKS: "tke-route-eni"},
            ),
            AMD: rule(per_gpu("cpu", 1000, "m")),
        }
    }
}


def v100(*resources: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
    return {"resourceMap": {"V100": {GPU: rule(*resources, **kwargs)}}}


def gpus(count: int, **more: str) -> dict[str, Any]:
    """Requests and limits of a GPU container as the API server completes them."""
    return both({GPU: str(count), **more})


def both(amounts: Mapping[str, Any]) -> dict[str, Any]:
    return {"requests": dict(amounts), "limits": dict(amounts)}


def container(
    name: str = "a", resources: dict[str, Any] | None = None, **fields: Any
) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name, "image": "image", **fields}
    if resources is not None:
        made["resources"] = resources
    return made


def make_pod(
    *containers: dict[str, Any],
    gpu_type: str | None = "V100",
    annotations: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    trigger = {} if gpu_type is None else {TRIGGER: gpu_type}
    meta: dict[str, Any] = {"name": "p", "namespace": "default", **(metadata or {})}
    if trigger or annotations:
        meta["annotations"] = {**trigger, **(annotations or {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"containers": list(containers), **spec},
    }


def make_review(pod: Any, **fields: Any) -> dict[str, Any]:
    request = {
        "uid": f"uid-{next(_uids)}",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "CREATE",
        "namespace": "default",
        "object": pod,
        **fields,
    }
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {name: value for name, value in request.items() if value != ...},
    }


@dataclass
class CountingObserver:
    """Keeps what it is told."""

    admissions: list[tuple[AdmissionOutcome, AdmissionReason]] = field(
        default_factory=list
    )
    fallbacks: list[str] = field(default_factory=list)

    def observe_admission(
        self, outcome: AdmissionOutcome, reason: AdmissionReason
    ) -> None:
        self.admissions.append((outcome, reason))

    def observe_fallback(self, outcome: str) -> None:
        self.fallbacks.append(outcome)


@dataclass
class Webhook:
    """The resource in a Falcon application of its own."""

    book: RuleBook
    client: falcon.testing.TestClient
    observer: CountingObserver

    def post(self, review: Any) -> dict[str, Any]:
        result = self.client.simulate_post("/mutate", body=json.dumps(review))
        assert result.status_code == 200, result.text
        answer: dict[str, Any] = result.json
        return answer

    def send(self, pod: Any, **fields: Any) -> "Answered":
        """Send one pod; hold the answer to what is true of every answer.

        It carries the UID of the request and echoes the version; a second run gives
        the same patch; the patch applies; and the patched pod is not changed again.
        """
        review = make_review(pod, **fields)
        answer = self.post(review)
        response = answer["response"]
        again = self.post(review)["response"]

        assert response["uid"] == review["request"]["uid"]
        assert answer["apiVersion"] == review["apiVersion"]
        assert answer["kind"] == "AdmissionReview"
        assert again == response
        assert ("patch" in response) == ("patchType" in response)
        assert all(len(text) <= 256 for text in response.get("warnings", ()))
        if "patch" not in response:
            return Answered(response, copy.deepcopy(pod), [])
        assert response["allowed"]
        assert response["patchType"] == "JSONPatch"
        operations = json.loads(base64.b64decode(response["patch"], validate=True))
        patched = jsonpatch.apply_patch(copy.deepcopy(pod), operations)
        second = self.post(make_review(patched, **fields))["response"]
        assert second["allowed"]
        assert "patch" not in second
        return Answered(response, patched, operations)


@dataclass
class Answered:
    """An answer, and the pod as the API server would store it."""

    response: dict[str, Any]
    pod: dict[str, Any]
    operations: list[dict[str, Any]]

    @property
    def is_allowed(self) -> bool:
        return bool(self.response["allowed"])

    @property
    def message(self) -> str:
        return str(self.response["status"]["message"])

    @property
    def warnings(self) -> list[str]:
        warnings: list[str] = self.response.get("warnings", [])
        return warnings

    @property
    def annotations(self) -> dict[str, str]:
        annotations: dict[str, str] = self.pod["metadata"].get("annotations", {})
        return annotations

    def resources(self, name: str) -> dict[str, dict[str, Any]]:
        spec = self.pod["spec"]
        found: dict[str, dict[str, Any]] = next(
            item.get("resources", {})
            for item in (*spec["containers"], *spec.get("initContainers", ()))
            if item["name"] == name
        )
        return found

    def amounts(self, name: str) -> dict[str, Any]:
        """What requests and limits of a container both say."""
        resources = self.resources(name)
        assert resources["requests"] == resources["limits"]
        return resources["requests"]


def make_fallback() -> Fallback:
    """Return a fallback without chains: no pod can fall."""
    return Fallback(Holds(SnapshotCell(), hold_seconds=HOLD_SECONDS), FALLBACK_OPTIONS)


def make_admission(  # noqa: PLR0913  each is one part of the webhook
    rules: Callable[[], Rules],
    observer: AdmissionObserver,
    *,
    existing: ExistingMode = "overwrite",
    limit_defaults: Callable[[str], LimitDefaults | None] = lambda _namespace: None,
    fallback: Fallback | None = None,
    steps: Sequence[PodStep] = (),
    is_fail_open: bool = False,
    capacity: PodStep | None = None,
    tell: TakeNotes = lambda _pod, _notes: None,
) -> Admission:
    injection = SETTINGS.injection
    return Admission(
        fallback or make_fallback(),
        Injector(
            rules,
            trigger_annotation=injection.trigger_annotation,
            existing=existing,
            limit_defaults=limit_defaults,
        ),
        steps,
        observer,
        AdmissionOptions(frozenset(injection.skipped_namespaces), is_fail_open),
        capacity=capacity,
        tell=tell,
    )


def make_webhook(rules: Mapping[str, Any] = C1, **parts: Any) -> Webhook:
    """Return a webhook; `parts` are those of `make_admission`."""
    book = RuleBook(parse_rules(json.dumps(rules), "rules.json", RULE_CONTEXT))
    observer = CountingObserver()
    resource = MutateResource(make_admission(book.current, observer, **parts))
    app = falcon.App()
    app.add_route("/mutate", resource)
    app.add_error_handler(ReviewError, reject_malformed)

    def last_handler(
        req: falcon.Request,
        resp: falcon.Response,
        error: Exception,
        _params: dict[str, Any],
    ) -> None:
        assert is_under_review(req), error
        resource.answer_fault(req, resp, error)

    app.add_error_handler(Exception, last_handler)
    return Webhook(book, falcon.testing.TestClient(app), observer)
