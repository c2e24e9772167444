"""A cluster in miniature: pods are reviewed, appear, are bound, and time passes."""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from itertools import count
from typing import Any

from cluster.ledger.changes import PodGone, PodSeen
from cluster.ledger.writer import SnapshotCell
from injector.admitted_pod import AdmittedPod, PodIdentity
from injector.fallback.chains import Chains
from injector.fallback.fallback import Fallback, FallbackOptions, FallbackResult
from injector.fallback.holds import Holds
from tests.builders import Tree, make_container, make_ledger, make_pod, make_pod_record
from tests.defaults import FALLBACK_OPTIONS, HOLD_SECONDS

GPU = "nvidia.com/gpu"
MIG_1G = "nvidia.com/mig-1g.10gb"
MIG_2G = "nvidia.com/mig-2g.20gb"
MIG_3G = "nvidia.com/mig-3g.30gb"
LONG_CHAIN = (MIG_3G, MIG_2G, MIG_1G, GPU)

MARK = "gpu-extender.io/fallback-weighed"
RECORD = "gpu-webhook.k8s.io/fallback"

# Seconds since the epoch at which a test's time starts.
START = 1_800_000_000.0


def asking(requests: Mapping[str, int], *, name: str = "main") -> Tree:
    """Return a container that asks `requests`, as requests and limits."""
    amounts = {resource: str(amount) for resource, amount in requests.items()}
    return make_container(name=name, requests=amounts, limits=amounts)


def make_review(
    requests: Mapping[str, int] | None = None,
    *,
    containers: Iterable[Tree] | None = None,
    init_containers: Iterable[Tree] = (),
    annotations: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
) -> Tree:
    """Return a pod as its controller sends it: without name, UID and status."""
    pod = make_pod(
        containers=list(containers or [asking(requests or {MIG_2G: 1})]),
        init_containers=list(init_containers),
        spec=spec,
    )
    del pod["status"]
    pod["metadata"] = {"generateName": "train-"}
    if annotations is not None:
        pod["metadata"]["annotations"] = dict(annotations)
    return pod


def asked_of(pod: Tree) -> list[dict[str, str]]:
    """Return each container's GPU resources; requests and limits must be equal."""
    asked = []
    for container in pod["spec"].get("initContainers", []) + pod["spec"]["containers"]:
        resources = container.get("resources", {})
        assert resources.get("requests") == resources.get("limits")
        asked.append(resources.get("limits", {}))
    return asked


class Admissions:
    """Owns a ledger and the fallback step over it; time stands until it is told."""

    def __init__(
        self,
        *,
        nodes: Iterable[Tree] = (),
        pods: Iterable[Tree] = (),
        chains: tuple[tuple[str, ...], ...] = (LONG_CHAIN,),
        options: FallbackOptions | None = None,
        device_class_resources: Iterable[str] = (),
    ) -> None:
        self.seconds = 0.0
        self.ledger = make_ledger(
            nodes=nodes, pods=pods, device_class_resources=device_class_resources
        )
        self.cell = SnapshotCell()
        self.publish()
        self.holds = Holds(
            self.cell, hold_seconds=HOLD_SECONDS, monotonic=lambda: self.seconds
        )
        self.fallback = Fallback(
            self.holds,
            options or replace(FALLBACK_OPTIONS, chains=Chains(chains)),
            clock=lambda: START + self.seconds,
        )
        self._numbers = count(1)

    def publish(self) -> None:
        self.cell.publish(self.ledger.build())

    def review(
        self, pod: Tree | None = None, **names: Any
    ) -> tuple[Tree, FallbackResult, PodIdentity]:
        """Let the step have a copy of `pod`; return the copy, the result, its identity.

        It is one of a job's pods, with a request UID of its own, unless `names` differ.
        """
        pod = deepcopy(pod or make_review())
        name = names.get("name", "")
        known = {
            "request_uid": f"request-{next(self._numbers)}",
            "namespace": "ml",
            "name": name,
            "generate_name": "" if name else "train-",
            "owner_uid": "job-1",
            "is_dry_run": False,
        }
        identity = PodIdentity(**{**known, **names})
        return pod, self.fallback.apply(AdmittedPod(pod, identity)), identity

    def outcome(self, pod: Tree | None = None, **names: Any) -> str:
        """Return what the record of the review says, its outcome if nothing changed."""
        changed, result, _ = self.review(pod, **names)
        record: str = (
            changed["metadata"].get("annotations", {}).get(RECORD, str(result.outcome))
        )
        return record

    def appear(
        self,
        pod: Tree,
        *,
        name: str,
        node_name: str = "",
        owner_uid: str = "job-1",
        status: Mapping[str, Any] | None = None,
    ) -> None:
        """Let the watch show a pod, pending or bound."""
        tree = deepcopy(pod)
        made = make_pod(
            name=name, namespace="ml", owner_uid=owner_uid, node_name=node_name
        )
        tree["metadata"] = {**made["metadata"], **tree["metadata"]}
        tree["spec"]["nodeName"] = node_name
        tree["status"] = {**made["status"], **(status or {})}
        self.ledger.apply(PodSeen(make_pod_record(tree)))
        self.publish()

    def disappear(self, *, name: str) -> None:
        """Let the watch show that a pod was deleted."""
        self.ledger.apply(PodGone(f"uid-of-ml-{name}"))
        self.publish()
