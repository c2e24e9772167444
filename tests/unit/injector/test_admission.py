"""Fallback, other steps and faults of our own around the injection."""

import json
import logging
from dataclasses import dataclass, field
from typing import Any

import pytest

from injector.admission import ReviewNotes
from injector.admitted_pod import AdmittedPod, PodIdentity
from injector.fallback.fallback import Fallback, FallbackResult
from injector.steps import AdmissionOutcome, AdmissionReason
from tests.fakes.webhook import (
    GPU,
    Webhook,
    both,
    container,
    gpus,
    make_pod,
    make_review,
    make_webhook,
)

MIG = "nvidia.com/mig-2g.20gb"


@dataclass
class ToWholeGpu(Fallback):
    """A fallback from a slice to a whole GPU that notes what it is told."""

    seen: list[PodIdentity] = field(default_factory=list)
    released: list[PodIdentity] = field(default_factory=list)

    def apply(self, pod: AdmittedPod) -> FallbackResult:
        self.seen.append(pod.identity)
        resources = pod.edit()["spec"]["containers"][0]["resources"]
        for amounts in resources.values():
            if MIG in amounts:
                amounts[GPU] = amounts.pop(MIG)
        return FallbackResult("fell", ("fell to a whole GPU",), {"fallback": "2g->gpu"})

    def release(self, identity: PodIdentity) -> None:
        self.released.append(identity)


@dataclass
class BrokenStep:
    """A step with a fault of its own."""

    def apply(self, pod: AdmittedPod) -> tuple[str, ...]:
        raise RuntimeError(f"no such thing in {len(pod.tree)} {pod.identity.name}")


@dataclass
class SchedulerStep:
    """A step that sets one field."""

    def apply(self, pod: AdmittedPod) -> tuple[str, ...]:
        pod.edit()["spec"]["schedulerName"] = "gpu"
        return (f"scheduler set in {pod.identity.namespace}",)


def test_the_rule_is_that_of_the_resource_fallen_to() -> None:
    fallback = ToWholeGpu()
    webhook = make_webhook(fallback=fallback)

    answered = webhook.send(make_pod(container("a", both({MIG: "1"}))))

    assert answered.amounts("a") == {GPU: "1", "cpu": "4", "memory": "8Gi"}
    assert answered.warnings == ["fell to a whole GPU"]
    assert answered.response["auditAnnotations"] == {
        "injection": "rule_applied",
        "fallback": "2g->gpu",
    }
    assert fallback.released == []
    assert set(webhook.observer.fallbacks) == {"fell"}


def test_a_fallback_reaches_pods_that_no_rule_fits() -> None:
    answered = make_webhook(fallback=ToWholeGpu()).send(
        make_pod(container("a", both({MIG: "1"})), gpu_type=None)
    )

    assert answered.amounts("a") == {GPU: "1"}


def test_the_facts_of_a_pod_are_told() -> None:
    fallback = ToWholeGpu()
    pod = make_pod(
        container("a", gpus(1)),
        metadata={
            "name": "",
            "generateName": "w-",
            "ownerReferences": [
                {"uid": "other"},
                {"uid": "owner", "controller": True},
            ],
        },
    )

    make_webhook(fallback=fallback).post(
        make_review(pod, uid="u", namespace="ml", dryRun=True)
    )

    assert fallback.seen == [
        PodIdentity(
            request_uid="u",
            namespace="ml",
            name="",
            generate_name="w-",
            owner_uid="owner",
            is_dry_run=True,
        )
    ]


def test_what_the_fallback_holds_for_a_refused_pod_is_released() -> None:
    fallback = ToWholeGpu()
    pod = make_pod(
        container("a", both({MIG: "1"})),
        container("s", {"requests": {"cpu": "5"}}),
    )

    answer = make_webhook(fallback=fallback).post(make_review(pod))

    assert not answer["response"]["allowed"]
    assert fallback.released == fallback.seen
    assert answer["response"]["auditAnnotations"] == {"injection": "over_budget"}


def test_steps_run_for_pods_that_no_rule_fits_too() -> None:
    answered = make_webhook(steps=(SchedulerStep(),)).send(
        make_pod(container("a", gpus(1)), gpu_type=None)
    )

    assert answered.pod["spec"]["schedulerName"] == "gpu"
    assert answered.warnings == ["scheduler set in default"]
    assert answered.response["auditAnnotations"] == {"injection": "no_gpu_type"}


