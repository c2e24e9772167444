"""Checks of kube-scheduler: its configuration, and its calls as they come."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import numpy as np

from cluster.decode.objects import PodRecord
from cluster.yaml_text import UNREADABLE, describe_unreadable, parse_unique
from extender.explain.explain import check_as_scheduler
from extender.explain.pod import subject_of_record
from extender.tracking.last_answers import FILTER, LastAnswers
from extender.verbs.options import VerbOptions
from extender.wire.filter import WireError
from scoring.eligibility import MIN_FEASIBLE_NODES
from scoring.resources import ResourceScope
from scoring.snapshot import Snapshot
from service.doctor.page import Facts, Finding, Unchecked, listed
from service.http.middleware import FILTER_PATH, PREEMPT_PATH, PRIORITIZE_PATH

CONFIGURATION: Final = "scheduler configuration"

CALLS: Final = "calls"

SAMPLE: Final = "sample of nodes"

KIND: Final = "KubeSchedulerConfiguration"

# What kube-scheduler takes where the file says nothing, or 0.
DEFAULT_TIMEOUT_SECONDS: Final = 5.0

# Each takes some milliseconds in a large cluster.
MAX_PODS_LOOKED_AT: Final = 16

_ANEW: Final = (
    "Write the file anew with `gpu-extender scheduler-config`, and restart"
    " kube-scheduler, which reads it only then."
)

_DURATION: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")

_UNIT_SECONDS: Final[Mapping[str, float]] = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0,
}  # fmt: skip


def managed_resources(
    snapshot: Snapshot, scope: ResourceScope, chained: Iterable[str]
) -> list[str]:
    """Return the extended resources whose pods kube-scheduler is to send.

    Those that nodes offer, DeviceClasses carry, pods hold, the settings name exactly,
    and the fallback chains lead to.
    """
    named = {name for name in scope.gpu_resources if not name.endswith("*")}
    return sorted(named | set(wanted_resources(snapshot, scope, chained)))


def wanted_resources(
    snapshot: Snapshot, scope: ResourceScope, chained: Iterable[str]
) -> list[str]:
    """Return those of `managed_resources` that this cluster has, or is to have."""
    held = (name for share in snapshot.bound_pods.values() for name, _ in share.request)
    candidates = {*snapshot.resources, *held}
    return sorted(
        set(chained) | {name for name in candidates if scope.is_managed(name)}
    )


class SchedulerConfigError(ValueError):
    """A file that is no configuration of kube-scheduler."""


class ManagedResource(msgspec.Struct, frozen=True, rename="camel"):
    """A resource whose pods are sent."""

    name: str
    ignored_by_scheduler: bool = False


class Extender(msgspec.Struct, frozen=True, rename="camel"):
    """One extender of the configuration, as far as it is compared."""

    url_prefix: str = ""
    filter_verb: str = ""
    prioritize_verb: str = ""
    preempt_verb: str = ""
    http_timeout: str = ""
    node_cache_capable: bool = False
    ignorable: bool = False
    managed_resources: tuple[ManagedResource, ...] = ()

    def path(self, verb: str) -> str:
        """Return the path that is called for a verb, empty if none is."""
        if not verb:
            return ""
        return f"{urlsplit(self.url_prefix).path.rstrip('/')}/{verb}"

    @property
    def port(self) -> int | None:
        """The port that is called."""
        parts = urlsplit(self.url_prefix)
        try:
            return parts.port or {"http": 80, "https": 443}.get(parts.scheme)
        except ValueError:
            return None


class SchedulerConfig(msgspec.Struct, frozen=True):
    """A KubeSchedulerConfiguration, as far as it is compared."""

    kind: str
    extenders: tuple[Extender, ...] = ()


def read_scheduler_config(path: Path) -> SchedulerConfig:
    """Return what a file says; raise `SchedulerConfigError`."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SchedulerConfigError(f"{path}: {describe_unreadable(error)}") from error
    return parse_scheduler_config(data, str(path))


def parse_scheduler_config(data: bytes, name: str) -> SchedulerConfig:
    """Return what the text of the file `name` says; raise `SchedulerConfigError`."""
    try:
        tree: Any = parse_unique(data)
        found = msgspec.convert(tree, SchedulerConfig)
    except msgspec.ValidationError as error:
        raise SchedulerConfigError(f"{name}: {error}") from error
    except UNREADABLE as error:
        raise SchedulerConfigError(f"{name}: {describe_unreadable(error)}") from error
    if found.kind != KIND:
        raise SchedulerConfigError(f"{name}: wanted the kind {KIND}, got {found.kind}")
    return found


