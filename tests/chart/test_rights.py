"""Rights that the chart grants, beside those of the manifests in `deploy/`."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from service.doctor.rights import list_rights
from tests.chart.rendering import (
    HELMS,
    MODES,
    NAMESPACE,
    ROOT,
    merged,
    render,
    settings_of,
)

Right = tuple[str, str, str, str, str]  # namespace, group, resource, name, verb

DEPLOY: Final = ROOT / "deploy"

# Objects that the chart renders, so that nobody has to create them.
CREATED: Final = {("gpu-extender", "", "secrets", "", "create")}

SCHEDULER: Final = "gpu-extender-scheduler"

OWN_LEASE: Final = {
    ("gpu-extender", "coordination.k8s.io", "leases", SCHEDULER, verb)
    for verb in ("get", "update")
}

FOREIGN_LEASE: Final = {
    ("kube-system", "coordination.k8s.io", "leases", "kube-scheduler", "get")
}


def rights_of(objects: Iterable[Any]) -> Iterator[Right]:
    """Yield each verb on each resource that some Role grants."""
    for item in objects:
        if item["kind"] in {"Role", "ClusterRole"}:
            namespace = item["metadata"].get("namespace", "")
            for rule in item["rules"]:
                for group in rule["apiGroups"]:
                    for resource in rule["resources"]:
                        for name in rule.get("resourceNames", [""]):
                            for verb in rule["verbs"]:
                                yield namespace, group, resource, name, verb


def shipped(*names: str) -> set[Right]:
    """Return the rights of some of the manifests."""
    return {
        right
        for name in names
        for right in rights_of(yaml.safe_load_all((DEPLOY / name).read_text()))
    }


def rendered(mode: str) -> set[Right]:
    return set(rights_of(render(HELMS[0], MODES[mode])))


BASE: Final = ("rbac.yaml", "lease.yaml")


def test_the_rights_are_those_of_the_manifests() -> None:
    names = (*BASE, "registration.yaml", "rbac-self-signed.yaml")

    assert rendered("existing scheduler") == shipped(*names) - CREATED


def test_a_scheduler_of_its_own_adds_its_lease() -> None:
    names = (*BASE, "registration.yaml", "rbac-self-signed.yaml")

    wanted = shipped(*names) - CREATED - FOREIGN_LEASE | OWN_LEASE
    assert rendered("own scheduler") == wanted


def test_a_certificate_of_cert_manager_takes_no_secret() -> None:
    wanted = shipped(*BASE, "registration.yaml") - FOREIGN_LEASE | OWN_LEASE

    assert rendered("cert-manager") == wanted


def test_a_rendered_registration_is_not_patched() -> None:
    assert rendered("rendered registration") == shipped(*BASE) - FOREIGN_LEASE | (
        OWN_LEASE
    )


@pytest.mark.parametrize("mode", MODES)
def test_nothing_but_events_may_be_created(mode: str) -> None:
    created = {right for right in rendered(mode) if right[-1] == "create"}

    assert created == {("", "events.k8s.io", "events", "", "create")}


@pytest.mark.parametrize("mode", MODES)
def test_each_role_is_bound_to_our_account_and_each_binding_leads_somewhere(
    mode: str,
) -> None:
    objects = render(HELMS[0], MODES[mode])

    def key(item: Any) -> tuple[str, str]:
        return item["kind"].removesuffix("Binding"), item["metadata"]["name"]

    roles = {key(o) for o in objects if o["kind"] in {"Role", "ClusterRole"}}
    bindings = [o for o in objects if o["kind"].endswith("RoleBinding")]
    bound = {(o["roleRef"]["kind"], o["roleRef"]["name"]) for o in bindings}
    given = {name for _, name in bound - roles}
    assert roles <= bound
    assert given <= {
        "system:kube-scheduler",
        "system:volume-scheduler",
        "extension-apiserver-authentication-reader",
    }
    account = {"kind": "ServiceAccount", "name": "gpu-extender"}
    for binding in bindings:
        assert binding["subjects"] == [{**account, "namespace": "gpu-extender"}]


@pytest.mark.parametrize("mode", MODES)
def test_the_doctor_asks_for_no_right_that_is_not_granted(
    mode: str, tmp_path: Path
) -> None:
    """But for that to create what the chart creates."""
    objects = render(HELMS[0], MODES[mode])
    granted = set(rights_of(objects))
    secrets = {o["metadata"]["name"] for o in objects if o["kind"] == "Secret"}

    asked = {
        (right.namespace, right.group, right.resource, right.name, verb)
        for right in list_rights(settings_of(objects, tmp_path), NAMESPACE)
        for verb in right.verbs
        if right.unless.rpartition("/")[2] not in secrets
    }

    assert asked <= granted


def test_no_rights_are_made_where_somebody_else_does() -> None:
    objects = render(
        HELMS[0], merged(MODES["own scheduler"], {"rbac": {"create": False}})
    )

    assert set(rights_of(objects)) == set()
