"""What reviews said of pods, told once the watch shows the pods."""

import logging
from typing import Any

import pytest

from cluster.ledger.changes import PodSeen, PodsListed
from cluster.ledger.writer import SnapshotCell
from extender.events.notices import NoticedPod
from injector.admission import ReviewNotes
from injector.admitted_pod import PodIdentity
from service.notices import KEPT_SECONDS, LOG_SECONDS, MAX_LINES, PodNotices
from tests.builders import make_ledger, make_pod, make_pod_record

MIG = "nvidia.com/mig-1g.10gb"
SLIP = ReviewNotes(("no such type",))
FALL = ReviewNotes((), ("it fell",), frozenset({MIG}))


class Scene:
    """Pods that are reviewed, and then appear."""

    def __init__(self) -> None:
        self.now = 0.0
        self.told: list[NoticedPod] = []
        self._cell = SnapshotCell()
        self._ledger = make_ledger()
        self._ledger.apply(PodsListed((), frozenset()))
        self.notices = PodNotices(self._cell, self.told.append, lambda: self.now)
        self.notices.look()  # nothing is known yet
        self.appear()

    def review(
        self, notes: ReviewNotes, *, name: str = "", owner_uid: str = "job"
    ) -> None:
        generate_name = "" if name else "train-"
        self.notices.note(
            PodIdentity("r", "ml", name, generate_name, owner_uid, is_dry_run=False),
            notes,
        )

    def appear(self, *names: str, **more: Any) -> None:
        for name in names:
            fields: dict[str, Any] = {
                "gpus": 1,
                "owner_uid": "job",
                "metadata": {"generateName": "train-"},
                **more,
            }
            pod = make_pod(name=name, namespace="ml", **fields)
            self._ledger.apply(PodSeen(make_pod_record(pod)))
        self._cell.publish(self._ledger.build())
        self.notices.look()

    @property
    def texts(self) -> list[tuple[str, tuple[str, ...]]]:
        """Pod and text of all notices."""
        return [
            (noticed.pod.name, notice.texts)
            for noticed in self.told
            for notice in noticed.notices
        ]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_slip_is_told_once_the_pod_is_seen(scene: Scene) -> None:
    scene.review(SLIP)
    scene.notices.look()
    assert scene.told == []

    scene.appear("train-1")
    scene.notices.look()
    (noticed,) = scene.told
    assert (noticed.pod.namespace, noticed.pod.uid) == ("ml", "uid-of-ml-train-1")
    assert noticed.owner is not None
    assert (noticed.owner.kind, noticed.owner.uid) == ("Job", "job")
    assert noticed.notices[0][:3] == ("GPUPodWarning", "Admission", ("no such type",))
    assert noticed.notices[0].is_warning


def test_a_fall_is_told_and_is_no_warning(scene: Scene) -> None:
    scene.review(FALL)
    scene.appear("train-1", gpus=0, requests={MIG: "1"})

    (noticed,) = scene.told
    assert [notice.reason for notice in noticed.notices] == ["GPUPodFallback"]
    assert not noticed.notices[0].is_warning


@pytest.mark.parametrize(
    ("reviewed", "seen"),
    [
        pytest.param({"name": "other"}, {}, id="another name"),
        pytest.param({"owner_uid": "other"}, {}, id="another owner"),
        pytest.param({}, {"metadata": {"generateName": "eval-"}}, id="another prefix"),
        pytest.param({}, {"gpus": 0, "cpu": "1"}, id="it asks for no GPU"),
    ],
)
def test_another_pod_is_not_told(
    scene: Scene, reviewed: dict[str, Any], seen: dict[str, Any]
) -> None:
    scene.review(SLIP, **reviewed)
    scene.appear("train-1", **seen)

    assert scene.told == []


def test_a_pod_that_never_came_is_forgotten(scene: Scene) -> None:
    scene.review(SLIP)
    scene.review(SLIP, name="train-1")
    scene.now += KEPT_SECONDS
    scene.appear("train-1")

    assert scene.told == []


def test_a_named_pod_is_told_all_that_its_reviews_said_and_once(scene: Scene) -> None:
    scene.review(ReviewNotes(("a", "b")), name="train-1")
    scene.review(ReviewNotes(("a", "c")), name="train-1")
    scene.appear("train-1")
    scene.appear("train-1")

    assert scene.texts == [("train-1", ("a", "b", "c"))]


def test_a_second_review_that_says_less_takes_nothing_back(scene: Scene) -> None:
    scene.review(ReviewNotes(("replaced", "no such type")))
    scene.review(ReviewNotes(("no such type",)))
    scene.appear("train-1", "train-2")

    told = ("replaced", "no such type")
    assert scene.texts == [("train-1", told), ("train-2", told)]


def test_of_fellows_only_those_that_fell_are_told(scene: Scene) -> None:
    scene.review(FALL)
    scene.appear("kept")
    scene.appear("fell", "fell-too", gpus=0, requests={MIG: "1"})

    assert scene.texts == [("fell", ("it fell",))]


def test_a_fall_is_forgotten_though_fellows_keep_coming(scene: Scene) -> None:
    scene.review(FALL)
    scene.now += KEPT_SECONDS - 1
    scene.review(SLIP)
    scene.now += 2
    scene.appear("late", gpus=0, requests={MIG: "1"})

    assert scene.texts == [("late", ("no such type",))]


def test_the_log_names_namespace_and_owner_of_a_slip_once_in_a_while(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        for number in range(3):
            scene.review(SLIP)
            scene.appear(f"train-{number}")
        scene.now += LOG_SECONDS
        scene.review(SLIP)
        scene.appear("later")

    assert [record.message for record in caplog.records] == [
        "pod admitted with a warning"
    ] * 2
    assert caplog.records[0].__dict__["fields"] == {
        "namespace": "ml",
        "owner": "Job/owner",
        "pod": "train-0",
        "warning": "no such type",
    }


def test_each_fall_is_a_line(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        for number in range(3):
            scene.review(FALL, name=f"mig-{number}", owner_uid="")
            requests = {MIG: "1"}
            scene.appear(f"mig-{number}", gpus=0, requests=requests, owner_uid="")

    assert [record.levelname for record in caplog.records] == ["INFO"] * 3
    assert caplog.records[0].__dict__["fields"] == {
        "namespace": "ml",
        "owner": "",
        "pod": "mig-0",
        "fall": "it fell",
    }


def test_the_log_has_so_many_warnings_in_a_minute(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        for number in range(MAX_LINES + 5):
            scene.review(SLIP, name=f"pod-{number}", owner_uid="")
            scene.appear(f"pod-{number}", owner_uid="", metadata={})
        scene.now += 60
        scene.review(SLIP, name="late", owner_uid="")
        scene.appear("late", owner_uid="", metadata={})

    assert len(caplog.records) == MAX_LINES + 1
    assert caplog.records[-1].__dict__["fields"]["left_out"] == 5
