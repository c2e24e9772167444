"""What the webhook does to a pod, bytes in and bytes out, under rules of the wild."""

import copy
from typing import Any

import pytest

from injector.rules import Outcome, Reason
from tests.fakes.webhook import (
    AMD,
    C1,
    GPU,
    NETWORKS,
    SHM,
    TRIGGER,
    both,
    container,
    gpus,
    make_pod,
    make_review,
    make_webhook,
    per_gpu,
    rule,
    v100,
)

TRAINING = {
    **C1,
    "namespaceResourceMap": {
        "gpu-training": {
            "V100": {
                GPU: rule(
                    per_gpu("cpu", 6000, "m"),
                    per_gpu("memory", 12, "Gi"),
                    per_gpu(SHM, 2, "Gi"),
                    annotations={"x": "y"},
                )
            }
        }
    },
}


def asks(**amounts: str) -> dict[str, Any]:
    return {"requests": amounts}


# Parity with gpuinjector.


def test_one_container_gets_four_cores_and_8gi_per_gpu() -> None:
    answered = make_webhook().send(make_pod(container("a", gpus(2))))

    assert answered.amounts("a") == {GPU: "2", "cpu": "8", "memory": "16Gi"}
    assert answered.annotations == {TRIGGER: "V100", NETWORKS: "tke-route-eni"}


def test_what_a_sidecar_asks_is_taken_off() -> None:
    sidecar = container("s", asks(cpu="1000m", memory="2Gi"))

    answered = make_webhook().send(make_pod(container("a", gpus(2)), sidecar))

    assert answered.amounts("a") == {GPU: "2", "cpu": "7", "memory": "14Gi"}
    assert answered.resources("s") == sidecar["resources"]


def test_missing_limits_are_made() -> None:
    answered = make_webhook().send(
        make_pod(
            container("a", {"requests": {GPU: "2"}}),
            container("s", asks(cpu="1000m", memory="2Gi")),
        )
    )

    assert answered.amounts("a") == {GPU: "2", "cpu": "7", "memory": "14Gi"}


def test_containers_without_a_gpu_are_left_alone() -> None:
    answered = make_webhook().send(
        make_pod(container("a", gpus(1)), container("p"), container("b", gpus(2)))
    )

    assert answered.amounts("a") == {GPU: "1", "cpu": "4", "memory": "8Gi"}
    assert answered.amounts("b") == {GPU: "2", "cpu": "8", "memory": "16Gi"}
    assert answered.pod["spec"]["containers"][1] == container("p")


def test_a_namespace_rule_replaces_the_default_whole() -> None:
    answered = make_webhook(TRAINING).send(
        make_pod(container("a", gpus(2))), namespace="gpu-training"
    )

    assert answered.amounts("a") == {
        GPU: "2",
        "cpu": "12",
        "memory": "24Gi",
        SHM: "4Gi",
    }
    assert answered.annotations == {TRIGGER: "V100", "x": "y"}


def test_a_namespace_rule_for_another_resource_leaves_the_default() -> None:
    rules = {
        **C1,
        "namespaceResourceMap": {
            "special-ns": {"V100": {AMD: rule(per_gpu("cpu", 1))}}
        },
    }

    answered = make_webhook(rules).send(
        make_pod(container("a", gpus(2))), namespace="special-ns"
    )

    assert answered.amounts("a") == {GPU: "2", "cpu": "8", "memory": "16Gi"}


def test_a_white_listed_namespace_beats_its_own_rule() -> None:
    webhook = make_webhook({**TRAINING, "namespaceWhiteList": ["gpu-training"]})

    answered = webhook.send(make_pod(container("a", gpus(2))), namespace="gpu-training")

    assert answered.is_allowed
    assert not answered.operations
    assert answered.warnings == []
    assert set(webhook.observer.admissions) == {
        (Outcome.SKIPPED, Reason.WHITE_LISTED_NAMESPACE)
    }


@pytest.mark.parametrize(
    ("pod", "reason", "warning"),
    [
        pytest.param(
            make_pod(container("a", gpus(1)), gpu_type="T4"),
            Reason.UNKNOWN_GPU_TYPE,
            "no rule for GPU type 'T4': nothing injected",
            id="unknown type",
        ),
        pytest.param(
            make_pod(container("a", gpus(1)), gpu_type="v100"),
            Reason.UNKNOWN_GPU_TYPE,
            "no rule for GPU type 'v100': nothing injected",
            id="type in other letters",
        ),
        pytest.param(
            make_pod(container("a", gpus(1)), gpu_type=None),
            Reason.NO_GPU_TYPE,
            None,
            id="no annotation",
        ),
        pytest.param(
            make_pod(container("a", asks(cpu="1"))),
            Reason.NO_GPU,
            "GPU type 'V100', but no container asks for amd.com/gpu, nvidia.com/gpu:"
            " nothing injected",
            id="annotation and no GPU",
        ),
        pytest.param(
            make_pod(container("a", gpus(0))),
            Reason.NO_GPU,
            "GPU type 'V100', but no container asks for amd.com/gpu, nvidia.com/gpu:"
            " nothing injected",
            id="zero GPUs",
        ),
    ],
)
def test_a_pod_that_no_rule_fits_passes(
    pod: dict[str, Any], reason: Reason, warning: str | None
) -> None:
    webhook = make_webhook()

    answered = webhook.send(pod)

    assert answered.is_allowed
    assert not answered.operations
    assert answered.warnings == ([] if warning is None else [warning])
    assert set(webhook.observer.admissions) == {(Outcome.SKIPPED, reason)}


