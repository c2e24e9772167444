"""Nodes on which our count of free GPUs stays behind kube-scheduler's."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from extender.verbs.call import FilterOutcome
from scoring.feasibility import Feasibility
from scoring.resources import Request

# Our watch is late by milliseconds; what lasts longer is a change that we missed.
LIMIT_SECONDS: Final = 5.0

# Two sightings further apart are two mismatches, each of its own cause.
LONGEST_GAP_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Sighting:
    """A node that kube-scheduler found free for a request, and we did not."""

    first_at: float
    last_at: float
    request: Request  # of the last call


class CountMismatches:
    """Has all pods listed again when a mismatch lasts; any thread may call it.

    One lasts when the counts of a node are seen to differ again after `limit_seconds`,
    and were not seen to agree in between, for as large a request or a larger one.

    Parameters
    ----------
    relist : callable
        Given a reason fit for a metric's label.
    monotonic : callable
        Returns seconds.
    """

    def __init__(
        self,
        relist: Callable[[str], object],
        limit_seconds: float = LIMIT_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._relist = relist
        self._limit_seconds = limit_seconds
        self._monotonic = monotonic
        self._lock = threading.Lock()
        # node name -> the mismatch seen there
        self._seen: dict[str, _Sighting] = {}

    def filtered(self, outcome: FilterOutcome) -> None:
        """Take in an answered filter call."""
        result, names = outcome.result, outcome.verb_call.names
        mismatched, request = result.mismatched, outcome.verb_call.pod_request.request
        if not self._seen and not mismatched.any():
            return
        now = self._monotonic()
        behind = [names[index] for index in np.flatnonzero(mismatched).tolist()]
        with self._lock:
            self._forget_old(now)
            if self._seen:
                self._forget_agreeing(names, request, result)
            is_lasting = False
            for name in behind:
                first_at = self._seen[name].first_at if name in self._seen else now
                self._seen[name] = _Sighting(first_at, now, request)
                is_lasting |= now - first_at > self._limit_seconds
            if is_lasting:
                self._seen.clear()
        if is_lasting:
            self._relist("counts_disagree")

    def _forget_old(self, now: float) -> None:
        """Drop nodes that nobody has asked about for long."""
        old = [
            name
            for name, sighting in self._seen.items()
            if now - sighting.last_at > LONGEST_GAP_SECONDS
        ]
        for name in old:
            del self._seen[name]

    def _forget_agreeing(
        self, names: Sequence[str], request: Request, result: Feasibility
    ) -> None:
        """Drop nodes that have room, by our count too, for what was in dispute.

        That a smaller pod fits says nothing of the larger one.
        """
        amounts = dict(request)
        indexes = {name: at for at, name in enumerate(names) if name in self._seen}
        for name, index in indexes.items():
            covers = all(
                amounts.get(resource, 0) >= amount
                for resource, amount in self._seen[name].request
            )
            is_free = not (result.verdicts[index] or result.mismatched[index])
            if covers and is_free:
                del self._seen[name]
