"""How Events are written, and what is done where they are not taken."""

import itertools
import json
import logging
from typing import Any

import pytest

from cluster.api.protocol import ApiError
from cluster.decode.objects import PodRecord
from cluster.ledger.writer import NotSyncedError
from extender.events.event import Regarding
from extender.events.notices import Notice, NoticedPod
from extender.events.plan import EventPlan, Told
from extender.events.reasons import Reasons
from extender.events.writer import (
    REST_FACTOR,
    TICK_SECONDS,
    EventWriter,
)
from extender.explain.summary import MAX_NOTE_BYTES
from extender.verbs.fresh_snapshot import GivingWay
from scoring.snapshot import Snapshot
from service.runtime import build_verb_options
from tests.builders import GPU, make_node, make_pod, make_snapshot
from tests.extender_app import make_settings
from tests.fakes.api import NoApi

LATE = 2_000_000_000.0


class EventApi(NoApi):
    """An API server that takes Events, or fails as it is told to."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []
        self.error: ApiError | None = None

    def create(self, path: str, body: bytes) -> None:
        self.events.append((path, json.loads(body)))
        if self.error is not None:
            raise self.error


class Scene:
    """Pods that wait, and a writer whose clock a test turns."""

    def __init__(self, count: int = 3) -> None:
        self.api = EventApi()
        self.outcomes: list[str] = []
        self.is_writing = True
        self.now = 100.0
        self.busy = self.describe_seconds = self.yield_seconds = 0.0
        self.snapshot: Snapshot | None = make_snapshot(
            pods=[make_pod(name=f"pod-{i}", gpus=1) for i in range(count)]
        )
        self.writer = EventWriter(
            self,
            self.api,
            EventPlan(self.describe),
            wrote=self.outcomes.append,
            is_writing=lambda: self.is_writing,
            clock=lambda: LATE + self.now,
            instance="gpu-extender-0",
            monotonic=lambda: self.now,
            busy=lambda: self.busy,
        )

    def current(self) -> Snapshot:
        if self.snapshot is None:
            raise NotSyncedError
        return self.snapshot

    def describe(self, _record: PodRecord, _snapshot: Snapshot) -> Told:
        self.busy += self.describe_seconds
        self.now += self.describe_seconds + self.yield_seconds
        return Told("No node fits.", frozenset({"full"}))

    def run(self, seconds: float) -> list[float]:
        """Let so much time pass; return all pauses."""
        pauses, until = [], self.now + seconds
        while self.now < until:
            pauses.append(self.writer.step())
            self.now += pauses[-1]
        return pauses

    @property
    def names(self) -> list[str]:
        return [event["regarding"]["name"] for _, event in self.api.events]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def refusal(status: int, retry_after_seconds: float = 0.0) -> ApiError:
    return ApiError(
        "no",
        reason=f"http_{status}",
        status=status,
        retry_after_seconds=retry_after_seconds,
    )


def test_each_pod_is_written_about_once(scene: Scene) -> None:
    scene.run(60)

    assert scene.names == ["pod-0", "pod-1", "pod-2"]
    assert scene.outcomes == ["written"] * 3
    path, event = scene.api.events[0]
    assert path == "/apis/events.k8s.io/v1/namespaces/default/events"
    assert event["note"] == "No node fits."
    assert event["reportingInstance"] == "gpu-extender-0"


def test_ten_a_second_are_written_at_most() -> None:
    scene = Scene(200)
    scene.run(10)

    assert 95 <= len(scene.api.events) <= 101


def test_nothing_is_written_by_a_replica_that_is_not_to(scene: Scene) -> None:
    scene.is_writing = False
    assert set(scene.run(10)) == {TICK_SECONDS}
    assert scene.api.events == []

    scene.is_writing = True
    scene.run(10)
    assert len(scene.api.events) == 3


def test_what_a_review_said_is_written_by_the_replica_that_made_it(
    scene: Scene,
) -> None:
    scene.is_writing = False
    pod = Regarding("v1", "Pod", "ml", "train-0", "u1")
    notice = Notice("GPUPodWarning", "Admission", ("one", "two"))
    scene.writer.note(NoticedPod(pod, None, (notice,)))
    scene.run(10)

    ((path, event),) = scene.api.events
    assert path == "/apis/events.k8s.io/v1/namespaces/ml/events"
    assert (event["reason"], event["note"]) == ("GPUPodWarning", "one; two")


def test_nothing_is_written_before_the_cluster_is_read(scene: Scene) -> None:
    scene.snapshot = None

    assert set(scene.run(5)) == {TICK_SECONDS}


@pytest.mark.parametrize(
    ("status", "outcome", "is_logged"),
    [
        pytest.param(409, "known", False, id="told already"),
        pytest.param(429, "dropped", True, id="too many"),
        pytest.param(403, "dropped", True, id="no right"),
        pytest.param(404, "gone", False, id="its namespace is gone"),
        pytest.param(422, "refused", True, id="not as it should be"),
        pytest.param(400, "refused", True, id="not understood"),
    ],
)
def test_what_is_not_taken_is_not_written_again(
    scene: Scene,
    status: int,
    outcome: str,
    is_logged: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene.api.error = refusal(status)
    with caplog.at_level(logging.WARNING):
        scene.run(50)

    assert scene.names == ["pod-0", "pod-1", "pod-2"]
    assert scene.outcomes == [outcome] * 3
    assert len(caplog.records) == is_logged  # for three of them, in a minute


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ApiError("?", reason="unreachable"), id="unreachable"),
        pytest.param(ApiError("?", reason="silent"), id="silent"),
        pytest.param(refusal(500), id="in trouble"),
        pytest.param(refusal(503, 2.0), id="busy"),
        pytest.param(refusal(401), id="a token that is renewed"),
        pytest.param(refusal(499), id="a status without a name"),
    ],
)
def test_an_api_server_that_cannot_is_asked_again_later(
    scene: Scene, error: ApiError
) -> None:
    scene.api.error = error
    scene.run(30)
    tries = len(scene.api.events)
    assert set(scene.names) == {"pod-0"}
    assert tries < 20

    scene.api.error = None
    scene.run(30)
    assert scene.names[tries:] == ["pod-0", "pod-1", "pod-2"]
    assert scene.outcomes == ["failed"] * tries + ["written"] * 3


@pytest.mark.parametrize("yield_seconds", [0.0, 0.5])
def test_long_work_on_a_description_is_followed_by_a_long_rest(
    yield_seconds: float,
) -> None:
    scene = Scene(0)
    scene.describe_seconds = 0.05
    scene.yield_seconds = yield_seconds
    scene.snapshot = make_snapshot(
        pods=[make_pod(name=f"pod-{i}", gpus=i + 1) for i in range(4)]
    )
    begun = scene.now
    while len(scene.api.events) < 4:
        scene.now += scene.writer.step()

    rest = REST_FACTOR * scene.describe_seconds
    assert scene.now - begun >= 3 * rest
    assert scene.now - begun < 4 * (rest + yield_seconds) + 2 * TICK_SECONDS


def test_the_reasons_are_those_of_an_explanation() -> None:
    pods = [make_pod(name="a", gpus=4), make_pod(name="b", gpus=1)]
    snapshot = make_snapshot(nodes=[make_node(gpus=2)], pods=pods)
    options = build_verb_options(make_settings())
    rests: list[float] = []
    calls, work = iter(range(1000)), itertools.count()
    reasons = Reasons(
        lambda: options,
        GivingWay(lambda: next(calls), rests.append, lambda: next(work)),
    )

    small, large = (
        reasons(pod, snapshot)
        for pod in sorted(snapshot.pending, key=lambda pod: dict(pod.request)[GPU])
        if isinstance(pod, PodRecord)
    )
    assert large.note == ("No node fits: 1 has too few GPUs (needs 4, largest node 2).")
    assert small.note.startswith("The only node fits: node-1 (score")
    assert small.classes != large.classes
    assert (small.is_warning, large.is_warning) == (False, True)
    assert rests  # the verbs were called meanwhile


def test_short_work_on_a_description_is_done_without_a_rest() -> None:
    (pod,) = make_snapshot(pods=[make_pod(gpus=4)]).pending
    assert isinstance(pod, PodRecord)
    options, calls = build_verb_options(make_settings()), iter(range(1000))
    rests: list[float] = []
    reasons = Reasons(
        lambda: options,
        GivingWay(lambda: next(calls), rests.append, busy=lambda: 0.0),
    )

    reasons(pod, make_snapshot(nodes=[make_node(gpus=2)]))

    assert rests == []


def test_a_pod_of_too_many_resources_is_told_so() -> None:
    requests = {GPU: 1, **{f"example.com/r{i}": 1 for i in range(300)}}
    (pod,) = make_snapshot(pods=[make_pod(requests=requests)]).pending
    options = build_verb_options(make_settings())
    assert isinstance(pod, PodRecord)

    told = Reasons(lambda: options)(pod, make_snapshot())
    assert "at most 256 resources" in told.note
    assert len(told.note.encode()) < MAX_NOTE_BYTES
