"""Nothing that breaks makes the cache drift from what the API server has."""

import time
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from tests.e2e.harness.amounts import amounts_listed
from tests.e2e.harness.builders import JsonObject, make_node, make_pod
from tests.e2e.harness.churn import Churn
from tests.e2e.harness.connection import ApiError, UnreachableError
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.kubelet import keep_running
from tests.e2e.harness.pods import wait_until_bound
from tests.e2e.harness.product import Product
from tests.e2e.harness.proxy import TcpProxy
from tests.e2e.harness.waiting import wait_for

PODS: Final = 500
PER_SECOND: Final = 50
BEFORE: Final = 150  # pods that were created when something breaks
IN_STEP_SECONDS: Final = 5.0
CHURN_SECONDS: Final = 60.0
RESTARTS: Final = "gpu_extender_cache_watch_restarts_total"
EVENTS: Final = "gpu_extender_cache_watch_events_total"
ENDS: Final = "ends"
RESOURCES: Final[tuple[dict[str, int], ...]] = (
    {"nvidia.com/gpu": 1},
    {"nvidia.com/gpu": 2},
    {"nvidia.com/mig-1g.10gb": 1},
    {"nvidia.com/gpu-memory": 8},
    {"amd.com/gpu": 1},
    {},
)


def make_nodes() -> list[JsonObject]:
    """Return nodes with room for all pods that live at a time."""
    offered = {"nvidia.com/mig-1g.10gb": 64, "nvidia.com/gpu-memory": 640}
    return [
        make_node(
            f"node-{i}", gpus=64, resources={**offered, "amd.com/gpu": 64}, pods=500
        )
        for i in range(3)
    ]


def make_churning(number: int) -> JsonObject:
    """Return a pod that comes and goes.

    One in five is left to kube-scheduler, and so to the extender; the others are on
    a node from the start. One in four ends by itself.
    """
    return make_pod(
        generate_name="churn-",
        resources=RESOURCES[number % len(RESOURCES)],
        cpu=f"{10 + number % 7}m",
        memory=f"{1 + number % 3}Mi",
        labels={ENDS: "yes"} if number % 4 == 0 else None,
        node_name=f"node-{number % 3}" if number % 5 else None,
    )


def end_some(pod: JsonObject) -> str:
    """Run pods, and let those that are labelled so come to an end."""
    is_running = pod["status"].get("phase") == "Running"
    if is_running and ENDS in pod["metadata"].get("labels", {}):
        return "Succeeded"
    return keep_running(pod)


def wait_until_in_step(product: Product, since: float, what: str) -> None:
    """Wait until the cache equals a fresh list, counted from a moment."""

    def is_in_step() -> bool:
        return product.amounts() == amounts_listed(product.client)

    wait_for(
        is_in_step,
        timeout_seconds=since + IN_STEP_SECONDS - time.monotonic(),
        what=f"cache equal to a fresh list after {what}",
        ignoring=(ApiError, UnreachableError),
    )
    print(f"in step {time.monotonic() - since:.2f} s after {what}")  # noqa: T201 - a figure, shown with -rP


def live_through(product: Product, breaking: Callable[[], None]) -> None:
    """Let something break while pods come and go; compare at once, and in the end."""
    client = product.client
    with Churn(client, make_churning, total=PODS, per_second=PER_SECOND) as churn:
        wait_for(
            lambda: churn.created >= BEFORE,
            timeout_seconds=CHURN_SECONDS,
            what="churn going",
        )
        with product.outage():
            breaking()
        back = time.monotonic()
        # Pods come and go over the moment of return, too; then they rest, since two
        # lists of a cluster that changes are never equal.
        time.sleep(1.0)
    wait_until_in_step(product, back, "the return")
    missing = PODS - churn.created
    with Churn(client, make_churning, total=missing, per_second=PER_SECOND) as rest:
        rest.finish(CHURN_SECONDS)
    wait_until_in_step(product, time.monotonic(), "the last pod")
    last = client.create(make_pod(generate_name="last-", gpus=1))
    wait_until_bound(client, last["metadata"]["name"])
    assert product.metric("gpu_extender_cache_apply_errors_total") == 0


def start(plane: ControlPlane, product: Product) -> None:
    """Start everything, on nodes that are there."""
    plane.client.create_many(make_nodes())
    plane.start_kubelet(end_some)
    product.start_all()


