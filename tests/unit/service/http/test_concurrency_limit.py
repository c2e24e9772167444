from collections.abc import Iterable
from typing import Any

import pytest

from service.http.middleware import (
    FACE_OF_PATH,
    SPARE_THREADS,
    VERB_OF_PATH,
    ConcurrencyLimit,
    Slots,
    build_slots,
)
from service.settings.process import ServerSettings, WebhookSettings

FILTER = "/scheduler/filter"


class Caller:
    """Calls an application through its limit, and from within it if told to."""

    def __init__(self, limit: int) -> None:
        self.answers: list[tuple[str, list[tuple[str, str]]]] = []
        self.refused: list[str] = []
        self.inner: list[str] = []  # paths to call while a call is under way
        self.slots = {face: Slots(limit) for face in ("extender", "webhook", "cluster")}
        self._limit = ConcurrencyLimit(self._work, self.slots, self.refused.append)

    def call(self, path: str) -> bytes:
        """Return the body of an answer."""
        return b"".join(self._limit({"PATH_INFO": path}, self._note))

    def _note(self, status: str, headers: list[tuple[str, str]]) -> None:
        self.answers.append((status, headers))

    def _work(self, environ: dict[str, Any], _start_response: Any) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/explain":
            raise KeyError("a bug")
        bodies = []
        while self.inner:
            bodies.append(self.call(self.inner.pop()))
        self.answers.append(("200 OK", []))
        return [b"done"]


def test_a_call_within_the_limit_passes() -> None:
    caller = Caller(1)

    assert [caller.call(FILTER), caller.call(FILTER)] == [b"done", b"done"]
    assert caller.refused == []


def test_a_call_beyond_the_limit_is_answered_503_with_nothing_in_it() -> None:
    caller = Caller(1)
    caller.inner = [FILTER]

    caller.call(FILTER)

    assert caller.answers == [
        ("503 Service Unavailable", [("Content-Length", "0")]),
        ("200 OK", []),
    ]
    assert caller.refused == ["extender"]


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("/mutate", id="the other face"),
        pytest.param("/healthz", id="a probe"),
        pytest.param("/livez/extender", id="the liveness probe"),
        pytest.param("/metrics", id="metrics"),
    ],
)
def test_a_full_face_holds_back_nobody_else(path: str) -> None:
    caller = Caller(1)
    caller.inner = [path]

    caller.call(FILTER)

    assert caller.refused == []


def test_a_call_that_fails_gives_its_slot_back() -> None:
    caller = Caller(1)

    with pytest.raises(KeyError):
        caller.call("/explain")

    assert caller.slots["extender"].count == 0
    assert caller.call(FILTER) == b"done"


def test_each_verb_counts_against_a_limit() -> None:
    assert VERB_OF_PATH.keys() <= FACE_OF_PATH.keys()
    assert FACE_OF_PATH["/explain"] == "extender"


def test_the_limits_are_those_of_the_settings() -> None:
    slots = build_slots(
        ServerSettings.model_validate({"maxInFlight": 5}),
        WebhookSettings.model_validate({"maxInFlight": 7}),
    )

    assert (slots["extender"].limit, slots["webhook"].limit) == (5, 7)
    assert slots["cluster"].limit < SPARE_THREADS


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_face_is_stuck_when_every_slot_has_been_taken_for_too_long() -> None:
    clock = Clock()
    slots = Slots(2, clock)
    slots.enter()
    clock.now = 5.0
    is_stuck_with_a_free_slot = slots.is_stuck(1.0)
    second = slots.enter()
    clock.now = 5.5
    is_stuck_with_a_young_call = slots.is_stuck(1.0)
    clock.now = 6.5

    assert not is_stuck_with_a_free_slot
    assert not is_stuck_with_a_young_call
    assert slots.is_stuck(1.0)
    assert second is not None
    slots.leave(second)
    assert not slots.is_stuck(1.0)
