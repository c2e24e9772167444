"""The webhook's registration, as the settings would have it."""

import re
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlsplit

from service.http.middleware import MUTATE_PATH
from service.settings.settings import Settings

WEBHOOK_NAME: Final = "pods.gpu-extender.io"

OPT_OUT_LABEL: Final = "gpu-extender.io/webhook"

DEFAULT_SERVICE: Final = "gpu-extender/gpu-extender"

_SERVICE_NAME: Final = re.compile(r"(?P<name>[^.]+)\.(?P<namespace>[^.]+)\.svc")

MAX_TIMEOUT_SECONDS: Final = 30


def service_named_by(dns_names: Iterable[str]) -> str:
    """Return namespace and name of the Service that is called, with a slash between.

    That of the first name that is one of a Service: our own certificates are made for
    them.

    >>> service_named_by(["gpus.example.org", "hook.ml.svc"]), service_named_by([])
    ('ml/hook', 'gpu-extender/gpu-extender')
    """
    found = (_SERVICE_NAME.fullmatch(name) for name in dns_names)
    return next((f"{m['namespace']}/{m['name']}" for m in found if m), DEFAULT_SERVICE)


def build_client_config(settings: Settings) -> dict[str, Any]:
    """Return where the API server calls."""
    webhook = settings.webhook
    if webhook.url is not None:
        return {"url": with_path(webhook.url)}
    namespace, _, name = service_named_by(webhook.self_signed.dns_names).partition("/")
    return {"service": service_reference(namespace, name)}


def with_path(url: str) -> str:
    """Return a URL with our path where it has none.

    >>> with_path("https://10.0.0.1:8443"), with_path("https://a/gpu/mutate")
    ('https://10.0.0.1:8443/mutate', 'https://a/gpu/mutate')
    """
    has_path = bool(urlsplit(url).path.strip("/"))
    return url if has_path else url.rstrip("/") + MUTATE_PATH


def service_reference(namespace: str, name: str) -> dict[str, Any]:
    """Return a reference to a Service of ours."""
    return {"namespace": namespace, "name": name, "path": MUTATE_PATH, "port": 443}


def build_registration(settings: Settings, client: dict[str, Any]) -> dict[str, Any]:
    """Return the MutatingWebhookConfiguration that fits the settings."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": settings.webhook.self_signed.registration_name},
        "webhooks": [build_entry(settings, client)],
    }


def build_entry(
    settings: Settings, client: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return our webhook in it; without `client`, the settings say where we are.

    An admission holds its GPUs until the pod is seen, and a dry run holds nothing:
    `sideEffects` is NoneOnDryRun.
    """
    return {
        "name": WEBHOOK_NAME,
        "admissionReviewVersions": ["v1"],
        "clientConfig": client or build_client_config(settings),
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