@pytest.mark.parametrize(
    "containers",
    [
        pytest.param(
            [container("a", gpus(1)), container("b", both({AMD: "1"}))],
            id="in two containers",
        ),
        pytest.param([container("a", gpus(1, **{AMD: "1"}))], id="in one container"),
    ],
)
def test_two_gpu_resources_are_refused(containers: list[dict[str, Any]]) -> None:
    answered = make_webhook().send(make_pod(*containers))

    assert answered.response["status"]["code"] == 403
    assert answered.message == (
        "pod default/p: asks more than one GPU resource: amd.com/gpu, nvidia.com/gpu"
    )


def test_a_sidecar_above_the_budget_is_refused_with_the_numbers() -> None:
    answered = make_webhook().send(
        make_pod(container("a", gpus(1)), container("s", asks(cpu="4001m")))
    )

    assert answered.response["status"]["code"] == 403
    assert answered.message == (
        "pod default/p: cpu short by 1m for container 'a': others ask 4001m"
        " ('s' 4001m), the budget of 1 nvidia.com/gpu is 4"
    )


def test_a_refusal_names_every_budget_and_the_first_who_ask() -> None:
    sidecars = [container(f"s{i}", asks(cpu="2", memory="4Gi")) for i in range(5)]

    answered = make_webhook().send(make_pod(container("a", gpus(2)), *sidecars))

    assert answered.message == (
        "pod default/p: cpu short by 2 for container 'a': others ask 10"
        " ('s0' 2, 's1' 2, 's2' 2, 's3' 2, ...), the budget of 2 nvidia.com/gpu is 8;"
        " memory short by 4Gi for container 'a': others ask 20Gi"
        " ('s0' 4Gi, 's1' 4Gi, 's2' 4Gi, 's3' 4Gi, ...),"
        " the budget of 2 nvidia.com/gpu is 16Gi"
    )


def test_what_a_gpu_container_asked_is_replaced_and_told() -> None:
    answered = make_webhook().send(
        make_pod(
            container(
                "a",
                {
                    "requests": {GPU: "2", "cpu": "1", "memory": "2Gi"},
                    "limits": {GPU: "2", "cpu": "32"},
                },
            ),
            container("s", asks(cpu="500m", memory="1Gi")),
        )
    )

    assert answered.amounts("a") == {GPU: "2", "cpu": "7500m", "memory": "15Gi"}
    assert answered.warnings == [
        (
            "container 'a': cpu request 1 and limit 32 replaced by 7500m,"
            " memory 2Gi replaced by 15Gi for GPU type 'V100'"
        )
    ]
    assert answered.response["auditAnnotations"] == {
        "injection": "rule_applied",
        "overwritten": (
            '{"containers[a].limits.cpu":"32","containers[a].requests.cpu":"1",'
            '"containers[a].requests.memory":"2Gi"}'
        ),
    }


def test_extended_resources_are_not_shared() -> None:
    answered = make_webhook(v100(per_gpu(SHM, 1, "Gi"))).send(
        make_pod(container("a", gpus(2)), container("s", both({SHM: "1Gi"})))
    )

    assert answered.amounts("a") == {GPU: "2", SHM: "2Gi"}
    assert answered.amounts("s") == {SHM: "1Gi"}


# Arithmetic.


def test_float_noise_does_not_eat_a_millicore() -> None:
    answered = make_webhook().send(
        make_pod(
            container("a", gpus(3)), container("s", asks(cpu="500m", memory="1Gi"))
        )
    )

    assert answered.amounts("a") == {GPU: "3", "cpu": "11500m", "memory": "23Gi"}


def test_the_remainder_goes_to_the_largest_fraction() -> None:
    # 11500m / 3 = 3833.33 and 7666.67; 23Gi = 24696061952 = 3 x 8232020650.67
    answered = make_webhook().send(
        make_pod(
            container("a", gpus(1)),
            container("b", gpus(2)),
            container("s", asks(cpu="500m", memory="1Gi")),
        )
    )

    assert answered.amounts("a") == {GPU: "1", "cpu": "3833m", "memory": "8232020651"}
    assert answered.amounts("b") == {GPU: "2", "cpu": "7667m", "memory": "16464041301"}


