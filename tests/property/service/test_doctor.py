"""What the two commands print is what the doctor finds no fault in."""

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from service.certificates.store import REGISTRATIONS
from service.doctor.callers_view import SentObjects, with_callers_view
from service.doctor.page import Page
from service.doctor.registration import check_registration
from service.doctor.scheduler import check_scheduler_config
from tests.doctor import (
    NOW,
    make_facts,
    make_registration_tree,
    make_scheduler_tree,
    make_settings,
    read_registration,
    read_scheduler,
)

DOMAINS = st.from_regex(r"[a-z]{1,6}\.(com|org|io)", fullmatch=True)
# Prefixes are any text, also such as CEL must have escaped.
PREFIXES = st.one_of(
    st.builds("{}/".format, DOMAINS),
    st.builds("{}/{}".format, DOMAINS, st.text("a'\"\\-.)|", max_size=4)),
)
PATTERNS = st.builds(
    "{}/{}{}".format,
    DOMAINS,
    st.from_regex(r"[a-z][a-z.-]{0,5}[a-z]", fullmatch=True),
    st.sampled_from(["", "*"]),
)
NAMESPACES = st.from_regex(r"[a-z]{1,8}", fullmatch=True)


@given(
    prefixes=st.lists(PREFIXES, min_size=1, max_size=4, unique=True),
    patterns=st.lists(PATTERNS, min_size=1, max_size=4, unique=True),
    namespaces=st.lists(NAMESPACES, max_size=4, unique=True),
    policy=st.sampled_from(["Fail", "Ignore"]),
    deadline=st.integers(10, 29_999),
    has_rules=st.booleans(),
)
def test_a_printed_registration_fits_its_settings(  # noqa: PLR0913, PLR0917
    prefixes: list[str],
    patterns: list[str],
    namespaces: list[str],
    policy: str,
    deadline: int,
    has_rules: bool,
) -> None:
    webhook = {"selfSigned": {"enabled": True}, "deadlineMilliseconds": deadline}
    injection = {"failurePolicy": policy, "skippedNamespaces": namespaces}
    if has_rules:
        injection["rulesFile"] = "rules.json"
    settings = make_settings(
        webhook=webhook,
        injection=injection,
        managedPrefixes=prefixes,
        gpuResources=patterns,
    )

    registration = read_registration(make_registration_tree(settings))
    found = check_registration(make_facts(settings), registration, NOW)

    assert list(found) == []


@given(
    resources=st.lists(PATTERNS, min_size=1, max_size=6, unique=True),
    deadline=st.integers(10, 60_000),
    port=st.integers(1, 65_535),
)
def test_a_printed_scheduler_configuration_fits_its_settings(
    resources: list[str], deadline: int, port: int
) -> None:
    settings = make_settings(extender={"deadlineMilliseconds": deadline})
    facts = make_facts(settings, managed_resources=tuple(resources), port=port)

    config = read_scheduler(make_scheduler_tree(resources, settings, port))

    assert list(check_scheduler_config(facts, config, "s.yaml")) == []


# Fields of a registration, with values that an API server would refuse.
LEAVES = st.none() | st.integers() | st.text(max_size=8) | st.just("http://[")
FIELDS = st.sampled_from(
    [
        *("webhooks", "name", "clientConfig", "service", "url", "caBundle", "rules"),
        *("namespace", "path", "port", "spec", "items", "ports", "endpoints"),
        *("holderIdentity", "renewTime", "matchConditions", "expression"),
    ]
)
OBJECTS = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=5)
    ),
    max_leaves=20,
)
WEBHOOK = {"name": "a", "clientConfig": {}}
CLIENTS = st.fixed_dictionaries(
    {},
    optional={
        "url": st.sampled_from(["http://[", "x", "https://a/b"]) | st.text(max_size=8),
        "caBundle": st.sampled_from(["", "AAAA", "/////w=="]),
    },
)


@given(OBJECTS, CLIENTS, OBJECTS)
def test_whatever_a_caller_sends_is_judged_or_named_as_unread(
    tree: Any, client: Any, lease: Any
) -> None:
    facts = make_facts(elects_in="a", lease_name="b")
    registered = f"{REGISTRATIONS}/{facts.registration_name}"
    leases = "/apis/coordination.k8s.io/v1/namespaces/a/leases/b"
    for registration in (tree, {"webhooks": [{**WEBHOOK, "clientConfig": client}]}):
        objects = {registered: registration, leases: lease}
        body = json.dumps({"objects": objects}).encode()
        sent = msgspec.json.decode(body, type=SentObjects)

        page = with_callers_view(Page((), (), facts), sent, NOW)

        # What was not sent, at the least: kube-scheduler's Lease.
        assert [item.check for item in page.unchecked].count("Lease") >= 1
