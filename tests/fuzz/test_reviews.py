"""A short run of what `make fuzz-reviews` does for ten minutes."""

import base64
import copy
import json
from typing import Any, Final

import pytest

from tests.fakes.webhook import container, make_pod, make_review
from tests.fuzz.contract import Answer, ContractError
from tests.fuzz.review_contract import ReviewTerms, check_review
from tests.fuzz.reviews import ReviewCampaign

SEED: Final = 20_261_128
REVIEWS: Final = 6000
TERMS: Final = ReviewTerms(frozenset({"cpu"}), frozenset({"x.com/half", "x.com/whole"}))
BOTH: Final = {"x.com/half": "2", "cpu": "1", "x.com/nic": "1"}
REVIEW: Final = make_review(
    make_pod(container("a", {"requests": BOTH, "limits": BOTH})), uid="u"
)
AMOUNTS: Final = "/spec/containers/0/resources"


def test_mutated_reviews_are_refused_or_answered_within_the_contract() -> None:
    campaign = ReviewCampaign(SEED)

    campaign.run(REVIEWS)

    tally = campaign.tally
    assert tally.violations[:3] == []
    assert tally.reviews == REVIEWS
    # Neither are the mutations all harmless, nor are they all fatal.
    for outcome in ("patched", "unchanged", "refused", "400"):
        assert tally.outcomes[outcome] > REVIEWS // 25, tally.outcomes


def answer(**response: Any) -> Answer:
    """Return an answer with some fields of its response replaced."""
    told = {
        "apiVersion": REVIEW["apiVersion"],
        "kind": "AdmissionReview",
        "response": {"uid": "u", "allowed": True, **response},
    }
    return Answer(200, "application/json", json.dumps(told).encode())


def patch(*operations: dict[str, Any]) -> Answer:
    """Return an answer with a patch."""
    encoded = base64.b64encode(json.dumps(operations).encode()).decode()
    return answer(patch=encoded, patchType="JSONPatch")


def operation(op: str, side: str, resource: str, **value: str) -> dict[str, Any]:
    """Return an operation on an amount of the first container."""
    path = f"{AMOUNTS}/{side}/{resource.replace('/', '~1')}"
    return {"op": op, "path": path, **value}


def moved(count: str) -> list[dict[str, Any]]:
    """Return the operations of a fallback to so many whole ones."""
    return [
        step
        for side in ("requests", "limits")
        for step in (
            operation("remove", side, "x.com/half"),
            operation("add", side, "x.com/whole", value=count),
        )
    ]


@pytest.mark.parametrize(
    "answered",
    [
        pytest.param(Answer(500, "application/json", b"{}"), id="a fault of our own"),
        pytest.param(answer(uid="v"), id="another UID"),
        pytest.param(answer(allowed=None), id="no verdict"),
        pytest.param(answer(patch="W10="), id="a patch without its type"),
        pytest.param(patch(), id="an empty patch"),
        pytest.param(
            answer(allowed=False, status={"code": 500, "message": "a bug"}),
            id="a refusal of our own fault",
        ),
        pytest.param(
            patch(operation("replace", "limits", "ghost", value="1")),
            id="a patch of what is not there",
        ),
        pytest.param(
            patch(operation("replace", "limits", "cpu", value="1")),
            id="a patch that changes nothing",
        ),
        pytest.param(
            patch(operation("replace", "limits", "x.com/nic", value="0")),
            id="less than it asked",
        ),
        pytest.param(
            patch(operation("remove", "requests", "x.com/nic")), id="no longer asked"
        ),
        pytest.param(patch(*moved("1")), id="fewer after a fallback"),
    ],
)
def test_an_answer_outside_the_contract_is_seen(answered: Answer) -> None:
    with pytest.raises((ContractError, ValueError, LookupError)):
        check_review(json.dumps(REVIEW).encode(), answered, TERMS)


@pytest.mark.parametrize(
    "answered",
    [
        pytest.param(answer(), id="unchanged"),
        pytest.param(
            answer(allowed=False, status={"code": 403, "message": "why"}), id="refused"
        ),
    ],
)
def test_an_answer_without_a_patch_may_be_right(answered: Answer) -> None:
    assert check_review(json.dumps(REVIEW).encode(), answered, TERMS) is None


def test_what_rules_and_chains_name_may_change() -> None:
    answered = patch(operation("replace", "limits", "cpu", value="0"), *moved("2"))

    changed = check_review(json.dumps(REVIEW).encode(), answered, TERMS)

    expected = copy.deepcopy(REVIEW["request"]["object"])
    whole = {"cpu": "1", "x.com/nic": "1", "x.com/whole": "2"}
    expected["spec"]["containers"][0]["resources"] = {
        "requests": whole,
        "limits": {**whole, "cpu": "0"},
    }
    assert changed is not None
    assert changed["request"]["object"] == expected
