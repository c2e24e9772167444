"""Explanations count what the real kube-scheduler counts, and what they advise helps.

Nodes and pods are those of `tests.pending_pods`, of which the rest cannot be refused by
kube-scheduler here: it does not look at them, or refuses them for a volume.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
import pytest
import yaml

from cluster.decode.limit_ranges import (
    LimitRange,
    defaults_of,
    limit_range_record,
    maxima_of,
)
from cluster.decode.objects import PodSpec
from extender.explain.refusals import list_limit_refusals, list_refusals
from extender.explain.remedies import Remedy
from tests.e2e.harness.builders import JsonObject
from tests.e2e.harness.client import ApiClient
from tests.e2e.harness.connection import ApiError
from tests.e2e.harness.pods import delete_quietly, wait_until_bound, wait_until_refused
from tests.e2e.harness.product import Product
from tests.e2e.harness.waiting import wait_for
from tests.pending_pods import (
    KEPT,
    PENDING,
    carry_out,
    make_bound_pods,
    make_neighbours,
    make_nodes,
)

# why it is pending -> its class in the metrics
REFUSED: Final = {
    "accelerator selector": "node_rules",
    "full type": "full",
    "exclusive": "full",
    "wrong type": "other_gpus",
    "too many GPUs": "not_offered",
    "MIG absent": "not_offered",
    "taint": "node_rules",
    "cordon": "node_rules",
    "memory": "other_gpus",
    "shares": "other_gpus",
    "CPU": "resources",
    "misspelt type": "other_gpus",
}
KEPT_AWAY: Final = {"host port": "node_rules", "kept away": "node_rules"}
INVALID: Final = ("no limit", "half a GPU", "request unlike the limit")
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


def put_right(
    client: ApiClient, remedy: Remedy, before: Mapping[str, Any], name: str
) -> None:
    """Do what would help, to the nodes or to a new pod in place of the old one."""
    nodes = make_nodes()
    pod, after = carry_out(remedy, before, nodes)
    for node, changed in zip(nodes, after, strict=True):
        if node != changed:
            unschedulable = changed["spec"].get("unschedulable")
            patch = {"spec": {"unschedulable": unschedulable}}
            client.patch("Node", changed["metadata"]["name"], patch)
    if pod != before:
        delete_quietly(client, name)
        wait_for(
            lambda: not client.exists("Pod", name),
            timeout_seconds=SEEN_SECONDS,
            what=f"pod {name} gone",
        )
        client.create(named(pod, name))


def fill(product: Product, pods: Iterable[Mapping[str, Any]]) -> None:
    """Create the nodes with pods on them, and start service and kube-scheduler."""
    product.client.create_many(make_nodes())
    product.client.create_many(named(pod, pod["metadata"]["name"]) for pod in pods)
    product.start()


def start_scheduler(product: Product) -> None:
    """Start a kube-scheduler that looks at every node."""
    config = yaml.safe_load(product.scheduler_config())
    product.start_scheduler({**config, "percentageOfNodesToScore": 100})


def assert_counted(product: Product, found: str) -> None:
    """Assert that the one pending pod is of a class, as soon as it was judged."""
    pods = "gpu_extender_pending_gpu_pods"
    service = product.service
    wait_for(
        lambda: service.metric(pods, **{"class": found}) == 1,
        timeout_seconds=SEEN_SECONDS,
        what=f"a pending pod of the class {found}",
    )
    assert service.metric(pods) == 1


def assert_explained_and_helped(
    product: Product, why: str, pod: Mapping[str, Any], name: str
) -> None:
    """Compare an explanation with kube-scheduler's refusal, and do what would help."""
    client = product.client
    client.create(named(pod, name))
    refusal = wait_until_refused(client, name)
    summary = explained(product, name)

    assert refusal["reason"] == "Unschedulable", why
    assert not summary["fits"], why
    assert reasons_in(refusal["message"]) == summary["schedulerReasons"], why
    assert_counted(product, {**REFUSED, **KEPT_AWAY}[why])
    remedy = msgspec.convert(summary["remedies"][0], Remedy)
    put_right(client, remedy, pod, name)
    assert wait_until_bound(client, name), f"{why}: {remedy.text}"
    delete_quietly(client, name)


