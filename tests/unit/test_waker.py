"""What is sent to wake a pod, and what is done when that fails."""

import json
import logging
import random
from typing import Any, Final

import pytest

from cluster.backoff import Pace
from cluster.cache import SnapshotCell
from cluster.source import ApiError
from extender.waker import FORBIDDEN_SECONDS, Waker, WakerParts
from tests.builders import make_node, make_pod
from tests.fakes.refused_pods import RefusedPods

BUSY: Final = make_node(gpus=4, labels={"nvidia.com/mig.config.state": "pending"})


class Writer:
    """An API server that takes patches, or fails as it is told to."""

    def __init__(self) -> None:
        self.patches: list[tuple[str, Any]] = []
        self.error: ApiError | None = None

    def patch(self, path: str, body: bytes) -> None:
        self.patches.append((path, json.loads(body)))
        if self.error is not None:
            raise self.error


class Outcomes(list[str]):
    """Notes what became of each patch."""

    def woke(self, outcome: str) -> None:
        self.append(outcome)


class Scene:
    """Two refused pods that a node takes from the first second on."""

    def __init__(self) -> None:
        self.api, self.outcomes = Writer(), Outcomes()
        pods = [make_pod(name=name, gpus=1) for name in ("a", "b")]
        self.pods = RefusedPods(BUSY, *pods)
        cell = SnapshotCell()
        parts = WakerParts(
            cell,
            lambda: self.pods.options,
            self.api,
            self.outcomes,
            "example.com/woken",
        )
        pace = Pace(monotonic=lambda: self.pods.now, rng=random.Random(1))  # noqa: S311
        self.waker = Waker(parts, pace)
        for pod in pods:
            ask = self.pods.ask_of(pod)
            self.waker.note(ask, self.pods.snapshot.generation, 1, is_empty=True)
        self.pods.put(make_node(gpus=4))
        cell.publish(self.pods.snapshot)

    def wait(self, seconds: float) -> list[str]:
        """Let time pass, and return the names of the pods that were patched in it."""
        before = len(self.api.patches)
        for _ in range(round(seconds / 0.05)):
            self.waker.step()
            self.pods.now += 0.05
        return [path.split("/")[-2] for path, _ in self.api.patches[before:]]


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
