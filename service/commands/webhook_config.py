"""``gpu-extender webhook-config``: the registration of the webhook."""

import base64
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from scoring.faults import Fault, FaultsError
from scoring.names import is_namespace
from service.certificates.x509 import split_bundle
from service.commands.inputs import (
    EXIT_FAULTY_INPUT,
    attempt,
    read_or_default,
    write_quietly,
)
from service.registration import (
    build_client_config,
    build_registration,
    service_reference,
    with_path,
)
from service.settings.names import check_webhook_url
from service.settings.settings import Settings

HEADER: Final = """\
# The registration of the webhook, written by `gpu-extender webhook-config` from the
# configuration. `matchConditions` let the API server send only pods that ask for a
# managed resource or name a GPU type, so that an outage of ours stops no other pod; the
# namespaces that we skip are left out, so that the cluster can start.
"""

NO_BUNDLE: Final = """\
# `caBundle` is missing: it is the CA that signed our certificate, base64. With
# `webhook.selfSigned` gpu-extender keeps it, with cert-manager an annotation has it
# filled in, else `gpu-extender webhook-config --ca-file` does.
"""


class RegistrationOptionError(FaultsError):
    """Options of the command line that no registration can be made from."""


@dataclass(frozen=True, slots=True)
class WebhookConfigOptions:
    """Options of the command line.

    Attributes
    ----------
    config : Path or None
        Without it, all settings have their defaults.
    service : str or None
        Namespace and name of the Service, with a slash between them.
    url : str or None
        In place of a Service.
    ca_file : Path or None
        PEM file with the CA that signed our certificate.
    """

    config: Path | None
    service: str | None
    url: str | None
    ca_file: Path | None


def print_webhook_config(options: WebhookConfigOptions) -> int:
    """Print the registration, or all faults; return the exit status."""
    messages: list[str] = []
    settings = attempt(lambda: read_or_default(options.config), messages)
    client = attempt(
        lambda: choose_client_config(options, settings or Settings()), messages
    )
    if settings is None or client is None:
        sys.stderr.write("\n".join(messages) + "\n")
        return EXIT_FAULTY_INPUT
    webhook = settings.webhook
    if webhook.certificate_file is None and not webhook.self_signed.enabled:
        sys.stderr.write(
            "Warning: the configuration has neither webhook.certificateFile nor"
            " webhook.selfSigned, and the API server calls over HTTPS only:"
            " set one of them before you apply this\n"
        )
    write_quietly(render_registration(build_registration(settings, client)))
    return 0


def choose_client_config(
    options: WebhookConfigOptions, settings: Settings
) -> dict[str, Any]:
    """Return where and how the API server calls; raise for faulty options.

    Without a Service or URL, it is what the settings say.
    """
    faults: list[Fault] = []
    client = build_client_config(settings)
    if options.url is not None:
        client = {"url": _checked_url(options.url, faults)}
    elif options.service is not None:
        client = {"service": _service(options.service, faults)}
    if options.ca_file is not None:
        client["caBundle"] = _bundle(options.ca_file, faults)
    if faults:
        raise RegistrationOptionError(faults, "\n".join(map(str, faults)))
    return client


def _service(text: str, faults: list[Fault]) -> dict[str, Any]:
    namespace, _, name = text.partition("/")
    if not (is_namespace(namespace) and is_namespace(name)):  # both are DNS labels
        wanted = f"wanted NAMESPACE/NAME of a Service, got {text!r}"
        faults.append(Fault("--service", wanted))
    return service_reference(namespace, name)


def _checked_url(text: str, faults: list[Fault]) -> str:
    """Return the URL that is called; the path is ours where none is given."""
    try:
        return with_path(check_webhook_url(text))
    except ValueError as error:
        faults.append(Fault("--url", str(error)))
        return text


def _bundle(path: Path, faults: list[Fault]) -> str:
    """Return the certificates of a PEM file in base64."""
    try:
        certificates = split_bundle(path.read_bytes())
    except (OSError, ValueError) as error:
        faults.append(Fault("--ca-file", f"{path}: {error}"))
        return ""
    if not certificates:
        faults.append(Fault("--ca-file", f"{path}: wanted a certificate, got none"))
    return base64.b64encode(b"".join(certificates)).decode()


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, as a person would."""


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _write_text)


def render_registration(registration: dict[str, Any]) -> str:
    """Return the registration as YAML."""
    (webhook,) = registration["webhooks"]
    note = "" if "caBundle" in webhook["clientConfig"] else NO_BUNDLE
    text = yaml.dump(registration, Dumper=_Dumper, sort_keys=False, width=100)
    return HEADER + note + text
