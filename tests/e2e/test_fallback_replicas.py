"""What two replicas promise, each of which knows its own holds alone."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from tests.e2e.harness.builders import JsonObject, make_node, make_pod
from tests.e2e.harness.client import ApiClient
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.pods import condition_of, node_of
from tests.e2e.harness.ports import free_port
from tests.e2e.harness.product import Product
from tests.e2e.harness.proxy import TcpProxy
from tests.e2e.harness.replicas import start_second
from tests.e2e.harness.slices import count_places, count_takers
from tests.e2e.harness.storms import BY_NOBODY, LARGE, POOL, WHOLE_GPUS
from tests.e2e.harness.waiting import wait_for

REPLICAS: Final = 2
STORMS: Final = 20
PODS: Final = 20
SLICES_OF_A_STORM: Final = (1, 2, 4, 8)
SEEN_SECONDS: Final = 10.0
BOUND_SECONDS: Final = 30.0


@pytest.fixture
def client(fresh_control_plane: ControlPlane) -> ApiClient:
    """A client that creates all pods of a storm in the same moment."""
    token = fresh_control_plane.users.harness.token
    return fresh_control_plane.client_with(token, connections=PODS)


@pytest.fixture
def balancer(fresh_product: Product) -> Iterator[TcpProxy]:
    """Two replicas, each new connection to the webhook goes to the other one."""
    first_port, second_port = fresh_product.webhook_port, free_port()
    with TcpProxy(first_port, second_port) as proxy:
        fresh_product.start_all()
        start_second(fresh_product, second_port)
        fresh_product.webhook_port = proxy.port
        fresh_product.register_webhook()
        yield proxy


def make_pool(client: ApiClient, product: Product, pool: str, slices: int) -> None:
    """Create a node with some slices, and GPUs enough, and wait until it is seen."""
    resources = {LARGE: slices}
    labels = {POOL: pool}
    client.create(make_node(pool, gpus=WHOLE_GPUS, resources=resources, labels=labels))
    wait_for(
        lambda: pool in product.amounts(),
        timeout_seconds=SEEN_SECONDS,
        what="node in the cache",
    )


def asking(pool: str, *, scheduler: str | None = BY_NOBODY) -> JsonObject:
    """Return a pod that asks for a slice of a pool."""
    return make_pod(
        generate_name="infer-",
        resources={LARGE: 1},
        node_selector={POOL: pool},
        labels={POOL: pool},
        scheduler_name=scheduler,
    )


def promised(client: ApiClient, pool: str) -> tuple[int, int]:
    """Return how many pods of a pool keep a slice, and how many slices there are."""
    places = count_places(client.list("Node"), POOL, {pool: 1})
    feasible_nodes = count_takers(client.list("Pod"), POOL)
    return feasible_nodes[pool, LARGE], places[pool, LARGE]


def test_two_replicas_promise_no_slice_more_than_twice(
    client: ApiClient, fresh_product: Product, balancer: TcpProxy
) -> None:
    counts = []
    for number in range(STORMS):
        pool = f"storm-{number}"
        slices = SLICES_OF_A_STORM[number % len(SLICES_OF_A_STORM)]
        make_pool(client, fresh_product, pool, slices)
        with ThreadPoolExecutor(PODS) as threads:
            list(threads.map(client.create, [asking(pool)] * PODS))
        counts.append(promised(client, pool))
        balancer.cut()  # or the connections of the storm before are used again

    excess = [taken - places for taken, places in counts]
    slices = sum(places for _, places in counts)
    print(  # noqa: T201 - figures, shown with -rP
        f"{STORMS} storms of {PODS} pods at once: too many promised in"
        f" {sum(map(bool, excess))}, {sum(excess)} pods on {slices} slices"
    )
    assert all(places <= taken <= REPLICAS * places for taken, places in counts)


def test_one_pod_after_the_other_gets_what_no_replica_has_promised(
    client: ApiClient, fresh_product: Product, balancer: TcpProxy
) -> None:
    counts = []
    for number, slices in enumerate(SLICES_OF_A_STORM):
        pool = f"row-{number}"
        make_pool(client, fresh_product, pool, slices)
        for _ in range(PODS):
            client.create(asking(pool))
            balancer.cut()
        counts.append(promised(client, pool))

    excess = sum(taken - places for taken, places in counts)
    print(f"one by one: {excess} pods on {sum(p for _, p in counts)} slices too many")  # noqa: T201 - a figure, shown with -rP
    assert all(places <= taken <= REPLICAS * places for taken, places in counts)


def test_a_pod_promised_what_another_got_waits_and_follows_it(
    client: ApiClient, fresh_product: Product, balancer: TcpProxy
) -> None:
    assert balancer.accepted
    # What two replicas may bring about, for certain: both pods keep the one slice.
    keeping = {"gpu-extender.io/fallback": "never"}
    make_pool(client, fresh_product, "pool", 1)
    pods = [asking("pool", scheduler=None) for _ in range(2)]
    for pod in pods:
        pod["metadata"]["annotations"] = keeping
    client.create_many(pods)

    def states() -> list[tuple[str, str]]:
        return sorted(
            (node_of(pod), condition_of(pod, "PodScheduled").get("reason", ""))
            for pod in client.list("Pod", query={"labelSelector": POOL})
        )

    wait_for(
        lambda: states() == [("", "Unschedulable"), ("pool", "")],
        timeout_seconds=BOUND_SECONDS,
        what="one bound, one refused",
    )
    bound = next(
        pod["metadata"]["name"]
        for pod in client.list("Pod", query={"labelSelector": POOL})
        if node_of(pod)
    )
    client.delete("Pod", bound, grace_seconds=0)
    wait_for(
        lambda: states() == [("pool", "")],
        timeout_seconds=BOUND_SECONDS,
        what="the other bound",
    )
