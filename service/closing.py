"""What our connections do beyond waitress's own: arrival, limits, ends, errors."""

import json
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import waitress.channel
import waitress.parser
import waitress.task

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


class WithoutConnection:
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


class DatedParser(waitress.parser.HTTPRequestParser):  # type: ignore[misc]  # untyped
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


class ClosingTask(waitress.task.WSGITask):  # type: ignore[misc]  # untyped library
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
        system call more; bench/http.py
        """
        if self.wrote_header or not data:
            super().write(data)
            return
        self.channel.hold()
        try:
            super().write(data)
        finally:
            self.channel.release()


class SparingServer:
    """A connection's view of its server, whose thread is woken for a reason alone.

    PERF: waitress stops to listen to a connection while it answers, and wakes the
    thread after each answer to listen again. Our connections are listened to all the
    time, so there is nothing to wake it for; ``bench.scheduler``
    """

    def __init__(self, server: Any, is_needed: Callable[[], bool]) -> None:
        self._server = server
        self._is_needed = is_needed

    def __getattr__(self, name: str) -> Any:
        """Give all else as it is."""
        return getattr(self._server, name)

    def pull_trigger(self) -> None:
        """Wake the server's thread if the connection needs it."""
        if self._is_needed():
            self._server.pull_trigger()


class ClosingChannel(waitress.channel.HTTPChannel):  # type: ignore[misc]  # untyped
    """One connection."""

    task_class = ClosingTask
    error_task_class = JsonErrorTask
    parser_class = DatedParser

    _held: list[bytes] | None = None
    # Whether a worker is about to send: what it cannot, it leaves with a wake-up.
    _is_sending = False
    # Whether the server's thread waits for more of the client.
    _is_heard = False
    # Whether the client has ended its side while a request of it was worked on.
    _has_ended = False

    def __init__(self, server: Any, *arguments: Any, **named: Any) -> None:
        super().__init__(SparingServer(server, self._needs_server), *arguments, **named)

    def _needs_server(self) -> bool:
        """Say whether the server's thread has more to do than to go on listening."""
        return bool(
            not self._is_heard
            or self.total_outbufs_len
            or self.will_close
            or self.close_when_flushed
        )

    @staticmethod
    def is_closing() -> bool:
        """Say whether the connection ends with the answer under way."""
        return False

    def hold(self) -> None:
        """Keep what is written until `release`."""
        self._held = []

    def release(self) -> None:
        """Send what was kept, as one."""
        held, self._held = self._held or [], None
        self._is_sending = True
        try:
            self.write_soon(b"".join(held))
        finally:
            self._is_sending = False

    def handle_read(self) -> None:
        """Take what the client sends; its end has to wait for the answer under way."""
        if self.requests and self._is_at_end():
            self._has_ended = True
        else:
            super().handle_read()

    def _is_at_end(self) -> bool:
        """Say whether the client sends no more; errors are left to `handle_read`."""
        try:
            return not self.socket.recv(1, socket.MSG_PEEK)
        except OSError:
            return False

    def write_soon(self, data: Any) -> int:
        """Send some data, now or as soon as the client reads."""
        if self._held is None:
            return int(super().write_soon(data))
        self._held.append(data)
        return len(data)

    def readable(self) -> bool:
        """Say whether to wait for more; give up on a request that trickles in.

        The server's loop asks at least once a second.
        """
        request = self.request
        if request is not None and time.monotonic() - request.arrived > RECEIVE_SECONDS:
            self.will_close = True
        # Before looking: if a worker changes what is looked at, it wakes this thread.
        self._is_heard = False
        is_being_sent = self._is_sending and len(self.requests) == 1
        self._is_heard = bool(is_being_sent or super().readable()) and not (
            self._has_ended and self.requests
        )
        return self._is_heard

    def writable(self) -> bool:
        """Say whether to wait for room to send; a worker that sends waits for none."""
        return bool(super().writable()) and not self._is_sending


def closing_channel(is_closing: Callable[[], bool]) -> type[ClosingChannel]:
    """Return a channel class that ends each connection while `is_closing`.

    The answer under way says ``Connection: close``, and is sent whole first.
    """
    return type("Channel", (ClosingChannel,), {"is_closing": staticmethod(is_closing)})
