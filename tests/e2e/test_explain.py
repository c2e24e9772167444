"""Explanations count what the real kube-scheduler counts, and what they advise helps.

Nodes and pods are those of `tests.pending_pods`, of which the rest cannot be refused by
kube-scheduler here: it does not look at them, or refuses them for a volume.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import yaml

from extender.explain.remedies import Remedy
from tests.e2e.harness.builders import JsonObject
from tests.e2e.harness.client import ApiClient
from tests.e2e.harness.pods import delete_quietly, wait_until_bound, wait_until_refused
from tests.e2e.harness.product import Product
from tests.e2e.harness.waiting import wait_for
from tests.pending_pods import PENDING, carry_out, make_bound_pods, make_nodes

REFUSED: Final = (
    "accelerator selector",
    "full type",
    "exclusive",
    "wrong type",
    "too many GPUs",
    "MIG absent",
    "taint",
    "cordon",
    "memory",
    "shares",
    "CPU",
    "misspelt type",
)
UNTOLERATED: Final = "node(s) had untolerated taint(s)"
SEEN_SECONDS: Final = 20.0


def named(pod: Mapping[str, Any], name: str) -> JsonObject:
    """Return the pod under a name of its own, in the default namespace."""
    metadata = {**pod["metadata"], "name": name, "namespace": "default"}
    return {**pod, "metadata": metadata}


def reasons_in(message: str) -> dict[str, int]:
    """Return how many nodes kube-scheduler counts under each reason.

    Minors differ in what they say of taints; what preemption found stands behind.

    >>> reasons_in("0/3 nodes are available: 1 A, 2 node(s) had untolerated taint {a}.")
    {'A': 1, 'node(s) had untolerated taint(s)': 2}
    """
    told = message.partition("nodes are available: ")[2].partition(". ")[0]
    told = re.sub(r"untolerated taint (\{[^}]*\})", "untolerated taint(s)", told)
    counts: dict[str, int] = {}
    for text in told.removesuffix(".").split(", "):
        number, _, reason = text.partition(" ")
        counts[reason] = counts.get(reason, 0) + int(number)
    return counts


def explained(product: Product, name: str) -> JsonObject:
    """Return the summary of a pod that the service has seen."""
    path = f"/explain?namespace=default&pod={name}"
    wait_for(
        lambda: product.service.status(path) == 200,
        timeout_seconds=SEEN_SECONDS,
        what=f"pod {name} known to the service",
    )
    summary: JsonObject = product.get_json(path)["summary"]
    return summary


def put_right(client: ApiClient, remedy: Remedy, why: str, name: str) -> None:
    """Do what would help, to the nodes or to a new pod in place of the old one."""
    nodes = make_nodes()
    pod, after = carry_out(remedy, PENDING[why], nodes)
    for before, node in zip(nodes, after, strict=True):
        if before != node:
            unschedulable = node["spec"].get("unschedulable")
            patch = {"spec": {"unschedulable": unschedulable}}
            client.patch("Node", node["metadata"]["name"], patch)
    if pod != PENDING[why]:
        delete_quietly(client, name)
        wait_for(
            lambda: not client.exists("Pod", name),
            timeout_seconds=SEEN_SECONDS,
            what=f"pod {name} gone",
        )
        client.create(named(pod, name))


def test_counts_are_those_of_kube_scheduler_and_what_would_help_does(
    product: Product,
) -> None:
    client = product.client
    client.create_many(make_nodes())
    client.create_many(named(pod, pod["metadata"]["name"]) for pod in make_bound_pods())
    product.start()
    product.register_webhook()
    config = yaml.safe_load(product.scheduler_config())
    product.start_scheduler({**config, "percentageOfNodesToScore": 100})

    for number, why in enumerate(REFUSED):
        name = f"pending-{number}"
        client.create(named(PENDING[why], name))
        refusal = wait_until_refused(client, name)
        summary = explained(product, name)

        assert refusal["reason"] == "Unschedulable", why
        assert not summary["fits"], why
        assert reasons_in(refusal["message"]) == summary["schedulerReasons"], why
        remedy = msgspec.convert(summary["remedies"][0], Remedy)
        put_right(client, remedy, why, name)
        assert wait_until_bound(client, name), f"{why}: {remedy.text}"
        delete_quietly(client, name)
