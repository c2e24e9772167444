"""`PendingClasses`: how many pods wait, by what keeps them from a node.

The class of a pod is one of the reasons that an explanation of it tells: that of the
nodes which come nearest to taking it.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec
import numpy as np

from cluster.decode.objects import PodRecord
from extender.explain import failed_checks as checks
from extender.explain.details import Judged
from extender.explain.explain import explain
from extender.explain.pod import UNREADABLE, subject_of_record
from extender.verbs.fresh_snapshot import (
    NO_DEADLINE,
    Deadline,
    DeadlineError,
    GivingWay,
)
from extender.verbs.options import VerbOptions
from extender.wire.filter import WireError
from scoring.neighbours import labels_of_repelled
from scoring.snapshot import Snapshot

logger = logging.getLogger(__name__)

# For so long a kind of pod stays in its class, whatever happens to nodes.
KIND_SECONDS: Final = 5.0

# Processor time after which a round takes no other kind.
ROUND_SECONDS: Final = 0.05

# Processor time of one kind: affinity of thousands of terms would take seconds.
LIMIT_SECONDS: Final = 0.25

# So much longer than a round takes is waited before the next one.
REST_FACTOR: Final = 15.0

# After a kind that took too long, or ended in a fault of our own.
FAULT_SECONDS: Final = 60.0


class PendingClass(StrEnum):
    """What keeps a pending pod from a node; `docs/metrics.md` says it at length."""

    FITS = "fits"
    FULL = "full"
    OTHER_GPUS = "other_gpus"
    NOT_OFFERED = "not_offered"
    RESOURCES = "resources"
    NODE_RULES = "node_rules"
    NOT_READY = "not_ready"
    HELD = "held"
    GATED = "gated"
    UNREADABLE = "unreadable"
    UNJUDGED = "unjudged"


# kind of a failed check -> its class, where that is the same for all resources
OF_CHECK: Final[Mapping[str, PendingClass]] = {
    checks.WRONG_NAME: PendingClass.NODE_RULES,
    checks.NO_RESOURCE: PendingClass.NOT_OFFERED,
    checks.GPU_TYPE: PendingClass.OTHER_GPUS,
    checks.GPU_TYPE_UNKNOWN: PendingClass.OTHER_GPUS,
    checks.GPU_SHARED: PendingClass.OTHER_GPUS,
    checks.GPU_MEMORY: PendingClass.OTHER_GPUS,
    checks.GPU_LINKS: PendingClass.FULL,
    checks.LABELS: PendingClass.NODE_RULES,
    checks.NODE_NOT_READY: PendingClass.NOT_READY,
    checks.TAINT: PendingClass.NODE_RULES,
    checks.GPUS_NOT_READY: PendingClass.NOT_READY,
    checks.CORDON: PendingClass.NODE_RULES,
    checks.HOST_PORT: PendingClass.NODE_RULES,
    checks.KEPT_AWAY: PendingClass.NODE_RULES,
    checks.NOT_ALONE: PendingClass.FULL,
}


def classify(
    record: PodRecord,
    snapshot: Snapshot,
    options: VerbOptions,
    deadline: Deadline = NO_DEADLINE,
) -> PendingClass:
    """Return what keeps a pod of the cache from a node.

    Raises `DeadlineError` from the deadline on.
    """
    if record.is_gated:
        return PendingClass.GATED
    try:
        subject = subject_of_record(record, options)
    except WireError:
        return PendingClass.UNREADABLE
    if subject.obstacles:
        is_unread = subject.obstacles[0].reason_class == UNREADABLE
        return PendingClass.UNREADABLE if is_unread else PendingClass.HELD
    count = len(snapshot.nodes.names)
    if not count:
        return PendingClass.NOT_OFFERED
    explanation = explain(subject, snapshot, options, deadline=deadline)
    if (explanation.offered & explanation.result.feasible).any():
        return PendingClass.FITS
    every = np.arange(count, dtype=np.intp)
    judged = Judged.of(explanation, every, with_scores=False)
    failed = checks.list_failed_checks(explanation, judged, deadline.check)
    return class_of_check(failed.nearest(count), options)


def class_of_check(check: checks.FailedCheck, options: VerbOptions) -> PendingClass:
    """Return the class of the nodes that fail a check."""
    if (found := OF_CHECK.get(check.kind)) is not None:
        return found
    if not options.builder.is_managed(check.resource):
        return PendingClass.RESOURCES
    is_small = check.kind == checks.TOO_SMALL
    return PendingClass.NOT_OFFERED if is_small else PendingClass.FULL


@dataclass(slots=True, eq=False)
class _Kind:
    """Pods that ask alike: how many wait, and in which class."""

    record: PodRecord
    count: int = 0
    found: PendingClass = PendingClass.UNJUDGED
    generation: int = -1
    options: VerbOptions | None = None
    judged_at: float = float("-inf")
    not_before: float = float("-inf")


class PendingClasses:
    """Counts the pending pods of each class; any thread may call it.

    A round judges each kind of pods of which the cluster has changed since, those
    first that were never judged, for `ROUND_SECONDS`; the others keep their class
    until the next one.

    Parameters
    ----------
    options : callable
        Returns what the settings say of the verbs at this moment.
    giving_way : GivingWay, optional
        Rests where verbs are called meanwhile.
    monotonic, busy : callable
        Return seconds: of a clock, and those that the calling thread has worked.
    """

    def __init__(
        self,
        options: Callable[[], VerbOptions],
        giving_way: GivingWay | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        busy: Callable[[], float] = time.thread_time,
    ) -> None:
        self._options = options
        self._giving_way = giving_way or GivingWay()
        self._monotonic = monotonic
        self._busy = busy
        self._lock = threading.Lock()
        self._rest_until = float("-inf")
        # UID -> the pod as it was last seen, and its kind
        self._pods: dict[str, tuple[PodRecord, _Kind]] = {}
        self._kinds: dict[bytes, _Kind] = {}
        self._excluding: object = None
        self._labels_read: frozenset[str] | None = None

    def count(self, snapshot: Snapshot) -> dict[str, int]:
        """Return how many pending pods there are of each `PendingClass`."""
        with self._lock:
            self._follow(snapshot)
            if self._monotonic() >= self._rest_until:
                self._judge(snapshot, self._options())
            counts: dict[str, int] = dict.fromkeys(PendingClass, 0)
            for kind in self._kinds.values():
                counts[kind.found] += kind.count
            return counts

    def _follow(self, snapshot: Snapshot) -> None:
        """Bring the kinds in step with the pods that are pending."""
        if snapshot.excluding is not self._excluding:
            self._excluding = snapshot.excluding
            labels_read = labels_of_repelled(snapshot)
            if labels_read != self._labels_read:
                self._labels_read = labels_read
                self._pods = {}
        pods: dict[str, tuple[PodRecord, _Kind]] = {}
        for kind in self._kinds.values():
            kind.count = 0
        for record in snapshot.pending:
            if not isinstance(record, PodRecord):
                continue
            known = self._pods.get(record.uid)
            if known is None or known[0] is not record:
                known = record, self._kind_of(record)
            known[1].count += 1
            pods[record.uid] = known
        self._pods = pods
        self._kinds = {key: kind for key, kind in self._kinds.items() if kind.count}

    def _kind_of(self, record: PodRecord) -> _Kind:
        asked = msgspec.structs.replace(record, **_NOT_JUDGED)
        key = kind_key(asked, self._labels_read)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = _Kind(record)
        return kind

    def _judge(self, snapshot: Snapshot, options: VerbOptions) -> None:
        """Judge the kinds whose class may be another, as far as one round goes."""
        now, begun = self._monotonic(), self._busy()
        stale = [
            kind
            for kind in self._kinds.values()
            if now >= kind.not_before
            and not (kind.generation == snapshot.generation and kind.options is options)
        ]
        self._giving_way.start()
        for kind in sorted(stale, key=lambda kind: kind.judged_at):
            self._judge_kind(kind, snapshot, options)
            if self._busy() - begun >= ROUND_SECONDS:
                break
        worked = self._busy() - begun
        self._rest_until = self._monotonic() + REST_FACTOR * worked

    def _judge_kind(
        self, kind: _Kind, snapshot: Snapshot, options: VerbOptions
    ) -> None:
        """Judge one kind; one that cannot be judged stays in its class for a while."""
        ends = self._busy() + LIMIT_SECONDS
        deadline = Deadline(ends, self._busy, self._giving_way)
        pause = FAULT_SECONDS
        try:
            kind.found = classify(kind.record, snapshot, options, deadline)
            pause = KIND_SECONDS
        except DeadlineError:
            logger.info("pending pods not judged: it takes too long")
        except Exception:
            # A fault of our own must not take all other metrics away.
            logger.exception("pending pods not judged")
        kind.generation, kind.options = snapshot.generation, options
        kind.judged_at = self._monotonic()
        kind.not_before = kind.judged_at + pause


# What makes no difference to whether a node takes a pod, unlike to what is told of it.
_NOT_JUDGED: Final[Mapping[str, object]] = {
    "job": "",
    "shares": (),
    "not_modelled": (),
    "may_preempt": True,
}

# What makes one pod of many.
_OWN: Final[Mapping[str, object]] = {
    "uid": "",
    "namespace": "",
    "name": "",
    "generate_name": "",
    "owner_uid": "",
    "owner": None,
    "created": 0.0,
    "unschedulable_since": None,
}


def kind_key(record: PodRecord, labels_read: frozenset[str] | None = None) -> bytes:
    """Return the same for pods of which the same is told.

    `labels_read` are those that running pods ask for, with the namespace; None where
    none does.
    """
    own = {**_OWN, "labels": {}}
    if labels_read is not None:
        own["labels"] = {k: v for k, v in record.labels.items() if k in labels_read}
    if labels_read is not None or record.group:
        del own["namespace"]
    return msgspec.json.encode(msgspec.structs.replace(record, **own))
