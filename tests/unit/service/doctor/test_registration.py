from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.certificates.x509 import make_authority
from service.doctor.page import Finding, Unchecked
from service.doctor.registration import check_registration
from tests.doctor import (
    AUTHORITY,
    DAY,
    HOST,
    NOW,
    make_certificate,
    make_facts,
    make_registration_tree,
    make_settings,
    read_registration,
    whats,
)

Change = Callable[[Any], None]


def found_in(tree: Any, **facts: Any) -> list[str]:
    registration = None if tree is None else read_registration(tree)
    return whats(check_registration(make_facts(**facts), registration, NOW))


def test_the_registration_that_is_printed_has_no_fault() -> None:
    assert found_in(make_registration_tree()) == []


def test_wrong_san_is_told_with_both_names() -> None:
    certificate = make_certificate("gpu-extender", "gpu-extender.default.svc")

    assert found_in(make_registration_tree(), certificate=certificate) == [
        (
            f"The API server calls {HOST}, and the certificate stands for gpu-extender,"
            " gpu-extender.default.svc."
        )
    ]


def test_ca_mismatch_is_told() -> None:
    other = make_authority(NOW - DAY, 100 * DAY).certificate

    assert found_in(make_registration_tree(bundle=other)) == [
        (
            "The CA in the registration's caBundle has not signed the certificate that"
            " the webhook shows."
        )
    ]


def set_url(host: str) -> Change:
    def change(webhook: Any) -> None:
        client = webhook["clientConfig"]
        del client["service"]
        client["url"] = f"https://{host}:8443/mutate"

    return change


def set_fields(**fields: Any) -> Change:
    return lambda webhook: webhook.update(fields)


def set_client(**fields: Any) -> Change:
    return lambda webhook: webhook["clientConfig"].update(fields)


def set_service(**fields: Any) -> Change:
    return lambda webhook: webhook["clientConfig"]["service"].update(fields)


def set_condition(expression: str) -> Change:
    conditions = [{"name": "a", "expression": expression}]
    return set_fields(matchConditions=conditions)


OF_GPUS = "k.startsWith('nvidia.com/') || k.startsWith(\"amd.com/\")"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        pytest.param(set_url("10.0.0.1"), "The API server calls 10.0.0.1", id="url"),
        pytest.param(set_url(HOST), None, id="the name in a URL"),
        pytest.param(set_service(path="/"), "The registration calls the path", id="/"),
        pytest.param(set_service(path="/mutate/"), None, id="a slash at the end"),
        pytest.param(
            set_service(name="other"), "The API server calls other.gpu", id="a Service"
        ),
        pytest.param(
            set_client(caBundle=""), "The registration has no caBundle", id="no bundle"
        ),
        pytest.param(
            set_client(caBundle="aGFsbG8="), "The CA in the", id="no CA in the bundle"
        ),
        pytest.param(set_fields(rules=[]), "No rule of the registration", id="no rule"),
        pytest.param(
            set_fields(
                rules=[
                    {"apiGroups": [""], "resources": ["pods"], "operations": ["UPDATE"]}
                ]
            ),
            "No rule of the registration is about the creation of pods.",
            id="a rule for changes",
        ),
        pytest.param(
            set_fields(
                rules=[{"apiGroups": ["*"], "resources": ["*"], "operations": ["*"]}]
            ),
            None,
            id="a rule for all",
        ),
        pytest.param(
            set_fields(timeoutSeconds=4),
            "The registration's timeoutSeconds is 4, and webhook.deadlineMilliseconds"
            " is 4000.",
            id="a timeout that is our deadline",
        ),
        pytest.param(set_fields(timeoutSeconds=30), None, id="a long timeout"),
        pytest.param(
            set_fields(failurePolicy="Ignore"),
            "The registration's failurePolicy is Ignore, and injection.failurePolicy is"
            " Fail.",
            id="another policy",
        ),
        pytest.param(
            set_fields(namespaceSelector={}),
            "The registration sends pods of gpu-extender, gpu-operator, kube-amd-gpu,",
            id="all namespaces",
        ),
        pytest.param(
            set_fields(namespaceSelector={"matchLabels": {"gpu": "yes"}}),
            None,
            id="namespaces with a label",
        ),
        pytest.param(set_fields(matchConditions=[]), None, id="no conditions"),
        pytest.param(set_condition(OF_GPUS), None, id="other quotes"),
        pytest.param(
            set_condition("k.startsWith('nvidia.com/')"),
            "The registration's matchConditions do not send pods that ask amd.com/*",
            id="a prefix that is missing",
        ),
        pytest.param(
            set_condition("k == 'nvidia.com/gpu' || k.startsWith('amd.com/')"),
            "The registration's matchConditions do not send pods that ask nvidia.com/*",
            id="a name in place of a prefix",
        ),
        pytest.param(
            set_condition(f"{OF_GPUS} || k.startsWith('habana.ai/')"),
            "The registration's matchConditions send pods that ask habana.ai/, which",
            id="a prefix too many",
        ),
        pytest.param(
            set_condition("k.startsWith( 'nvidia.com/' ) || k.startsWith('a')"),
            None,
            id="a shorter prefix",
        ),
    ],
)
def test_each_difference_is_told_in_a_sentence(
    change: Change, what: str | None
) -> None:
    tree = make_registration_tree()
    change(tree["webhooks"][0])

    found = found_in(tree)

    assert len(found) == (what is not None), found
    assert what is None or found[0].startswith(what)


