"""Nodes on which our count of free GPUs stays behind kube-scheduler's."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from scoring.snapshot import BoolArray

# Our watch is late by milliseconds; what lasts longer is a change that we missed.
LIMIT_SECONDS: Final = 5.0


class Disagreements:
    """Has all pods listed anew when a disagreement lasts; any thread may call it.

    Parameters
    ----------
    relist : callable
        Given a reason fit for a metric's label.
    limit_seconds : float
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
        # node name -> when it was first seen to disagree
        self._since: dict[str, float] = {}

    def note(self, names: Sequence[str], disagreeing: BoolArray) -> None:
        """Take in one filter call's candidates.

        Parameters
        ----------
        names : sequence of str, length C
        disagreeing : bool array, shape (C,)
            True for nodes that kube-scheduler finds free and we do not.
        """
        if not self._since and not disagreeing.any():
            return
        now = self._monotonic()
        with self._lock:
            for name, is_behind in zip(names, disagreeing.tolist(), strict=True):
                if is_behind:
                    self._since.setdefault(name, now)
                else:
                    self._since.pop(name, None)
            is_lasting = any(
                now - since > self._limit_seconds for since in self._since.values()
            )
            if is_lasting:
                self._since.clear()
        if is_lasting:
            self._relist("counts_disagree")
