"""Names that settings hand on to Kubernetes, checked by its own rules.

``k8s.io/apimachinery/pkg/util/validation``: a qualified name is a name of up to 63
letters, digits, ``-``, ``_`` and ``.``, with an optional DNS subdomain and ``/`` before
it. Of an annotation, the subdomain may have capitals.
"""

import ipaddress
import re
from typing import Annotated, Final

import pydantic

_MAX_PREFIX: Final = 253

_MAX_NAME: Final = 63

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)

_DNS_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"

_SUBDOMAIN: Final = re.compile(rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*", re.ASCII)

_NAMESPACE: Final = re.compile(_DNS_LABEL, re.ASCII)

_WORD: Final = re.compile(r"[!-~]{1,253}", re.ASCII)


def is_qualified_name(text: str) -> bool:
    """Say whether Kubernetes takes `text` as a label key.

    >>> is_qualified_name("example.com/type"), is_qualified_name("a b")
    (True, False)
    """
    prefix, slash, name = text.rpartition("/")
    is_prefix_legal = not slash or (
        len(prefix) <= _MAX_PREFIX and _SUBDOMAIN.fullmatch(prefix) is not None
    )
    return (
        is_prefix_legal and len(name) <= _MAX_NAME and _NAME.fullmatch(name) is not None
    )


def _label_key(text: str) -> str:
    if not is_qualified_name(text):
        raise ValueError(f"wanted a label key such as example.com/name, got {text!r}")
    return text


def _annotation_key(text: str) -> str:
    if not is_qualified_name(text.lower()):
        raise ValueError(
            f"wanted an annotation key such as example.com/name, got {text!r}"
        )
    return text


def _namespace(text: str) -> str:
    if len(text) > _MAX_NAME or not _NAMESPACE.fullmatch(text):
        raise ValueError(f"wanted the name of a namespace, got {text!r}")
    return text


def _scheduler_name(text: str) -> str:
    # Kubernetes takes any text and no scheduler answers to most of it.
    if not _WORD.fullmatch(text):
        raise ValueError(f"wanted the name of a scheduler, got {text!r}")
    return text


def _listen_address(text: str) -> str:
    if text != "localhost":
        try:
            ipaddress.ip_address(text)
        except ValueError as error:
            raise ValueError(f"wanted an IP address, got {text!r}") from error
    return text


def _object_name(text: str) -> str:
    if len(text) > _MAX_PREFIX or not _SUBDOMAIN.fullmatch(text):
        raise ValueError(f"wanted the name of an object, got {text!r}")
    return text


def _dns_name(text: str) -> str:
    if len(text) > _MAX_PREFIX or not _SUBDOMAIN.fullmatch(text):
        raise ValueError(f"wanted a DNS name, got {text!r}")
    return text


def _ip_address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))  # as certificates write it
    except ValueError as error:
        raise ValueError(f"wanted an IP address, got {text!r}") from error


LabelKey = Annotated[str, pydantic.AfterValidator(_label_key)]

AnnotationKey = Annotated[str, pydantic.AfterValidator(_annotation_key)]

NamespaceName = Annotated[str, pydantic.AfterValidator(_namespace)]

SchedulerName = Annotated[str, pydantic.AfterValidator(_scheduler_name)]

ListenAddress = Annotated[str, pydantic.AfterValidator(_listen_address)]

ObjectName = Annotated[str, pydantic.AfterValidator(_object_name)]

DnsName = Annotated[str, pydantic.AfterValidator(_dns_name)]

IpAddress = Annotated[str, pydantic.AfterValidator(_ip_address)]
