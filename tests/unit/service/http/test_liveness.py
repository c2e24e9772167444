import threading
from collections.abc import Callable

import numpy as np
import pytest

from cluster.ledger.writer import SnapshotCell
from extender.wire.answers import FilterAnswer
from service.http.health import (
    MAX_WAITING_PROBES,
    Liveness,
    SchedulerHealthError,
    SelfFilterError,
    filter_ourselves,
)
from service.runtime import build_verb_options
from tests.builders import make_node, make_snapshot
from tests.extender_app import ExtenderApp, make_settings
from tests.service_process import wait_until

LIVEZ = "/livez/extender"


def build(  # noqa: PLR0913 - a test says what matters to it
    filter_once: object = None,
    *,
    is_synced: bool = True,
    is_stuck: bool = False,
    answer_seconds: float = 0.01,
    ask_scheduler: Callable[[], None] | None = None,
    scheduler_seconds: float = 0.01,
) -> Liveness:
    """Return liveness over a self-filter of the test's own."""
    cell = SnapshotCell()
    if is_synced:
        cell.publish(make_snapshot())
    call = filter_once if callable(filter_once) else lambda: None
    return Liveness(
        cell,
        call,
        lambda: is_stuck,
        ask_scheduler=ask_scheduler,
        answer_seconds=answer_seconds,
        scheduler_seconds=scheduler_seconds,
    )


def test_an_extender_that_filters_is_alive() -> None:
    app = ExtenderApp(nodes=[make_node(name="a", gpus=1), make_node(name="b")])

    answer = app.client.simulate_get(LIVEZ)

    assert (answer.status_code, answer.text) == (200, "ok")


def counts(app: ExtenderApp) -> list[bytes]:
    """Return all metrics but those of the process, which change by themselves."""
    lines = app.metrics.render().splitlines()
    return [line for line in lines if not line.startswith(b"process_")]


@pytest.mark.parametrize("nodes", [0, 1, 5])
def test_the_self_filter_leaves_no_trace(nodes: int) -> None:
    app = ExtenderApp(nodes=[make_node(name=f"n{i}") for i in range(nodes)])
    before = counts(app)

    app.client.simulate_get(LIVEZ)

    assert counts(app) == before


def test_an_extender_that_has_not_read_the_cluster_is_alive() -> None:
    app = ExtenderApp(is_synced=False)

    assert app.client.simulate_get(LIVEZ).status_code == 200


def test_a_draining_extender_is_alive() -> None:
    app = ExtenderApp(nodes=[make_node(name="a", gpus=1)])
    app.health.drain()

    assert app.client.simulate_get(LIVEZ).status_code == 200


def test_an_extender_whose_calls_all_hang_is_not_alive() -> None:
    app = ExtenderApp(is_stuck=lambda: True)

    answer = app.client.simulate_get(LIVEZ)

    assert answer.status_code == 503
    assert answer.text == "every call under way has passed its deadline"


def test_a_self_filter_that_hangs_is_asked_once_and_leaves_one_thread() -> None:
    release, started = threading.Event(), []

    def hang() -> None:
        started.append(threading.current_thread())
        release.wait()

    liveness = build(hang)

    found = [liveness.not_ready_reasons(), liveness.not_ready_reasons()]

    assert found == [["self-filter: no answer within 0.01 s"]] * 2
    assert len(started) == 1
    release.set()
    started[0].join()
    assert liveness.not_ready_reasons() in ([], found[0])
    assert len(started) == 2


def test_a_self_filter_that_fails_is_said_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> None:
        raise KeyError("a bug")

    liveness = build(fail, answer_seconds=30.0)

    assert liveness.not_ready_reasons() == ["self-filter: failed, see the log"]
    assert [record.message for record in caplog.records] == ["self-filter failed"]


@pytest.mark.parametrize("is_synced", [True, False])
def test_a_scheduler_that_is_not_healthy_is_said(is_synced: bool) -> None:
    def say_no() -> None:
        raise SchedulerHealthError("says 500")

    liveness = build(
        is_synced=is_synced,
        answer_seconds=30.0,
        ask_scheduler=say_no,
        scheduler_seconds=30.0,
    )

    assert liveness.not_ready_reasons() == ["kube-scheduler: says 500"]


def test_a_scheduler_that_hangs_is_asked_once_beside_the_self_filter() -> None:
    release, asked = threading.Event(), []

    def hang() -> None:
        asked.append(1)
        release.wait()

    liveness = build(answer_seconds=30.0, ask_scheduler=hang)

    found = [liveness.not_ready_reasons(), liveness.not_ready_reasons()]

    release.set()
    assert found == [["kube-scheduler: no answer within 0.01 s"]] * 2
    assert len(asked) == 1


def test_more_probes_than_may_wait_are_told_what_the_last_one_was() -> None:
    release = threading.Event()
    places = threading.Semaphore(0)

    def hang() -> None:
        places.release()
        release.wait()

    liveness = build(hang, answer_seconds=60.0)
    threads = [
        threading.Thread(target=liveness.not_ready_reasons)
        for _ in range(MAX_WAITING_PROBES)
    ]
    for thread in threads:
        thread.start()
    assert places.acquire(timeout=60)
    wait_until(lambda: liveness._places._value == 0, "both wait")

    assert liveness.not_ready_reasons() == []

    release.set()
    for thread in threads:
        thread.join()


def test_an_answer_that_loses_a_node_is_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    snapshot = make_snapshot(nodes=[make_node(name="a", gpus=1)])
    options = build_verb_options(make_settings())

    def lose(*_: object) -> FilterAnswer:
        empty = b'{"NodeNames":[],"FailedNodes":{},"FailedAndUnresolvableNodes":{}}'
        return FilterAnswer(empty, np.empty(0, dtype=np.intp), None)

    monkeypatch.setattr("service.http.health.encode_filter", lose)

    with pytest.raises(SelfFilterError, match="not in the answer"):
        filter_ourselves(snapshot, options)
