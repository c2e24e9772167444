"""waitress on a thread of its own, and an end that fails no call."""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import waitress.server
import waitress.wasyncore

from service.health import Health
from service.settings import ServerSettings

logger = logging.getLogger(__name__)

MEBIBYTE: Final = 2**20
MAX_BODY_BYTES: Final = 64 * MEBIBYTE
# One read takes what the kernel has: the defaults cost a third of a large call.
RECV_BYTES: Final = 262_144
POLL_SECONDS: Final = 1.0

WsgiApp = Callable[..., Iterable[bytes]]


class InFlight:
    """WSGI middleware that counts the requests being worked on."""

    def __init__(self, app: WsgiApp) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._count = 0

    @property
    def count(self) -> int:
        """How many requests are being worked on."""
        return self._count

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Pass one request on."""
        with self._lock:
            self._count += 1
        try:
            return self._app(environ, start_response)
        finally:
            with self._lock:
                self._count -= 1


class HttpServer:
    """One plain-HTTP listener.

    The constructor binds the port, and raises `OSError` if it cannot.
    """

    def __init__(self, app: WsgiApp, settings: ServerSettings, health: Health) -> None:
        self._settings = settings
        self._health = health
        self._in_flight = InFlight(app)
        self._map: dict[int, Any] = {}
        self._server = waitress.server.create_server(
            self._in_flight,
            map=self._map,
            host=settings.host,
            port=settings.port,
            threads=settings.threads,
            connection_limit=settings.connection_limit,
            channel_timeout=settings.idle_timeout_seconds,
            max_request_body_size=MAX_BODY_BYTES,
            recv_bytes=RECV_BYTES,
            # Above every body: nothing is written to a temporary file.
            inbuf_overflow=MAX_BODY_BYTES + MEBIBYTE,
            outbuf_overflow=2 * MAX_BODY_BYTES,
            outbuf_high_watermark=2 * MAX_BODY_BYTES,
            asyncore_use_poll=True,
            ident=None,
            clear_untrusted_proxy_headers=True,
        )
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._server.effective_port)

    def start(self) -> None:
        """Start serving."""
        self._thread.start()
        self._health.serve()

    def _run(self) -> None:
        while not self._stopped.is_set():
            waitress.wasyncore.loop(
                timeout=POLL_SECONDS, use_poll=True, map=self._map, count=1
            )

    def drain(self, interrupted: threading.Event) -> None:
        """Turn readiness off, serve on for a while, let calls finish, stop.

        `interrupted` cuts the serving-on short.
        """
        self._health.drain()
        logger.info("draining started")
        interrupted.wait(self._settings.drain_seconds)
        deadline = time.monotonic() + self._settings.stop_seconds
        while not self._is_idle() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.stop()
        logger.info("server stopped", extra={"fields": {"idle": self._is_idle()}})

    def _is_idle(self) -> bool:
        """Say whether no call is being received, worked on or answered."""
        channels = list(getattr(self._server, "active_channels", {}).values())
        return self._in_flight.count == 0 and not any(
            channel.requests or channel.total_outbufs_len or channel.request
            for channel in channels
        )

    def stop(self) -> None:
        """Stop at once."""
        self._stopped.set()
        self._server.pull_trigger()
        self._thread.join()
        self._server.task_dispatcher.shutdown()
        waitress.wasyncore.close_all(self._map)