def test_equal_fractions_favour_the_first() -> None:
    answered = make_webhook(v100(per_gpu("cpu", 4))).send(
        make_pod(
            container("a", gpus(1)),
            container("b", gpus(1)),
            container("c", gpus(1)),
            container("s", asks(cpu="500m")),
        )
    )

    assert [answered.amounts(name)["cpu"] for name in "abc"] == [
        "3834m",
        "3833m",
        "3833m",
    ]


@pytest.mark.parametrize(
    ("rules", "count", "amounts"),
    [
        pytest.param(
            [per_gpu("cpu", 3.5), per_gpu("memory", 1.5, "Gi")],
            1,
            {"cpu": "3500m", "memory": "1536Mi"},
            id="broken coefficients",
        ),
        pytest.param([per_gpu("cpu", 3.5)], 3, {"cpu": "10500m"}, id="three times 3.5"),
        pytest.param(
            [per_gpu("memory", 0.5, "Gi")], 1, {"memory": "512Mi"}, id="half a Gi"
        ),
        pytest.param(
            [per_gpu("cpu", 0.29), per_gpu("x.com/y", 0.29)],
            100,
            {"cpu": "29", "x.com/y": "29"},
            id="0.29 times 100 is 29",
        ),
        pytest.param(
            [
                per_gpu("x.com/core", 2.357142857142857),
                per_gpu("cpu", 2.357142857142857),
            ],
            14,
            {"cpu": "33", "x.com/core": "33"},
            id="33/14 times 14 is 33",
        ),
    ],
)
def test_coefficients_are_exact_decimals(
    rules: list[dict[str, Any]], count: int, amounts: dict[str, str]
) -> None:
    answered = make_webhook(v100(*rules)).send(make_pod(container("a", gpus(count))))

    assert answered.amounts("a") == {GPU: str(count), **amounts}


@pytest.mark.parametrize(
    ("coefficient", "unit", "sidecar", "memory"),
    [
        pytest.param(8, "Gi", "1G", "7589934592", id="Gi less G"),
        pytest.param(8, "G", "1Gi", "6926258176", id="G less Gi"),
        pytest.param(8, "Gi", "1.2Gi", "7301444403", id="broken bytes are floored"),
        pytest.param(1024, "Mi", None, "1Gi", id="1024Mi is 1Gi"),
        pytest.param(1000, "Mi", None, "1000Mi", id="1000Mi stays"),
    ],
)
def test_memory_is_whole_bytes_in_canonical_form(
    coefficient: int, unit: str, sidecar: str | None, memory: str
) -> None:
    others = [container("s", asks(memory=sidecar))] if sidecar else []

    answered = make_webhook(v100(per_gpu("memory", coefficient, unit))).send(
        make_pod(container("a", gpus(1)), *others)
    )

    assert answered.amounts("a")["memory"] == memory


def test_a_budget_that_is_used_up_is_refused() -> None:
    answered = make_webhook().send(
        make_pod(container("a", gpus(1)), container("s", asks(cpu="4", memory="8Gi")))
    )

    assert answered.message == (
        "pod default/p: cpu 0 left for container 'a': others ask 4 ('s' 4),"
        " the budget of 1 nvidia.com/gpu is 4;"
        " memory 0 left for container 'a': others ask 8Gi ('s' 8Gi),"
        " the budget of 1 nvidia.com/gpu is 8Gi"
    )


def test_a_rest_too_small_for_all_containers_is_refused() -> None:
    answered = make_webhook().send(
        make_pod(
            container("a", gpus(1)),
            container("b", gpus(1)),
            container("s", asks(cpu="7999m")),
        )
    )

    assert "cpu 1m left for container 'b'" in answered.message


# Kinds of containers.


def test_a_container_with_zero_gpus_is_no_gpu_container() -> None:
    answered = make_webhook().send(
        make_pod(container("a", gpus(0, cpu="1")), container("b", gpus(1)))
    )

    assert answered.amounts("a") == {GPU: "0", "cpu": "1"}
    assert answered.amounts("b") == {GPU: "1", "cpu": "3", "memory": "8Gi"}


def test_restartable_init_containers_count_and_others_do_not() -> None:
    init = [
        container("i1", asks(cpu="1", memory="1Gi"), restartPolicy="Always"),
        container("i2", asks(cpu="16")),
    ]

    answered = make_webhook().send(
        make_pod(container("a", gpus(1)), initContainers=init)
    )

    assert answered.amounts("a") == {GPU: "1", "cpu": "3", "memory": "7Gi"}
    assert answered.pod["spec"]["initContainers"] == init


