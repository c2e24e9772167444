"""Alive, ready, and ready for kube-scheduler."""

import threading
from collections.abc import Callable, Mapping

import falcon

from cluster.cache import SnapshotCell


class Health:
    """What the probes answer; any thread may call it.

    Parameters
    ----------
    cell : SnapshotCell
    ages : callable
        Returns seconds since the last contact, by kind of object.
    stale_after_seconds : float
        Age from which the extender is not ready.
    certificate_obstacles : callable
        Returns why no client would take our certificate; empty if one might.
    """

    def __init__(
        self,
        cell: SnapshotCell,
        ages: Callable[[], Mapping[str, float]],
        stale_after_seconds: float,
        certificate_obstacles: Callable[[], list[str]] = list,
    ) -> None:
        self._cell = cell
        self._ages = ages
        self._stale_after_seconds = stale_after_seconds
        self._certificate_obstacles = certificate_obstacles
        self._draining = threading.Event()
        self._serving = threading.Event()

    @property
    def is_draining(self) -> bool:
        """Whether the process is about to stop."""
        return self._draining.is_set()

    def serve(self) -> None:
        """Note that the listeners are up."""
        self._serving.set()

    def drain(self) -> None:
        """Note that the process is about to stop."""
        self._draining.set()

    def age_seconds(self) -> float | None:
        """Return the time since the last contact with the source that lags most."""
        return max(self._ages().values(), default=None)

    def obstacles(self) -> list[str]:
        """Return why the process is not ready; empty if it is."""
        found = []
        if not self._serving.is_set():
            found.append("the listeners are not up yet")
        if self._draining.is_set():
            found.append("draining")
        return found + self._certificate_obstacles()

    def extender_obstacles(self) -> list[str]:
        """Return why the extender is not ready; empty if it is."""
        found = self.obstacles()
        if not self._cell.is_synced:
            found.append("the cluster has not been read yet")
        found += [
            f"{kind}: last contact {age:.0f} s ago"
            for kind, age in sorted(self._ages().items())
            if age > self._stale_after_seconds
        ]
        return found


class HealthResource:
    """``GET /healthz``: the process answers."""

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """Answer ok."""
        resp.content_type = falcon.MEDIA_TEXT
        resp.text = "ok"


class ReadinessResource:
    """``GET /readyz`` and ``/readyz/extender``: 503 with the obstacles, or ok."""

    def __init__(self, obstacles: Callable[[], list[str]]) -> None:
        self._obstacles = obstacles

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """Answer ok or what stands in the way."""
        found = self._obstacles()
        resp.content_type = falcon.MEDIA_TEXT
        resp.text = "; ".join(found) or "ok"
        if found:
            resp.status = falcon.HTTP_503
