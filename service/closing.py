"""What our connections do beyond waitress's own: arrival, limits, ends, errors."""

import json
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


def closing_channel(is_closing: Callable[[], bool]) -> type[Any]:
    """Return a channel class that ends each connection while `is_closing`.

    The answer under way says ``Connection: close``, and is sent whole first.
    """

    class ClosingTask(waitress.task.WSGITask):  # type: ignore[misc]  # untyped library
        """One request."""

        def get_environment(self) -> dict[str, Any]:
            """Return the WSGI environment, with the time of the request's arrival."""
            environ: dict[str, Any] = super().get_environment()
            environ[ARRIVED_KEY] = self.request.arrived
            return environ

        def build_response_header(self) -> bytes:
            """Return the answer's head."""
            if is_closing():
                self.set_close_on_finish()
            head: bytes = super().build_response_header()
            return head

    class ClosingChannel(waitress.channel.HTTPChannel):  # type: ignore[misc]  # untyped
        """One connection."""

        task_class = ClosingTask
        error_task_class = JsonErrorTask
        parser_class = DatedParser

        def readable(self) -> bool:
            """Say whether to wait for more; give up on a request that trickles in.

            The server's loop asks at least once a second.
            """
            request = self.request
            if (
                request is not None
                and time.monotonic() - request.arrived > RECEIVE_SECONDS
            ):
                self.will_close = True
            return bool(super().readable())

    return ClosingChannel
