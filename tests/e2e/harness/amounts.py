"""What nodes offer and pods take, counted from a fresh list and nothing of ours.

Kept as simple as the pods that the suite makes: regular containers and sidecars, whole
quantities.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Final, TypeAlias

from tests.e2e.harness.builders import JsonObject
from tests.e2e.harness.client import ApiClient

# node -> resource -> (allocatable, requested), in millicores, bytes and pieces
Amounts: TypeAlias = Mapping[str, Mapping[str, tuple[int, int]]]

SUFFIXES: Final = {
    "m": Decimal("0.001"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
}
PLAIN: Final = ("cpu", "memory", "pods")
MANAGED: Final = ("nvidia.com/", "amd.com/")
FINAL_PHASES: Final = ("Succeeded", "Failed")


def amounts_listed(client: ApiClient) -> Amounts:
    """List nodes and pods, and return what the cache should have."""
    page = client.list_page("Pod")
    return count_amounts(client.list("Node"), page["items"])


def count_amounts(nodes: Iterable[JsonObject], pods: Iterable[JsonObject]) -> Amounts:
    """Return what each node offers, and what pods that are not over take of it."""
    allocatable = {
        node["metadata"]["name"]: _whole(node["status"]["allocatable"])
        for node in nodes
    }
    requested: dict[str, dict[str, int]] = {name: {} for name in allocatable}
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node not in requested or pod["status"].get("phase") in FINAL_PHASES:
            continue
        sidecars = [
            one
            for one in pod["spec"].get("initContainers", ())
            if one.get("restartPolicy") == "Always"
        ]
        containers = [*sidecars, *pod["spec"]["containers"]]
        asked = [one.get("resources", {}).get("requests", {}) for one in containers]
        for quantities in (*asked, {"pods": "1"}):
            for name, amount in _whole(quantities).items():
                requested[node][name] = requested[node].get(name, 0) + amount
    return {
        node: _pairs(offered, requested[node]) for node, offered in allocatable.items()
    }


def amounts_shown(nodes: Iterable[JsonObject]) -> Amounts:
    """Return the same from the nodes of a `/cluster` page."""
    return {
        node["name"]: _pairs(
            {name: r["allocatable"] for name, r in node["resources"].items()},
            {name: r["requested"] for name, r in node["resources"].items()},
        )
        for node in nodes
    }


def _pairs(
    allocatable: Mapping[str, int], requested: Mapping[str, int]
) -> Mapping[str, tuple[int, int]]:
    """Return the amounts that are compared; what is 0 in both is as good as absent."""
    return {
        name: (allocatable.get(name, 0), requested.get(name, 0))
        for name in sorted({*allocatable, *requested})
        if (name in PLAIN or name.startswith(MANAGED))
        and (allocatable.get(name, 0) or requested.get(name, 0))
    }


def _whole(quantities: Mapping[str, str]) -> dict[str, int]:
    return {name: whole_amount(name, text) for name, text in quantities.items()}


def whole_amount(resource: str, text: str) -> int:
    """Return a quantity in whole millicores, bytes or pieces.

    >>> whole_amount("cpu", "1500m"), whole_amount("memory", "2Ki")
    (1500, 2048)
    """
    digits = text.rstrip("KMGTikm")
    value = Decimal(digits) * SUFFIXES.get(text[len(digits) :], Decimal(1))
    whole = value * (1000 if resource == "cpu" else 1)
    assert whole == int(whole), f"{resource} {text}"
    return int(whole)
