"""An HTTPS listener before an echo, and clients of it."""

import contextlib
import http.client
import socket
import ssl
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from service.certificates.files import Certificate
from service.http.https import HttpsServer
from service.http.plain import LastIdleFirst
from service.settings.process import WebhookSettings
from tests.certificates import write_pair
from tests.service_process import DEADLINE_SECONDS, Answer, exchange

# Fewer than every attack below has clients.
WORKERS: Final = 4


def echo(
    environ: dict[str, Any], start_response: Callable[..., Any]
) -> Iterable[bytes]:
    """Answer with the request's body, once or as often as is asked."""
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    body *= int(environ.get("HTTP_X_TIMES", "1"))
    headers = [("Content-Length", str(len(body)))]
    start_response("200 OK", [*headers, ("X-Scheme", environ["wsgi.url_scheme"])])
    return [body]


class Listener:
    """An HTTPS listener before an echo, and clients of it."""

    def __init__(
        self, folder: Path, host: str = "127.0.0.1", *, is_started: bool = True
    ) -> None:
        certificate, key = write_pair(folder)
        self.is_draining = False
        self.is_elsewhere = False
        self.context = ssl.create_default_context(cafile=certificate)
        self._dispatcher = LastIdleFirst()
        self.server = HttpsServer(
            echo,
            WebhookSettings.model_validate({"host": host, "port": 0}),
            Certificate(certificate, key),
            lambda: self.is_draining or self.is_elsewhere,
            self._dispatcher,
            lets_go=lambda: self.is_elsewhere,
        )
        self._dispatcher.set_thread_count(WORKERS)
        if is_started:
            self.server.start()

    def stop(self) -> None:
        """Stop the listener, then its workers."""
        self.server.stop()
        self._dispatcher.shutdown()

    def open_tcp(self) -> socket.socket:
        """Return a connection on which nothing has been said."""
        return socket.create_connection(
            ("127.0.0.1", self.server.port), DEADLINE_SECONDS
        )

    def open_tls(self) -> ssl.SSLSocket:
        """Return a connection that has shaken hands."""
        return self.context.wrap_socket(self.open_tcp(), server_hostname="127.0.0.1")

    def connect(self) -> http.client.HTTPSConnection:
        """Return a well-behaved client."""
        return http.client.HTTPSConnection(
            "127.0.0.1",
            self.server.port,
            timeout=DEADLINE_SECONDS,
            context=self.context,
        )

    def call(self, body: bytes = b"review") -> Answer:
        """Make one call on a connection of its own."""
        connection = self.connect()
        try:
            return exchange(connection, "POST", "/mutate", body)
        finally:
            connection.close()

    def review_seconds(self) -> float:
        """Return how long a well-behaved client waits for its answer."""
        started = time.monotonic()
        answer = self.call()
        assert (answer.status, answer.body) == (200, b"review")
        return time.monotonic() - started


def read_all(client: socket.socket) -> bytes:
    """Return what still comes until the other side ends, however it does."""
    received = b""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while data := client.recv(65_536):
            received += data
    return received
