"""Pods and what they become under rules of the wild, for bytes and for the API server.

`tests/unit` sends each to the webhook's code, `tests/e2e` creates it through the real
API server.
"""

from typing import Any

import pytest

from injector.steps import AdmissionReason
from tests.fakes.webhook import (
    GPU,
    container,
    gpus,
    make_pod,
    per_gpu,
    v100,
)
from tests.injection_case import (
    NO_GPU,
    TRAINED,
    TRAINING,
    Case,
    asks,
    budget_case,
    refused,
    skipped,
)
from tests.injection_parity import PARITY


def rule_case(
    resources: list[dict[str, Any]], count: int, amounts: dict[str, str]
) -> Case:
    return Case(
        make_pod(container("a", gpus(count))),
        v100(*resources),
        injected={"a": {GPU: str(count), **amounts}},
    )


def memory_case(coefficient: int, unit: str, sidecar: str | None, memory: str) -> Case:
    others = [container("s", asks(memory=sidecar))] if sidecar else []
    return Case(
        make_pod(container("a", gpus(1)), *others),
        v100(per_gpu("memory", coefficient, unit)),
        injected={"a": {GPU: "1", "memory": memory}},
    )


def nameless(pod: dict[str, Any]) -> dict[str, Any]:
    """Return a pod as a controller sends it: without name and namespace."""
    annotations = pod["metadata"]["annotations"]
    return {**pod, "metadata": {"generateName": "w-", "annotations": annotations}}


RESTARTABLE = [
    container("i1", asks(cpu="1", memory="1Gi"), restartPolicy="Always"),
    container("i2", asks(cpu="16")),
]
STATIC = "kubernetes.io/config.source"

ARITHMETIC = [
    pytest.param(
        budget_case(
            {"a": {GPU: "3", "cpu": "11500m", "memory": "23Gi"}},
            make_pod(
                container("a", gpus(3)),
                container("s", asks(cpu="500m", memory="1Gi")),
            ),
        ),
        id="float noise does not eat a millicore",
    ),
    # 11500m / 3 = 3833.33 and 7666.67; 23Gi = 24696061952 = 3 x 8232020650.67
    pytest.param(
        budget_case(
            {
                "a": {GPU: "1", "cpu": "3833m", "memory": "8232020651"},
                "b": {GPU: "2", "cpu": "7667m", "memory": "16464041301"},
            },
            make_pod(
                container("a", gpus(1)),
                container("b", gpus(2)),
                container("s", asks(cpu="500m", memory="1Gi")),
            ),
        ),
        id="the remainder goes to the largest fraction",
    ),
    pytest.param(
        Case(
            make_pod(
                *(container(name, gpus(1)) for name in "abc"),
                container("s", asks(cpu="500m")),
            ),
            v100(per_gpu("cpu", 4)),
            injected={
                "a": {GPU: "1", "cpu": "3834m"},
                "b": {GPU: "1", "cpu": "3833m"},
                "c": {GPU: "1", "cpu": "3833m"},
            },
        ),
        id="equal fractions favour the first",
    ),
    pytest.param(
        rule_case(
            [per_gpu("cpu", 3.5), per_gpu("memory", 1.5, "Gi")],
            1,
            {"cpu": "3500m", "memory": "1536Mi"},
        ),
        id="broken coefficients",
    ),
    pytest.param(
        rule_case([per_gpu("cpu", 3.5)], 3, {"cpu": "10500m"}), id="three times 3.5"
    ),
    pytest.param(
        rule_case([per_gpu("memory", 0.5, "Gi")], 1, {"memory": "512Mi"}),
        id="half a Gi",
    ),
    pytest.param(
        rule_case(
            [per_gpu("cpu", 0.29), per_gpu("x.com/y", 0.29)],
            100,
            {"cpu": "29", "x.com/y": "29"},
        ),
        id="0.29 times 100 is 29",
    ),
    pytest.param(
        rule_case(
            [
                per_gpu("x.com/core", 2.357142857142857),
                per_gpu("cpu", 2.357142857142857),
            ],
            14,
            {"cpu": "33", "x.com/core": "33"},
        ),
        id="33/14 times 14 is 33",
    ),
    pytest.param(memory_case(8, "Gi", "1G", "7589934592"), id="Gi less G"),
    pytest.param(memory_case(8, "G", "1Gi", "6926258176"), id="G less Gi"),
    pytest.param(
        memory_case(8, "Gi", "1.2Gi", "7301444403"), id="broken bytes are floored"
    ),
    pytest.param(memory_case(1024, "Mi", None, "1Gi"), id="1024Mi is 1Gi"),
    pytest.param(memory_case(1000, "Mi", None, "1000Mi"), id="1000Mi stays"),
    pytest.param(
        refused(
            "cpu 0 left for container 'a': others ask 4 ('s' 4),"
            " the budget of 1 nvidia.com/gpu is 4;"
            " memory 0 left for container 'a': others ask 8Gi ('s' 8Gi),"
            " the budget of 1 nvidia.com/gpu is 8Gi",
            container("a", gpus(1)),
            container("s", asks(cpu="4", memory="8Gi")),
        ),
        id="a budget that is used up",
    ),
    pytest.param(
        refused(
            "cpu 1m left for container 'b': others ask 7999m ('s' 7999m),"
            " the budget of 2 nvidia.com/gpu is 8",
            container("a", gpus(1)),
            container("b", gpus(1)),
            container("s", asks(cpu="7999m")),
        ),
        id="a rest too small for all containers",
    ),
]

