"""What the webhook does to a pod, bytes in and bytes out, under rules of the wild."""

import copy
from typing import Any

import pytest

from injector.steps import AdmissionOutcome, AdmissionReason
from tests.fakes.webhook import (
    GPU,
    SHM,
    both,
    container,
    gpus,
    make_pod,
    make_review,
    make_webhook,
    per_gpu,
    v100,
)
from tests.injection_case import Case
from tests.injection_cases import CASES


@pytest.mark.parametrize("case", CASES)
def test_a_pod_becomes_what_its_rules_say(case: Case) -> None:
    webhook = make_webhook(case.rules)

    answered = webhook.send(case.pod, namespace=case.namespace)

    assert answered.is_allowed == (not case.message)
    assert containers_of(answered.pod) == expected_containers(case)
    own = case.pod["metadata"].get("annotations", {})
    assert answered.annotations == {**own, **case.annotations}
    assert answered.warnings == list(case.warnings)
    if case.message:
        assert answered.response["status"]["code"] == 403
        assert answered.message == case.message
    elif case.reason is not None:
        assert not answered.operations
        assert set(webhook.observer.admissions) == {
            (AdmissionOutcome.SKIPPED, case.reason)
        }
    else:
        audit = {"injection": "rule_applied", **case.audit}
        assert answered.response["auditAnnotations"] == audit


def containers_of(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]


def expected_containers(case: Case) -> list[dict[str, Any]]:
    """Return the containers with what is injected into them as requests and limits."""
    return [
        {**item, "resources": {"requests": amounts, "limits": amounts}}
        if (amounts := case.injected.get(item["name"]))
        else item
        for item in containers_of(case.pod)
    ]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        pytest.param(
            {"operation": "UPDATE"}, AdmissionReason.NOT_A_CREATE, id="update"
        ),
        pytest.param(
            {"operation": "DELETE", "object": None},
            AdmissionReason.NOT_A_CREATE,
            id="delete",
        ),
        pytest.param(
            {"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}},
            AdmissionReason.NOT_A_POD,
            id="deployment",
        ),
        pytest.param(
            {"kind": {"group": "x.com", "version": "v1", "kind": "Pod"}},
            AdmissionReason.NOT_A_POD,
            id="pod of another group",
        ),
        pytest.param(
            {"subResource": "ephemeralcontainers"},
            AdmissionReason.NOT_A_POD,
            id="subresource",
        ),
        pytest.param({"object": None}, AdmissionReason.NO_OBJECT, id="no object"),
    ],
)
def test_only_the_creation_of_pods_is_looked_at(
    fields: dict[str, Any], reason: AdmissionReason
) -> None:
    webhook = make_webhook()

    response = webhook.post(
        make_review(make_pod(container("a", gpus(1))), **{"uid": "u", **fields})
    )["response"]

    assert response == {"uid": "u", "allowed": True}
    assert webhook.observer.admissions == [(AdmissionOutcome.SKIPPED, reason)]


def test_a_dry_run_gets_the_same_patch() -> None:
    webhook = make_webhook()
    pod = make_pod(container("a", gpus(1)))

    real, dry = webhook.send(pod, dryRun=False), webhook.send(pod, dryRun=True)

    assert dry.operations == real.operations


def test_the_slash_of_a_key_is_escaped() -> None:
    rules = v100(annotations={"a/b": ""})

    answered = make_webhook(rules).send(make_pod(container("a", gpus(1))))

    assert answered.operations == [
        {"op": "add", "path": "/metadata/annotations/a~1b", "value": ""}
    ]


def test_both_versions_of_the_review_are_echoed() -> None:
    review = make_review(make_pod(container("a", gpus(1))))
    review["apiVersion"] = "admission.k8s.io/v1beta1"

    answer = make_webhook().post(review)

    assert answer["apiVersion"] == "admission.k8s.io/v1beta1"
    assert answer["response"]["patchType"] == "JSONPatch"


