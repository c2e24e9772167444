"""Steps of the webhook: protocols, and those for scheduler name and toleration."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Protocol

from cluster.decode.objects import Pod
from injector.review import ReviewError, read_pod
from scoring.faults import Fault
from scoring.quantity import QuantityError, exact_amount, shorten
from scoring.resources import ResourceScope, is_whole_gpu

# Of pods that the kubelet runs whatever the API server thinks of them.
MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"

SOURCE_ANNOTATION: Final = "kubernetes.io/config.source"


@dataclass(frozen=True, slots=True)
class PodFacts:
    """Plain facts about the pod of one admission request.

    Attributes
    ----------
    request_uid : str
        UID of the request, not of the pod, which has none yet.
    namespace : str
        That of the request; the pod's own may still be empty.
    name, generate_name : str
        As far as known at admission: a pod made by a controller has no name yet.
    owner_uid : str
        UID of the pod's controller; empty for a pod without one.
    is_dry_run : bool
        Whether nothing may be kept of this request.
    """

    request_uid: str
    namespace: str
    name: str
    generate_name: str
    owner_uid: str
    is_dry_run: bool


@dataclass(frozen=True, slots=True)
class FallbackResult:
    """What a fallback step did to a pod.

    Attributes
    ----------
    outcome : str
        One of a small fixed set; a metric label.
    warnings : tuple of str
        For the user, each short.
    audit : mapping
        audit annotation key -> value
    """

    outcome: str
    warnings: tuple[str, ...] = ()
    audit: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


class FallbackStep(Protocol):
    """Chooses another GPU resource for a pod before CPU and memory are injected.

    Called from any worker thread, several at once.
    """

    def apply(self, pod: dict[str, Any], facts: PodFacts) -> FallbackResult:
        """Change `pod`, a copy of our own, in place."""
        ...

    def release(self, facts: PodFacts) -> None:
        """Give back what `apply` holds for this request; twice does no harm."""
        ...


class PodStep(Protocol):
    """Changes a pod after injection, or only looks at it.

    Called from any worker thread, several at once, for every pod that is created
    outside the skipped namespaces; a second call must change nothing more.
    """

    def apply(self, pod: dict[str, Any], facts: PodFacts) -> tuple[str, ...]:
        """Change `pod`, a copy of our own, in place; return warnings for the user."""
        ...


DEFAULT_SCHEDULER: Final = "default-scheduler"

OPTED_OUT: Final = "keep"

_PATH: Final = "request.object.spec.schedulerName"


@dataclass(frozen=True, slots=True)
class SchedulerStep:
    """Sends every pod that asks a managed resource to one scheduler.

    Two schedulers must not share the GPUs: neither sees what the other is about to
    bind.

    Attributes
    ----------
    scope : ResourceScope
    scheduler_name : str
    opt_out_label : str
        A pod with this label and the value ``keep`` stays with its own scheduler.
    """

    scope: ResourceScope
    scheduler_name: str
    opt_out_label: str

    def apply(self, pod: dict[str, Any], facts: PodFacts) -> tuple[str, ...]:
        """Set ``spec.schedulerName``; warn if another scheduler was chosen.

        Raises `ReviewError` if the one that was chosen is no text.
        """
        del facts
        view = read_pod(pod)
        labels = view.metadata.labels or {}
        if labels.get(self.opt_out_label) == OPTED_OUT:
            return ()
        if not any(self.scope.is_managed(resource) for resource in asked(view)):
            return ()
        spec = pod["spec"]
        before = spec.get("schedulerName") or DEFAULT_SCHEDULER
        if not isinstance(before, str):
            fault = Fault(_PATH, f"wanted text, got {shorten(before)}")
            raise ReviewError([fault])
        spec["schedulerName"] = self.scheduler_name
        if before in {DEFAULT_SCHEDULER, self.scheduler_name}:
            return ()
        return (
            (
                f"scheduler {shorten(before)} replaced by {self.scheduler_name}; label"
                f" {self.opt_out_label}: {OPTED_OUT} prevents it"
            ),
        )


@dataclass(frozen=True, slots=True)
class TolerationStep:
    """Lets GPU pods onto nodes that are tainted with the name of their resource.

    The toleration is that of the ``ExtendedResourceToleration`` admission plugin; for
    slices and shares, nodes tainted with the vendor's whole GPU are tolerated, too.

    Attributes
    ----------
    scope : ResourceScope
    """

    scope: ResourceScope

    def apply(self, pod: dict[str, Any], facts: PodFacts) -> tuple[str, ...]:
        """Add the tolerations that the pod lacks."""
        del facts
        keys: dict[str, None] = {}
        for resource in asked(read_pod(pod)):
            if self.scope.is_gpu(resource):
                keys[resource] = None
                if not is_whole_gpu(resource):
                    keys[f"{resource.partition('/')[0]}/gpu"] = None
        if not keys:
            return ()
        tolerations = pod["spec"].get("tolerations") or []
        for key in sorted(keys):
            wanted = {"key": key, "operator": "Exists", "effect": "NoSchedule"}
            if wanted not in tolerations:
                tolerations.append(wanted)
        pod["spec"]["tolerations"] = tolerations
        return ()


def asked(view: Pod) -> Iterator[str]:
    """Yield the resources of which any container of a pod asks more than nothing.

    A quantity that cannot be read counts as nothing: the API server refuses it.
    """
    spec = view.spec
    for container in (*(spec.containers or ()), *(spec.init_containers or ())):
        if container.resources is None:
            continue
        for amounts in (container.resources.limits, container.resources.requests):
            for resource, quantity in (amounts or {}).items():
                if _is_positive(quantity):
                    yield resource


def _is_positive(quantity: Any) -> bool:
    """Say whether a quantity is above 0."""
    try:
        return exact_amount(quantity) > 0
    except QuantityError:
        return False
