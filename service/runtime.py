"""`Runtime`: everything one process consists of, built from its settings."""

import gc
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from cluster.api.lease import LeaseStore
from cluster.api.protocol import NamedApi, ServerClock
from cluster.decode.records import FaultSignals, RecordBuilder
from cluster.dump import load_dump
from cluster.ledger.changes import GpuModelsChanged
from cluster.ledger.failures import FailureLimits, Failures
from cluster.ledger.ledger import Ledger
from cluster.ledger.writer import LedgerWriter, SnapshotCell
from extender.events.notices import NoticedPod
from extender.events.plan import EventPlan
from extender.events.reasons import Reasons
from extender.events.writer import EventWriter
from extender.explain.pending import PendingClasses
from extender.tracking.binding_audit import BindingAudit
from extender.tracking.deferred import DeferredThread
from extender.tracking.last_answers import LastAnswers
from extender.tracking.recent_requests import RecentRequests
from extender.verbs.fresh_snapshot import GivingWay
from extender.verbs.options import VerbOptions
from injector.fallback.chains import find_chain_faults
from injector.steps import DEFAULT_SCHEDULER
from scoring.gpu.node_gpus import GpuLabelReader
from scoring.normalization import Scale
from scoring.profiles import PROFILES
from service.certificates.registrar import build_file_registration, build_registrar
from service.certificates.rotator import connect_store, load_certificate, watch_files
from service.cluster_link import ClusterLink, connect_to
from service.collectors import (
    CacheCollector,
    ClusterCollector,
    FaceCollector,
    OfferCollector,
)
from service.doctor.offers import OfferWatch
from service.doctor.self_check import SelfCheck
from service.http.app import create_app
from service.http.health import Health
from service.http.listeners import Listeners, allow_connections, return_memory
from service.http.middleware import ConcurrencyLimit, Slots, build_slots
from service.http.waitress_channel import WsgiApp
from service.lease import (
    POD_VARIABLES,
    ActiveLabel,
    Elector,
    LeaseTimes,
    OwnPod,
    settle_seconds_within,
)
from service.metrics import Metrics
from service.notices import PodNotices
from service.registration import build_entry
from service.reload import Reloader, WatchedFiles
from service.settings.settings import Settings, read_settings
from service.submission import preview_by
from service.webhook import Webhook

# Sections of the settings that a reload puts to use.
RELOADED: Final = ("gpu_types", "scoring", "fallback")


def merge_settings(old: Settings, fresh: Settings) -> tuple[Settings, list[str]]:
    """Return what is in use from now on, and the keys that wait for a restart.

    Chains are taken only if the process counts all their members, since it goes on
    counting by the prefixes that it was started with. Names of annotations stay: the
    pods that are there were read, and marked, by the old ones.
    """
    taken = {key: getattr(fresh, key) for key in RELOADED}
    kept = list(_changed_sections(old, fresh))
    if find_chain_faults(fresh.fallback.chains, scope=old.scope()):
        taken["fallback"] = old.fallback
        kept.append("fallback")
    elif fresh.fallback.annotations != old.fallback.annotations:
        annotations = {"annotations": old.fallback.annotations}
        taken["fallback"] = fresh.fallback.model_copy(update=annotations)
        kept.append("fallback.annotations")
    return old.model_copy(update=taken), sorted(kept)


def _changed_sections(old: Settings, fresh: Settings) -> Iterator[str]:
    """Yield the keys of changed sections that a reload does not take."""
    for key, field in Settings.model_fields.items():
        if key not in RELOADED and getattr(old, key) != getattr(fresh, key):
            yield field.alias or key


logger = logging.getLogger(__name__)


def build_ledger(settings: Settings, clock: ServerClock | None = None) -> Ledger:
    """Return an empty ledger with the label columns that scoring reads.

    By the `clock` nodes on which pods failed are sound again.
    """
    return Ledger(
        settings.labels.keys().columns(),
        Failures(
            FailureLimits(**settings.cluster.failing_nodes.model_dump()),
            clock or ServerClock(),
        ),
    )


