"""The HTTP side of the fake API server: what it sends, and the faults it can have."""

import json
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl, urlsplit

from tests.fakes.api_objects import Place, answer_object, find_place, list_objects
from tests.fakes.api_state import (
    RESOURCES,
    ApiState,
    StatusError,
    expired_line,
    status_tree,
)

# SO_LINGER on with 0 s: closing sends RST instead of FIN.
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
REVIEWS_PATH: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
VERSION: Final = "version"
REVIEWS: Final = "selfsubjectaccessreviews"
STATUS_PATH: Final = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)/status")
# Go's server sends a body of known length up to this size, and chunks beyond it.
_BUFFERED_BYTES: Final = 2048


@dataclass(frozen=True, slots=True)
class Status:
    """The request is answered with this status."""

    code: int
    reason: str = "InternalError"
    retry_after: str = ""


@dataclass(frozen=True, slots=True)
class Lines:
    """The watch sends these bytes; then it ends well, or is reset."""

    data: bytes
    is_reset: bool = False


@dataclass(frozen=True, slots=True)
class Silence:
    """Headers come, if `has_headers`, and then not one byte more."""

    has_headers: bool = True


@dataclass(frozen=True, slots=True)
class Held:
    """The request is answered once `release` is set."""

    release: threading.Event = field(default_factory=threading.Event)


Fault = Status | Lines | Silence | Held


@dataclass(frozen=True, slots=True)
class Request:
    """One request, as received."""

    verb: str  # list, watch, get, create, update or patch
    resource: str
    query: Mapping[str, str]
    headers: Mapping[str, str]  # lower-case name -> value
    path: str = ""
    body: bytes = b""


class Script(Protocol):
    """What the HTTP side asks of the fake server."""

    state: ApiState
    token: str
    ends_after_each_event: bool
    denied: set[str]
    clock_offset_seconds: float

    def admit(self, request: Request) -> Fault | None:
        """Note a request; return the fault that is scripted for it."""
        ...

    def lines(self, request: Request, revision: int) -> Iterator[bytes]:
        """Yield a watch's lines from a revision on."""
        ...

    def tracked(self, connection: socket.socket) -> AbstractContextManager[None]:
        """Make a connection one that can be cut."""
        ...


