"""The ledger, change by change, against the same cluster counted from scratch.

``LEDGER_HISTORIES`` says how many histories are tried; 200 without it.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from unittest import mock

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cluster.ledger.ledger
import cluster.ledger.pods
from cluster.decode.objects import NodeRecord, PodRecord
from cluster.ledger.changes import (
    Change,
    DeviceClassesListed,
    NodeGone,
    NodeSeen,
    NodesListed,
    PodGone,
    PodSeen,
    PodsListed,
)
from cluster.ledger.ledger import Ledger
from scoring.snapshot import Snapshot
from tests.builders import (
    GPU,
    LABEL_KEYS,
    make_node,
    make_node_record,
    make_pod,
    make_pod_record,
)

HISTORIES: Final = int(os.environ.get("LEDGER_HISTORIES", "200"))
MIG: Final = "nvidia.com/mig-1g.10gb"

NODE_NAMES: Final = ("a", "b", "c")
NODE_VARIANTS: Final[tuple[dict[str, Any], ...]] = (
    {"gpus": 8},
    {"gpus": 4, "labels": {"accelerator": "v100"}},
    {"gpus": 0, "labels": {"accelerator": "h100", "gpu-interconnect": "nvlink"}},
    {},
    {"resources": {MIG: "7"}, "labels": {"nvidia.com/mig.config.state": "pending"}},
    {"gpus": 8, "is_cordoned": True},
    {"gpus": 2, "capacity": {GPU: "8"}, "is_ready": False},
    {"capacity": {GPU: "8", "amd.com/gpu": "1"}},
)
POD_UIDS: Final = ("u1", "u2", "u3", "u4")
# Two of them have, one after the other, the same name.
POD_NAMES: Final = {"u1": "trn-0", "u2": "trn-0", "u3": "trn-1", "u4": "trn-2"}
POD_PLACES: Final = ("", "a", "b", "c", "unknown")
POD_PHASES: Final = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
POD_REQUESTS: Final[tuple[dict[str, str], ...]] = (
    {GPU: "1"},
    {GPU: "4", "cpu": "500m"},
    {MIG: "2", "memory": "1Gi"},
    {"nvidia.com/gpu-memory": "16"},
    {"cpu": "2"},
    {},
    {GPU: "9223372036854775807"},
)

NODES: Final = {
    (name, variant): make_node_record(make_node(name=name, **NODE_VARIANTS[variant]))
    for name in NODE_NAMES
    for variant in range(len(NODE_VARIANTS))
}
# Two of one job, and others of a job of their own or of none.
POD_OWNERS: Final = dict(
    zip(POD_UIDS, ("job-1", "job-1", "job-2", *[""] * len(POD_UIDS)), strict=False)
)
PODS: Final = {
    (uid, place, phase, asked): make_pod_record(
        make_pod(
            name=POD_NAMES[uid],
            uid=uid,
            node_name=place,
            phase=phase,
            requests=POD_REQUESTS[asked],
            owner_uid=POD_OWNERS[uid],
        )
    )
    for uid in POD_UIDS
    for place in POD_PLACES
    for phase in POD_PHASES
    for asked in range(len(POD_REQUESTS))
}

Step: TypeAlias = tuple[Change, bool]
LAST: Final[Step] = (PodGone("never seen"), True)

node_records = st.sampled_from(list(NODES.values()))
pod_records = st.sampled_from(list(PODS.values()))


def listed_nodes(records: list[NodeRecord], partial: set[str]) -> NodesListed:
    unique = {record.name: record for record in records}
    return NodesListed(tuple(unique.values()), frozenset(partial & unique.keys()))


def listed_pods(records: list[PodRecord], partial: set[str]) -> PodsListed:
    named = {record.name: record for record in records}  # a list has a name once
    unique = {record.uid: record for record in named.values()}
    return PodsListed(tuple(unique.values()), frozenset(partial & unique.keys()))


nodes_seen = st.builds(NodeSeen, node_records)
pods_seen = st.builds(PodSeen, pod_records)
changes = st.one_of(
    nodes_seen,
    nodes_seen,
    pods_seen,
    pods_seen,
    pods_seen,
    st.builds(NodeSeen, node_records, st.just(value=True)),
    st.builds(NodeGone, st.sampled_from(NODE_NAMES)),
    st.builds(PodSeen, pod_records, st.just(value=True)),
    st.builds(PodGone, st.sampled_from(POD_UIDS)),
    st.builds(
        listed_nodes,
        st.lists(node_records, max_size=4),
        st.sets(st.sampled_from(NODE_NAMES)),
    ),
    st.builds(
        listed_pods,
        st.lists(pod_records, max_size=5),
        st.sets(st.sampled_from(POD_UIDS)),
    ),
    st.builds(
        DeviceClassesListed, st.frozensets(st.sampled_from([GPU, MIG]), max_size=2)
    ),
)
# a change, and whether the writer looks then if there is something to publish
steps = st.tuples(changes, st.booleans())


@dataclass
class Reference:
    """What is to be known after some changes, in plain dicts."""

    nodes: dict[str, NodeRecord] = field(default_factory=dict)
    pods: dict[str, PodRecord] = field(default_factory=dict)
    device_class_resources: frozenset[str] = frozenset()
    arrivals: list[str] = field(default_factory=list)
    has_nodes: bool = False
    has_pods: bool = False

    def apply(self, change: Change) -> None:
        match change:
            case NodeSeen(node, is_partial):
                kept = self.nodes.get(node.name) if is_partial else None
                self.nodes[node.name] = kept or node
            case NodeGone(name):
                self.nodes.pop(name, None)
            case NodesListed(nodes, partial):
                stale = {key: self.nodes[key] for key in partial & self.nodes.keys()}
                self.nodes = {node.name: node for node in nodes} | stale
                self.has_nodes = True
            case PodSeen(pod, is_partial):
                self._arrive([pod], self.pods)
                held = self.pods.get(pod.uid) if is_partial else None
                self._give_name_to(pod)
                self.pods[pod.uid] = held or pod
            case PodGone(uid):
                self.pods.pop(uid, None)
            case PodsListed(pods, partial):
                self._arrive(pods, self.pods)
                old = {key: self.pods[key] for key in partial & self.pods.keys()}
                self.pods = {pod.uid: pod for pod in pods} | old
                self.has_pods = True
            case DeviceClassesListed(resources):
                self.device_class_resources = resources

    def _give_name_to(self, pod: PodRecord) -> None:
        """Forget the pod of another UID that had the name."""
        former = [
            uid
            for uid, other in self.pods.items()
            if other.name == pod.name and uid != pod.uid
        ]
        for uid in former:
            del self.pods[uid]

    def _arrive(
        self, pods: Iterable[PodRecord], known: Mapping[str, PodRecord]
    ) -> None:
        """Note the pods that want managed resources and are seen for the first time."""
        if self.has_pods:
            self.arrivals += [
                pod.name
                for pod in pods
                if pod.uid not in known and pod.is_managed and not pod.is_terminal
            ]

    def describe(self) -> dict[str, Any]:
        """Return all that a snapshot of this says."""
        active = [pod for pod in self.pods.values() if not pod.is_terminal]
        had = self.device_class_resources.union(
            *(node.mentioned() for node in self.nodes.values())
        )
        requested: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for pod in active:
            for resource, amount in pod.request:
                requested[pod.node_name][resource] += amount
        return {
            "nodes": {
                name: {
                    "allocatable": dict(node.allocatable),
                    "requested": {
                        resource: min(amount, 2**63 - 1)
                        for resource, amount in requested[name].items()
                        if resource in had
                    },
                    "offered": {item for item, _ in node.allocatable + node.capacity},
                    "is_schedulable": node.is_ready and not node.is_cordoned,
                    "is_faulted": node.is_faulted,
                    "labels": {
                        key: node.labels[key]
                        for key in LABEL_KEYS
                        if key in node.labels
                    },
                    "facts": node,
                }
                for name, node in self.nodes.items()
            },
            "shares": {
                pod.uid: pod for pod in active if pod.node_name and pod.is_managed
            },
            "jobs": {
                job: Counter(
                    pod.node_name
                    for pod in active
                    if pod.node_name and pod.is_managed and pod.owner_uid == job
                )
                for job in {
                    pod.owner_uid
                    for pod in active
                    if pod.node_name and pod.is_managed and pod.owner_uid
                }
            },
            "pending": {
                pod.uid: pod for pod in active if not pod.node_name and pod.is_managed
            },
            "arrivals": self.arrivals,
            "device_class_resources": self.device_class_resources,
        }


def describe(snapshot: Snapshot) -> dict[str, Any]:
    """Return all that a snapshot says, by name and not by column.

    Of a resource that can be had no more, a row may be left until the next layout.
    """
    values = {
        key: {code: value for value, code in column.code_of.items()}
        for key, column in snapshot.labels.items()
    }

    had = {
        resource
        for row, resource in enumerate(snapshot.resources)
        if snapshot.offered[row].any() or resource in snapshot.device_class_resources
    }

    def amounts(table: Any, column: int) -> dict[str, int]:
        return {
            resource: int(table[row, column])
            for row, resource in enumerate(snapshot.resources)
            if table[row, column] and resource in had
        }

    return {
        "nodes": {
            name: {
                "allocatable": amounts(snapshot.allocatable, column),
                "requested": amounts(snapshot.requested, column),
                "offered": set(amounts(snapshot.offered, column)),
                "is_schedulable": bool(snapshot.schedulable[column]),
                "is_faulted": bool(snapshot.faulted[column]),
                "labels": {
                    key: values[key][int(snapshot.labels[key].codes[column])]
                    for key in LABEL_KEYS
                    if snapshot.labels[key].codes[column]
                },
                "facts": snapshot.facts[column],
            }
            for name, column in snapshot.nodes.column_of.items()
        },
        "shares": dict(snapshot.bound_pods),
        "jobs": {job: dict(nodes) for job, nodes in snapshot.jobs.items()},
        "pending": {pod.uid: pod for pod in snapshot.pending},
        "arrivals": [arrival.name for arrival in snapshot.recent_pods],
        "device_class_resources": snapshot.device_class_resources,
    }


def rebuilt(reference: Reference) -> Snapshot:
    """Return the first snapshot of a new ledger that is told the end of a history."""
    ledger = Ledger(LABEL_KEYS)
    ledger.apply(NodesListed(tuple(reference.nodes.values())))
    ledger.apply(PodsListed(tuple(reference.pods.values())))
    ledger.apply(DeviceClassesListed(reference.device_class_resources))
    return ledger.build()


@settings(
    max_examples=HISTORIES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    before=st.lists(steps, max_size=4),
    lists=st.permutations([(NodesListed(()), False), (PodsListed(()), True)]),
    after=st.lists(steps, min_size=15, max_size=40),
)
def test_change_by_change_equals_from_scratch(
    before: list[Step], lists: list[Step], after: list[Step]
) -> None:
    ledger, reference = Ledger(LABEL_KEYS), Reference()
    published: Snapshot | None = None

    # a few shares, and not thousands, make a new base of the overlay
    with (
        mock.patch.object(cluster.ledger.pods, "MAX_OVERLAY", 3),
        mock.patch.object(cluster.ledger.ledger, "MIN_LOST_KEYS", 1),
    ):
        for change, is_published in [*before, *lists, *after, LAST]:
            ledger.apply(change)
            reference.apply(change)
            if not (is_published and ledger.is_synced):
                continue
            if ledger.has_changes:
                published = ledger.build()
            assert published is not None
            assert describe(published) == reference.describe()

    assert published is not None
    anew = describe(rebuilt(reference)) | {"arrivals": reference.arrivals}
    assert describe(published) == anew
    assert ledger.counts() == {
        "nodes": len(reference.nodes),
        "pods": len(reference.pods),
    }
