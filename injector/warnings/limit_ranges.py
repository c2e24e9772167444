"""A warning for GPU pods that ask more than a LimitRange of their namespace allows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from cluster.ledger.writer import NotSyncedError, SnapshotSource
from injector.resources.containers import NOTHING, ContainerAmounts, read_containers
from injector.review import read_pod
from injector.steps import PodFacts, asked
from scoring.protocols import LimitMaxima
from scoring.quantity import format_quantity, scale_of, shorten
from scoring.resources import BYTE_RESOURCES, Request, ResourceScope


@dataclass(frozen=True, slots=True)
class LimitCheck:
    """Says with both numbers why LimitRanger will refuse what was injected.

    It never refuses: that is LimitRanger's business, whose check comes after ours.

    Attributes
    ----------
    source : SnapshotSource
    scope : ResourceScope
    """

    source: SnapshotSource
    scope: ResourceScope

    def apply(self, pod: dict[str, Any], facts: PodFacts) -> tuple[str, ...]:
        """Return the warnings; change nothing."""
        try:
            maxima = self.source.current().limit_maxima.get(facts.namespace)
        except NotSyncedError:
            return ()
        if maxima is None:
            return ()
        view = read_pod(pod)
        if not any(self.scope.is_gpu(resource) for resource in asked(view)):
            return ()
        containers = read_containers(view)
        running = (*containers.regular, *containers.sidecars)
        return tuple(_warnings(running, maxima))


def _warnings(
    containers: Sequence[ContainerAmounts], maxima: LimitMaxima
) -> Iterator[str]:
    """Yield a warning for each maximum that is exceeded."""
    for container in containers:
        amounts = {name: _most(container, name) for name, _ in maxima.container}
        yield from _exceeded(
            f"container {shorten(container.name)}", amounts, maxima.container
        )
    total = {
        name: sum((_most(item, name) for item in containers), NOTHING)
        for name, _ in maxima.pod
    }
    yield from _exceeded("the pod", total, maxima.pod)


def _most(container: ContainerAmounts, resource: str) -> Fraction:
    """Return the larger of request and limit."""
    return max(
        container.requests.get(resource, NOTHING),
        container.limits.get(resource, NOTHING),
    )


def _exceeded(
    what: str, amounts: dict[str, Fraction], maxima: Request
) -> Iterator[str]:
    """Yield a warning for each amount above its maximum."""
    for name, most in maxima:
        limit = Fraction(most, scale_of(name))
        if amounts[name] > limit:
            is_binary = name in BYTE_RESOURCES
            yield (
                f"{what}: {name} {format_quantity(amounts[name], is_binary=is_binary)}"
                f" is more than the {format_quantity(limit, is_binary=is_binary)} that"
                " a LimitRange allows"
            )
