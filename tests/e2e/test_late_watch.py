"""Capacity that comes free in a quiet cluster is used at once, however late we see it.

The event that makes room for a pod also has kube-scheduler try it again, and our own
watch may show it only after that.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pytest

from tests.e2e.harness.builders import make_node, make_pod
from tests.e2e.harness.client import ApiClient
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.late_watch import LAG_SECONDS, Situation, live_rounds
from tests.e2e.harness.pods import delete_quietly
from tests.e2e.harness.product import NAME, Product

WITHIN_SECONDS: Final = 2.0
LEFT_SECONDS: Final = 10.0
CONTROL_ROUNDS: Final = 30
ENOUGH_LEFT: Final = 3  # each costs 10 s, and one would do
STATE: Final = "nvidia.com/mig.config.state"
PRODUCT: Final = "nvidia.com/gpu.product"
WRONG, RIGHT = "NVIDIA-L40S", "NVIDIA-H100-80GB-HBM3"
TYPE: Final = {"gpu-extender.io/gpu-type": "H100"}
FEW: Final = pytest.param(5, id="5 rounds")
MANY: Final = pytest.param(100, marks=pytest.mark.long, id="100 rounds")
NO_WAKE_UP: Final = {"wakeUp": False}


def a_gpu_is_freed(client: ApiClient) -> Situation:
    """Return a full cluster in which one pod after the other is deleted."""
    client.create_many(make_node(f"node-{i}", gpus=2) for i in range(4))
    bound = [f"first-{i}" for i in range(8)]
    client.create_many(
        make_pod(name, gpus=1, node_name=f"node-{i // 2}")
        for i, name in enumerate(bound)
    )

    def free(number: int) -> None:
        client.delete("Pod", bound.pop(0), grace_seconds=0)
        bound.append(f"next-{number}")

    def fill_up(number: int) -> None:
        name = f"next-{number}"
        if client.exists("Pod", name):
            return
        # The pod was left unbound: another one takes the place that nobody took.
        used = [pod["spec"]["nodeName"] for pod in client.list("Pod")]
        (node,) = (f"node-{i}" for i in range(4) if used.count(f"node-{i}") < 2)
        client.create(make_pod(name, gpus=1, node_name=node))

    return Situation(lambda number: make_pod(f"next-{number}", gpus=1), free, fill_up)


def a_label_is_corrected(
    client: ApiClient, label: str, wrong: str, right: str, **pod: Any
) -> Situation:
    """Return one node whose label keeps pods off until it is corrected."""
    client.create(make_node("node-a", gpus=1, labels={label: wrong}))

    def write(value: str) -> None:
        client.patch("Node", "node-a", {"metadata": {"labels": {label: value}}})

    def undo(number: int) -> None:
        delete_quietly(client, f"next-{number}")
        write(wrong)

    return Situation(
        lambda number: make_pod(f"next-{number}", gpus=1, **pod),
        lambda _: write(right),
        undo,
    )


def mig_is_configured(client: ApiClient) -> Situation:
    """Return a node whose GPUs are being changed until they are ready."""
    return a_label_is_corrected(client, STATE, "pending", "success")


def a_product_label_is_corrected(client: ApiClient) -> Situation:
    """Return a node that has the asked GPU type, which its label says too late."""
    return a_label_is_corrected(client, PRODUCT, WRONG, RIGHT, annotations=TYPE)


def a_node_is_added(client: ApiClient) -> Situation:
    """Return a cluster without a GPU, to which a node with one is added."""
    client.create(make_node("plain"))

    def undo(number: int) -> None:
        delete_quietly(client, f"next-{number}")
        client.delete("Node", f"node-{number}")

    return Situation(
        lambda number: make_pod(f"next-{number}", gpus=1),
        lambda number: client.create(make_node(f"node-{number}", gpus=1)),
        undo,
    )


@contextlib.contextmanager
def late_product(plane: ControlPlane, extender: Mapping[str, Any]) -> Iterator[Product]:
    """Start everything; our watch, and nobody else's, lags."""
    proxy = plane.start_proxy()
    settings = {"extender": extender}
    with Product(plane, server=proxy.url, settings=settings) as product:
        product.start_all()
        proxy.delay(LAG_SECONDS)
        yield product


