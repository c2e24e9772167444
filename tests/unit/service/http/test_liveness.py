import threading

import numpy as np
import pytest

from cluster.ledger.writer import SnapshotCell
from extender.wire.answers import FilterAnswer
from service.http.health import Liveness, SelfFilterError, filter_ourselves
from service.runtime import build_verb_options
from tests.builders import make_node, make_snapshot
from tests.extender_app import ExtenderApp, make_settings

LIVEZ = "/livez/extender"


def build(
    filter_once: object = None, *, is_synced: bool = True, is_stuck: bool = False
) -> Liveness:
    """Return liveness over a self-filter of the test's own."""
    cell = SnapshotCell()
    if is_synced:
        cell.publish(make_snapshot())
    call = filter_once if callable(filter_once) else lambda: None
    return Liveness(cell, call, lambda: is_stuck, answer_seconds=0.01)


def test_an_extender_that_filters_is_alive() -> None:
    app = ExtenderApp(nodes=[make_node(name="a", gpus=1), make_node(name="b")])

    answer = app.client.simulate_get(LIVEZ)

    assert (answer.status_code, answer.text) == (200, "ok")


@pytest.mark.parametrize("nodes", [0, 1, 5])
def test_the_self_filter_leaves_no_trace(nodes: int) -> None:
    app = ExtenderApp(nodes=[make_node(name=f"n{i}") for i in range(nodes)])
    before = app.metrics.render().splitlines()

    app.client.simulate_get(LIVEZ)

    assert app.metrics.render().splitlines() == before


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

    liveness = build(fail)
    liveness._answer_seconds = 30.0

    assert liveness.not_ready_reasons() == ["self-filter: failed, see the log"]
    assert [record.message for record in caplog.records] == ["self-filter failed"]


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
