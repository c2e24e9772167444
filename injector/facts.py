"""What a step of the webhook is told about a pod, and what a fallback step is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Protocol

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
