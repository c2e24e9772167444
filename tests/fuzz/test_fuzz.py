"""A short run of what `make fuzz` does for ten minutes."""

from typing import Final

import pytest

from tests.fuzz.campaign import SETTINGS, Campaign, call, following_call
from tests.fuzz.contract import Answer, ContractError, Terms, check
from tests.fuzz.corpus import EXPLAIN, FILTER, PREEMPT, PRIORITIZE, ROUTES, build_corpus
from tests.fuzz.memory import resident_mebibytes

SEED: Final = 20_261_127
BODIES: Final = 20_000
WARM_UP_BODIES: Final = 4000
HANG_SECONDS: Final = 60.0
# Memory that is taken and never given back shows at once in so many bodies; what is
# kept of the last ones, and what the allocator holds, stays far below.
MAX_GROWTH_MEBIBYTES: Final = 48.0


def test_mutated_bodies_are_refused_or_answered_within_the_contract() -> None:
    campaign = Campaign(SEED, HANG_SECONDS)
    campaign.run(WARM_UP_BODIES)
    before = resident_mebibytes()

    campaign.run(BODIES - WARM_UP_BODIES)

    tally = campaign.tally
    assert [str(violation) for violation in tally.violations[:5]] == []
    assert tally.bodies == BODIES
    assert set(tally.statuses) == {(r, s) for r in ROUTES for s in (200, 400)}
    # Neither are the mutations all harmless, nor are they all fatal.
    assert min(tally.of_status(200), tally.of_status(400)) > BODIES // 5
    assert resident_mebibytes() - before < MAX_GROWTH_MEBIBYTES


@pytest.mark.parametrize("place", range(len(SETTINGS)))
def test_bodies_as_they_are_captured_are_answered(place: int) -> None:
    campaign = Campaign(SEED, HANG_SECONDS)
    app, terms = campaign._apps[place]

    for route, seeds in build_corpus().items():
        for seed in seeds:
            answer = call(app, route, seed.body)

            assert answer.status == 200, answer.body
            check(route, seed.body, answer, terms)


def test_the_call_that_follows_has_the_bytes_of_the_first_one() -> None:
    body = b'{"Pod":{"a":1},"Nodes":null,"NodeNames":["x","y","z"]}'

    following = following_call(body, b'{"NodeNames":["x","z"]}')

    assert following == b'{"Pod":{"a":1},"Nodes":null,"NodeNames":["x","z"]}'
    assert following_call(body, b'{"NodeNames":[]}') is None
    assert following_call(b'{"Pod": {}}', b'{"NodeNames":["x"]}') is None


QUESTION: Final = b'{"Pod":{},"Nodes":null,"NodeNames":["a","b"]}'
OBJECTS: Final = b'{"Pod":{},"Nodes":{"items":[{"metadata":{"name":"a"}}]}}'
VICTIMS: Final = b'{"Pod":{},"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"u"}]}}}'
REST: Final = b'"FailedNodes":{},"FailedAndUnresolvableNodes":{},"Error":""}'


@pytest.mark.parametrize(
    ("route", "body", "answer"),
    [
        pytest.param(
            FILTER, QUESTION, b'{"Nodes":null,"NodeNames":["a"],' + REST, id="no reason"
        ),
        pytest.param(
            FILTER,
            QUESTION,
            b'{"Nodes":null,"NodeNames":["a"],"FailedNodes":{"b":"3 too few"},'
            b'"FailedAndUnresolvableNodes":{},"Error":""}',
            id="a reason of its own",
        ),
        pytest.param(
            FILTER,
            QUESTION,
            b'{"Nodes":null,"NodeNames":["a","b","c"],' + REST,
            id="a stranger",
        ),
        pytest.param(
            FILTER,
            QUESTION,
            b'{"Nodes":{"items":[]},"NodeNames":null,' + REST,
            id="form",
        ),
        pytest.param(
            FILTER,
            OBJECTS,
            b'{"Nodes":{"items":[{"metadata": {"name":"a"}}]},"NodeNames":null,' + REST,
            id="an object with a space more",
        ),
        pytest.param(
            FILTER,
            QUESTION.replace(b'"Nodes"', b'"nodenames"'),
            b'{"Nodes":null,"NodeNames":["a","b"],' + REST,
            id="a key in two casings",
        ),
        pytest.param(
            PRIORITIZE,
            QUESTION,
            b'[{"Host":"a","Score":7.0},{"Host":"b","Score":1}]',
            id="no integer",
        ),
        pytest.param(
            PRIORITIZE,
            QUESTION,
            b'[{"Host":"a","Score":11},{"Host":"b","Score":1}]',
            id="beyond the range",
        ),
        pytest.param(
            PRIORITIZE, QUESTION, b'[{"Host":"a","Score":1}]', id="a host is missing"
        ),
        pytest.param(
            PREEMPT, VICTIMS, b'{"NodeNameToMetaVictims":{"a":null}}', id="null"
        ),
        pytest.param(
            PREEMPT,
            VICTIMS,
            b'{"NodeNameToMetaVictims":{"b":{"Pods":[],"NumPDBViolations":0}}}',
            id="a node that was not asked",
        ),
        pytest.param(
            PREEMPT,
            VICTIMS,
            b'{"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"v"}],'
            b'"NumPDBViolations":0}}}',
            id="another victim",
        ),
        pytest.param(
            EXPLAIN, b"{}", b'{"nodes":[],"snapshot":{"nodeCount":1}}', id="a node less"
        ),
    ],
)
def test_an_answer_outside_the_contract_is_seen(
    route: str, body: bytes, answer: bytes
) -> None:
    with pytest.raises(ContractError):
        check(route, body, Answer(200, "application/json", answer), Terms())


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Answer(500, "application/json", b"{}"), id="a fault of our own"),
        pytest.param(Answer(400, "text/html", b"{}"), id="no JSON"),
        pytest.param(
            Answer(
                400,
                "application/json",
                b'{"title":"400 Bad Request","description":"no"}',
            ),
            id="no field",
        ),
        pytest.param(Answer(200, "application/json", b"{}\n"), id="a trailing byte"),
    ],
)
def test_a_refusal_outside_the_contract_is_seen(answer: Answer) -> None:
    with pytest.raises(ContractError):
        check(FILTER, QUESTION, answer, Terms())
