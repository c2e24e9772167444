"""waitress on a thread of its own, its dispatcher, and an end that fails no call."""

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import waitress.server
import waitress.wasyncore
from waitress.task import ThreadedTaskDispatcher

from service.http.health import Health
from service.http.waitress_channel import (
    DrainingChannel,
    StripConnectionHeader,
    WsgiApp,
    draining_channel,
)
from service.settings.process import ServerSettings


class IdleStack:
    """Stands in for a `threading.Condition`; wakes who began to wait last.

    Parameters
    ----------
    lock : threading.Lock
        Held by whoever calls.
    """

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._waiting: list[threading.Lock] = []

    def wait(self) -> None:
        """Release the lock until somebody calls `notify`, then take it again."""
        waiter = threading.Lock()
        waiter.acquire()
        self._waiting.append(waiter)
        self._lock.release()
        try:
            waiter.acquire()
        finally:
            self._lock.acquire()

    def notify(self) -> None:
        """Wake the one that began to wait last, if there is one."""
        if self._waiting:
            self._waiting.pop().release()

    def notify_all(self) -> None:
        """Wake all."""
        while self._waiting:
            self.notify()


class LastIdleFirst(ThreadedTaskDispatcher):  # type: ignore[misc]  # untyped library
    """A thread pool that leaves as many threads asleep as it can."""

    def __init__(self) -> None:
        super().__init__()
        self.queue_cv = IdleStack(self.lock)

    @property
    def is_idle(self) -> bool:
        """Whether no thread works, and nothing waits for one."""
        with self.lock:
            return not (self.active_count or self.queue)


logger = logging.getLogger(__name__)

MEBIBYTE: Final = 2**20

MAX_BODY_BYTES: Final = 64 * MEBIBYTE

# One read takes what the kernel has: the defaults cost a third of a large call.
RECV_BYTES: Final = 262_144

POLL_SECONDS: Final = 1.0

# How often idle connections are looked for.
CLEANUP_SECONDS: Final = 30.0

# What was sent before a listening socket closed has arrived by then.
QUIET_SECONDS: Final = 0.1


