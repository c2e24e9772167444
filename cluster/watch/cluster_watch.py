"""`ClusterWatch`: the reflectors of all kinds, started, stopped and asked together."""

import time
from collections.abc import Callable, Mapping
from typing import Final

from cluster.api.protocol import Api
from cluster.decode.records import RecordBuilder
from cluster.watch.backoff import Pace
from cluster.watch.kinds import (
    NODES,
    PODS,
    device_classes_kind,
    limit_ranges_kind,
    nodes_kind,
    pods_kind,
)
from cluster.watch.reflector import STOP_SECONDS, Reflector, WatchObserver

# Those without which the cluster is not known.
REQUIRED_KINDS: Final = (NODES, PODS)


class ClusterWatch:
    """Keeps the ledger in step with an API server; any thread may call it.

    Parameters
    ----------
    submit : callable
        `LedgerWriter.submit`.
    """

    def __init__(
        self,
        api: Api,
        submit: Callable[..., None],
        builder: RecordBuilder,
        observer: WatchObserver,
        pace: Pace | None = None,
    ) -> None:
        pace = pace or Pace()
        self._reflectors = {
            kind.name: Reflector(kind, api, submit, observer, pace)
            for kind in (
                nodes_kind(builder),
                pods_kind(builder),
                device_classes_kind(),
                limit_ranges_kind(),
            )
        }

    def start(self) -> None:
        """Start one thread for each kind."""
        for reflector in self._reflectors.values():
            reflector.start()

    def stop(self, within_seconds: float = STOP_SECONDS) -> None:
        """End all threads; what has no answer by then is left behind."""
        stop_at = time.monotonic() + min(within_seconds, STOP_SECONDS)
        for reflector in self._reflectors.values():
            reflector.request_stop()
        for reflector in self._reflectors.values():
            reflector.join(max(0.0, stop_at - time.monotonic()))

    def restart_pods(self, reason: str) -> bool:
        """List all pods again, because our counts do not add up.

        Returns
        -------
        bool
            False if nothing is done; see `Reflector.restart`.
        """
        return self._reflectors[PODS].restart(reason)

    def ages(self) -> Mapping[str, float]:
        """Return seconds since the last contact, for nodes and pods."""
        return {kind: self._reflectors[kind].contact_age for kind in REQUIRED_KINDS}
