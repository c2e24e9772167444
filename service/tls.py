"""The HTTPS listener: cheroot, with handshakes that nobody else waits for.

cheroot's own adapter shakes hands in the thread that accepts connections, so that one
silent client freezes the port (cherrypy/cheroot issue 748). Here the worker does it,
under a timeout of its own.
"""

import logging
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import cheroot.makefile
import cheroot.server
import cheroot.ssl
import cheroot.wsgi

from service.closing import WsgiApp
from service.frame import MAX_REVIEW_BYTES
from service.process_settings import WebhookSettings
from service.server import ListenError

logger = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_SECONDS: Final = 2.0
# Between two parts of one request; between requests nobody waits.
READ_TIMEOUT_SECONDS: Final = 10.0
# Longer than the 90 s for which Go's clients keep an idle connection.
IDLE_TIMEOUT_SECONDS: Final = 150
MAX_HEADER_BYTES: Final = 32 * 2**10
ACCEPT_QUEUE: Final = 128
MAX_IDLE_CONNECTIONS: Final = 10_000
# The kernel hands over a connection only once the client has sent something.
DEFER_ACCEPT_SECONDS: Final = 10


class CertificateError(ValueError):
    """A certificate and key that cannot be served."""


def build_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return a fresh context for a pair of PEM files; raise `CertificateError`.

    A live context is never given another pair: that races with handshakes, and a pair
    that does not match would leave it dead.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise CertificateError(
            f"certificate {certificate.name}, key {key.name}: {error}"
        ) from error
    return context


class LazyAdapter(cheroot.ssl.Adapter):
    """Wraps sockets without a handshake.

    `context` may be replaced at any time; connections made before keep theirs.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self.context = context

    def bind(self, sock: socket.socket) -> socket.socket:
        """Return the listening socket as it is."""
        return sock

    def wrap(self, sock: socket.socket) -> tuple[ssl.SSLSocket, dict[str, str]]:
        """Return the accepted socket, wrapped, and its WSGI environment."""
        wrapped = self.context.wrap_socket(
            sock, server_side=True, do_handshake_on_connect=False
        )
        return wrapped, self.get_environ()

    def get_environ(self) -> dict[str, str]:
        """Return what each request's WSGI environment gets."""
        return {"wsgi.url_scheme": "https", "HTTPS": "on"}

    def makefile(self, sock: ssl.SSLSocket, mode: str = "r", bufsize: int = -1) -> Any:
        """Return a file object on the socket."""
        return cheroot.makefile.MakeFile(sock, mode, bufsize)


class HandshakeConnection(cheroot.server.HTTPConnection):
    """A connection that shakes hands when a worker first serves it."""

    _has_shaken_hands = False

    def communicate(self) -> bool:
        """Serve one request; say whether to keep the connection."""
        if not self._has_shaken_hands:
            self.socket.settimeout(HANDSHAKE_TIMEOUT_SECONDS)
            try:
                self.socket.do_handshake()
            except OSError as error:
                logger.debug(
                    "handshake failed", extra={"fields": {"error": str(error)}}
                )
                return False
            self.socket.settimeout(READ_TIMEOUT_SECONDS)
            self._has_shaken_hands = True
            if not self._has_come():
                return True
        return bool(super().communicate())  # type: ignore[no-untyped-call]  # its stub

    def _has_come(self) -> bool:
        """Say whether there is anything to read after the handshake.

        Go's client keeps spare connections, on which nothing may come for minutes. A
        worker that waited there would be lost to everybody else.
        """
        selector = select.poll()
        selector.register(self.socket, select.POLLIN)
        return bool(self.socket.pending() or selector.poll(0))


class _Server(cheroot.wsgi.Server):
    """cheroot's server with our connections and our log."""

    ConnectionClass = HandshakeConnection

    def error_log(
        self,
        msg: str = "",
        level: int = logging.INFO,
        traceback: bool = False,
    ) -> None:
        """Log what cheroot has to say; a client that went away is no news."""
        is_lost_client = msg.startswith("socket.error")
        logger.log(
            logging.DEBUG if is_lost_client else level,
            "connection fault",
            exc_info=traceback,
            extra={"fields": {"said": msg}},
        )


class OnlyPaths:
    """WSGI middleware that answers 404 off the given paths.

    The verbs and the cluster's state are not for whoever can reach the pod.
    """

    def __init__(self, app: WsgiApp, paths: frozenset[str]) -> None:
        self._app = app
        self._paths = paths

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        """Pass one request on, or refuse it."""
        if environ.get("PATH_INFO") in self._paths:
            return self._app(environ, start_response)
        start_response("404 Not Found", [("Content-Length", "0")])
        return [b""]


class HttpsServer:
    """One HTTPS listener.

    The constructor binds the port; it raises `ListenError` if it cannot, and
    `CertificateError` for a pair that cannot be served.
    """

    def __init__(self, app: WsgiApp, settings: WebhookSettings, folder: Path) -> None:
        self.certificate_files = (
            folder / (settings.certificate_file or ""),
            folder / (settings.key_file or ""),
        )
        self._adapter = LazyAdapter(build_context(*self.certificate_files))
        self._server = _Server(
            (settings.host, settings.port),
            app,
            numthreads=settings.threads,
            request_queue_size=ACCEPT_QUEUE,
            timeout=IDLE_TIMEOUT_SECONDS,
            shutdown_timeout=5,
        )
        self._server.ssl_adapter = self._adapter
        self._server.max_request_body_size = MAX_REVIEW_BYTES
        self._server.max_request_header_size = MAX_HEADER_BYTES
        self._server.keep_alive_conn_limit = MAX_IDLE_CONNECTIONS
        try:
            self._server.prepare()
        except OSError as error:  # cheroot's own, which names no reason
            reason = str(error.__context__ or error)
            raise ListenError(settings.host, settings.port, reason) from error
        self._server.socket.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, DEFER_ACCEPT_SECONDS
        )
        self._thread = threading.Thread(
            target=self._server.serve, name="https", daemon=True
        )

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._server.socket.getsockname()[1])

    def load_certificate(self) -> None:
        """Serve new connections with what the files hold now."""
        self._adapter.context = build_context(*self.certificate_files)

    def start(self) -> None:
        """Start serving."""
        self._thread.start()

    def stop(self) -> None:
        """Let calls under way finish, then stop."""
        self._server.stop()
        self._thread.join()
