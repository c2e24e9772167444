"""What pods are told, over random lives of a small cluster, by plain rules."""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.decode.objects import PodRecord
from extender.events.event import Event
from extender.events.notices import MAX_PODS_OF_OWNER
from extender.events.plan import (
    FOLLOW_SECONDS,
    KIND_SECONDS,
    PENDING_SECONDS,
    Told,
)
from scoring.snapshot import Snapshot
from tests.builders import make_node, make_pod
from tests.fakes.told_pods import ToldPods

OWNERS: Final = ("", "job-1", "job-2", "job-3")
REASONS: Final = ("full", "tainted", "other type")
CLASSES: Final = st.frozensets(st.sampled_from(REASONS), min_size=1)


@dataclass(frozen=True, slots=True)
class Birth:
    """So many pods of one size come, of one owner or none."""

    count: int
    gpus: int
    owner: str


@dataclass(frozen=True, slots=True)
class Death:
    """The first pods go."""

    count: int


@dataclass(frozen=True, slots=True)
class Change:
    """Pods of one size are now refused for these reasons."""

    gpus: int
    classes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Failure:
    """The next Events are not taken by the API server, which does not answer."""

    count: int


SIZES: Final = st.integers(1, 2)
STEPS: Final = st.one_of(
    st.builds(Birth, st.integers(1, 25), SIZES, st.sampled_from(OWNERS)),
    st.builds(Death, st.integers(1, 25)),
    st.builds(Change, SIZES, CLASSES),
    st.builds(Failure, st.integers(1, 5)),
)
LIVES: Final = st.lists(
    st.tuples(STEPS, st.sampled_from([0.0, 1.0, 7.0, 35.0])), min_size=2, max_size=10
)


class Life:
    """A cluster to which things happen, and what was told in it."""

    def __init__(self) -> None:
        self.classes = {1: frozenset({"full"}), 2: frozenset({"full"})}
        self.pods: dict[str, tuple[int, str]] = {}  # name -> size, owner
        self.changed_at = 0.0
        self.failures = 0
        self.told: list[tuple[float, Event]] = []
        self.cluster = ToldPods(describe=self.describe)
        self._count = 0

    def describe(self, record: PodRecord, snapshot: Snapshot) -> Told:
        gpus = dict(record.request)["nvidia.com/gpu"]
        return Told(f"at {snapshot.generation}", self.classes[gpus])

    def apply(self, step: object) -> None:
        match step:
            case Birth(count, gpus, owner):
                for _ in range(count):
                    self._bear(gpus, owner)
            case Death(count):
                for name in list(self.pods)[:count]:
                    del self.pods[name]
                    self.cluster.delete(f"uid-of-default-{name}")
            case Change(gpus, classes):
                self.classes[gpus] = classes
            case Failure(count):
                self.failures += count
        self._count += 1
        self.cluster.put(make_node(name=f"node-{self._count}", gpus=1))
        self.cluster.build()
        self.changed_at = self.cluster.now

    def _bear(self, gpus: int, owner: str) -> None:
        self._count += 1
        name = f"pod-{self._count:04}"
        self.pods[name] = gpus, owner
        second = int(self.cluster.now)
        born = f"2026-11-27T12:{second // 60:02}:{second % 60:02}Z"
        pod: dict[str, Any] = make_pod(
            name=name,
            gpus=gpus,
            owner_uid=owner,
            metadata={"creationTimestamp": born},
        )
        self.cluster.put(pod)

    def run(self, seconds: float) -> None:
        until = self.cluster.now + seconds
        while self.cluster.now < until:
            self._step()

    def _step(self) -> None:
        event = self.cluster.step()
        if event is None:
            return
        if self.failures:
            self.failures -= 1
            self.cluster.plan.forget(event)
            return
        self.told.append((self.cluster.now, event))
        if event.regarding.kind == "Pod" and self.cluster.now > self.changed_at + 1.5:
            assert event.regarding.name in self.pods

    def settle(self) -> None:
        """Let all be told that is to be: until nothing is, for longer than a kind."""
        count = -1
        while count != len(self.told):
            count = len(self.told)
            self.run(PENDING_SECONDS + 3 * KIND_SECONDS)


def check_settled(life: Life) -> None:
    """Check who was told what, once everything has been still for long."""
    told = {(event.regarding.uid, event.key) for _, event in life.told}
    by_owner: Counter[str] = Counter()
    for name, (gpus, owner) in life.pods.items():
        key = "\n".join(sorted(life.classes[gpus]))
        uid = f"uid-of-default-{name}"
        is_told = any(known == uid for known, _ in told)
        if owner:
            by_owner[owner] += is_told
        if not owner or is_told:
            # Whoever was told anything, is told why it waits now.
            assert (uid, key) in told
        elif by_owner[owner] < MAX_PODS_OF_OWNER:
            waiting = [n for n, (_, other) in life.pods.items() if other == owner]
            count = sum(
                any(known == f"uid-of-default-{n}" for known, _ in told)
                for n in waiting
            )
            assert count == MAX_PODS_OF_OWNER
    for owner, count in by_owner.items():
        size = sum(other == owner for _, other in life.pods.values())
        assert count == min(size, MAX_PODS_OF_OWNER) or count > MAX_PODS_OF_OWNER
        assert any(known == owner for known, _ in told)


@settings(max_examples=40)
@given(LIVES)
def test_everybody_is_told_what_is_new_and_nothing_twice(
    steps: list[tuple[object, float]],
) -> None:
    life = Life()
    for step, seconds in steps:
        life.apply(step)
        life.run(seconds)
    life.failures = 0
    life.settle()

    check_settled(life)
    pods = [event for _, event in life.told if event.regarding.kind == "Pod"]
    names = Counter(event.name for event in pods)
    assert set(names.values()) <= {1}
    assert all(b - a > 0.05 for (a, _), (b, _) in pairwise(life.told))


@settings(max_examples=40)
@given(LIVES)
def test_nobody_is_told_before_time_nor_what_is_not_so(
    steps: list[tuple[object, float]],
) -> None:
    life = Life()
    births: dict[str, float] = {}
    for step, seconds in steps:
        life.apply(step)
        for name in life.pods:
            births.setdefault(f"uid-of-default-{name}", float(int(life.cluster.now)))
        life.run(seconds)

    for at, event in life.told:
        if event.regarding.kind == "Pod":
            assert at >= births[event.regarding.uid] + PENDING_SECONDS - 0.001
        assert set(event.key.split("\n")) <= set(REASONS)
    assert FOLLOW_SECONDS < KIND_SECONDS
