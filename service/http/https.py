"""The HTTPS listener: cheroot, with an intake that keeps its workers free."""

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import cheroot.wsgi

from service.certificates.files import ServedCertificate
from service.http.connection import MAX_HEAD_BYTES
from service.http.intake import Intake
from service.http.middleware import MAX_REVIEW_BYTES
from service.http.plain import QUIET_SECONDS, ListenError
from service.http.waitress_channel import WsgiApp
from service.settings.process import WebhookSettings

logger = logging.getLogger(__name__)

ACCEPT_QUEUE: Final = 128

# The kernel hands over a connection only once the client has sent something.
DEFER_ACCEPT_SECONDS: Final = 10

# For calls under way when the process stops.
STOP_SECONDS: Final = 5


class _Server(cheroot.wsgi.Server):
    """cheroot's server with our log."""

    _connections: Any  # not in its stub

    def error_log(
        self,
        msg: str = "",
        level: int = logging.INFO,
        traceback: bool = False,
    ) -> None:
        """Log what cheroot has to say."""
        logger.log(
            level,
            "connection fault",
            exc_info=traceback,
            extra={"fields": {"said": msg}},
        )


class PathAllowlist:
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

    The constructor binds the port; it raises `ListenError` if it cannot.

    Parameters
    ----------
    app : WSGI application
    settings : WebhookSettings
    certificate : ServedCertificate
    is_closing : callable
        Whether connections are to end after their present answer.
    threads : int
        Requests that are worked on at the same time.
    """

    def __init__(
        self,
        app: WsgiApp,
        settings: WebhookSettings,
        certificate: ServedCertificate,
        is_closing: Callable[[], bool],
        threads: int,
    ) -> None:
        self._server = _Server(
            (settings.host, settings.port),
            app,
            numthreads=threads,
            request_queue_size=ACCEPT_QUEUE,
            shutdown_timeout=STOP_SECONDS,
        )
        self._server.max_request_body_size = MAX_REVIEW_BYTES
        self._server.max_request_header_size = MAX_HEAD_BYTES
        try:
            self._server.prepare()
        except OSError as error:  # cheroot's own, which names no reason
            reason = str(error.__context__ or error)
            raise ListenError(settings.host, settings.port, reason) from error
        self._listener: socket.socket = self._server.socket
        self._listener.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, DEFER_ACCEPT_SECONDS
        )
        self.port = int(self._listener.getsockname()[1])
        self._intake = Intake(self._server, lambda: certificate.context, is_closing)
        # Closed with the stock one is its selector, not the listener.
        self._server._connections.close()  # noqa: SLF001  there is no other way in
        self._server._connections = self._intake  # noqa: SLF001  the same
        self._thread = threading.Thread(
            target=self._server.serve, name="https", daemon=True
        )

    @property
    def is_idle(self) -> bool:
        """Whether no client is owed an answer."""
        return self._intake.is_idle

    def start(self) -> None:
        """Start serving."""
        self._thread.start()

    def stop(self) -> None:
        """Accept no more, let calls under way finish, then stop."""
        if self._thread.is_alive():
            self._intake.refuse()
            self._wait_idle()
        self._server.socket = None  # the intake has closed it
        self._server.stop()
        self._listener.close()
        if self._thread.is_alive():
            self._thread.join()

    def _wait_idle(self) -> None:
        deadline = time.monotonic() + STOP_SECONDS
        quiet_since = time.monotonic()
        while (now := time.monotonic()) < min(deadline, quiet_since + QUIET_SECONDS):
            time.sleep(0.01)
            if not self._intake.is_idle:
                quiet_since = now
