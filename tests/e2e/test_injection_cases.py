"""Every case of injection, through the API server and read back."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

import pytest

from injector.steps import AdmissionReason
from tests.e2e.harness.amounts import SUFFIXES
from tests.e2e.harness.builders import GPU, JsonObject
from tests.e2e.harness.connection import ApiError
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.injecting import Creator, RulesInForce, containers_of
from tests.e2e.harness.product import Product
from tests.e2e.harness.waiting import wait_for
from tests.fakes.webhook import (
    C1,
    both,
    container,
    gpus,
    make_pod,
    per_gpu,
    v100,
)
from tests.injection_case import Case
from tests.injection_cases import CASES

MIG_1G: Final = "nvidia.com/mig-1g.10gb"
MIG_2G: Final = "nvidia.com/mig-2g.20gb"
MIG_3G: Final = "nvidia.com/mig-3g.30gb"
CHAIN: Final = [MIG_3G, MIG_2G, MIG_1G, GPU]
MARK: Final = "gpu-extender.io/fallback-weighed"
RECORD: Final = "gpu-webhook.k8s.io/fallback"
SCHEDULER: Final = "gpu-scheduler"
NAMESPACES: Final = ("gpu-training", "special-ns")
PRODUCT: Final = "nvidia.com/gpu.product"
UNTOUCHED: Final = (AdmissionReason.STATIC_POD, AdmissionReason.SYSTEM_NAMESPACE)
SEEN_SECONDS: Final = 10.0


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> RulesInForce:
    """The rule file, for all tests of this file."""
    made = RulesInForce(tmp_path_factory.mktemp("rules") / "rules.json")
    made.write(C1)
    return made


@pytest.fixture(scope="module")
def product(
    shared_control_plane: ControlPlane, rules: RulesInForce
) -> Iterator[Product]:
    """The service and its webhook, for all tests of this file."""
    plane = shared_control_plane
    settings: Mapping[str, Any] = {
        "injection": {"rulesFile": str(rules.path), "schedulerName": SCHEDULER},
        "cluster": {"pollSeconds": 0.1},
        "gpuTypes": {"typeLabels": [PRODUCT]},
    }
    with Product(plane, settings=settings) as installed:
        for name in NAMESPACES:
            namespace = {"apiVersion": "v1", "kind": "Namespace"}
            plane.client.apply({**namespace, "metadata": {"name": name}})
        installed.start()
        installed.register_webhook()
        yield installed
    plane.reset()


@pytest.fixture
def created(product: Product) -> Iterator[Creator]:
    """Creates pods, which are deleted afterwards."""
    creator = Creator(product)
    yield creator
    creator.delete_all()


@pytest.mark.parametrize("case", CASES)
def test_a_pod_is_stored_as_its_rules_say(
    case: Case, product: Product, rules: RulesInForce, created: Creator
) -> None:
    rules.use(case.rules, product)
    if case.message or case.server_refuses:
        with pytest.raises(ApiError) as refusal:
            created.create(case.pod, case.namespace)
        said = f"denied the request: {case.message}" if case.message else ""
        assert refusal.value.status == (403 if case.message else 422)
        assert (said or case.server_refuses) in refusal.value.message
        return

    pod = created.create(case.pod, case.namespace)

    injected = {
        item["name"]: item["resources"]
        for item in containers_of(pod)
        if item["name"] in case.injected
    }
    others = others_of(pod, case)
    assert injected == {name: both(asked) for name, asked in case.injected.items()}
    assert others == others_of(case.pod, case)
    own = case.pod["metadata"].get("annotations", {})
    assert pod["metadata"].get("annotations", {}) == {**own, **case.annotations}
    assert "affinity" not in pod["spec"]
    assert pod["spec"]["schedulerName"] == scheduler_of(pod, case.reason)
    assert [text for text in case.warnings if text not in created.warnings] == []


def others_of(pod: JsonObject, case: Case) -> dict[str, JsonObject]:
    """Return what is asked by containers into which nothing is injected.

    Amounts are numbers, since the API server writes some in another form, and a limit
    is a request, too, where there is none.
    """
    found = {}
    for item in containers_of(pod):
        if item["name"] not in case.injected:
            resources = item.get("resources", {})
            limits = number_of(resources.get("limits") or {})
            requests = {**limits, **number_of(resources.get("requests") or {})}
            found[item["name"]] = {"requests": requests, "limits": limits}
    return found


def number_of(amounts: Mapping[str, str]) -> dict[str, Decimal]:
    """Return amounts in cores, bytes and pieces."""
    numbers = {}
    for name, text in amounts.items():
        digits = text.rstrip("KMGTikm")
        numbers[name] = Decimal(digits) * SUFFIXES.get(text[len(digits) :], Decimal(1))
    return numbers


def scheduler_of(pod: JsonObject, reason: AdmissionReason | None) -> str:
    """Return whose a pod must be: ours, if it asks any GPU resource."""
    asked = {
        name
        for item in containers_of(pod)
        for name, text in item.get("resources", {}).get("limits", {}).items()
        if text != "0"
    }
    is_ours = any(name.startswith(("nvidia.com/", "amd.com/")) for name in asked)
    return SCHEDULER if is_ours and reason not in UNTOUCHED else "default-scheduler"


def test_a_demand_is_written_as_affinity_beside_what_is_injected(
    product: Product, rules: RulesInForce, created: Creator
) -> None:
    rules.use(C1, product)
    wanted = {"gpu-extender.io/gpu-type": "A30"}

    pod = created.create(make_pod(container("a", gpus(1)), annotations=wanted))

    (term,) = pod["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    assert term == {
        "matchExpressions": [
            {"key": PRODUCT, "operator": "In", "values": ["A30", "NVIDIA-A30"]}
        ]
    }
    assert pod["spec"]["containers"][0]["resources"] == both(
        {GPU: "1", "cpu": "4", "memory": "8Gi"}
    )


def test_a_faulty_rule_file_changes_nothing_and_refuses_no_pod(
    product: Product, rules: RulesInForce, created: Creator
) -> None:
    rules.use(C1, product)
    rules.write(v100(per_gpu("memory", 8, "GB")))
    wait_for(
        lambda: product.metric("gpu_extender_config_reload_ok", file="rules") == 0,
        timeout_seconds=SEEN_SECONDS,
        what="faulty rules seen",
    )

    pod = created.create(make_pod(container("a", gpus(1))))

    assert pod["spec"]["containers"][0]["resources"] == both(
        {GPU: "1", "cpu": "4", "memory": "8Gi"}
    )


def test_the_webhook_is_not_asked_about_changes_and_deletions(
    product: Product, created: Creator
) -> None:
    created.create(make_pod(container("a", gpus(1)), gpu_type=None))
    before = product.calls_of("mutate")

    labels = {"metadata": {"labels": {"x": "y"}}}
    product.client.patch("Pod", "p", labels)
    created.delete_all()

    assert product.calls_of("mutate") == before