def kill_api_server(plane: ControlPlane) -> None:
    """Kill the API server, and have it ready again."""
    plane.api_server.kill()
    plane.api_server.start()


def restart_etcd(plane: ControlPlane) -> None:
    """Restart etcd, and have the API server ready again."""
    plane.etcd.restart()
    wait_for(
        plane.client.is_ready, timeout_seconds=CHURN_SECONDS, what="API server ready"
    )


def kill_service(product: Product) -> None:
    """Kill the service with SIGKILL, and have it ready again."""
    product.service.process.kill()
    product.service.process.start()


def test_no_drift_over_a_killed_api_server(
    fresh_control_plane: ControlPlane, fresh_product: Product
) -> None:
    plane = fresh_control_plane
    start(plane, fresh_product)

    live_through(fresh_product, lambda: kill_api_server(plane))


def test_no_drift_over_a_restarted_etcd(
    fresh_control_plane: ControlPlane, fresh_product: Product
) -> None:
    plane = fresh_control_plane
    start(plane, fresh_product)

    live_through(fresh_product, lambda: restart_etcd(plane))


def test_no_drift_when_the_service_is_killed(product: Product) -> None:
    start(product.plane, product)

    live_through(product, lambda: kill_service(product))


def test_no_drift_when_history_is_compacted_under_the_watches(
    product: Product,
) -> None:
    start(product.plane, product)

    live_through(product, lambda: print(product.plane.compact_etcd()))  # noqa: T201 - the revision, shown with -rP


def test_no_drift_when_the_version_of_the_watches_is_compacted_away(
    fresh_control_plane: ControlPlane,
) -> None:
    plane = fresh_control_plane
    proxy = plane.start_proxy()
    with Product(plane, server=proxy.url) as product:
        start(plane, product)

        def forget() -> None:
            proxy.refuse()
            proxy.cut()
            wait_until_restarted(product, 2, reason="unreachable")
            plane.compact_etcd()
            # A running API server would go on from the history that it has in memory.
            kill_api_server(plane)
            proxy.refuse(on=False)

        live_through(product, forget)

        assert product.metric(RESTARTS, kind="pods", reason="expired") >= 1


def wait_until_watching(product: Product) -> None:
    """Wait until the watch of pods brings something."""
    before = product.metric(EVENTS, kind="pods")
    wait_for(
        lambda: product.metric(EVENTS, kind="pods") > before,
        timeout_seconds=10,
        what="events of pods",
    )


def wait_until_restarted(product: Product, count: int, **labels: str) -> None:
    """Wait until the watch of pods has ended so often."""
    wait_for(
        lambda: product.metric(RESTARTS, kind="pods", **labels) >= count,
        timeout_seconds=10,
        what=f"{count} restarts of the watch {labels}",
    )


@pytest.fixture
def proxy(control_plane: ControlPlane) -> TcpProxy:
    """What the service reaches the API server through."""
    return control_plane.start_proxy()


@pytest.fixture
def behind_proxy(control_plane: ControlPlane, proxy: TcpProxy) -> Iterator[Product]:
    """The service behind the proxy, quick to take a silent watch for dead."""
    settings = {"cluster": {"readTimeoutSeconds": 2}}
    with Product(control_plane, server=proxy.url, settings=settings) as installed:
        yield installed


def test_no_drift_over_cut_connections(behind_proxy: Product, proxy: TcpProxy) -> None:
    start(behind_proxy.plane, behind_proxy)

    def cut() -> None:
        for count in range(1, 6):
            wait_until_watching(behind_proxy)
            proxy.cut()
            wait_until_restarted(behind_proxy, count)

    live_through(behind_proxy, cut)


def test_no_drift_over_a_silent_stream(behind_proxy: Product, proxy: TcpProxy) -> None:
    product = behind_proxy
    start(product.plane, product)

    def hold() -> None:
        proxy.hold()
        wait_until_restarted(product, 1, reason="silent")
        proxy.release()

    live_through(product, hold)


@pytest.mark.long
def test_no_drift_over_everything_one_after_the_other_twice(
    fresh_control_plane: ControlPlane, fresh_product: Product
) -> None:
    plane, product = fresh_control_plane, fresh_product
    start(plane, product)

    for _ in range(2):
        live_through(product, lambda: kill_api_server(plane))
        live_through(product, lambda: kill_service(product))
        live_through(product, lambda: restart_etcd(plane))
        live_through(product, lambda: print(plane.compact_etcd()))  # noqa: T201 - the revision, shown with -rP
