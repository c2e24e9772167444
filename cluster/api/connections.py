"""Connections to the API server: their sockets, and how an answer is read from them."""

import http.client
import socket
from typing import Any, Final

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

BUFFER_BYTES: Final = 262_144

# A dead peer is noticed within a minute also where nothing is read or written. The
# names differ between systems; what a system lacks is left out.
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}

SOCKET_OPTIONS: Final = [
    *HTTPConnection.default_socket_options,
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in _KEEPALIVE.items()
        if hasattr(socket, name)
    ),
]


class _BufferedResponse(http.client.HTTPResponse):
    """Reads from the socket by the quarter of a megabyte, not by 8 KiB.

    PERF: the API server sends each item of a list in chunks of its own, which are read
    one by one; ``bench.cluster.cache`` shows it in the time to sync.
    """

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp.close()
        file = sock.makefile("rb", buffering=BUFFER_BYTES)
        self.fp = file  # type: ignore[assignment]  # typeshed knows the default size


class _Connection(HTTPConnection):
    response_class = _BufferedResponse


class _TlsConnection(HTTPSConnection):
    response_class = _BufferedResponse


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


# scheme -> pool, in the form of urllib3
POOL_CLASSES: Final[dict[str, type[HTTPConnectionPool]]] = {
    "http": _Pool,
    "https": _TlsPool,
}