def test_a_fault_of_our_own_refuses_the_pod_under_its_uid(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fallback = ToWholeGpu()
    webhook = make_webhook(fallback=fallback, steps=(BrokenStep(),))

    answer = webhook.post(make_review(make_pod(container("a", gpus(1))), uid="u"))

    assert answer == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {
            "uid": "u",
            "allowed": False,
            "status": {
                "code": 500,
                "message": "gpu-extender failed on this pod; its log says why",
            },
        },
    }
    assert webhook.observer.admissions == [
        (AdmissionOutcome.FAILED, AdmissionReason.INTERNAL_ERROR)
    ]
    assert fallback.released == fallback.seen
    assert "no such thing" in caplog.text


def test_a_fault_of_our_own_lets_the_pod_pass_if_the_operator_chose_so() -> None:
    webhook = make_webhook(steps=(BrokenStep(),), is_fail_open=True)

    answer = webhook.post(make_review(make_pod(container("a", gpus(1))), uid="u"))

    assert answer["response"] == {
        "uid": "u",
        "allowed": True,
        "warnings": ["gpu-extender failed: the pod was not changed; create it again"],
    }


def logged(caplog: pytest.LogCaptureFixture, webhook: Webhook, pod: Any) -> Any:
    with caplog.at_level(logging.DEBUG, logger="injector.admission"):
        webhook.post(make_review(pod, uid="u", namespace="ml", dryRun=True))
    (record,) = caplog.records
    return record.message, record.__dict__["fields"]


def test_each_review_is_one_line_without_the_object(
    caplog: pytest.LogCaptureFixture,
) -> None:
    secret = container("a", gpus(1), env=[{"name": "TOKEN", "value": "secret"}])
    pod = make_pod(secret, metadata={"name": "", "generateName": "train-"})

    message, fields = logged(caplog, make_webhook(fallback=ToWholeGpu()), pod)

    assert message == "admission reviewed"
    assert fields == {
        "request_uid": "u",
        "pod": "ml/train-*",
        "operation": "CREATE",
        "is_dry_run": True,
        "outcome": "injected",
        "reason": "rule_applied",
        "fallback": "fell",
        "patch_operations": 5,
    }
    assert "secret" not in json.dumps(fields)


def notes_of(review: Any, **parts: Any) -> list[tuple[str, ReviewNotes]]:
    """Return what people are told of a review, and of which pod."""
    told: list[tuple[str, ReviewNotes]] = []
    webhook = make_webhook(
        tell=lambda pod, notes: told.append((pod.label, notes)), **parts
    )
    webhook.post(review)
    return told


def test_what_the_answer_warns_of_is_told_to_people() -> None:
    review = make_review(make_pod(container(resources=gpus(1)), gpu_type="v100"))
    text = "no rule for GPU type 'v100': nothing injected; did you mean 'V100'?"

    assert notes_of(review) == [("default/p", ReviewNotes((text,)))]


class Saying:
    """A step that warns of every pod."""

    def __init__(self, *warnings: str) -> None:
        self._warnings = warnings

    def apply(self, _pod: AdmittedPod) -> tuple[str, ...]:
        return self._warnings


def test_what_no_node_is_large_enough_for_is_in_the_answer_alone() -> None:
    """Why a pod is pending, people are told by itself."""
    review = make_review(make_pod(container(resources=gpus(1)), gpu_type="V100"))
    capacity, slip = Saying("it will stay pending"), Saying("no such type")

    answer = make_webhook(capacity=capacity, steps=[slip]).post(review)

    assert answer["response"]["warnings"] == ["it will stay pending", "no such type"]
    ((_, notes),) = notes_of(review, capacity=capacity, steps=[slip])
    assert notes == ReviewNotes(("no such type",))
    assert notes_of(review, capacity=capacity) == []


def test_a_value_that_a_rule_replaces_is_told_to_people() -> None:
    review = make_review(make_pod(container(resources=gpus(1, cpu="16"))))
    ((_, notes),) = notes_of(review)

    assert notes.warnings == (
        "container 'a': cpu 16 replaced by 4 for GPU type 'V100'",
    )


@pytest.mark.parametrize(
    ("fields", "pod"),
    [
        pytest.param(
            {"dryRun": True},
            make_pod(container(resources=gpus(1)), gpu_type="v100"),
            id="a dry run",
        ),
        pytest.param({}, make_pod(container(resources=gpus(1))), id="without warning"),
        pytest.param(
            {},
            make_pod(container(resources=both({GPU: "1", "amd.com/gpu": "1"}))),
            id="refused",
        ),
    ],
)
def test_nobody_is_told_of(fields: dict[str, Any], pod: Any) -> None:
    assert notes_of(make_review(pod, **fields)) == []
