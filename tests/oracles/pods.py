"""What a pod takes from its node, moment by moment of its life."""

from collections import Counter
from fractions import Fraction
from math import ceil
from typing import Any, TypeAlias

from tests.oracles.quantities import exact

Tree: TypeAlias = dict[str, Any]


def asked_by(container: Tree) -> dict[str, Fraction]:
    """Return what a container asks: requests, else limits."""
    resources = container.get("resources") or {}
    found = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: exact(quantity) for name, quantity in found.items()}


def takes(pod: Tree) -> Counter[str]:
    """Return whole pieces of each extended resource that the pod needs at once."""
    spec = pod["spec"]
    beside: Counter[str] = Counter()
    moments: list[Counter[str]] = []
    for container in spec.get("initContainers", ()):
        own = _whole(container)
        moments.append(beside + own)
        if container.get("restartPolicy") == "Always":
            beside = beside + own
    moments.append(sum(map(_whole, spec["containers"]), beside))
    most: Counter[str] = Counter()
    for moment in moments:
        most |= moment
    return most


def is_over(pod: Tree) -> bool:
    """Return whether nothing of it runs any more."""
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def _whole(container: Tree) -> Counter[str]:
    return Counter({name: ceil(amount) for name, amount in asked_by(container).items()})
