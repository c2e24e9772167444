import json

import falcon
import falcon.testing
import pytest

from extender.http import PreemptResource
from extender.verbs.fresh_snapshot import (
    NO_DEADLINE,
    REST_SECONDS,
    WORK_SECONDS,
    Deadline,
    DeadlineError,
    GivingWay,
)
from extender.verbs.preempt import Preemption
from scoring.snapshot import Snapshot
from service.http.waitress_channel import ARRIVED_KEY
from service.runtime import build_verb_options
from tests.builders import make_node, make_pod, make_snapshot
from tests.extender_app import FILTER, PRIORITIZE, ExtenderApp, make_settings


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("now", "is_late"),
    [
        pytest.param(99.0, False, id="before"),
        pytest.param(100.8, True, id="at the moment itself"),
        pytest.param(102.0, True, id="after"),
    ],
)
def test_a_check_fails_from_the_deadline_on(now: float, is_late: bool) -> None:
    clock = Clock()
    deadline = Deadline(100.8, clock)
    clock.now = now

    if is_late:
        with pytest.raises(DeadlineError, match=r"deadline: passed \d+\.\d{3} s ago"):
            deadline.check()
    else:
        deadline.check()


def test_without_a_deadline_nothing_is_late() -> None:
    NO_DEADLINE.check()


def test_work_rests_where_a_verb_was_called_meanwhile_but_not_after_little() -> None:
    clock, calls, rests = Clock(), [7], list[float]()
    giving_way = GivingWay(lambda: calls[0], rests.append, clock)
    giving_way.start()

    clock.now += WORK_SECONDS
    giving_way()  # nobody has called since it began
    calls[0] += 1
    giving_way()
    assert rests == []
    clock.now += WORK_SECONDS
    giving_way()
    clock.now += WORK_SECONDS
    giving_way()

    assert rests == [REST_SECONDS]


# --- in the application ------------------------------------------------------

LONG_AGO = {ARRIVED_KEY: 1e-9}  # of the monotonic clock: when the machine started


@pytest.fixture
def app() -> ExtenderApp:
    """Return the application, with deadlines as a process has them."""
    return ExtenderApp(
        nodes=[make_node(name="a", gpus=1)],
        deadline_seconds={"extender": 0.8, "webhook": 4.0},
    )


@pytest.mark.parametrize("path", [FILTER, PRIORITIZE])
def test_a_call_that_has_waited_too_long_is_an_error_with_nothing_in_it(
    app: ExtenderApp, path: str
) -> None:
    verb_call = {"Pod": make_pod(gpus=1), "Nodes": None, "NodeNames": ["a"]}

    late = app.client.simulate_post(
        path, body=json.dumps(verb_call).encode(), extras=LONG_AGO
    )

    assert (late.status_code, late.content) == (504, b"")
    verb = path.rpartition("/")[2]
    assert (
        app.metrics.registry.get_sample_value(
            "gpu_extender_requests_total", {"verb": verb, "outcome": "late"}
        )
        == 1
    )
    assert app.call(path, make_pod(gpus=1), ["a"])


def test_an_explanation_that_is_late_says_so_to_people(app: ExtenderApp) -> None:
    late = app.client.simulate_post(
        "/explain", body=json.dumps(make_pod(gpus=1)).encode(), extras=LONG_AGO
    )

    assert late.status_code == 504
    assert "not done within extender.deadlineMilliseconds" in late.json["description"]


def test_a_preempt_call_that_takes_too_long_is_not_answered() -> None:
    clock = Clock()
    answered: list[Preemption] = []

    class Slow:
        """A source whose snapshot takes two seconds to judge on."""

        @staticmethod
        def current() -> Snapshot:
            clock.now += 2.0
            return make_snapshot()

    options = build_verb_options(make_settings())
    resource = PreemptResource(Slow(), lambda: options, [answered.append])
    verb_call = {"Pod": make_pod(gpus=1), "NodeNameToMetaVictims": {}}
    req = falcon.Request(
        falcon.testing.create_environ(method="POST", body=json.dumps(verb_call))
    )
    req.context.deadline = Deadline(clock.now + 0.8, clock)

    with pytest.raises(DeadlineError):
        resource.on_post(req, falcon.Response())
    assert answered == []


def test_probes_have_no_deadline(app: ExtenderApp) -> None:
    answer = app.client.simulate_get("/healthz", extras=LONG_AGO)

    assert answer.status_code == 200
