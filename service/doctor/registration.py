"""Checks of the webhook's registration against configuration and certificate."""

import re
import ssl
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import SplitResult, urlsplit

import msgspec
from cryptography import x509

from service.doctor.certificate import is_for, is_trusted, names_of, read_chain
from service.doctor.page import Facts, Finding, Unchecked, listed
from service.http.middleware import MUTATE_PATH

REGISTRATION: Final = "registration"

NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"

DEFAULT_TIMEOUT_SECONDS: Final = 10

# They hold no pods.
_EMPTY_NAMESPACES: Final = frozenset({"kube-public", "kube-node-lease"})

# A literal of CEL, after what makes it a test of a resource's name.
_LITERAL: Final = r"""(?:'((?:\\.|[^'\\])*)'|"((?:\\.|[^"\\])*)")"""

_PREFIX: Final = re.compile(rf"startsWith\(\s*{_LITERAL}")

_EXACT: Final = re.compile(rf"==\s*{_LITERAL}")


class ServiceReference(msgspec.Struct, frozen=True):
    """The Service that the API server calls."""

    namespace: str
    name: str
    path: str = "/"
    port: int = 443


class ClientConfig(msgspec.Struct, frozen=True, rename="camel"):
    """Where the API server calls, and whom it trusts."""

    service: ServiceReference | None = None
    url: str = ""
    ca_bundle: bytes = b""

    @property
    def host(self) -> str:
        """The name for which the certificate must stand."""
        if self.service is not None:
            return f"{self.service.name}.{self.service.namespace}.svc"
        return self._parts.hostname or ""

    @property
    def _parts(self) -> SplitResult:
        """The address; one without host where it is none."""
        try:
            return urlsplit(self.url)
        except ValueError:
            return urlsplit("")

    @property
    def path(self) -> str:
        """The path that is called."""
        if self.service is not None:
            return self.service.path
        return self._parts.path or "/"


class _Rule(msgspec.Struct, frozen=True, rename="camel"):
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()


class _Term(msgspec.Struct, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] = ()


class _Selector(msgspec.Struct, frozen=True, rename="camel"):
    match_expressions: tuple[_Term, ...] = ()
    match_labels: dict[str, str] = {}


class _Condition(msgspec.Struct, frozen=True):
    expression: str


class Webhook(msgspec.Struct, frozen=True, rename="camel"):
    """One webhook of a registration, as far as it is compared."""

    name: str
    client_config: ClientConfig
    rules: tuple[_Rule, ...] = ()
    failure_policy: str = "Fail"
    timeout_seconds: int = DEFAULT_TIMEOUT_SECONDS
    namespace_selector: _Selector = _Selector()
    match_conditions: tuple[_Condition, ...] = ()


class Registration(msgspec.Struct, frozen=True):
    """A MutatingWebhookConfiguration."""

    webhooks: tuple[Webhook, ...] | None = None


def check_registration(
    facts: Facts, registration: Registration | None, now: float
) -> Iterator[Finding | Unchecked]:
    """Yield what is wrong; `registration` is None if there is none."""
    if not facts.has_webhook:
        if registration is not None and registration.webhooks:
            yield Finding(
                REGISTRATION,
                f"The webhook is registered as {facts.registration_name}, and the"
                " configuration has no certificate for it.",
                "The API server calls over HTTPS only, and nobody listens: with"
                " failurePolicy Fail, it refuses GPU pods.",
                "Set webhook.certificateFile or webhook.selfSigned, or delete the"
                " registration.",
            )
        return
    if registration is None or not registration.webhooks:
        yield _report_missing(facts, is_there=registration is not None)
        return
    if facts.registration_fault:
        yield Finding(
            REGISTRATION,
            f"gpu-extender has not brought its entry in {facts.registration_name} up to"
            f" date: {facts.registration_fault}.",
            "The API server calls by the entry from before.",
            "Put right what stands in the way: it is tried again every few seconds.",
        )
    for webhook in registration.webhooks:
        yield from _check_address(facts, webhook)
        yield from _check_trust(facts, webhook, now)
        yield from _check_policy(facts, webhook)
        yield from _check_conditions(facts, webhook)


