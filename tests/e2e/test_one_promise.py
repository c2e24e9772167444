"""One promise for all replicas: three of them, the Service leads to the elected one."""

import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeAlias

import pytest

from tests.e2e.harness.builders import JsonObject, make_node, make_pod
from tests.e2e.harness.client import ApiClient
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.product import DEPLOY, NAME, Product, error_lines
from tests.e2e.harness.replicas import ACTIVE, LEASE_API, Replicas
from tests.e2e.harness.review_load import ReviewLoad, excess_of
from tests.e2e.harness.service import Service
from tests.e2e.harness.slices import count_places, count_takers
from tests.e2e.harness.storms import BY_NOBODY, LARGE, POOL, WHOLE_GPUS
from tests.e2e.harness.waiting import stays_true, wait_for

NAMES: Final = ("a", "b", "c")
STORMS: Final = 60
PODS: Final = 20
SLICES_OF_A_STORM: Final = (1, 2, 4, 8)
SEEN_SECONDS: Final = 20.0
# What hangs until the API server gives up takes one each.
CONNECTIONS: Final = 200
POOLS: Final = 150
# By which endpoints follow the pods in a cluster, and more.
LAG_SECONDS: Final = 0.5
AWAY_SECONDS: Final = 20.0
# More than the second that decisions wait after a change.
SLOW_SECONDS: Final = 2.0
# Six for which the lease stands, two looks at it, and one until the label; the rest is
# for a slow machine.
NEXT_SECONDS: Final = 12.0
CACHED: Final = "gpu_extender_cache_objects"
HELD: Final = "gpu_extender_lease_held"
ALONE: Final = "gpu_extender_webhook_decided_alone_total"


@pytest.fixture
def client(fresh_control_plane: ControlPlane) -> ApiClient:
    """A client that creates all pods of a storm in the same moment."""
    token = fresh_control_plane.users.harness.token
    return fresh_control_plane.client_with(token, connections=CONNECTIONS)


@pytest.fixture
def fresh_product(
    whole_machine: None,  # noqa: ARG001 - asked for before anything starts
    fresh_control_plane: ControlPlane,
) -> Iterator[Product]:
    """gpu-extender as it ships, with the shipped time to drain."""
    settings = {"server": {"drainSeconds": 5}}
    with Product(fresh_control_plane, settings=settings) as installed:
        yield installed


@contextlib.contextmanager
def three_of(product: Product, **options: Any) -> Iterator[Replicas]:
    """Start three replicas, one of which is called."""
    with Replicas(product, **options) as replicas:
        replicas.start_first(NAMES[0])
        replicas.start(*NAMES[1:])
        yield replicas


@pytest.fixture
def replicas(fresh_product: Product) -> Iterator[Replicas]:
    """Three replicas behind a front that follows the label at once."""
    with three_of(fresh_product) as started:
        yield started


@pytest.fixture(params=[0.0, LAG_SECONDS], ids="lag of {} s".format)
def replicas_behind(
    fresh_product: Product, request: pytest.FixtureRequest
) -> Iterator[Replicas]:
    """Three replicas behind a front that may follow the label late."""
    with three_of(fresh_product, lag_seconds=request.param) as started:
        yield started


@pytest.fixture
def separable(fresh_product: Product) -> Iterator[Replicas]:
    """Three replicas, each with a way of its own to the API server."""
    with three_of(fresh_product, are_separable=True) as started:
        yield started


def slices_of(number: int) -> int:
    """Return how many slices the pool of a number has."""
    return SLICES_OF_A_STORM[number % len(SLICES_OF_A_STORM)]


def make_pools(client: ApiClient, replicas: Replicas, count: int) -> None:
    """Create pools with some slices, and GPUs enough; wait until all have seen them."""
    client.create_many(
        make_node(
            f"pool-{number}",
            gpus=WHOLE_GPUS,
            resources={LARGE: slices_of(number)},
            labels={POOL: f"pool-{number}"},
        )
        for number in range(count)
    )
    for service in replicas.services.values():
        wait_for(
            partial(has_seen, service, count),
            timeout_seconds=SEEN_SECONDS,
            what="pools in the cache",
        )


