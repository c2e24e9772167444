"""`ExtenderPolicy`: our own verbs, called as functions instead of by HTTP."""

from collections import deque

import numpy as np

from cluster.decode.objects import PodRecord
from cluster.ledger.changes import PodGone, PodSeen
from cluster.ledger.ledger import Ledger
from extender.tracking.assumed_pods import AssumedPods
from extender.verbs.call import VerbCall, best_alone
from extender.verbs.lookup import pod_request_of_record
from extender.verbs.options import VerbOptions
from extender.verbs.verbs import filter_nodes, prioritize_nodes, shortlisted
from scoring.snapshot import IndexArray, Int64Array, Snapshot
from simulator.cluster import Cluster
from simulator.pods import QueuedPod
from simulator.policies import CHOICES, TIGHTEST


class ExtenderPolicy:
    """Answers as the service would, on a cache that sees bindings late.

    Parameters
    ----------
    ledger : Ledger
        The service's own, with the cluster that a replay starts with.
    lag : int
        How many placements the cache is behind.
    assumed : AssumedPods
        Counts them meanwhile, if it counts at all.
    gpu_choice : str
        A key of `CHOICES`: the GPU that the device plugin takes a share of.
    """

    def __init__(  # noqa: PLR0913 - the last ones are named
        self,
        cluster: Cluster,
        ledger: Ledger,
        options: VerbOptions,
        *,
        lag: int = 0,
        assumed: AssumedPods | None = None,
        gpu_choice: str = TIGHTEST,
    ) -> None:
        self._cluster = cluster
        self._ledger = ledger
        self._options = options
        self._lag = lag
        self._assumed = assumed or AssumedPods(is_counting=False)
        self._choose = CHOICES[gpu_choice]
        self._snapshot = ledger.build()
        self._unseen: deque[PodRecord] = deque()
        self._waiting = ""  # UID of the pod that has no node yet

    @property
    def snapshot(self) -> Snapshot:
        """The cluster as the cache shows it."""
        return self._snapshot

    def rate(
        self, pod: QueuedPod, columns: IndexArray
    ) -> tuple[IndexArray, Int64Array]:
        """Return the nodes that filter answers, and what prioritize gives them."""
        self._show(pod)
        names = [self._cluster.names[column] for column in columns.tolist()]
        ask = pod_request_of_record(pod.record, self._options)
        call = VerbCall(ask, names, columns, self._snapshot)
        result = filter_nodes(call, self._options)
        uid = pod.record.uid
        self._assumed.forget(uid)
        assumed = self._assumed.by_node(self._snapshot, uid)
        indexes = shortlisted(call, result, self._options, assumed)
        if indexes is None:
            indexes = np.flatnonzero(result.feasible)
        # kube-scheduler asks nothing about a node that is the only one.
        priorities = (
            prioritize_nodes(call, self._options, indexes, assumed)
            if len(indexes) > 1
            else np.zeros(len(indexes), dtype=np.int64)
        )
        best = best_alone(priorities)
        if best is not None:
            node_name = names[int(indexes[best])]
            self._assumed.note(ask, node_name)
        return columns[indexes], priorities

    def _show(self, pod: QueuedPod) -> None:
        """Have the cache see a pod that comes, and that the one before it is gone."""
        uid = pod.record.uid
        if uid == self._waiting:
            return
        if self._waiting:
            self._ledger.apply(PodGone(self._waiting))
        self._waiting = uid
        self._ledger.apply(PodSeen(pod.record))
        self._snapshot = self._ledger.build()

    def gpu_of(self, pod: QueuedPod, column: int) -> int:
        """Return the GPU that the device plugin takes a share of."""
        return self._choose(self._cluster.devices.free[column], pod.share)

    def placed(self, record: PodRecord) -> None:
        """Have the cache see the binding, or one that was made `lag` bindings ago."""
        self._waiting = ""
        self._unseen.append(record)
        while len(self._unseen) > self._lag:
            self._ledger.apply(PodSeen(self._unseen.popleft()))
        if self._ledger.has_changes:
            self._snapshot = self._ledger.build()
