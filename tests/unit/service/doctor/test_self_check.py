"""Answers of an API server that a real one hardly gives, and times between them."""

from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from cluster.api.protocol import ApiAnswer, ApiError, TokenTimes
from cluster.ledger.writer import SnapshotCell
from extender.tracking.binding_audit import BindingAudit
from extender.tracking.last_answers import LastAnswers
from scoring.snapshot import Snapshot
from service.certificates.store import REGISTRATIONS
from service.doctor.page import Page
from service.doctor.rights import REVIEWS_PATH, list_rights
from service.doctor.self_check import SelfCheck
from service.http.health import Health
from service.runtime import build_verb_options
from tests.builders import make_node, make_pod, make_snapshot
from tests.doctor import NOW, make_registration_tree, make_settings
from tests.fakes.api import NoApi
from tests.fakes.outcomes import make_filter_outcome, make_request

SETTINGS: Final = make_settings()
PAIR_PATH: Final = "/api/v1/namespaces/gpu-extender/secrets/gpu-extender-certificate"
ALLOWED: Final = b'{"status": {"allowed": true}}'


class Api(NoApi):
    """Answers reviews as a test says; each takes some of our time.

    Whatever else is asked fails, and so would any change.

    Attributes
    ----------
    answers : list of (bytes or ApiError)
        The last one stays.
    secret : bytes or ApiError
        What is read of the Secret with the certificate.
    """

    url = "https://api"
    credentials = "kubeconfig /k"

    def __init__(self, *answers: bytes | ApiError) -> None:
        self.answers = list(answers) or [ALLOWED]
        self.secret: bytes | ApiError = refusal(404)
        self.now = NOW
        self.takes_seconds = 0.0
        self.offset_seconds: float | None = 0.0
        self.times: TokenTimes | None = None
        self.asked: list[Any] = []

    def ask(self, path: str, body: bytes) -> ApiAnswer:
        assert path == REVIEWS_PATH
        self.asked.append(msgspec.json.decode(body)["spec"]["resourceAttributes"])
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.now += self.takes_seconds
        if isinstance(answer, ApiError):
            raise answer
        time = None
        if self.offset_seconds is not None:
            time = float(int(self.now + self.offset_seconds))
        return ApiAnswer(answer, time)

    def read(self, path: str) -> bytes:
        if path == PAIR_PATH:
            if isinstance(self.secret, ApiError):
                raise self.secret
            return self.secret
        assert path == f"{REGISTRATIONS}/gpu-extender"
        return msgspec.json.encode(make_registration_tree())

    def token_times(self) -> TokenTimes | None:
        return self.times


def refusal(status: int) -> ApiError:
    reason = f"http_{status}" if status else "unreachable"
    return ApiError(f"status {status}", reason=reason, status=status)


def examine(
    api: Api,
    own_namespace: str = "",
    answered: LastAnswers | None = None,
    snapshot: Snapshot | None = None,
    **sections: Any,
) -> Page:
    settings = make_settings(**sections) if sections else SETTINGS
    cell, answered = SnapshotCell(), answered or LastAnswers()
    cell.publish(snapshot or make_snapshot(nodes=[make_node(gpus=1)]))
    audit = BindingAudit(cell, answered, bool, frozenset())
    health = Health(cell, dict, 180.0)
    health.serve()
    check = SelfCheck(
        lambda: settings,
        Path(),
        cell,
        api=api,
        certificate=None,
        answered=answered,
        verb_options=lambda: build_verb_options(settings),
        audit=audit,
        health=health,
        refused_files=dict,
        waiting_keys=tuple,
        ports=lambda: (8888, 8443),
        own_namespace=own_namespace,
        clock=lambda: api.now,
        monotonic=lambda: api.now,
    )
    return check.examine()


def checks(page: Page) -> list[str]:
    """Return what has findings, but for the certificate that there is not."""
    return [item.check for item in page.findings if item.check != "certificate"]


def unchecked(page: Page) -> dict[str, str]:
    return {item.check: item.why for item in page.unchecked}


def test_every_right_of_the_settings_is_asked_for_once() -> None:
    api = Api()

    page = examine(api)

    wanted = [(verb, right) for right in list_rights(SETTINGS) for verb in right.verbs]
    assert len(api.asked) == 1 + len(wanted)  # the first question is asked twice
    assert checks(page) == []
    assert {"verb": "patch", "resource": "pods", "subresource": "status"} in api.asked
    assert {
        "verb": "update",
        "resource": "secrets",
        "namespace": "gpu-extender",
        "name": "gpu-extender-certificate",
    } in api.asked


@pytest.mark.parametrize(
    ("secret", "is_asked"),
    [
        pytest.param(b"{}", False, id="made by the chart"),
        pytest.param(refusal(404), True, id="to be made"),
        pytest.param(refusal(403), True, id="not to be seen"),
    ],
)
def test_a_secret_that_is_there_need_not_be_created(
    secret: bytes | ApiError, *, is_asked: bool
) -> None:
    api = Api()
    api.secret = secret

    examine(api)

    verbs = {item["verb"] for item in api.asked if item["resource"] == "secrets"}
    assert verbs == {"get", "update"} | ({"create"} if is_asked else set())


