"""Steps of a review: protocol, outcomes, and those for scheduler and tolerations."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from injector.admitted_pod import AdmittedPod
from injector.review import ReviewError
from scoring.faults import Fault
from scoring.quantity import shorten
from scoring.resources import ResourceScope

DEFAULT_SCHEDULER: Final = "default-scheduler"

OPTED_OUT: Final = "keep"

_PATH: Final = "request.object.spec.schedulerName"


class AdmissionOutcome(StrEnum):
    """Outcome of one admission request; a metric label."""

    INJECTED = "injected"
    UNCHANGED = "unchanged"
    SKIPPED = "skipped"
    REJECTED = "rejected"
    FAILED = "failed"


class AdmissionReason(StrEnum):
    """Reason of an outcome; a metric label and a log field."""

    NOT_A_CREATE = "not_a_create"
    NOT_A_POD = "not_a_pod"
    NO_OBJECT = "no_object"
    SYSTEM_NAMESPACE = "system_namespace"
    STATIC_POD = "static_pod"
    WHITE_LISTED_NAMESPACE = "white_listed_namespace"
    NO_GPU_TYPE = "no_gpu_type"
    UNKNOWN_GPU_TYPE = "unknown_gpu_type"
    NO_GPU = "no_gpu"
    RULE_APPLIED = "rule_applied"
    ALREADY_APPLIED = "already_applied"
    ILLEGAL_QUANTITY = "illegal_quantity"
    TWO_GPU_RESOURCES = "two_gpu_resources"
    OVER_BUDGET = "over_budget"
    INTERNAL_ERROR = "internal_error"


class PodStep(Protocol):
    """Changes a pod after injection, or only looks at it.

    Called from any worker thread, several at once, for every pod that is created
    outside the skipped namespaces; a second call must change nothing more.
    """

    def apply(self, pod: AdmittedPod) -> tuple[str, ...]:
        """Change `pod` in place; return warnings for the user."""
        ...


@dataclass(frozen=True, slots=True)
class SchedulerStep:
    """Sends every pod that asks a managed resource to one scheduler.

    Two schedulers must not share the GPUs: neither sees what the other is about to
    bind.

    Attributes
    ----------
    opt_out_label : str
        A pod with this label and the value ``keep`` stays with its own scheduler.
    """

    scope: ResourceScope
    scheduler_name: str
    opt_out_label: str

    def apply(self, pod: AdmittedPod) -> tuple[str, ...]:
        """Set ``spec.schedulerName``; warn if another scheduler was chosen.

        Raises `ReviewError` if the one that was chosen is no text.
        """
        opt_out = (pod.decoded.metadata.labels or {}).get(self.opt_out_label)
        if opt_out == OPTED_OUT:
            return ()
        if not any(map(self.scope.is_managed, pod.asked_resources())):
            return ()
        before = pod.tree["spec"].get("schedulerName") or DEFAULT_SCHEDULER
        if not isinstance(before, str):
            fault = Fault(_PATH, f"wanted text, got {shorten(before)}")
            raise ReviewError([fault])
        pod.edit()["spec"]["schedulerName"] = self.scheduler_name
        said: tuple[str, ...] = ()
        if opt_out is not None:
            label = f"label {self.opt_out_label}: {shorten(opt_out, 24)}"
            said = (f"{label} is not known, use {OPTED_OUT!r} to keep the scheduler",)
        if before in {DEFAULT_SCHEDULER, self.scheduler_name}:
            return said
        return (
            *said,
            (
                f"scheduler {shorten(before)} replaced by {self.scheduler_name}; label"
                f" {self.opt_out_label}: {OPTED_OUT} prevents it"
            ),
        )


@dataclass(frozen=True, slots=True)
class TolerationStep:
    """Lets GPU pods onto nodes that are tainted with the name of their resource.

    The toleration is that of the ``ExtendedResourceToleration`` admission plugin; for
    slices, shares and partitions, nodes tainted with the vendor's GPU are, too.
    """

    scope: ResourceScope

    def apply(self, pod: AdmittedPod) -> tuple[str, ...]:
        """Add the tolerations that the pod lacks."""
        keys: dict[str, None] = {}
        for resource in pod.asked_resources():
            if self.scope.is_gpu(resource):
                keys[resource] = None
                keys[f"{resource.partition('/')[0]}/gpu"] = None
        if not keys:
            return ()
        spec = pod.edit()["spec"]
        tolerations = spec.get("tolerations") or []
        for key in sorted(keys):
            wanted = {"key": key, "operator": "Exists", "effect": "NoSchedule"}
            if wanted not in tolerations:
                tolerations.append(wanted)
        spec["tolerations"] = tolerations
        return ()
