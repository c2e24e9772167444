"""Where the HTTPS listener's certificate comes from: files, or a Secret of ours."""

from pathlib import Path

from cluster.source import ApiEditor
from service.certificate_store import CertificateStore
from service.certificates import Certificate, ServedCertificate
from service.process_settings import SelfSignedSettings
from service.reload import ReloadObserver, WatchedFiles
from service.rotation import RotationOptions
from service.rotator import Rotator
from service.settings import Settings
from service.sources import connect_to


def load_certificate(
    settings: Settings, folder: Path, on_result: ReloadObserver
) -> ServedCertificate | None:
    """Return the certificate that the settings name, None if they do not.

    Raises `CertificateError` for files that cannot be served.
    """
    webhook = settings.webhook
    client_ca = None
    if webhook.client_ca_file is not None:
        client_ca = folder / webhook.client_ca_file
    if webhook.self_signed.enabled:
        api = connect_to(settings.cluster, folder)
        return build_rotator(webhook.self_signed, api, on_result, client_ca)
    if webhook.certificate_file is None or webhook.key_file is None:
        return None
    return Certificate(
        folder / webhook.certificate_file,
        folder / webhook.key_file,
        client_ca=client_ca,
    )


def build_rotator(
    settings: SelfSignedSettings,
    api: ApiEditor,
    on_result: ReloadObserver,
    client_ca: Path | None = None,
) -> Rotator:
    """Return a certificate of our own, which is kept by `api`."""
    store = CertificateStore(
        api, settings.namespace, settings.secret_name, settings.registration_name
    )
    options = RotationOptions(
        frozenset(settings.dns_names + settings.ip_addresses),
        settings.leaf_lifetime_seconds,
        settings.leaf_rotation_seconds,
        settings.ca_lifetime_seconds,
        settings.ca_rotation_seconds,
        settings.switch_delay_seconds,
        settings.drop_delay_seconds,
    )
    interval_seconds = settings.check_seconds
    return Rotator(store, options, interval_seconds, on_result, client_ca=client_ca)


def watch_files(certificate: ServedCertificate | None) -> list[WatchedFiles]:
    """Return the files of a certificate that are to be read when they change."""
    if certificate is None or not certificate.files:
        return []
    # That of the Secret tells of itself.
    name = "clientCa" if isinstance(certificate, Rotator) else "certificate"
    load, is_due = certificate.load, certificate.is_due
    return [WatchedFiles(name, certificate.files, load, is_due)]
