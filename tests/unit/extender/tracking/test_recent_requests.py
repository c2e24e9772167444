"""What pods have asked for within the last hour."""

from cluster.ledger.changes import PodSeen
from cluster.ledger.ledger import Ledger
from cluster.ledger.writer import SnapshotCell
from extender.tracking.recent_requests import KEPT_SECONDS, RecentRequests
from tests.builders import make_ledger, make_node, make_pod, make_pod_record


class Cluster:
    """A ledger in which pods come, with the requests of the last hour beside it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.cell = SnapshotCell()
        self._ledger: Ledger = make_ledger(nodes=[make_node(gpus=8)])
        self.cell.publish(self._ledger.build())
        self._requests = RecentRequests(self.cell, lambda: self.now)

    def come(self, name: str, gpus: int, node: str = "node-1") -> None:
        pod = make_pod(name=name, gpus=gpus, node_name=node)
        self._ledger.apply(PodSeen(make_pod_record(pod), is_partial=False))
        self.cell.publish(self._ledger.build())
        self._requests.look()

    def gpus(self) -> list[int]:
        return [dict(asked)["nvidia.com/gpu"] for asked in self._requests.current()]


def test_requests_of_pods_that_came_are_told_once_each() -> None:
    cluster = Cluster()

    for name, gpus in {"a": 1, "b": 4, "c": 1}.items():
        cluster.come(name, gpus)

    assert sorted(cluster.gpus()) == [1, 4]


def test_after_an_hour_a_request_is_told_no_more() -> None:
    cluster = Cluster()
    cluster.come("a", 1)
    cluster.come("b", 4)
    cluster.now = KEPT_SECONDS
    assert sorted(cluster.gpus()) == [1, 4]

    cluster.come("c", 4)
    cluster.now += 1

    assert cluster.gpus() == [4]


def test_a_pod_that_waits_asks_all_the_time() -> None:
    cluster = Cluster()
    cluster.come("a", 2, node="")

    cluster.now = 3 * KEPT_SECONDS

    assert cluster.gpus() == [2]


def test_nobody_asks_before_the_cluster_is_read() -> None:
    requests = RecentRequests(SnapshotCell())

    requests.look()

    assert requests.current() == []
