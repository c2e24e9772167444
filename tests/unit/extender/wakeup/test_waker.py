"""What is sent to wake a pod, and what is done when that fails."""

import logging

import pytest

from cluster.api.protocol import ApiError
from extender.wakeup.waker import FORBIDDEN_SECONDS
from tests.fakes.waking import Scene


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_the_status_of_the_pod_is_patched_with_an_annotation(scene: Scene) -> None:
    scene.wait(1)

    path, body = scene.api.patches[0]
    annotations = body["metadata"]["annotations"]
    generation, moment = annotations["example.com/woken"].split()
    assert path == "/api/v1/namespaces/default/pods/a/status"
    assert body == {"metadata": {"uid": "uid-of-default-a", "annotations": annotations}}
    assert int(generation) == scene.pods.snapshot.generation
    assert moment.endswith("+00:00")


def test_each_pod_is_woken_once(scene: Scene) -> None:
    assert scene.wait(60) == ["a", "b"]
    assert scene.outcomes == ["woken", "woken"]


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        pytest.param(404, "gone", id="the pod is gone"),
        pytest.param(409, "conflict", id="somebody else writes"),
        pytest.param(422, "conflict", id="another pod of that name"),
    ],
)
def test_a_harmless_failure_is_not_tried_again(
    scene: Scene, status: int, outcome: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene.api.error = ApiError("no", reason=f"http_{status}", status=status)

    assert scene.wait(60) == ["a", "b"]
    assert scene.outcomes == [outcome, outcome]
    assert not caplog.records


def test_a_missing_right_is_logged_once_and_tried_every_minute(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.api.error = ApiError("may not", reason="http_403", status=403)

    tries = scene.wait(3 * FORBIDDEN_SECONDS + 1)

    assert len(tries) == 4
    assert set(scene.outcomes) == {"forbidden"}
    assert [record.getMessage() for record in caplog.records] == [
        "pods cannot be woken"
    ]

    scene.api.error = None

    assert sorted(scene.wait(2 * FORBIDDEN_SECONDS)) == ["a", "b"]


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ApiError("away", reason="unreachable"), id="nobody answers"),
        pytest.param(
            ApiError("busy", reason="http_429", status=429, retry_after_seconds=1.0),
            id="too many requests",
        ),
        pytest.param(ApiError("?", reason="http_500", status=500), id="a fault"),
    ],
)
def test_a_fault_is_tried_again_ever_more_slowly(
    scene: Scene, error: ApiError, caplog: pytest.LogCaptureFixture
) -> None:
    scene.api.error = error

    tries = scene.wait(60)

    assert 5 < len(tries) < 40
    assert {*tries} == {"a", "b"}  # no pod stands in the other's way
    assert len(caplog.records) == 1

    scene.api.error = None

    assert sorted(scene.wait(30)) == ["a", "b"]


def test_each_wake_up_is_logged_for_debugging(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    scene.wait(1)

    assert caplog.records[0].__dict__["fields"]["pod_uid"] == "uid-of-default-a"
