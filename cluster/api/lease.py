"""One holder among replicas: a Lease of the API server, and client-go's rules for it.

The rules are those of ``tools/leaderelection`` in client-go: a replica may take a Lease
that has no holder, or whose holder has not changed it for as long as the Lease itself
says, by the taker's own monotonic clock. Times in the Lease are written and never
compared, so that clocks need not agree. Whoever holds it renews it, and counts as the
holder for the renew deadline from before its last renewal, which is shorter. Unlike
client-go, nobody creates a Lease that is not there: that right has no name to it.
"""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any, Final

import msgspec

from cluster.api.protocol import Api, ApiError

LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"

# What client-go writes when it gives a lease up: as good as expired.
RELEASED_SECONDS: Final = 1

# The API server takes 32 bits, and refuses what is more.
MOST_TRANSITIONS: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The ``spec`` of a Lease, as far as an election reads it.

    Attributes
    ----------
    holder : str
        Identity of who holds it; empty for nobody.
    lease_seconds : int
        For how long others leave it to a holder of whom nothing new is seen.
    acquired, renewed : str
        Times as they were written; only ever compared with themselves.
    transitions : int
        How often it has gone from one holder to another.
    """

    holder: str = ""
    lease_seconds: int = 0
    acquired: str = ""
    renewed: str = ""
    transitions: int = 0


@dataclass(frozen=True, slots=True)
class Observed:
    """A record, and since when, by our monotonic clock, it has been as it is."""

    record: LeaseRecord
    since_seconds: float

    def is_valid(self, now_seconds: float) -> bool:
        """Whether its holder may be taken to be alive."""
        return self.since_seconds + self.record.lease_seconds > now_seconds


class Step(Enum):
    """What a replica does next."""

    WAIT = auto()
    TAKE = auto()
    RENEW = auto()
    RELEASE = auto()


def observe(
    earlier: Observed | None, record: LeaseRecord, now_seconds: float
) -> Observed:
    """Return what is known after `record` was read."""
    if earlier is not None and earlier.record == record:
        return earlier
    return Observed(record, now_seconds)


def next_step(
    observed: Observed | None, identity: str, now_seconds: float, *, is_candidate: bool
) -> Step:
    """Return what the replica `identity` does next.

    Parameters
    ----------
    observed : Observed or None
        None where there is no Lease.
    now_seconds : float
        By the same clock, from before the Lease was read.
    is_candidate : bool
        Whether the replica may hold it. A holder that may not gives it up.
    """
    if observed is None:
        return Step.WAIT
    if observed.record.holder == identity:
        return Step.RENEW if is_candidate else Step.RELEASE
    is_taken = bool(observed.record.holder) and observed.is_valid(now_seconds)
    return Step.TAKE if is_candidate and not is_taken else Step.WAIT


def next_record(
    step: Step, record: LeaseRecord, identity: str, written: str, lease_seconds: int
) -> LeaseRecord:
    """Return what `step` makes of `record`; `written` is the time to write."""
    match step:
        case Step.WAIT:
            return record
        case Step.RENEW:
            return replace(record, lease_seconds=lease_seconds, renewed=written)
        case Step.TAKE:
            transitions = min(record.transitions + 1, MOST_TRANSITIONS)
            return LeaseRecord(identity, lease_seconds, written, written, transitions)
        case Step.RELEASE:
            seconds, transitions = RELEASED_SECONDS, record.transitions
            return LeaseRecord("", seconds, written, written, transitions)


def format_time(seconds: float) -> str:
    """Return a time as Kubernetes writes a ``MicroTime``.

    >>> format_time(1_900_000_000.25)
    '2030-03-17T17:46:40.250000Z'
    """
    moment = dt.datetime.fromtimestamp(seconds, dt.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Lease(msgspec.Struct):
    spec: _Spec | None = None


@dataclass(frozen=True, slots=True)
class StoredLease:
    """A Lease as it was read: what of it counts, and the whole object."""

    record: LeaseRecord
    tree: Mapping[str, Any]


def decode_lease(data: bytes) -> StoredLease:
    """Read a Lease, with or without ``spec``; raise `ApiError` if it is none."""
    try:
        spec = msgspec.json.decode(data, type=_Lease).spec or _Spec()
        tree = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ApiError(f"Lease: {error}", reason="undecodable") from error
    record = LeaseRecord(
        spec.holder_identity or "",
        spec.lease_duration_seconds or 0,
        spec.acquire_time or "",
        spec.renew_time or "",
        spec.lease_transitions or 0,
    )
    return StoredLease(record, tree)


def encode_lease(stored: StoredLease, record: LeaseRecord) -> bytes:
    """Return the object with `record`, and else as it was read."""
    spec = {**(stored.tree.get("spec") or {})}
    spec.pop("holderIdentity", None)
    if record.holder:  # as client-go: nobody is left out, not written as ""
        spec["holderIdentity"] = record.holder
    spec["leaseDurationSeconds"] = record.lease_seconds
    spec["acquireTime"] = record.acquired or record.renewed
    spec["renewTime"] = record.renewed
    spec["leaseTransitions"] = record.transitions
    return msgspec.json.encode({**stored.tree, "spec": spec})


class LeaseStore:
    """Reads and replaces one Lease; one thread calls it."""

    def __init__(self, api: Api, namespace: str, name: str) -> None:
        self._api = api
        self._path = LEASES.format(namespace=namespace, name=name)

    def read(self) -> StoredLease:
        """Return the Lease; raise `ApiError` if there is none, or it is not said."""
        return decode_lease(self._api.read(self._path))

    def write(self, stored: StoredLease, record: LeaseRecord) -> None:
        """Have `record` in the Lease; raise `ApiError` if it has changed meanwhile."""
        self._api.replace(self._path, encode_lease(stored, record))
