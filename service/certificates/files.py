"""Certificate and key as files: loaded, checked against the clock, never half."""

import datetime as dt
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cryptography import x509
from cryptography.hazmat.primitives import serialization


class CertificateError(ValueError):
    """A certificate and key that cannot be served."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate with its key, ready to shake hands with.

    Attributes
    ----------
    name : str
        File name of the certificate.
    starts_seconds, ends_seconds : float
        When it is valid, in seconds since 1970.
    pem : bytes
        The certificate and its issuers, which every client is shown; never the key.
    """

    context: ssl.SSLContext
    name: str
    starts_seconds: float
    ends_seconds: float
    pem: bytes = b""

    def not_ready_reasons(self, now_seconds: float) -> list[str]:
        """Return why no client would take it; empty if one might."""
        if now_seconds >= self.ends_seconds:
            return [f"certificate {self.name}: expired {_day(self.ends_seconds)}"]
        if now_seconds < self.starts_seconds:
            start = _day(self.starts_seconds)
            return [f"certificate {self.name}: not valid before {start}"]
        return []


class ServedCertificate(Protocol):
    """The pair in use, wherever it comes from; any thread may read."""

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that `load` reads."""
        ...

    @property
    def context(self) -> ssl.SSLContext:
        """Context for handshakes of new connections."""
        ...

    @property
    def ends_seconds(self) -> float | None:
        """End of the pair in use, in seconds since 1970; None while there is none."""
        ...

    @property
    def pem(self) -> bytes:
        """What clients are shown, as PEM; empty while there is nothing."""
        ...

    def not_ready_reasons(self) -> list[str]:
        """Return why no client would take the pair in use; empty if one might."""
        ...

    def load(self) -> None:
        """Take what the files hold now; raise `CertificateError` and keep the old."""
        ...

    def is_due(self) -> bool:
        """Whether the files are to be read again although unchanged."""
        ...

    def start(self) -> None:
        """Start what keeps the pair up to date, beside the files."""
        ...

    def stop(self, within_seconds: float) -> None:
        """End it; what takes longer is left behind."""
        ...


def make_context(client_ca: Path | None) -> ssl.SSLContext:
    """Return a context for TLS 1.2 and newer that has no certificate yet.

    With a CA for clients, they must show a certificate that it has signed. Raises
    `CertificateError` if its file holds none.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(client_ca)
        except OSError as error:  # ssl.SSLError is one
            raise CertificateError(f"client CA {client_ca.name}: {error}") from error
    return context


def load_pair(certificate: Path, key: Path, client_ca: Path | None = None) -> Pair:
    """Return a fresh context for a pair of PEM files; raise `CertificateError`.

    A live context is never given another pair: that races with handshakes, and a pair
    that does not match would leave it dead.
    """
    context = make_context(client_ca)
    try:
        context.load_cert_chain(certificate, key)
        # The first is the server's own; its issuers follow.
        chain = x509.load_pem_x509_certificates(certificate.read_bytes())
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise CertificateError(
            f"certificate {certificate.name}, key {key.name}: {error}"
        ) from error
    return Pair(
        context,
        certificate.name,
        chain[0].not_valid_before_utc.timestamp(),
        chain[0].not_valid_after_utc.timestamp(),
        b"".join(one.public_bytes(serialization.Encoding.PEM) for one in chain),
    )


def check_pair(certificate: Path, key: Path, client_ca: Path | None = None) -> None:
    """Raise `CertificateError` for a pair that no client would take now."""
    not_ready_reasons = load_pair(certificate, key, client_ca).not_ready_reasons(
        time.time()
    )
    if not_ready_reasons:
        raise CertificateError("; ".join(not_ready_reasons))


class Certificate:
    """The pair in use, until a newer one replaces it.

    One thread calls `load`; any may read.

    Parameters
    ----------
    clock : callable
        Returns seconds since 1970: validity is a matter of the calendar.
    client_ca : Path, optional
        Clients must show a certificate that it has signed.
    """

    def __init__(
        self,
        certificate: Path,
        key: Path,
        clock: Callable[[], float] = time.time,
        client_ca: Path | None = None,
    ) -> None:
        self._sources = (certificate, key, client_ca)
        self._clock = clock
        self._pair = load_pair(*self._sources)
        # When a pair that came too early becomes valid.
        self._due_seconds: float | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that `load` reads."""
        return tuple(path for path in self._sources if path is not None)

    @property
    def context(self) -> ssl.SSLContext:
        """Context for handshakes of new connections."""
        return self._pair.context

    @property
    def ends_seconds(self) -> float:
        """End of the pair in use, in seconds since 1970."""
        return self._pair.ends_seconds

    @property
    def pem(self) -> bytes:
        """What clients are shown, as PEM."""
        return self._pair.pem

    def not_ready_reasons(self) -> list[str]:
        """Return why no client would take the pair in use; empty if one might."""
        return self._pair.not_ready_reasons(self._clock())

    def is_due(self) -> bool:
        """Whether a pair that was refused as too early has become valid."""
        return self._due_seconds is not None and self._clock() >= self._due_seconds

    def load(self) -> None:
        """Take what the files hold now; raise `CertificateError` and keep the old.

        A pair that is not valid now never replaces one that is.
        """
        self._due_seconds = None
        pair = load_pair(*self._sources)
        now = self._clock()
        faults = pair.not_ready_reasons(now)
        if faults and not self._pair.not_ready_reasons(now):
            if now < pair.starts_seconds:
                self._due_seconds = pair.starts_seconds
            raise CertificateError("; ".join(faults))
        self._pair = pair  # one assignment: handshakes see old or new

    def start(self) -> None:
        """Do nothing: somebody looks at the files, see `files`."""

    def stop(self, within_seconds: float) -> None:
        """Do nothing."""


def _day(seconds: float) -> str:
    """Return a moment as text."""
    return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat()
