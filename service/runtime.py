"""`Runtime`: everything one process consists of, built from its settings."""

import gc
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from cluster.cache import SnapshotCell
from cluster.decode import FaultSignals, RecordBuilder
from cluster.dump import load_dump
from cluster.ledger import Ledger
from cluster.watch import ClusterWatch
from cluster.writer import LedgerWriter
from extender.verbs import VerbOptions
from scoring.candidates import LabelKeys
from scoring.strategies import ScoreOptions
from service.app import Collaborators, create_app
from service.cache_metrics import CacheCollector, WatchMetrics
from service.frame import MUTATE_PATH
from service.health import Health
from service.metrics import Metrics
from service.reload import Reloader, WatchedFiles
from service.server import HttpServer
from service.settings import Settings, read_settings
from service.sources import connect_to
from service.tls import HttpsServer, OnlyPaths
from service.webhook import Webhook

logger = logging.getLogger(__name__)


# Sections of the settings that a reload puts to use.
RELOADED = ("scoring", "fallback")
# The rest is for whoever may use the loopback address.
HTTPS_PATHS = frozenset({MUTATE_PATH, "/healthz", "/readyz", "/metrics"})


def build_ledger(settings: Settings) -> Ledger:
    """Return an empty ledger with the label columns that scoring reads."""
    return Ledger((settings.labels.accelerator, settings.labels.interconnect))


def freeze_memory() -> None:
    """Take what has been read so far out of the garbage collector's rounds.

    Those run on the request path, and walk everything that is not frozen: with 10,000
    nodes they cost a sixth of a call.
    """
    gc.collect()
    gc.freeze()


def build_records(settings: Settings) -> RecordBuilder:
    """Return what turns objects into records."""
    signals = settings.fault_signals
    return RecordBuilder(
        settings.scope(),
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
    another `ValueError` with all faults of a file, or `OSError` if a port is taken.

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
        self._ledger = build_ledger(settings)
        self._writer = LedgerWriter(
            self._ledger, self.cell, self.metrics.ledger_failed, freeze_memory
        )
        self.health = Health(self.cell, self.ages, settings.cluster.stale_after_seconds)
        self.metrics.registry.register(
            CacheCollector(self.cell, self.ages, self._ledger.counts)
        )
        self._webhook = Webhook(self.cell, settings, self.metrics, self._folder)
        self.app = create_app(
            Collaborators(
                self.cell,
                lambda: self.live.verb_options,
                self._webhook.resource,
                self.metrics,
                self.health,
                self._relist,
            )
        )
        self._watch = self._build_watch()
        self._https = self._build_https()
        self._reloader = Reloader(
            self._watched_files(), settings.cluster.poll_seconds, self.metrics.reloaded
        )
        self.server = HttpServer(self.app, settings.server, self.health)

    def _build_watch(self) -> ClusterWatch | None:
        """Return what watches the cluster, None for a cluster from files."""
        settings = self.live.settings.cluster
        if settings.source == "file":
            return None
        return ClusterWatch(
            connect_to(settings, self._folder),
            self._writer.submit,
            self.live.verb_options.builder,
            WatchMetrics(self.metrics.registry),
        )

    def _relist(self, reason: str) -> None:
        """Have all pods listed anew: our counts of them do not add up."""
        if self._watch is not None:
            self._watch.restart_pods(reason)

    def _build_https(self) -> HttpsServer | None:
        """Return the HTTPS listener, None without a certificate."""
        settings = self.live.settings.webhook
        if settings.certificate_file is None:
            return None
        return HttpsServer(OnlyPaths(self.app, HTTPS_PATHS), settings, self._folder)

    @property
    def https_port(self) -> int | None:
        """The port of the HTTPS listener, if there is one."""
        return None if self._https is None else self._https.port

    def ages(self) -> Mapping[str, float]:
        """Return seconds since the last contact with each source of objects."""
        if self._watch is None:
            return {"file": self._reloader.age_seconds()}
        return self._watch.ages()

    def _watched_files(self) -> list[WatchedFiles]:
        """Return the files to read now and whenever they change."""
        watched = [WatchedFiles("settings", (self._config,), self._load_settings)]
        if self._watch is None:
            watched.append(
                WatchedFiles("cluster", self._dump_paths(), self._load_cluster)
            )
        if self._webhook.rules_path is not None:
            rules = (self._webhook.rules_path,)
            watched.append(WatchedFiles("rules", rules, self._webhook.load_rules))
        if self._https is not None:
            pair, load = self._https.certificate_files, self._https.load_certificate
            watched.append(WatchedFiles("certificate", pair, load))
        return watched

    def _load_settings(self) -> None:
        """Put scoring and fallback to use; anything else needs a restart."""
        fresh = read_settings(self._config)
        old = self.live.settings
        kept = sorted(
            field.alias or key
            for key, field in type(old).model_fields.items()
            if key not in RELOADED and getattr(old, key) != getattr(fresh, key)
        )
        if kept:
            logger.warning(
                "settings changed that need a restart", extra={"fields": {"keys": kept}}
            )
        in_use = old.model_copy(update={key: getattr(fresh, key) for key in RELOADED})
        self.live = Live(in_use, build_verb_options(in_use))
        self._webhook.use(in_use.fallback)

    def _dump_paths(self) -> tuple[Path, ...]:
        return tuple(self._folder / name for name in self.live.settings.cluster.files)

    def _load_cluster(self) -> None:
        """Read the dump and hand it to the ledger."""
        builder = self.live.verb_options.builder
        self._writer.submit(*load_dump(self._dump_paths(), builder))

    def start(self) -> None:
        """Start all threads and serve."""
        self._writer.start()
        self._reloader.start()
        if self._watch is not None:
            self._watch.start()
        if self._https is not None:
            self._https.start()
        self.server.start()
        settings = self.live.settings
        logger.info(
            "serving",
            extra={
                "fields": {
                    "address": settings.server.url(self.server.port),
                    "webhook_port": self.https_port,
                    "source": settings.cluster.source,
                }
            },
        )

    def drain(self, interrupted: threading.Event) -> None:
        """Let all calls finish, then stop every thread; see `HttpServer.drain`."""
        self.server.drain(interrupted)
        if self._https is not None:
            self._https.stop()
        if self._watch is not None:
            self._watch.stop()
        self._reloader.stop()
        self._writer.stop()
