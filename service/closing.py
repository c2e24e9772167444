"""How waitress tells clients to open a new connection while the process drains."""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import waitress.channel
import waitress.task

WsgiApp: TypeAlias = Callable[..., Iterable[bytes]]


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


def closing_channel(is_closing: Callable[[], bool]) -> type[Any]:
    """Return a channel class that ends each connection while `is_closing`.

    The answer under way says ``Connection: close``, and is sent whole first.
    """

    class ClosingTask(waitress.task.WSGITask):  # type: ignore[misc]  # untyped library
        """One request."""

        def build_response_header(self) -> bytes:
            """Return the answer's head."""
            if is_closing():
                self.set_close_on_finish()
            head: bytes = super().build_response_header()
            return head

    class ClosingChannel(waitress.channel.HTTPChannel):  # type: ignore[misc]  # untyped
        """One connection."""

        task_class = ClosingTask

    return ClosingChannel
