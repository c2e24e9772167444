"""What the two commands print is what the doctor finds no fault in."""

from hypothesis import given
from hypothesis import strategies as st

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
