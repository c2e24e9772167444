"""`BindingAudit`: pods that were bound, by whether we had been asked about them."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from cluster.ledger.writer import NotSyncedError, SnapshotSource
from extender.tracking.last_answers import LastAnswers
from scoring.bounded import BoundedDict
from scoring.protocols import Binding

logger = logging.getLogger(__name__)

# A pod that the process before us was asked about may be bound in our time.
GRACE_SECONDS: Final = 2.0

# A pod may ask for hundreds of names that somebody made up.
MAX_RESOURCES: Final = 64

OTHER: Final = "other"


@dataclass(frozen=True, slots=True)
class AuditedBindings:
    """Bindings since the start of the process, of pods of our scheduler.

    Attributes
    ----------
    called, uncalled : int
        How many pods we had been asked about, or not.
    uncalled_by_resource : mapping
        managed resource -> pods that ask it, of those that we were not asked about;
        without resources of pods that we were asked about
    """

    called: int
    uncalled: int
    uncalled_by_resource: Mapping[str, int]


class BindingAudit:
    """Compares pods that get their node with the filter calls about them.

    kube-scheduler sends no pod whose resources its `managedResources` lack, and a
    replica whose kube-scheduler does not lead is asked about none. Any thread
    may call it.

    Parameters
    ----------
    is_managed : callable
        Whether pods are judged on a resource.
    scheduler_names : frozenset of str
        The schedulers that are to ask us.
    count : callable
        Told of each resource of a pod that was bound without a call; of `OTHER` in
        place of names beyond `MAX_RESOURCES`.
    note_wait : callable
        Told of the seconds from a pod's creation to when it was seen to have its node.
    clock : callable
        Returns the API server's time in seconds since 1970.
    """

    def __init__(  # noqa: PLR0913 - each is one thing that is compared
        self,
        source: SnapshotSource,
        answered: LastAnswers,
        is_managed: Callable[[str], bool],
        scheduler_names: frozenset[str],
        *,
        count: Callable[[str], None] = lambda _: None,
        note_wait: Callable[[float], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._answered = answered
        self._is_managed = is_managed
        self._scheduler_names = scheduler_names
        self._count = count
        self._note_wait = note_wait
        self._clock = clock
        self._monotonic = monotonic
        self._begins: float | None = None
        self._lock = threading.Lock()
        self._sequence = 0
        self._called = self._uncalled = 0
        # resource -> pods of ours that asked it and were bound with, and without a call
        self._with_call = BoundedDict[str, int](MAX_RESOURCES)
        self._without_call = BoundedDict[str, int](MAX_RESOURCES)
        self._told: set[str] = set()
        self._labels: set[str] = set()

    def look(self) -> None:
        """Take in the bindings that are new."""
        with contextlib.suppress(NotSyncedError):
            bindings = self._source.current().bindings
            if self._begins is None:
                self._begins = self._monotonic() + GRACE_SECONDS
            if bindings and self._monotonic() < self._begins:
                self._sequence = bindings[-1].sequence
            if not bindings or bindings[-1].sequence == self._sequence:
                return
            # A call comes before its binding, so it is noted by now.
            asked = self._answered.uids()
            with self._lock:
                for binding in bindings:
                    if binding.sequence > self._sequence:
                        self._take(binding, is_called=binding.uid in asked)
                self._sequence = bindings[-1].sequence
            self._tell()

    def _take(self, binding: Binding, *, is_called: bool) -> None:
        if binding.scheduler_name not in self._scheduler_names:
            return
        if binding.created:
            self._note_wait(max(self._clock() - binding.created, 0.0))
        if is_called:
            self._called += 1
        else:
            self._uncalled += 1
        counts = self._with_call if is_called else self._without_call
        for name, _ in binding.request:
            if self._is_managed(name):
                counts.keep_newest(name, counts.get(name, 0) + 1)
                if not is_called:
                    self._count(self._label(name))

    def _label(self, name: str) -> str:
        """Return a resource's name, as long as there are few of them."""
        if name not in self._labels and len(self._labels) < MAX_RESOURCES:
            self._labels.add(name)
        return name if name in self._labels else OTHER

    def _tell(self) -> None:
        """Log a resource that we are never asked about, once, where we are asked."""
        audited = self.audited()
        if not audited.called:
            return  # perhaps the kube-scheduler beside us does not lead
        for resource in sorted(audited.uncalled_by_resource.keys() - self._told):
            if len(self._told) < MAX_RESOURCES:
                self._told.add(resource)
                fields = {"resource": resource}
                logger.warning(
                    "kube-scheduler binds pods that ask a resource and does not ask us:"
                    " write its configuration anew with gpu-extender scheduler-config",
                    extra={"fields": fields},
                )

    def audited(self) -> AuditedBindings:
        """Return what has been seen so far."""
        with self._lock:
            without_call = {
                name: count
                for name, count in self._without_call.items()
                if name not in self._with_call
            }
            return AuditedBindings(
                self._called, self._uncalled, MappingProxyType(without_call)
            )
