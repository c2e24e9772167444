"""The steps that set scheduler and tolerations of GPU pods."""

import json
from typing import Any

import pytest

from injector.steps import SchedulerStep, TolerationStep
from scoring.resources import ResourceScope
from tests.defaults import SETTINGS
from tests.fakes.webhook import (
    GPU,
    Webhook,
    both,
    container,
    gpus,
    make_pod,
    make_review,
    make_webhook,
)

SCOPE = ResourceScope(
    (GPU, "nvidia.com/mig-*", "amd.com/spx_*", "amd.com/cpx_*"),
    ("nvidia.com/", "amd.com/"),
)
MIG = "nvidia.com/mig-1g.10gb"


def scheduling() -> Webhook:
    return make_webhook(
        steps=(
            SchedulerStep(
                SCOPE, "gpu-scheduler", SETTINGS.injection.scheduler_opt_out_label
            ),
        )
    )


def tolerating() -> Webhook:
    return make_webhook(steps=(TolerationStep(SCOPE),))


def exists(key: str) -> dict[str, str]:
    return {"key": key, "operator": "Exists", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(make_pod(container("a", gpus(1))), id="no scheduler named"),
        pytest.param(
            make_pod(
                container("a", both({"nvidia.com/gpu-memory": "1"})),
                schedulerName="default-scheduler",
            ),
            id="a managed resource that is no GPU",
        ),
        pytest.param(
            make_pod(container("a"), initContainers=[container("i", gpus(1))]),
            id="in an init container",
        ),
    ],
)
def test_pods_that_ask_a_managed_resource_go_to_our_scheduler(
    pod: dict[str, Any],
) -> None:
    answered = scheduling().send(pod)

    assert answered.pod["spec"]["schedulerName"] == "gpu-scheduler"


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(make_pod(container("a"), gpu_type=None), id="no resources"),
        pytest.param(make_pod(container("a", gpus(0)), gpu_type=None), id="zero GPUs"),
        pytest.param(
            make_pod(container("a", both({GPU: "one"})), gpu_type=None),
            id="a quantity that is none",
        ),
        pytest.param(
            make_pod(
                container("a", gpus(1)),
                gpu_type=None,
                metadata={"labels": {"gpu-extender.io/scheduler": "keep"}},
            ),
            id="opted out",
        ),
    ],
)
def test_other_pods_keep_their_scheduler(pod: dict[str, Any]) -> None:
    assert not scheduling().send(pod).operations


def test_replacing_another_scheduler_is_told() -> None:
    pod = make_pod(container("a", gpus(1)), gpu_type=None, schedulerName="volcano")

    assert scheduling().send(pod).warnings == [
        (
            "scheduler 'volcano' replaced by gpu-scheduler; label"
            " gpu-extender.io/scheduler: keep prevents it"
        )
    ]


def test_gpu_pods_tolerate_the_taint_of_their_resource() -> None:
    others = [{"key": "x", "operator": "Exists"}]
    pod = make_pod(container("a", gpus(1)), gpu_type=None, tolerations=others)

    answered = tolerating().send(pod)

    assert answered.pod["spec"]["tolerations"] == [*others, exists(GPU)]


def test_slices_tolerate_the_taint_of_whole_gpus_too() -> None:
    answered = tolerating().send(make_pod(container("a", both({MIG: "1"}))))

    assert answered.pod["spec"]["tolerations"] == [exists(GPU), exists(MIG)]


@pytest.mark.parametrize("name", ["amd.com/cpx_nps4", "amd.com/spx_nps1"])
def test_partitions_tolerate_the_taint_of_amd_gpus_too(name: str) -> None:
    answered = tolerating().send(make_pod(container("a", both({name: "1"}))))

    assert answered.pod["spec"]["tolerations"] == [
        exists(key) for key in sorted((name, "amd.com/gpu"))
    ]


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(
            make_pod(container("a", both({"cpu": "1"})), gpu_type=None), id="no GPU"
        ),
        pytest.param(
            make_pod(container("a", gpus(1)), gpu_type=None, tolerations=[exists(GPU)]),
            id="tolerated already",
        ),
    ],
)
def test_nothing_is_tolerated_without_need(pod: dict[str, Any]) -> None:
    assert not tolerating().send(pod).operations


def test_a_scheduler_that_is_no_text_is_a_fault_of_the_pod() -> None:
    pod = make_pod(container("a", gpus(1)), schedulerName=["x"])

    result = scheduling().client.simulate_post(
        "/mutate", body=json.dumps(make_review(pod))
    )

    assert result.status_code == 400
    assert (
        "request.object.spec.schedulerName: wanted text" in result.json["description"]
    )


@pytest.mark.parametrize("text", ["Keep", "true", "", "default-scheduler"])
def test_an_opt_out_label_that_is_none_is_told(text: str) -> None:
    label = SETTINGS.injection.scheduler_opt_out_label
    pod = make_pod(
        container("a", gpus(1)), gpu_type=None, metadata={"labels": {label: text}}
    )

    answered = scheduling().send(pod)

    assert answered.pod["spec"]["schedulerName"] == "gpu-scheduler"
    assert answered.warnings == [
        f"label {label}: {text!r} is not known, use 'keep' to keep the scheduler"
    ]
