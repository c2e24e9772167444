"""The HTTPS listener: TLS on asyncio's loop, and waitress for all that is HTTP.

One thread accepts, shakes hands and reads, and never waits for one client; waitress's
parser, tasks and workers are those of plain HTTP. See docs/decisions/0004-tls.md.
"""

import asyncio
import contextlib
import enum
import errno
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import waitress.adjustments
from waitress.channel import ClientDisconnected

from service.certificates.files import ServedCertificate
from service.http.middleware import MAX_REVIEW_BYTES
from service.http.plain import LastIdleFirst, ListenError, wait_quiet
from service.http.waitress_channel import (
    DrainingChannel,
    Refusal,
    StrictParser,
    StripConnectionHeader,
    WsgiApp,
)
from service.settings.process import WebhookSettings

logger = logging.getLogger(__name__)

HANDSHAKE_SECONDS: Final = 5.0
# From the first byte of a request to its last, and of an answer likewise.
REQUEST_SECONDS: Final = 10.0
# Longer than the 90 s for which Go's clients keep an idle connection.
IDLE_SECONDS: Final = 150.0
# The same while callers are sent elsewhere. A client that begins to use a connection at
# the moment of its end sees a failed call: it is not done where a process just stops.
CLOSING_IDLE_SECONDS: Final = 1.0
# How long a client may go on sending after its last answer before it is cut off.
LINGER_SECONDS: Final = 2.0
# For calls under way when the process stops.
STOP_SECONDS: Final = 5.0
# How often deadlines are looked at.
EXPIRE_SECONDS: Final = 0.1
# One more, and the client is let go that has kept us waiting longest.
MAX_CONNECTIONS: Final = 1000
# Of requests that are not whole yet, all together.
MAX_RECEIVED_BYTES: Final = 256 * 2**20
MAX_HEAD_BYTES: Final = 32 * 2**10
ACCEPTS_PER_TURN: Final = 64
ACCEPT_QUEUE: Final = 128
# The kernel hands over a connection only once the client has sent something.
DEFER_ACCEPT_SECONDS: Final = 10
OUT_OF_ROOM: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
# The most that TLS has in one record. Reads of as much leave nothing in OpenSSL that
# the loop would not see.
RECORD_BYTES: Final = 16_384
RECORDS_PER_TURN: Final = 4
# What is sent at a time.
PIECE_BYTES: Final = 65_536


class _State(enum.Enum):
    """Stages of a connection."""

    SHAKING_HANDS = enum.auto()
    OPEN = enum.auto()
    ENDING = enum.auto()  # all is sent but TLS's own end
    LINGERING = enum.auto()
    CLOSED = enum.auto()


