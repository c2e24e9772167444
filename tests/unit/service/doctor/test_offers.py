"""What nodes offer, compared with kube-scheduler's file as both change."""

import logging
from pathlib import Path

import pytest
import yaml

from cluster.ledger.changes import NodeSeen
from cluster.ledger.writer import SnapshotCell
from scoring.resources import ResourceScope
from service.doctor.offers import MAX_TOLD, OfferWatch
from tests.builders import GPU, make_ledger, make_node, make_node_record
from tests.doctor import make_scheduler_tree

MIG = "nvidia.com/mig-1g.10gb"
SCOPE = ResourceScope(("nvidia.com/gpu",), ("nvidia.com/",))


class Cluster:
    """Nodes, a file, and a watch over both."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "scheduler.yaml"
        self.cell = SnapshotCell()
        self._ledger = make_ledger(nodes=[make_node(name="a", gpus=4)])
        self.watch = OfferWatch(self.cell, SCOPE, self.path, lambda: 8888)

    def write(self, *resources: str, port: int = 8888) -> None:
        tree = make_scheduler_tree(resources, port=port)
        self.path.write_text(yaml.safe_dump(tree))

    def offer(self, name: str, **resources: str) -> None:
        record = make_node_record(make_node(name=name, resources=resources))
        self._ledger.apply(NodeSeen(record, is_partial=False))

    def lacking(self) -> tuple[str, ...]:
        self.cell.publish(self._ledger.build())
        self.watch.look()
        return self.watch.lacking


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.fields["resource"]  # type: ignore[attr-defined]  # our own
        for record in caplog.records
        if record.levelno == logging.WARNING
    ]


def test_what_is_sent_is_not_lacking(cluster: Cluster) -> None:
    cluster.write(GPU)

    assert cluster.lacking() == ()


def test_a_new_resource_is_told_once_until_the_file_has_it(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.write(GPU)
    cluster.lacking()
    cluster.offer("b", **{MIG: "7", "example.com/fpga": "1"})

    assert cluster.lacking() == (MIG,)
    cluster.offer("c", **{MIG: "7"})
    assert cluster.lacking() == (MIG,)
    cluster.write(GPU, MIG)
    assert cluster.lacking() == ()
    cluster.write(GPU)
    assert cluster.lacking() == (MIG,)
    assert told(caplog) == [MIG]


def test_a_file_that_calls_another_port_sends_nothing(cluster: Cluster) -> None:
    cluster.write(GPU, port=9999)

    assert cluster.lacking() == (GPU,)


def test_a_file_without_a_list_sends_everything(cluster: Cluster) -> None:
    cluster.write()
    cluster.offer("b", **{MIG: "7"})

    assert cluster.lacking() == ()


@pytest.mark.parametrize("text", [None, "", "[]", "kind: Pod", "a: [", "\x00"])
def test_a_file_that_cannot_be_read_tells_nothing(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, text: str | None
) -> None:
    if text is not None:
        cluster.path.write_text(text)

    assert cluster.lacking() == ()
    cluster.write(MIG)
    assert cluster.lacking() == (GPU,)
    assert told(caplog) == [GPU]


def test_names_in_the_log_are_bounded(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.write(GPU)
    cluster.offer("b", **{f"nvidia.com/x{number}": "1" for number in range(100)})

    assert len(cluster.lacking()) == 100
    assert len(told(caplog)) == MAX_TOLD


def test_without_a_file_or_a_cluster_nothing_is_looked_at(tmp_path: Path) -> None:
    cell = SnapshotCell()
    for path in (None, tmp_path / "scheduler.yaml"):
        watch = OfferWatch(cell, SCOPE, path, lambda: 8888)
        watch.look()
        assert watch.lacking == ()
