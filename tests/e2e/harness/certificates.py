"""A certificate authority for one run: API server, scheduler, webhook."""

import base64
import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.e2e.harness.ports import LOOPBACK

LIFETIME: Final = dt.timedelta(days=2)
# The machine that reads a certificate may have a clock slightly behind ours.
BACKDATED: Final = dt.timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class ServingPair:
    """Certificate and key files of one server, PEM."""

    certificate: Path
    key: Path


class Authority:
    """A self-signed CA that issues server certificates for 127.0.0.1."""

    def __init__(self, folder: Path, name: str = "e2e") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = _name(f"{name}-ca")
        public = self._key.public_key()
        self._certificate = (
            _builder(self._subject, self._subject, public)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(sign_certificates=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(public), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        self.file = folder / f"{name}-ca.crt"
        self.file.write_bytes(
            self._certificate.public_bytes(serialization.Encoding.PEM)
        )

    @property
    def bundle(self) -> str:
        """The CA certificate as `caBundle` wants it: base64 of the PEM."""
        return base64.b64encode(self.file.read_bytes()).decode()

    def issue(
        self,
        name: str,
        *,
        lifetime: dt.timedelta = LIFETIME,
        hosts: Sequence[str] = (),
    ) -> ServingPair:
        """Write a server certificate for loopback and its key; return the files.

        `hosts` are more names and addresses that it is for.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(
            self._key.public_key()
        )
        certificate = (
            _builder(_name(name), self._subject, key.public_key(), lifetime)
            .add_extension(
                x509.SubjectAlternativeName(
                    [
                        x509.IPAddress(ipaddress.ip_address(LOOPBACK)),
                        x509.DNSName("localhost"),
                        *map(_host_name, hosts),
                    ]
                ),
                critical=False,
            )
            .add_extension(
                x509.BasicConstraints(ca=False, path_length=None), critical=True
            )
            .add_extension(_usage(sign_certificates=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([x509.OID_SERVER_AUTH]), critical=False
            )
            .add_extension(issuer_key, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        pair = ServingPair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        pair.certificate.write_bytes(
            certificate.public_bytes(serialization.Encoding.PEM)
        )
        write_key(pair.key, key)
        return pair


def make_signing_key(path: Path) -> Path:
    """Write a key that the API server signs service account tokens with."""
    write_key(path, ec.generate_private_key(ec.SECP256R1()))
    return path


def write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """Write a private key as PEM, readable by its owner only."""
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )


def _host_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    lifetime: dt.timedelta = LIFETIME,
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + lifetime)
    )


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        encipher_only=False,
        decipher_only=False,
    )
