"""What is free is promised once, however many pods come and whatever befalls them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import pytest

from tests.e2e.harness.builders import GPU, JsonObject, make_node, make_pod
from tests.e2e.harness.client import ApiClient
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.denials import make_full_namespace, policy_by_label
from tests.e2e.harness.pod_history import PodHistory
from tests.e2e.harness.pods import node_of
from tests.e2e.harness.product import Product
from tests.e2e.harness.slices import (
    PodCounts,
    count_places,
    count_takers,
    find_excess,
    resource_of,
)
from tests.e2e.harness.storm_play import play
from tests.e2e.harness.storms import (
    LARGE,
    POOL,
    SLICES,
    SMALL,
    TIERS,
    Storm,
    draw_storm,
)
from tests.e2e.harness.waiting import wait_for

PODS: Final = 10
FALLBACKS: Final = "gpu_extender_webhook_fallbacks_total"
HOLDS: Final = "gpu_extender_webhook_holds"
HOLD_SECONDS: Final = 2
# Far more than a hold lasts, for machines that are slow.
SETTLED_SECONDS: Final = 20.0
SEEN_SECONDS: Final = 10.0
# Calls that are under way at once.
CONNECTIONS: Final = 32
# Storms that are played at once, since each ends with waiting for its last hold.
AT_ONCE: Final = 10
SEED: Final = 6


@pytest.fixture
def client(control_plane: ControlPlane) -> ApiClient:
    """A client that creates many pods in the same moment."""
    token = control_plane.users.harness.token
    return control_plane.client_with(token, connections=CONNECTIONS)


def create_at_once(client: ApiClient, product: Product, count: int) -> Counter[str]:
    """Create pods that ask for a slice; return what they ask afterwards."""
    wait_for(product.amounts, timeout_seconds=SEEN_SECONDS, what="nodes in the cache")
    with ThreadPoolExecutor(count) as threads:
        bodies = [
            make_pod(f"infer-{index}", resources={LARGE: 1}) for index in range(count)
        ]
        return Counter(map(resource_of, threads.map(client.create, bodies)))


@pytest.fixture
def webhook(product: Product) -> Product:
    """The service with its webhook registered."""
    product.start()
    product.register_webhook()
    return product


def test_of_ten_pods_at_once_one_takes_the_free_slice_and_nine_fall(
    client: ApiClient, webhook: Product
) -> None:
    client.create(make_node("a", gpus=9, resources={LARGE: 1}))

    asked = create_at_once(client, webhook, PODS)

    assert asked == {LARGE: 1, GPU: 9}
    assert webhook.metric(FALLBACKS, outcome="kept") == 1
    assert webhook.metric(FALLBACKS, outcome="changed") == 9


def test_without_a_later_tier_ten_pods_keep_and_one_of_them_counts_as_free(
    client: ApiClient, webhook: Product
) -> None:
    client.create(make_node("a", resources={LARGE: 1}))

    asked = create_at_once(client, webhook, PODS)

    assert asked == {LARGE: 10}
    assert webhook.metric(FALLBACKS, outcome="kept") == 1
    assert webhook.metric(FALLBACKS, outcome="kept_full") == 9


@pytest.fixture
def stormy(control_plane: ControlPlane, client: ApiClient) -> Iterator[Product]:
    """All of the product, with short holds, and what refuses pods after it."""
    settings = {"fallback": {"chains": [list(TIERS)], "holdSeconds": HOLD_SECONDS}}
    make_full_namespace(client)
    with (
        policy_by_label(client),
        Product(control_plane, settings=settings) as installed,
    ):
        installed.start_all()
        installed.register_webhook()
        yield installed


def test_ten_storms_promise_nothing_twice_and_leave_nothing_held(
    client: ApiClient, stormy: Product
) -> None:
    play_storms(client, stormy, range(10))


@pytest.mark.long
def test_two_hundred_storms_promise_nothing_twice_and_leave_nothing_held(
    client: ApiClient, stormy: Product
) -> None:
    play_storms(client, stormy, range(10, 210))


def play_storms(client: ApiClient, product: Product, numbers: range) -> None:
    """Play storms, some at a time, and check all that was promised."""
    places: PodCounts = Counter()
    taken: Counter[str] = Counter()
    with PodHistory(client) as history:
        for first in numbers[::AT_ONCE]:
            wave = range(first, min(first + AT_ONCE, numbers.stop))
            storms = [draw_storm(SEED, number) for number in wave]
            make_nodes(client, product, storms)
            with ThreadPoolExecutor(len(storms)) as threads:
                list(threads.map(partial(play, client), storms))
            wait_until_settled(client, product, storms)
            places += count_of_places(client, storms)
            feasible_nodes = count_takers(client.list("Pod"), POOL)
            check_what_is_free(client, storms, places, feasible_nodes)
            check_calm_storms(storms, places, feasible_nodes)
            for (_, resource), count in feasible_nodes.items():
                taken[resource] += count
            clear(client)
        history.catch_up()
        moments = 0
        for pods in history.moments():
            moments += 1
            assert find_excess(places, count_takers(pods.values(), POOL)) == {}
    print(f"{len(numbers)} storms, {moments} moments, at rest {dict(taken)}")  # noqa: T201 - figures, shown with -rP
    assert all(taken[name] for name in TIERS)


def make_nodes(client: ApiClient, product: Product, storms: Sequence[Storm]) -> None:
    """Create the nodes of storms and wait until the service has seen them."""
    nodes = client.create_many(node for storm in storms for node in storm.nodes)
    names = {node["metadata"]["name"] for node in nodes}
    wait_for(
        lambda: names <= product.amounts().keys(),
        timeout_seconds=SEEN_SECONDS,
        what="nodes in the cache",
    )


def wait_until_settled(
    client: ApiClient, product: Product, storms: Sequence[Storm]
) -> None:
    """Wait until nothing is held, and kube-scheduler has bound what is its to bind."""
    scheduled = ",".join(storm.pool for storm in storms if storm.is_scheduled)
    theirs = {"labelSelector": f"{POOL} in ({scheduled or 'none'})"}
    wait_for(
        lambda: product.metric(HOLDS) == 0,
        timeout_seconds=SETTLED_SECONDS,
        what="nothing held any more",
    )
    wait_for(
        lambda: all(
            node_of(pod)
            for pod in client.list("Pod", namespace="default", query=theirs)
        ),
        timeout_seconds=SETTLED_SECONDS,
        what="every promised pod bound by kube-scheduler",
    )


def count_of_places(client: ApiClient, storms: Sequence[Storm]) -> PodCounts:
    """Return for how many pods there is something on the nodes of storms."""
    quantities = {storm.pool: storm.quantity for storm in storms}
    return count_places(client.list("Node"), POOL, quantities)


def check_what_is_free(
    client: ApiClient,
    storms: Sequence[Storm],
    places: PodCounts,
    feasible_nodes: PodCounts,
) -> None:
    """Check that the webhook would give what is free, and nothing else."""

    def is_given(body: JsonObject, wanted: str) -> bool:
        made = client.create(body, query={"dryRun": "All"})
        return resource_of(made) == wanted

    for storm in storms:
        pool = {POOL: storm.pool}
        free = {
            name: places[storm.pool, name] - feasible_nodes[storm.pool, name]
            for name in TIERS
        }
        for asked in SLICES:
            wanted = next(name for name in TIERS[TIERS.index(asked) :] if free[name])
            body = make_pod(resources={asked: storm.quantity}, node_selector=pool)
            wait_for(
                partial(is_given, body, wanted),
                timeout_seconds=SEEN_SECONDS,
                what=f"{storm.pool}: {wanted} for {asked} where {free} is free",
            )


def check_calm_storms(
    storms: Sequence[Storm], places: PodCounts, feasible_nodes: PodCounts
) -> None:
    """Check that where all pods stayed, as many as could have got a slice."""
    for storm in storms:
        if storm.is_calm:
            asking = Counter(pod.asks for pod in storm.pods)
            large = min(asking[LARGE], places[storm.pool, LARGE])
            rest = asking[SMALL] + asking[LARGE] - large
            small = min(rest, places[storm.pool, SMALL])
            found = {name: feasible_nodes[storm.pool, name] for name in TIERS}
            assert found == {LARGE: large, SMALL: small, GPU: rest - small}, storm.pool


def clear(client: ApiClient) -> None:
    """Delete all pods and nodes."""
    pods = client.list("Pod", namespace="default")
    client.delete_many("Pod", [pod["metadata"]["name"] for pod in pods])
    nodes = client.list("Node")
    client.delete_many("Node", [node["metadata"]["name"] for node in nodes])
