"""Kubernetes' rules for names of namespaces, objects, labels and resources.

``k8s.io/apimachinery/pkg/util/validation``: a qualified name is a name of up to 63
letters, digits, ``-``, ``_`` and ``.``, with an optional DNS subdomain and ``/`` before
it.
"""

import re
from typing import Final

MAX_NAME_LENGTH: Final = 63

_MAX_SUBDOMAIN_LENGTH: Final = 253

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)

_DNS_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"

_NAMESPACE: Final = re.compile(_DNS_LABEL, re.ASCII)

_SUBDOMAIN: Final = re.compile(rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*", re.ASCII)

# Rule files of gpuinjector may have empty parts between the dots.
_LAX_SUBDOMAIN: Final = r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?"

# As Kubernetes has it, and with a tilde, which gpuinjector knows how to escape.
_RULE_ANNOTATION_KEY: Final = re.compile(
    rf"(?:{_LAX_SUBDOMAIN}/)?[a-z0-9](?:[a-z0-9._~-]{{0,61}}[a-z0-9])?",
    re.ASCII | re.IGNORECASE,
)

_EXTENDED_RESOURCE: Final = re.compile(
    rf"{_LAX_SUBDOMAIN}/[A-Za-z0-9](?:[A-Za-z0-9._-]{{0,61}}[A-Za-z0-9])?", re.ASCII
)


def is_name(text: str) -> bool:
    """Whether `text` may stand after the slash of a qualified name, or as a value.

    >>> is_name("Tesla-V100"), is_name("-a"), is_name("a" * 64)
    (True, False, False)
    """
    return len(text) <= MAX_NAME_LENGTH and _NAME.fullmatch(text) is not None


def is_subdomain(text: str) -> bool:
    """Whether `text` is a DNS subdomain, as names of most objects are."""
    is_short = len(text) <= _MAX_SUBDOMAIN_LENGTH
    return is_short and _SUBDOMAIN.fullmatch(text) is not None


def is_namespace(text: str) -> bool:
    """Whether `text` is a DNS label, as names of namespaces are."""
    return len(text) <= MAX_NAME_LENGTH and _NAMESPACE.fullmatch(text) is not None


def is_qualified_name(text: str) -> bool:
    """Whether Kubernetes takes `text` as a label key.

    >>> is_qualified_name("example.com/type"), is_qualified_name("a b")
    (True, False)
    """
    prefix, slash, name = text.rpartition("/")
    return (not slash or is_subdomain(prefix)) and is_name(name)


def is_annotation_key(text: str) -> bool:
    """Whether Kubernetes takes `text` as an annotation key: the prefix in any case."""
    return is_qualified_name(text.lower())


def is_rule_annotation_key(text: str) -> bool:
    """Whether a rule file may have `text` as an annotation key."""
    return _RULE_ANNOTATION_KEY.fullmatch(text) is not None


def is_extended_resource(text: str) -> bool:
    """Whether a rule file may have `text` as an extended resource.

    >>> is_extended_resource("nvidia.com/gpu"), is_extended_resource("kubernetes.io/x")
    (True, False)
    """
    return (
        _EXTENDED_RESOURCE.fullmatch(text) is not None
        and not text.startswith("requests.")  # reserved for quotas
        # reserved for native resources
        and not text.partition("/")[0].endswith("kubernetes.io")
    )


def is_chained_resource(text: str) -> bool:
    """Whether a fallback chain may have `text` as an extended resource.

    Unlike in a rule file, each part of the domain is a DNS label.
    """
    labels = text.partition("/")[0].split(".")
    return is_extended_resource(text) and all(map(is_namespace, labels))
