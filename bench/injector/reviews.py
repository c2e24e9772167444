"""Admission reviews in process: the webhook of a configuration with rules and chains.

It decides over a synthetic cluster of 1,000 nodes.
"""

import gc
import json
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.clusters import build_snapshot
from cluster.ledger.writer import SnapshotCell
from injector.admission import Admission
from injector.review import decode_review, encode_answer
from service.metrics import Metrics
from service.runtime import build_verb_options
from service.settings.process import ClusterSettings
from service.settings.settings import Settings
from service.settings.webhook import FallbackSettings, InjectionSettings
from service.webhook import Webhook

GPU: Final = "nvidia.com/gpu"
NODES: Final = 1000
CHAIN: Final = (
    "nvidia.com/mig-2g.20gb",
    "nvidia.com/mig-2g.10gb",
    "nvidia.com/mig-1g.10gb",
    GPU,
)
RULES: Final = Path(__file__).parents[2] / "configs" / "injection-rules.json"
SETTINGS: Final = Settings(
    cluster=ClusterSettings(source="file", files=("cluster.json",)),
    injection=InjectionSettings.model_validate({"rulesFile": str(RULES)}),
    fallback=FallbackSettings(chains=(CHAIN,)),
)
VOLUMES: Final = [
    {"name": "data", "mountPath": "/data"},
    {
        "name": "kube-api-access",
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
        "readOnly": True,
    },
]


@cache
def build_admission() -> Admission:
    """Return what decides about pods."""
    cell = SnapshotCell()
    cell.publish(build_snapshot(NODES, build_verb_options(SETTINGS).label_keys))
    webhook = Webhook(cell, SETTINGS, Metrics(), Path())
    webhook.load_rules()
    return webhook.admission


def make_container(number: int, amounts: dict[str, str]) -> dict[str, Any]:
    """Return a container as the API server completes it."""
    return {
        "name": f"c{number}",
        "image": "registry.example/train:1",
        "command": ["python", "train.py"],
        "env": [{"name": f"NAME_{key}", "value": "value"} for key in range(5)],
        "resources": {"requests": amounts, "limits": dict(amounts)},
        "volumeMounts": VOLUMES,
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }


def make_body(containers: int) -> bytes:
    """Return a review of a pod, all its containers but the last with a GPU."""
    gpus = [make_container(number, {GPU: "1"}) for number in range(containers - 1)]
    beside = make_container(containers - 1, {"cpu": "500m", "memory": "1Gi"})
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "train-",
            "namespace": "ml",
            "labels": {"app": "train"},
            "annotations": {"task.bkbcs.tencent.com/gpu-type": "V100"},
            "ownerReferences": [
                {"kind": "Job", "name": "train", "uid": "u", "controller": True}
            ],
        },
        "spec": {
            "volumes": [
                {"name": "data", "emptyDir": {}},
                {"name": "kube-api-access", "projected": {"defaultMode": 420}},
            ],
            "containers": [*gpus, beside],
            "restartPolicy": "Never",
            "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler",
            "tolerations": [
                {"key": key, "operator": "Exists", "effect": "NoExecute"}
                for key in ("node.kubernetes.io/not-ready", "example.com/busy")
            ],
        },
    }
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "CREATE",
        "namespace": "ml",
        "object": pod,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return json.dumps({**review, "request": request}).encode()


def answer(body: bytes) -> bytes:
    """Return the bytes that answer a review."""
    review = decode_review(body)
    return encode_answer(review, build_admission().decide(review))


def recode(body: bytes) -> str:
    """Return a review read and written by `json`, which decides nothing."""
    return json.dumps(json.loads(body))


class Work(NamedTuple):
    """What is timed, and how often it is done in a round."""

    do: Callable[[], object]
    calls: int

    def time(self) -> float:
        """Return the processor seconds of doing it once."""
        started = time.process_time()
        for _ in range(self.calls):
            self.do()
        return (time.process_time() - started) / self.calls


def time_in_turns(works: Sequence[Work], rounds: int) -> list[list[float]]:
    """Return the processor seconds of each work, one number for each round.

    In a round each has its turn, so that a noisy neighbour disturbs all alike.
    """
    build_admission()
    gc.collect()
    gc.freeze()  # as the service does
    try:
        for work in works:
            work.do()
        timed = [[work.time() for work in works] for _ in range(rounds)]
    finally:
        gc.unfreeze()
    return [list(one) for one in zip(*timed, strict=True)]
