from typing import Final

import pytest

from extender.tracking.count_mismatches import CountMismatches
from scoring.feasibility import Verdict
from scoring.resources import Request
from tests.builders import GPU
from tests.fakes.outcomes import make_filter_outcome, make_request

TWO: Final = ((GPU, 2),)
EIGHT: Final = ((GPU, 8),)
MIXED: Final = ((GPU, 8), ("nvidia.com/gpu-memory", 4))
SHORT, FREE, NOT_READY = "short", "free", "not ready"


class Calls:
    """Filter calls at moments of a clock, and the lists that they led to."""

    def __init__(self) -> None:
        self.now = 0.0
        self.reasons: list[str] = []
        self._count_mismatches = CountMismatches(
            self.reasons.append, limit_seconds=5.0, monotonic=lambda: self.now
        )

    def at(self, seconds: float, request: Request = TWO, **nodes: str) -> None:
        """Ask about nodes, each with what our own count says of it."""
        self.now = seconds
        found = list(nodes.values())
        refused = [int(Verdict.NOT_READY) * (state == NOT_READY) for state in found]
        self._count_mismatches.filtered(
            make_filter_outcome(
                refused,
                mismatched=[state == SHORT for state in found],
                names=list(nodes),
                pod_request=make_request(request=request),
            )
        )


@pytest.fixture
def calls() -> Calls:
    return Calls()


def test_a_disagreement_that_lasts_has_the_pods_listed_once(calls: Calls) -> None:
    for moment in (0.0, 3.0, 5.1, 5.2):
        calls.at(moment, a=SHORT, b=FREE)

    assert calls.reasons == ["counts_disagree"]


def test_a_disagreement_that_ends_in_time_is_forgotten(calls: Calls) -> None:
    calls.at(0.0, a=SHORT)
    calls.at(4.0, a=FREE)
    calls.at(6.0, a=SHORT)

    assert calls.reasons == []


def test_one_sighting_is_not_lasting_however_old_it_is(calls: Calls) -> None:
    calls.at(0.0, a=SHORT)
    calls.at(10.0, b=FREE)
    calls.at(11.0, b=SHORT)

    assert calls.reasons == []


def test_calls_about_other_nodes_do_not_end_a_disagreement(calls: Calls) -> None:
    calls.at(0.0, a=SHORT)
    calls.at(3.0, b=FREE)
    calls.at(5.5, a=SHORT)

    assert calls.reasons == ["counts_disagree"]


@pytest.mark.parametrize(
    ("disputed", "between", "is_settled"),
    [
        pytest.param(EIGHT, TWO, False, id="a smaller pod fits"),
        pytest.param(MIXED, EIGHT, False, id="a pod that asks one of two fits"),
        pytest.param(TWO, EIGHT, True, id="a larger pod fits"),
        pytest.param(EIGHT, MIXED, True, id="a pod that asks something more fits"),
    ],
)
def test_only_a_pod_that_asks_as_much_settles_it(
    calls: Calls, disputed: Request, between: Request, *, is_settled: bool
) -> None:
    calls.at(0.0, disputed, a=SHORT)
    calls.at(3.0, between, a=FREE)
    calls.at(6.0, disputed, a=SHORT)

    assert calls.reasons == ([] if is_settled else ["counts_disagree"])


def test_a_node_refused_for_another_reason_does_not_agree(calls: Calls) -> None:
    calls.at(0.0, a=SHORT)
    calls.at(3.0, a=NOT_READY)
    calls.at(6.0, a=SHORT)

    assert calls.reasons == ["counts_disagree"]


def test_two_sightings_far_apart_are_two_disagreements(calls: Calls) -> None:
    calls.at(0.0, a=SHORT)
    calls.at(61.0, a=SHORT)

    assert calls.reasons == []