def _report_missing(facts: Facts, *, is_there: bool) -> Finding:
    """Return the finding about a registration without webhooks, or none at all."""
    what = (
        "The webhook is not registered: there is no MutatingWebhookConfiguration"
        f" {facts.registration_name} with a webhook in it."
    )
    do = (
        "Apply what `gpu-extender webhook-config` prints. One of another name is"
        " looked for where webhook.selfSigned.registrationName says."
    )
    if facts.is_registering and is_there:
        why = facts.registration_fault or "it was taken away a moment ago"
        what = f"The webhook is not registered yet: {why}."
        do = (
            "gpu-extender adds its entry once the address in it is answered under the"
            " CA that is published: look at Service, endpoints and network policies."
        )
    elif facts.is_registering:
        do = (
            "Apply deploy/registration.yaml: gpu-extender adds its entry to it. One of"
            " another name is looked for where webhook.selfSigned.registrationName"
            " says."
        )
    return Finding(
        REGISTRATION,
        what,
        "The API server calls nobody: GPU pods are neither injected nor fall back.",
        do,
    )


def _anew(facts: Facts) -> str:
    """Return who writes the registration, and when."""
    if facts.is_registering:
        return (
            "gpu-extender writes its entry within webhook.selfSigned.checkSeconds: look"
            " in the log for `registration waits`."
        )
    return (
        "Print it anew with `gpu-extender webhook-config` and apply it: after each"
        " change of the configuration that it is made of."
    )


def _consequence(webhook: Webhook) -> str:
    if webhook.failure_policy == "Ignore":
        return (
            "The API server's calls fail, and with failurePolicy Ignore GPU pods are"
            " created as they are, in silence."
        )
    return (
        "The API server's calls fail, and with failurePolicy Fail it refuses every GPU"
        " pod."
    )


def _check_address(facts: Facts, webhook: Webhook) -> Iterator[Finding]:
    """Yield findings about what is called, and for what."""
    path = webhook.client_config.path
    if path.rstrip("/") != MUTATE_PATH:
        yield Finding(
            REGISTRATION,
            f"The registration calls the path {path}, where nobody answers.",
            _consequence(webhook),
            f"Set the path to {MUTATE_PATH}. {_anew(facts)}",
        )
    if not any(
        {"", "*"} & set(rule.api_groups)
        and {"pods", "*", "*/*"} & set(rule.resources)
        and {"CREATE", "*"} & set(rule.operations)
        for rule in webhook.rules
    ):
        yield Finding(
            REGISTRATION,
            "No rule of the registration is about the creation of pods.",
            "The webhook is never called: GPU pods are neither injected nor fall back.",
            _anew(facts),
        )


def _check_trust(facts: Facts, webhook: Webhook, now: float) -> Iterator[Finding]:
    """Yield findings about the certificate, as the API server would judge it."""
    if not facts.certificate:
        return
    client = webhook.client_config
    chain = read_chain(facts.certificate)
    if not is_for(chain[0], client.host):
        renew = (
            "Add it to webhook.selfSigned.dnsNames or ipAddresses."
            if facts.is_self_signed
            else f"Issue one with the subject alternative name {client.host}; a common"
            " name does not count."
        )
        yield Finding(
            REGISTRATION,
            f"The API server calls {client.host}, and the certificate stands for"
            f" {listed(names_of(chain[0])) or 'no name at all'}.",
            _consequence(webhook),
            renew,
        )
    bundle = _read_bundle(client.ca_bundle)
    if not client.ca_bundle:
        bundle = system_issuers(chain)
    if not is_trusted(chain, bundle, now):
        yield Finding(
            REGISTRATION,
            "The CA in the registration's caBundle has not signed the certificate that"
            " the webhook shows."
            if client.ca_bundle
            else "The registration has no caBundle, and no CA that this host trusts has"
            " signed the certificate.",
            _consequence(webhook),
            "gpu-extender writes it within webhook.selfSigned.checkSeconds: look in the"
            " log for `certificates not checked`."
            if facts.is_self_signed
            else "Print the registration with the CA that has, `gpu-extender"
            " webhook-config --ca-file ca.crt`, and apply it.",
        )


def system_issuers(chain: Sequence[x509.Certificate]) -> Sequence[x509.Certificate]:
    """Return the CAs that this host trusts and a chain names; no others are read.

    The API server asks its own host.
    """
    names = [certificate.issuer.public_bytes() for certificate in chain]
    found = ssl.create_default_context().get_ca_certs(binary_form=True)
    return [
        x509.load_der_x509_certificate(one)
        for one in found
        if any(name in one for name in names)
    ]


def _read_bundle(data: bytes) -> Sequence[x509.Certificate]:
    try:
        return read_chain(data.decode())
    except ValueError:
        return ()


