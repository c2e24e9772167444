"""Rights that a process needs by its settings, and what is missing without them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from service.doctor.page import Finding
from service.settings.settings import Settings

RIGHTS: Final = "rights"

REVIEWS_PATH: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

_RBAC: Final = "Apply deploy/rbac.yaml."

_SELF_SIGNED: Final = "Apply deploy/rbac-self-signed.yaml."

_REGISTRATION: Final = "Apply deploy/registration.yaml."

_LEASE: Final = "Apply deploy/lease.yaml."

_NO_LEASE: Final = (
    "No Events are written; with chains, each replica decides falls alone: two pods may"
    " be promised the same slice, and the webhook's Service may lead to nobody."
)

_NOT_REGISTERED: Final = (
    "The webhook is not registered, or not kept up to date: GPU pods are neither"
    " injected nor fall back."
)

_NO_CERTIFICATE: Final = (
    "The webhook's certificate is not made, or not renewed: once it has expired, the"
    " API server's calls fail."
)


@dataclass(frozen=True, slots=True)
class Right:
    """Verbs on one resource, or on one object of it.

    Attributes
    ----------
    why : str
        What is missing without it.
    do : str
        Who grants it.
    unless : str
        Path of an object that makes it needless; empty for none.
    """

    verbs: tuple[str, ...]
    group: str
    resource: str
    why: str
    do: str = _RBAC
    namespace: str = ""
    name: str = ""
    unless: str = ""

    def __str__(self) -> str:
        what = f"{self.resource}/{self.name}" if self.name else self.resource
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{what}{where}"

    def review(self, verb: str) -> bytes:
        """Return the question whether we have one verb of it."""
        resource, _, subresource = self.resource.partition("/")
        attributes = {
            "verb": verb,
            "group": self.group,
            "resource": resource,
            "subresource": subresource,
            "namespace": self.namespace,
            "name": self.name,
        }
        asked = {key: value for key, value in attributes.items() if value}
        return msgspec.json.encode(
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": asked},
            }
        )


class _Status(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status


def is_allowed(answer: bytes) -> bool:
    """Return what an answered review says; raise `msgspec.MsgspecError`."""
    return msgspec.json.decode(answer, type=_Review).status.allowed


def list_rights(settings: Settings, elects_in: str = "") -> Iterator[Right]:
    """Yield what a process with these settings needs.

    `elects_in` is the namespace in which one replica is elected, empty for none.
    """
    read = ("list", "watch")
    for resource in ("nodes", "pods"):
        yield Right(
            read,
            "",
            resource,
            "The cluster is not read, and every call of kube-scheduler is answered"
            " 503: no GPU pod is placed.",
        )
    yield Right(
        read,
        "",
        "limitranges",
        "What a LimitRange fills in counts as the user's wish, and its maximum is not"
        " warned of.",
    )
    yield Right(
        read,
        "resource.k8s.io",
        "deviceclasses",
        "Pods whose GPU resource a DeviceClass carries are refused everywhere.",
    )
    if settings.extender.wake_up:
        yield Right(
            ("patch",),
            "",
            "pods/status",
            "A refused pod is not woken when a node would take it: it waits for"
            " kube-scheduler's own retry, up to five minutes and a half.",
            f"{_RBAC} Or set extender.wakeUp: false.",
        )
    if elects_in and settings.extender.events:
        yield Right(
            ("create",),
            "events.k8s.io",
            "events",
            "Nobody is told on a pending pod why it is.",
            f"{_RBAC} Or set extender.events: false.",
        )
    if elects_in:
        name = settings.election.lease_name
        lease = ("get", "update"), "coordination.k8s.io", "leases"
        yield Right(*lease, _NO_LEASE, _LEASE, elects_in, name)
    if elects_in and settings.fallback.chains:
        yield Right(("patch",), "", "pods", _NO_LEASE, _LEASE, elects_in)
    webhook = settings.webhook
    if webhook.self_signed.enabled or webhook.certificate_file is not None:
        yield from _webhook_rights(settings)


def _webhook_rights(settings: Settings) -> Iterator[Right]:
    """Yield what the webhook needs beside."""
    self_signed = settings.webhook.self_signed
    group, resource = "admissionregistration.k8s.io", "mutatingwebhookconfigurations"
    name = self_signed.registration_name
    if settings.webhook.registration == "patched":
        yield Right(
            ("get", "patch"), group, resource, _NOT_REGISTERED, _REGISTRATION, name=name
        )
    elif not self_signed.enabled:
        why = "Nobody compares the registration with configuration and certificate."
        yield Right(("get",), group, resource, why, name=name)
    else:
        yield Right(
            ("get", "patch"), group, resource, _NO_CERTIFICATE, _SELF_SIGNED, name=name
        )
    if not self_signed.enabled:
        return
    namespace, secret = self_signed.namespace, self_signed.secret_name
    secrets = "", "secrets", _NO_CERTIFICATE, _SELF_SIGNED, namespace
    yield Right(("get", "update"), *secrets, secret)
    # The chart makes the Secret, and grants no right to create one.
    path = f"/api/v1/namespaces/{namespace}/secrets/{secret}"
    yield Right(("create",), *secrets, unless=path)


def report_denied(denied: Iterable[tuple[Right, list[str]]]) -> Iterator[Finding]:
    """Yield a finding for each right of which verbs are missing."""
    for right, verbs in denied:
        if verbs:
            what = f"gpu-extender may not {' or '.join(verbs)} {right}."
            yield Finding(RIGHTS, what, right.why, right.do)
