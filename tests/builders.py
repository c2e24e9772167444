"""Nodes, pods and snapshots for tests; a test states only what matters to it.

`make_node` and `make_pod` return trees as the API server sends them; `make_snapshot`
takes such trees through the decoder and the ledger, as the service does.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from cluster.decode.faults import convert_with_faults
from cluster.decode.objects import Node, NodeRecord, Pod, PodRecord
from cluster.decode.records import FaultSignals, RecordBuilder
from cluster.ledger.changes import DeviceClassesListed, NodesListed, PodsListed
from cluster.ledger.ledger import Ledger
from scoring.candidates import Candidates, LabelKeys, PodRequest, take_columns
from scoring.resources import ResourceScope
from scoring.snapshot import Snapshot, find_columns
from tests.defaults import GPU_ANNOTATIONS

Tree: TypeAlias = dict[str, Any]

GPU: Final = "nvidia.com/gpu"
LABEL_KEYS: Final = ("accelerator", "gpu-interconnect")
SCOPE: Final = ResourceScope(
    gpu_resources=(
        "nvidia.com/gpu",
        "nvidia.com/gpu.shared",
        "nvidia.com/mig-*",
        "amd.com/gpu",
        "amd.com/spx_*",
        "amd.com/dpx_*",
        "amd.com/tpx_*",
        "amd.com/qpx_*",
        "amd.com/cpx_*",
    ),
    managed_prefixes=("nvidia.com/", "amd.com/"),
)
SIGNALS: Final = FaultSignals(
    label_values=MappingProxyType(
        {
            "nvidia.com/mig.config.state": frozenset({"success"}),
            "nvidia.com/gpu-driver-upgrade-state": frozenset(
                {"", "upgrade-done", "upgrade-required"}
            ),
        }
    ),
    product_labels=("nvidia.com/gpu.product",),
    conditions=MappingProxyType({"AcceleratedHardwareReady": "False"}),
)
BUILDER: Final = RecordBuilder(SCOPE, GPU_ANNOTATIONS, SIGNALS)


def make_node(  # noqa: PLR0913 - every argument is optional and named
    *,
    name: str = "node-1",
    gpus: int | str | None = None,
    cpu: str = "64",
    memory: str = "256Gi",
    pods: str = "110",
    resources: Mapping[str, Any] | None = None,
    capacity: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    conditions: Mapping[str, str] | None = None,
    is_ready: bool = True,
    is_cordoned: bool = False,
) -> Tree:
    """Return a node.

    Parameters
    ----------
    gpus : int or str, optional
        Allocatable ``nvidia.com/gpu``; None leaves the key out.
    resources : mapping, optional
        Adds to, or replaces, what is allocatable.
    capacity : mapping, optional
        Replaces single entries of the capacity, which is else what is allocatable.
    conditions : mapping, optional
        Condition type to status, beside ``Ready``.
    """
    allocatable: Tree = {"cpu": cpu, "memory": memory, "pods": pods}
    if gpus is not None:
        allocatable[GPU] = str(gpus)
    allocatable.update(resources or {})
    statuses = {"Ready": "True" if is_ready else "False", **(conditions or {})}
    spec: Tree = {}
    if taints:
        spec["taints"] = [dict(taint) for taint in taints]
    if is_cordoned:
        spec["unschedulable"] = True
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"uid-of-{name}",
            "labels": {"kubernetes.io/hostname": name, **(labels or {})},
            "annotations": dict(annotations or {}),
        },
        "spec": spec,
        "status": {
            "capacity": {**allocatable, **(capacity or {})},
            "allocatable": allocatable,
            "conditions": [
                {"type": kind, "status": status} for kind, status in statuses.items()
            ],
        },
    }


def make_container(
    *,
    name: str = "main",
    requests: Mapping[str, Any] | None = None,
    limits: Mapping[str, Any] | None = None,
    is_sidecar: bool = False,
) -> Tree:
    """Return a container, or a sidecar for the list of init containers."""
    container: Tree = {"name": name, "image": "registry.invalid/workload:1"}
    resources: Tree = {}
    if requests is not None:
        resources["requests"] = dict(requests)
    if limits is not None:
        resources["limits"] = dict(limits)
    if resources:
        container["resources"] = resources
    if is_sidecar:
        container["restartPolicy"] = "Always"
    return container


def make_pod(  # noqa: PLR0913 - every argument is optional and named
    *,
    name: str = "pod-1",
    namespace: str = "default",
    uid: str | None = None,
    gpus: int | str | None = None,
    cpu: str | None = None,
    memory: str | None = None,
    requests: Mapping[str, Any] | None = None,
    containers: Sequence[Tree] | None = None,
    init_containers: Sequence[Tree] = (),
    node_name: str = "",
    phase: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    owner_uid: str = "",
    metadata: Mapping[str, Any] | None = None,
    spec: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
) -> Tree:
    """Return a pod of one container, unless `containers` are given.

    Parameters
    ----------
    uid : str, optional
        Made from the name if absent.
    gpus : int or str, optional
        ``nvidia.com/gpu``, as request and limit.
    requests : mapping, optional
        Other resources of the one container, as requests and limits.
    phase : str
        Made from `node_name` if empty: Running with a node, Pending without.
    owner_uid : str
        UID of the pod's controller.
    metadata, spec, status : mapping, optional
        Put over what the other arguments make.
    """
    asked: Tree = dict(requests or {})
    for resource, amount in ((GPU, gpus), ("cpu", cpu), ("memory", memory)):
        if amount is not None:
            asked[resource] = str(amount)
    if containers is None:
        containers = [
            make_container(requests=asked, limits=asked) if asked else make_container()
        ]
    own_spec: Tree = {"containers": deepcopy(list(containers))}
    if init_containers:
        own_spec["initContainers"] = deepcopy(list(init_containers))
    if node_name:
        own_spec["nodeName"] = node_name
    own_metadata: Tree = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-of-{namespace}-{name}" if uid is None else uid,
        "creationTimestamp": "2026-11-27T12:00:00Z",
        "labels": dict(labels or {}),
        "annotations": dict(annotations or {}),
    }
    if owner_uid:
        own_metadata["ownerReferences"] = [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": "owner",
                "uid": owner_uid,
                "controller": True,
            }
        ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**own_metadata, **(metadata or {})},
        "spec": {**own_spec, **(spec or {})},
        "status": {
            "phase": phase or ("Running" if node_name else "Pending"),
            **(status or {}),
        },
    }


def make_node_record(tree: Tree, *, builder: RecordBuilder = BUILDER) -> NodeRecord:
    """Return the record of a node that must be without fault."""
    node, faults = convert_with_faults(deepcopy(tree), Node)
    assert node is not None, faults
    record, more = builder.node_record(node)
    assert not faults + more
    return record


def make_pod_record(tree: Tree, *, builder: RecordBuilder = BUILDER) -> PodRecord:
    """Return the record of a pod that must be without fault."""
    pod, faults = convert_with_faults(deepcopy(tree), Pod)
    assert pod is not None, faults
    record, more = builder.pod_record(pod)
    assert not faults + more
    return record


def make_pod_request(gpus: int, *, uid: str = "", job: str = "") -> PodRequest:
    """Return what a pod asks that wants GPUs and nothing else."""
    return PodRequest(uid, ((GPU, gpus),), GPU, None, "", job=job)


def make_ledger(
    *,
    nodes: Iterable[Tree] = (),
    pods: Iterable[Tree] = (),
    device_class_resources: Iterable[str] = (),
    label_keys: Sequence[str] = LABEL_KEYS,
    builder: RecordBuilder = BUILDER,
) -> Ledger:
    """Return a synced ledger that holds these objects."""
    ledger = Ledger(label_keys)
    ledger.apply(
        NodesListed(tuple(make_node_record(tree, builder=builder) for tree in nodes))
    )
    ledger.apply(
        PodsListed(tuple(make_pod_record(tree, builder=builder) for tree in pods))
    )
    ledger.apply(DeviceClassesListed(frozenset(device_class_resources)))
    return ledger


def make_snapshot(
    *,
    nodes: Iterable[Tree] = (),
    pods: Iterable[Tree] = (),
    device_class_resources: Iterable[str] = (),
    label_keys: Sequence[str] = LABEL_KEYS,
    builder: RecordBuilder = BUILDER,
) -> Snapshot:
    """Return a snapshot of these objects, with generation 1."""
    return make_ledger(
        nodes=nodes,
        pods=pods,
        device_class_resources=device_class_resources,
        label_keys=label_keys,
        builder=builder,
    ).build()


def take_candidates(
    snapshot: Snapshot,
    names: Sequence[str],
    pod_request: PodRequest,
    keys: LabelKeys | None = None,
) -> Candidates:
    """Return the nodes of these names, as the verbs take them."""
    columns = find_columns(snapshot, names)
    return take_columns(snapshot, columns, pod_request, keys or LabelKeys())