def wakings(plane: ControlPlane, since: int) -> int:
    """Return how many pods the service has woken after a position in the calls."""
    calls = plane.calls()[since:]
    return sum(call.verb == "patch" and call.is_of(NAME) for call in calls)


def see_all_bound(
    plane: ControlPlane,
    set_up: Callable[[ApiClient], Situation],
    extender: Mapping[str, Any],
    wakings_a_round: int,
    rounds: int,
) -> None:
    """Live through rounds; every pod must be bound, and woken no more than needed."""
    situation = set_up(plane.client)
    before = len(plane.calls())
    with late_product(plane, extender) as product:
        outcome = live_rounds(
            product.client, situation, rounds=rounds, timeout_seconds=WITHIN_SECONDS
        )
        calls = product.calls_of("filter")
    woken = wakings(plane, before)
    print(f"{outcome}; {calls} filter calls, {woken} wakings")  # noqa: T201 - figures, shown with -rP

    assert outcome.left == 0
    assert woken <= wakings_a_round * rounds


@pytest.mark.parametrize("rounds", [FEW, MANY])
@pytest.mark.parametrize(
    ("set_up", "extender", "wakings_a_round"),
    [
        # kube-scheduler's own count refused the pod, and knows when to try again.
        pytest.param(a_gpu_is_freed, {"counts": "trust"}, 0, id="a GPU is freed"),
        pytest.param(mig_is_configured, {}, 1, id="MIG is configured"),
        pytest.param(
            a_product_label_is_corrected, {}, 1, id="a product label is corrected"
        ),
    ],
)
def test_every_pod_is_bound_soon_after_there_is_room(
    control_plane: ControlPlane,
    set_up: Callable[[ApiClient], Situation],
    extender: Mapping[str, Any],
    wakings_a_round: int,
    rounds: int,
) -> None:
    see_all_bound(control_plane, set_up, extender, wakings_a_round, rounds)


@pytest.mark.parametrize(
    ("set_up", "extender"),
    [
        pytest.param(
            a_gpu_is_freed, {"counts": "enforce"}, id="a GPU is freed and we count"
        ),
        pytest.param(a_node_is_added, {}, id="a node is added"),
    ],
)
def test_nor_does_a_count_or_a_node_of_which_we_know_too_late_keep_a_pod_waiting(
    control_plane: ControlPlane,
    set_up: Callable[[ApiClient], Situation],
    extender: Mapping[str, Any],
) -> None:
    see_all_bound(control_plane, set_up, extender, 1, rounds=10)


@pytest.mark.long
@pytest.mark.parametrize(
    ("set_up", "extender"),
    [
        pytest.param(
            a_gpu_is_freed, {"counts": "enforce", **NO_WAKE_UP}, id="a GPU is freed"
        ),
        pytest.param(
            a_product_label_is_corrected, NO_WAKE_UP, id="a product label is corrected"
        ),
    ],
)
def test_without_wake_up_the_late_watch_leaves_pods_pending(
    control_plane: ControlPlane,
    set_up: Callable[[ApiClient], Situation],
    extender: Mapping[str, Any],
) -> None:
    situation = set_up(control_plane.client)
    with late_product(control_plane, extender) as product:
        outcome = live_rounds(
            product.client,
            situation,
            rounds=CONTROL_ROUNDS,
            timeout_seconds=LEFT_SECONDS,
            enough_left=ENOUGH_LEFT,
        )
    print(f"{outcome}; {outcome.left} left pending for {LEFT_SECONDS} s")  # noqa: T201 - figures, shown with -rP

    assert outcome.left > 0
