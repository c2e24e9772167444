import pytest

from cluster.ledger.changes import NodeSeen
from extender.verbs.fresh_snapshot import MAX_SAVED_WAITS, SnapshotWait
from scoring.snapshot import Snapshot
from tests.builders import make_ledger, make_node, make_node_record


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Published:
    """Snapshots, of which the second is published during a wait or never."""

    def __init__(self, *, comes: bool) -> None:
        ledger = make_ledger(nodes=[make_node(gpus=1)])
        self.first = ledger.build()
        ledger.apply(NodeSeen(make_node_record(make_node(gpus=2))))
        self.second = ledger.build()
        self.is_published = False
        self.comes = comes
        self.waits: list[float] = []

    def current(self) -> Snapshot:
        return self.second if self.is_published else self.first

    def wait_newer(self, generation: int, timeout_seconds: float) -> bool:
        if timeout_seconds and not self.is_published:
            self.waits.append(timeout_seconds)
            self.is_published = self.comes
        return self.current().generation > generation


def test_a_snapshot_that_comes_in_time_is_looked_at() -> None:
    published = Published(comes=True)

    again = SnapshotWait(published, 0.02).wait_for_newer(published.first)

    assert again is published.second
    assert published.waits == [0.02]


def test_a_wait_in_vain_ends_and_changes_nothing() -> None:
    published = Published(comes=False)

    assert SnapshotWait(published, 0.02).wait_for_newer(published.first) is None
    assert published.waits == [0.02]


def test_a_snapshot_that_is_there_already_costs_no_wait() -> None:
    published = Published(comes=False)
    published.is_published = True

    assert (
        SnapshotWait(published, 0.02).wait_for_newer(published.first)
        is published.second
    )
    assert published.waits == []


def test_zero_milliseconds_switch_it_off() -> None:
    published = Published(comes=True)
    published.is_published = True

    assert SnapshotWait(published, 0.0).wait_for_newer(published.first) is None


@pytest.mark.parametrize(
    ("seconds", "more"),
    [
        pytest.param(0.1, 0, id="too soon for another"),
        pytest.param(0.2, 1, id="one more after a fifth of a second"),
        pytest.param(3600.0, int(MAX_SAVED_WAITS), id="a quiet hour saves no more"),
    ],
)
def test_a_storm_of_refusals_waits_a_few_times_only(seconds: float, more: int) -> None:
    clock = Clock()
    published = Published(comes=False)
    snapshot_wait = SnapshotWait(published, 0.02, clock)

    for _ in range(100):
        snapshot_wait.wait_for_newer(published.first)

    assert len(published.waits) == MAX_SAVED_WAITS

    clock.now += seconds
    for _ in range(100):
        snapshot_wait.wait_for_newer(published.first)

    assert len(published.waits) == MAX_SAVED_WAITS + more
