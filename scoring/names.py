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

# Of a quota, which has "requests." before it: `IsExtendedResourceName` in
# pkg/apis/core/helper/helpers.go asks that it is a name, too.
_MAX_RESOURCE_DOMAIN_LENGTH: Final = _MAX_SUBDOMAIN_LENGTH - len("requests.")

_HUGE_PAGES: Final = "hugepages-"


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


def is_extended_resource(text: str) -> bool:
    """Whether Kubernetes takes `text` as an extended resource of a container.

    >>> is_extended_resource("nvidia.com/gpu"), is_extended_resource("kubernetes.io/x")
    (True, False)
    >>> is_extended_resource("a..b/x"), is_extended_resource(f"{'a' * 245}/x")
    (False, False)
    """
    domain, slash, name = text.partition("/")
    return (
        bool(slash)
        and len(domain) <= _MAX_RESOURCE_DOMAIN_LENGTH
        and is_subdomain(domain)
        and is_name(name)
        # reserved for quotas and for native resources
        and not domain.startswith(("requests.", _HUGE_PAGES))
        and not domain.endswith("kubernetes.io")
    )
