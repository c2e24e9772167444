"""`ClusterWatch`: the reflectors of all kinds, started, stopped and asked together."""

from collections.abc import Callable, Mapping
from typing import Final

from cluster.backoff import Pace
from cluster.decode import RecordBuilder
from cluster.health import SourceHealth
from cluster.kinds import NODES, PODS, device_classes_kind, nodes_kind, pods_kind
from cluster.limit_range_kind import limit_ranges_kind
from cluster.outlet import Outlet, WatchObserver
from cluster.reflector import Reflector
from cluster.source import ApiReader

REQUIRED_KINDS: Final = (NODES, PODS)


class ClusterWatch:
    """Keeps the ledger in step with an API server; any thread may call it.

    Parameters
    ----------
    api : ApiReader
    submit : callable
        `LedgerWriter.submit`.
    builder : RecordBuilder
    observer : WatchObserver
    pace : Pace, optional
    """

    def __init__(
        self,
        api: ApiReader,
        submit: Callable[..., None],
        builder: RecordBuilder,
        observer: WatchObserver,
        pace: Pace | None = None,
    ) -> None:
        pace = pace or Pace()
        self._health = SourceHealth(REQUIRED_KINDS, pace.monotonic)
        outlet = Outlet(submit, self._health, observer)
        self._reflectors = {
            kind.name: Reflector(kind, api, outlet, pace)
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

    def stop(self) -> None:
        """End all threads."""
        for reflector in self._reflectors.values():
            reflector.request_stop()
        for reflector in self._reflectors.values():
            reflector.join()

    def restart_pods(self, reason: str) -> bool:
        """List all pods anew, because our counts do not add up.

        Returns
        -------
        bool
            False if nothing is done: a list is under way or half a minute old at most.
        """
        return self._reflectors[PODS].restart(reason)

    def ages(self) -> Mapping[str, float]:
        """Return seconds since the last contact, for nodes and pods."""
        return self._health.ages()

    @property
    def is_listed(self) -> bool:
        """Whether nodes and pods were listed; a snapshot says that they are counted."""
        return self._health.is_listed