def deadline_seconds(settings: Settings) -> dict[str, float]:
    """Return the age of a request at which the work on it stops, by face."""
    return {
        "extender": settings.extender.deadline_milliseconds / 1000,
        "webhook": settings.webhook.deadline_milliseconds / 1000,
    }


def slow_seconds(settings: Settings) -> float:
    """Return how long a call may take that is not logged."""
    limit = settings.logging.slow_call_milliseconds
    return limit / 1000 if limit else float("inf")


def scheduler_names(settings: Settings) -> frozenset[str]:
    """Return which schedulers' pods we are to be asked about; empty for the default."""
    name = settings.injection.scheduler_name
    return frozenset({DEFAULT_SCHEDULER, ""} if name is None else {name})


def is_elected(settings: Settings) -> bool:
    """Whether one of all replicas is to answer for the cluster."""
    return bool(settings.fallback.chains) or settings.extender.events


def _seconds_until(moment: float) -> float:
    """Return how long it is until a moment of the monotonic clock; 0 if it is past."""
    return max(0.0, moment - time.monotonic())


def _nothing() -> None:
    """Do nothing."""


def freeze_memory() -> None:
    """Take what has been read so far out of the garbage collector's rounds.

    Those run on the request path, and walk everything that is not frozen: with 10,000
    nodes they cost a sixth of a call.
    """
    gc.collect()
    gc.freeze()


def build_records(
    settings: Settings, gpus: GpuLabelReader | None = None
) -> RecordBuilder:
    """Return the builder of records; `gpus` reads by the settings' rules."""
    signals = settings.fault_signals
    return RecordBuilder(
        settings.scope(),
        settings.gpu_annotations(),
        FaultSignals(
            MappingProxyType({k: frozenset(v) for k, v in signals.labels.items()}),
            signals.product_labels,
            MappingProxyType(dict(signals.conditions)),
        ),
        gpus or GpuLabelReader(settings.gpu_types.rules()),
        settings.link_annotations.names(),
        settings.labels.job or "",
    )


def build_verb_options(
    settings: Settings, gpus: GpuLabelReader | None = None
) -> VerbOptions:
    """Return the settings of the verbs; `gpus` as for `build_records`."""
    scoring = settings.scoring
    weights = MappingProxyType(scoring.weights.model_dump(by_alias=True))
    default_counts = "enforce" if settings.cluster.source == "file" else "trust"
    builder = build_records(settings, gpus)
    return VerbOptions(
        builder=builder,
        label_keys=settings.labels.keys(),
        is_enforcing=(settings.extender.counts or default_counts) == "enforce",
        profile=scoring.profile,
        weights=weights,
        score_options=scoring.options(builder.gpus.table),
        scale=Scale(
            scoring.normalize,
            scoring.max_score,
            *PROFILES[scoring.profile].span(weights),
        ),
        shortlist=scoring.shortlist,
        is_type_order_strict=scoring.type_order == "strict",
        is_counting_alone=settings.extender.counts == "enforce",
        scheduler_names=scheduler_names(settings),
    )


