import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pytest

from cluster.api.protocol import ApiError
from service.lease import OwnPod, read_own_pod, settle_seconds_within
from tests.fakes.leases import TIMES, LeaseObjects, Replica

FORBIDDEN: Final = ApiError("may not", reason="http_403", status=403)
GONE: Final = ApiError("gone", reason="http_404", status=404)
SILENT: Final = ApiError("no answer", reason="silent")
REFUSED: Final = ApiError("refused", reason="unreachable")


@pytest.fixture
def objects() -> LeaseObjects:
    """A Lease without spec."""
    return LeaseObjects()


@pytest.fixture
def replica(objects: LeaseObjects) -> Replica:
    return Replica(objects, "a")


@pytest.fixture
def other(objects: LeaseObjects) -> Replica:
    return Replica(objects, "b")


def look_for(
    objects: LeaseObjects, seconds: int, *replicas: Replica
) -> Iterator[tuple[bool, ...]]:
    """Look with all replicas each second; yield which of them hold the lease."""
    for _ in range(seconds):
        for replica in replicas:
            replica.elector.look()
        yield tuple(replica.elector.is_holding for replica in replicas)
        objects.now += 1


# --- taking and keeping ------------------------------------------------------


def test_one_of_two_takes_a_lease_without_spec_and_keeps_it(
    objects: LeaseObjects, replica: Replica, other: Replica
) -> None:
    held = set(look_for(objects, 60, replica, other))

    assert held == {(True, False)}
    assert objects.spec["leaseTransitions"] == 1
    assert objects.spec["leaseDurationSeconds"] == 6
    assert objects.spec["holderIdentity"] == "uid-a"


def test_the_next_one_takes_it_six_seconds_after_the_last_renewal(
    objects: LeaseObjects, replica: Replica, other: Replica
) -> None:
    list(look_for(objects, 3, replica, other))
    renewed = objects.now - 1

    replica.api.error = SILENT
    for holding, other_holding in look_for(objects, 8, replica, other):
        assert holding == (objects.now < renewed + 4)
        assert other_holding == (objects.now >= renewed + 6)
    assert objects.spec["leaseTransitions"] == 2


def test_a_holder_that_was_frozen_knows_before_its_first_decision(
    objects: LeaseObjects, replica: Replica, caplog: pytest.LogCaptureFixture
) -> None:
    replica.elector.look()
    replica.elector.before_choice()
    assert replica.alone == 0

    objects.now += 20
    replica.elector.before_choice()

    assert not replica.elector.is_holding
    assert replica.alone == 1
    told = caplog.records[-1].__dict__["fields"]
    assert told["reason"] == "it was not renewed in time"


def test_a_write_that_is_answered_late_counts_from_when_it_was_sent(
    objects: LeaseObjects, replica: Replica
) -> None:
    def freeze() -> None:
        objects.now += 20

    replica.api.after_write = freeze

    replica.elector.look()

    assert objects.holder == "uid-a"
    assert not replica.elector.is_holding


def test_one_that_is_not_ready_leaves_it_to_others(
    objects: LeaseObjects, replica: Replica, other: Replica
) -> None:
    replica.is_ready = False

    assert set(look_for(objects, 5, replica, other)) == {(False, True)}


def test_a_holder_that_is_ready_no_more_gives_it_up_at_once(
    objects: LeaseObjects, replica: Replica, other: Replica
) -> None:
    list(look_for(objects, 3, replica, other))

    replica.is_ready = False

    assert list(look_for(objects, 3, replica, other)) == [(False, True)] * 3


def test_a_container_that_starts_again_in_its_pod_goes_on_holding(
    objects: LeaseObjects, replica: Replica, other: Replica
) -> None:
    list(look_for(objects, 3, replica, other))

    again = Replica(objects, "a")

    assert list(look_for(objects, 3, again, other)) == [(True, False)] * 3
    assert objects.spec["leaseTransitions"] == 1


def test_without_chains_nothing_is_asked(
    objects: LeaseObjects, replica: Replica
) -> None:
    replica.is_wanted = False

    list(look_for(objects, 5, replica))

    assert replica.api.seen == []
    assert objects.holder == ""


