"""What the suite asks of gpu-extender beside a control plane, of the chart's release.

The tests that are imported are those of other files: here their product is what Helm
has installed into a whole cluster, once in each mode, with certificates that are
replaced every few seconds.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import pytest

from tests.e2e.cluster.installed import Installed
from tests.e2e.cluster.release import NAME, installed_release, make_values
from tests.e2e.cluster.running import RunningCluster
from tests.e2e.harness.builders import JsonObject
from tests.e2e.harness.client import ApiClient
from tests.e2e.harness.injecting import Creator
from tests.e2e.harness.late_watch import Situation, live_rounds
from tests.e2e.harness.product import Product
from tests.e2e.harness.waiting import wait_for
from tests.e2e.test_certificate_rotation import (
    LANES,
    bundle_of,
    count_lines,
    review,
    review_often,
)
from tests.e2e.test_fallback_cases import (
    CHAIN,
    test_a_pod_is_stored_with_the_slices_that_are_there,
)
from tests.e2e.test_gpu_types import (
    ASKED,
    fill_up,
    test_types_are_taken_in_the_order_of_the_list,
)
from tests.e2e.test_injection import (
    NAMESPACES,
    RULES,
    test_a_contradiction_is_refused_with_the_numbers,
    test_a_documented_example,
    test_kubectl_shows_the_warning_about_a_type_without_a_rule,
)
from tests.e2e.test_late_watch import (
    a_gpu_is_freed,
    a_product_label_is_corrected,
    mig_is_configured,
)
from tests.e2e.test_placement import (
    test_a_node_whose_gpus_are_being_changed_gets_no_pod_until_it_is_done,
    test_a_pod_without_gpu_is_never_sent_to_us,
    test_mig_pods_are_scored_by_their_own_resource,
    test_pods_one_by_one_go_where_the_rule_says,
    test_the_accelerator_of_the_node_selector_is_honoured,
    test_two_gpu_pods_prefer_the_nvlink_node,
)

__all__ = [
    "test_a_contradiction_is_refused_with_the_numbers",
    "test_a_documented_example",
    "test_a_node_whose_gpus_are_being_changed_gets_no_pod_until_it_is_done",
    "test_a_pod_is_stored_with_the_slices_that_are_there",
    "test_a_pod_without_gpu_is_never_sent_to_us",
    "test_kubectl_shows_the_warning_about_a_type_without_a_rule",
    "test_mig_pods_are_scored_by_their_own_resource",
    "test_pods_one_by_one_go_where_the_rule_says",
    "test_the_accelerator_of_the_node_selector_is_honoured",
    "test_two_gpu_pods_prefer_the_nvlink_node",
    "test_types_are_taken_in_the_order_of_the_list",
]

SECONDS: Final = 120.0
# Longer than kube-scheduler takes to try a pod again by itself, upon the same event.
LAG_SECONDS: Final = 1.5
# Less than the 5 minutes after which it tries every pod again.
WOKEN_SECONDS: Final = 60.0
ROUNDS: Final = 3
LEAVES: Final = 3
BUNDLES: Final = 2
REVIEWS: Final = 50
WAKE_UPS: Final = "gpu_extender_wake_ups_total"
SELF_SIGNED: Final[Mapping[str, Any]] = {
    "leafLifetimeSeconds": 600,
    "leafRotationSeconds": 6,
    "caLifetimeSeconds": 3600,
    "caRotationSeconds": 30,
    "switchDelaySeconds": 5,
    "dropDelaySeconds": 20,
    "checkSeconds": 1.0,
}
# The one replica that decides falls stays it, however busy the machine is.
PATIENT: Final = {"leaseSeconds": 120, "renewDeadlineSeconds": 100}


@pytest.fixture(
    scope="module", params=[True, False], ids=["own scheduler", "existing scheduler"]
)
def installed(
    cluster: RunningCluster, request: pytest.FixtureRequest
) -> Iterator[Installed]:
    """A release in one mode, in a cluster that has no GPU but those of the test."""
    config = {
        "fallback": {"chains": [CHAIN]},
        "webhook": {"selfSigned": SELF_SIGNED},
        "election": PATIENT,
    }
    with (
        without_gpu_nodes(cluster.client),
        with_namespaces(cluster.client),
        cluster.proxy() as proxy,
    ):
        through_proxy = {
            "KUBERNETES_SERVICE_HOST": proxy.host,
            "KUBERNETES_SERVICE_PORT": str(proxy.port),
        }
        env = [{"name": key, "value": value} for key, value in through_proxy.items()]
        values = make_values(
            own_scheduler=request.param, config=config, rules=RULES, extraEnv=env
        )
        with installed_release(cluster, values):
            found = Installed(cluster, proxy)
            wait_for(
                lambda: not review(found.client),
                timeout_seconds=SECONDS,
                what="a review",
            )
            yield found
            found.check()


@contextlib.contextmanager
def without_gpu_nodes(client: ApiClient) -> Iterator[None]:
    """Take the nodes with GPUs away, and bring them back at the end."""
    nodes = [node for node in client.list("Node") if has_gpus(node)]
    client.delete_many("Node", [node["metadata"]["name"] for node in nodes])
    try:
        yield
    finally:
        for node in nodes:
            for key in ("resourceVersion", "uid", "creationTimestamp"):
                del node["metadata"][key]
        kind = {"apiVersion": "v1", "kind": "Node"}
        client.create_many({**kind, **node} for node in nodes)


def has_gpus(node: JsonObject) -> bool:
    return any("/" in name for name in node["status"]["allocatable"])


@contextlib.contextmanager
def with_namespaces(client: ApiClient) -> Iterator[None]:
    """Have the namespaces that the examples of injection are in."""
    for name in NAMESPACES:
        namespace = {"apiVersion": "v1", "kind": "Namespace"}
        client.apply({**namespace, "metadata": {"name": name}})
    try:
        yield
    finally:
        for name in NAMESPACES:
            client.delete("Namespace", name)
        wait_for(
            lambda: not any(client.exists("Namespace", name) for name in NAMESPACES),
            timeout_seconds=SECONDS,
            what="namespaces gone",
        )


@pytest.fixture
def product(installed: Installed) -> Iterator[Installed]:
    """The release; what the test has created is gone, and forgotten, at its end."""
    client = installed.client
    kept = {node["metadata"]["name"] for node in client.list("Node")}
    yield installed
    for namespace in ("default", *NAMESPACES):
        path = f"/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=0"
        client.request("DELETE", path)
    names = {node["metadata"]["name"] for node in client.list("Node")}
    client.delete_many("Node", names - kept)
    installed.wait_counted()
    wait_for(
        lambda: not installed.metric("gpu_extender_webhook_holds"),
        timeout_seconds=SECONDS,
        what="nothing held any more",
    )


@pytest.fixture
def control_plane(product: Installed) -> RunningCluster:
    """The cluster, to put nodes and pods into."""
    return product.plane


@pytest.fixture
def created(product: Product) -> Creator:
    """Creates pods; `product` has the face of one, here as in the tests above."""
    return Creator(product)


@pytest.mark.parametrize(("annotations", "expected", "reason"), ASKED)
def test_a_type_or_size_that_is_not_asked_for_is_never_used(
    product: Product,
    annotations: Mapping[str, str],
    expected: Sequence[str],
    reason: str,
) -> None:
    """The webhook has written it into the node affinity, where that can say it."""
    messages = fill_up(product, annotations, expected)

    reasons = reason, "didn't match Pod's node affinity"
    assert all(any(one in message for one in reasons) for message in messages)


@pytest.mark.parametrize(
    ("set_up", "least"),
    [
        # kube-scheduler's own count refused the pod, and knows when to try again.
        pytest.param(a_gpu_is_freed, 0, id="a GPU is freed"),
        pytest.param(mig_is_configured, 1, id="MIG is configured"),
        pytest.param(
            a_product_label_is_corrected, 1, id="a product label is corrected"
        ),
    ],
)
def test_a_pod_is_bound_once_its_room_is_seen(
    product: Installed, set_up: Callable[[ApiClient], Situation], least: int
) -> None:
    """However late, and without the wait for the next attempt of kube-scheduler."""
    situation = set_up(product.client)
    before = product.metric(WAKE_UPS, outcome="woken")

    with product.late(LAG_SECONDS):
        outcome = live_rounds(
            product.client,
            situation,
            rounds=ROUNDS,
            timeout_seconds=WOKEN_SECONDS,
            lag_seconds=LAG_SECONDS,
        )
    woken = product.metric(WAKE_UPS, outcome="woken") - before
    print(f"{outcome}; {woken:.0f} wakings")  # noqa: T201 - figures, shown with -rP

    assert outcome.left == 0
    assert least <= woken <= least * ROUNDS


def test_no_pod_is_refused_while_leaf_and_ca_are_replaced(product: Installed) -> None:
    """Each review comes by a new connection, to whatever certificate is in use."""
    service = product.client.get("Service", NAME, namespace=NAME)
    address = service["spec"]["clusterIP"]
    leaves_before = [count_lines(log, "certificate in use") for log in product.logs()]
    bundles, faults = {bundle_of(product.client)}, []
    cut: list[int] = []

    def is_replaced() -> bool:
        faults.extend(
            review_often(
                product.client,
                LANES[0],
                lambda: cut.append(product.plane.cut_connections(address, 443)),
                REVIEWS,
            )
        )
        bundles.add(bundle_of(product.client))
        leaves = [count_lines(log, "certificate in use") for log in product.logs()]
        fresh = [now - then for now, then in zip(leaves, leaves_before, strict=True)]
        return min(fresh) >= LEAVES and len(bundles) > BUNDLES

    wait_for(is_replaced, timeout_seconds=SECONDS, what="certificates replaced")
    print(f"{len(cut)} reviews on {sum(cut)} connections, {len(bundles)} bundles")  # noqa: T201 - figures, shown with -rP

    assert faults == []
    assert sum(cut) >= len(cut)
