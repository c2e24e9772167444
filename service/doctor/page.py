"""What `GET /doctor` answers: findings, what was not checked, and the facts behind."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from service.settings.policy import DEFAULT_SCHEDULER_LEASE
from service.settings.settings import Settings

MARGIN: Final = 0.1


class Finding(msgspec.Struct, frozen=True):
    """Something wrong with an installation.

    Attributes
    ----------
    check : str
        What was looked at, in one or two words.
    what, why, do : str
        What is wrong, why it matters, and what to do; each in whole sentences.
    """

    check: str
    what: str
    why: str
    do: str


class Unchecked(msgspec.Struct, frozen=True):
    """Something that could not be looked at, and why."""

    check: str
    why: str


class Facts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a process knows of itself; times are seconds since 1970.

    Attributes
    ----------
    elects_in : str
        Namespace of the Lease by which one replica decides falls; empty where none is
        elected.
    scheduler_lease : str
        Of the kube-scheduler that calls us; empty if it is not known.
    certificate : str
        What the webhook shows, as PEM; empty if it shows nothing.
    certificate_faults : tuple of str
        Why no client would take it.
    not_ready_reasons : tuple of str
        Why the extender is not ready.
    refused_files : dict
        What a watched file is for -> the faults of its newest contents
    waiting_keys : tuple of str
        Sections of the configuration that wait for a restart.
    is_registering : bool
        Whether the process adds its entry to the registration.
    registration_fault : str
        Why it has not, or not as it is to be; empty if it has.
    managed_resources : tuple of str
        What kube-scheduler must send to us, by what nodes offer and chains name.
    nodes_offered : int
        The most nodes that a filter call named lately.
    nodes_shown, nodes_passing : int
        How many nodes the last call about a pending pod named, of how many that pass
        kube-scheduler's own checks; 0 where no call named fewer.
    called_bindings, uncalled_bindings : int
        Pods that were bound since the start, after a filter call to us or without.
    uncalled_resources : tuple of str
        Resources of the latter, of which no call has told.
    """

    version: str
    hostname: str
    source: str
    has_webhook: bool
    is_self_signed: bool
    has_rules: bool
    has_chains: bool
    has_type_affinity: bool
    managed_prefixes: tuple[str, ...]
    gpu_resources: tuple[str, ...]
    trigger_annotation: str
    skipped_namespaces: tuple[str, ...]
    failure_policy: str
    webhook_deadline_milliseconds: int
    deadline_milliseconds: int
    registration_name: str
    namespace: str
    scheduler_lease: str
    lease_name: str
    port: int
    webhook_port: int
    elects_in: str = ""
    is_registering: bool = False
    registration_fault: str = ""
    certificate: str = ""
    certificate_faults: tuple[str, ...] = ()
    not_ready_reasons: tuple[str, ...] = ()
    refused_files: dict[str, str] = {}
    waiting_keys: tuple[str, ...] = ()
    managed_resources: tuple[str, ...] = ()
    nodes: int = 0
    filter_calls: int = 0
    nodes_offered: int = 0
    nodes_shown: int = 0
    nodes_passing: int = 0
    called_bindings: int = 0
    uncalled_bindings: int = 0
    uncalled_resources: tuple[str, ...] = ()
    token_ends_seconds: float | None = None
    clock_offset_seconds: float | None = None


class Page(msgspec.Struct, frozen=True):
    """The whole answer."""

    findings: tuple[Finding, ...]
    unchecked: tuple[Unchecked, ...]
    facts: Facts


def facts_of_settings(settings: Settings) -> Mapping[str, Any]:
    """Return those fields of `Facts` that the settings say."""
    webhook, injection = settings.webhook, settings.injection
    self_signed = webhook.self_signed
    return {
        "source": settings.cluster.source,
        "has_webhook": self_signed.enabled or webhook.certificate_file is not None,
        "is_self_signed": self_signed.enabled,
        "is_registering": webhook.registration == "patched",
        "has_rules": injection.rules_file is not None,
        "has_chains": bool(settings.fallback.chains),
        "has_type_affinity": injection.type_affinity,
        "managed_prefixes": settings.managed_prefixes,
        "gpu_resources": settings.gpu_resources,
        "trigger_annotation": injection.trigger_annotation,
        "skipped_namespaces": injection.skipped_namespaces,
        "failure_policy": injection.failure_policy,
        "webhook_deadline_milliseconds": webhook.deadline_milliseconds,
        "deadline_milliseconds": settings.extender.deadline_milliseconds,
        "registration_name": self_signed.registration_name,
        "namespace": self_signed.namespace,
        "scheduler_lease": _scheduler_lease(settings),
        "lease_name": settings.election.lease_name,
    }


def _scheduler_lease(settings: Settings) -> str:
    """Return the Lease of the scheduler that calls us, empty if we do not know it."""
    lease = settings.extender.scheduler_lease
    is_own = settings.injection.scheduler_name is not None
    return "" if is_own and lease == DEFAULT_SCHEDULER_LEASE else lease


def empty_facts(settings: Settings) -> Facts:
    """Return what a configuration says of a process that says nothing."""
    return Facts(
        version="",
        hostname="",
        port=settings.server.port,
        webhook_port=settings.webhook.port,
        **facts_of_settings(settings),
    )


def ends_soon(starts: float, ends: float, now: float) -> bool:
    """Whether less than a tenth of a validity is left: whoever renews has not.

    >>> ends_soon(0, 100, 89), ends_soon(0, 100, 91), ends_soon(0, 100, 101)
    (False, True, True)
    """
    return ends - now < MARGIN * (ends - starts)


def span_text(seconds: float) -> str:
    """Return a time span in its largest unit.

    >>> [span_text(seconds) for seconds in (7, 90, 7200, 172_800, 1e8)]
    ['7 s', '2 min', '2 h', '2 days', '1157 days']
    """
    for unit, size in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def listed(names: Iterable[str], most: int = 5) -> str:
    """Return names with commas, and how many more there are.

    >>> listed(["a", "b"]), listed("abcdefg", most=3)
    ('a, b', 'a, b, c and 4 more')
    """
    found = list(names)
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more
