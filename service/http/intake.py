"""`Intake`: the thread that has all HTTPS connections which no worker answers.

It stands in for cheroot's own, which shakes hands and reads heads and bodies in the
workers: eight clients that send byte by byte would hold eight of them.
"""

import collections
import contextlib
import errno
import logging
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Final

import cheroot.server

from service.http.connection import Connection, Next

logger = logging.getLogger(__name__)

# One more, and the client is let go that has kept us waiting longest.
MAX_CONNECTIONS: Final = 1000

# Of requests that are not whole yet, all together.
MAX_RECEIVED_BYTES: Final = 256 * 2**20

ACCEPTS_PER_TURN: Final = 64

OUT_OF_ROOM: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

# How often deadlines are looked at.
EXPIRE_SECONDS: Final = 0.1


class Intake:
    """Owns every connection until its request is whole, and after its answer.

    cheroot calls `run`, `put`, `stop` and `close`; workers call `put` alone.

    Parameters
    ----------
    server : cheroot.server.HTTPServer
        Prepared, so that it listens.
    context : callable
        Returns what new connections shake hands with.
    is_closing : callable
        Whether connections are to end after their present answer.
    """

    can_add_keepalive_connection = True

    def __init__(
        self,
        server: cheroot.server.HTTPServer,
        context: Callable[[], ssl.SSLContext],
        is_closing: Callable[[], bool],
    ) -> None:
        self._server = server
        self._context = context
        self._is_closing = is_closing
        self._listener: socket.socket = server.socket
        self._listener.settimeout(0)
        self._connections: set[Connection] = set()
        self._working: set[Connection] = set()
        # what workers are done with
        self._returned: collections.deque[Connection] = collections.deque()
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        self._woken.settimeout(0)
        self._waker.settimeout(0)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._expired = time.monotonic()
        self._refusing = threading.Event()
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._ended.set()

    # --- called by other threads ---------------------------------------------

    def put(self, connection: Connection) -> None:
        """Take a connection back from a worker."""
        self._returned.append(connection)
        self._ring()

    def refuse(self) -> None:
        """Accept what waits, then listen no more; what is open is served on."""
        self._refusing.set()
        self._ring()

    @property
    def is_idle(self) -> bool:
        """Whether no client is owed an answer; true at a moment, not for good."""
        return not self._working and all(
            connection.is_idle for connection in tuple(self._connections)
        )

    def stop(self) -> None:
        """End the loop; returns when it has ended."""
        self._stopping.set()
        self._ring()
        self._ended.wait()

    def close(self) -> None:
        """Close every connection; the loop has ended."""
        for connection in self._connections - self._working:
            self._close(connection)
        self._selector.close()
        self._woken.close()
        self._waker.close()

    def _ring(self) -> None:
        """Wake the loop."""
        # Full: it will wake anyway. Closed: nothing is left to wake.
        with contextlib.suppress(OSError):
            self._waker.send(b".")

    # --- the loop's own ------------------------------------------------------

    def run(self, _expiration_interval: float) -> None:
        """Serve until `stop`."""
        self._ended.clear()
        try:
            while not self._stopping.is_set():
                self._turn()
        finally:
            self._ended.set()

    def _turn(self) -> None:
        """Wait for something to do, and do it."""
        for key, _ in self._selector.select(EXPIRE_SECONDS):
            if key.fileobj is self._listener:
                self._accept()
            elif key.fileobj is self._woken:
                self._woken.recv(4096)
            else:
                self._proceed(key.data)
        while self._returned:
            connection = self._returned.popleft()
            self._working.discard(connection)
            self._proceed(connection)
        if self._refusing.is_set() and self._listener.fileno() >= 0:
            self._accept()
            self._selector.unregister(self._listener)
            self._listener.close()
        if time.monotonic() - self._expired > EXPIRE_SECONDS:
            self._expire()

    def _accept(self) -> None:
        """Take new connections."""
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, address = self._listener.accept()
            except OSError as error:
                if error.errno in OUT_OF_ROOM:
                    fields = {"error": str(error)}
                    logger.warning("connection not accepted", extra={"fields": fields})
                    self._let_go()
                return
            if len(self._connections) >= MAX_CONNECTIONS:
                self._let_go()
            self._open(sock, address)

    def _open(self, sock: socket.socket, address: tuple[str, int]) -> None:
        """Begin with one connection."""
        try:
            sock.settimeout(0)
            wrapped = self._context().wrap_socket(
                sock, server_side=True, do_handshake_on_connect=False
            )
        except OSError:  # gone already
            sock.close()
            return
        connection = Connection(self._server, wrapped, self._is_closing)
        connection.remote_addr, connection.remote_port = address[:2]
        self._connections.add(connection)
        self._proceed(connection)

    def _proceed(self, connection: Connection) -> None:
        self._follow(connection, connection.proceed())

    def _follow(self, connection: Connection, what: Next) -> None:
        """Wait for what a connection says it needs next."""
        if what is Next.END:
            self._close(connection)
        elif what is Next.WORKER:
            self._unwatch(connection)
            self._working.add(connection)
            self._server.process_conn(connection)
        else:
            events = (
                selectors.EVENT_READ if what is Next.BYTES else selectors.EVENT_WRITE
            )
            self._watch(connection, events)

    def _watch(self, connection: Connection, events: int) -> None:
        known = self._selector.get_map().get(connection.socket)
        if known is None:
            self._selector.register(connection.socket, events, connection)
        elif known.events != events:
            self._selector.modify(connection.socket, events, connection)

    def _unwatch(self, connection: Connection) -> None:
        # It may not be watched, or be closed already.
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection.socket)

    def _close(self, connection: Connection) -> None:
        self._unwatch(connection)
        self._connections.discard(connection)
        with contextlib.suppress(OSError):
            connection.close()

    def _expire(self) -> None:
        """End what has taken too long, or too much memory."""
        self._expired = now = time.monotonic()
        waiting = self._connections - self._working
        for connection in waiting:
            if connection.deadline < now:
                self._follow(connection, connection.expire())
        held_bytes = sum(len(connection.received) for connection in waiting)
        while held_bytes > MAX_RECEIVED_BYTES:
            largest = max(waiting, key=lambda connection: len(connection.received))
            held_bytes -= len(largest.received)
            waiting.discard(largest)
            self._close(largest)

    def _let_go(self) -> None:
        """Close what has kept us waiting longest, an idle client last."""
        waiting = self._connections - self._working
        if waiting:
            self._close(min(waiting, key=lambda item: (item.is_idle, item.since)))
