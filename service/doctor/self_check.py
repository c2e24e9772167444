"""`SelfCheck`: a process that examines its own installation, with its own token."""

import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import msgspec

from cluster.api.protocol import ApiAnswer, ApiError, NamedApi
from cluster.ledger.writer import SnapshotCell
from extender.tracking.binding_audit import BindingAudit
from extender.tracking.last_answers import LastAnswers
from extender.verbs.options import VerbOptions
from scoring.quantity import one_line
from service.certificates.files import ServedCertificate
from service.certificates.store import REGISTRATIONS
from service.doctor.certificate import check_certificate
from service.doctor.connection import (
    CLOCK,
    TOKEN,
    check_clock,
    check_token,
    explain_silence,
)
from service.doctor.leases import leader_host, read_lease
from service.doctor.page import (
    Facts,
    Finding,
    Page,
    Unchecked,
    facts_of_settings,
)
from service.doctor.process import check_files, check_readiness
from service.doctor.registration import REGISTRATION, Registration, check_registration
from service.doctor.rights import (
    REVIEWS_PATH,
    RIGHTS,
    Right,
    is_allowed,
    list_rights,
    report_denied,
)
from service.doctor.scheduler import (
    CONFIGURATION,
    SchedulerConfigError,
    check_calls,
    check_sample,
    check_scheduler_config,
    find_sample,
    read_scheduler_config,
    wanted_resources,
)
from service.http.health import Health
from service.settings.settings import Settings

# Of all that is asked of the API server; each question has a bound of its own.
ASK_SECONDS: Final = 10.0

MAX_FAULTS: Final = 400

_NEEDS_SERVER: Final = (RIGHTS, TOKEN, CLOCK, REGISTRATION)

_Found = Finding | Unchecked


@dataclass(slots=True)
class _Report:
    """What has been found so far, in the order of the checks."""

    findings: list[Finding] = field(default_factory=list)
    unchecked: list[Unchecked] = field(default_factory=list)

    def take(self, found: Iterable[_Found]) -> None:
        for item in found:  # two webhooks of a registration can have the same fault
            if isinstance(item, Finding):
                if item not in self.findings:
                    self.findings.append(item)
            elif item not in self.unchecked:
                self.unchecked.append(item)


@dataclass(frozen=True, slots=True)
class _FirstAnswer:
    """An answer, and our own time when it was on its way."""

    answer: ApiAnswer
    at_seconds: float

    @property
    def offset(self) -> float | None:
        """By how much our clock is ahead of the server's, if that tells its time."""
        if self.answer.time_seconds is None:
            return None
        # The server tells the second that has begun.
        return round(self.at_seconds - (self.answer.time_seconds + 0.5), 1)


class _OutOfTimeError(RuntimeError):
    """The API server answers too slowly for all questions."""


