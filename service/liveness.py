"""``/livez/extender``: whether a filter call would be answered now.

kube-scheduler's liveness probe is to ask it: a leader whose extender is stuck then
loses its lease to one whose extender is not.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final

from cluster.cache import SnapshotCell

logger = logging.getLogger(__name__)

ANSWER_SECONDS: Final = 0.2


class Liveness:
    """Asks itself to filter, beside the calls that come in; any thread may ask it.

    An extender that has not read the cluster yet, or is busy or drains, is alive.
    Another leader would not read the cluster any sooner, and busy is not stuck.

    Parameters
    ----------
    cell : SnapshotCell
    filter_once : callable
        Makes the call, and raises whatever goes wrong.
    is_stuck : callable
        Whether every slot for calls has been taken for longer than a call may last.
    answer_seconds : float
    """

    def __init__(
        self,
        cell: SnapshotCell,
        filter_once: Callable[[], None],
        is_stuck: Callable[[], bool],
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._cell = cell
        self._filter_once = filter_once
        self._is_stuck = is_stuck
        self._answer_seconds = answer_seconds
        self._lock = threading.Lock()
        self._call: _Call | None = None

    def obstacles(self) -> list[str]:
        """Return why a filter call would not be answered; empty if it would."""
        if self._is_stuck():
            return ["every call under way has passed its deadline"]
        if not self._cell.is_synced:
            return []
        call = self._under_way()
        if not call.ended.wait(self._answer_seconds):
            return [f"self-filter: no answer within {self._answer_seconds:g} s"]
        return [] if call.is_answered else ["self-filter: failed, see the log"]

    def _under_way(self) -> "_Call":
        """Return the call that has not ended yet, or a new one.

        One at a time: were it to hang, each probe would leave a thread behind.
        """
        with self._lock:
            if self._call is None or self._call.ended.is_set():
                self._call = _Call(self._filter_once)
            return self._call


class _Call:
    """One self-filter on a thread of its own."""

    def __init__(self, filter_once: Callable[[], None]) -> None:
        self._filter_once = filter_once
        self.is_answered = False
        self.ended = threading.Event()
        threading.Thread(target=self._run, name="self-filter", daemon=True).start()

    def _run(self) -> None:
        try:
            self._filter_once()
            self.is_answered = True
        except Exception:
            logger.exception("self-filter failed")
        finally:
            self.ended.set()