def test_without_a_bundle_the_cas_of_the_host_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "roots.crt"
    path.write_bytes(AUTHORITY.certificate)
    tree = make_registration_tree(bundle=b"")
    before = found_in(tree)

    monkeypatch.setenv("SSL_CERT_FILE", str(path))

    assert before == [
        (
            "The registration has no caBundle, and no CA that this host trusts has"
            " signed the certificate."
        )
    ]
    assert found_in(tree) == []


def test_prefixes_unlike_the_registration_are_told() -> None:
    settings = make_settings(managedPrefixes=["nvidia.com/", "habana.ai/"])

    found = found_in(make_registration_tree(), settings=settings, certificate="")

    assert found == [
        (
            "The registration's matchConditions do not send pods that ask habana.ai/*,"
            " which the configuration manages."
        )
    ]  # amd.com/gpu is still one of gpuResources


def test_conditions_of_another_make_are_not_judged() -> None:
    tree = make_registration_tree()
    set_condition("object.metadata.labels['gpu'] == 'yes'")(tree["webhooks"][0])

    found = list(check_registration(make_facts(), read_registration(tree), NOW))

    assert [type(item) for item in found] == [Unchecked]


def test_the_trigger_annotation_matters_where_there_are_rules() -> None:
    rules = {"rulesFile": "rules.json"}
    one = make_settings(injection={**rules, "triggerAnnotation": "example.org/type"})
    other = make_settings(injection={"triggerAnnotation": "example.org/type"})
    tree = make_registration_tree()

    assert found_in(tree, settings=one) == [
        (
            "The registration's matchConditions do not name example.org/type, which is"
            " injection.triggerAnnotation."
        )
    ]
    assert found_in(tree, settings=other) == []


@pytest.mark.parametrize("tree", [None, {"webhooks": []}, {}])
def test_a_webhook_that_nobody_calls_is_told(tree: Any) -> None:
    (what,) = found_in(tree)

    assert what.startswith("The webhook is not registered: there is no Mutating")


PATCHED = make_settings(
    webhook={"selfSigned": {"enabled": True}, "registration": "patched"}
)


@pytest.mark.parametrize(
    ("tree", "fault", "what", "do"),
    [
        pytest.param(
            {},
            "hook.ns.svc:443 does not answer: timed out",
            "The webhook is not registered yet: hook.ns.svc:443 does not answer: timed"
            " out.",
            "gpu-extender adds its entry once the address in it is answered",
            id="it waits",
        ),
        pytest.param(
            {"webhooks": None},
            "",
            "The webhook is not registered yet: it was taken away a moment ago.",
            "gpu-extender adds its entry once the address in it is answered",
            id="taken away",
        ),
        pytest.param(
            None,
            "there is no MutatingWebhookConfiguration gpu-extender",
            "The webhook is not registered: there is no Mutating",
            "Apply deploy/registration.yaml: gpu-extender adds its entry to it.",
            id="nothing to add it to",
        ),
        pytest.param(
            make_registration_tree(),
            "no right",
            "gpu-extender has not brought its entry in gpu-extender up to date: no",
            "Put right what stands in the way",
            id="not kept up to date",
        ),
    ],
)
def test_an_entry_that_we_have_not_added_yet_is_told_with_the_reason(
    tree: Any, fault: str, what: str, do: str
) -> None:
    facts = make_facts(settings=PATCHED, registration_fault=fault)
    registration = None if tree is None else read_registration(tree)

    (found,) = check_registration(facts, registration, NOW)

    assert isinstance(found, Finding)
    assert found.what.startswith(what)
    assert found.do.startswith(do)


def test_an_entry_that_we_write_is_not_to_be_applied_by_hand() -> None:
    tree = make_registration_tree()
    tree["webhooks"][0]["rules"] = []
    facts = make_facts(settings=PATCHED)

    (found,) = check_registration(facts, read_registration(tree), NOW)

    assert isinstance(found, Finding)
    assert found.do.startswith("gpu-extender writes its entry within")


def test_without_a_webhook_no_registration_is_right() -> None:
    tree = make_registration_tree()
    settings = make_settings(webhook={})

    assert found_in(None, settings=settings, certificate="") == []
    assert found_in(tree, settings=settings, certificate="") == [
        (
            "The webhook is registered as gpu-extender, and the configuration has no"
            " certificate for it."
        )
    ]
