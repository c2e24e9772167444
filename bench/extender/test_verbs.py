"""Both verbs through the whole application, called in process."""

import io
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

import falcon.testing
import msgspec
import pytest

from bench.clusters import build_snapshot, call_body, node_names
from cluster.ledger.writer import SnapshotCell
from extender.tracking.last_answers import LastAnswers
from service.http.app import create_app
from service.http.health import Health
from service.metrics import Metrics
from service.runtime import build_verb_options
from service.settings.process import ClusterSettings
from service.settings.settings import Settings
from service.webhook import Webhook

SIZES: Final = (100, 1000, 5000, 10_000)
SETTINGS: Final = Settings(
    cluster=ClusterSettings(source="file", files=("cluster.json",))
)

Benchmark = Callable[..., Any]
Call = Callable[[], bytes]


@cache
def make_app(count: int) -> Callable[..., Any]:
    """Return the application over a cluster of `count` nodes."""
    options = build_verb_options(SETTINGS)
    cell, metrics = SnapshotCell(), Metrics()
    cell.publish(build_snapshot(count, options.label_keys))
    webhook = Webhook(cell, SETTINGS, metrics, Path())
    health = Health(cell, dict, SETTINGS.cluster.stale_after_seconds)
    return create_app(
        cell,
        lambda: options,
        webhook.resource,
        metrics,
        health,
        answered=LastAnswers(),
    )


def prepare(count: int, verb: str, names: list[str]) -> Call:
    """Return a function that calls a verb about `names`."""
    app, body = make_app(count), call_body(names)
    environ = falcon.testing.create_environ(f"/scheduler/{verb}", method="POST")
    environ["CONTENT_LENGTH"] = str(len(body))

    def call() -> bytes:
        statuses: list[str] = []
        fresh = {**environ, "wsgi.input": io.BytesIO(body)}
        answer = b"".join(app(fresh, lambda status, _headers: statuses.append(status)))
        assert statuses == ["200 OK"]
        return answer

    return call


@pytest.mark.parametrize("count", SIZES)
def test_filter(benchmark: Benchmark, count: int) -> None:
    answer = msgspec.json.decode(benchmark(prepare(count, "filter", node_names(count))))

    assert 0 < len(answer["NodeNames"]) < count
    assert len(answer["NodeNames"]) + len(answer["FailedAndUnresolvableNodes"]) == count


@pytest.mark.parametrize("count", SIZES)
def test_prioritize(benchmark: Benchmark, count: int) -> None:
    answer = msgspec.json.decode(
        benchmark(prepare(count, "prioritize", node_names(count)))
    )

    assert len(answer) == count
    assert {entry["Score"] for entry in answer} >= {0, 10}


@pytest.mark.parametrize("count", SIZES)
def test_filter_then_prioritize_what_passed(benchmark: Benchmark, count: int) -> None:
    to_filter = prepare(count, "filter", node_names(count))
    passed = msgspec.json.decode(to_filter())["NodeNames"]
    to_prioritize = prepare(count, "prioritize", passed)

    answer = benchmark(lambda: (to_filter(), to_prioritize())[1])

    assert len(msgspec.json.decode(answer)) == len(passed)
