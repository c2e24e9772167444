"""The waker's own thread."""

import threading

import pytest

from tests.fakes.waking import Scene


def test_a_waker_that_is_stopped_before_the_first_snapshot_ends() -> None:
    scene = Scene(is_synced=False)

    scene.waker.start()
    scene.waker.stop()

    assert not scene.waker._thread.is_alive()


def test_a_fault_of_our_own_does_not_end_the_thread(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene()
    is_told = threading.Event()

    def fail_once() -> float:
        monkeypatch.undo()
        is_told.set()
        raise ValueError("broken")

    monkeypatch.setattr(scene.waker, "step", fail_once)

    scene.waker.start()
    is_told.wait(60)
    is_alive = scene.waker._thread.is_alive()
    scene.waker.stop()

    assert is_alive
    assert [record.getMessage() for record in caplog.records] == ["wake-up failed"]
