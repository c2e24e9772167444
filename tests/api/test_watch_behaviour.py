"""What the watched cache does with an API server that behaves.

These tests ask nothing of the fake that a real control plane cannot do, so that both
can be held to them: `put`, `remove`, `cut`, `away` and `forget_history`.
"""

from typing import Any

import pytest

from scoring.protocols import LimitMaxima
from tests.builders import GPU, make_node, make_pod
from tests.fakes.api_server import FakeApiServer
from tests.fakes.watched_cluster import WatchedCluster, free_gpus


def make_bound(name: str, gpus: int = 1, **more: Any) -> dict[str, Any]:
    """Return a pod on node ``a``."""
    return make_pod(name=name, gpus=gpus, node_name="a", **more)


def test_what_was_there_before_the_start_is_counted(
    api: FakeApiServer, cluster: WatchedCluster
) -> None:
    api.put(make_node(name="a", gpus=8), make_bound("x", 3))

    with cluster.synced():
        snapshot = cluster.cell.current()

    assert free_gpus(snapshot, "a") == 5


def test_an_empty_cluster_is_a_cluster(
    api: FakeApiServer, cluster: WatchedCluster
) -> None:
    with cluster.synced():
        assert cluster.cell.current().nodes.names == ()

        api.put(make_node(name="a", gpus=8))
        cluster.wait_free(a=8)


def test_a_list_of_many_pages_is_read_to_its_end(
    api: FakeApiServer, cluster: WatchedCluster
) -> None:
    api.put(make_node(name="a", gpus=8), *(make_bound(f"x{i}") for i in range(7)))

    with cluster.synced():
        snapshot = cluster.cell.current()

    assert free_gpus(snapshot, "a") == 1
    assert len(snapshot.bound_pods) == 7


def test_pods_come_and_go(api: FakeApiServer, cluster: WatchedCluster) -> None:
    api.put(make_node(name="a", gpus=8))

    with cluster.synced():
        api.put(make_bound("x", 2), make_bound("y", 3))
        cluster.wait_free(a=3)
        api.remove(make_bound("x"))
        cluster.wait_free(a=5)


def test_a_pending_pod_counts_once_it_is_bound(
    api: FakeApiServer, cluster: WatchedCluster
) -> None:
    api.put(make_node(name="a", gpus=8))

    with cluster.synced():
        api.put(make_pod(name="x", gpus=2))
        waiting = cluster.wait_for(lambda s: len(s.pending) == 1, "a pending pod")
        api.put(make_bound("x", 2))
        cluster.wait_free(a=6)
        bound = cluster.cell.current()

    assert free_gpus(waiting, "a") == 8
    assert not bound.pending


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_frees_its_gpus_at_the_phase_change(
    api: FakeApiServer, cluster: WatchedCluster, phase: str
) -> None:
    api.put(make_node(name="a", gpus=8), make_bound("x", 2))

    with cluster.synced():
        api.put(make_bound("x", 2, phase=phase))

        cluster.wait_free(a=8)


def test_a_pod_being_deleted_holds_its_gpus_until_it_is_gone(
    api: FakeApiServer, cluster: WatchedCluster
) -> None:
    api.put(make_node(name="a", gpus=8), make_bound("x", 8))
    leaving = {"deletionTimestamp": "2026-11-28T00:00:00Z"}

    with cluster.synced():
        api.put(make_bound("x", 8, metadata=leaving), make_node(name="b", gpus=1))
        cluster.wait_free(a=0, b=1)
        api.remove(make_bound("x"))
        cluster.wait_free(a=8)


def test_devices_go_and_come_back_and_bookings_survive(
    api: FakeApiServer, cluster: WatchedCluster
) -> None:
    api.put(make_node(name="a", gpus=8), make_bound("x", 4))

    with cluster.synced():
        for gpus, free in ((0, 0), (None, 0), (8, 4)):
            api.put(make_node(name="a", gpus=gpus), make_node(name="b", gpus=free))
            cluster.wait_free(a=free, b=free)


def test_a_node_that_comes_back_still_has_its_pods(
    api: FakeApiServer, cluster: WatchedCluster
) -> None:
    api.put(make_node(name="a", gpus=8), make_bound("x", 3))

    with cluster.synced():
        api.remove(make_node(name="a"))
        cluster.wait_free(a=None)
        api.put(make_node(name="a", gpus=8))
        cluster.wait_free(a=5)