def test_when_the_last_chain_goes_the_lease_does_too(
    objects: LeaseObjects, replica: Replica
) -> None:
    list(look_for(objects, 3, replica))
    replica.is_wanted = False

    assert list(look_for(objects, 3, replica)) == [(False,)] * 3

    assert objects.holder == ""
    assert replica.api.seen[-1] == "update lease"


# --- bad input ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "waits_seconds"),
    [
        pytest.param({"holderIdentity": "x", "leaseDurationSeconds": 3}, 3, id="3 s"),
        pytest.param({"holderIdentity": "x"}, 0, id="without duration"),
        pytest.param({"leaseDurationSeconds": 30}, 0, id="without holder"),
        pytest.param(
            {
                "holderIdentity": "x",
                "leaseDurationSeconds": 4,
                "renewTime": "2999-01-01T00:00:00.000000Z",
            },
            4,
            id="renewed in the future",
        ),
        pytest.param(
            {
                "holderIdentity": "x",
                "leaseDurationSeconds": 4,
                "renewTime": "1999-01-01T00:00:00.000000Z",
            },
            4,
            id="renewed in the past",
        ),
        pytest.param({"leaseTransitions": 2**31 - 2}, 0, id="many transitions"),
        pytest.param({"leaseTransitions": 2**31 - 1}, 0, id="no more transitions"),
        pytest.param(
            {"holderIdentity": "UID-A", "leaseDurationSeconds": 2}, 2, id="our case"
        ),
        pytest.param({"holderIdentity": "", "leaseDurationSeconds": 9}, 0, id="empty"),
        pytest.param(
            {"holderIdentity": "uid-a", "leaseDurationSeconds": 9}, 0, id="ours"
        ),
    ],
)
def test_a_lease_written_by_somebody_else_is_left_for_as_long_as_it_says(
    objects: LeaseObjects, replica: Replica, spec: dict[str, Any], waits_seconds: int
) -> None:
    list(look_for(objects, 2, replica))

    objects.put(spec)

    held = [holding for (holding,) in look_for(objects, 8, replica)]
    assert held == [False] * waits_seconds + [True] * (8 - waits_seconds)


