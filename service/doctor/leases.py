"""Leases: who holds them, and whether anybody renews them."""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Final

import msgspec

from cluster.api.protocol import ApiError, ObjectReader
from cluster.decode.objects import parse_time
from service.doctor.page import Facts, Finding, span_text

LEASE: Final = "Lease"

# A holder that lives renews long before its time is over.
LATE_SECONDS: Final = 10.0


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Who holds a Lease, since when, and for how long."""

    holder_identity: str | None = None
    renew_time: str | None = None
    lease_duration_seconds: int | None = None


class Lease(msgspec.Struct, frozen=True):
    """A Lease, as far as it is looked at."""

    spec: LeaseSpec = LeaseSpec()


def lease_path(where: str) -> str:
    """Return the path of a Lease; `where` is namespace and name with a slash."""
    namespace, _, name = where.partition("/")
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"


def read_lease(api: ObjectReader, where: str) -> Lease | None:
    """Return a Lease, None if there is none, or none is named.

    Raises `ApiError` if we may not, and `msgspec.MsgspecError` for what is none.
    """
    if not where:
        return None
    try:
        return msgspec.json.decode(api.read(lease_path(where)), type=Lease)
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return None
        raise


def leader_host(lease: Lease) -> str:
    """Return the host of who holds a Lease, empty if nobody does.

    kube-scheduler writes its host's name, an underscore, and something random.
    """
    holder = lease.spec.holder_identity or ""
    return holder.rpartition("_")[0] or holder


def check_scheduler_lease(
    api: ObjectReader, facts: Facts, now: float
) -> Iterator[Finding]:
    """Yield a finding about a Lease of kube-scheduler that nobody renews."""
    where = facts.scheduler_lease
    lease = read_lease(api, where)
    age = None if lease is None else _late_age(lease, now)
    if lease is not None and age is not None:
        yield Finding(
            LEASE,
            _not_renewed(where, lease, age),
            "No kube-scheduler leads, and none places pods.",
            "Look at the log of kube-scheduler on each host of the control plane.",
        )


def check_own_lease(api: ObjectReader, facts: Facts, now: float) -> Iterator[Finding]:
    """Yield a finding about the Lease by which one replica answers for all."""
    if not facts.elects_in:
        return
    where = f"{facts.elects_in}/{facts.lease_name}"
    lease = read_lease(api, where)
    why = (
        "No replica writes Events; with chains, each decides falls alone, and two pods"
        " may be promised the same slice."
    )
    if lease is None:
        what = f"There is no Lease {where}."
        yield Finding(LEASE, what, why, "Apply deploy/lease.yaml.")
        return
    age = _late_age(lease, now)
    if age is not None or not lease.spec.holder_identity:
        what = f"Nobody holds the Lease {where}."
        if age is not None:
            what = _not_renewed(where, lease, age)
        do = (
            "Look at /readyz/extender of each replica: only one that is ready takes it."
        )
        yield Finding(LEASE, what, why, do)


def _late_age(lease: Lease, now: float) -> float | None:
    """Return the age of the last renewal if that is too long, else None."""
    try:
        renewed = parse_time(lease.spec.renew_time or "")
    except ValueError:
        return None
    bound = (lease.spec.lease_duration_seconds or 0) + LATE_SECONDS
    return now - renewed if now - renewed > bound else None


def _not_renewed(where: str, lease: Lease, age: float) -> str:
    return (
        f"Nobody has renewed the Lease {where} for {span_text(age)}; its last holder"
        f" was {lease.spec.holder_identity or 'nobody'}."
    )
