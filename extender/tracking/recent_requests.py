"""`RecentRequests`: what pods with a managed resource have asked for lately."""

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Final

from cluster.ledger.writer import NotSyncedError, SnapshotSource
from scoring.bounded import BoundedDict
from scoring.resources import Request

KEPT_SECONDS: Final = 3600.0

# Templates that ask alike are one; the oldest go first.
MAX_REQUESTS: Final = 256


class RecentRequests:
    """Requests of pods that came within the last hour, or wait still; each once.

    Any thread may call it.

    Parameters
    ----------
    monotonic : callable
        Returns seconds.
    """

    def __init__(
        self,
        source: SnapshotSource,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._sequence = 0
        # request -> when a pod last came with it
        self._seen = BoundedDict[Request, float](MAX_REQUESTS)

    def look(self) -> None:
        """Take in the pods that are new."""
        with contextlib.suppress(NotSyncedError):
            recent = self._source.current().recent_pods
            if not recent or recent[-1].sequence == self._sequence:
                return
            now = self._monotonic()
            with self._lock:
                for pod in recent:
                    if pod.sequence > self._sequence:
                        self._seen.keep_newest(pod.request, now)
                self._sequence = recent[-1].sequence

    def current(self) -> list[Request]:
        """Return them as they are now."""
        since = self._monotonic() - KEPT_SECONDS
        with self._lock:
            requests = {asked for asked, at in self._seen.items() if at >= since}
        with contextlib.suppress(NotSyncedError):
            for pod in self._source.current().pending[:MAX_REQUESTS]:
                requests.add(pod.request)
        return sorted(requests)
