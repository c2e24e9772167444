"""Types of names in settings, checked by Kubernetes' own rules."""

import ipaddress
import re
from typing import Annotated, Final
from urllib.parse import urlsplit

import pydantic

from scoring.names import (
    is_annotation_key,
    is_namespace,
    is_qualified_name,
    is_subdomain,
)

_WORD: Final = re.compile(r"[!-~]{1,253}", re.ASCII)


def _label_key(text: str) -> str:
    if not is_qualified_name(text):
        raise ValueError(f"wanted a label key such as example.com/name, got {text!r}")
    return text


def _annotation_key(text: str) -> str:
    if not is_annotation_key(text):
        raise ValueError(
            f"wanted an annotation key such as example.com/name, got {text!r}"
        )
    return text


def _namespace(text: str) -> str:
    if not is_namespace(text):
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
    if not is_subdomain(text):
        raise ValueError(f"wanted the name of an object, got {text!r}")
    return text


def _dns_name(text: str) -> str:
    if not is_subdomain(text):
        raise ValueError(f"wanted a DNS name, got {text!r}")
    return text


def _ip_address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))  # as certificates write it
    except ValueError as error:
        raise ValueError(f"wanted an IP address, got {text!r}") from error


def check_webhook_url(text: str) -> str:
    """Return a URL that kube-apiserver takes for a webhook, or raise `ValueError`."""
    try:
        parts = urlsplit(text)
        is_good = parts.scheme == "https" and bool(parts.hostname)
        # What kube-apiserver refuses beside that.
        is_good = is_good and not (parts.query or parts.fragment or parts.username)
        _ = parts.port
    except ValueError:
        is_good = False
    if not is_good:
        raise ValueError(
            f"wanted a URL such as https://10.0.0.1:8443/mutate, got {text!r}"
        )
    return text


def is_loopback(host: str) -> bool:
    """Whether a host is this one."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _loopback_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        is_good = parts.scheme in {"http", "https"} and is_loopback(
            parts.hostname or ""
        )
        _ = parts.port
    except ValueError:
        is_good = False
    if not is_good or parts.username:
        wanted = "wanted a URL of this host such as https://127.0.0.1:10259/livez"
        raise ValueError(f"{wanted}, got {text!r}")
    return text


# An exact name, or the beginning of one and a final asterisk.
NamePattern = Annotated[str, pydantic.Field(pattern=r"^[^*\s]+\*?$")]

LabelKey = Annotated[str, pydantic.AfterValidator(_label_key)]

AnnotationKey = Annotated[str, pydantic.AfterValidator(_annotation_key)]

NamespaceName = Annotated[str, pydantic.AfterValidator(_namespace)]

SchedulerName = Annotated[str, pydantic.AfterValidator(_scheduler_name)]

ListenAddress = Annotated[str, pydantic.AfterValidator(_listen_address)]

ObjectName = Annotated[str, pydantic.AfterValidator(_object_name)]

DnsName = Annotated[str, pydantic.AfterValidator(_dns_name)]

IpAddress = Annotated[str, pydantic.AfterValidator(_ip_address)]

WebhookUrl = Annotated[str, pydantic.AfterValidator(check_webhook_url)]

LoopbackUrl = Annotated[str, pydantic.AfterValidator(_loopback_url)]