def test_a_broken_watch_goes_on_where_it_was(
    api: FakeApiServer, cluster: WatchedCluster
) -> None:
    api.put(make_node(name="a", gpus=8))

    with cluster.synced():
        for count in range(1, 5):
            api.cut()
            api.put(make_bound(f"x{count}"))
            cluster.wait_free(a=8 - count)

    assert cluster.observer.counts["listed", "pods", "0"] == 1


def test_what_happened_during_an_outage_is_seen_after_it(
    api: FakeApiServer, cluster: WatchedCluster
) -> None:
    api.put(make_node(name="a", gpus=8), make_bound("x", 4))

    with cluster.synced():
        with api.away():
            api.remove(make_bound("x"))
            api.put(make_bound("y", 1))
            cluster.observer.wait_for("watch_restarted", "pods", "unreachable", 3)
            during = cluster.cell.current()
        cluster.wait_free(a=7)

    assert free_gpus(during, "a") == 4
    assert all(delay <= 4.0 for delay in cluster.delays)


def test_a_list_after_lost_history_replaces(
    api: FakeApiServer, cluster: WatchedCluster
) -> None:
    api.put(make_node(name="a", gpus=8), make_bound("x", 8))

    with cluster.synced():
        with api.away():
            api.remove(make_bound("x"))
            api.put(make_bound("y", 1))
            api.forget_history()
        cluster.wait_free(a=7)
        api.put(make_bound("z", 1))
        cluster.wait_free(a=6)
        cluster.observer.wait_for("watch_restarted", "pods", "expired")


def test_the_resource_that_a_device_class_carries_is_known(
    api: FakeApiServer, cluster: WatchedCluster
) -> None:
    device_class = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu.example.com"},
        "spec": {"extendedResourceName": GPU},
    }
    api.put(make_node(name="a"))

    with cluster.synced():
        api.put(device_class)
        cluster.wait_for(
            lambda snapshot: snapshot.device_class_resources == {GPU}, "the resource"
        )
        api.remove(device_class)
        cluster.wait_for(
            lambda snapshot: not snapshot.device_class_resources, "no resource"
        )


def test_the_maxima_of_limit_ranges_are_known(
    api: FakeApiServer, cluster: WatchedCluster
) -> None:
    limit_range = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "limits", "namespace": "default"},
        "spec": {"limits": [{"type": "Container", "max": {"cpu": "4"}}]},
    }
    api.put(make_node(name="a"))

    with cluster.synced():
        api.put(limit_range)
        cluster.wait_for(
            lambda snapshot: (
                snapshot.limit_maxima == {"default": LimitMaxima((("cpu", 4000),))}
            ),
            "the maximum",
        )
        api.remove(limit_range)
        cluster.wait_for(lambda snapshot: not snapshot.limit_maxima, "no maximum")


def test_ages_grow_during_an_outage_and_shrink_after_it(
    api: FakeApiServer, cluster: WatchedCluster
) -> None:
    with cluster.synced():
        with api.away():
            cluster.observer.wait_for("watch_restarted", "nodes", "unreachable")
            cluster.observer.wait_for("watch_restarted", "pods", "unreachable")
            cluster.skew_seconds = 1000.0
            during = cluster.watch.ages()
        api.put(make_node(name="a", gpus=1), make_bound("x"))
        cluster.wait_free(a=0)
        after = cluster.watch.ages()

    assert set(during) == {"nodes", "pods"}
    assert min(during.values()) >= 1000
    assert max(after.values()) < 1000


def test_nobody_is_synced_before_pods_are_counted(
    api: FakeApiServer, cluster: WatchedCluster
) -> None:
    api.withhold("pods", 503)
    api.put(make_node(name="a", gpus=8))

    with cluster:
        cluster.observer.wait_for("listed", "nodes", "1")
        cluster.observer.wait_for("watch_restarted", "pods", "http_503", 2)
        is_early = cluster.cell.is_synced
        api.withhold("pods", None)
        cluster.wait_synced()

    assert not is_early
    assert cluster.cell.is_synced