def test_new_rules_hold_from_the_next_pod_on() -> None:
    webhook = make_webhook()
    pod = make_pod(container("a", gpus(1)))
    before = webhook.send(pod)

    webhook.book.replace(make_webhook(v100(per_gpu("cpu", 2))).book.current())
    after = webhook.send(pod)

    assert before.amounts("a")["cpu"] == "4"
    assert after.amounts("a") == {GPU: "1", "cpu": "2"}


def test_the_pod_of_a_review_is_not_written_to() -> None:
    pod = make_pod(container("a", gpus(1)))
    before = copy.deepcopy(pod)

    make_webhook().send(pod)

    assert pod == before


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        pytest.param(
            both({GPU: "500m"}),
            f"{GPU} request '500m' is not a whole number",
            id="half a GPU",
        ),
        pytest.param(
            both({GPU: "1500m"}),
            f"{GPU} request '1500m' is not a whole number",
            id="a GPU and a half",
        ),
        pytest.param(
            {"requests": {GPU: "1"}, "limits": {GPU: "2"}},
            f"{GPU} request 1 and limit 2 are not equal",
            id="a request below its limit",
        ),
        pytest.param(
            {"requests": {GPU: "2"}, "limits": {GPU: "1"}},
            f"{GPU} request 2 and limit 1 are not equal",
            id="a request above its limit",
        ),
        pytest.param(
            {"requests": {GPU: "1", SHM: "1"}, "limits": {GPU: "1", SHM: "2"}},
            f"{SHM} request 1 and limit 2 are not equal",
            id="what the rule would write over",
        ),
        pytest.param(
            both({GPU: "1", SHM: "1.5"}),
            f"{SHM} request '1.5' is not a whole number",
            id="parts of what the rule would write over",
        ),
        pytest.param(
            {"requests": {GPU: "1", "cpu": "3"}, "limits": {GPU: "1", "cpu": "2"}},
            "cpu request is above its limit",
            id="more cpu than its limit",
        ),
        pytest.param(
            both({GPU: "1", "hugepages-2Mi": "4Mi"}),
            "hugepages-2Mi needs cpu or memory beside it",
            id="huge pages without cpu or memory",
        ),
        pytest.param(
            both({GPU: "1", "cpu": "1", "hugepages-2Mi": "3Mi"}),
            "hugepages-2Mi is not a whole number of pages",
            id="a page and a half",
        ),
    ],
)
def test_what_kubernetes_refuses_is_left_for_it_to_refuse(
    resources: dict[str, Any], said: str
) -> None:
    rules = v100(per_gpu("cpu", 4), per_gpu(SHM, 1))
    webhook = make_webhook(rules)

    answered = webhook.send(make_pod(container("a", resources)))

    assert answered.operations == []
    assert answered.warnings == [
        f"nothing injected, Kubernetes refuses the pod: container 'a': {said}"
    ]
    assert set(webhook.observer.admissions) == {
        (AdmissionOutcome.SKIPPED, AdmissionReason.ILLEGAL_QUANTITY)
    }


def test_a_gpu_in_the_requests_alone_gets_its_limit() -> None:
    answered = make_webhook().send(make_pod(container("a", {"requests": {GPU: "1"}})))

    assert answered.amounts("a") == {GPU: "1", "cpu": "4", "memory": "8Gi"}