@pytest.mark.parametrize(
    ("sections", "own_namespace", "count"),
    [
        pytest.param({"extender": {"wakeUp": False}}, "", 1, id="no wake-up"),
        pytest.param({"webhook": {}}, "", 5, id="no webhook"),
        pytest.param(
            {"fallback": {"chains": [["a.b/c", "a.b/d"]]}, "managedPrefixes": ["a.b/"]},
            "ml",
            -4,
            id="chains in a pod",
        ),
        pytest.param({}, "ml", -3, id="a pod without chains"),
        pytest.param(
            {"extender": {"events": False}}, "ml", 0, id="without chains and Events"
        ),
    ],
)
def test_rights_follow_the_settings(
    sections: dict[str, Any], own_namespace: str, count: int
) -> None:
    usual, api = Api(), Api()

    examine(usual)
    examine(api, own_namespace, **sections)

    assert len(usual.asked) - len(api.asked) == count


def test_a_token_that_was_renewed_meanwhile_is_no_finding() -> None:
    assert checks(examine(Api(refusal(401), ALLOWED))) == []
    assert checks(examine(Api(refusal(401), refusal(401)))) == ["token"]


@pytest.mark.parametrize(
    ("status", "found"),
    [
        (0, ["API server"]),
        (500, ["API server"]),
        (429, ["API server"]),
        (503, ["API server"]),
        (403, []),
        (404, []),
    ],
)
def test_answers_to_the_first_question(status: int, found: list[str]) -> None:
    page = examine(Api(refusal(status)))

    assert checks(page) == found
    assert "rights" in unchecked(page)


def test_credentials_that_cannot_be_read_are_a_finding() -> None:
    page = examine(Api(ApiError("no such file", reason="credentials")))

    assert checks(page) == ["token"]
    assert "kubeconfig /k cannot be read: no such file." in page.findings[-1].what


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"<html>", id="no JSON"),
        pytest.param(b"{}", id="no status"),
        pytest.param(b'{"status": {"allowed": "yes"}}', id="no truth value"),
        pytest.param(refusal(500), id="a fault"),
        pytest.param(refusal(0), id="silence"),
    ],
)
def test_answers_in_the_middle_are_no_verdict_on_rights(
    answer: bytes | ApiError,
) -> None:
    page = examine(Api(ALLOWED, ALLOWED, answer))

    assert checks(page) == []
    assert unchecked(page)["rights"].startswith("some of them: ")


def test_rights_that_were_denied_before_an_answer_failed_are_told() -> None:
    denied = b'{"status": {}}'

    page = examine(Api(ALLOWED, denied, denied, refusal(0)))

    assert [item.what for item in page.findings if item.check == "rights"] == [
        "gpu-extender may not list or watch nodes."
    ]
    assert "rights" in unchecked(page)


def test_an_api_server_that_takes_its_time_is_not_asked_for_ever() -> None:
    api = Api()
    api.takes_seconds = 3.0

    page = examine(api)

    assert len(api.asked) <= 5
    assert unchecked(page)["rights"].endswith("the API server answers too slowly")
    # Nor do the clocks seem to differ for it.
    assert abs(page.facts.clock_offset_seconds or 0) <= 2
    assert checks(page) == []


@pytest.mark.parametrize(
    ("offset", "is_told"),
    [
        (0.0, False),
        (4.0, False),
        (-4.0, False),
        (6.0, True),
        (-6.0, True),
        (None, False),
    ],
)
def test_clocks_may_differ_by_five_seconds(offset: float | None, is_told: bool) -> None:
    api = Api()
    api.offset_seconds = offset

    page = examine(api)

    assert ("clock" in checks(page)) is is_told
    assert ("clock" in unchecked(page)) is (offset is None)


@pytest.mark.parametrize(
    ("issued", "ends", "is_told"),
    [
        pytest.param(NOW - 100, NOW + 3500, False, id="young"),
        pytest.param(NOW - 3300, NOW + 300, True, id="nearly over"),
        pytest.param(NOW - 3700, NOW - 100, True, id="over"),
        pytest.param(NOW - 1e7, NOW + 1e9, False, id="for years"),
    ],
)
def test_a_token_that_nobody_renews_is_told(
    issued: float, ends: float, is_told: bool
) -> None:
    api = Api()
    api.times = TokenTimes(issued, ends)

    page = examine(api)

    assert ("token" in checks(page)) is is_told
    assert page.facts.token_ends_seconds == ends


@pytest.mark.parametrize(
    ("status", "is_told"),
    [(HTTPStatus.NOT_FOUND, True), (HTTPStatus.FORBIDDEN, False), (0, False)],
)
def test_a_registration_that_is_missing_is_told_and_one_that_is_hidden_is_not(
    status: int, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = Api()

    def refuse(_path: str) -> bytes:
        raise refusal(status)

    monkeypatch.setattr(api, "read", refuse)

    page = examine(api)

    assert ("registration" in checks(page)) is is_told
    assert ("registration" in unchecked(page)) is not is_told


def test_a_sample_of_the_nodes_that_pass_is_told_where_nobody_writes_types() -> None:
    pod = make_pod(gpus=1)
    nodes = [make_node(name=f"n{number}", gpus=1) for number in range(120)]
    answered = LastAnswers()
    request = make_request(pod["metadata"]["uid"])
    answered.filtered(make_filter_outcome([0] * 100, pod_request=request))

    page = examine(
        Api(),
        answered=answered,
        snapshot=make_snapshot(nodes=nodes, pods=[pod]),
        injection={"typeAffinity": False},
    )

    assert (page.facts.nodes_shown, page.facts.nodes_passing) == (100, 120)
    assert "sample of nodes" in checks(page)