def test_counts_are_those_of_kube_scheduler_and_what_would_help_does(
    product: Product,
) -> None:
    fill(product, make_bound_pods())
    product.register_webhook()
    start_scheduler(product)

    for number, why in enumerate(REFUSED):
        assert_explained_and_helped(product, why, PENDING[why], f"pending-{number}")


def test_neighbours_are_counted_and_amounts_refused_as_kubernetes_does(
    product: Product,
) -> None:
    # A priority of their own takes a class.
    neighbours = [pod for pod in make_neighbours() if "priority" not in pod["spec"]]
    fill(product, [*make_bound_pods(), *neighbours])
    start_scheduler(product)

    for number, why in enumerate(KEPT_AWAY):
        assert_explained_and_helped(product, why, KEPT[why], f"kept-{number}")
    for why in INVALID:
        with pytest.raises(ApiError) as refused:
            product.client.create(named(KEPT[why], "invalid"))
        refusals = list_refusals(msgspec.convert(KEPT[why]["spec"], PodSpec))
        assert refusals, why
        for refusal in refusals:
            assert refusal.text in refused.value.message, why


LIMIT_RANGE: Final = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "bounds", "namespace": "default"},
    "spec": {
        "limits": [
            {
                "type": "Container",
                "max": {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "4"},
                "min": {"cpu": "500m", "memory": "1Gi"},
                "maxLimitRequestRatio": {"memory": "2"},
            },
            {"type": "Pod", "max": {"cpu": "6"}},
        ]
    },
}
# What is asked, and how many refusals are told of it.
BOUNDED: Final[tuple[tuple[dict[str, dict[str, str]], int], ...]] = (
    ({"limits": {"cpu": "8", "memory": "2Gi"}}, 2),
    ({"requests": {"cpu": "4001m", "memory": "2Gi"}, "limits": {"memory": "2Gi"}}, 1),
    ({"limits": {"cpu": "250m", "memory": "512Mi"}}, 2),
    ({"requests": {"memory": "2Gi"}, "limits": {"memory": "6Gi"}}, 1),
    ({"limits": {"nvidia.com/gpu": "8"}}, 1),
    ({"limits": {"cpu": "2", "memory": "2Gi", "nvidia.com/gpu": "1"}}, 0),
    ({}, 0),
)


def test_what_a_limit_range_refuses_is_told_as_the_api_server_does(
    product: Product,
) -> None:
    client = product.client
    kept = msgspec.convert(client.create(LIMIT_RANGE), LimitRange)
    record, faults = limit_range_record(kept)
    assert not faults
    maxima, defaults = maxima_of([record]), defaults_of([record])

    def refused(pod: JsonObject) -> str:
        try:
            client.create(pod, query={"dryRun": "All"})
        except ApiError as error:
            return error.message
        return ""

    pod = named(PENDING["wrong type"], "bounded")
    (container,) = pod["spec"]["containers"]
    wait_for(
        lambda: refused(_asking(pod, container, BOUNDED[0][0])),
        timeout_seconds=SEEN_SECONDS,
        what="the LimitRange in use",
    )

    for resources, count in BOUNDED:
        asking = _asking(pod, container, resources)
        spec = msgspec.convert(asking["spec"], PodSpec)
        told = list_limit_refusals(spec, maxima["default"], defaults["default"])
        message = refused(asking)
        assert len(told) == count, resources
        assert bool(message) == bool(told), message
        if "is invalid" in message:  # of the limit that was filled in beside a request
            assert "must be less than or equal to cpu limit of 4" in message
            continue
        for refusal in told:
            assert refusal.text in message, message


def _asking(pod: JsonObject, container: JsonObject, resources: Any) -> JsonObject:
    containers = [{**container, "resources": resources}]
    return {**pod, "spec": {**pod["spec"], "containers": containers}}
