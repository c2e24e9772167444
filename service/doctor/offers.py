"""`OfferWatch`: resources that nodes offer and kube-scheduler is not told to send."""

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cluster.ledger.writer import NotSyncedError, SnapshotSource
from scoring.resources import ResourceScope
from service.doctor.scheduler import (
    SchedulerConfigError,
    lacking_resources,
    read_scheduler_config,
)
from service.reload import fingerprint

logger = logging.getLogger(__name__)

# Nodes may offer hundreds of names.
MAX_TOLD: Final = 64


class OfferWatch:
    """Compares what nodes offer with kube-scheduler's file; one thread calls `look`.

    Nothing is done without a file, or while it cannot be read, which `/doctor` tells.

    Parameters
    ----------
    path : Path or None
        The KubeSchedulerConfiguration.
    port : callable
        Returns where the verbs are served.

    Attributes
    ----------
    lacking : tuple of str
        Resources that are offered and not sent; any thread may read it.
    """

    def __init__(
        self,
        source: SnapshotSource,
        scope: ResourceScope,
        path: Path | None,
        port: Callable[[], int],
    ) -> None:
        self._source = source
        self._scope = scope
        self._path = path
        self._port = port
        self._seen: object = None
        self._told: set[str] = set()
        self.lacking: tuple[str, ...] = ()

    def look(self) -> None:
        """Compare once more, if nodes offer something else or the file has changed."""
        if self._path is None:
            return
        with contextlib.suppress(NotSyncedError):
            resources = self._source.current().resources
            seen = (resources, fingerprint((self._path,)))
            if seen == self._seen:
                return
            self._seen = seen
            offered = [name for name in resources if self._scope.is_managed(name)]
            self.lacking = ()
            with contextlib.suppress(SchedulerConfigError):
                config = read_scheduler_config(self._path)
                lacking = lacking_resources(config, self._port(), offered)
                self.lacking = tuple(lacking)
            self._tell(self._path)

    def _tell(self, path: Path) -> None:
        """Log what is lacking, each name once."""
        for name in self.lacking:
            if name not in self._told and len(self._told) < MAX_TOLD:
                self._told.add(name)
                logger.warning(
                    "nodes offer a resource that kube-scheduler is not told to send:"
                    " write its configuration anew with gpu-extender scheduler-config",
                    extra={"fields": {"resource": name, "file": str(path)}},
                )
