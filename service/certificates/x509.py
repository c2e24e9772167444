"""Certificates of our own making: authorities, the leaves they sign, and bundles.

All are PEM; when they were made and end is read from themselves. Pure but for the
keys and serial numbers, which are drawn by chance.
"""

import datetime as dt
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# A client that checks the certificate may have a clock behind ours.
BACKDATE_SECONDS: Final = 300

NAME: Final = "gpu-extender"


@dataclass(frozen=True, slots=True)
class Authority:
    """A CA of ours, or one that we have found and trust for a while.

    Attributes
    ----------
    certificate : bytes
        PEM, as `split_bundle` writes it.
    key : bytes
        PEM; empty for one that signs no more.
    made_seconds, ends_seconds : float
        In seconds since 1970, as all times here.
    published_seconds : float or None
        When it was first read back from the registration; None before.
    retired_seconds : float or None
        From when on it signs no more; None for one that does.
    """

    certificate: bytes
    key: bytes
    made_seconds: float
    ends_seconds: float
    published_seconds: float | None = None
    retired_seconds: float | None = None

    def retired(self, now_seconds: float) -> "Authority":
        """Return it without its key; the first retirement counts."""
        if self.retired_seconds is not None:
            return self
        return replace(self, key=b"", retired_seconds=now_seconds)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A server's certificate and key.

    Attributes
    ----------
    certificate, key : bytes
        PEM.
    issuer : bytes
        The authority's certificate.
    names : frozenset of str
        DNS names and IP addresses.
    """

    certificate: bytes
    key: bytes
    issuer: bytes
    names: frozenset[str]
    made_seconds: float
    ends_seconds: float


def make_authority(now_seconds: float, lifetime_seconds: float) -> Authority:
    """Return a new CA, not published yet."""
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    # A name of its own, so that verifiers do not take one CA for another.
    name = _name(f"{NAME} CA {serial:x}"[:64])
    end = now_seconds + lifetime_seconds
    certificate = (
        _builder(serial, name, name, key.public_key(), now_seconds, end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(is_authority=True), critical=True)
        .add_extension(_key_identifier(key), critical=False)
        .sign(key, hashes.SHA256())
    )
    return read_authority(_pem(certificate), _pem_key(key))


def issue_leaf(
    authority: Authority,
    names: Iterable[str],
    now_seconds: float,
    lifetime_seconds: float,
) -> Leaf:
    """Return a new leaf that ends no later than its authority.

    Parameters
    ----------
    authority : Authority
        With its key.
    names : iterable of str
        DNS names and IP addresses, at least one.
    """
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    issuer_key = _load_key(authority.key)
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    end = min(now_seconds + lifetime_seconds, authority.ends_seconds)
    builder = _builder(
        serial, _name(NAME), issuer.subject, key.public_key(), now_seconds, end
    )
    extensions: tuple[tuple[x509.ExtensionType, bool], ...] = (
        (x509.SubjectAlternativeName([_general(n) for n in sorted(names)]), False),
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(is_authority=False), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(
                _key_identifier(issuer_key)
            ),
            False,
        ),
    )
    for extension, is_critical in extensions:
        builder = builder.add_extension(extension, critical=is_critical)
    certificate = _pem(builder.sign(issuer_key, hashes.SHA256()))
    return read_leaf(certificate, _pem_key(key), [authority])


def read_authority(certificate: bytes, key: bytes = b"") -> Authority:
    """Return an authority; raise `ValueError` if it, or its key, is not right."""
    (pem,) = split_bundle(certificate)
    parsed = x509.load_pem_x509_certificate(pem)
    if key and _load_key(key).public_key() != parsed.public_key():
        raise ValueError("authority: wanted its private key, got another one")
    return Authority(pem, key, *_span(parsed))


def read_leaf(certificate: bytes, key: bytes, issuers: Iterable[Authority]) -> Leaf:
    """Return a leaf; raise `ValueError` if it, its key or its issuer is not right."""
    parsed = x509.load_pem_x509_certificate(certificate)
    if _load_key(key).public_key() != parsed.public_key():
        raise ValueError("leaf: wanted its private key, got another one")
    for authority in issuers:
        if _is_issued_by(parsed, authority.certificate):
            names = _names_of(parsed)
            return Leaf(certificate, key, authority.certificate, names, *_span(parsed))
    raise ValueError("leaf: wanted one of our authorities as its issuer, got another")


def split_bundle(data: bytes) -> tuple[bytes, ...]:
    """Return the certificates of a bundle, each written in the same way.

    Raises `ValueError` for what is not PEM throughout, or empty.
    """
    return tuple(_pem(one) for one in x509.load_pem_x509_certificates(data))


def _is_issued_by(leaf: x509.Certificate, authority: bytes) -> bool:
    """Whether a CA's key has signed a leaf."""
    try:
        leaf.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _span(certificate: x509.Certificate) -> tuple[float, float]:
    """Return when a certificate was made and when it ends."""
    return (
        certificate.not_valid_before_utc.timestamp() + BACKDATE_SECONDS,
        certificate.not_valid_after_utc.timestamp(),
    )


def _names_of(certificate: x509.Certificate) -> frozenset[str]:
    """Return the names that a certificate is valid for; `ValueError` if none."""
    kind = x509.SubjectAlternativeName
    try:
        found = certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound as error:
        raise ValueError("leaf: wanted one with names, got none") from error
    return frozenset(str(item.value) for item in found)


def _general(name: str) -> x509.GeneralName:
    """Return a DNS name or an IP address as a certificate holds it."""
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(  # noqa: PLR0913, PLR0917 - each is one field of a certificate
    serial: int,
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now_seconds: float,
    end_seconds: float,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(serial)
        .not_valid_before(_moment(now_seconds - BACKDATE_SECONDS))
        .not_valid_after(_moment(end_seconds))
    )


def _moment(seconds: float) -> dt.datetime:
    """Return a time as certificates have it: in whole seconds."""
    return dt.datetime.fromtimestamp(int(seconds), dt.UTC)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _key_identifier(key: ec.EllipticCurvePrivateKey) -> x509.SubjectKeyIdentifier:
    return x509.SubjectKeyIdentifier.from_public_key(key.public_key())


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _load_key(data: bytes) -> ec.EllipticCurvePrivateKey:
    """Return a private key of the kind that we make; raise `ValueError` for others."""
    try:
        key = serialization.load_pem_private_key(data, None)
    except TypeError as error:  # it wants a password
        raise ValueError("key: wanted one without a password") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("key: wanted one of an elliptic curve, got another kind")  # noqa: TRY004  one error for all that is not right
    return key


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _pem_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
