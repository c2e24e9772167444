"""`Runtime`: everything one process consists of, built from its settings."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from cluster.cache import SnapshotCell
from cluster.decode import FaultSignals, RecordBuilder
from cluster.dump import load_dump
from cluster.ledger import Ledger
from cluster.writer import LedgerWriter
from extender.verbs import VerbOptions
from scoring.candidates import LabelKeys
from scoring.resources import ResourceScope
from scoring.strategies import ScoreOptions
from service.app import create_app
from service.health import Health
from service.metrics import CacheCollector, Metrics
from service.reload import Reloader, WatchedFiles
from service.server import HttpServer
from service.settings import Settings, read_settings

logger = logging.getLogger(__name__)


def build_records(settings: Settings) -> RecordBuilder:
    """Return what turns objects into records."""
    signals = settings.fault_signals
    return RecordBuilder(
        ResourceScope(settings.gpu_resources, settings.managed_prefixes),
        FaultSignals(
            MappingProxyType({k: frozenset(v) for k, v in signals.labels.items()}),
            signals.product_labels,
            MappingProxyType(dict(signals.conditions)),
        ),
    )


def build_verb_options(settings: Settings) -> VerbOptions:
    """Return what the settings say of the verbs."""
    scoring = settings.scoring
    default_counts = "enforce" if settings.cluster.source == "file" else "trust"
    return VerbOptions(
        builder=build_records(settings),
        label_keys=LabelKeys(settings.labels.accelerator, settings.labels.interconnect),
        is_enforcing=(settings.extender.counts or default_counts) == "enforce",
        profile=scoring.profile,
        weights=MappingProxyType(scoring.weights.model_dump(by_alias=True)),
        score_options=ScoreOptions(
            scoring.target_utilization.low,
            scoring.target_utilization.high,
            MappingProxyType(
                {k: frozenset(v) for k, v in scoring.compatible_types.items()}
            ),
        ),
        max_score=scoring.max_score,
    )


@dataclass(slots=True)
class Live:
    """What a reload of the configuration file swaps, each by one assignment."""

    settings: Settings
    verb_options: VerbOptions


class Runtime:
    """One process: built from a configuration file, then started and drained.

    The constructor reads every file once; it raises `SettingsError`, `DumpError` or
    another `ValueError` with all faults of a file, or `OSError` if the port is taken.

    Parameters
    ----------
    config : Path
        The configuration file; other paths in it are relative to its folder.
    settings : Settings
        Its contents.
    """

    def __init__(self, config: Path, settings: Settings) -> None:
        self._config = config
        self._folder = config.resolve().parent
        self.live = Live(settings, build_verb_options(settings))
        self.metrics = Metrics()
        self.cell = SnapshotCell()
        labels = settings.labels
        self._ledger = Ledger((labels.accelerator, labels.interconnect))
        self._writer = LedgerWriter(self._ledger, self.cell, self.metrics.ledger_failed)
        self.health = Health(self.cell, self.ages, settings.cluster.stale_after_seconds)
        self.metrics.registry.register(
            CacheCollector(self.cell, self.ages, self._ledger.counts)
        )
        self._reloader = Reloader(
            self._watched_files(), settings.cluster.poll_seconds, self.metrics.reloaded
        )
        self.app = create_app(
            self.cell, lambda: self.live.verb_options, self.metrics, self.health
        )
        self.server = HttpServer(self.app, settings.server, self.health)

    def ages(self) -> Mapping[str, float]:
        """Return seconds since the last contact with each source of objects."""
        return {"file": self._reloader.age_seconds()}

    def _watched_files(self) -> list[WatchedFiles]:
        """Return the files to read now and whenever they change."""
        watched = [WatchedFiles("settings", (self._config,), self._load_settings)]
        if self.live.settings.cluster.source == "file":
            paths = tuple(
                self._folder / name for name in self.live.settings.cluster.files
            )
            watched.append(WatchedFiles("cluster", paths, self._load_cluster))
        return watched

    def _load_settings(self) -> None:
        """Put the scoring part to use; anything else needs a restart."""
        fresh = read_settings(self._config)
        old = self.live.settings
        kept = sorted(
            key
            for key in type(old).model_fields
            if key != "scoring" and getattr(old, key) != getattr(fresh, key)
        )
        if kept:
            logger.warning(
                "settings changed that need a restart", extra={"fields": {"keys": kept}}
            )
        in_use = old.model_copy(update={"scoring": fresh.scoring})
        self.live = Live(in_use, build_verb_options(in_use))

    def _load_cluster(self) -> None:
        """Read the dump and hand it to the ledger."""
        paths = [self._folder / name for name in self.live.settings.cluster.files]
        self._writer.submit(*load_dump(paths, self.live.verb_options.builder))

    def start(self) -> None:
        """Start all threads and serve."""
        self._writer.start()
        self._reloader.start()
        self.server.start()
        settings = self.live.settings
        logger.info(
            "serving",
            extra={
                "fields": {
                    "address": f"http://{settings.server.host}:{self.server.port}",
                    "source": settings.cluster.source,
                }
            },
        )

    def stop(self) -> None:
        """Stop the threads that a drained server leaves."""
        self._reloader.stop()
        self._writer.stop()


def check_files(config: Path) -> None:
    """Read a configuration and the files it names; raise `ValueError` on faults."""
    settings = read_settings(config)
    if settings.cluster.source == "file":
        folder = config.resolve().parent
        load_dump(
            [folder / name for name in settings.cluster.files],
            build_records(settings),
        )
