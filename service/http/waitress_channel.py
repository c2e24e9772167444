"""Connections with more than waitress's own: arrival, limits, ends, errors."""

import json
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeAlias

import waitress.channel
import waitress.parser
import waitress.task

from service.http.framing import RefusedRequestError, check_head

WsgiApp: TypeAlias = Callable[..., Iterable[bytes]]

# Set by the servers in the WSGI environment: when the first byte of a request came,
# on the monotonic clock.
ARRIVED_KEY: Final = "gpu_extender.arrived"

# From the first byte of a request to its last. Waiting costs no worker, only one of
# `connectionLimit` connections.
RECEIVE_SECONDS: Final = 30.0


def encode_error(status: str) -> bytes:
    """Return the short JSON body of an error, as Falcon writes it."""
    return json.dumps({"title": status}).encode()


class Refusal(NamedTuple):
    """Status of a request that is answered without the application."""

    code: str
    reason: str

    @classmethod
    def of(cls, status: str) -> "Refusal":
        """Return a status line's code and reason."""
        code, _, reason = status.partition(" ")
        return cls(code, reason)


class StripConnectionHeader:
    """WSGI middleware that keeps the ``Connection`` header of an answer back.

    PEP 3333 leaves that header to the server, and waitress answers 500 to an
    application that sets it; other servers need it from the application.
    """

    def __init__(self, app: WsgiApp) -> None:
        self._app = app

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        """Pass one request on."""

        def answer(
            status: str, headers: list[tuple[str, str]], *error: Any
        ) -> Callable[[bytes], object]:
            kept = [pair for pair in headers if pair[0].lower() != "connection"]
            write: Callable[[bytes], object] = start_response(status, kept, *error)
            return write

        return self._app(environ, answer)


class TimedParser(waitress.parser.HTTPRequestParser):  # type: ignore[misc]  # untyped
    """One request, with the time of its first byte."""

    def __init__(self, adjustments: Any) -> None:
        super().__init__(adjustments)
        self.arrived = time.monotonic()

    def received(self, data: bytes) -> int:
        """Take in some bytes; return how many belong to this request.

        A client that waits for ``100 Continue`` is told so only where a body is wanted
        of it. waitress also tells it where none will come, or the head is refused
        already, and then waits for that body with the answer.
        """
        consumed = int(super().received(data))
        if self.completed:
            self.expect_continue = False
        return consumed


class StrictParser(TimedParser):
    """One request of the webhook: a head that leaves a doubt is refused."""

    def __init__(self, adjustments: Any) -> None:
        super().__init__(adjustments)
        self._refusal: Refusal | None = None

    def parse_header(self, header_plus: bytes) -> None:
        """Read the head, which ends with an empty line."""
        try:
            # waitress refuses a body of as many bytes as it is told
            check_head(header_plus, self.adj.max_request_body_size - 1)
        except RefusedRequestError as error:
            self._refusal = Refusal.of(error.status)
            raise waitress.parser.ParsingError(error.status) from error
        super().parse_header(header_plus)

    def received(self, data: bytes) -> int:
        """Take in some bytes; return how many belong to this request."""
        consumed = super().received(data)
        if self.error is not None:
            self.refuse(self._refusal or self.error)
        return consumed

    def refuse(self, error: Any) -> None:
        """Have the request answered with an error, in the version that we speak."""
        self.error = error
        self.version = "1.1"
        self.completed = True


class JsonErrorTask(waitress.task.ErrorTask):  # type: ignore[misc]  # untyped library
    """The answer to a request that waitress itself refuses."""

    def execute(self) -> None:
        """Send the status with a short JSON body, and close."""
        error = self.request.error
        self.status = f"{error.code} {error.reason}"
        body = encode_error(self.status)
        self.response_headers.append(("Content-Type", "application/json"))
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(body)


class DrainingTask(waitress.task.WSGITask):  # type: ignore[misc]  # untyped library
    """One request."""

    def get_environment(self) -> dict[str, Any]:
        """Return the WSGI environment, with the time of the request's arrival."""
        environ: dict[str, Any] = super().get_environment()
        environ[ARRIVED_KEY] = self.request.arrived
        return environ

    def build_response_header(self) -> bytes:
        """Return the answer's head."""
        if self.channel.is_closing():
            self.set_close_on_finish()
        head: bytes = super().build_response_header()
        return head

    def write(self, data: bytes) -> None:
        """Send a part of the answer, the first one together with the head.

        PERF: waitress sends the head on its own, which costs us and the client a
        system call more; bench/extender/http.py
        """
        if self.wrote_header or not data:
            super().write(data)
            return
        self.channel.hold()
        try:
            super().write(data)
        finally:
            self.channel.release()


class DrainingChannel(waitress.channel.HTTPChannel):  # type: ignore[misc]  # untyped
    """One connection."""

    task_class = DrainingTask
    error_task_class = JsonErrorTask
    parser_class = TimedParser

    _held: list[bytes] | None = None

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.make_room(self)

    @property
    def last_activity(self) -> float:
        """When something was read or sent last, by the monotonic clock."""
        return self._last_activity

    @last_activity.setter
    def last_activity(self, _wall_time: float) -> None:
        """Note that something is read or sent: waitress knows a clock that is set."""
        self._last_activity = time.monotonic()

    @staticmethod
    def make_room(newcomer: "DrainingChannel") -> None:
        """Let another connection go if this one is more than there may be."""

    @staticmethod
    def is_closing() -> bool:
        """Whether the connection ends with the answer under way."""
        return False

    def hold(self) -> None:
        """Keep what is written until `release`."""
        self._held = []

    def release(self) -> None:
        """Send what was kept, as one."""
        held, self._held = self._held or [], None
        self.write_soon(b"".join(held))

    def write_soon(self, data: Any) -> int:
        """Send some data, now or as soon as the client reads."""
        if self._held is None:
            return int(super().write_soon(data))
        self._held.append(data)
        return len(data)

    def readable(self) -> bool:
        """Whether to wait for more; gives up on a request that trickles in.

        The server's loop asks at least once a second.
        """
        request = self.request
        if request is not None and time.monotonic() - request.arrived > RECEIVE_SECONDS:
            self.will_close = True
        return bool(super().readable())


def draining_channel(
    is_closing: Callable[[], bool], make_room: Callable[[DrainingChannel], None]
) -> type[DrainingChannel]:
    """Return a channel class that ends each connection while `is_closing`.

    The answer under way says ``Connection: close``, and is sent whole first.
    """
    namespace = {
        "is_closing": staticmethod(is_closing),
        "make_room": staticmethod(make_room),
    }
    return type("Channel", (DrainingChannel,), namespace)