@dataclass(slots=True)
class Live:
    """Settings in use, swapped by one assignment at a reload."""

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
    port : int, optional
        Of the HTTP listener, in place of the configuration's.
    own_pod : OwnPod, optional
        The pod that it runs in; outside of one, nothing is elected.
    reload_asked : threading.Event, optional
        Set to have all files read again, changed or not.
    """

    def __init__(
        self,
        config: Path,
        settings: Settings,
        port: int | None = None,
        own_pod: OwnPod | None = None,
        reload_asked: threading.Event | None = None,
    ) -> None:
        settings = settings.with_port(port)
        self._config = config
        self._port = port
        self._folder = config.resolve().parent
        self.live = Live(settings, build_verb_options(settings))
        self._waiting_keys: tuple[str, ...] = ()
        self.metrics = Metrics()
        self.cell = SnapshotCell()
        self._clock = ServerClock()
        self._ledger = build_ledger(settings, self._clock)
        self._writer = LedgerWriter(
            self._ledger, self.cell, self.metrics.ledger_failed, freeze_memory
        )
        self.health = Health(
            self.cell,
            self.ages,
            settings.cluster.stale_after_seconds,
            self._certificate_not_ready_reasons,
        )
        register = self.metrics.registry.register
        self._elector = self._build_elector(own_pod)
        register(CacheCollector(self.cell, self.ages, self._ledger.counts))
        requests = RecentRequests(self.cell)
        slots = build_slots(settings.server, settings.webhook)
        pending = PendingClasses(
            lambda: self.live.verb_options, GivingWay(lambda: slots["extender"].begun)
        )
        register(
            ClusterCollector(
                self.cell,
                self._speaks_for_cluster,
                self._clock,
                requests.current,
                settings.labels.pools,
                count_pending=pending.count,
            )
        )
        self._notices = PodNotices(self.cell, self._tell_noticed)
        self._webhook = Webhook(
            self.cell,
            settings,
            self.metrics,
            self._folder,
            before_choice=(
                _nothing if self._elector is None else self._elector.before_choice
            ),
            clock=self._clock,
            tell=self._notices.note,
        )
        self.metrics.read_holds(self._webhook.holds.count)
        store = connect_store(settings.webhook, self._connect)
        self._registrar = build_registrar(
            settings.webhook, store, build_entry(settings)
        )
        self._certificate = load_certificate(
            settings.webhook,
            self._folder,
            store,
            self.metrics.reloaded,
            self._registrar,
        )
        self._registration = build_file_registration(
            settings.webhook,
            self._folder,
            store,
            self._registrar,
            self.metrics.reloaded,
        )
        register(FaceCollector(slots, self._certificate))
        is_watched = settings.cluster.source == "kubernetes"
        self._api = self._connect() if is_watched else None
        self._link = self._build_link()
        self._events = self._build_events(own_pod, slots["extender"])
        answered = LastAnswers()
        self._audit = BindingAudit(
            self.cell,
            answered,
            settings.scope().is_managed,
            scheduler_names(settings),
            count=self.metrics.bound_uncalled,
            note_wait=self._note_wait,
            clock=self._clock,
        )
        offers = self._build_offer_watch()
        register(OfferCollector(offers))
        self._deferred = DeferredThread(
            (
                self.metrics.deferred.flush,
                answered.deferred.flush,
                self._audit.look,
                requests.look,
                offers.look,
                self._notices.look,
            )
        )
        self_check = self._build_self_check(answered, own_pod)
        app = self._build_app(answered, slots["extender"], self_check)
        self._reloader = Reloader(
            self._watched_files(),
            settings.cluster.poll_seconds,
            self.metrics.reloaded,
            reload_asked,
        )
        self._listeners = Listeners(
            ConcurrencyLimit(app, slots, self.metrics.request_refused),
            settings,
            self._certificate,
            self.health,
            lambda: self._elector is not None and self._elector.is_elsewhere,
            lets_go=lambda: self._elector is not None and self._elector.lets_go,
        )
        self.server = self._listeners.http

    def _note_wait(self, seconds: float) -> None:
        """Count a bound pod once, in the replica that speaks for the cluster."""
        if self._speaks_for_cluster():
            self.metrics.bound_after(seconds)

    def _build_app(
        self, answered: LastAnswers, slots: Slots, self_check: SelfCheck
    ) -> WsgiApp:
        """Return the application; `slots` are those of the extender's calls."""
        deadlines = deadline_seconds(self.live.settings)
        return create_app(
            self.cell,
            lambda: self.live.verb_options,
            self._webhook.resource,
            self.metrics,
            self.health,
            answered=answered,
            link=self._link,
            deadline_seconds=deadlines,
            slow_seconds=slow_seconds(self.live.settings),
            is_stuck=lambda: slots.is_stuck(deadlines["extender"]),
            self_check=self_check,
            admit=preview_by(self._webhook.admission.preview),
            begun=lambda: slots.begun,
            scheduler_health_url=self.live.settings.server.scheduler_health_url,
        )

    def _connect(self) -> NamedApi:
        """Return the API server that the settings name."""
        return connect_to(self.live.settings.cluster, self._folder, clock=self._clock)

    def _build_link(self) -> ClusterLink | None:
        """Return the link to an API server, None for a cluster from files."""
        if self._api is None:
            return None
        return ClusterLink(
            self._api,
            self._writer,
            self.cell,
            lambda: self.live.verb_options,
            self.metrics,
            self.live.settings.extender,
        )

    def _build_events(self, own_pod: OwnPod | None, slots: Slots) -> EventWriter | None:
        """Return what writes Events, None where nobody is elected to."""
        elector = self._elector
        if self._api is None or elector is None or own_pod is None:
            return None
        if not self.live.settings.extender.events:
            return None
        giving_way = GivingWay(lambda: slots.begun)
        reasons = Reasons(lambda: self.live.verb_options, giving_way)
        return EventWriter(
            self.cell,
            self._api,
            EventPlan(reasons),
            wrote=self.metrics.event_written,
            is_writing=lambda: elector.is_holding,
            clock=self._clock,
            instance=own_pod.name,
        )

    def _speaks_for_cluster(self) -> bool:
        """Whether this replica tells what is so for the whole cluster."""
        elector = self._elector
        if elector is None or not is_elected(self.live.settings):
            return True
        return elector.is_holding

    def _tell_noticed(self, noticed: NoticedPod) -> None:
        """Have an Event written of what a review said, where Events are written."""
        if self._events is not None:
            self._events.note(noticed)

    def _build_offer_watch(self) -> OfferWatch:
        """Return what compares kube-scheduler's file with what nodes offer."""
        settings = self.live.settings
        name = settings.extender.scheduler_config_file
        return OfferWatch(
            self.cell,
            settings.scope(),
            None if name is None else self._folder / name,
            lambda: self.server.port,
        )

    def _build_self_check(
        self, answered: LastAnswers, own_pod: OwnPod | None
    ) -> SelfCheck:
        """Return what examines this process and its installation."""
        return SelfCheck(
            lambda: self.live.settings,
            self._folder,
            self.cell,
            api=self._api,
            certificate=self._certificate,
            answered=answered,
            verb_options=lambda: self.live.verb_options,
            audit=self._audit,
            health=self.health,
            refused_files=lambda: self._reloader.faults,
            waiting_keys=lambda: self._waiting_keys,
            ports=lambda: (self.server.port, self.https_port or 0),
            own_namespace="" if own_pod is None else own_pod.namespace,
            registration_fault=lambda: (
                "" if self._registrar is None else self._registrar.fault
            ),
        )

    def _build_elector(self, own_pod: OwnPod | None) -> Elector | None:
        """Return the elector of replicas, None where there are none."""
        settings = self.live.settings
        if settings.cluster.source == "file":
            return None
        if own_pod is None:
            if is_elected(settings):
                fields = {"variables": POD_VARIABLES}
                logger.info(
                    "no replica elected: not told which pod this is",
                    extra={"fields": fields},
                )
            return None
        election = settings.election
        times = LeaseTimes(
            election.lease_seconds,
            election.renew_deadline_seconds,
            election.retry_seconds,
            settle_seconds_within(settings.webhook.deadline_milliseconds / 1000),
        )
        # As client-go: a call that hangs must leave time for another one.
        api = connect_to(
            settings.cluster, self._folder, times.renew_deadline_seconds / 2
        )
        elector = Elector(
            LeaseStore(api, own_pod.namespace, election.lease_name),
            ActiveLabel(api, own_pod, election.active_label),
            own_pod.uid,
            times,
            is_wanted=lambda: is_elected(self.live.settings),
            is_called=lambda: bool(self.live.settings.fallback.chains),
            is_ready=lambda: not self.health.extender_not_ready_reasons(),
            on_alone=self.metrics.decided_alone,
            # The rest is for reviews that wait for nothing.
            waiting_limit=max(1, settings.webhook.max_in_flight * 3 // 4),
        )
        self.metrics.read_lease(lambda: elector.is_holding)
        return elector

    def _certificate_not_ready_reasons(self) -> list[str]:
        """Return why no client would take our certificate; empty if one might."""
        return (
            [] if self._certificate is None else self._certificate.not_ready_reasons()
        )

    @property
    def https_port(self) -> int | None:
        """The port of the HTTPS listener, if there is one."""
        https = self._listeners.https
        return None if https is None else https.port

    def ages(self) -> Mapping[str, float]:
        """Return seconds since the last contact with each source of objects."""
        if self._link is None:
            return {"file": self._reloader.age_seconds()}
        return self._link.ages()

    def _watched_files(self) -> list[WatchedFiles]:
        """Return the files to read now and whenever they change."""
        watched = [WatchedFiles("settings", (self._config,), self._load_settings)]
        if self._link is None:
            watched.append(
                WatchedFiles("cluster", self._dump_paths(), self._load_cluster)
            )
        if self._webhook.rules_path is not None:
            rules = (self._webhook.rules_path,)
            watched.append(WatchedFiles("rules", rules, self._webhook.load_rules))
        return watched + watch_files(self._certificate)

    def _load_settings(self) -> None:
        """Put scoring and fallback to use; anything else needs a restart."""
        fresh = read_settings(self._config).with_port(self._port)
        old = self.live.settings
        in_use, kept = merge_settings(old, fresh)
        self._webhook.use(in_use.fallback)
        self._waiting_keys = tuple(kept)
        if kept:
            logger.warning(
                "settings changed that need a restart", extra={"fields": {"keys": kept}}
            )
        gpus = self.live.verb_options.builder.gpus
        has_new_gpus = in_use.gpu_types != old.gpu_types
        if has_new_gpus:
            rules = in_use.gpu_types.rules()
            gpus.use(rules)
            self._webhook.use_gpus(rules)
        self.live = Live(in_use, build_verb_options(in_use, gpus))
        if has_new_gpus:
            demands = self.live.verb_options.builder.requirements_reader
            self._writer.submit(GpuModelsChanged(gpus.read, demands.reread))

    def _dump_paths(self) -> tuple[Path, ...]:
        return tuple(self._folder / name for name in self.live.settings.cluster.files)

    def _load_cluster(self) -> None:
        """Read the dump and hand it to the ledger."""
        builder = self.live.verb_options.builder
        self._writer.submit(*load_dump(self._dump_paths(), builder))

    def start(self) -> None:
        """Start all threads and serve."""
        allow_connections()
        return_memory()
        self._writer.start()
        self._deferred.start()
        self._reloader.start()
        if self._link is not None:
            self._link.start()
        if self._certificate is not None:
            self._certificate.start()
        self._listeners.start()
        if self._registration is not None:
            self._registration.start()
        if self._elector is not None:
            self._elector.start()
        if self._events is not None:
            self._events.start()
        settings, probes = self.live.settings, self._listeners.probes
        logger.info(
            "serving",
            extra={
                "fields": {
                    "address": settings.server.url(self.server.port),
                    "webhook_port": self.https_port,
                    "probe_port": None if probes is None else probes.port,
                    "source": settings.cluster.source,
                }
            },
        )

    def drain(self, interrupted: threading.Event) -> None:
        """Let all calls finish, then stop every thread; see `HttpServer.drain`.

        The lease goes first: we are called, and ready, until another replica is.
        """
        if self._elector is not None:
            self._elector.leave(interrupted)
        self._listeners.drain(interrupted)
        # Calls of the API server that have no answer, or wait for a credential plugin,
        # are left behind: all these threads may end with the process.
        stop_at = time.monotonic() + self.live.settings.server.stop_seconds
        if self._events is not None:
            self._events.stop(_seconds_until(stop_at))
        if self._elector is not None:
            self._elector.stop(_seconds_until(stop_at))
        if self._link is not None:
            self._link.stop(_seconds_until(stop_at))
        if self._certificate is not None:
            self._certificate.stop(_seconds_until(stop_at))
        if self._registration is not None:
            self._registration.stop(_seconds_until(stop_at))
        self._reloader.stop()
        self._writer.stop()
        self._deferred.stop()