def has_seen(service: Service, count: int) -> bool:
    """Whether a replica has so many nodes in its cache."""
    return service.metric(CACHED, kind="nodes") >= count


def asking(number: int) -> JsonObject:
    """Return a pod that asks for a slice of a pool."""
    pool = {POOL: f"pool-{number}"}
    return make_pod(
        generate_name="infer-",
        resources={LARGE: 1},
        node_selector=pool,
        labels=pool,
        scheduler_name=BY_NOBODY,
    )


def test_sixty_storms_promise_no_slice_twice(
    client: ApiClient, replicas: Replicas
) -> None:
    make_pools(client, replicas, STORMS)

    with ThreadPoolExecutor(PODS) as threads:
        for number in range(STORMS):
            list(threads.map(client.create, [asking(number)] * PODS))

    places = count_places(
        client.list("Node"), POOL, {f"pool-{number}": 1 for number in range(STORMS)}
    )
    promised = count_takers(client.list("Pod"), POOL)
    slices = {key: count for key, count in places.items() if key[1] == LARGE}
    excess = {key: promised[key] - count for key, count in slices.items()}
    print(  # noqa: T201 - figures, shown with -rP
        f"{STORMS} storms of {PODS} pods at once, three replicas:"
        f" {sum(excess.values())} pods too many on {sum(slices.values())} slices"
    )
    assert len(slices) == STORMS
    assert set(excess.values()) == {0}
    check_logs(replicas)


def check_logs(replicas: Replicas) -> None:
    """Check that no replica has logged what does not heal itself."""
    for service in replicas.services.values():
        assert error_lines(service.process.log_text()) == []


def wait_held(replicas: Replicas) -> None:
    """Wait until one holds the lease, and is called."""
    wait_for(
        lambda: replicas.holder() and replicas.front.leads_to == (replicas.holder(),),
        timeout_seconds=NEXT_SECONDS,
        what="the holder is called",
    )


def wait_held_by_nobody(replicas: Replicas) -> None:
    """Wait until no replica counts itself as the holder."""
    wait_for(
        lambda: not any(s.metric(HELD) for s in replicas.services.values()),
        timeout_seconds=NEXT_SECONDS,
        what="nobody holds the lease",
    )


# What somebody else may write, over what is there; None for no spec at all.
SPECS: Final[tuple[JsonObject | None, ...]] = (
    {"leaseDurationSeconds": 2},
    {"leaseDurationSeconds": 2, "leaseTransitions": 2**31 - 1},
    {"leaseDurationSeconds": 3, "renewTime": "2999-01-01T00:00:00.000000Z"},
    {"leaseDurationSeconds": 3, "renewTime": None, "acquireTime": None},
    {"leaseDurationSeconds": 2, "renewTime": "1999-12-31T23:59:59.999999Z"},
    {"leaseDurationSeconds": 2, "leaseTransitions": 0},
    {"leaseDurationSeconds": None},
    {"holderIdentity": None, "leaseDurationSeconds": 3600},
    None,
)


def test_a_lease_that_somebody_else_writes_is_taken_again(
    client: ApiClient, replicas: Replicas
) -> None:
    for spec in SPECS:
        written = None if spec is None else {"holderIdentity": "somebody", **spec}
        client.patch(
            "Lease", NAME, {"spec": written}, namespace=NAME, api_version=LEASE_API
        )

        wait_held(replicas)
    check_logs(replicas)


def labelled(client: ApiClient) -> list[tuple[str, str]]:
    """Return the pods that have the label, and its value."""
    pods = client.list("Pod", namespace=NAME, query={"labelSelector": ACTIVE})
    found = (pod["metadata"] for pod in pods)
    return [(metadata["name"], metadata["labels"][ACTIVE]) for metadata in found]


