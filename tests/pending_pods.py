"""Pods that stay pending on one cluster of 200 nodes, each for a reason of its own.

`carry_out` does what an explanation says would help.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from extender.explain.remedies import Remedy
from scoring.quantity import show_amount
from tests.builders import GPU, Tree, make_container, make_node, make_pod

TYPE: Final = "gpu-extender.io/gpu-type"
MEMORY: Final = "gpu-extender.io/min-gpu-memory"
EXCLUSIVE: Final = "gpu-extender.io/exclusive"
SHARES: Final = "nvidia.com/gpu.shared"
MIG: Final = "nvidia.com/mig-3g.40gb"
FAILING: Final = "p4-000"
TAINT: Final = {"key": "team", "value": "ml", "effect": "NoSchedule"}

# name, number of nodes, product, accelerator label, GPUs, CPUs, memory
_MODELS: Final = (
    ("t4", 60, "Tesla-T4", "nvidia-t4", 4, 64, "256Gi"),
    ("a100", 40, "NVIDIA-A100-SXM4-80GB", "nvidia-a100", 8, 96, "1Ti"),
    ("h100", 20, "NVIDIA-H100-80GB-HBM3", "nvidia-h100", 8, 192, "2Ti"),
    ("l4", 6, "NVIDIA-L4", "nvidia-l4", 8, 96, "512Gi"),
    ("v100", 6, "Tesla-V100-SXM2-32GB", "nvidia-v100", 8, 96, "512Gi"),
    ("p4", 1, "Tesla-P4", "nvidia-p4", 4, 64, "256Gi"),
)
_SHARED: Final = {
    "nvidia.com/gpu.product": "NVIDIA-A10-SHARED",
    "nvidia.com/gpu.replicas": "4",
    "nvidia.com/gpu.sharing-strategy": "time-slicing",
}
_PARTS: Final = {
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
    "nvidia.com/mig.strategy": "mixed",
}


def make_nodes() -> list[Tree]:
    """Return 200 nodes: T4 free, A100 full, H100 tainted, L4 cordoned, V100 in use."""
    nodes = [
        make_node(
            name=f"{name}-{number:03}",
            gpus=gpus,
            cpu=str(cpus),
            memory=memory,
            labels={"nvidia.com/gpu.product": product, "accelerator": accelerator},
            taints=[TAINT] if name == "h100" else (),
            is_cordoned=name == "l4",
        )
        for name, count, product, accelerator, gpus, cpus, memory in _MODELS
        for number in range(count)
    ]
    nodes += [
        make_node(name=f"a10-{number:03}", gpus=8, cpu="32", labels=_SHARED)
        for number in range(4)
    ]
    nodes += [
        make_node(
            name=f"shared-{number:03}",
            cpu="32",
            resources={SHARES: "16"},
            labels={
                "nvidia.com/gpu.product": "Tesla-T4",
                "nvidia.com/gpu.replicas": "4",
            },
        )
        for number in range(3)
    ]
    nodes += [
        make_node(name=f"cpu-{number:03}", cpu="48", memory="192Gi")
        for number in range(60)
    ]
    return nodes


def make_bound_pods() -> list[Tree]:
    """Return what runs on the nodes."""
    full = [
        make_pod(name=f"full-{n}", namespace="ml", gpus=8, node_name=f"a100-{n:03}")
        for n in range(38)
    ]
    full += [
        make_pod(name=f"part-{n}", namespace="ml", gpus=6, node_name=f"a100-{n:03}")
        for n in range(38, 40)
    ]
    one = [
        make_pod(name=f"one-{n}", namespace="ml", gpus=1, node_name=f"v100-{n:03}")
        for n in range(6)
    ]
    return [*full, *one]


REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_EXPORTED: Final = {"containerPort": 9400, "hostPort": 9400}
_QUIET: Final = {
    "labelSelector": {"matchLabels": {"noisy": "true"}},
    "topologyKey": "kubernetes.io/hostname",
}


def make_neighbours() -> list[Tree]:
    """Return pods that keep others away: by a port on all GPU nodes, by label on T4.

    The V100 nodes are full of pods of low priority.
    """
    exporters = [
        make_pod(
            name=f"exporter-{node['metadata']['name']}",
            namespace="monitoring",
            node_name=node["metadata"]["name"],
            containers=[{**make_container(), "ports": [_EXPORTED]}],
        )
        for node in make_nodes()
        if not node["metadata"]["name"].startswith("cpu-")
    ]
    affinity = {"podAntiAffinity": {REQUIRED: [_QUIET]}}
    quiet = [
        make_pod(
            name=f"quiet-{number}",
            namespace="ml",
            node_name=f"t4-{number:03}",
            spec={"affinity": affinity},
        )
        for number in range(60)
    ]
    scrap = [
        make_pod(
            name=f"scrap-{number}",
            namespace="batch",
            gpus=7,
            node_name=f"v100-{number:03}",
            spec={"priority": -10},
        )
        for number in range(6)
    ]
    return [*exporters, *quiet, *scrap]


def _pod(gpus: int | None = 1, *, of: str = "", spec: Any = None, **more: Any) -> Tree:
    """Return a pod that is yet to be created, of a type if one is named."""
    annotations = {**({TYPE: of} if of else {}), **more.pop("annotations", {})}
    pod = make_pod(
        name="job",
        namespace="ml",
        gpus=gpus,
        annotations=annotations,
        spec=spec,
        **more,
    )
    metadata = {"name": "job", "namespace": "ml", "annotations": annotations}
    return {**pod, "metadata": metadata, "status": {}}


def _asking(
    requests: Mapping[str, Any] | None = None, limits: Mapping[str, Any] | None = None
) -> Tree:
    return {"containers": [make_container(requests=requests, limits=limits)]}


def _new(spec: Tree, **more: Any) -> Tree:
    """Return a pod that is yet to be created, by its spec."""
    metadata = {"name": "job", "namespace": "ml", **more}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


_SPREAD: Final = {
    "maxSkew": 1,
    "topologyKey": "topology.kubernetes.io/zone",
    "whenUnsatisfiable": "DoNotSchedule",
}
_VOLUME: Final = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}

# why it is pending -> the pod
PENDING: Final[Mapping[str, Tree]] = {
    "gates": _pod(of="T4", spec={"schedulingGates": [{"name": "example.com/q"}]}),
    "accelerator selector": _pod(spec={"nodeSelector": {"accelerator": "T4"}}),
    "full type": _pod(4, of="A100"),
    "unreadable annotation": _pod(of="H100;A100"),
    "exclusive": _pod(of="V100", annotations={EXCLUSIVE: "true"}),
    "failing node": _pod(of="P4"),
    "wrong type": _pod(of="B200"),
    "too many GPUs": _pod(16),
    "MIG absent": _pod(None, requests={MIG: "1"}),
    "taint": _pod(4, of="H100"),
    "cordon": _pod(2, of="L4"),
    "memory": _pod(of="T4", annotations={MEMORY: "24Gi"}),
    "shares": _pod(of="A10"),
    "CPU": _pod(4, of="T4", cpu="96"),
    "quota": _pod(4, of="T4"),
    "other scheduler": _pod(of="T4", spec={"schedulerName": "volcano"}),
    "misspelt type": _pod(of="A100-80"),
    "PVC": _pod(of="T4", spec={"volumes": [_VOLUME]}),
    "spread": _pod(of="T4", spec={"topologySpreadConstraints": [_SPREAD]}),
}

_ONE_GPU: Final = _asking(limits={GPU: 1})

_IMPORTANT: Final = {
    **_ONE_GPU,
    "nodeSelector": {"accelerator": "nvidia-v100"},
    "priority": 1000,
}

# what keeps it from nodes that have room -> the pod
KEPT: Final[Mapping[str, Tree]] = {
    "no limit": _new(_asking(requests={GPU: 1})),
    "half a GPU": _new(_asking(limits={GPU: "500m"})),
    "request unlike the limit": _new(_asking(requests={GPU: 1}, limits={GPU: 4})),
    "host port": _new(
        {"containers": [{**_ONE_GPU["containers"][0], "ports": [_EXPORTED]}]}
    ),
    "kept away": _new(
        {**_ONE_GPU, "nodeSelector": {"accelerator": "nvidia-t4"}},
        labels={"noisy": "true"},
    ),
    "preemption": _new(_IMPORTANT),
    "no preemption": _new({**_IMPORTANT, "preemptionPolicy": "Never"}),
    "group": _new({**_ONE_GPU, "schedulingGroup": {"podGroupName": "team"}}),
    "named node": _new({**_ONE_GPU, "nodeName": "a100-000"}),
    "unknown node": _new({**_ONE_GPU, "nodeName": "a100-999"}),
}

QUOTA: Final = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "team", "namespace": "ml"},
    "status": {
        "hard": {"requests.nvidia.com/gpu": "16"},
        "used": {"requests.nvidia.com/gpu": "14"},
    },
}


def carry_out(  # noqa: C901, PLR0912 - an arm for each action
    remedy: Remedy, pod: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]
) -> tuple[Tree, list[Tree]]:
    """Return the pod and the nodes after what would help was done."""
    changed: Tree = copy.deepcopy(dict(pod))
    after = [copy.deepcopy(dict(node)) for node in nodes]
    there = next((n for n in after if n["metadata"]["name"] == remedy.node), {})
    annotations = changed["metadata"].setdefault("annotations", {})
    amounts = changed["spec"]["containers"][0].setdefault("resources", {})
    match remedy.action:
        case "askLess":
            _ask(remedy, changed["spec"])
        case "type":
            kept = [] if remedy.text.startswith("write ") else [annotations[TYPE]]
            annotations[TYPE] = ",".join([*kept, remedy.value])
        case "sharing":
            annotations[remedy.value] = "allowed"
        case "gpuMemory":
            annotations[MEMORY] = remedy.value
        case "resource":
            for resources in amounts.values():
                resources[remedy.value] = resources.pop(next(_managed(resources)))
        case "leaveOut":
            for resources in amounts.values():
                resources.pop(remedy.value, None)
        case "selector":
            key, _, value = remedy.value.partition("=")
            changed["spec"]["nodeSelector"][key] = value
        case "labelNode":
            key, _, value = remedy.value.partition("=")
            there["metadata"]["labels"][key] = value
        case "affinity":
            changed["spec"].pop("affinity", None)
            for key in filter(None, remedy.value.split(",")):
                changed["spec"]["nodeSelector"].pop(key)
        case "tolerate":
            taint, _, effect = remedy.value.rpartition(":")
            key, _, value = taint.partition("=")
            changed["spec"].setdefault("tolerations", []).append(
                {"key": key, "value": value, "effect": effect, "operator": "Equal"}
            )
        case "uncordon":
            there["spec"].pop("unschedulable")
        case "share":
            annotations.pop(EXCLUSIVE)
        case "hostPort":
            changed["spec"]["containers"][0].pop("ports")
        case "unlabel":
            changed["metadata"]["labels"].pop(remedy.value)
        case "nodeName":
            changed["spec"].pop("nodeName")
        case _:
            raise AssertionError(f"nothing to carry out: {remedy.text}")
    return changed, after


def _ask(remedy: Remedy, spec: Tree) -> None:
    """Have the container that a remedy names ask less; else whichever asks it."""
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        for resources in container.get("resources", {}).values():
            for name, amount in remedy.request.items():
                named = remedy.containers.get(name, container["name"])
                if name in resources and container["name"] == named:
                    resources[name] = show_amount(name, amount)


def _managed(resources: Mapping[str, Any]) -> Iterator[str]:
    return (name for name in resources if name.startswith(GPU.partition("/")[0]))
