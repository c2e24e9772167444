"""One HTTPS connection that never makes a thread wait for its client.

The intake's thread shakes hands and reads whole requests; a worker answers from
memory; what the client does not take at once, the intake sends. See
docs/decisions/0004-tls.md.
"""

import contextlib
import enum
import io
import socket
import ssl
import time
from collections.abc import Callable
from typing import Final

import cheroot.server

from service.http.framing import HEAD_END, Frame, RefusedRequestError, read_frame
from service.http.middleware import MAX_REVIEW_BYTES
from service.http.waitress_channel import ARRIVED_KEY, encode_error

HANDSHAKE_SECONDS: Final = 5.0

# From the first byte of a request to its last, and of an answer likewise.
REQUEST_SECONDS: Final = 10.0

# Longer than the 90 s for which Go's clients keep an idle connection.
IDLE_SECONDS: Final = 150.0

# How long a refused client may go on sending before it is cut off.
LINGER_SECONDS: Final = 2.0

MAX_HEAD_BYTES: Final = 32 * 2**10

RECEIVE_BYTES: Final = 262_144

SEND_BYTES: Final = 65_536

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class Next(enum.Enum):
    """What a connection waits for."""

    BYTES = enum.auto()  # from the client
    ROOM = enum.auto()  # to send to the client
    WORKER = enum.auto()  # a whole request is there
    END = enum.auto()  # it can be closed


class _Answer:
    """The file object that cheroot writes an answer to."""

    def __init__(self, outgoing: bytearray) -> None:
        self._outgoing = outgoing

    def write(self, data: bytes) -> int:
        """Keep what is to be sent; the intake has said ``100 Continue`` itself."""
        if data != CONTINUE:
            self._outgoing += data
        return len(data)


class Connection(cheroot.server.HTTPConnection):
    """One connection; the intake's thread and one worker have it in turns.

    Parameters
    ----------
    server : cheroot.server.HTTPServer
    sock : ssl.SSLSocket
        Not blocking, and not shaken hands on yet.
    is_closing : callable
        Whether to end the connection after the present answer.
    """

    def __init__(
        self,
        server: cheroot.server.HTTPServer,
        sock: ssl.SSLSocket,
        is_closing: Callable[[], bool],
    ) -> None:
        super().__init__(server, sock, lambda *_: io.BytesIO())
        self._is_closing = is_closing
        self.received = bytearray()
        self._outgoing = bytearray()
        self._searched = 0
        self._frame: Frame | None = None
        # monotonic time of the present request's first byte
        self._arrived: float | None = None
        self._has_shaken_hands = False
        self._is_kept = True
        self._is_lingering = False
        self.since = time.monotonic()
        self.deadline = self.since + HANDSHAKE_SECONDS

    @property
    def is_idle(self) -> bool:
        """Whether the client owes nothing and is owed nothing."""
        return self._has_shaken_hands and self._arrived is None and not self._outgoing

    def proceed(self) -> Next:
        """Do what can be done without waiting; say what to wait for then."""
        try:
            if not self._has_shaken_hands:
                self.socket.do_handshake()
                self._has_shaken_hands = True
                self._rest()
            return self._exchange()
        except (ssl.SSLWantReadError, BlockingIOError):
            return Next.BYTES
        except ssl.SSLWantWriteError:
            return Next.ROOM
        except RefusedRequestError as error:
            return self.refuse(error.status)
        except OSError:  # the client is gone, or speaks something else
            return Next.END

    def refuse(self, status: str) -> Next:
        """Answer by ourselves, then listen no more."""
        body = encode_error(status)
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self._outgoing += head.encode() + body
        self.received.clear()
        self._arrived = None
        self._is_kept = False
        self._set_deadline(LINGER_SECONDS)
        return self.proceed()

    def communicate(self) -> bool:
        """Answer the request that has come; a worker calls this."""
        frame = self._frame
        assert frame is not None, "a worker got a connection without a request"  # noqa: S101  ours to keep
        self.rfile = io.BytesIO(bytes(self.received[: frame.length]))
        self.wfile = _Answer(self._outgoing)
        self.ssl_env = {
            "wsgi.url_scheme": "https",
            "HTTPS": "on",
            ARRIVED_KEY: self._arrived,
        }
        is_kept = super().communicate()  # type: ignore[no-untyped-call]  # its stub
        self._is_kept = bool(is_kept) and not self._is_closing()
        del self.received[: frame.length]
        self._frame, self._arrived, self._searched = None, None, 0
        self._set_deadline(REQUEST_SECONDS)
        with contextlib.suppress(OSError):  # what is left, or is wrong, the intake sees
            self._send()
            self._rest()
        return True

    def _exchange(self) -> Next:
        """Send what is owed, then read what comes."""
        if self._is_lingering:
            return self._linger()
        if self._outgoing:
            self._send()
            if self._arrived is None:
                self._rest()
        if not self._is_kept:
            self.socket.shutdown(socket.SHUT_WR)
            self._is_lingering = True
            self._set_deadline(LINGER_SECONDS)
            return self._linger()
        return self._receive()

    def _send(self) -> None:
        while self._outgoing:
            count = self.socket.send(bytes(self._outgoing[:SEND_BYTES]))
            del self._outgoing[:count]

    def _linger(self) -> Next:
        """Throw away what still comes: closed upon it, the answer would be lost."""
        while self.socket.recv(RECEIVE_BYTES):
            pass
        return Next.END

    def _receive(self) -> Next:
        """Read until a request is whole or nothing more is there."""
        while not self._is_whole():
            data = self.socket.recv(RECEIVE_BYTES)
            if not data:
                return Next.END
            self.received += data
        return Next.WORKER

    def _is_whole(self) -> bool:
        """Say whether a request is there; raise `RefusedRequestError` if not to be."""
        if not self.received:
            return False
        if self._arrived is None:
            self._arrived = time.monotonic()
            self._set_deadline(REQUEST_SECONDS)
        if self._frame is None:
            self._frame = self._read_head()
            if self._frame is None:
                return False
            if self._frame.is_expecting and len(self.received) < self._frame.length:
                self._outgoing += CONTINUE
                self._send()
        return len(self.received) >= self._frame.length

    def _read_head(self) -> Frame | None:
        """Return the extent of the request, None until its head is there."""
        while self.received.startswith(b"\r\n"):  # after a request: allowed, ignored
            del self.received[:2]
        end = self.received.find(HEAD_END, max(0, self._searched - len(HEAD_END)))
        self._searched = len(self.received)
        if max(end, 0 if end >= 0 else self._searched) > MAX_HEAD_BYTES:
            raise RefusedRequestError("431 Request Header Fields Too Large")
        if end < 0:
            return None
        return read_frame(bytes(self.received[: end + len(HEAD_END)]), MAX_REVIEW_BYTES)

    def _rest(self) -> None:
        """Wait for the next request, for as long as Go's clients might."""
        self._set_deadline(IDLE_SECONDS)

    def _set_deadline(self, seconds: float) -> None:
        self.since = time.monotonic()
        self.deadline = self.since + seconds

    def expire(self) -> Next:
        """Be told that the deadline has passed."""
        if self._arrived is None or self._outgoing:
            return Next.END
        return self.refuse("408 Request Timeout")
