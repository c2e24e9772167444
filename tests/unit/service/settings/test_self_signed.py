"""Names and addresses that our own certificates may be given."""

from pathlib import Path
from typing import Final

import pytest

from service.settings.settings import SettingsError, read_settings

WRONG: Final = "x/y"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A configuration file to be written."""
    return tmp_path / "config.yaml"


def test_names_and_addresses_are_taken_as_certificates_write_them(file: Path) -> None:
    file.write_text(
        "webhook: {selfSigned: {enabled: true, secretName: own, registrationName: gpu,"
        " dnsNames: [a.example.org], ipAddresses: ['2001:DB8::1']}}"
    )

    own = read_settings(file).webhook.self_signed

    assert (own.secret_name, own.registration_name) == ("own", "gpu")
    assert own.dns_names == ("a.example.org",)
    assert own.ip_addresses == ("2001:db8::1",)


def test_all_faults_of_names_and_addresses_are_named_at_once(file: Path) -> None:
    file.write_text(
        f"webhook: {{selfSigned: {{secretName: {WRONG}, registrationName: {WRONG},"
        f" dnsNames: [{WRONG}], ipAddresses: [{WRONG}]}}}}"
    )

    with pytest.raises(SettingsError) as caught:
        read_settings(file)

    object_name = f"wanted the name of an object, got '{WRONG}'"
    assert [
        str(fault).removeprefix("webhook.selfSigned.") for fault in caught.value.faults
    ] == [
        f"secretName: {object_name}",
        f"registrationName: {object_name}",
        f"dnsNames.0: wanted a DNS name, got '{WRONG}'",
        f"ipAddresses.0: wanted an IP address, got '{WRONG}'",
    ]


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        pytest.param(
            "{selfSigned: {dnsNames: []}}",
            "wanted one of dnsNames or ipAddresses, got none",
            id="no name",
        ),
        pytest.param(
            "{selfSigned: {leafRotationSeconds: 100, leafLifetimeSeconds: 50}}",
            "got 100 s and 50 s",
            id="rotated after the end",
        ),
        pytest.param(
            "{selfSigned: {checkSeconds: 10, dropDelaySeconds: 40}}",
            "wanted check + switchDelay < dropDelay, got 40 s and 40 s",
            id="not ready between two checks",
        ),
        pytest.param(
            "{certificateFile: a}",
            "wanted certificateFile and keyFile together, got one",
            id="no key",
        ),
        pytest.param(
            "{certificateFile: a, keyFile: b, selfSigned: {enabled: true}}",
            "wanted certificateFile or selfSigned, got both",
            id="files and our own",
        ),
        pytest.param(
            "{clientCaFile: a}",
            "wanted a certificate beside clientCaFile, got none",
            id="client CA alone",
        ),
    ],
)
def test_what_contradicts_itself_is_a_fault(
    file: Path, settings: str, fault: str
) -> None:
    file.write_text(f"webhook: {settings}")

    with pytest.raises(SettingsError) as caught:
        read_settings(file)

    assert len(caught.value.faults) == 1
    assert fault in str(caught.value.faults[0])
