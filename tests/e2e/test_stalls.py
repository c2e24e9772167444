"""A service that is frozen or killed holds up GPU pods alone, and not for long."""

import itertools
import time
from typing import Final

import pytest

from tests.e2e.harness.builders import JsonObject, make_node, make_pod
from tests.e2e.harness.churn import Churn
from tests.e2e.harness.client import ApiClient
from tests.e2e.harness.pods import node_of, nodes_of_pods, wait_until_bound
from tests.e2e.harness.product import Product
from tests.e2e.harness.waiting import wait_for

KIND: Final = "asks"
FROZEN_SECONDS: Final = 3
BACK_SECONDS: Final = 15.0
PER_SECOND: Final = 20
GPU_POD_EVERY: Final = 10  # kube-scheduler waits up to a second for each of them
START_SECONDS: Final = 20.0
PODS: Final = 20


def make_mixed(number: int) -> JsonObject:
    """Return the next pod of a mix in which few ask a GPU."""
    is_gpu_pod = number % GPU_POD_EVERY == 0
    return make_pod(
        f"mixed-{number}",
        gpus=1 if is_gpu_pod else 0,
        cpu="10m",
        labels={KIND: "gpu" if is_gpu_pod else "cpu"},
    )


def bound(client: ApiClient, kind: str) -> int:
    """Return how many pods of a kind are bound."""
    return len(nodes_of_pods(client, labels=f"{KIND}={kind}"))


def bound_in_each_second(client: ApiClient, kind: str, seconds: int) -> list[int]:
    """Watch for a while; return how many pods of a kind were bound in each second."""
    began, counts = time.monotonic(), [bound(client, kind)]
    for second in range(1, seconds + 1):
        time.sleep(max(0.0, began + second - time.monotonic()))
        counts.append(bound(client, kind))
    return [after - before for before, after in itertools.pairwise(counts)]


def wait_until_all_bound(client: ApiClient, since: float) -> float:
    """Wait until no pod is pending; return the seconds that took from a moment."""
    wait_for(
        lambda: all(node_of(pod) for pod in client.list("Pod")),
        timeout_seconds=since + BACK_SECONDS - time.monotonic(),
        what=f"every pod bound within {BACK_SECONDS} s",
    )
    return time.monotonic() - since


def start(product: Product) -> None:
    """Start everything on nodes with room for all pods."""
    product.client.create_many(make_node(f"node-{i}", gpus=64) for i in range(4))
    product.start_all()


def test_while_the_service_is_frozen_pods_without_gpu_keep_binding(
    product: Product,
) -> None:
    client = product.client
    start(product)

    with product.outage():
        with Churn(
            client, make_mixed, total=10_000, per_second=PER_SECOND, keep=10_000
        ):
            wait_for(
                lambda: bound(client, "gpu"),
                timeout_seconds=START_SECONDS,
                what="pods bound",
            )
            product.service.process.freeze()
            frozen_bound = bound_in_each_second(client, "cpu", FROZEN_SECONDS)
            product.service.process.thaw()
            thawed = time.monotonic()
        waited_seconds = wait_until_all_bound(client, thawed)
    print(  # noqa: T201 - figures, shown with -rP
        f"frozen {FROZEN_SECONDS} s: pods without GPU bound in each second"
        f" {frozen_bound}; all {bound(client, 'gpu')} GPU pods bound"
        f" {waited_seconds:.2f} s after SIGCONT"
    )
    client.create(make_pod("afterwards", gpus=1))
    wait_until_bound(client, "afterwards")

    assert all(frozen_bound), frozen_bound


def test_gpu_pods_that_came_all_at_once_are_bound_soon_after_the_thaw(
    product: Product,
) -> None:
    client = product.client
    start(product)

    with product.outage():
        product.service.process.freeze()
        frozen = time.monotonic()
        client.create_many(make_pod(gpus=1) for _ in range(PODS))
        time.sleep(frozen + FROZEN_SECONDS - time.monotonic())
        product.service.process.thaw()
        waited_seconds = wait_until_all_bound(client, time.monotonic())

    print(f"{PODS} GPU pods bound {waited_seconds:.2f} s after SIGCONT")  # noqa: T201 - a figure, shown with -rP


@pytest.mark.parametrize(
    "away_seconds",
    [
        pytest.param(3.0, id="for a moment"),
        pytest.param(20.0, id="until kube-scheduler is at its longest pause"),
    ],
)
def test_gpu_pods_are_bound_soon_after_a_killed_service_is_back(
    product: Product, away_seconds: float
) -> None:
    client = product.client
    start(product)

    with product.outage():
        product.service.process.kill()
        killed = time.monotonic()
        client.create_many(make_pod(gpus=1) for _ in range(PODS))
        client.create(make_pod("plain", cpu="1"))
        wait_until_bound(client, "plain", timeout_seconds=away_seconds)
        time.sleep(max(0.0, killed + away_seconds - time.monotonic()))
        during = nodes_of_pods(client)
        product.service.process.start()
        waited_seconds = wait_until_all_bound(client, time.monotonic())
    print(  # noqa: T201 - a figure, shown with -rP
        f"away {away_seconds} s: {PODS} GPU pods bound {waited_seconds:.2f} s after"
        " the return"
    )
    client.create(make_pod("afterwards", gpus=1))
    wait_until_bound(client, "afterwards")

    assert during.keys() == {"plain"}
