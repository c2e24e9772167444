import json
from typing import Any, Final

import pytest

from cluster.api.lease import (
    LeaseRecord,
    Observed,
    Step,
    decode_lease,
    encode_lease,
    next_record,
    next_step,
    observe,
)
from cluster.api.protocol import ApiError

HELD: Final = LeaseRecord("other", 6, "a", "r", 3)


@pytest.mark.parametrize(
    ("record", "age_seconds", "is_candidate", "step"),
    [
        pytest.param(LeaseRecord(), 0, True, Step.TAKE, id="without spec"),
        pytest.param(LeaseRecord(), 0, False, Step.WAIT, id="not ready"),
        pytest.param(HELD, 0, True, Step.WAIT, id="held"),
        pytest.param(HELD, 5.9, True, Step.WAIT, id="held, not renewed yet"),
        pytest.param(HELD, 6, True, Step.TAKE, id="expired"),
        pytest.param(HELD, 6, False, Step.WAIT, id="expired, not ready"),
        pytest.param(LeaseRecord("me", 6), 0, True, Step.RENEW, id="ours"),
        pytest.param(LeaseRecord("me", 6), 60, True, Step.RENEW, id="ours, expired"),
        pytest.param(LeaseRecord("me", 6), 0, False, Step.RELEASE, id="ours, leaving"),
        pytest.param(LeaseRecord("", 60), 0, True, Step.TAKE, id="given up"),
        pytest.param(LeaseRecord("other"), 0, True, Step.TAKE, id="held for no time"),
        pytest.param(
            LeaseRecord("other", -5), 0, True, Step.TAKE, id="held for less than that"
        ),
        pytest.param(
            LeaseRecord("other", 86_400), 3600, True, Step.WAIT, id="held for a day"
        ),
        pytest.param(LeaseRecord("ME", 6), 0, True, Step.WAIT, id="another's case"),
    ],
)
def test_the_next_step(
    record: LeaseRecord, age_seconds: float, is_candidate: bool, step: Step
) -> None:
    observed = Observed(record, 100.0)

    got = next_step(observed, "me", 100.0 + age_seconds, is_candidate=is_candidate)

    assert got is step


def test_where_there_is_no_lease_nobody_takes_it() -> None:
    assert next_step(None, "me", 0, is_candidate=True) is Step.WAIT


def test_a_record_is_as_old_as_its_last_change_by_our_own_clock() -> None:
    first = observe(None, HELD, 10)

    assert observe(first, HELD, 20) == Observed(HELD, 10)
    renewed = LeaseRecord("other", 6, "a", "r2", 3)
    assert observe(first, renewed, 20) == Observed(renewed, 20)


@pytest.mark.parametrize(
    ("step", "record"),
    [
        (Step.WAIT, HELD),
        (Step.TAKE, LeaseRecord("me", 6, "now", "now", 4)),
        (Step.RENEW, LeaseRecord("other", 6, "a", "now", 3)),
        (Step.RELEASE, LeaseRecord("", 1, "now", "now", 3)),
    ],
)
def test_what_is_written_is_what_client_go_writes(
    step: Step, record: LeaseRecord
) -> None:
    assert next_record(step, HELD, "me", "now", 6) == record


def decoded(spec: Any) -> LeaseRecord:
    """Return the record of a Lease with this `spec`."""
    return decode_lease(json.dumps({"metadata": {}, "spec": spec}).encode()).record


@pytest.mark.parametrize("spec", [None, {}, {"holderIdentity": None}, {"strategy": ""}])
def test_a_lease_without_spec_has_no_holder(spec: Any) -> None:
    assert decoded(spec) == LeaseRecord()
    assert decode_lease(b'{"metadata":{}}').record == LeaseRecord()


@pytest.mark.parametrize(
    "data", [b"", b"<html>", b"[]", b'{"spec":3}', b'{"spec":{"leaseTransitions":"x"}}']
)
def test_what_is_no_lease_is_an_error_of_the_api_server(data: bytes) -> None:
    with pytest.raises(ApiError, match="Lease") as caught:
        decode_lease(data)

    assert caught.value.reason == "undecodable"


def test_a_lease_is_written_back_with_all_that_others_have_in_it() -> None:
    stored = decode_lease(
        b'{"kind":"Lease","metadata":{"resourceVersion":"7","labels":{"a":"b"}},'
        b'"spec":{"holderIdentity":"x","preferredHolder":"y"}}'
    )

    taken = json.loads(encode_lease(stored, LeaseRecord("me", 6, "a", "r", 1)))
    released = json.loads(encode_lease(stored, LeaseRecord("", 1, "a", "r", 1)))

    times = {"acquireTime": "a", "renewTime": "r", "leaseTransitions": 1}
    assert taken == {
        "kind": "Lease",
        "metadata": {"resourceVersion": "7", "labels": {"a": "b"}},
        "spec": {
            "holderIdentity": "me",
            "leaseDurationSeconds": 6,
            "preferredHolder": "y",
            **times,
        },
    }
    assert released["spec"] == {
        "leaseDurationSeconds": 1,
        "preferredHolder": "y",
        **times,
    }