def _check_policy(facts: Facts, webhook: Webhook) -> Iterator[Finding]:
    """Yield findings about time, policy and namespaces."""
    if webhook.timeout_seconds * 1000 <= facts.webhook_deadline_milliseconds:
        yield Finding(
            REGISTRATION,
            f"The registration's timeoutSeconds is {webhook.timeout_seconds}, and"
            " webhook.deadlineMilliseconds is"
            f" {facts.webhook_deadline_milliseconds}.",
            "The API server gives up before we answer, so that our own answer about a"
            " late review reaches nobody.",
            f"Let the timeout be longer. {_anew(facts)}",
        )
    if webhook.failure_policy != facts.failure_policy:
        yield Finding(
            REGISTRATION,
            f"The registration's failurePolicy is {webhook.failure_policy}, and"
            f" injection.failurePolicy is {facts.failure_policy}.",
            "A review that fails within gpu-extender and one that does not reach it"
            " end differently.",
            _anew(facts),
        )
    terms = webhook.namespace_selector.match_expressions
    excluded = {
        name
        for term in terms
        if (term.key, term.operator) == (NAMESPACE_LABEL, "NotIn")
        for name in term.values
    }
    is_other = bool(terms or webhook.namespace_selector.match_labels) and not excluded
    sent = sorted(set(facts.skipped_namespaces) - excluded - _EMPTY_NAMESPACES)
    if sent and not is_other and webhook.failure_policy == "Fail":
        yield Finding(
            REGISTRATION,
            f"The registration sends pods of {listed(sent)}, which"
            " injection.skippedNamespaces lets through untouched.",
            "While gpu-extender is away, GPU pods there are refused, in vain; where"
            " they are its own, it does not come back.",
            _anew(facts),
        )


def _check_conditions(facts: Facts, webhook: Webhook) -> Iterator[Finding | Unchecked]:
    """Yield findings about the pods that are sent."""
    text = "\n".join(item.expression for item in webhook.match_conditions)
    if not text:
        return
    prefixes = {_unescaped(one or other) for one, other in _PREFIX.findall(text)}
    exact = {_unescaped(one or other) for one, other in _EXACT.findall(text)}
    names = {name for name in exact if "/" in name}
    if not prefixes | names:
        yield Unchecked(
            REGISTRATION,
            "its matchConditions do not test names of resources as `gpu-extender"
            " webhook-config` writes it: whether they fit managedPrefixes is unknown",
        )
        return
    yield from _compare_names(facts, webhook, prefixes, names)
    trigger = facts.trigger_annotation
    if facts.has_rules and trigger not in text:
        yield Finding(
            REGISTRATION,
            f"The registration's matchConditions do not name {trigger}, which is"
            " injection.triggerAnnotation.",
            "Pods that name a GPU type in it and ask for no GPU are not sent, so that"
            " nobody warns them.",
            _anew(facts),
        )


def _compare_names(
    facts: Facts, webhook: Webhook, prefixes: set[str], names: set[str]
) -> Iterator[Finding]:
    """Yield findings about resources: prefixes and names that the conditions test."""
    wanted = wanted_patterns(facts)
    missing = [
        pattern
        for pattern in wanted
        if not pattern.removesuffix("*").startswith(tuple(prefixes))
        and (pattern.endswith("*") or pattern not in names)
    ]
    if missing:
        yield Finding(
            REGISTRATION,
            f"The registration's matchConditions do not send pods that ask"
            f" {listed(missing)}, which the configuration manages.",
            "Such pods are created without injection, fallback and GPU types.",
            _anew(facts),
        )
    stems = tuple(pattern.removesuffix("*") for pattern in wanted)
    extra = sorted(
        name
        for name in prefixes | names
        if not name.startswith(stems)
        and not any(stem.startswith(name) for stem in stems)
    )
    if extra:
        yield Finding(
            REGISTRATION,
            f"The registration's matchConditions send pods that ask {listed(extra)},"
            " which the configuration does not manage.",
            "They pass untouched, and are refused while gpu-extender is away."
            if webhook.failure_policy == "Fail"
            else "They pass untouched: each costs a call.",
            "Add it to managedPrefixes or gpuResources if it is one of GPUs."
            f" {_anew(facts)}",
        )


def wanted_patterns(facts: Facts) -> list[str]:
    """Return prefixes with an asterisk, and names, whose pods are to be sent."""
    prefixes = facts.managed_prefixes
    more = [name for name in facts.gpu_resources if not name.startswith(prefixes)]
    return [*(f"{prefix}*" for prefix in prefixes), *more]


def _unescaped(text: str) -> str:
    """Return what a literal of CEL stands for, as far as names can have it."""
    return re.sub(r"\\(.)", r"\1", text)
