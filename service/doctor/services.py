"""The Service that a registration calls, and whether anybody is behind it."""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Final
from urllib.parse import urlencode

import msgspec

from cluster.api.protocol import ApiError, ObjectReader
from service.doctor.page import Facts, Finding, Unchecked, listed
from service.doctor.registration import Registration, ServiceReference

ENDPOINTS: Final = "endpoints"

_REFUSED: Final = (
    "The API server calls nobody: with failurePolicy Fail it refuses every GPU pod,"
    " with Ignore they are created as they are."
)


class _Port(msgspec.Struct, frozen=True):
    port: int | None = None


class _Service(msgspec.Struct, frozen=True):
    class Spec(msgspec.Struct, frozen=True):
        ports: tuple[_Port, ...] = ()

    spec: Spec = Spec()


class _Conditions(msgspec.Struct, frozen=True):
    ready: bool | None = None


class _Endpoint(msgspec.Struct, frozen=True):
    conditions: _Conditions = _Conditions()


class _Slice(msgspec.Struct, frozen=True):
    endpoints: tuple[_Endpoint, ...] | None = None
    ports: tuple[_Port, ...] | None = None


class _Slices(msgspec.Struct, frozen=True):
    items: tuple[_Slice, ...] = ()


def check_services(
    api: ObjectReader, facts: Facts, registration: Registration
) -> Iterator[Finding | Unchecked]:
    """Yield what is wrong with the Services that a registration calls."""
    called = [webhook.client_config.service for webhook in registration.webhooks or ()]
    for service in dict.fromkeys(item for item in called if item is not None):
        try:
            yield from _check_service(api, facts, service)
        except (ApiError, msgspec.MsgspecError) as error:
            where = f"{service.namespace}/{service.name}"
            why = f"Service {where} and its EndpointSlices cannot be read: {error}"
            yield Unchecked(ENDPOINTS, why)


def _check_service(
    api: ObjectReader, facts: Facts, service: ServiceReference
) -> Iterator[Finding]:
    """Yield what is wrong with one Service; raise `ApiError` if it is not told."""
    where = f"{service.namespace}/{service.name}"
    path = f"/api/v1/namespaces/{service.namespace}/services/{service.name}"
    try:
        found = msgspec.json.decode(api.read(path), type=_Service)
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        what = f"There is no Service {where}, which the registration calls."
        do = "Make one that leads to gpu-extender's webhook port (docs/install.md, 6)."
        yield Finding(ENDPOINTS, what, _REFUSED, do)
        return
    ports = [str(port.port) for port in found.spec.ports]
    if str(service.port) not in ports:
        yield Finding(
            ENDPOINTS,
            f"The registration calls port {service.port} of Service {where}, which has"
            f" {listed(ports) or 'none'}.",
            _REFUSED,
            "Add the port to the Service, or set clientConfig.service.port.",
        )
        return
    query = urlencode({"labelSelector": f"kubernetes.io/service-name={service.name}"})
    path = f"/apis/discovery.k8s.io/v1/namespaces/{service.namespace}/endpointslices"
    slices = msgspec.json.decode(api.read(f"{path}?{query}"), type=_Slices).items
    yield from _check_endpoints(facts, where, slices)


def _check_endpoints(
    facts: Facts, where: str, slices: tuple[_Slice, ...]
) -> Iterator[Finding]:
    """Yield what is wrong behind a Service."""
    ready = [
        item
        for item in slices
        for endpoint in item.endpoints or ()
        if endpoint.conditions.ready is not False
    ]
    if not ready:
        yield Finding(
            ENDPOINTS,
            f"No endpoint of Service {where} is ready.",
            _REFUSED,
            "Compare its selector with the labels of gpu-extender's pods, and look at"
            " /readyz of each: it says what is missing.",
        )
        return
    ports = {port.port for item in ready for port in item.ports or ()}
    if facts.webhook_port and facts.webhook_port not in ports:
        yield Finding(
            ENDPOINTS,
            f"Service {where} leads to port {listed(sorted(map(str, ports)))}, and the"
            f" webhook listens on {facts.webhook_port}.",
            _REFUSED,
            "Set the Service's targetPort to webhook.port.",
        )