def test_labels_that_others_spoil_are_put_right(
    client: ApiClient, replicas: Replicas
) -> None:
    called = replicas.active()
    other, third = sorted(set(NAMES) - {called})
    for labels in (
        {called: "false", other: "true", third: "true"},
        {other: "true"},
        {called: None},
        {called: None, other: "true"},
        {called: "", other: "false"},
        {third: "yes"},
    ):
        for name, value in labels.items():
            change = {"metadata": {"labels": {ACTIVE: value}}}
            client.patch("Pod", name, change, namespace=NAME)

        wait_for(
            lambda: labelled(client) == [(called, "true")],
            timeout_seconds=NEXT_SECONDS,
            what=f"the label on the holder alone after {labels}",
        )
        assert replicas.holder() == called
    check_logs(replicas)


def test_without_a_lease_or_a_right_to_it_nobody_is_refused(
    client: ApiClient, fresh_product: Product, replicas: Replicas
) -> None:
    make_pools(client, replicas, 1)
    service = replicas.services[replicas.active()]
    kubectl = fresh_product.plane.kubectl
    lease = str(DEPLOY / "lease.yaml")

    kubectl("delete", "lease", NAME, "-n", NAME)
    wait_held_by_nobody(replicas)
    client.create(asking(0))
    kubectl("apply", "-f", lease)
    wait_held(replicas)
    before = service.metric(ALONE)
    with fresh_product.outage():
        kubectl("delete", "rolebinding", f"{NAME}-lease", "-n", NAME)
        wait_held_by_nobody(replicas)
        for _ in range(PODS):
            client.create(asking(0))
        kubectl("apply", "-f", lease)
        wait_held(replicas)

    assert before == 1
    # A connection that was open leads to the replica before for one more review.
    alone = sum(service.metric(ALONE) for service in replicas.services.values())
    assert alone == before + PODS
    told = [
        json.loads(line)["reason"]
        for line in service.process.log_text().splitlines()
        if "decided without the lease" in line
    ]
    assert told == ["there is no Lease of that name"]  # once a minute
    check_logs(replicas)


def test_connections_that_stay_open_lead_to_no_replica_that_was_cut_off(
    client: ApiClient, separable: Replicas
) -> None:
    replicas = separable
    make_pools(client, replicas, 2)
    cut_off_one = replicas.active()
    with ThreadPoolExecutor(PODS) as threads:
        list(threads.map(client.create, [asking(0)] * PODS))
        mend = cut_off(replicas, cut_off_one)
        replicas.wait_active(*set(NAMES) - {cut_off_one})
        wait_for(
            lambda: replicas.front.connections == 0,
            timeout_seconds=NEXT_SECONDS,
            what="idle connections let go",
        )
        alone = sum(service.metric(ALONE) for service in replicas.services.values())

        list(threads.map(client.create, [asking(1)] * PODS))

    mend()
    assert alone == sum(service.metric(ALONE) for service in replicas.services.values())
    promised = count_takers(client.list("Pod", namespace="default"), POOL)
    assert [promised[f"pool-{n}", LARGE] for n in (0, 1)] == [
        slices_of(0),
        slices_of(1),
    ]


def load(client: ApiClient, per_second: float) -> ReviewLoad:
    """Return a load of reviews, most of which are about what is about to run out."""
    return ReviewLoad(
        client, asking, label=POOL, per_second=per_second, pods_of_a_pool=PODS
    )


@pytest.mark.long
def test_a_rolling_restart_fails_no_review_and_promises_no_slice_twice(
    client: ApiClient, replicas_behind: Replicas
) -> None:
    replicas = replicas_behind
    make_pools(client, replicas, POOLS)
    order: list[str] = []

    with load(client, 50) as reviews:
        for number in range(len(NAMES)):
            old = sorted(set(NAMES) - set(order))
            replicas.start(f"new-{number}")
            leaving = replicas.active() if replicas.active() in old else old[0]
            order.append(leaving)
            replicas.end(leaving)
            replicas.wait_active(*replicas.services.keys() - set(order))
    made = reviews.reviews()

    failed = [review.error for review in made if review.error]
    excess = excess_of(made, LARGE, slices_of)
    slowest = max(review.answered_seconds - review.sent_seconds for review in made)
    print(  # noqa: T201 - figures, shown with -rP
        f"rolling restart: {len(made)} reviews, {len(failed)} failed, slowest"
        f" {slowest:.2f} s, {sum(excess.values())} pods too many on"
        f" {len({review.pool for review in made})} pools, called one after the other:"
        f" {replicas.front.history}"
    )
    assert failed == []
    assert excess == {}
    check_logs(replicas)