class ListenError(OSError):
    """An address that cannot be listened on."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(f"cannot listen on {host}:{port}: {reason}")


def waitress_options(settings: ServerSettings, threads: int = 8) -> dict[str, Any]:
    """Return how waitress listens, reads and buffers."""
    return {
        "host": settings.host,
        "port": settings.port,
        "threads": threads,
        # With all of them busy, others wait at twice as many; see `_make_room`.
        "connection_limit": 2 * settings.connection_limit,
        "channel_timeout": settings.idle_timeout_seconds,
        "max_request_body_size": MAX_BODY_BYTES,
        "recv_bytes": RECV_BYTES,
        # Above every body: nothing is written to a temporary file.
        "inbuf_overflow": MAX_BODY_BYTES + MEBIBYTE,
        "outbuf_overflow": 2 * MAX_BODY_BYTES,
        "outbuf_high_watermark": 2 * MAX_BODY_BYTES,
        "asyncore_use_poll": True,
        "ident": None,
        "clear_untrusted_proxy_headers": True,
    }


def wait_quiet(is_idle: Callable[[], bool], seconds: float) -> bool:
    """Wait until nothing has been done for a moment; return whether that came."""
    quiet_since = time.monotonic()
    deadline = quiet_since + seconds
    while True:
        time.sleep(0.01)
        is_quiet = is_idle()
        # A look on a busy machine may last for longer than a moment.
        now = time.monotonic()
        if not is_quiet:
            quiet_since = now
        if now >= min(deadline, quiet_since + QUIET_SECONDS):
            return is_quiet


class HttpServer:
    """One plain-HTTP listener, on each address that its host name has.

    The constructor binds the port, and raises `ListenError` if it cannot.
    """

    def __init__(
        self, app: WsgiApp, settings: ServerSettings, health: Health, threads: int = 8
    ) -> None:
        self._settings = settings
        self._health = health
        self._map: dict[int, Any] = {}
        self.dispatcher = LastIdleFirst()
        try:
            self._server = waitress.server.create_server(
                StripConnectionHeader(app),
                map=self._map,
                _dispatcher=self.dispatcher,
                **waitress_options(settings, threads),
            )
        except ValueError as error:  # waitress found no such host
            raise ListenError(settings.host, settings.port, "no such host") from error
        except OSError as error:
            reason = error.strerror or str(error)
            raise ListenError(settings.host, settings.port, reason) from error
        self.dispatcher.set_thread_count(threads)
        self._listeners = tuple(
            item
            for item in self._map.values()
            if isinstance(item, waitress.server.BaseWSGIServer)
        )
        for listener in self._listeners:
            listener.channel_class = draining_channel(
                lambda: health.is_draining, self._make_room
            )
            # waitress would look by a clock that is set; `_run` looks instead.
            listener.next_channel_cleanup = math.inf
        self._clean_at = 0.0
        self._refusing = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._listeners[0].effective_port)

    def start(self) -> None:
        """Start serving."""
        self._thread.start()
        self._health.serve()

    def _run(self) -> None:
        is_listening = True
        while not self._stopped.is_set():
            waitress.wasyncore.loop(
                timeout=POLL_SECONDS, use_poll=True, map=self._map, count=1
            )
            self._end_idle_connections(time.monotonic())
            if is_listening and self._refusing.is_set():
                self._close_listeners()
                is_listening = False

    def _end_idle_connections(self, now: float) -> None:
        """Let connections go on which nothing has happened for long, now and then."""
        if now >= self._clean_at:
            self._clean_at = now + CLEANUP_SECONDS
            for listener in self._listeners:
                listener.maintenance(now)

    def _make_room(self, newcomer: DrainingChannel) -> None:
        """Let connections go that are more than there may be, the longest idle first.

        After those come clients that are sending a request, then such as take no
        answer; a call that is worked on is never cut off.
        """
        channels = [
            channel
            for listener in self._listeners
            for channel in list(listener.active_channels.values())
            if not channel.will_close
        ]
        excess = len(channels) - self._settings.connection_limit
        if excess <= 0:
            return
        waiting = [
            channel
            for channel in channels
            if channel is not newcomer and not channel.requests
        ]
        waiting.sort(
            key=lambda channel: (
                bool(channel.total_outbufs_len),
                channel.request is not None,
                channel.last_activity,
            )
        )
        for channel in waiting[:excess]:
            # Closed in the loop's next turn: another must not get its descriptor, and
            # what has come on it, in this one.
            channel.will_close = True
            fields = {"client": channel.addr[:2], "reason": "let go"}
            logger.debug("connection ended", extra={"fields": fields})

    def _close_listeners(self) -> None:
        """Take what waits to be accepted, then refuse connections."""
        for listener in self._listeners:
            held = -1
            while len(listener.active_channels) > held:
                held = len(listener.active_channels)
                listener.handle_accept()
            listener.del_channel(self._map)
            listener.socket.close()

    def drain(
        self, interrupted: threading.Event, before: Callable[[], None] | None = None
    ) -> None:
        """Turn readiness off, serve on for a while, let calls finish, stop.

        Parameters
        ----------
        interrupted
            Cuts the serving-on short.
        before
            Called before this listener refuses connections: lets the calls of another
            one finish, which has its workers from this one.
        """
        self._health.drain()
        logger.info("draining started")
        interrupted.wait(self._settings.drain_seconds)
        if before is not None:
            before()
        self._refusing.set()
        self._wake()
        is_idle = wait_quiet(self._is_idle, self._settings.stop_seconds)
        self.stop()
        logger.info("server stopped", extra={"fields": {"idle": is_idle}})

    def _is_idle(self) -> bool:
        """Whether no call is being received, worked on or answered."""
        return self.dispatcher.is_idle and not any(
            channel.requests or channel.total_outbufs_len or channel.request
            for listener in self._listeners
            for channel in list(listener.active_channels.values())
        )

    def _wake(self) -> None:
        """Make the server's thread look at what has changed."""
        self._listeners[0].pull_trigger()

    def stop(self) -> None:
        """Stop at once."""
        self._stopped.set()
        self._wake()
        self._thread.join()
        self._server.task_dispatcher.shutdown()
        waitress.wasyncore.close_all(self._map)
