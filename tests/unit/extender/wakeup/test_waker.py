"""What is sent to wake a pod, and what is done when that fails."""

import logging
from typing import Any

import pytest

from cluster.api.protocol import ApiError
from extender.wakeup.pods import PodGroup
from extender.wakeup.queue import FORGOTTEN_SECONDS
from extender.wakeup.waker import FORBIDDEN_SECONDS
from tests.builders import make_node
from tests.fakes.waking import Scene, waiting


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

    assert sorted(tries) == [*"aaaabbbb"]
    assert set(scene.outcomes) == {"forbidden"}
    assert [record.getMessage() for record in caplog.records] == [
        "pods cannot be woken"
    ]

    scene.api.error = None

    assert sorted(scene.wait(FORBIDDEN_SECONDS)) == ["a", "b"]


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

    assert 10 < len(tries) < 45
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


def refused(status: int, *, retry_after_seconds: float = 0.0) -> ApiError:
    return ApiError(
        "no",
        reason=f"http_{status}",
        status=status,
        retry_after_seconds=retry_after_seconds,
    )


@pytest.mark.parametrize(
    ("error", "stall_seconds", "most"),
    [
        # the last number: tries of the one in the three minutes after the first
        pytest.param(refused(403), 0, 3, id="no right, or a policy"),
        pytest.param(refused(400), 0, 3, id="a policy that says bad request"),
        pytest.param(refused(405), 0, 3, id="a proxy that lets no patch through"),
        pytest.param(refused(401), 0, 30, id="credentials that have just expired"),
        pytest.param(refused(500), 0, 30, id="a policy's webhook is away"),
        pytest.param(refused(504), 0, 30, id="it does not answer the API server"),
        pytest.param(
            refused(429, retry_after_seconds=30), 0, 8, id="it asks for half a minute"
        ),
        pytest.param(
            ApiError("no byte", reason="silent"), 5, 8, id="nobody answers in time"
        ),
        pytest.param(
            ApiError("reset", reason="unreachable"), 0, 55, id="the connection breaks"
        ),
        pytest.param(ValueError("broken"), 0, 3, id="a fault of our own"),
    ],
)
def test_one_pod_that_cannot_be_woken_keeps_no_other_waiting(
    error: Exception, stall_seconds: float, most: int
) -> None:
    names = [f"pod{number:02}" for number in range(20)]
    scene = Scene(names)

    def fail(name: str) -> None:
        if name == "pod00":
            scene.pods.now += stall_seconds
            raise error

    scene.api.fail = fail

    tries = scene.wait(2.05 + stall_seconds)

    assert tries[0] == "pod00"
    assert set(tries) == {*names}
    assert scene.outcomes.count("woken") == 19
    for number in range(18):  # and no change of a node has it tried any sooner
        scene.refuse(waiting("pod00"))
        scene.put(make_node(name="other", gpus=4 + number % 2))
        later = scene.wait(10)
        assert {*later} <= {"pod00"}
    assert 1 < len(scene.tries) - 19 <= 1 + most


def test_a_namespace_without_rights_comes_after_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    denied = [f"a-{number:02}" for number in range(50)]
    scene = Scene([*denied, "b-0", "c-0"])

    def fail(name: str) -> None:
        if name in denied:
            raise refused(403)

    scene.api.fail = fail

    tries = scene.wait(60)

    assert tries == ["a-00", "b-0", "c-0", *denied[1:]]
    (record,) = caplog.records
    fields = record.__dict__["fields"]
    assert (fields["namespace"], fields["pod"]) == ("a", "a-00")

    scene.api.fail = lambda _name: None

    assert sorted(scene.wait(66)) == denied


def test_where_nothing_failed_for_an_hour_is_forgotten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene([])
    scene.api.error = refused(403)
    for number in range(20):  # each in a namespace that is deleted after a minute
        pod = waiting(f"n{number:02}-a")
        scene.put(pod)
        scene.refuse(pod)
        scene.put(make_node(gpus=5 + number % 2))
        assert scene.wait(2) == [f"n{number:02}-a"]
        scene.remove(pod)
        scene.pods.now += 58
    assert len(scene.waker._wake_ups._failing_namespaces) == 20

    scene.pods.now += FORGOTTEN_SECONDS - 10 * 60
    scene.put(make_node(name="other"))
    scene.wait(1)

    known = scene.waker._wake_ups._failing_namespaces
    assert sorted(known) == [f"n{number:02}" for number in range(9, 20)]

    later = [waiting("n00-b"), waiting("n19-b")]
    for pod in later:
        scene.put(pod)
        scene.refuse(pod)
    scene.put(make_node(gpus=7))
    scene.wait(2)

    told = [record.__dict__["fields"]["pod"] for record in caplog.records]
    assert told[20:] == ["n00-b"]


def test_pods_that_cannot_be_judged_keep_no_other_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(["a"])
    for name in ("b", "c"):
        scene.put(waiting(name, gpus=2))
        scene.refuse(waiting(name, gpus=2))
    scene.put(make_node(gpus=3))
    judge = PodGroup.judge

    def fail(group: PodGroup, *arguments: Any) -> None:
        if group.record.name == "a":
            raise ValueError("broken")
        judge(group, *arguments)

    monkeypatch.setattr(PodGroup, "judge", fail)

    assert scene.wait(5) == ["b", "c"]
