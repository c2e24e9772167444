"""A synthetic GPU cluster: as a dump, as a snapshot, and as kube-scheduler asks of it.

Nodes are of four models with eight GPUs each, two to six of them in use by two pods.
One node in 32 has a driver upgrade that failed, so that every filter call also refuses.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from cluster.decode.objects import Node, Pod, PodRecord
from cluster.decode.records import FaultSignals, RecordBuilder
from cluster.ledger.changes import NodesListed, PodsListed
from cluster.ledger.ledger import Ledger
from scoring.candidates import LabelKeys
from scoring.resources import ResourceScope
from scoring.snapshot import Snapshot
from service.settings.settings import Settings

# accelerator label, product label, whether the GPUs are joined by NVLink
MODELS: Final = (
    ("nvidia-tesla-a100", "NVIDIA-A100-SXM4-80GB", True),
    ("nvidia-h100", "NVIDIA-H100-80GB-HBM3", True),
    ("nvidia-tesla-v100", "Tesla-V100-PCIE-32GB", False),
    ("nvidia-l4", "NVIDIA-L4", False),
)
ZONES: Final = ("eu-west-1a", "eu-west-1b", "eu-west-1c")
GPUS_PER_NODE: Final = 8
PODS_PER_NODE: Final = 2
FAULTED_EVERY: Final = 32
POD_UID: Final = "3f84de8f-ba35-4b1f-a174-a35b0e5a7e15"  # of the pod in a call


def node_names(count: int) -> list[str]:
    """Return the names of a cluster's nodes: unlike each other, 41 characters or less.

    Neighbours in the list lie in different zones, which is the order in which
    kube-scheduler goes through its nodes.
    """
    return [
        f"ip-10-{64 + number % len(ZONES)}-{number // 251 % 256}-{number % 251}"
        ".eu-west-1.compute.internal"
        for number in range(count)
    ]


def gpu_labels(number: int) -> dict[str, str]:
    """Return the labels of a GPU node, its own name apart."""
    accelerator, product, is_linked = MODELS[number % len(MODELS)]
    labels = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/zone": ZONES[number % len(ZONES)],
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.count": str(GPUS_PER_NODE),
        "nvidia.com/gpu.product": product,
        "accelerator": accelerator,
    }
    if is_linked:
        labels["gpu-interconnect"] = "nvlink"
    return labels


def _node(number: int, name: str) -> dict[str, Any]:
    """Return a node as the API server prints it."""
    amounts = {
        "cpu": "96",
        "memory": "1Ti",
        "ephemeral-storage": "1700Gi",
        "pods": "110",
        "nvidia.com/gpu": str(GPUS_PER_NODE),
    }
    labels = {"kubernetes.io/hostname": name, **gpu_labels(number)}
    if number % FAULTED_EVERY == FAULTED_EVERY - 1:
        labels["nvidia.com/gpu-driver-upgrade-state"] = "upgrade-failed"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"node-{number}", "labels": labels},
        "spec": {},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _pod(uid: str, gpus: int, node_name: str) -> dict[str, Any]:
    """Return a pod as the API server prints it, bound to a node or pending."""
    amounts = {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": str(gpus)}
    spec = {
        "containers": [
            {
                "name": "main",
                "image": "pytorch/pytorch:2.9.0",
                "command": ["python", "train.py"],
                "env": [{"name": "NCCL_DEBUG", "value": "INFO"}],
                "resources": {"limits": amounts, "requests": amounts},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "IfNotPresent",
            }
        ],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{condition}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            }
            for condition in ("not-ready", "unreachable")
        ],
        "enableServiceLinks": True,
    }
    if node_name:
        spec["nodeName"] = node_name
    return {
        "metadata": {
            "name": uid,
            "namespace": "ml-team",
            "uid": uid,
            "resourceVersion": "81",
            "generation": 1,
            "creationTimestamp": "2026-11-27T23:54:45Z",
            "labels": {"app": "train"},
            "annotations": {"task.bkbcs.tencent.com/gpu-type": "V100"},
        },
        "spec": spec,
        "status": {
            "phase": "Running" if node_name else "Pending",
            "qosClass": "Guaranteed",
        },
    }


def _nodes(count: int) -> Iterator[dict[str, Any]]:
    """Yield the nodes of a cluster in the order of their names, as a list has them."""
    named = sorted((name, number) for number, name in enumerate(node_names(count)))
    return (_node(number, name) for name, number in named)


def _pods(count: int) -> Iterator[dict[str, Any]]:
    """Yield the running pods of a cluster of `count` nodes."""
    for number, name in enumerate(node_names(count)):
        for nth in range(PODS_PER_NODE):
            gpus = 1 + (number // 7 + nth * number) % 3
            yield _pod(f"running-{number}-{nth}", gpus, name)


def write_dump(path: Path, count: int) -> None:
    """Write a cluster of `count` nodes as ``kubectl get -o json`` prints it."""
    items = [*_nodes(count), *({"kind": "Pod", **pod} for pod in _pods(count))]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


def _builder() -> RecordBuilder:
    return RecordBuilder(
        ResourceScope(("nvidia.com/gpu",), ("nvidia.com/",)),
        Settings().gpu_annotations(),
        FaultSignals({"nvidia.com/gpu-driver-upgrade-state": frozenset()}),
    )


def build_ledger(count: int, labels: LabelKeys) -> Ledger:
    """Return a cluster of `count` nodes through the decoder, in a ledger.

    `labels` names the labels that get a column, as in the settings.
    """
    builder = _builder()
    nodes = [builder.node_record(msgspec.convert(n, Node))[0] for n in _nodes(count)]
    pods = [builder.pod_record(msgspec.convert(p, Pod))[0] for p in _pods(count)]
    ledger = Ledger(labels.columns())
    ledger.apply(NodesListed(tuple(nodes)))
    ledger.apply(PodsListed(tuple(pods)))
    return ledger


def build_snapshot(count: int, labels: LabelKeys) -> Snapshot:
    """Return a cluster of `count` nodes; `labels` as for `build_ledger`."""
    return build_ledger(count, labels).build()


def bound_pod(uid: str, millicores: int, node_name: str) -> PodRecord:
    """Return a pod with one GPU that is bound to a node."""
    pod = _pod(uid, 1, node_name)
    amounts = pod["spec"]["containers"][0]["resources"]["requests"]
    amounts["cpu"] = f"{millicores}m"
    return _builder().pod_record(msgspec.convert(pod, Pod))[0]


def call_body(names: list[str]) -> bytes:
    """Return a call as kube-scheduler sends it with ``nodeCacheCapable: true``.

    The pod asks for two GPUs; each node has as many free.
    """
    body = {
        "Pod": _pod(POD_UID, 2, ""),
        "Nodes": None,
        "NodeNames": names,
    }
    return json.dumps(body, separators=(",", ":")).encode()


def sampled_bodies(nodes: int, names: int, count: int) -> list[bytes]:
    """Return `count` calls, each about the next `names` of a cluster's `nodes`.

    kube-scheduler looks at a part of the nodes for a pod and goes on behind it for the
    next one.
    """
    ring = node_names(nodes)
    starts = [turn * names % nodes for turn in range(count)]
    return [call_body([*ring[start:], *ring[:start]][:names]) for start in starts]