class SelfCheck:
    """Examines the installation of a process; one thread at a time calls it.

    Parameters
    ----------
    settings, verb_options : callable
        Return those in use.
    folder : Path
        Of the configuration file.
    api : NamedApi or None
        None for a cluster from files.
    refused_files, waiting_keys : callable
        Return the faults of files that were changed, by what they are for, and the
        sections of the configuration that wait for a restart.
    ports : callable
        Returns those of the verbs and of the webhook.
    own_namespace : str
        Of the pod that this process runs in; empty outside of one.
    registration_fault : callable
        Returns why our entry in the registration is not as it is to be; empty if it
        is, or somebody else writes it.
    clock, monotonic : callable
    """

    def __init__(  # noqa: PLR0913 - each is one thing that is looked at
        self,
        settings: Callable[[], Settings],
        folder: Path,
        cell: SnapshotCell,
        *,
        api: NamedApi | None,
        certificate: ServedCertificate | None,
        answered: LastAnswers,
        verb_options: Callable[[], VerbOptions],
        audit: BindingAudit,
        health: Health,
        refused_files: Callable[[], Mapping[str, str]],
        waiting_keys: Callable[[], Sequence[str]],
        ports: Callable[[], tuple[int, int]],
        own_namespace: str = "",
        registration_fault: Callable[[], str] = str,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._folder = folder
        self._cell = cell
        self._api = api
        self._certificate = certificate
        self._answered = answered
        self._verb_options = verb_options
        self._audit = audit
        self._health = health
        self._refused_files = refused_files
        self._waiting_keys = waiting_keys
        self._ports = ports
        self._own_namespace = own_namespace
        self._registration_fault = registration_fault
        self._clock = clock
        self._monotonic = monotonic
        self._ends = 0.0

    def examine(self) -> Page:
        """Look at everything, and return it."""
        settings, report = self._settings(), _Report()
        facts = self._facts(settings)
        report.take(check_readiness(facts))
        report.take(check_files(facts))
        report.take(check_certificate(facts, self._clock()))
        if self._api is None:
            why = "the cluster comes from files"
            report.unchecked += [Unchecked(check, why) for check in _NEEDS_SERVER]
        else:
            self._ends = self._monotonic() + ASK_SECONDS
            facts = self._examine_connection(self._api, settings, facts, report)
        report.take(self._examine_scheduler_config(settings, facts))
        report.take(check_calls(facts, self._leader(facts)))
        report.take(check_sample(facts))
        return Page(tuple(report.findings), tuple(report.unchecked), facts)

    def _facts(self, settings: Settings) -> Facts:
        """Return what needs no question."""
        self._audit.look()
        audited = self._audit.audited()
        calls, offered = self._answered.filter_calls()
        known: dict[str, Any] = {}
        if self._cell.is_synced:
            snapshot = self._cell.current()
            chained = (name for chain in settings.fallback.chains for name in chain)
            resources = wanted_resources(snapshot, settings.scope(), chained)
            shown, passing = find_sample(snapshot, self._answered, self._verb_options())
            known = {
                "managed_resources": resources,
                "nodes": len(snapshot.nodes.names),
                "nodes_shown": shown,
                "nodes_passing": passing,
            }
        if self._certificate is not None:
            known["certificate"] = self._certificate.pem.decode()
            known["certificate_faults"] = self._certificate.not_ready_reasons()
        port, webhook_port = self._ports()
        return msgspec.convert(
            {
                "version": version("gpu-extender"),
                "hostname": socket.gethostname(),
                "notReadyReasons": self._health.extender_not_ready_reasons(),
                "refusedFiles": {
                    name: one_line(faults, MAX_FAULTS)
                    for name, faults in self._refused_files().items()
                },
                "waitingKeys": self._waiting_keys(),
                "registrationFault": self._registration_fault(),
                "port": port,
                "electsIn": self._elects_in(settings),
                "webhookPort": webhook_port,
                "filterCalls": calls,
                "nodesOffered": offered,
                "calledBindings": audited.called,
                "uncalledBindings": audited.uncalled,
                "uncalledResources": sorted(audited.uncalled_by_resource),
                **_as_wire(facts_of_settings(settings)),
                **_as_wire(known),
            },
            Facts,
        )

    def _elects_in(self, settings: Settings) -> str:
        """Return where one of all replicas is elected, empty if none is."""
        is_elected = settings.fallback.chains or settings.extender.events
        return self._own_namespace if is_elected else ""

    def _examine_connection(
        self, api: NamedApi, settings: Settings, facts: Facts, report: _Report
    ) -> Facts:
        """Ask the API server which rights we have, and what comes with the answers."""
        try:
            first = self._first_answer(api)
        except ApiError as error:
            report.take(explain_silence(error, api))
            whys = Unchecked(REGISTRATION, "the API server has not answered")
            report.unchecked.append(whys)
            return facts
        if first is not None:
            facts = msgspec.structs.replace(facts, clock_offset_seconds=first.offset)
            report.take(self._examine_rights(api, settings))
        else:
            why = "the API server does not say which rights the token has"
            report.unchecked.append(Unchecked(RIGHTS, why))
        times = api.token_times()
        if times is not None:
            ends = times.ends_seconds
            facts = msgspec.structs.replace(facts, token_ends_seconds=ends)
        report.take(check_clock(facts))
        report.take(check_token(times, api.credentials, self._clock()))
        report.take(self._examine_registration(api, facts))
        return facts

    def _first_answer(self, api: NamedApi) -> "_FirstAnswer | None":
        """Return the answer to a first question; None if nobody may ask it.

        After a 401 the credentials have been read again, and are tried once more.
        """
        question = next(list_rights(self._settings())).review("list")
        for is_last in (False, True):
            begun = self._clock()
            try:
                answer = api.ask(REVIEWS_PATH, question)
                return _FirstAnswer(answer, (begun + self._clock()) / 2)
            except ApiError as error:
                if error.status in {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}:
                    return None
                if error.status != HTTPStatus.UNAUTHORIZED or is_last:
                    raise
        return None

    def _examine_rights(self, api: NamedApi, settings: Settings) -> Iterable[_Found]:
        """Return findings about rights that are missing."""
        denied: list[tuple[Right, list[str]]] = []
        try:
            for right in list_rights(settings, self._elects_in(settings)):
                if not _is_there(api, right.unless):
                    missing = [v for v in right.verbs if not self._may(api, right, v)]
                    denied.append((right, missing))
        except (ApiError, msgspec.MsgspecError, _OutOfTimeError) as error:
            return [*report_denied(denied), Unchecked(RIGHTS, f"some of them: {error}")]
        return report_denied(denied)

    def _may(self, api: NamedApi, right: Right, verb: str) -> bool:
        if self._monotonic() > self._ends:
            raise _OutOfTimeError("the API server answers too slowly")
        return is_allowed(api.ask(REVIEWS_PATH, right.review(verb)).body)

    def _examine_registration(self, api: NamedApi, facts: Facts) -> Iterable[_Found]:
        """Return what is wrong with the webhook's registration."""
        path = f"{REGISTRATIONS}/{facts.registration_name}"
        if not facts.has_webhook:
            return []
        try:
            registration = msgspec.json.decode(api.read(path), type=Registration)
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                return [Unchecked(REGISTRATION, f"it could not be read: {error}")]
            registration = None
        except msgspec.MsgspecError as error:
            return [Unchecked(REGISTRATION, f"it could not be read: {error}")]
        return check_registration(facts, registration, self._clock())

    def _examine_scheduler_config(
        self, settings: Settings, facts: Facts
    ) -> Iterable[_Found]:
        """Return what is wrong with kube-scheduler's configuration, where we see it."""
        name = settings.extender.scheduler_config_file
        if name is None:
            why = "extender.schedulerConfigFile does not say where it is"
            return [Unchecked(CONFIGURATION, why)]
        try:
            config = read_scheduler_config(self._folder / name)
        except SchedulerConfigError as error:
            return [
                Finding(
                    CONFIGURATION,
                    f"extender.schedulerConfigFile cannot be read: {error}.",
                    "Nobody compares it with what nodes offer and with our deadline.",
                    "Name the file that kube-scheduler is started with, or none.",
                )
            ]
        return check_scheduler_config(facts, config, name)

    def _leader(self, facts: Facts) -> str | None:
        """Return the host of the kube-scheduler that leads; see `check_calls`."""
        if self._api is None or facts.called_bindings or not facts.uncalled_bindings:
            return ""
        try:
            lease = read_lease(self._api, facts.scheduler_lease)
        except (ApiError, msgspec.MsgspecError):
            return None
        return "" if lease is None else leader_host(lease)


def _is_there(api: NamedApi, path: str) -> bool:
    """Return whether there is an object at `path`, as far as we may look."""
    try:
        return bool(path and api.read(path))
    except ApiError:
        return False


def _as_wire(fields: Any) -> dict[str, Any]:
    """Return fields by the names that they have in JSON."""
    return {_camel(name): value for name, value in fields.items()}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
