from typing import Any

import pytest
from cryptography import x509

from service.certificates.x509 import make_authority
from service.doctor.certificate import check_certificate, is_for, is_trusted, read_chain
from tests.doctor import (
    AUTHORITY,
    DAY,
    NOW,
    make_certificate,
    make_facts,
    make_settings,
    whats,
)


def leaf_of(*names: str) -> x509.Certificate:
    return read_chain(make_certificate(*names))[0]


@pytest.mark.parametrize(
    ("times", "what"),
    [
        pytest.param({}, None, id="young"),
        pytest.param({"starts": NOW - 89 * DAY}, None, id="with a tenth left"),
        pytest.param(
            {"starts": NOW - 91 * DAY},
            "The webhook's certificate expires 2027-01-24T08:00:00Z, in 9 days, and"
            " nobody has renewed it.",
            id="with less",
        ),
        pytest.param(
            {"starts": NOW - 100 * DAY - 7200},
            "The webhook's certificate expired 2027-01-15T06:00:00Z, 2 h ago.",
            id="expired",
        ),
        pytest.param(
            {"starts": NOW + DAY},
            "The webhook's certificate is not valid before 2027-01-16T07:55:00Z.",
            id="of tomorrow",
        ),
        pytest.param({"lifetime": 3600.0, "starts": NOW - 1800}, None, id="of an hour"),
    ],
)
def test_the_time_of_a_certificate_is_looked_at(
    times: dict[str, Any], what: str | None
) -> None:
    facts = make_facts(certificate=make_certificate(**times))

    assert whats(check_certificate(facts, NOW)) == ([] if what is None else [what])


@pytest.mark.parametrize(
    ("facts", "whats_found"),
    [
        pytest.param(
            {"certificate": "", "certificate_faults": ("certificate: none yet",)},
            ["The webhook shows no certificate: certificate: none yet."],
            id="none",
        ),
        pytest.param(
            {"certificate_faults": ("certificate: its CA is not in the caBundle",)},
            ["certificate: its CA is not in the caBundle."],
            id="one whose CA is lost",
        ),
        pytest.param({"has_webhook": False, "certificate": ""}, [], id="no webhook"),
    ],
)
def test_a_certificate_that_nobody_would_take_is_told(
    facts: dict[str, Any], whats_found: list[str]
) -> None:
    assert whats(check_certificate(make_facts(**facts), NOW)) == whats_found


def test_what_to_do_depends_on_where_it_comes_from() -> None:
    expired = make_certificate(starts=NOW - 200 * DAY)
    does = [
        next(
            check_certificate(make_facts(certificate=expired, is_self_signed=own), NOW)
        )
        for own in (True, False)
    ]

    assert "deploy/rbac-self-signed.yaml" in does[0].do
    assert "webhook.certificateFile" in does[1].do


@pytest.mark.parametrize(
    ("names", "host", "is_right"),
    [
        pytest.param(["a.b.svc"], "a.b.svc", True, id="the name"),
        pytest.param(["A.b.SVC"], "a.B.svc.", True, id="in other letters"),
        pytest.param(["a.b"], "a.b.svc", False, id="a shorter one"),
        pytest.param(["a.b.svc.cluster.local"], "a.b.svc", False, id="a longer one"),
        pytest.param(["*.b.svc"], "a.b.svc", True, id="a wildcard"),
        pytest.param(["*.svc"], "a.b.svc", False, id="a wildcard for one label"),
        pytest.param(["x.b.svc", "a.b.svc"], "a.b.svc", True, id="the second"),
        pytest.param(["10.0.0.1"], "10.0.0.1", True, id="an address"),
        pytest.param(["10.0.0.1"], "10.0.0.2", False, id="another"),
        pytest.param(["fd00::1"], "fd00:0::1", True, id="an address of version 6"),
        pytest.param(["a.b.svc"], "10.0.0.1", False, id="a name for an address"),
        pytest.param(["a.b.svc"], "", False, id="no host"),
    ],
)
def test_a_certificate_stands_for_its_names(
    names: list[str], host: str, is_right: bool
) -> None:
    assert is_for(leaf_of(*names), host) is is_right


def test_a_certificate_is_trusted_by_those_who_have_its_ca() -> None:
    other = make_authority(NOW - DAY, 100 * DAY)
    gone = make_authority(NOW - 10 * DAY, 5 * DAY)
    (own,), (strange,), (past,) = (
        read_chain(one.certificate.decode()) for one in (AUTHORITY, other, gone)
    )
    chain = read_chain(make_certificate())
    of_the_past = read_chain(make_certificate(authority=gone, starts=NOW - 9 * DAY))

    assert is_trusted(chain, [strange, own], NOW)
    assert is_trusted(chain, chain, NOW)  # the certificate itself, as Go has it
    assert not is_trusted(chain, [strange], NOW)
    assert not is_trusted(chain, [], NOW)
    assert not is_trusted(of_the_past, [past], NOW)


def test_the_settings_say_whether_there_is_a_webhook() -> None:
    assert make_facts(make_settings()).has_webhook
    assert not make_facts(make_settings(webhook={})).has_webhook
