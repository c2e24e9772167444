import datetime as dt
import ipaddress
from dataclasses import replace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509 import verification

from service.certificates.x509 import (
    BACKDATE_SECONDS,
    Authority,
    Leaf,
    issue_leaf,
    make_authority,
    read_authority,
    read_leaf,
    split_bundle,
)

NOW = 1_900_000_000.5
NAMES = ("gpu-extender.gpu-extender.svc", "10.0.0.1", "fd00::1")


def make_leaf(authority: Authority, *, lifetime: float = 1000) -> Leaf:
    return issue_leaf(authority, NAMES, NOW, lifetime)


def verify(leaf: Leaf, trusted: Authority, subject: x509.GeneralName) -> None:
    """Check a chain as a client would that follows the rules of the web."""
    store = verification.Store([x509.load_pem_x509_certificate(trusted.certificate)])
    builder = verification.PolicyBuilder().store(store)
    moment = dt.datetime.fromtimestamp(NOW + 1, dt.UTC)
    certificate = x509.load_pem_x509_certificate(leaf.certificate)
    assert isinstance(subject, x509.DNSName | x509.IPAddress)
    verifier = builder.time(moment).build_server_verifier(subject)
    assert len(verifier.verify(certificate, [])) == 2


@pytest.mark.parametrize(
    "subject",
    [
        pytest.param(x509.DNSName("gpu-extender.gpu-extender.svc"), id="its name"),
        pytest.param(x509.IPAddress(ipaddress.ip_address("10.0.0.1")), id="IPv4"),
        pytest.param(x509.IPAddress(ipaddress.ip_address("fd00::1")), id="IPv6"),
    ],
)
def test_a_leaf_is_valid_for_each_of_its_names(subject: x509.GeneralName) -> None:
    authority = make_authority(NOW, 5000)

    verify(make_leaf(authority), authority, subject)


def test_a_leaf_is_not_valid_under_another_authority() -> None:
    leaf = make_leaf(make_authority(NOW, 5000))
    other = make_authority(NOW, 5000)

    with pytest.raises(verification.VerificationError):
        verify(leaf, other, x509.DNSName(NAMES[0]))
    with pytest.raises(ValueError, match="one of our authorities as its issuer"):
        read_leaf(leaf.certificate, leaf.key, [other])


def test_certificates_tell_when_they_were_made_and_when_they_end() -> None:
    authority = make_authority(NOW, 5000)
    leaf = make_leaf(authority)

    assert (authority.made_seconds, authority.ends_seconds) == (NOW - 0.5, NOW + 4999.5)
    assert (leaf.made_seconds, leaf.ends_seconds) == (NOW - 0.5, NOW + 999.5)
    assert leaf.names == set(NAMES)
    parsed = x509.load_pem_x509_certificate(leaf.certificate)
    start = parsed.not_valid_before_utc.timestamp()
    assert start == leaf.made_seconds - BACKDATE_SECONDS


def test_a_leaf_ends_with_its_authority() -> None:
    authority = make_authority(NOW, 600)

    assert make_leaf(authority).ends_seconds == authority.ends_seconds


def test_authorities_have_names_of_their_own() -> None:
    names = {
        x509.load_pem_x509_certificate(make_authority(NOW, 1).certificate).subject
        for _ in range(5)
    }

    assert len(names) == 5


def test_what_was_written_is_read_again() -> None:
    authority = make_authority(NOW, 5000)
    leaf = make_leaf(authority)
    other = make_authority(NOW, 5000)

    assert read_authority(authority.certificate, authority.key) == authority
    assert read_leaf(leaf.certificate, leaf.key, [other, authority]) == leaf


def test_a_retired_authority_has_no_key_and_the_first_time_counts() -> None:
    authority = make_authority(NOW, 5000)

    once = authority.retired(NOW + 1)

    assert once == replace(authority, key=b"", retired_seconds=NOW + 1)
    assert once.retired(NOW + 2) == once


def test_a_bundle_is_split_whatever_stands_between_its_certificates() -> None:
    one, two = (make_authority(NOW, 5000).certificate for _ in range(2))

    assert split_bundle(b"# old\n" + one.replace(b"\n", b"\r\n") + b"\n" + two) == (
        one,
        two,
    )


@pytest.mark.parametrize("data", [b"", b"\n", b"no certificate"])
def test_a_bundle_without_a_certificate_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        split_bundle(data)


def key_of_another_kind() -> bytes:
    return rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def key_with_a_password() -> bytes:
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )


@pytest.mark.parametrize(
    ("key", "message"),
    [
        pytest.param(make_authority(NOW, 1).key, "its private key", id="another's"),
        pytest.param(key_of_another_kind(), "elliptic curve", id="another kind"),
        pytest.param(key_with_a_password(), "without a password", id="a password"),
        pytest.param(b"no key", r".*", id="none"),
    ],
)
def test_a_key_that_does_not_fit_is_an_error(key: bytes, message: str) -> None:
    authority = make_authority(NOW, 5000)
    leaf = make_leaf(authority)

    with pytest.raises(ValueError, match=message):
        read_authority(authority.certificate, key)
    with pytest.raises(ValueError, match=message):
        read_leaf(leaf.certificate, key, [authority])