def test_a_lease_that_is_deleted_is_nobodys_until_it_is_there_again(
    objects: LeaseObjects, replica: Replica, other: Replica
) -> None:
    list(look_for(objects, 2, replica, other))

    objects.put(None)
    assert set(look_for(objects, 5, replica, other)) == {(False, False)}
    replica.elector.before_choice()
    objects.put({})

    assert set(look_for(objects, 5, replica, other)) == {(True, False)}
    assert replica.alone == 1


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (FORBIDDEN, "no right to the Lease"),
        (GONE, "there is no Lease of that name"),
        (SILENT, "the API server did not say: silent"),
        (
            ApiError("<html>", reason="undecodable"),
            "the API server did not say: undecodable",
        ),
        (
            ApiError("down", reason="http_503", status=503),
            "the API server did not say: http_503",
        ),
        (
            ApiError("who", reason="http_401", status=401),
            "the API server did not say: http_401",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_without_the_lease_it_decides_alone_counts_and_says_why_once_a_minute(
    objects: LeaseObjects,
    replica: Replica,
    caplog: pytest.LogCaptureFixture,
    error: ApiError,
    reason: str,
) -> None:
    replica.api.error = error

    for _ in range(120):
        replica.elector.look()
        replica.elector.before_choice()
        objects.now += 1

    assert replica.alone == 120
    told = [r for r in caplog.records if r.message == "decided without the lease"]
    assert [record.__dict__["fields"] for record in told] == [
        {"reason": reason, "times": 1},
        {"reason": reason, "times": 60},
    ]
    failed = [r for r in caplog.records if r.message == "lease not renewed or taken"]
    assert len(failed) == 2


def test_a_holder_says_nothing(
    objects: LeaseObjects, replica: Replica, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for _ in look_for(objects, 120, replica):
        replica.elector.before_choice()

    assert [record.message for record in caplog.records] == [
        "lease taken",
        "active label set",
    ]
    assert replica.alone == 0


def test_of_two_writers_one_is_told_of_the_conflict_and_waits(
    objects: LeaseObjects,
    replica: Replica,
    other: Replica,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def come_in() -> None:
        if replica.api.seen[-1:] == ["get gpu-extender"]:
            replica.api.before_call = lambda: None
            other.elector.look()

    replica.api.before_call = come_in

    assert list(look_for(objects, 3, replica, other)) == [(False, True)] * 3
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []


# --- the label ---------------------------------------------------------------


def test_a_second_after_it_was_taken_the_label_is_on_the_holder_alone(
    objects: LeaseObjects, replica: Replica
) -> None:
    objects.labels = {"b": "true", "c": "true"}

    replica.elector.look()
    objects.now += 0.9
    replica.elector.look()
    assert objects.labels == {"b": "true", "c": "true"}
    objects.now += 0.1
    replica.elector.look()

    assert objects.labels == {"a": "true"}
    # in this order: never nobody
    assert replica.api.seen[-3:] == ["patch a", "patch b", "patch c"]


@pytest.mark.parametrize(
    "labels",
    [
        {"b": "true"},
        {"a": "true", "b": "true"},
        {"a": "false"},
        {"a": "", "b": "", "c": "yes"},
        {},
        {"z": "false"},
    ],
    ids=str,
)
def test_labels_that_are_not_as_they_should_be_are_put_right(
    objects: LeaseObjects, replica: Replica, labels: dict[str, str]
) -> None:
    list(look_for(objects, 3, replica))

    objects.labels = labels
    replica.elector.look()

    assert objects.labels == {"a": "true"}


@pytest.mark.parametrize("error", [FORBIDDEN, GONE, SILENT], ids=str)
def test_a_pod_whose_label_cannot_be_taken_off_stops_nothing_else(
    objects: LeaseObjects,
    replica: Replica,
    caplog: pytest.LogCaptureFixture,
    error: ApiError,
) -> None:
    objects.labels = {"b": "true", "c": "true"}
    replica.api.errors = {"b": error}

    held = list(look_for(objects, 10, replica))

    assert held == [(True,)] * 10
    assert objects.labels == {"a": "true", "b": "true"}
    told = [r for r in caplog.records if r.message == "active label not set"]
    assert len(told) == (error.status != 404)


def test_whoever_does_not_hold_the_lease_touches_no_label(
    objects: LeaseObjects, replica: Replica, other: Replica
) -> None:
    list(look_for(objects, 5, replica, other))

    assert not any(call.startswith("patch") for call in other.api.seen)


# --- a promise is seen before the next one is made ----------------------------


def become_called(
    objects: LeaseObjects, replica: Replica, labels: dict[str, str]
) -> None:
    """Let a replica take the lease while others have the label, and be called."""
    objects.labels = labels
    replica.elector.look()
    objects.now += 1
    replica.elector.look()


@pytest.mark.parametrize(
    ("labels", "waited_seconds"),
    [
        pytest.param({"b": "true"}, [1.0], id="another was called"),
        pytest.param({"b": "true", "c": "true"}, [1.0], id="two others were called"),
        pytest.param({"b": "false"}, [1.0], id="another has it with another value"),
        pytest.param({"a": "false", "b": "true"}, [1.0], id="our own says otherwise"),
        pytest.param({}, [], id="nobody was called"),
        pytest.param({"a": "true"}, [], id="we were called already"),
        pytest.param({"a": "false"}, [], id="our own said otherwise"),
        pytest.param({"a": "true", "b": "true"}, [], id="both were called already"),
    ],
)
def test_a_decision_waits_a_second_once_another_was_called_before(
    objects: LeaseObjects,
    replica: Replica,
    labels: dict[str, str],
    waited_seconds: list[float],
) -> None:
    become_called(objects, replica, labels)

    for _ in range(3):
        replica.elector.before_choice()

    assert replica.waited_seconds == pytest.approx(waited_seconds)
    assert replica.alone == 0


def test_a_second_is_counted_from_when_the_label_was_off_the_others(
    objects: LeaseObjects, replica: Replica
) -> None:
    def come_in() -> None:
        if replica.api.seen[-1:] == ["patch a"]:  # called already, as b is
            objects.now += 0.4
            replica.api.before_call = lambda: None
            replica.while_waiting = be_slow
            replica.elector.before_choice()

    def be_slow() -> None:
        replica.while_waiting = lambda: None
        objects.now -= 0.6

    replica.api.before_call = come_in
    become_called(objects, replica, {"b": "true"})
    replica.elector.before_choice()

    assert replica.waited_seconds[0] == pytest.approx(0.6)
    assert replica.waited_seconds[-1] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("deadline_seconds", "settle_seconds"),
    [(30.0, 1.0), (4.0, 1.0), (3.0, 0.75), (0.5, 0.125), (0.01, 0.0025)],
)
def test_decisions_wait_no_longer_than_their_reviews_have_time(
    deadline_seconds: float, settle_seconds: float
) -> None:
    assert settle_seconds_within(deadline_seconds) == pytest.approx(settle_seconds)


def test_only_so_many_decisions_wait_and_the_rest_is_made_at_once(
    objects: LeaseObjects, replica: Replica
) -> None:
    become_called(objects, replica, {"b": "true"})

    def come_in() -> None:
        if len(replica.waited_seconds) < 5:
            replica.elector.before_choice()

    replica.while_waiting = come_in
    replica.elector.before_choice()

    assert len(replica.waited_seconds) == 2


def test_a_label_that_stays_with_another_holds_nobody_up_for_ever(
    objects: LeaseObjects, replica: Replica
) -> None:
    replica.api.errors = {"b": FORBIDDEN}
    become_called(objects, replica, {"b": "true"})

    for _ in look_for(objects, 10, replica):
        replica.elector.before_choice()

    assert replica.waited_seconds == [1.0]


@pytest.mark.parametrize(
    "error",
    [
        FORBIDDEN,
        GONE,
        SILENT,
        REFUSED,
        ApiError("changed", reason="http_409", status=409),
        ApiError("invalid", reason="http_422", status=422),
        ApiError("another webhook failed", reason="http_500", status=500),
        ApiError("too many", reason="http_429", status=429),
    ],
    ids=str,
)
def test_a_label_of_our_own_that_is_never_set_holds_nobody_up_for_ever(
    objects: LeaseObjects, replica: Replica, error: ApiError
) -> None:
    replica.api.errors = {"a": error}
    become_called(objects, replica, {"b": "true"})
    # The Lease is looked at while decisions wait.
    replica.while_waiting = replica.elector.look

    for _ in look_for(objects, 10, replica):
        replica.elector.before_choice()

    assert sum(replica.waited_seconds) <= 2.0
    assert replica.alone == 0


def test_a_label_that_is_never_set_makes_no_review_late(
    objects: LeaseObjects, replica: Replica
) -> None:
    settle_seconds = settle_seconds_within(0.5)
    replica.elector._times = replace(TIMES, settle_seconds=settle_seconds)
    replica.api.errors = {"a": FORBIDDEN}
    become_called(objects, replica, {"b": "true"})
    replica.while_waiting = replica.elector.look

    replica.elector.before_choice()

    assert sum(replica.waited_seconds) <= 2 * settle_seconds


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_label_that_is_right_only_late_makes_the_next_decision_wait(
    objects: LeaseObjects, replica: Replica, name: str
) -> None:
    replica.api.errors = {name: FORBIDDEN}
    become_called(objects, replica, {"b": "true"})
    list(look_for(objects, 10, replica))

    replica.api.errors = {}
    replica.elector.look()
    for _ in range(3):
        replica.elector.before_choice()

    assert replica.waited_seconds == [1.0]


def test_nothing_waits_any_more_once_it_is_stopped(
    objects: LeaseObjects, replica: Replica
) -> None:
    become_called(objects, replica, {"b": "true"})

    replica.elector.stop()
    replica.elector.before_choice()

    assert replica.waited_seconds == []


# --- leaving -----------------------------------------------------------------


def test_callers_are_sent_elsewhere_once_another_holds_it_or_we_leave(
    objects: LeaseObjects, replica: Replica, other: Replica
) -> None:
    def elsewhere() -> tuple[bool, bool]:
        return replica.elector.is_elsewhere, other.elector.is_elsewhere

    assert elsewhere() == (False, False)
    list(look_for(objects, 3, replica, other))
    assert elsewhere() == (False, True)

    replica.elector.leave(threading.Event())
    assert elsewhere() == (True, True)
    list(look_for(objects, 3, replica, other))
    assert elsewhere() == (True, False)


def test_idle_connections_end_where_another_holds_it_and_not_while_we_leave(
    objects: LeaseObjects, replica: Replica, other: Replica
) -> None:
    list(look_for(objects, 3, replica, other))
    assert not replica.elector.lets_go
    assert other.elector.lets_go

    replica.elector.leave(threading.Event())
    list(look_for(objects, 3, replica, other))

    assert not replica.elector.lets_go
    assert not other.elector.lets_go


@pytest.mark.parametrize("error", [SILENT, REFUSED, FORBIDDEN], ids=str)
def test_a_holder_that_is_cut_off_sends_callers_elsewhere_when_its_time_is_up(
    objects: LeaseObjects, replica: Replica, error: ApiError
) -> None:
    list(look_for(objects, 3, replica))

    replica.api.error = error

    sent = [replica.elector.is_elsewhere for _ in look_for(objects, 8, replica)]
    # the last renewal was a second before
    assert sent == [False] * 3 + [True] * 5


def test_without_a_lease_callers_stay(objects: LeaseObjects, replica: Replica) -> None:
    list(look_for(objects, 3, replica))
    objects.put(None)

    list(look_for(objects, 8, replica))

    assert not replica.elector.is_elsewhere


@pytest.mark.parametrize("error", [FORBIDDEN, GONE, SILENT], ids=str)
def test_callers_of_one_that_never_held_it_stay(
    objects: LeaseObjects, replica: Replica, error: ApiError
) -> None:
    replica.api.error = error

    list(look_for(objects, 8, replica))

    assert not replica.elector.is_elsewhere


def test_a_lease_that_is_given_up_is_no_warning(
    objects: LeaseObjects, replica: Replica, caplog: pytest.LogCaptureFixture
) -> None:
    list(look_for(objects, 3, replica))
    caplog.set_level(logging.INFO)

    replica.elector.leave(threading.Event())
    replica.elector.look()
    replica.elector.before_choice()

    assert [(r.levelno, r.message) for r in caplog.records] == [
        (logging.INFO, "lease given up"),
        (logging.WARNING, "decided without the lease"),
    ]
    told = caplog.records[-1].__dict__["fields"]
    assert told == {"reason": "this replica is leaving", "times": 1}


def test_one_that_leaves_takes_it_no_more(
    objects: LeaseObjects, replica: Replica
) -> None:
    list(look_for(objects, 2, replica))

    replica.elector.leave(threading.Event())

    assert set(look_for(objects, 10, replica)) == {(False,)}
    assert objects.holder == ""


@pytest.mark.parametrize(
    ("environment", "pod"),
    [
        (
            {"POD_NAME": "a", "POD_NAMESPACE": "n", "POD_UID": "u"},
            OwnPod("a", "n", "u"),
        ),
        ({}, None),
        ({"POD_NAME": "a", "POD_NAMESPACE": "n"}, None),
        ({"POD_NAME": "a", "POD_NAMESPACE": "", "POD_UID": "u"}, None),
    ],
)
def test_the_own_pod_is_told_by_the_environment(
    environment: dict[str, str], pod: OwnPod | None
) -> None:
    assert read_own_pod(environment) == pod


def test_a_lease_that_is_given_up_is_taken_within_two_looks() -> None:
    assert TIMES.takeover_seconds == pytest.approx(2.2)
    assert replace(TIMES, retry_seconds=5.0).takeover_seconds == pytest.approx(7.0)


# --- where nobody is called by it --------------------------------------------


def test_a_holder_that_is_called_as_others_leaves_labels_alone(
    objects: LeaseObjects, replica: Replica, other: Replica
) -> None:
    replica.is_called = other.is_called = False

    assert set(look_for(objects, 5, replica, other)) == {(True, False)}
    assert objects.labels == {}
    assert not replica.elector.is_elsewhere
    assert not other.elector.is_elsewhere


def test_a_holder_that_is_called_as_others_keeps_its_callers_as_it_leaves(
    objects: LeaseObjects, replica: Replica, other: Replica
) -> None:
    replica.is_called = other.is_called = False
    list(look_for(objects, 3, replica, other))

    replica.elector.leave(threading.Event())

    assert not replica.elector.is_elsewhere


def test_its_end_waits_for_no_successor(
    objects: LeaseObjects, replica: Replica, other: Replica
) -> None:
    replica.is_called = other.is_called = False
    replica.elector.start()
    while not replica.elector.is_holding:
        threading.Event().wait(0.001)

    replica.elector.leave(threading.Event())  # by a clock that stands still
    replica.elector.stop()

    assert objects.holder == ""
    assert next(look_for(objects, 1, other)) == (True,)
