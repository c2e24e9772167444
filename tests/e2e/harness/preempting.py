"""Full nodes, urgent pods, and who is still there: what tests of preemption share."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tests.e2e.harness.builders import JsonObject, make_node, make_pod
from tests.e2e.harness.client import ApiClient
from tests.e2e.harness.pods import nodes_of_pods
from tests.e2e.harness.product import Product
from tests.e2e.harness.scheduler_config import with_extender
from tests.e2e.harness.waiting import stays_true

GPUS: Final = 4
URGENT: Final = 1000
QUIET_SECONDS: Final = 3.0
IN_FLUX: Final = {"nvidia.com/mig.config.state": "pending"}
# While it deletes victims in the background, kube-scheduler at times tries the pod
# again, and evicts once more or misses that the last of them is gone: 1.34 without any
# extender evicts 5 or 6 pods for two that need 4, in most rounds.
IN_ORDER: Final = ("--feature-gates=SchedulerAsyncPreemption=false",)


def put_full_node(
    client: ApiClient,
    name: str,
    *,
    priorities: Iterable[int],
    labels: Mapping[str, str] | None = None,
    **pod: Any,
) -> None:
    """Create a node, and a pod on each of its GPUs; a pod's name says its priority."""
    client.create(make_node(name, gpus=GPUS, labels=labels))
    client.create_many(
        make_pod(
            f"{name}-{number}-of-{priority}",
            gpus=1,
            priority=priority,
            node_name=name,
            **pod,
        )
        for number, priority in enumerate(priorities)
    )


def make_urgent(name: str, **more: Any) -> JsonObject:
    """Return a pod that may evict all others, and needs two GPUs."""
    return make_pod(name, gpus=2, priority=URGENT, **more)


def start(
    product: Product, *, flags: Sequence[str] = IN_ORDER, **extender: Any
) -> None:
    """Start everything, with fields of the scheduler's extender replaced."""
    product.start()
    config = with_extender(product.scheduler_config(), **extender)
    product.start_scheduler(config, flags=flags)


def names_of_pods(client: ApiClient) -> set[str]:
    """Return the names of all pods that are not on their way out."""
    return {
        pod["metadata"]["name"]
        for pod in client.list("Pod")
        if "deletionTimestamp" not in pod["metadata"]
    }


def stays_pending(client: ApiClient, *, beside: set[str]) -> None:
    """See that a while passes in which nobody is evicted or bound."""
    stays_true(
        lambda: names_of_pods(client) == beside,
        for_seconds=QUIET_SECONDS,
        what="nobody evicted",
    )
    assert "urgent" not in nodes_of_pods(client)
