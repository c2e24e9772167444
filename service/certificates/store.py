"""Storage of our own certificates: a Secret, and the webhook's registration.

Nothing is changed that somebody else has changed meanwhile: each write names the
version that was read.
"""

import base64
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Final

import msgspec

from cluster.api.protocol import Api, ApiError
from service.certificates.rotation import Contents, Published
from service.certificates.x509 import Authority, read_authority, read_leaf, split_bundle

logger = logging.getLogger(__name__)

AUTHORITIES: Final = "authorities.json"

CERTIFICATE: Final = "tls.crt"

KEY: Final = "tls.key"

REGISTRATIONS: Final = (
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
)


class ConflictError(RuntimeError):
    """Somebody else has changed the object since it was read."""


@dataclass(frozen=True, slots=True)
class Registration:
    """The webhook's registration as it was read.

    Attributes
    ----------
    published : Published or None
        None while it has no webhook, so that nobody is called.
    names : tuple of str
        Of its webhooks, all of which are ours.
    webhooks : tuple of mapping
        As they are.
    """

    published: Published | None
    names: tuple[str, ...]
    version: str
    webhooks: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Stored:
    """The Secret as it was read.

    Attributes
    ----------
    contents : Contents or None
        None if it is missing, or not what we write.
    tree : mapping or None
        The whole object, None if it is missing.
    """

    contents: Contents | None
    tree: Mapping[str, Any] | None


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _ClientConfig(msgspec.Struct, rename="camel"):
    ca_bundle: bytes = b""


class _Webhook(msgspec.Struct, rename="camel"):
    name: str
    client_config: _ClientConfig


class _Registration(msgspec.Struct):
    metadata: _Meta
    webhooks: list[_Webhook] | None = None


class _Secret(msgspec.Struct):
    data: dict[str, bytes] | None = None


class _Record(msgspec.Struct, omit_defaults=True):
    """One authority in the Secret; times are seconds since 1970."""

    certificate: str
    key: str = ""
    published: float | None = None
    retired: float | None = None


class CertificateStore:
    """Reads and writes both objects; one thread calls it."""

    def __init__(
        self, api: Api, namespace: str, secret_name: str, registration_name: str
    ) -> None:
        self._api = api
        self._metadata = {"namespace": namespace, "name": secret_name}
        self._secrets_path = f"/api/v1/namespaces/{namespace}/secrets"
        self._secret_path = f"{self._secrets_path}/{secret_name}"
        self._registration_path = f"{REGISTRATIONS}/{registration_name}"

    def read_registration(self) -> Registration | None:
        """Return the registration, None if there is none; raise `ApiError`."""
        data = self._read(self._registration_path)
        if data is None:
            return None
        try:
            found = msgspec.json.decode(data, type=_Registration)
        except msgspec.MsgspecError as error:
            raise ApiError(str(error), reason="undecodable") from error
        webhooks = found.webhooks or []
        bundles = tuple(_bundle(w.client_config.ca_bundle) for w in webhooks)
        return Registration(
            Published(bundles) if bundles else None,
            tuple(webhook.name for webhook in webhooks),
            found.metadata.resource_version,
            tuple(msgspec.json.decode(data).get("webhooks") or ()),
        )

    def read_secret(self) -> Stored:
        """Return the Secret; raise `ApiError` if the API server does not say."""
        data = self._read(self._secret_path)
        if data is None:
            return Stored(None, None)
        try:
            found = msgspec.json.decode(data, type=_Secret).data
            # Rendered without data, it waits for its first certificate.
            contents = decode_contents(found) if found else None
        except (ValueError, msgspec.MsgspecError) as error:
            logger.warning(
                "Secret refused, certificates are made anew",
                extra={"fields": {"fault": str(error)}},
            )
            contents = None
        return Stored(contents, msgspec.json.decode(data))

    def write(self, contents: Contents, stored: Stored) -> None:
        """Create or replace the Secret; raise `ConflictError` if it has changed."""
        encoded = {
            name: base64.b64encode(value).decode()
            for name, value in encode_contents(contents).items()
        }
        kind = {"apiVersion": "v1", "kind": "Secret"}
        try:
            if stored.tree is None:
                tree = {**kind, "metadata": self._metadata, "data": encoded}
                self._api.create(self._secrets_path, msgspec.json.encode(tree))
            else:
                tree = {**stored.tree, **kind, "data": encoded}
                self._api.replace(self._secret_path, msgspec.json.encode(tree))
        except ApiError as error:
            _raise_conflict(error)
            raise

    def publish(self, bundle: tuple[bytes, ...], registration: Registration) -> None:
        """Have all webhooks trust a bundle; raise `ConflictError` if changed."""
        text = base64.b64encode(b"".join(bundle)).decode()
        self._merge_webhooks(
            [
                {"name": name, "clientConfig": {"caBundle": text}}
                for name in registration.names
            ],
            registration,
        )

    def merge_webhook(
        self, webhook: Mapping[str, Any], registration: Registration
    ) -> None:
        """Add or change one webhook; raise `ConflictError` if others changed it."""
        self._merge_webhooks([webhook], registration)

    def _merge_webhooks(
        self, webhooks: Sequence[Mapping[str, Any]], registration: Registration
    ) -> None:
        change = {
            "metadata": {"resourceVersion": registration.version},
            "webhooks": webhooks,
        }
        try:
            self._api.merge(self._registration_path, msgspec.json.encode(change))
        except ApiError as error:
            _raise_conflict(error)
            raise

    def _read(self, path: str) -> bytes | None:
        """Return an object, None if there is none."""
        try:
            return self._api.read(path)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise


def decode_contents(data: Mapping[str, bytes]) -> Contents:
    """Return what a Secret's data say; raise `ValueError` if they are not ours.

    A leaf that is not right is left out: its authorities make another.
    """
    if AUTHORITIES not in data:
        raise ValueError(f"Secret: wanted the key {AUTHORITIES}, got {sorted(data)}")
    try:
        records = msgspec.json.decode(data[AUTHORITIES], type=list[_Record])
    except msgspec.MsgspecError as error:
        raise ValueError(f"Secret, {AUTHORITIES}: {error}") from error
    authorities = tuple(map(_read_record, records))
    if not any(authority.key for authority in authorities):
        raise ValueError(f"Secret, {AUTHORITIES}: wanted a CA with its key, got none")
    try:
        leaf = read_leaf(data.get(CERTIFICATE, b""), data.get(KEY, b""), authorities)
    except ValueError:
        return Contents(authorities)
    return Contents(authorities, leaf)


def encode_contents(contents: Contents) -> dict[str, bytes]:
    """Return the Secret's data."""
    records = [
        _Record(
            authority.certificate.decode(),
            authority.key.decode(),
            authority.published_seconds,
            authority.retired_seconds,
        )
        for authority in contents.authorities
    ]
    data = {AUTHORITIES: msgspec.json.encode(records)}
    if contents.leaf is not None:
        data |= {CERTIFICATE: contents.leaf.certificate, KEY: contents.leaf.key}
    return data


def _read_record(record: _Record) -> Authority:
    authority = read_authority(record.certificate.encode(), record.key.encode())
    return replace(
        authority, published_seconds=record.published, retired_seconds=record.retired
    )


def _bundle(data: bytes) -> tuple[bytes, ...]:
    """Return a `caBundle`'s certificates, none for what nobody could use."""
    try:
        return split_bundle(data)
    except ValueError:
        return ()


def _raise_conflict(error: ApiError) -> None:
    """Raise `ConflictError` if an object was changed, made or deleted meanwhile."""
    if error.status in {HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}:
        raise ConflictError(str(error)) from error
