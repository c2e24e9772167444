import falcon
import falcon.testing
import pytest

from cluster.ledger.writer import SnapshotCell
from service.http.health import Health, HealthResource, ReadinessResource
from service.http.middleware import RequestMiddleware
from service.metrics import Metrics
from tests.builders import make_snapshot


def build_health(
    *, is_synced: bool = True, ages: dict[str, float] | None = None
) -> Health:
    """Return health of a process whose listeners are not up yet."""
    cell = SnapshotCell()
    if is_synced:
        cell.publish(make_snapshot())
    return Health(cell, lambda: ages or {}, stale_after_seconds=180.0)


def build_client(health: Health) -> falcon.testing.TestClient:
    """Return a client of the probes."""
    app = falcon.App(middleware=[RequestMiddleware(Metrics(), health)])
    app.add_route("/healthz", HealthResource())
    app.add_route("/readyz", ReadinessResource(health.not_ready_reasons))
    app.add_route(
        "/readyz/extender", ReadinessResource(health.extender_not_ready_reasons)
    )
    return falcon.testing.TestClient(app)


def test_nothing_stands_in_the_way_of_a_served_and_synced_process() -> None:
    health = build_health(ages={"nodes": 1.0, "pods": 179.0})
    health.serve()

    assert health.not_ready_reasons() == []
    assert health.extender_not_ready_reasons() == []


def test_a_process_is_not_ready_before_its_listeners_are_up() -> None:
    health = build_health()

    assert health.not_ready_reasons() == ["the listeners are not up yet"]
    assert health.extender_not_ready_reasons() == ["the listeners are not up yet"]


def test_an_unread_cluster_holds_back_the_extender_alone() -> None:
    health = build_health(is_synced=False)
    health.serve()

    assert health.not_ready_reasons() == []
    assert health.extender_not_ready_reasons() == ["the cluster has not been read yet"]


def test_each_stale_kind_is_named() -> None:
    health = build_health(ages={"pods": 300.4, "nodes": 181.0, "classes": 3.0})
    health.serve()

    assert health.not_ready_reasons() == []
    assert health.extender_not_ready_reasons() == [
        "nodes: last contact 181 s ago",
        "pods: last contact 300 s ago",
    ]


def test_a_draining_process_is_not_ready() -> None:
    health = build_health()
    health.serve()

    health.drain()

    assert health.is_draining
    assert health.not_ready_reasons() == ["draining"]
    assert health.extender_not_ready_reasons() == ["draining"]


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        pytest.param("/healthz", 200, "ok", id="alive"),
        pytest.param("/readyz", 503, "draining", id="ready"),
        pytest.param(
            "/readyz/extender",
            503,
            "draining; the cluster has not been read yet",
            id="ready for kube-scheduler",
        ),
    ],
)
def test_probes_say_what_stands_in_the_way(path: str, status: int, text: str) -> None:
    health = build_health(is_synced=False)
    health.serve()
    health.drain()

    answer = build_client(health).simulate_get(path)

    assert (answer.status_code, answer.text) == (status, text)
    assert answer.headers["connection"] == "close"


def test_probes_say_ok() -> None:
    health = build_health()
    health.serve()
    client = build_client(health)

    answers = [
        client.simulate_get(path)
        for path in ("/healthz", "/readyz", "/readyz/extender")
    ]

    assert [(answer.status_code, answer.text) for answer in answers] == [
        (200, "ok")
    ] * 3
    assert "connection" not in answers[0].headers
