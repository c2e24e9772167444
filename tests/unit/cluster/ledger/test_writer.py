import logging
import time

import pytest

from cluster.ledger.changes import Change, NodeSeen, NodesListed, PodSeen, PodsListed
from cluster.ledger.failures import FailureLimits, Failures
from cluster.ledger.ledger import Ledger
from cluster.ledger.writer import LedgerWriter, SnapshotCell
from scoring.snapshot import Snapshot
from tests.builders import GPU, make_node, make_node_record, make_pod, make_pod_record

DEADLINE_SECONDS = 60.0
NODE = make_node_record(make_node(gpus=8))
LISTED: tuple[Change, ...] = (NodesListed((NODE,)), PodsListed(()))
# No record at all: a mistake of our own that no decoder makes.
BROKEN = NodeSeen(None)  # type: ignore[arg-type]  # the fault under test


class RecordingCell(SnapshotCell):
    """A cell that remembers all that was published."""

    def __init__(self) -> None:
        super().__init__()
        self.published: list[Snapshot] = []
        self._first_seconds: float | None = None

    def publish(self, snapshot: Snapshot) -> None:
        super().publish(snapshot)
        self.published.append(snapshot)
        if self._first_seconds is None:
            self._first_seconds = time.monotonic()

    def seconds_since_first(self) -> float:
        """Return the age of the first snapshot, 0 while there is none."""
        first = self._first_seconds
        return 0.0 if first is None else time.monotonic() - first


class Harness:
    """A writer and what it told."""

    def __init__(self) -> None:
        self.cell = RecordingCell()
        self.errors = 0
        self.writer = LedgerWriter(Ledger(), self.cell, self._count_error)

    def _count_error(self) -> None:
        self.errors += 1

    def run(self) -> list[int]:
        """Start and stop the writer; return free GPUs of each published snapshot."""
        self.writer.start()
        self.writer.stop()
        return [int(snapshot.free(GPU).sum()) for snapshot in self.cell.published]


def bound(name: str, gpus: int) -> PodSeen:
    return PodSeen(make_pod_record(make_pod(name=name, gpus=gpus, node_name="node-1")))


def test_changes_that_wait_together_are_published_once() -> None:
    harness = Harness()
    harness.writer.submit(*LISTED)
    harness.writer.submit(bound("a", 1))
    harness.writer.submit(bound("b", 2), bound("c", 3))

    assert harness.run() == [2]
    assert harness.errors == 0


def test_nothing_is_published_before_both_lists_are_counted() -> None:
    harness = Harness()
    harness.writer.submit(LISTED[0])
    harness.writer.submit(bound("a", 1))

    assert harness.run() == []
    assert not harness.cell.is_synced


def test_an_empty_cluster_is_published_too() -> None:
    harness = Harness()
    harness.writer.submit(NodesListed(()), PodsListed(()))

    assert harness.run() == [0]
    assert harness.cell.is_synced


def test_changes_that_make_no_difference_are_not_published() -> None:
    harness = Harness()
    harness.writer.submit(*LISTED)
    harness.run()

    # A second writer goes on where the first one stopped.
    again = LedgerWriter(harness.writer._ledger, harness.cell, harness._count_error)
    again.submit(NodeSeen(NODE))
    again.start()
    again.stop()

    assert len(harness.cell.published) == 1


def test_what_was_submitted_before_the_stop_is_applied() -> None:
    harness = Harness()
    harness.writer.submit(*LISTED)
    harness.writer.start()
    for number in range(8):
        harness.writer.submit(bound(str(number), 1))

    harness.writer.stop()

    assert harness.cell.current().free(GPU).tolist() == [0]
    assert not harness.writer._thread.is_alive()


def test_a_node_is_sound_again_without_any_change() -> None:
    """The writer wakes by itself when the time of a failing node is over."""
    harness = Harness()
    span = 0.05
    # Time stands until the node has been seen to fail, however long that takes.
    clock = harness.cell.seconds_since_first
    ledger = Ledger((), Failures(FailureLimits(owners=1, seconds=span), clock))
    harness.writer = LedgerWriter(ledger, harness.cell, harness._count_error)
    failed = make_pod(
        gpus=1,
        node_name="node-1",
        phase="Failed",
        status={"reason": "UnexpectedAdmissionError"},
    )
    harness.writer.submit(*LISTED, PodSeen(make_pod_record(failed)))
    harness.writer.start()

    assert harness.cell.wait_newer(1, DEADLINE_SECONDS)
    harness.writer.stop()
    assert [snapshot.failing.tolist() for snapshot in harness.cell.published] == [
        [True],
        [False],
    ]


def test_a_stop_without_changes_publishes_nothing() -> None:
    assert Harness().run() == []


def test_a_change_that_fails_is_reported_and_the_others_are_applied(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = Harness()
    harness.writer.submit(*LISTED, bound("a", 1))
    harness.writer.submit(BROKEN, bound("b", 2))
    harness.writer.submit(BROKEN)
    harness.writer.submit(bound("c", 3))

    with caplog.at_level(logging.ERROR):
        free = harness.run()

    assert free[-1] == 2
    assert harness.errors == 2
    assert [record.message for record in caplog.records] == [
        "a change could not be applied"
    ] * 2
    assert all(record.exc_info for record in caplog.records)


def test_a_snapshot_that_cannot_be_published_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = Harness()
    newer = Ledger()
    for change in LISTED:
        newer.apply(change)
    newer.build()
    harness.cell.publish(newer.build())  # generation 2: the writer's first is 1
    harness.writer.submit(*LISTED)

    with caplog.at_level(logging.ERROR):
        harness.run()

    assert harness.errors == 1
    assert len(harness.cell.published) == 1