class Server(ThreadingHTTPServer):
    """The listening socket; one thread for each connection, all joined on close."""

    daemon_threads = False
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], api: Script) -> None:
        super().__init__(address, Handler)
        self.api = api
        self.is_closing = False

    def handle_error(self, *_: object) -> None:
        """Keep quiet: clients that go away are part of the tests."""


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # as Go does
    server: Server

    def handle(self) -> None:
        with self.server.api.tracked(self.connection):
            super().handle()

    def date_time_string(self, timestamp: float | None = None) -> str:
        """Return the time that the server tells, by its own clock."""
        now = time.time() if timestamp is None else timestamp
        return super().date_time_string(now + self.server.api.clock_offset_seconds)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query))
        resource = next(
            (name for name, (_, _, path) in RESOURCES.items() if path == url.path), ""
        )
        verb = "watch" if query.get("watch") == "1" else "list"
        if place := find_place(url.path):
            verb, resource = "get" if place.name else "list", place.resource
        if url.path == f"/{VERSION}":
            verb, resource = "get", VERSION
        headers = {name.lower(): value for name, value in self.headers.items()}
        self._take(Request(verb, resource, query, headers, url.path))

    def do_POST(self) -> None:
        self._take_body("create")

    def do_PUT(self) -> None:
        self._take_body("update")

    def do_PATCH(self) -> None:
        self._take_body("patch")

    def _take_body(self, verb: str) -> None:
        """Take a request that changes something."""
        url = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers["content-length"]))
        resource = "pods/status" if STATUS_PATH.fullmatch(url.path) else ""
        if place := find_place(url.path):
            resource = place.resource
        if url.path == REVIEWS_PATH:
            resource = REVIEWS
        query = dict(parse_qsl(url.query))
        self._take(Request(verb, resource, query, headers, url.path, body))

    def _take(self, request: Request) -> None:
        resource, headers = request.resource, request.headers
        fault = self.server.api.admit(request)
        if isinstance(fault, Held):
            self._wait(fault.release.is_set)
            fault = None
        if not resource:
            fault = Status(404, "NotFound")
        expected = self.server.api.token
        if expected and headers.get("authorization") != f"Bearer {expected}":
            fault = Status(401, "Unauthorized")
        if fault is None and resource == REVIEWS:
            denied = self.server.api.denied
            self._answer(201, review_access(json.loads(request.body), denied))
        elif fault is None and resource == VERSION:
            self._answer(200, {"major": "1", "minor": "36"})
        elif fault is None:
            self._serve(request)
        else:
            self._fail(fault)

    def _fail(self, fault: Fault) -> None:
        match fault:
            case Status(code, reason, retry_after):
                self._answer(code, status_tree(code, reason, reason), retry_after)
            case Lines(data, is_reset):
                self._begin_stream()
                self._send(data)
                if is_reset:
                    option = (socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                    self.connection.setsockopt(*option)
                    self.connection.close()
                    self.close_connection = True
                else:
                    self._send(b"")
            case Silence(has_headers):
                if has_headers:
                    self._begin_stream()
                self._wait(lambda: False)
                self.close_connection = True

    def _wait(self, is_over: Callable[[], bool]) -> None:
        """Wait until something is so, the client leaves or the server closes."""
        changed = self.server.api.state.changed
        with changed:
            while not (is_over() or self.server.is_closing or self._has_left()):
                changed.wait(0.02)

    def _has_left(self) -> bool:
        """Whether the client has closed its end."""
        try:
            flags = socket.MSG_PEEK | socket.MSG_DONTWAIT
            return not self.connection.recv(1, flags)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _serve(self, request: Request) -> None:
        api, query = self.server.api, request.query
        if place := find_place(request.path):
            self._serve_object(request, place)
            return
        if request.verb == "patch":
            self._patch(request)
            return
        if request.verb == "list":
            limit, token = int(query.get("limit", 0)), query.get("continue", "")
            try:
                self._answer(200, api.state.page(request.resource, limit, token))
            except StatusError as error:
                self._answer(error.code, error.body)
            return
        self._begin_stream()
        revision = int(query["resourceVersion"])
        if revision < api.state.compacted:
            self._send(expired_line(revision, api.state.compacted))
            self._send(b"")
            return
        for line in api.lines(request, revision):
            if self.server.is_closing or self._has_left():
                self.close_connection = True
                return
            if line:
                self._send(line)
                if api.ends_after_each_event:
                    break
        self._send(b"")

    def _serve_object(self, request: Request, place: Place) -> None:
        """Answer with one object, as it is or as it has become."""
        if request.verb == "list":
            selector = request.query.get("labelSelector", "")
            self._answer(200, list_objects(self.server.api.state, place, selector))
            return
        content_type = request.headers.get("content-type", "")
        change = json.loads(request.body) if request.body else None
        try:
            stored = answer_object(
                self.server.api.state, place, request.verb, content_type, change
            )
        except StatusError as error:
            self._answer(error.code, error.body)
        else:
            self._answer(201 if request.verb == "create" else 200, stored)

    def _patch(self, request: Request) -> None:
        """Merge into a pod's status, as the API server does with its subresource."""
        match = STATUS_PATH.fullmatch(request.path)
        assert match is not None
        if request.headers["content-type"] != "application/merge-patch+json":
            self._fail(Status(415, "UnsupportedMediaType"))
            return
        try:
            stored = self.server.api.state.patch_status(
                "/".join(match.groups()), json.loads(request.body)
            )
        except StatusError as error:
            self._answer(error.code, error.body)
        else:
            self._answer(200, stored)

    def _answer(self, code: int, tree: Any, retry_after: str = "") -> None:
        body = json.dumps(tree, separators=(",", ":")).encode() + b"\n"
        if len(body) > _BUFFERED_BYTES:
            self._begin_stream(code)
            for start in range(0, len(body), 32_768):
                self._send(body[start : start + 32_768])
            self._send(b"")
            return
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if retry_after:
            self.send_header("Retry-After", retry_after)
        self.end_headers()
        self.wfile.write(body)

    def _begin_stream(self, code: int = 200) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _send(self, data: bytes) -> None:
        """Send one chunk; an empty one ends the answer."""
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def review_access(review: Any, denied: set[str]) -> Any:
    """Answer whether a verb is allowed: all are but those that are denied.

    Denied ones are written as ``patch pods/status`` or ``get leases/name``.
    """
    asked = review["spec"]["resourceAttributes"]
    parts = (asked["resource"], asked.get("subresource"), asked.get("name"))
    what = f"{asked['verb']} {'/'.join(part for part in parts if part)}"
    return {**review, "status": {"allowed": what not in denied}}
