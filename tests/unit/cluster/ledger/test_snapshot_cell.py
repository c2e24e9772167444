import threading
from dataclasses import replace

import pytest

from cluster.ledger.writer import NotSyncedError, SnapshotCell
from scoring.snapshot import Snapshot
from tests.builders import make_node, make_snapshot

DEADLINE_SECONDS = 60.0


def snapshot_of(generation: int) -> Snapshot:
    return replace(make_snapshot(nodes=[make_node()]), generation=generation)


def test_before_the_first_snapshot_there_is_an_error_and_no_verdict() -> None:
    cell = SnapshotCell()

    assert not cell.is_synced
    with pytest.raises(NotSyncedError, match="no snapshot yet"):
        cell.current()


def test_the_newest_snapshot_is_the_current_one() -> None:
    cell = SnapshotCell()
    first, second = snapshot_of(1), snapshot_of(2)

    cell.publish(first)
    seen = [cell.current()]
    cell.publish(second)
    seen.append(cell.current())

    assert cell.is_synced
    assert seen[0] is first
    assert seen[1] is second


@pytest.mark.parametrize("generation", [4, 5])
def test_an_older_snapshot_is_refused(generation: int) -> None:
    cell = SnapshotCell()
    newest = snapshot_of(5)
    cell.publish(newest)

    with pytest.raises(
        ValueError, match=f"generation {generation} is not newer than 5"
    ):
        cell.publish(snapshot_of(generation))

    assert cell.current() is newest


@pytest.mark.parametrize(
    ("known", "is_newer"),
    [
        pytest.param(0, True, id="older one known"),
        pytest.param(3, False, id="this one known"),
        pytest.param(4, False, id="newer one asked for"),
    ],
)
def test_waiting_ends_at_once_if_there_is_a_newer_one(
    known: int, is_newer: bool
) -> None:
    cell = SnapshotCell()
    cell.publish(snapshot_of(3))

    assert cell.wait_newer(known, timeout_seconds=0.0) is is_newer


def test_waiting_for_the_first_one_has_its_limit() -> None:
    assert not SnapshotCell().wait_newer(0, timeout_seconds=0.0)


def test_a_snapshot_wakes_those_who_wait() -> None:
    cell = SnapshotCell()
    cell.publish(snapshot_of(1))
    publisher = threading.Thread(target=cell.publish, args=(snapshot_of(2),))

    publisher.start()
    is_newer = cell.wait_newer(1, timeout_seconds=DEADLINE_SECONDS)
    publisher.join(DEADLINE_SECONDS)

    assert is_newer
    assert cell.current().generation == 2
