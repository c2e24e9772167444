"""What a case of injection is, and how one is made."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from injector.steps import AdmissionReason
from tests.fakes.webhook import (
    C1,
    GPU,
    NETWORKS,
    SHM,
    make_pod,
    per_gpu,
    rule,
)


@dataclass(frozen=True)
class Case:
    """A pod under rules.

    Attributes
    ----------
    pod, rules, namespace
        What is sent, as manifest, rule file and namespace of the request.
    injected : mapping
        container -> its requests and limits, which are equal; every other container,
        and every init container, stays as it came.
    annotations : mapping
        What the pod gets beside its own, or instead of them.
    warnings : tuple of str
        All that the user is told.
    audit : mapping
        Audit annotations beside the name of the reason.
    reason : AdmissionReason
        Why nothing is injected, where that is so.
    message : str
        Of the refusal, where the pod is refused.
    server_refuses : str
        What the API server itself has against the pod as it becomes, in its words.
    """

    pod: dict[str, Any]
    rules: Mapping[str, Any] = field(default_factory=lambda: C1)
    namespace: str = "default"
    injected: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    audit: Mapping[str, str] = field(default_factory=dict)
    reason: AdmissionReason | None = None
    message: str = ""
    server_refuses: str = ""


def asks(**amounts: str) -> dict[str, Any]:
    return {"requests": amounts}


def budget_case(amounts: dict[str, dict[str, str]], pod: dict[str, Any]) -> Case:
    """Return a case under the rules that most have."""
    return Case(pod, injected=amounts, annotations={NETWORKS: "tke-route-eni"})


def skipped(
    pod: dict[str, Any], reason: AdmissionReason, *warnings: str, **more: Any
) -> Case:
    return Case(pod, reason=reason, warnings=warnings, **more)


def refused(message: str, *containers: dict[str, Any], **more: Any) -> Case:
    return Case(make_pod(*containers), message=f"pod default/p: {message}", **more)


TRAINING: dict[str, Any] = {
    **C1,
    "namespaceResourceMap": {
        "gpu-training": {
            "V100": {
                GPU: rule(
                    per_gpu("cpu", 6000, "m"),
                    per_gpu("memory", 12, "Gi"),
                    per_gpu(SHM, 2, "Gi"),
                    annotations={"x": "y"},
                )
            }
        }
    },
}
NO_GPU = (
    "GPU type 'V100', but no container asks for amd.com/gpu, nvidia.com/gpu:"
    " nothing injected"
)
TRAINED = {GPU: "2", "cpu": "12", "memory": "24Gi", SHM: "4Gi"}
