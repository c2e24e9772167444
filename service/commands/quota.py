"""ResourceQuotas, compared with what a pod asks that is yet to be created."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from cluster.api.protocol import Api, ApiError
from cluster.dump import list_items, read_documents
from extender.explain.pod import Obstacle, Subject
from scoring.pod_request import LargestShare
from scoring.quantity import (
    QuantityError,
    parse_amount,
    shorten,
    show_amount,
    show_at_most,
)
from scoring.resources import PODS, STANDARD_RESOURCES

QUOTA: Final = "quota"

_KIND: Final = "ResourceQuota"


class _Meta(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    scopes: Any = None
    scope_selector: Any = None


class _Status(msgspec.Struct, frozen=True):
    hard: dict[str, Any] = {}
    used: dict[str, Any] = {}


class ResourceQuota(msgspec.Struct, frozen=True):
    """A ResourceQuota, as far as it is compared."""

    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _QuotaList(msgspec.Struct, frozen=True):
    items: tuple[ResourceQuota, ...] = ()


def quotas_of_dumps(paths: Sequence[Path]) -> list[ResourceQuota]:
    """Return the quotas in files; what is no quota is passed over.

    A file is only read again if it names them: that may take seconds.
    """
    found = []
    for path in paths:
        if _KIND.encode() not in path.read_bytes():
            continue
        for _, tree, kind in list_items(read_documents(path)):
            if kind == _KIND:
                found.append(_quota(tree))
    return found


def _quota(tree: Any) -> ResourceQuota:
    try:
        return msgspec.convert(tree, ResourceQuota)
    except msgspec.ValidationError:
        return ResourceQuota()


def quotas_of_server(api: Api, namespace: str) -> list[ResourceQuota]:
    """Return the quotas of a namespace, with the caller's rights.

    Raises `ApiError` if they cannot be read.
    """
    body = api.read(f"/api/v1/namespaces/{namespace}/resourcequotas")
    try:
        return list(msgspec.json.decode(body, type=_QuotaList).items)
    except msgspec.DecodeError as error:
        raise ApiError(str(error), reason="undecodable") from error


def find_quota_obstacles(
    subject: Subject, quotas: Iterable[ResourceQuota]
) -> tuple[Obstacle, ...]:
    """Return the quotas that the pod would exceed, or that want a request of it.

    Quotas with scopes are about some pods alone, and limits are not compared.
    """
    asked = {**dict(subject.request), PODS: 1}
    return tuple(
        obstacle
        for quota in quotas
        if quota.metadata.namespace in {"", subject.namespace}
        and not quota.spec.scopes
        and not quota.spec.scope_selector
        for obstacle in _exceeded(quota, asked, subject)
    )


def _exceeded(
    quota: ResourceQuota, asked: Mapping[str, int], subject: Subject
) -> Iterator[Obstacle]:
    """Yield an obstacle for each amount of one quota that is too little."""
    name, status = quota.metadata.name, quota.status
    for key, hard in status.hard.items():
        resource = _resource_of(key)
        if not resource:
            continue
        try:
            most = parse_amount(resource, hard)
            used = parse_amount(resource, status.used.get(key, 0))
        except QuantityError:
            continue
        wanted = asked.get(resource, 0)
        left = max(most - used, 0)
        whose = f"The quota {name} of namespace {subject.namespace}"
        if not wanted and resource in STANDARD_RESOURCES:
            yield Obstacle(
                QUOTA,
                f"{whose} refuses a pod that states no {resource}",
                f"state a request of {resource}",
            )
        elif wanted > left:
            words = f"{show_amount(resource, left)} of {show_amount(resource, most)}"
            needs = show_amount(resource, wanted)
            remedy = "have the quota raised, or wait until pods end"
            if less := _less(subject, resource, left):
                remedy = f"ask for at most {less}, or {remedy}"
            yield Obstacle(
                QUOTA,
                f"{whose} refuses the pod: asks {needs} {resource}, {words} are left",
                remedy,
            )


def _less(subject: Subject, resource: str, left: int) -> str:
    """Return what the pod's author could ask where the pod may ask so much.

    Empty where less from one container does not suffice.
    """
    shares = {share.resource: share for share in subject.shares}
    share = shares.get(resource, LargestShare(resource))
    if left <= share.beside or left < share.least:
        return ""
    beside = " beside the overhead" if share.overhead else ""
    where = f" in container {shorten(share.container)}" if share.container else ""
    return f"{show_at_most(resource, left - share.beside)} {resource}{beside}{where}"


def _resource_of(key: str) -> str:
    """Return which resource of pods a quota limits; empty for what is not compared.

    >>> _resource_of("requests.nvidia.com/gpu"), _resource_of("cpu")
    ('nvidia.com/gpu', 'cpu')
    >>> _resource_of("limits.cpu"), _resource_of("count/pods")
    ('', 'pods')
    """
    if key == "count/pods":
        return PODS
    if key.startswith("requests."):
        return key.removeprefix("requests.")
    return key if key in {*STANDARD_RESOURCES, PODS} else ""
