"""Self-signed certificates for 127.0.0.1, as files."""

import datetime as dt
import ipaddress
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

START: Final = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
END: Final = dt.datetime(2123, 1, 1, tzinfo=dt.UTC)


def write_clients(folder: Path, name: str) -> tuple[Path, Path]:
    """Write a CA for clients, and a client's certificate with its key; return both."""
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    issuer, subject = (
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])
        for text in (f"{name} CA", name)
    )
    paths = folder / f"{name}-ca.crt", folder / f"{name}-client.pem"
    for place, owner in enumerate((issuer, subject)):
        certificate = (
            x509.CertificateBuilder()
            .subject_name(owner)
            .issuer_name(issuer)
            .public_key(keys[place].public_key())
            .serial_number(place + 1)
            .not_valid_before(START)
            .not_valid_after(END)
            .add_extension(x509.BasicConstraints(place == 0, None), critical=True)
            .sign(keys[0], hashes.SHA256())
        )
        paths[place].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    secret = keys[1].private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    paths[1].write_bytes(paths[1].read_bytes() + secret)
    return paths


def write_pair(
    folder: Path,
    serial: int = 1,
    *,
    start: dt.datetime = START,
    end: dt.datetime = END,
) -> tuple[Path, Path]:
    """Write ``tls.crt`` and ``tls.key``, each at once; return their paths."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "gpu-extender")])
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    public = certificate.public_bytes(serialization.Encoding.PEM)
    paths = folder / "tls.crt", folder / "tls.key"
    for path, data in zip(paths, (public, secret), strict=True):
        draft = path.with_suffix(".new")
        draft.write_bytes(data)
        draft.replace(path)
    return paths
