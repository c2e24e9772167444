import io
import json

import falcon.testing
import pytest

from cluster.ledger.writer import SnapshotCell
from service.http.health import Health
from service.http.middleware import MUTATE_PATH, RequestMiddleware
from service.logs import REQUEST_ID
from service.metrics import Metrics
from tests.builders import make_node, make_pod
from tests.extender_app import FILTER, PRIORITIZE, ExtenderApp


@pytest.fixture
def app() -> ExtenderApp:
    return ExtenderApp(nodes=[make_node(name="a", gpus=1)])


def count(app: ExtenderApp, verb: str, outcome: str) -> float | None:
    """Return how many requests of a verb ended so."""
    return app.metrics.registry.get_sample_value(
        "gpu_extender_requests_total", {"verb": verb, "outcome": outcome}
    )


def test_calls_are_counted_by_verb_and_outcome(app: ExtenderApp) -> None:
    app.call(FILTER, make_pod(gpus=1), ["a"])
    app.call(PRIORITIZE, make_pod(gpus=1), ["a"])
    app.send(FILTER, b"not json")

    assert count(app, "filter", "ok") == 1
    assert count(app, "filter", "bad_request") == 1
    assert count(app, "prioritize", "ok") == 1


def test_a_call_before_the_first_list_is_counted_as_unavailable() -> None:
    app = ExtenderApp(is_synced=False)

    app.send(FILTER, json.dumps({"Pod": make_pod(), "NodeNames": []}).encode())

    assert count(app, "filter", "unavailable") == 1


def test_a_fault_of_our_own_is_500_with_a_traceback_in_the_log(
    app: ExtenderApp,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(app.cell, "current", fail)

    body = json.dumps({"Pod": make_pod(gpus=1), "NodeNames": ["a"]})

    answer = app.send(FILTER, body.encode())

    assert answer.status_code == 500
    assert answer.json["description"] == "a fault of gpu-extender"
    assert count(app, "filter", "error") == 1
    (record,) = caplog.records
    assert record.message == "request failed"
    assert record.exc_info is not None


def test_a_review_is_refused_by_its_length_alone(app: ExtenderApp) -> None:
    answer = app.client.simulate_post(
        MUTATE_PATH, headers={"Content-Length": str(7 * 2**20 + 1)}
    )

    assert answer.status_code == 413
    assert count(app, "mutate", "bad_request") == 1


def test_a_pod_to_explain_is_refused_by_its_length_alone(app: ExtenderApp) -> None:
    answer = app.client.simulate_post(
        "/explain", headers={"Content-Length": str(7 * 2**20 + 1)}
    )

    assert answer.status_code == 413


def test_a_review_that_is_none_is_a_bad_request(app: ExtenderApp) -> None:
    answer = app.client.simulate_post(MUTATE_PATH, body=b"{}")

    assert answer.status_code == 400
    assert count(app, "mutate", "bad_request") == 1


def test_the_id_of_a_request_ends_with_it(app: ExtenderApp) -> None:
    app.client.simulate_get("/healthz", headers={"X-Request-Id": "mine"})

    assert REQUEST_ID.get() == ""


@pytest.mark.parametrize(
    ("given", "used"),
    [
        pytest.param("mine", "mine", id="as it was given"),
        pytest.param("x" * 128, "x" * 128, id="as long as it may be"),
        pytest.param("x" * 129, "x" * 128, id="one more"),
        pytest.param("x" * 200_000, "x" * 128, id="a giant"),
        pytest.param("a\tb\x1b[31mc\x7f", "ab[31mc", id="what a terminal obeys"),
        pytest.param("\u00e9\u00a0\u00ff", "\u00e9\u00ff", id="beyond ASCII"),
        pytest.param("\t" * 500 + "x" * 500, "x" * 128, id="little of it printable"),
        pytest.param("\x01" * 200_000, "", id="nothing printable"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_so_much_of_a_callers_id_is_used(given: str, used: str) -> None:
    middleware = RequestMiddleware(
        Metrics(), Health(SnapshotCell(), dict, stale_after_seconds=1.0)
    )
    environ = falcon.testing.create_environ("/healthz")
    environ["HTTP_X_REQUEST_ID"] = given

    middleware.process_request(falcon.Request(environ), falcon.Response())

    own = REQUEST_ID.get()
    REQUEST_ID.set("")
    assert own == used or (not used and own.endswith("-1"))


def test_bodies_of_a_wrong_path_are_not_looked_at(app: ExtenderApp) -> None:
    answer: falcon.testing.Result = app.send("/scheduler/bind", b"{}")

    assert answer.status_code == 404


def test_a_body_that_does_not_arrive_is_the_callers_fault(
    app: ExtenderApp, caplog: pytest.LogCaptureFixture
) -> None:
    class SlowBody(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, _buffer: object) -> int:
            raise TimeoutError("the read operation timed out")

    answer = app.client.simulate_post(
        MUTATE_PATH,
        headers={"Content-Length": "10"},
        extras={"wsgi.input": io.BufferedReader(SlowBody())},
    )

    assert answer.status_code == 408
    assert count(app, "mutate", "bad_request") == 1
    assert caplog.records == []
