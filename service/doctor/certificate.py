"""Checks of the certificate that the webhook shows, by whoever has it as PEM."""

import datetime as dt
import ipaddress
from collections.abc import Iterator, Sequence
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from service.doctor.page import Facts, Finding, ends_soon, span_text

CERTIFICATE: Final = "certificate"

_REFUSED: Final = (
    "The API server does not trust it, and calls the webhook in vain: with"
    " failurePolicy Fail it refuses GPU pods, with Ignore they are created as they are."
)


def check_certificate(facts: Facts, now: float) -> Iterator[Finding]:
    """Yield what is wrong with the certificate, whoever calls."""
    if not facts.has_webhook:
        return
    renew = _renewal(facts)
    leaf = read_chain(facts.certificate)[0] if facts.certificate else None
    if leaf is None:
        reasons = "; ".join(facts.certificate_faults) or "it has none"
        what = f"The webhook shows no certificate: {reasons}."
        yield Finding(CERTIFICATE, what, _REFUSED, renew)
        return
    starts = leaf.not_valid_before_utc.timestamp()
    ends = leaf.not_valid_after_utc.timestamp()
    if now >= ends:
        age = span_text(now - ends)
        what = f"The webhook's certificate expired {day(ends)}, {age} ago."
        yield Finding(CERTIFICATE, what, _REFUSED, renew)
    elif now < starts:
        what = f"The webhook's certificate is not valid before {day(starts)}."
        yield Finding(CERTIFICATE, what, _REFUSED, f"{renew} Or set the clock right.")
    elif ends_soon(starts, ends, now):
        what = f"The webhook's certificate expires {day(ends)}, in"
        what += f" {span_text(ends - now)}, and nobody has renewed it."
        yield Finding(CERTIFICATE, what, _REFUSED, renew)
    else:
        for reason in facts.certificate_faults:
            yield Finding(CERTIFICATE, f"{reason}.", _REFUSED, renew)


def _renewal(facts: Facts) -> str:
    """Return what to do about a certificate."""
    if facts.is_self_signed:
        return (
            "Look in the log for `certificates not checked`, which says why, and apply"
            " deploy/rbac-self-signed.yaml."
        )
    return (
        "Put another pair into webhook.certificateFile and keyFile, which are read"
        " again when they change, or set webhook.selfSigned."
    )


def day(seconds: float) -> str:
    """Return a moment as text."""
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_chain(pem: str) -> Sequence[x509.Certificate]:
    """Return the certificates of a PEM text, the server's own first."""
    return x509.load_pem_x509_certificates(pem.encode())


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """Return the names and addresses for which a certificate stands.

    As Go does, the API server takes no notice of the common name.
    """
    try:
        names = certificate.extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        ).value
    except (x509.ExtensionNotFound, ValueError):
        return ()
    return (
        *names.get_values_for_type(x509.DNSName),
        *map(str, names.get_values_for_type(x509.IPAddress)),
    )


def is_for(certificate: x509.Certificate, host: str) -> bool:
    """Whether a certificate stands for the host that is called."""
    names = names_of(certificate)
    try:
        return str(ipaddress.ip_address(host)) in names
    except ValueError:
        host = host.lower().rstrip(".")
    _, _, parent = host.partition(".")
    return any(
        name.lower().rstrip(".") in {host, f"*.{parent}"} for name in names if name
    )


def is_trusted(
    chain: Sequence[x509.Certificate], bundle: Sequence[x509.Certificate], now: float
) -> bool:
    """Whether a CA of the bundle that is valid has signed a chain, or stands in it."""
    valid = [
        authority
        for authority in bundle
        if authority.not_valid_before_utc.timestamp()
        <= now
        < authority.not_valid_after_utc.timestamp()
    ]
    current, rest = chain[0], list(chain[1:])
    for _ in range(len(chain)):
        if current in valid or any(_has_signed(one, current) for one in valid):
            return True
        issuer = next((one for one in rest if _has_signed(one, current)), None)
        if issuer is None:
            return False
        rest.remove(issuer)
        current = issuer
    return False


def _has_signed(issuer: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
