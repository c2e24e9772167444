"""Ready when synced, answering while the API server is away, not ready when stale."""

import time
from collections.abc import Iterator
from typing import Final

import pytest

from tests.e2e.harness.builders import GPU, make_node, make_pod
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.product import Product
from tests.e2e.harness.proxy import TcpProxy
from tests.e2e.harness.waiting import stays_true, wait_for

READY: Final = "/readyz/extender"
MIG_2G: Final = "nvidia.com/mig-2g.20gb"
TRIGGER: Final = "task.bkbcs.tencent.com/gpu-type"
STALE_SECONDS: Final = 4.0
AGE: Final = "gpu_extender_cache_snapshot_age_seconds"
POD: Final = make_pod("train", gpus=1)


@pytest.fixture
def proxy(control_plane: ControlPlane) -> TcpProxy:
    """What the service reaches the API server through."""
    return control_plane.start_proxy()


@pytest.fixture
def behind_proxy(control_plane: ControlPlane, proxy: TcpProxy) -> Iterator[Product]:
    """The service behind the proxy, quick to call itself stale."""
    settings = {"cluster": {"staleAfterSeconds": STALE_SECONDS}}
    with Product(control_plane, server=proxy.url, settings=settings) as installed:
        yield installed


def start_unsynced(product: Product) -> None:
    """Start the service while nobody answers it, and wait until it is alive."""
    product.start(wait=False)
    wait_for(product.is_up, timeout_seconds=20, what="service alive")


def ages_of(product: Product) -> dict[str, float]:
    """Return seconds since the last contact, by kind of object."""
    return {kind: product.metric(AGE, kind=kind) for kind in ("nodes", "pods")}


def statuses(product: Product) -> dict[str, int]:
    """Return the statuses of probes, verbs and cluster page."""
    return {
        "ready": product.service.status("/readyz"),
        "extender": product.service.status(READY),
        "filter": product.ask_filter(POD, "node-a")[0],
        "prioritize": product.ask_priorities(POD, "node-a")[0],
        "cluster": product.service.status("/cluster"),
    }


def test_not_ready_and_no_verdicts_until_the_cluster_is_read(
    control_plane: ControlPlane, behind_proxy: Product, proxy: TcpProxy
) -> None:
    product = behind_proxy
    control_plane.client.create(make_node("node-a", gpus=4))
    proxy.refuse()

    start_unsynced(product)
    unsynced = statuses(product)
    stays_true(
        lambda: product.service.status(READY) == 503,
        for_seconds=1,
        what="not ready",
    )
    proxy.refuse(on=False)
    product.service.process.wait_ready()

    # The webhook needs no cluster, so the process as such is ready.
    assert unsynced == {
        "ready": 200,
        "extender": 503,
        "filter": 503,
        "prioritize": 503,
        "cluster": 503,
    }
    assert set(statuses(product).values()) == {200}


def test_not_ready_while_the_first_list_is_under_way(
    control_plane: ControlPlane, behind_proxy: Product, proxy: TcpProxy
) -> None:
    product = behind_proxy
    control_plane.client.create(make_node("node-a", gpus=4))
    proxy.hold()

    start_unsynced(product)
    unsynced = statuses(product)
    proxy.release()
    product.service.process.wait_ready()

    assert unsynced["extender"] == unsynced["filter"] == 503
    assert product.amounts()["node-a"][GPU] == (4, 0)


def test_until_then_the_webhook_injects_and_takes_no_fallback(
    control_plane: ControlPlane, behind_proxy: Product, proxy: TcpProxy
) -> None:
    product, client = behind_proxy, control_plane.client
    client.create(make_node("node-a", gpus=4))
    proxy.refuse()
    start_unsynced(product)
    product.register_webhook()

    typed = make_pod("typed", gpus=1, annotations={TRIGGER: "V100"})
    (container,) = client.create(typed)["spec"]["containers"]
    slice_pod, warnings = client.create_with_warnings(
        make_pod("slice", resources={MIG_2G: 1})
    )

    assert container["resources"]["limits"]["cpu"] == "4"
    assert MIG_2G in slice_pod["spec"]["containers"][0]["resources"]["limits"]
    assert any("no fallback was weighed" in text for text in warnings)


def test_verbs_go_on_while_the_api_server_is_away_and_readiness_ends_at_the_bound(
    control_plane: ControlPlane, behind_proxy: Product, proxy: TcpProxy
) -> None:
    product = behind_proxy
    control_plane.client.create(make_node("node-a", gpus=4))
    control_plane.client.create(make_pod("used", gpus=3, node_name="node-a"))
    product.start()
    wait_for(
        lambda: product.amounts()["node-a"].get(GPU) == (4, 3),
        timeout_seconds=5,
        what="pod counted",
    )
    before = product.ask_filter(POD, "node-a")

    proxy.refuse()
    proxy.cut()
    cut_at = time.monotonic()
    at_once = statuses(product)
    control_plane.client.create(make_node("node-b", gpus=4))
    control_plane.client.create(make_pod("new"))  # an event, before the bookmark
    before_bound = ages_of(product)
    wait_for(
        lambda: product.service.status(READY) == 503,
        timeout_seconds=STALE_SECONDS + 5,
        what="readiness off",
    )
    waited_seconds = time.monotonic() - cut_at
    after_bound = ages_of(product)
    stale = statuses(product)
    during = product.ask_filter(POD, "node-a")
    _, said = product.service.get(READY)
    proxy.refuse(on=False)
    wait_for(
        lambda: product.service.status(READY) == 200,
        timeout_seconds=10,
        what="ready again",
    )

    assert set(at_once.values()) == {200}
    assert stale == {**at_once, "extender": 503}
    assert during == before
    assert b": last contact" in said
    assert all(after_bound[kind] > age for kind, age in before_bound.items())
    assert max(after_bound.values()) >= STALE_SECONDS
    print(f"not ready {waited_seconds:.1f} s after the cut")  # noqa: T201 - a figure, shown with -rP
    wait_for(
        lambda: "node-b" in product.amounts(), timeout_seconds=5, what="new node seen"
    )
    assert max(ages_of(product).values()) < STALE_SECONDS


def test_not_ready_until_a_real_api_server_is_there(
    fresh_control_plane: ControlPlane, fresh_product: Product
) -> None:
    plane, product = fresh_control_plane, fresh_product
    plane.client.create(make_node("node-a", gpus=4))

    with product.outage():
        plane.api_server.kill()
        start_unsynced(product)
        unsynced = statuses(product)
        plane.api_server.start()
    product.service.process.wait_ready(timeout_seconds=10)

    assert unsynced["extender"] == unsynced["filter"] == 503
    assert set(statuses(product).values()) == {200}