def test_limits_alone_are_understood() -> None:
    answered = make_webhook().send(
        make_pod(
            container("a", {"limits": {GPU: "1"}}),
            container("s", {"limits": {"cpu": "1"}}),
        )
    )

    assert answered.amounts("a") == {GPU: "1", "cpu": "3", "memory": "8Gi"}


# Protocol.


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        pytest.param({"operation": "UPDATE"}, Reason.NOT_A_CREATE, id="update"),
        pytest.param(
            {"operation": "DELETE", "object": None}, Reason.NOT_A_CREATE, id="delete"
        ),
        pytest.param(
            {"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}},
            Reason.NOT_A_POD,
            id="deployment",
        ),
        pytest.param(
            {"kind": {"group": "x.com", "version": "v1", "kind": "Pod"}},
            Reason.NOT_A_POD,
            id="pod of another group",
        ),
        pytest.param(
            {"subResource": "ephemeralcontainers"}, Reason.NOT_A_POD, id="subresource"
        ),
        pytest.param({"object": None}, Reason.NO_OBJECT, id="no object"),
        pytest.param(
            {"namespace": "kube-system"}, Reason.SYSTEM_NAMESPACE, id="kube-system"
        ),
    ],
)
def test_only_the_creation_of_pods_is_looked_at(
    fields: dict[str, Any], reason: Reason
) -> None:
    webhook = make_webhook()

    response = webhook.post(
        make_review(make_pod(container("a", gpus(1))), **{"uid": "u", **fields})
    )["response"]

    assert response == {"uid": "u", "allowed": True}
    assert webhook.observer.admissions == [(Outcome.SKIPPED, reason)]


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param({"kubernetes.io/config.mirror": "hash"}, id="mirror pod"),
        pytest.param({"kubernetes.io/config.source": "file"}, id="static pod"),
    ],
)
def test_pods_of_the_kubelet_pass(annotations: dict[str, str]) -> None:
    webhook = make_webhook()

    answered = webhook.send(make_pod(container("a", gpus(1)), annotations=annotations))

    assert not answered.operations
    assert set(webhook.observer.admissions) == {(Outcome.SKIPPED, Reason.STATIC_POD)}


def test_a_pod_from_the_api_is_no_static_pod() -> None:
    answered = make_webhook().send(
        make_pod(
            container("a", gpus(1)), annotations={"kubernetes.io/config.source": "api"}
        )
    )

    assert answered.operations


def test_a_dry_run_gets_the_same_patch() -> None:
    webhook = make_webhook()
    pod = make_pod(container("a", gpus(1)))

    real, dry = webhook.send(pod, dryRun=False), webhook.send(pod, dryRun=True)

    assert dry.operations == real.operations


def test_a_pod_without_name_and_namespace_takes_those_of_the_request() -> None:
    webhook = make_webhook(TRAINING)
    pod = make_pod(container("a", gpus(2)))
    pod["metadata"] = {
        "generateName": "w-",
        "annotations": pod["metadata"]["annotations"],
    }

    answered = webhook.send(pod, namespace="gpu-training")
    pod["spec"]["containers"].append(container("s", asks(cpu="13")))
    refused = webhook.send(pod, namespace="gpu-training")

    assert answered.amounts("a")["cpu"] == "12"
    assert refused.message.startswith("pod gpu-training/w-*: cpu short by 1 ")


def test_annotations_are_set_and_their_keys_escaped() -> None:
    rules = v100(annotations={"a/b~c": "", "k": "new"})

    answered = make_webhook(rules).send(
        make_pod(container("a", gpus(1)), annotations={"k": "old"})
    )

    assert answered.annotations == {TRIGGER: "V100", "k": "new", "a/b~c": ""}
    assert {"op": "add", "path": "/metadata/annotations/a~1b~0c", "value": ""} in (
        answered.operations
    )
    assert answered.warnings == ["annotation k was replaced"]
    assert answered.response["auditAnnotations"]["overwritten"] == (
        '{"annotations[k]":"old"}'
    )


def test_both_versions_of_the_review_are_echoed() -> None:
    review = make_review(make_pod(container("a", gpus(1))))
    review["apiVersion"] = "admission.k8s.io/v1beta1"

    answer = make_webhook().post(review)

    assert answer["apiVersion"] == "admission.k8s.io/v1beta1"
    assert answer["response"]["patchType"] == "JSONPatch"


def test_null_maps_are_filled() -> None:
    pod = make_pod(container("a", {"limits": {GPU: 1}, "requests": None}))

    answered = make_webhook().send(pod)

    assert answered.amounts("a") == {GPU: 1, "cpu": "4", "memory": "8Gi"}


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