KINDS = [
    pytest.param(
        skipped(make_pod(container("a", gpus(0))), AdmissionReason.NO_GPU, NO_GPU),
        id="zero GPUs",
    ),
    pytest.param(
        budget_case(
            {"b": {GPU: "1", "cpu": "3", "memory": "8Gi"}},
            make_pod(container("a", gpus(0, cpu="1")), container("b", gpus(1))),
        ),
        id="a container with zero GPUs is no GPU container",
    ),
    pytest.param(
        budget_case(
            {"a": {GPU: "1", "cpu": "3", "memory": "7Gi"}},
            make_pod(container("a", gpus(1)), initContainers=RESTARTABLE),
        ),
        id="restartable init containers count and others do not",
    ),
    pytest.param(
        budget_case(
            {"a": {GPU: "1", "cpu": "3", "memory": "8Gi"}},
            make_pod(
                container("a", {"limits": {GPU: "1"}}),
                container("s", {"limits": {"cpu": "1"}}),
            ),
        ),
        id="limits alone are understood",
    ),
    pytest.param(
        budget_case(
            {"a": {GPU: "1", "cpu": "4", "memory": "8Gi"}},
            make_pod(container("a", {"limits": {GPU: "1"}, "requests": None})),
        ),
        id="null maps are filled",
    ),
]

PROTOCOL = [
    pytest.param(
        skipped(
            make_pod(container("a", gpus(1))),
            AdmissionReason.SYSTEM_NAMESPACE,
            namespace="kube-system",
        ),
        id="kube-system",
    ),
    pytest.param(
        skipped(
            make_pod(
                container("a", gpus(1)),
                annotations={"kubernetes.io/config.mirror": "hash"},
                nodeName="node-a",
            ),
            AdmissionReason.STATIC_POD,
        ),
        id="mirror pod",
    ),
    *[
        pytest.param(
            budget_case(
                {"a": {GPU: "1", "cpu": "4", "memory": "8Gi"}},
                make_pod(container("a", gpus(1)), annotations=annotations),
            ),
            id=f"a pod that only says as static pods do: {annotations}",
        )
        for annotations in (
            {STATIC: "file"},
            {STATIC: "http"},
            {STATIC: "api"},
            {STATIC: ""},
            {"kubernetes.io/config.hash": "5f1e"},
            {"kubernetes.io/config.seen": "2026-01-01T00:00:00Z"},
            {STATIC: "file", "kubernetes.io/config.hash": "5f1e"},
            {"kubernetes.io/config.Mirror": "5f1e"},
        )
    ],
    pytest.param(
        Case(
            nameless(make_pod(container("a", gpus(2)))),
            TRAINING,
            "gpu-training",
            injected={"a": TRAINED},
            annotations={"x": "y"},
        ),
        id="without name and namespace, those of the request count",
    ),
    pytest.param(
        Case(
            nameless(make_pod(container("a", gpus(2)), container("s", asks(cpu="13")))),
            TRAINING,
            "gpu-training",
            message="pod gpu-training/w-*: cpu short by 1 for container 'a':"
            " others ask 13 ('s' 13), the budget of 2 nvidia.com/gpu is 12",
        ),
        id="a refusal names what the name will begin with",
    ),
    pytest.param(
        Case(
            make_pod(container("a", gpus(1)), annotations={"k": "old"}),
            v100(annotations={"a/b.c": "", "k": "new"}),
            annotations={"a/b.c": "", "k": "new"},
            warnings=("annotation k was replaced",),
            audit={"overwritten": '{"annotations[k]":"old"}'},
        ),
        id="annotations are set",
    ),
]

CASES = [*PARITY, *ARITHMETIC, *KINDS, *PROTOCOL]
