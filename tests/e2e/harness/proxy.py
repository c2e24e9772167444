"""A TCP proxy on loopback that a test can make slow, silent or broken.

It moves bytes and understands none, so TLS passes through unchanged.
"""

import asyncio
import contextlib
import itertools
import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, Self

from tests.e2e.harness.ports import LOOPBACK, free_port

CHUNK_BYTES: Final = 65_536
# SO_LINGER on with 0 s: closing sends RST instead of FIN.
RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


class TcpProxy:
    """Forwards connections to a port; faults act on bytes from server to client.

    With several ports, each connection goes to the next one in turn; with none, it is
    reset at its first byte. A listener may be one of another network.

    An event loop in a thread of its own does the work; every method may be called
    from the test's thread at any time and acts on open connections, too.
    """

    def __init__(
        self, *target_ports: int, listener: socket.socket | None = None
    ) -> None:
        self._listener = listener or socket.create_server((LOOPBACK, free_port()))
        self._listener.settimeout(0)
        self.host: str
        self.port: int
        self.host, self.port = self._listener.getsockname()
        self.accepted = 0
        self._targets = itertools.cycle(target_ports)
        self._delay_seconds = 0.0
        self._is_refusing = False
        self._loop = asyncio.new_event_loop()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._connections: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()  # to clients and to the server
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The proxy's address for a client of the API server."""
        return f"https://{self.host}:{self.port}"

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._connections)

    def start(self) -> None:
        """Listen and forward."""
        self._thread.start()
        self._in_loop(lambda: self._loop.add_reader(self._listener, self._accept))

    def stop(self) -> None:
        """Close every connection and stop listening."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def lead_to(self, *target_ports: int) -> None:
        """Forward new connections to these ports; those that are open stay."""
        self._in_loop(lambda: self._lead_to(target_ports))

    def delay(self, seconds: float) -> None:
        """Deliver what the server sends from now on this much later, in order."""
        self._delay_seconds = seconds

    def hold(self) -> None:
        """Keep back what the server sends, connections open: a silent stream."""
        self._in_loop(self._flowing.clear)

    def release(self) -> None:
        """Deliver what was kept back, and all that follows."""
        self._in_loop(self._flowing.set)

    def refuse(self, *, on: bool = True) -> None:
        """Reset new connections at their first byte, or accept them again.

        A connection that is reset before its TLS handshake begins stays open in
        CPython's ``SSLSocket``, until it is collected with a warning.
        """
        self._is_refusing = on

    def cut(self) -> None:
        """Reset all connections that are open; new ones are accepted."""
        self._in_loop(self._cut)

    def _in_loop(self, action: Callable[[], None]) -> None:
        """Run an action in the loop's thread and wait until it is done."""

        async def run() -> None:
            action()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    async def _close(self) -> None:
        """End every connection and wait until its sockets are closed.

        Nothing is cancelled: a task that is cancelled before it runs closes nothing.
        """
        self._is_refusing = True
        self._loop.remove_reader(self._listener)
        self._listener.close()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            self._cut()
            await asyncio.gather(*others, return_exceptions=True)

    def _lead_to(self, target_ports: Sequence[int]) -> None:
        self._targets = itertools.cycle(target_ports)

    def _cut(self) -> None:
        for writer in self._writers:
            _reset(writer)

    def _accept(self) -> None:
        """Take a connection; asyncio's own server loses those it is closed upon."""
        with contextlib.suppress(BlockingIOError):
            connection, _ = self._listener.accept()
            self.accepted += 1
            # asyncio sets it only where the socket names its protocol.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = self._loop.create_task(self._serve(connection))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

    async def _serve(self, connection: socket.socket) -> None:
        from_client, to_client = await asyncio.open_connection(sock=connection)
        # A peer that goes away ends the connection, and is no fault.
        with contextlib.suppress(OSError):
            async with self._closing(to_client):
                target_port = next(self._targets, None)
                if self._is_refusing or target_port is None:
                    await from_client.read(1)
                    _reset(to_client)
                    return
                from_server, to_server = await asyncio.open_connection(
                    LOOPBACK, target_port
                )
                async with self._closing(to_server):
                    await self._forward(from_client, to_server, from_server, to_client)

    @contextlib.asynccontextmanager
    async def _closing(self, writer: asyncio.StreamWriter) -> AsyncIterator[None]:
        """Close a connection at the end, and wait until its socket is closed."""
        self._writers.add(writer)
        try:
            yield
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            self._writers.discard(writer)

    async def _forward(
        self,
        from_client: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
        from_server: asyncio.StreamReader,
        to_client: asyncio.StreamWriter,
    ) -> None:
        """Move bytes both ways until either side ends."""
        held: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        tasks = [
            asyncio.create_task(_copy(from_client, to_server)),
            asyncio.create_task(self._receive(from_server, held)),
            asyncio.create_task(self._deliver(held, to_client)),
        ]
        # The reader of the server ends first when the server does; what it has read
        # is still to be delivered, so only the other two end the connection.
        ends = [tasks[0], tasks[2]]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _receive(
        self,
        from_server: asyncio.StreamReader,
        held: asyncio.Queue[tuple[float, bytes]],
    ) -> None:
        """Note what the server sends with the time of its delivery; b"" is the end."""
        data = b" "
        while data:
            try:
                data = await from_server.read(CHUNK_BYTES)
            except OSError:
                data = b""
            await held.put((self._loop.time() + self._delay_seconds, data))

    async def _deliver(
        self, held: asyncio.Queue[tuple[float, bytes]], to_client: asyncio.StreamWriter
    ) -> None:
        while True:
            due, data = await held.get()
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            await self._flowing.wait()
            if not data:
                return
            to_client.write(data)
            await to_client.drain()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK_BYTES):
        writer.write(data)
        await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    connection: socket.socket = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):  # closed already
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    writer.transport.abort()
