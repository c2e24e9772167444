"""``gpu-extender webhook-config``: the registration of the webhook."""

import base64
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from scoring.faults import Fault, FaultsError
from scoring.names import is_namespace
from service.certificates.x509 import split_bundle
from service.commands.inputs import EXIT_FAULTY_INPUT, attempt, write_quietly
from service.http.middleware import MUTATE_PATH
from service.settings.settings import Settings, read_settings

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

WEBHOOK_NAME: Final = "pods.gpu-extender.io"

OPT_OUT_LABEL: Final = "gpu-extender.io/webhook"

DEFAULT_SERVICE: Final = "gpu-extender/gpu-extender"

_SERVICE_NAME: Final = re.compile(r"(?P<name>[^.]+)\.(?P<namespace>[^.]+)\.svc")

MAX_TIMEOUT_SECONDS: Final = 30


class RegistrationOptionError(FaultsError):
    """Options of the command line that no registration can be made from."""


@dataclass(frozen=True, slots=True)
class WebhookConfigOptions:
    """Options of the command line.

    Attributes
    ----------
    service : str or None
        Namespace and name of the Service, with a slash between them.
    url : str or None
        In place of a Service.
    ca_file : Path or None
        PEM file with the CA that signed our certificate.
    """

    config: Path
    service: str | None
    url: str | None
    ca_file: Path | None


def print_webhook_config(options: WebhookConfigOptions) -> int:
    """Print the registration, or all faults; return the exit status."""
    messages: list[str] = []
    settings = attempt(lambda: read_settings(options.config), messages)
    names = (settings or Settings()).webhook.self_signed.dns_names
    client = attempt(lambda: build_client_config(options, names), messages)
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


def build_client_config(
    options: WebhookConfigOptions, dns_names: Iterable[str] = ()
) -> dict[str, Any]:
    """Return where and how the API server calls; raise for faulty options.

    Without a Service or URL, the Service is that of the first of `dns_names` that is
    the name of one: our own certificates are made for them.
    """
    faults: list[Fault] = []
    client: dict[str, Any]
    if options.url is not None:
        client = {"url": _checked_url(options.url, faults)}
    else:
        services = (_SERVICE_NAME.fullmatch(name) for name in dns_names)
        named = next((f"{m['namespace']}/{m['name']}" for m in services if m), "")
        service = options.service or named or DEFAULT_SERVICE
        client = {"service": _service(service, faults)}
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
    return {"namespace": namespace, "name": name, "path": MUTATE_PATH, "port": 443}


def _checked_url(text: str, faults: list[Fault]) -> str:
    """Return the URL that is called; the path is ours where none is given."""
    try:
        parts = urlsplit(text)
        is_good = parts.scheme == "https" and bool(parts.hostname)
        # What kube-apiserver refuses beside that.
        is_good = is_good and not (parts.query or parts.fragment or parts.username)
        _ = parts.port
    except ValueError:
        is_good = False
    if not is_good:
        wanted = f"wanted a URL such as https://10.0.0.1:8443/mutate, got {text!r}"
        faults.append(Fault("--url", wanted))
        return text
    return text if parts.path.strip("/") else text.rstrip("/") + MUTATE_PATH


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


def build_registration(settings: Settings, client: dict[str, Any]) -> dict[str, Any]:
    """Return the MutatingWebhookConfiguration that fits the settings.

    An admission holds its GPUs until the pod is seen, and a dry run holds nothing:
    `sideEffects` is NoneOnDryRun.
    """
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": settings.webhook.self_signed.registration_name},
        "webhooks": [
            {
                "name": WEBHOOK_NAME,
                "admissionReviewVersions": ["v1"],
                "clientConfig": client,
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "resources": ["pods"],
                        "operations": ["CREATE"],
                        "scope": "Namespaced",
                    }
                ],
                "failurePolicy": settings.injection.failure_policy,
                "matchPolicy": "Equivalent",
                "reinvocationPolicy": "IfNeeded",
                "sideEffects": "NoneOnDryRun",
                "timeoutSeconds": timeout_for(settings.webhook.deadline_milliseconds),
                "namespaceSelector": {"matchExpressions": _namespace_terms(settings)},
                "matchConditions": build_match_conditions(settings),
            }
        ],
    }


def timeout_for(deadline_milliseconds: int) -> int:
    """Return the smallest number of whole seconds above our own deadline, 30 at most.

    >>> [timeout_for(deadline) for deadline in (10, 999, 1000, 4000, 30_000)]
    [1, 1, 2, 5, 30]
    """
    return min(deadline_milliseconds // 1000 + 1, MAX_TIMEOUT_SECONDS)


def _namespace_terms(settings: Settings) -> list[dict[str, Any]]:
    terms = [("kubernetes.io/metadata.name", settings.injection.skipped_namespaces)]
    terms.append((OPT_OUT_LABEL, ("disabled",)))
    return [
        {"key": key, "operator": "NotIn", "values": list(values)}
        for key, values in terms
        if values
    ]


def build_match_conditions(settings: Settings) -> list[dict[str, str]]:
    """Return the conditions, in CEL, under which a pod is sent."""
    test = " || ".join(_name_tests(settings)) or "false"
    trigger = _quoted(settings.injection.trigger_annotation)
    names = f"""\
object.spec.containers.exists(c, has(c.resources)
  && ((has(c.resources.limits) && c.resources.limits.exists(k, {test}))
  || (has(c.resources.requests) && c.resources.requests.exists(k, {test}))))
"""
    init = names.replace("spec.containers", "spec.initContainers")
    asks = f"""\
{names}|| (has(object.spec.initContainers) && {init.rstrip()})
|| (has(object.metadata.annotations) && {trigger} in object.metadata.annotations)
"""
    mirror = """\
!has(object.metadata.annotations)
|| !('kubernetes.io/config.mirror' in object.metadata.annotations)
"""
    return [
        {"name": "not-a-mirror-pod", "expression": mirror},
        {"name": "asks-for-a-gpu-or-names-a-type", "expression": asks},
    ]


def _name_tests(settings: Settings) -> list[str]:
    """Return tests, in CEL, of which a managed resource's name passes one."""
    prefixes = settings.managed_prefixes
    patterns = [
        name for name in settings.gpu_resources if not name.startswith(prefixes)
    ]
    tests = [f"k.startsWith({_quoted(prefix)})" for prefix in prefixes]
    return tests + [
        f"k.startsWith({_quoted(pattern[:-1])})"
        if pattern.endswith("*")
        else f"k == {_quoted(pattern)}"
        for pattern in patterns
    ]


def _quoted(text: str) -> str:
    """Return a CEL literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + escaped.replace("\n", "\\n").replace("\r", "\\r") + "'"


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