def sidecar(name: str, resources: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return an init container that goes on running."""
    return container(name, resources, restartPolicy="Always")


@pytest.mark.parametrize(
    ("containers", "init", "expected"),
    [
        pytest.param(
            [container("a")],
            [sidecar("s", gpus(1))],
            {"s": {GPU: "1", "cpu": "4", "memory": "8Gi"}},
            id="alone",
        ),
        pytest.param(
            [container("a", gpus(2))],
            [sidecar("s", gpus(1))],
            {
                "a": {GPU: "2", "cpu": "8", "memory": "16Gi"},
                "s": {GPU: "1", "cpu": "4", "memory": "8Gi"},
            },
            id="beside a container with GPUs",
        ),
        pytest.param(
            [container("a", {"requests": {"cpu": "500m", "memory": "1Gi"}})],
            [sidecar("s", gpus(1))],
            {"s": {GPU: "1", "cpu": "3500m", "memory": "7Gi"}},
            id="beside a container without",
        ),
        pytest.param(
            [container("a")],
            [sidecar("s", gpus(1)), sidecar("t", gpus(3))],
            {
                "s": {GPU: "1", "cpu": "4", "memory": "8Gi"},
                "t": {GPU: "3", "cpu": "12", "memory": "24Gi"},
            },
            id="two of them",
        ),
        pytest.param(
            [container("a", gpus(1))],
            [sidecar("s", gpus(1)), sidecar("t", {"requests": {"cpu": "1"}})],
            {
                "a": {GPU: "1", "cpu": "3500m", "memory": "8Gi"},
                "s": {GPU: "1", "cpu": "3500m", "memory": "8Gi"},
            },
            id="beside a sidecar without",
        ),
        pytest.param(
            [container("a")],
            [container("i", gpus(4)), sidecar("s", {"requests": {GPU: "1"}})],
            {"s": {GPU: "1", "cpu": "4", "memory": "8Gi"}},
            id="behind an init container that ends",
        ),
        pytest.param(
            [container("a", gpus(1)), container("b", gpus(1))],
            [sidecar("s", gpus(1)), sidecar("t", {"requests": {"cpu": "1m"}})],
            {
                "a": {GPU: "1", "cpu": "4", "memory": "8Gi"},
                "b": {GPU: "1", "cpu": "4", "memory": "8Gi"},
                "s": {GPU: "1", "cpu": "3999m", "memory": "8Gi"},
            },
            id="a remainder goes to regular containers first",
        ),
    ],
)
@pytest.mark.parametrize("existing", ["overwrite", "keep"])
def test_gpus_of_a_sidecar_count_in_the_budget_and_get_their_share(
    containers: list[dict[str, Any]],
    init: list[dict[str, Any]],
    expected: dict[str, dict[str, str]],
    existing: str,
) -> None:
    pod = make_pod(*containers, initContainers=init)

    answered = make_webhook(existing=existing).send(pod)

    assert {name: answered.amounts(name) for name in expected} == expected
    for item in (*containers, *init):
        if item["name"] not in expected:
            assert answered.resources(item["name"]) == item.get("resources", {})


def test_gpus_of_an_init_container_that_ends_are_told_to_get_nothing() -> None:
    answered = make_webhook().send(
        make_pod(container("a"), initContainers=[container("i", gpus(1))])
    )

    assert answered.operations == []
    assert answered.warnings == [
        (
            "GPU type 'V100', but only an init container asks for amd.com/gpu,"
            " nvidia.com/gpu: nothing injected"
        )
    ]


@pytest.mark.parametrize(
    ("left", "is_refused"),
    [
        pytest.param(0, True, id="nothing"),
        pytest.param(1, True, id="a byte"),
        pytest.param(4095, True, id="less than a page"),
        pytest.param(4096, False, id="a page"),
    ],
)
@pytest.mark.parametrize("resource", ["memory", "ephemeral-storage"])
def test_a_budget_of_less_than_a_page_is_used_up(
    resource: str, left: int, is_refused: bool
) -> None:
    asked = str(8 * 2**30 - left)
    answered = make_webhook(v100(per_gpu(resource, 8, "Gi"))).send(
        make_pod(
            container("a", gpus(1)), container("s", {"requests": {resource: asked}})
        )
    )

    assert answered.is_allowed != is_refused
    if is_refused:
        said = f"pod default/p: {resource} {left} left for container 'a': others ask"
        assert answered.message.startswith(said)


def test_parts_of_a_budget_of_less_than_a_page_are_refused() -> None:
    asked = {"requests": {"memory": str(16 * 2**30 - 8000)}}
    answered = make_webhook(v100(per_gpu("memory", 8, "Gi"))).send(
        make_pod(
            container("a", gpus(1)), container("b", gpus(1)), container("s", asked)
        )
    )

    assert answered.message.startswith(
        "pod default/p: memory 8000 left for container 'a', 'b': others ask"
    )
