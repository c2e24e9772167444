"""How many slices there are and who takes them, counted without a line of ours."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from tests.e2e.harness.amounts import FINAL_PHASES
from tests.e2e.harness.builders import JsonObject

# (pool, resource) -> pods
PodCounts: TypeAlias = Counter[tuple[str, str]]


def resource_of(pod: JsonObject) -> str:
    """Return the one extended resource that a pod asks for, or nothing."""
    (container,) = pod["spec"]["containers"]
    asked = container.get("resources", {}).get("requests", {})
    return next((name for name in asked if "/" in name), "")


def count_places(
    nodes: Iterable[JsonObject], label: str, quantities: Mapping[str, int]
) -> PodCounts:
    """Return for how many pods there are slices, in use or not, by pool.

    A pod has all that it asks from one node, so what is left over counts for nothing.
    """
    places: PodCounts = Counter()
    for node in nodes:
        pool = node["metadata"]["labels"].get(label, "")
        if pool in quantities:
            for name, amount in node["status"]["allocatable"].items():
                if "/" in name:
                    places[pool, name] += int(amount) // quantities[pool]
    return places


def count_takers(pods: Iterable[JsonObject], label: str) -> PodCounts:
    """Return how many pods that are not over ask for each resource, by pool."""
    return Counter(
        (pod["metadata"]["labels"][label], resource_of(pod))
        for pod in pods
        if label in pod["metadata"].get("labels", {})
        and pod["status"].get("phase") not in FINAL_PHASES
    )


def find_excess(places: PodCounts, feasible_nodes: PodCounts) -> PodCounts:
    """Return how many more pods ask for a resource than there are places."""
    return feasible_nodes - places
