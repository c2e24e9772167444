"""A Lease, labels, rights and connections that lead astray on the real API server."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from tests.e2e.harness.builders import make_node, make_pod
from tests.e2e.harness.client import JSON_PATCH, ApiClient
from tests.e2e.harness.product import DEPLOY, NAME, Product
from tests.e2e.harness.replicas import ACTIVE, LEASE_API, Replicas
from tests.e2e.harness.slices import count_takers
from tests.e2e.harness.storms import POOL
from tests.e2e.harness.waiting import wait_for

NAMES: Final = ("a", "b")
ALONE: Final = "gpu_extender_webhook_decided_alone_total"
CACHED: Final = "gpu_extender_cache_objects"
HELD: Final = "gpu_extender_lease_held"
TOLD: Final = '"event": "decided without the lease"'
ROLE: Final = f"role.rbac.authorization.k8s.io/{NAME}-lease"
SEEN_SECONDS: Final = 30.0
REVIEWS: Final = 5
LARGE: Final = "nvidia.com/mig-2g.20gb"
# As many as the API server keeps idle connections for.
STORM: Final = 25
SLICES: Final = 4

# What others write; each stands for two seconds at most.
FOREIGN: Final[Mapping[str, Mapping[str, Any]]] = {
    "no spec": {},
    "somebody else": {"holderIdentity": "x", "leaseDurationSeconds": 2},
    "without duration": {"holderIdentity": "x"},
    "without holder": {"leaseDurationSeconds": 3600},
    "renewed in the future": {
        "holderIdentity": "x",
        "leaseDurationSeconds": 2,
        "acquireTime": "2999-01-01T00:00:00.000000Z",
        "renewTime": "2999-01-01T00:00:00.000000Z",
    },
    "renewed long ago": {
        "holderIdentity": "x",
        "leaseDurationSeconds": 2,
        "renewTime": "1999-12-31T23:59:59.999999Z",
    },
    "a million transitions": {"leaseTransitions": 1_000_000},
    "an identity of client-go": {
        "holderIdentity": "host_8f0a2d5e-0000-4000-8000-3f2504e04f89",
        "leaseDurationSeconds": 2,
        "leaseTransitions": 0,
    },
}


@pytest.fixture
def replicas(fresh_product: Product) -> Iterator[Replicas]:
    """Two replicas, one of which is called."""
    with Replicas(fresh_product) as started:
        started.start_first(NAMES[0])
        started.start(NAMES[1])
        yield started


def wait_elected(client: ApiClient, replicas: Replicas) -> str:
    """Wait until one holds the Lease, and it alone has the label and is called."""

    def elected() -> str:
        holder = replicas.holder()
        pods = client.list("Pod", namespace=NAME, query={"labelSelector": ACTIVE})
        labelled = [pod["metadata"]["name"] for pod in pods]
        is_called = replicas.front.leads_to == (holder,)
        return holder if labelled == [holder] and is_called else ""

    return wait_for(elected, timeout_seconds=SEEN_SECONDS, what="one elected")


def wait_holding(replicas: Replicas, count: int) -> None:
    """Wait until so many replicas say that they hold the lease."""
    wait_for(
        lambda: sum_of(replicas, HELD) == count,
        timeout_seconds=SEEN_SECONDS,
        what=f"{count} hold the lease",
    )


def sum_of(replicas: Replicas, metric: str, **labels: str) -> float:
    services = replicas.services.values()
    return sum(service.metric(metric, **labels) for service in services)


def review(client: ApiClient) -> None:
    """Have pods reviewed whose fall is decided."""
    for _ in range(REVIEWS):
        client.create(
            make_pod(
                generate_name="infer-",
                resources={LARGE: 1},
                scheduler_name="nobody",
            )
        )


def wait_until_decided_for_all(client: ApiClient, replicas: Replicas) -> None:
    """Wait until no review reaches a replica that does not hold the Lease.

    What the API server has open leads to the one before for a second.
    """

    def none_is_alone() -> bool:
        before = sum_of(replicas, ALONE)
        review(client)
        return sum_of(replicas, ALONE) == before

    wait_for(none_is_alone, timeout_seconds=SEEN_SECONDS, what="decided for all")


def test_a_lease_that_others_write_is_taken_back(
    fresh_product: Product, replicas: Replicas
) -> None:
    client = fresh_product.client
    for what, spec in FOREIGN.items():
        wait_elected(client, replicas)
        client.patch(
            "Lease",
            NAME,
            [{"op": "add", "path": "/spec", "value": dict(spec)}],
            namespace=NAME,
            api_version=LEASE_API,
            content_type=JSON_PATCH,
        )
        wait_for(
            lambda: replicas.holder() in NAMES,
            timeout_seconds=SEEN_SECONDS,
            what=f"taken back: {what}",
        )

    wait_holding(replicas, 1)
    wait_elected(client, replicas)
    wait_until_decided_for_all(client, replicas)


def test_labels_that_others_set_are_put_right(
    fresh_product: Product, replicas: Replicas
) -> None:
    client = fresh_product.client
    holder = wait_elected(client, replicas)
    (other,) = set(NAMES) - {holder}
    for labels in (
        {other: "true"},
        {holder: None},
        {holder: None, other: "true"},
        {holder: "false"},
        {holder: "", other: "false"},
        {other: "yes"},
    ):
        for name, value in labels.items():
            change = {"metadata": {"labels": {ACTIVE: value}}}
            client.patch("Pod", name, change, namespace=NAME)
        assert wait_elected(client, replicas) == holder


def test_connections_that_stay_open_lead_to_no_replica_that_was_cut_off(
    fresh_product: Product,
) -> None:
    plane = fresh_product.plane
    client = plane.client_with(plane.users.harness.token, connections=STORM)
    with Replicas(fresh_product, are_separable=True) as replicas:
        replicas.start_first(NAMES[0])
        replicas.start(NAMES[1])
        for name in ("first", "second"):
            client.create(
                make_node(name, gpus=64, resources={LARGE: SLICES}, labels={POOL: name})
            )
        wait_for(
            lambda: sum_of(replicas, CACHED, kind="nodes") == 2 * len(NAMES),
            timeout_seconds=SEEN_SECONDS,
            what="nodes in both caches",
        )
        holder = replicas.active()
        storm(client, "first")
        replicas.ways[holder].refuse()
        replicas.ways[holder].cut()
        (other,) = set(NAMES) - {holder}
        replicas.wait_active(other)
        wait_for(
            lambda: replicas.front.connections == 0,
            timeout_seconds=SEEN_SECONDS,
            what="idle connections let go",
        )
        alone = sum_of(replicas, ALONE)

        storm(client, "second")

        assert sum_of(replicas, ALONE) == alone
        taken = count_takers(client.list("Pod", namespace="default"), POOL)
        assert taken["second", LARGE] == taken["first", LARGE] == SLICES
        replicas.ways[holder].refuse(on=False)


def storm(client: ApiClient, pool: str) -> None:
    """Create pods at once that ask for the slices of a pool."""
    client.create_many(
        make_pod(
            generate_name="infer-",
            resources={LARGE: 1},
            node_selector={POOL: pool},
            labels={POOL: pool},
            scheduler_name="nobody",
        )
        for _ in range(STORM)
    )


@pytest.mark.parametrize("spoil", ["lease", "right"])
def test_without_lease_or_right_it_is_decided_alone_and_nobody_is_refused(
    fresh_product: Product, replicas: Replicas, spoil: str
) -> None:
    client, kubectl = fresh_product.client, fresh_product.plane.kubectl
    holder = wait_elected(client, replicas)
    with fresh_product.outage():
        what = f"lease/{NAME}" if spoil == "lease" else ROLE
        kubectl("delete", "--namespace", NAME, what)
        wait_holding(replicas, 0)
        log_start = replicas.services[holder].process.log_size()

        review(client)

        assert sum_of(replicas, ALONE) == REVIEWS
        assert replicas.services[holder].metric(ALONE) == REVIEWS
        told = replicas.services[holder].process.log_text(log_start).count(TOLD)
        assert told == 1
        kubectl("apply", "-f", str(DEPLOY / "lease.yaml"))
        wait_holding(replicas, 1)
        wait_elected(client, replicas)

    wait_until_decided_for_all(client, replicas)
