"""Lists and watch lines as the API server sends them."""

from http import HTTPStatus
from typing import Final, Generic, TypeVar

import msgspec

from cluster.api.protocol import ApiError
from scoring.quantity import shorten

_Object = TypeVar("_Object")

# What msgspec raises for bytes that are no JSON, or no JSON that it takes.
NO_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class ListMeta(msgspec.Struct):
    """``metadata`` of a list."""

    resource_version: str = msgspec.field(default="", name="resourceVersion")
    continue_token: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, Generic[_Object]):
    """One page of a list."""

    metadata: ListMeta
    items: tuple[_Object, ...] | None = None


class RawPage(msgspec.Struct):
    """A page of which an object does not decode."""

    metadata: ListMeta
    items: tuple[msgspec.Raw, ...] | None = None


class Event(msgspec.Struct, Generic[_Object]):
    """One line of a watch."""

    type: str
    object: _Object


class RawEvent(msgspec.Struct):
    """A line whose object is a ``Status`` or does not decode."""

    type: str
    object: msgspec.Raw


class Status(msgspec.Struct):
    """The object of an ERROR event."""

    code: int = 0
    message: str = ""


def raw_event(line: bytes) -> tuple[str, msgspec.Raw]:
    """Return type and object of a line; raise `ApiError` if it is no event."""
    try:
        event = msgspec.json.decode(line, type=RawEvent)
    except NO_JSON as error:
        raise undecodable("watch line", error) from error
    return event.type, event.object


def error_event(line: bytes) -> ApiError:
    """Return the error that an ERROR event stands for."""
    _, raw = raw_event(line)
    try:
        status = msgspec.json.decode(raw, type=Status)
    except msgspec.ValidationError:
        status = Status()
    reason = "expired" if status.code == HTTPStatus.GONE else "error_event"
    message = shorten(status.message, 300)
    return ApiError(message, reason=reason, status=status.code)


def undecodable(what: str, error: Exception) -> ApiError:
    """Return the error of a server that does not speak the protocol."""
    return ApiError(f"{what}: {shorten(str(error), 300)}", reason="undecodable")
