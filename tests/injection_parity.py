"""Cases of injection in which gpuinjector and we agree."""

from typing import Any

import pytest

from injector.steps import AdmissionReason
from tests.fakes.webhook import (
    AMD,
    C1,
    GPU,
    NETWORKS,
    SHM,
    both,
    container,
    gpus,
    make_pod,
    per_gpu,
    rule,
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

SPECIAL: dict[str, Any] = {
    **C1,
    "namespaceResourceMap": {"special-ns": {"V100": {AMD: rule(per_gpu("cpu", 1))}}},
}
PARITY = [
    pytest.param(
        budget_case(
            {"a": {GPU: "2", "cpu": "8", "memory": "16Gi"}},
            make_pod(container("a", gpus(2))),
        ),
        id="one container gets four cores and 8Gi per GPU",
    ),
    pytest.param(
        budget_case(
            {"a": {GPU: "2", "cpu": "7", "memory": "14Gi"}},
            make_pod(
                container("a", gpus(2)),
                container("s", asks(cpu="1000m", memory="2Gi")),
            ),
        ),
        id="what a sidecar asks is taken off",
    ),
    pytest.param(
        budget_case(
            {"a": {GPU: "2", "cpu": "7", "memory": "14Gi"}},
            make_pod(
                container("a", {"requests": {GPU: "2"}}),
                container("s", asks(cpu="1000m", memory="2Gi")),
            ),
        ),
        id="missing limits are made",
    ),
    pytest.param(
        budget_case(
            {
                "a": {GPU: "1", "cpu": "4", "memory": "8Gi"},
                "b": {GPU: "2", "cpu": "8", "memory": "16Gi"},
            },
            make_pod(container("a", gpus(1)), container("p"), container("b", gpus(2))),
        ),
        id="containers without a GPU are left alone",
    ),
    pytest.param(
        Case(
            make_pod(container("a", gpus(2))),
            TRAINING,
            "gpu-training",
            injected={"a": TRAINED},
            annotations={"x": "y"},
        ),
        id="a namespace rule replaces the default whole",
    ),
    pytest.param(
        Case(
            make_pod(container("a", gpus(2))),
            SPECIAL,
            "special-ns",
            injected={"a": {GPU: "2", "cpu": "8", "memory": "16Gi"}},
            annotations={NETWORKS: "tke-route-eni"},
        ),
        id="a namespace rule for another resource leaves the default",
    ),
    pytest.param(
        skipped(
            make_pod(container("a", gpus(2))),
            AdmissionReason.WHITE_LISTED_NAMESPACE,
            rules={**TRAINING, "namespaceWhiteList": ["gpu-training"]},
            namespace="gpu-training",
        ),
        id="a white-listed namespace beats its own rule",
    ),
    pytest.param(
        skipped(
            make_pod(container("a", gpus(1)), gpu_type="T4"),
            AdmissionReason.UNKNOWN_GPU_TYPE,
            "no rule for GPU type 'T4': nothing injected",
        ),
        id="unknown type",
    ),
    pytest.param(
        skipped(
            make_pod(container("a", gpus(1)), gpu_type="v100"),
            AdmissionReason.UNKNOWN_GPU_TYPE,
            "no rule for GPU type 'v100': nothing injected; did you mean 'V100'?",
        ),
        id="type in other letters",
    ),
    pytest.param(
        skipped(
            make_pod(container("a", gpus(1)), gpu_type=None),
            AdmissionReason.NO_GPU_TYPE,
        ),
        id="no annotation",
    ),
    pytest.param(
        skipped(
            make_pod(container("a", asks(cpu="1"))), AdmissionReason.NO_GPU, NO_GPU
        ),
        id="annotation and no GPU",
    ),
    pytest.param(
        refused(
            "asks more than one GPU resource: amd.com/gpu, nvidia.com/gpu",
            container("a", gpus(1)),
            container("b", both({AMD: "1"})),
        ),
        id="two GPU resources in two containers",
    ),
    pytest.param(
        refused(
            "asks more than one GPU resource: amd.com/gpu, nvidia.com/gpu",
            container("a", gpus(1, **{AMD: "1"})),
        ),
        id="two GPU resources in one container",
    ),
    pytest.param(
        refused(
            "cpu short by 1m for container 'a': others ask 4001m ('s' 4001m),"
            " the budget of 1 nvidia.com/gpu is 4",
            container("a", gpus(1)),
            container("s", asks(cpu="4001m")),
        ),
        id="a sidecar above the budget",
    ),
    pytest.param(
        refused(
            "cpu short by 2 for container 'a': others ask 10"
            " ('s0' 2, 's1' 2, 's2' 2, 's3' 2, ...),"
            " the budget of 2 nvidia.com/gpu is 8;"
            " memory short by 4Gi for container 'a': others ask 20Gi"
            " ('s0' 4Gi, 's1' 4Gi, 's2' 4Gi, 's3' 4Gi, ...),"
            " the budget of 2 nvidia.com/gpu is 16Gi",
            container("a", gpus(2)),
            *(container(f"s{i}", asks(cpu="2", memory="4Gi")) for i in range(5)),
        ),
        id="many sidecars above every budget",
    ),
    pytest.param(
        Case(
            make_pod(
                container(
                    "a",
                    {
                        "requests": {GPU: "2", "cpu": "1", "memory": "2Gi"},
                        "limits": {GPU: "2", "cpu": "32"},
                    },
                ),
                container("s", asks(cpu="500m", memory="1Gi")),
            ),
            injected={"a": {GPU: "2", "cpu": "7500m", "memory": "15Gi"}},
            annotations={NETWORKS: "tke-route-eni"},
            warnings=(
                (
                    "container 'a': cpu request 1 and limit 32 replaced by 7500m,"
                    " memory 2Gi replaced by 15Gi for GPU type 'V100'"
                ),
            ),
            audit={
                "overwritten": (
                    '{"containers[a].limits.cpu":"32","containers[a].requests.cpu":"1",'
                    '"containers[a].requests.memory":"2Gi"}'
                ),
            },
        ),
        id="what a GPU container asked is replaced and told",
    ),
    pytest.param(
        Case(
            make_pod(container("a", gpus(2)), container("s", both({SHM: "1Gi"}))),
            v100(per_gpu(SHM, 1, "Gi")),
            injected={"a": {GPU: "2", SHM: "2Gi"}},
        ),
        id="extended resources are not shared",
    ),
]