# What befalls the replica that is called: its name, what is done to it, and how it is
# put right after a while, if it is.
Mishap: TypeAlias = Callable[[Replicas, str], Callable[[], None] | None]


def kill(replicas: Replicas, name: str) -> None:
    """Kill its process; nothing starts it again."""
    replicas.services[name].process.kill()


def freeze(replicas: Replicas, name: str) -> Callable[[], None]:
    """Let its process stand still."""
    process = replicas.services[name].process
    process.freeze()
    return process.thaw


def cut_off(replicas: Replicas, name: str) -> Callable[[], None]:
    """Reset what it has open to the API server, and refuse what it opens."""
    way = replicas.ways[name]
    way.refuse()
    way.cut()
    return partial(way.refuse, on=False)


def silence(replicas: Replicas, name: str) -> Callable[[], None]:
    """Let no answer of the API server come through any more."""
    way = replicas.ways[name]
    way.hold()
    return way.release


@pytest.mark.long
@pytest.mark.parametrize(
    ("mishap", "answers"),
    [
        pytest.param(kill, False, id="killed"),
        pytest.param(freeze, False, id="frozen"),
        pytest.param(cut_off, True, id="cut off"),
        pytest.param(silence, True, id="unanswered"),
    ],
)
def test_another_is_called_after_the_one_before_and_promises_no_slice_twice(
    client: ApiClient, separable: Replicas, mishap: Mishap, answers: bool
) -> None:
    replicas = separable
    make_pools(client, replicas, POOLS)
    failing = replicas.active()

    with load(client, 20) as reviews:
        wait_for(lambda: reviews.count >= 2 * PODS, timeout_seconds=10, what="load")
        begun = time.monotonic()
        mend = mishap(replicas, failing)
        next_one = replicas.wait_active(*set(NAMES) - {failing})
        taken = time.monotonic()
        remaining = begun + AWAY_SECONDS - time.monotonic()
        stays_true(
            lambda: replicas.front.leads_to == (next_one,),
            for_seconds=remaining,
            what="the next one is called",
        )
        if mend is not None:
            mend()
            after = reviews.count
            wait_for(
                lambda: reviews.count >= after + 10 * PODS,
                timeout_seconds=30,
                what="more load",
            )
        assert replicas.front.leads_to == (next_one,)
        assert replicas.holder() == next_one
    made = reviews.reviews()

    failed = [review for review in made if review.error]
    refused = max((review.sent_seconds - begun for review in failed), default=0.0)
    slow = [r for r in made if r.answered_seconds - r.sent_seconds > SLOW_SECONDS]
    troubled = max((r.answered_seconds - begun for r in (*failed, *slow)), default=0.0)
    excess = excess_of(made, LARGE, slices_of)
    print(  # noqa: T201 - figures, shown with -rP
        f"{mishap.__name__}: {len(made)} pods, next one called after"
        f" {taken - begun:.1f} s, refused or unanswered {len(failed)}, sent within"
        f" {refused:.1f} s, all answered within {SLOW_SECONDS} s again after"
        f" {troubled:.1f} s, {sum(excess.values())} pods too many;"
        f" {Counter(review.error for review in failed)}"
    )
    assert [review for review in failed if review.sent_seconds > taken] == []
    assert refused <= (0 if answers else NEXT_SECONDS)
    assert excess == {}
    if answers:  # without the lease, until another was called
        assert replicas.services[failing].metric(ALONE) > 0
    for name in replicas.services.keys() - {failing}:
        assert error_lines(replicas.services[name].process.log_text()) == []