def check_scheduler_config(
    facts: Facts, config: SchedulerConfig, name: str
) -> Iterator[Finding]:
    """Yield what is wrong with the configuration in the file `name`."""
    extender = _own_extender(facts, config)
    if extender is None:
        called = [item.url_prefix for item in config.extenders]
        yield Finding(
            CONFIGURATION,
            f"No extender in {name} calls port {facts.port}, where the verbs are"
            f" served; it calls {listed(called) or 'none at all'}.",
            "kube-scheduler places GPU pods without gpu-extender.",
            _ANEW,
        )
        return
    yield from _check_verbs(extender, name)
    yield from _check_timeout(facts, extender, name)
    yield from _check_resources(facts, extender, name)
    if extender.ignorable:
        yield Finding(
            CONFIGURATION,
            f"ignorable is true in {name}.",
            "While gpu-extender is away, pods are placed without it, also where they"
            " never fit.",
            _ANEW,
        )
    if not extender.node_cache_capable:
        yield Finding(
            CONFIGURATION,
            f"nodeCacheCapable is false in {name}.",
            "Each call carries whole nodes, and kube-scheduler 1.34 and newer then"
            " scores every node as idle (kubernetes/kubernetes#141781).",
            _ANEW,
        )


def _own_extender(facts: Facts, config: SchedulerConfig) -> Extender | None:
    """Return the extender that is us."""
    return extender_on(config, facts.port)


def extender_on(config: SchedulerConfig, port: int) -> Extender | None:
    """Return the extender that is called on a port, None if there is none."""
    return next((item for item in config.extenders if item.port == port), None)


def lacking_resources(
    config: SchedulerConfig, port: int, resources: Iterable[str]
) -> list[str]:
    """Return those of `resources` whose pods are not sent to a port.

    Without `managedResources`, every pod is sent.
    """
    extender = extender_on(config, port)
    if extender is None:
        return sorted(resources)
    managed = {item.name for item in extender.managed_resources}
    return sorted(name for name in resources if managed and name not in managed)


def _check_verbs(extender: Extender, name: str) -> Iterator[Finding]:
    wanted = {
        "filterVerb": (extender.path(extender.filter_verb), FILTER_PATH),
        "prioritizeVerb": (extender.path(extender.prioritize_verb), PRIORITIZE_PATH),
        "preemptVerb": (extender.path(extender.preempt_verb), PREEMPT_PATH),
    }
    wrong = [
        f"{verb} ({path or 'none'}, wanted {right})"
        for verb, (path, right) in wanted.items()
        if path != right
    ]
    if wrong:
        yield Finding(
            CONFIGURATION,
            f"In {name}, urlPrefix and verb lead elsewhere: {listed(wrong)}.",
            "kube-scheduler does not ask, or is answered 404: pods are not placed, are"
            " placed without scores, or evict others in vain.",
            _ANEW,
        )


def _check_timeout(facts: Facts, extender: Extender, name: str) -> Iterator[Finding]:
    seconds = duration_seconds(extender.http_timeout)
    if seconds is None:
        return  # kube-scheduler does not start with it
    deadline = facts.deadline_milliseconds
    if seconds * 1000 <= deadline:
        said = extender.http_timeout or f"{seconds:g}s"
        yield Finding(
            CONFIGURATION,
            f"httpTimeout is {said} in {name}, and extender.deadlineMilliseconds is"
            f" {deadline}.",
            "kube-scheduler gives a slow call up before we do, and tries the pod again"
            " while its last call is still worked on.",
            f"Let httpTimeout be longer, or the deadline shorter. {_ANEW}",
        )


def duration_seconds(text: str) -> float | None:
    """Return a duration as Go writes it, in seconds; None for what it does not read.

    >>> [duration_seconds(text) for text in ("800ms", "1m0.5s", "", "0", "1", "x")]
    [0.8, 60.5, 5.0, 5.0, None, None]
    """
    if text in {"", "0"}:
        return DEFAULT_TIMEOUT_SECONDS
    parts = _DURATION.findall(text)
    if "".join(number + unit for number, unit in parts) != text:
        return None
    seconds = sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)
    return seconds or DEFAULT_TIMEOUT_SECONDS


