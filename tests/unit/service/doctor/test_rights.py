"""Rights that the doctor asks for are those that the shipped files grant."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pytest
import yaml

from service.doctor.rights import Right, list_rights, report_denied
from tests.doctor import make_settings
from tests.service_process import ROOT

DEPLOY: Final = ROOT / "deploy"
NAMESPACE: Final = "gpu-extender"
CHAINS: Final = {"chains": [["nvidia.com/mig-1g.10gb", "nvidia.com/gpu"]]}
EVERYTHING: Final = make_settings(fallback=CHAINS)
PATCHED: Final = {
    "webhook": {"certificateFile": "a", "keyFile": "b", "registration": "patched"}
}
FILES: Final = {"webhook": {"certificateFile": "a", "keyFile": "b"}}
# (verb, group, resource, namespace, name); empty where it is granted everywhere
Grant = tuple[str, str, str, str, str]


def grants(*files: str) -> Iterator[Grant]:
    """Yield what the rules of shipped files grant."""
    for file in files:
        for tree in yaml.safe_load_all((DEPLOY / file).read_text()):
            if tree["kind"] not in {"ClusterRole", "Role"}:
                continue
            namespace = tree["metadata"].get("namespace", "")
            for rule in tree["rules"]:
                yield from grants_of(rule, namespace)


def grants_of(rule: Any, namespace: str) -> Iterator[Grant]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                for name in rule.get("resourceNames", [""]):
                    yield verb, group, resource, namespace, name


def wanted(rights: Iterator[Right]) -> set[Grant]:
    return {
        (verb, right.group, right.resource, right.namespace, right.name)
        for right in rights
        for verb in right.verbs
    }


def test_the_shipped_files_grant_all_that_is_asked_for() -> None:
    granted = set(grants("rbac.yaml", "rbac-self-signed.yaml", "lease.yaml"))

    assert wanted(list_rights(EVERYTHING, NAMESPACE)) <= granted
    assert wanted(list_rights(make_settings(**FILES))) <= set(grants("rbac.yaml"))
    granted = set(grants("rbac.yaml", "registration.yaml"))
    assert wanted(list_rights(make_settings(**PATCHED))) <= granted
    assert set(grants("registration.yaml")) <= wanted(
        list_rights(make_settings(**PATCHED))
    )


def test_nothing_is_granted_that_nobody_needs() -> None:
    granted = set(grants("rbac.yaml", "rbac-self-signed.yaml", "lease.yaml"))

    beyond = granted - wanted(list_rights(EVERYTHING, NAMESPACE))

    # What is watched may be read singly, too; and the doctor itself reads one Lease,
    # without which it only knows less.
    assert {(verb, name) for verb, _, _, _, name in beyond} == {
        ("get", ""),
        ("get", "kube-scheduler"),
    }


@pytest.mark.parametrize("right", tuple(list_rights(EVERYTHING, NAMESPACE)), ids=str)
def test_each_right_that_is_missing_is_one_sentence_with_a_way_out(
    right: Right,
) -> None:
    for verb in right.verbs:
        (finding,) = report_denied([(right, [verb])])

        assert finding.what == f"gpu-extender may not {verb} {right}."
        assert finding.why.endswith(".")
        assert "deploy/" in finding.do
    assert list(report_denied([(right, [])])) == []


@pytest.mark.parametrize("right", tuple(list_rights(EVERYTHING, NAMESPACE)), ids=str)
def test_a_question_is_a_review_as_kubernetes_has_it(right: Right) -> None:
    review = msgspec.json.decode(right.review("get"))

    asked = review["spec"]["resourceAttributes"]
    assert (review["apiVersion"], review["kind"]) == (
        "authorization.k8s.io/v1",
        "SelfSubjectAccessReview",
    )
    assert asked["verb"] == "get"
    assert "/" not in asked["resource"]
    assert asked.get("group", "") == right.group
    assert "" not in asked.values()
