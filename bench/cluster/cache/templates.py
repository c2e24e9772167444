"""The texts of nodes and pods, with places for what differs.

A node of about 14 KB (feature labels, images, conditions, managed fields) and a pod of
about 6.7 KB (two containers, volumes, statuses, managed fields), as the API server
sends them in a list. The places are those of the ``%`` operator.
"""

import json
from typing import Any, Final

from bench.clusters import GPUS_PER_NODE

CREATED: Final = "2026-11-27T23:54:45Z"


def _managed_fields(manager: str, paths: list[str]) -> dict[str, Any]:
    """Return an entry of ``managedFields`` that names these fields."""
    tree: dict[str, Any] = {}
    for path in paths:
        here = tree
        for step in path.split("/"):
            here = here.setdefault(f"f:{step}", {".": {}})
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": CREATED,
        "fieldsType": "FieldsV1",
        "fieldsV1": tree,
    }


def node_template() -> str:
    """Return a node's text with the places to fill in."""
    features = ["AESNI", "AVX", "AVX2", "AVX512BW", "AVX512CD", "AVX512DQ", "FMA3"]
    features += ["AVX512F", "AVX512VL", "AVX512VNNI", "AMXTILE", "AMXINT8", "SHA"]
    labels = {
        f"feature.node.kubernetes.io/cpu-cpuid.{name}": "true" for name in features
    }
    labels |= {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": "%(name)s",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "p4d.24xlarge",
        "topology.kubernetes.io/region": "eu-west-1",
        "topology.kubernetes.io/zone": "eu-west-1a",
        "nvidia.com/cuda.driver.major": "580",
        "nvidia.com/gpu.count": str(GPUS_PER_NODE),
        "nvidia.com/gpu.family": "ampere",
        "nvidia.com/gpu.memory": "81920",
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": "%(product)s",
        "nvidia.com/mig.config.state": "success",
        "nvidia.com/mig.strategy": "mixed",
        "accelerator": "%(accelerator)s",
    }
    amounts = {
        "cpu": "96",
        "ephemeral-storage": "1700Gi",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "memory": "1176291092Ki",
        "nvidia.com/gpu": str(GPUS_PER_NODE),
        "pods": "110",
    }
    conditions = [
        {
            "type": kind,
            "status": "True" if kind == "Ready" else "False",
            "lastHeartbeatTime": CREATED,
            "lastTransitionTime": CREATED,
            "reason": f"Kubelet{kind}",
            "message": f"kubelet has reported its {kind} condition",
        }
        for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    ]
    images = [
        {
            "names": [
                f"registry.example.com/team-{number}/image@sha256:{number:064x}",
                f"registry.example.com/team-{number}/image:v1.{number}.0",
            ],
            "sizeBytes": 1_000_000_000 + number,
        }
        for number in range(46)
    ]
    return json.dumps(
        {
            "metadata": {
                "name": "%(name)s",
                "uid": "%(uid)s",
                "resourceVersion": "%(version)s",
                "creationTimestamp": CREATED,
                "labels": labels,
                "annotations": {
                    "nfd.node.kubernetes.io/feature-labels": ",".join(features),
                    "node.alpha.kubernetes.io/ttl": "0",
                    "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                },
                "managedFields": [
                    _managed_fields("kubelet", [f"metadata/labels/{k}" for k in labels])
                ],
            },
            "spec": {"podCIDR": "10.1.0.0/24", "providerID": "aws:///a/i-%(uid)s"},
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": conditions,
                "addresses": [
                    {"type": "InternalIP", "address": "10.0.0.1"},
                    {"type": "Hostname", "address": "%(name)s"},
                ],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
                "nodeInfo": {
                    "machineID": "ec2d0f6d8f0e4c7d9b1c0f1b3a9d7a11",
                    "systemUUID": "ec2d0f6d-8f0e-4c7d-9b1c-0f1b3a9d7a11",
                    "bootID": "6b1e2f0c-9e0f-4b8b-8d3a-5d1d1f0c7e21",
                    "kubeProxyVersion": "",
                    "kernelVersion": "6.1.0-27-cloud-amd64",
                    "osImage": "Debian GNU/Linux 12 (bookworm)",
                    "containerRuntimeVersion": "containerd://2.1.4",
                    "kubeletVersion": "v1.36.3",
                    "operatingSystem": "linux",
                    "architecture": "amd64",
                },
                "images": images,
            },
        },
        separators=(",", ":"),
    )


def _container(name: str, requests: dict[str, str]) -> dict[str, Any]:
    """Return a container with what charts usually give it."""
    probe = {
        "httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    return {
        "name": name,
        "image": f"registry.example.com/team-7/{name}@sha256:{7:064x}",
        "args": [f"--setting-{number}=value" for number in range(6)],
        "env": [
            {"name": f"SETTING_{number}", "value": f"value-{number}"}
            for number in range(18)
        ],
        "resources": {"limits": requests, "requests": requests},
        "volumeMounts": [
            {"name": volume, "mountPath": f"/mnt/{volume}"} for volume in _VOLUMES
        ],
        "livenessProbe": probe,
        "readinessProbe": probe,
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }


_VOLUMES: Final = ("data", "config", "kube-api-access")
_POD_FIELDS: Final = [
    f"spec/containers/{name}/{path}"
    for name in ("main", "proxy")
    for path in ("args", "env", "image", "livenessProbe", "readinessProbe", "resources")
] + ["status/conditions", "status/containerStatuses", "status/phase", "status/podIPs"]


def pod_template(requests: dict[str, str]) -> str:
    """Return a pod's text with the places to fill in."""
    statuses = [
        {
            "name": name,
            "ready": True,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": CREATED}},
            "image": f"registry.example.com/team-7/{name}:v1",
            "imageID": f"registry.example.com/team-7/{name}@sha256:{7:064x}",
            "containerID": f"containerd://{number:064x}",
        }
        for number, name in enumerate(("main", "proxy"))
    ]
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": CREATED}
        for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "%(owner)s",
        "uid": "%(owner_uid)s",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    proxy = {"cpu": "100m", "memory": "128Mi"}
    return json.dumps(
        {
            "metadata": {
                "name": "%(name)s",
                "generateName": "%(owner)s-",
                "namespace": "%(namespace)s",
                "uid": "%(uid)s",
                "resourceVersion": "%(version)s",
                "creationTimestamp": CREATED,
                "labels": {"app": "%(owner)s", "pod-template-hash": "6d4cf56db6"},
                "annotations": {"checksum/config": f"{11:064x}"},
                "ownerReferences": [owner],
                "managedFields": [
                    _managed_fields("kube-controller-manager", _POD_FIELDS[:12]),
                    _managed_fields("kubelet", _POD_FIELDS[12:]),
                ],
            },
            "spec": {
                "volumes": [
                    {"name": volume, "configMap": {"name": volume, "defaultMode": 420}}
                    for volume in _VOLUMES
                ],
                "containers": [
                    _container("main", requests),
                    _container("proxy", proxy),
                ],
                "restartPolicy": "Always",
                "terminationGracePeriodSeconds": 30,
                "dnsPolicy": "ClusterFirst",
                "serviceAccountName": "default",
                "nodeName": "%(node)s",
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
                "priority": 0,
                "enableServiceLinks": True,
            },
            "status": {
                "phase": "%(phase)s",
                "conditions": conditions,
                "hostIP": "10.0.0.1",
                "podIP": "10.1.0.7",
                "podIPs": [{"ip": "10.1.0.7"}],
                "startTime": CREATED,
                "containerStatuses": statuses,
                "qosClass": "Guaranteed",
            },
        },
        separators=(",", ":"),
    )
