"""Nodes and pods as JSON objects for the API server, defaults for all that a test
does not care about."""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

JsonObject: TypeAlias = dict[str, Any]

GPU: Final = "nvidia.com/gpu"
IMAGE: Final = "registry.invalid/workload:1"


def make_node(  # noqa: PLR0913 - every argument is optional and named
    name: str,
    *,
    gpus: int = 0,
    resources: Mapping[str, int | str] | None = None,
    cpu: str = "64",
    memory: str = "256Gi",
    pods: int = 110,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    is_ready: bool = True,
    unschedulable: bool = False,
) -> JsonObject:
    """Return a node; `resources` adds to, or replaces, what it offers."""
    offered = {"cpu": cpu, "memory": memory, "pods": str(pods)}
    if gpus:
        offered[GPU] = str(gpus)
    offered.update({key: str(value) for key, value in (resources or {}).items()})
    spec: JsonObject = {}
    if taints:
        spec["taints"] = [dict(taint) for taint in taints]
    if unschedulable:
        spec["unschedulable"] = True
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, **(labels or {})},
            "annotations": dict(annotations or {}),
        },
        "spec": spec,
        "status": {
            "capacity": offered,
            "allocatable": offered,
            "conditions": [ready_condition(is_true=is_ready)],
        },
    }


def question_about(pod: JsonObject, nodes: Sequence[str]) -> JsonObject:
    """Return a call about a pod, with a UID as every pod of an API server has one."""
    metadata = {"uid": f"uid-of-{pod['metadata']['name']}", **pod["metadata"]}
    return {"Pod": {**pod, "metadata": metadata}, "NodeNames": list(nodes)}


def make_pod(  # noqa: PLR0913 - every argument is optional and named
    name: str | None = None,
    *,
    generate_name: str | None = None,
    namespace: str = "default",
    gpus: int = 0,
    resources: Mapping[str, int | str] | None = None,
    cpu: str | None = None,
    memory: str | None = None,
    node_selector: Mapping[str, str] | None = None,
    node_name: str | None = None,
    scheduler_name: str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    priority: int | None = None,
    grace_seconds: int = 0,
    spec: Mapping[str, Any] | None = None,
) -> JsonObject:
    """Return a pod of one container; `spec` replaces whole fields of its spec."""
    asked = {"cpu": cpu, "memory": memory, GPU: gpus or None, **(resources or {})}
    wanted = {key: str(value) for key, value in asked.items() if value is not None}
    metadata: JsonObject = {
        "namespace": namespace,
        "labels": dict(labels or {}),
        "annotations": dict(annotations or {}),
    }
    if name is not None:
        metadata["name"] = name
    else:
        metadata["generateName"] = generate_name or "pod-"
    optional = {
        "nodeSelector": dict(node_selector) if node_selector else None,
        "nodeName": node_name,
        "schedulerName": scheduler_name,
        "priority": priority,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "terminationGracePeriodSeconds": grace_seconds,
            "containers": [
                {
                    "name": "main",
                    "image": IMAGE,
                    "resources": {"requests": wanted, "limits": wanted},
                }
            ],
            **{key: value for key, value in optional.items() if value is not None},
            **(spec or {}),
        },
    }


def ready_condition(*, is_true: bool = True) -> JsonObject:
    """Return the condition `Ready` as a kubelet writes it."""
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "type": "Ready",
        "status": "True" if is_true else "False",
        "reason": "KubeletReady" if is_true else "KubeletNotReady",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