class TlsChannel(DrainingChannel):
    """One connection: waitress's, with TLS, and driven by the loop of its listener.

    The loop's thread does everything but answer. A worker answers, and sends what the
    client takes at once.

    Parameters
    ----------
    client
        Not blocking, and not shaken hands on yet.
    """

    parser_class = StrictParser

    # The request that is not whole yet, None while none is being received.
    request: Any

    def __init__(
        self,
        server: "HttpsServer",
        loop: asyncio.AbstractEventLoop,
        client: ssl.SSLSocket,
        address: tuple[Any, ...],
    ) -> None:
        super().__init__(server, client, address, server.adj, {})
        self._loop = loop
        self._client = client
        # Held for whatever TLS does, since a worker may send. Whoever needs waitress's
        # `requests_lock`, too, takes that first.
        self._lock = threading.RLock()
        self._state = _State.SHAKING_HANDS
        self._outgoing = bytearray()
        # whether a request waits for the last answer to be taken
        self._is_held_back = False
        self._has_client_ended = False
        # What TLS waits for. It may have to send before it can read on.
        self._wants_bytes = False
        self._wants_room = False
        self._is_reading = False
        self._is_writing = False
        # monotonic time of the last change: connected, shaken hands, answered, ended
        self._since = time.monotonic()
        self._unsent_since: float | None = None
        self._received_bytes = 0

    @staticmethod
    def lets_go() -> bool:
        """Whether idle connections are to end soon."""
        return False

    @property
    def is_working(self) -> bool:
        """Whether a whole request is with the workers."""
        return bool(self.requests)

    @property
    def is_idle(self) -> bool:
        """Whether the client owes nothing and is owed nothing."""
        return self._state is not _State.SHAKING_HANDS and not (
            self.requests or self.request or self._outgoing
        )

    @property
    def since(self) -> float:
        """Since when the client has kept us waiting, in monotonic time."""
        request = self.request
        return self._since if request is None else float(request.arrived)

    @property
    def received_bytes(self) -> int:
        """Bytes held of a request that is not whole yet."""
        return 0 if self.request is None else self._received_bytes

    # --- what waitress calls, in a worker or in the loop's thread ------------

    def write_soon(self, data: Any) -> int:
        """Send some data, now or as soon as the client reads."""
        if self._held is not None:
            return super().write_soon(data)
        with self._lock:
            if not self.connected:
                raise ClientDisconnected
            self._outgoing += data
            with contextlib.suppress(OSError):  # the loop's thread will see it, too
                self._send()
            is_sent = not self._outgoing
        if not is_sent:
            self._wake()
        return len(data)

    def send_continue(self) -> None:
        """Tell a client that waits for it to go on."""
        self.request.expect_continue = False
        self.request.completed = False
        self.sent_continue = True
        self.write_soon(b"HTTP/1.1 100 Continue\r\n\r\n")

    def may_answer(self) -> bool:
        """Whether the next request may be answered: the client has taken the last.

        Else whoever sends requests and reads no answer would have us keep them all.
        """
        with self._lock:
            self._is_held_back = bool(self._outgoing)
            return not self._is_held_back

    def service(self) -> None:
        """Answer one request; a worker calls this."""
        super().service()
        with self._lock:
            is_watched = self._is_reading and not self.close_when_flushed
        if not is_watched:
            self._wake()

    def _wake(self) -> None:
        """Have the loop's thread look at the connection."""
        with contextlib.suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self.turn)

    # --- the loop's own ------------------------------------------------------

    def turn(self) -> None:
        """Do what can be done without waiting, then wait for what is missing."""
        if self._state is _State.CLOSED:
            return
        try:
            self._proceed()
        except (OSError, ClientDisconnected) as error:  # gone, or no TLS
            self.close(str(error))
        except Exception:
            # Else the loop would try again at once, and for ever.
            logger.exception("connection failed")
            self.close("a fault of ours")

    def _proceed(self) -> None:
        with self._lock:
            self._wants_bytes = self._wants_room = False
            if self._state is _State.SHAKING_HANDS:
                self._shake_hands()
            if self._state is _State.OPEN:
                self._send()
            has_room_again = self._is_held_back and not self._outgoing
        if has_room_again:
            self.server.add_task(self)
        is_new = self._receive()
        if self._state is _State.OPEN and self._is_done():
            self._state = _State.ENDING
            with self.requests_lock:  # a worker may still be looking at it
                self.request = None  # what has begun to come will not be answered
        if self._state is _State.ENDING:
            self._end()
        if self._state is _State.LINGERING:
            self._linger()
        if self._state is not _State.CLOSED:
            self._watch(is_new=is_new)

    def _may_read(self) -> bool:
        """Whether something is wanted of the client."""
        return self._state is _State.OPEN and not (
            self.requests
            or self._outgoing
            or self._has_client_ended
            or self.close_when_flushed
        )

    def _is_done(self) -> bool:
        """Whether the connection is to end, and nothing is owed any more."""
        has_ended = self._has_client_ended or self.close_when_flushed
        return bool(has_ended and not (self.requests or self._outgoing))

    def _watch(self, *, is_new: bool) -> None:
        """Wait for bytes, for room, for both or for nothing.

        PERF: while a worker answers, a client that has just sent something is watched
        on. It seldom sends more before the answer, and is not to be watched again then.
        """
        with self._lock:
            reading = (
                self._wants_bytes
                or self._state is _State.LINGERING
                or (is_new and not self._has_client_ended)
                or (self._may_read() and not self._wants_room)
            )
            writing = self._wants_room
            if reading != self._is_reading:
                self._is_reading = reading
                if reading:
                    self._loop.add_reader(self._client, self.turn)
                else:
                    self._loop.remove_reader(self._client)
            if writing != self._is_writing:
                self._is_writing = writing
                if writing:
                    self._loop.add_writer(self._client, self.turn)
                else:
                    self._loop.remove_writer(self._client)

    def _attempt(self, operation: Callable[..., Any], *arguments: Any) -> Any:
        """Return what an operation of TLS gives; note what it waits for, if it does."""
        try:
            return operation(*arguments)
        except ssl.SSLWantReadError:
            self._wants_bytes = True
        except ssl.SSLWantWriteError:
            self._wants_room = True
        return None

    def _shake_hands(self) -> None:
        self._attempt(self._client.do_handshake)
        if not (self._wants_bytes or self._wants_room):
            self._state = _State.OPEN
            self._since = time.monotonic()

    def _send(self) -> None:
        """Send as much as the client takes; with the lock held."""
        if not self._outgoing:
            return
        while self._outgoing:
            piece = bytes(self._outgoing[:PIECE_BYTES])
            count = self._attempt(self._client.send, piece)
            if count is None:
                self._unsent_since = self._unsent_since or time.monotonic()
                return
            del self._outgoing[:count]
        self._unsent_since = None
        self._since = time.monotonic()

    def _receive(self) -> bool:
        """Take in what has come, for as long as it is wanted; return whether it has.

        Nothing is read behind a whole request: there may be the end of TCP, upon which
        OpenSSL would not send the answer any more.
        """
        for number in range(RECORDS_PER_TURN):
            with self._lock:
                record = self._read() if self._may_read() else b""
            if not record:
                return number > 0
            self.received(record)
            if len(record) < RECORD_BYTES:
                break
        return True

    def _read(self) -> bytes:
        """Return one record; nothing if there is none, or no more will come."""
        record = self._attempt(self._client.recv, RECORD_BYTES)
        self._has_client_ended = record == b""
        return record or b""

    def received(self, data: bytes) -> bool:
        """Take in some bytes; blank lines between requests begin none."""
        if self.request is None:
            self._received_bytes = 0
        self._received_bytes += len(data)
        is_taken = bool(super().received(data))
        with self.requests_lock:
            request = self.request
            if request is not None and not (
                request.headers_finished or request.header_plus.strip()
            ):
                self.request = None
        return is_taken

    def _end(self) -> None:
        """Say that no more will come, in TLS and below it."""
        try:
            self._client.unwrap()
        except ssl.SSLWantWriteError:
            self._wants_room = True
            return
        except ssl.SSLError:
            # Said, and not answered: the client is still sending, or silent.
            pass
        self._client.shutdown(socket.SHUT_WR)
        self._state = _State.LINGERING
        self._since = time.monotonic()

    def _linger(self) -> None:
        """Throw away what still comes: closed upon it, the answer would be lost."""
        with contextlib.suppress(BlockingIOError):
            if not self._client.recv(PIECE_BYTES):
                self.close("done")

    def expire(self, now: float) -> None:
        """End what has taken too long; `now` is the monotonic time."""
        unsent_since, request = self._unsent_since, self.request
        age_seconds = now - self._since
        if self._state is _State.SHAKING_HANDS:
            is_due = age_seconds > HANDSHAKE_SECONDS
        elif self._state is not _State.OPEN:
            is_due = age_seconds > LINGER_SECONDS
        elif unsent_since is not None:
            is_due = now - unsent_since > REQUEST_SECONDS
        elif request is not None and now - request.arrived > REQUEST_SECONDS:
            self._give_up()
            return
        elif self.is_idle and self.lets_go() and age_seconds > CLOSING_IDLE_SECONDS:
            self.turn()  # what has come since the loop looked is still answered
            if self.is_idle:
                self.close_when_flushed = True
                self.turn()
            return
        else:
            is_due = self.is_idle and age_seconds > IDLE_SECONDS
        if is_due:
            self.close(f"{self._state.name.lower()} for too long")

    def _give_up(self) -> None:
        """Answer 408, once the requests before this one are answered."""
        with self.requests_lock:
            request, self.request = self.request, None
            request.refuse(Refusal("408", "Request Timeout"))
            self.requests.append(request)
            if len(self.requests) == 1:
                self.server.add_task(self)

    def close(self, reason: str = "") -> None:
        """Close the connection."""
        if self._state is _State.CLOSED:
            return
        self._state = _State.CLOSED
        fields = {"client": self.addr[:2], "reason": reason}
        logger.debug("connection ended", extra={"fields": fields})
        self._loop.remove_reader(self._client)
        self._loop.remove_writer(self._client)
        with self._lock:
            super().close()


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
    """One HTTPS listener; what waitress calls a server, too.

    The constructor binds the port; it raises `ListenError` if it cannot.

    Parameters
    ----------
    certificate
        Its context is asked for at each connection.
    is_closing
        Whether connections are to end after their present answer.
    dispatcher
        Has the workers; whoever made it ends it after `stop`.
    lets_go
        Whether idle connections are to end soon, too.
    """

    def __init__(  # noqa: PLR0913 - the last one is named
        self,
        app: WsgiApp,
        settings: WebhookSettings,
        certificate: ServedCertificate,
        is_closing: Callable[[], bool],
        dispatcher: LastIdleFirst,
        *,
        lets_go: Callable[[], bool] = lambda: False,
    ) -> None:
        self._certificate = certificate
        try:
            self._listener = _listen(settings.host, settings.port)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ListenError(settings.host, settings.port, reason) from error
        self.port = self.effective_port = int(self._listener.getsockname()[1])
        self.adj = waitress.adjustments.Adjustments(
            url_scheme="https",
            ident=None,
            max_request_header_size=MAX_HEAD_BYTES,
            max_request_body_size=MAX_REVIEW_BYTES + 1,  # refused if it is as much
            # Above every body: nothing is written to a temporary file.
            inbuf_overflow=2 * MAX_REVIEW_BYTES,
        )
        self.server_name = self.adj.server_name
        self.application = StripConnectionHeader(app)
        self._dispatcher = dispatcher
        # file descriptor -> connection; waitress keeps it
        self.active_channels: dict[int, TlsChannel] = {}
        self._channel_class: type[TlsChannel] = type(
            "Channel",
            (TlsChannel,),
            {"is_closing": staticmethod(is_closing), "lets_go": staticmethod(lets_go)},
        )
        self._loop = asyncio.new_event_loop()
        self._is_refusing = False
        self._thread = threading.Thread(target=self._run, name="https", daemon=True)

    def add_task(self, channel: TlsChannel) -> None:
        """Have a worker answer the connection's next request, when it may."""
        if channel.may_answer():
            self._dispatcher.add_task(channel)

    def pull_trigger(self) -> None:
        """Do nothing: connections wake the loop when there is something to do."""

    @property
    def is_idle(self) -> bool:
        """Whether no client is owed an answer; true at a moment, not for good."""
        return all(channel.is_idle for channel in self._channels())

    def _channels(self) -> list[TlsChannel]:
        return list(self.active_channels.values())

    def start(self) -> None:
        """Start serving."""
        self._thread.start()

    def stop(self) -> None:
        """Accept no more, let calls under way finish, then stop."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._refuse)
            wait_quiet(lambda: self.is_idle, STOP_SECONDS)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        for channel in self._channels():
            channel.close("the process stops")
        self._listener.close()
        self._loop.close()

    # --- the loop's own ------------------------------------------------------

    def _run(self) -> None:
        self._loop.call_soon(self._tick)
        self._loop.run_forever()

    def _tick(self) -> None:
        """End what has taken too long, or too much memory; accept again."""
        self._loop.call_later(EXPIRE_SECONDS, self._tick)
        now = time.monotonic()
        for channel in self._channels():
            channel.expire(now)
        self._bound_received()
        if not self._is_refusing:
            self._loop.add_reader(self._listener, self._accept)

    def _bound_received(self) -> None:
        """Close the largest of the requests that are too much all together."""
        channels = self._channels()
        held_bytes = sum(channel.received_bytes for channel in channels)
        if held_bytes > MAX_RECEIVED_BYTES:
            channels.sort(key=lambda channel: channel.received_bytes)
        while held_bytes > MAX_RECEIVED_BYTES:
            largest = channels.pop()
            held_bytes -= largest.received_bytes
            largest.close("too much received")

    def _refuse(self) -> None:
        """Accept what waits, then listen no more; what is open is served on."""
        self._is_refusing = True
        # One more than that is what the kernel keeps.
        for _ in range(0, ACCEPT_QUEUE + 1, ACCEPTS_PER_TURN):
            self._accept()
        self._loop.remove_reader(self._listener)
        self._listener.close()

    def _accept(self) -> None:
        """Take new connections."""
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, address = self._listener.accept()
            except OSError as error:
                if error.errno in OUT_OF_ROOM:
                    fields = {"error": str(error)}
                    logger.warning("connection not accepted", extra={"fields": fields})
                    if not self._let_go():
                        # Until the next tick: it would fail again at once.
                        self._loop.remove_reader(self._listener)
                return
            if len(self.active_channels) >= MAX_CONNECTIONS:
                self._let_go()
            self._open(sock, address)

    def _open(self, sock: socket.socket, address: tuple[Any, ...]) -> None:
        """Begin with one connection."""
        try:
            sock.settimeout(0)
            client = self._certificate.context.wrap_socket(
                sock, server_side=True, do_handshake_on_connect=False
            )
        except OSError:  # gone already
            sock.close()
            return
        self._channel_class(self, self._loop, client, address).turn()

    def _let_go(self) -> bool:
        """Close what has kept us waiting longest, an idle client last.

        Returns whether there was one; a client that a worker answers is none.
        """
        waiting = [item for item in self._channels() if not item.is_working]
        if not waiting:
            return False
        min(waiting, key=lambda item: (item.is_idle, item.since)).close("let go")
        return True


def _listen(host: str, port: int) -> socket.socket:
    """Return a listening socket on the first address that the host name has."""
    family, *_, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, DEFER_ACCEPT_SECONDS
        )
        if host == "::":  # IPv4, too
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.settimeout(0)
        listener.bind(address)
        listener.listen(ACCEPT_QUEUE)
    except OSError:
        listener.close()
        raise
    return listener