def _check_resources(facts: Facts, extender: Extender, name: str) -> Iterator[Finding]:
    managed = {item.name for item in extender.managed_resources}
    missing = [item for item in facts.managed_resources if item not in managed]
    if managed and missing:
        yield Finding(
            CONFIGURATION,
            f"managedResources in {name} lack {listed(missing)}, which nodes offer or"
            " the configuration names.",
            "kube-scheduler does not ask us about pods that want only these: they land"
            " anywhere that counts allow, and are not woken.",
            _ANEW,
        )
    ignored = [item.name for item in extender.managed_resources if _is_ignored(item)]
    if ignored:
        yield Finding(
            CONFIGURATION,
            f"ignoredByScheduler is true in {name} for {listed(ignored)}.",
            "kube-scheduler does not count them, and we cannot see the pods that it is"
            " about to bind: two pods get the same GPU.",
            _ANEW,
        )


def _is_ignored(item: ManagedResource) -> bool:
    return item.ignored_by_scheduler


def check_calls(facts: Facts, leader: str | None) -> Iterator[Finding | Unchecked]:
    """Yield what the calls that came, or did not, tell.

    Parameters
    ----------
    leader : str or None
        Host of the kube-scheduler that leads; empty where that is known not to be
        told, None where it could not be read.
    """
    if facts.source == "file":
        yield Unchecked(CALLS, "the cluster comes from files, so nobody binds pods")
        return
    if not facts.uncalled_bindings and not facts.filter_calls:
        yield Unchecked(CALLS, "no GPU pod has been placed since the process started")
        return
    if not facts.called_bindings and facts.uncalled_bindings:
        yield _never_called(facts, leader)
    elif facts.uncalled_resources:
        yield Finding(
            CALLS,
            f"kube-scheduler binds pods that ask {listed(facts.uncalled_resources)}"
            " and does not ask us about them.",
            "Its managedResources lack these names, and take exact ones only.",
            _ANEW,
        )


def _never_called(facts: Facts, leader: str | None) -> Finding | Unchecked:
    """Return what it means that pods are bound and no call has come."""
    if leader and leader != facts.hostname:
        where = f"kube-scheduler on {leader} leads, which calls gpu-extender there"
        return Unchecked(CALLS, where)
    doubt = ""
    if leader is None:
        doubt = (
            " Unless the kube-scheduler of another host leads, and calls the"
            " gpu-extender there: its Lease could not be read."
        )
    return Finding(
        CALLS,
        f"kube-scheduler has bound {facts.uncalled_bindings} GPU pods since this"
        f" process started, and has asked it about none of them.{doubt}",
        "GPU pods are placed without gpu-extender: no types, no scores, no topology.",
        "Start kube-scheduler with --config and the file that `gpu-extender"
        " scheduler-config` prints; its urlPrefix must lead here.",
    )


def find_sample(
    snapshot: Snapshot, answered: LastAnswers, options: VerbOptions
) -> tuple[int, int]:
    """Return how many nodes kube-scheduler showed of how many that pass its checks.

    Of a pending pod for which it showed fewer than pass; 0 and 0 if there is none. It
    sends what its own checks leave: that these are few of all nodes says nothing.
    """
    left = MAX_PODS_LOOKED_AT
    for record in snapshot.pending:
        if not isinstance(record, PodRecord):
            continue
        if not all(wish.startswith("preferred ") for wish in record.not_modelled):
            continue  # what else refuses nodes is not known
        call = answered.of(record.uid).get(FILTER)
        shown = call.offered if call is not None else msgspec.UNSET
        # So many it looks for, whatever percentageOfNodesToScore says.
        if not isinstance(shown, int) or shown < MIN_FEASIBLE_NODES:
            continue
        try:
            subject = subject_of_record(record, options)
        except WireError:  # it asks too many resources
            continue
        checks = check_as_scheduler(subject, snapshot, options)
        passing = int(np.count_nonzero(checks.passed))
        left -= 1
        if shown < passing:
            return shown, passing
        if not left:
            break
    return 0, 0


def check_sample(facts: Facts) -> Iterator[Finding]:
    """Yield what follows from kube-scheduler's looking at some nodes only."""
    is_sampled = 0 < facts.nodes_shown < facts.nodes_passing
    if is_sampled and not (facts.has_type_affinity and facts.has_webhook):
        yield Finding(
            SAMPLE,
            f"kube-scheduler has shown {facts.nodes_shown} of {facts.nodes_passing}"
            " nodes that pass its own checks for a pending pod, and nobody writes GPU"
            " types into pods as node affinity.",
            "A pod that wants a type is refused where none of the shown nodes has it,"
            " and waits for its next try although another would take it.",
            "Serve the webhook and leave injection.typeAffinity on, or set"
            " percentageOfNodesToScore: 100 in kube-scheduler's configuration.",
        )
