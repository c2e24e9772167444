"""Stand-in for kube-proxy and DNS: addresses and names of Services."""

import asyncio
import contextlib
import functools
import random
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.e2e.cluster.spaces import Spaces
from tests.e2e.harness.builders import JsonObject
from tests.e2e.harness.client import ApiClient
from tests.e2e.harness.following import Follower, Key, key_of

CHUNK_BYTES: Final = 65_536
SLICE_API: Final = "discovery.k8s.io/v1"
SERVICE_LABEL: Final = "kubernetes.io/service-name"
DOMAIN: Final = "cluster.local"

Target = tuple[str, int]  # address and port of an endpoint


class Services:
    """Listens on the addresses of Services, and leads each connection to an endpoint.

    As with a kube-proxy, connections that are open stay where they are, endpoints that
    are ready come before those that are ending, and where there is none a connection
    is refused. An event loop in a thread of its own does all of it.

    Parameters
    ----------
    hosts : Path
        The file of names, which pods have as /etc/hosts.
    """

    def __init__(self, client: ApiClient, spaces: Spaces, hosts: Path) -> None:
        self._spaces = spaces
        self._hosts = hosts
        self._services: dict[Key, JsonObject] = {}
        self._slices: dict[Key, JsonObject] = {}
        self._addresses: set[str] = set()
        self._listeners: dict[Target, asyncio.Server] = {}
        self._targets: dict[Target, Sequence[Target]] = {}
        # The loop itself keeps none whose client is gone before its server.
        self._connections: set[asyncio.Task[None] | None] = set()
        self._updating = asyncio.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="services", daemon=True
        )
        self._followers = (
            self._follow(client, "Service", "v1", self._services),
            self._follow(client, "EndpointSlice", SLICE_API, self._slices),
        )

    def start(self) -> None:
        """Begin."""
        self._hosts.write_text("127.0.0.1 localhost\n")
        self._thread.start()
        for follower in self._followers:
            follower.start()

    def stop(self) -> None:
        """Follow no more; listeners end with the process."""
        for follower in self._followers:
            follower.stop()

    def forward(self, listener: socket.socket, target: Target) -> None:
        """Lead what comes to a socket, of whatever namespace, to one target."""

        async def begin() -> None:
            await asyncio.start_server(self._serving(lambda: [target]), sock=listener)

        asyncio.run_coroutine_threadsafe(begin(), self._loop).result()

    def _follow(
        self, client: ApiClient, kind: str, api: str, items: dict[Key, JsonObject]
    ) -> Follower:
        def change(item: JsonObject) -> None:
            items[key_of(item)] = item
            self._update()

        def end(key: Key) -> None:
            items.pop(key, None)
            self._update()

        return Follower(client, kind, on_change=change, on_end=end, api_version=api)

    def _update(self) -> None:
        """Have the loop do as the objects now say, and wait for it."""
        asyncio.run_coroutine_threadsafe(self._follow_up(), self._loop).result()

    async def _follow_up(self) -> None:
        async with self._updating:
            await self._listen_as_told()

    async def _listen_as_told(self) -> None:
        services = [s for s in list(self._services.values()) if _address_of(s)]
        addresses = {_address_of(service) for service in services}
        for address in addresses - self._addresses:
            self._spaces.add_service_address(address)
        self._targets.clear()
        for service in services:
            for port in service["spec"].get("ports", ()):
                if targets := self._targets_of(service, port):
                    self._targets[_address_of(service), port["port"]] = targets
        for target in set(self._listeners) - set(self._targets):
            self._listeners.pop(target).close()
        for target in set(self._targets) - set(self._listeners):
            serve = self._serving(functools.partial(self._now, target))
            self._listeners[target] = await asyncio.start_server(serve, *target)
        for address in self._addresses - addresses:
            self._spaces.drop_service_address(address)
        self._addresses = addresses
        self._hosts.write_text(hosts_text(services))

    def _now(self, target: Target) -> Sequence[Target]:
        return self._targets.get(target, ())

    def _targets_of(
        self, service: JsonObject, port: Mapping[str, Any]
    ) -> Sequence[Target]:
        metadata = service["metadata"]
        found = [
            one
            for one in list(self._slices.values())
            if one["metadata"].get("labels", {}).get(SERVICE_LABEL) == metadata["name"]
            and one["metadata"]["namespace"] == metadata["namespace"]
        ]
        return choose_endpoints(found, port.get("name"))

    def _serving(
        self, targets: Callable[[], Sequence[Target]]
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]:
        async def serve(
            from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter
        ) -> None:
            connection = asyncio.current_task()
            self._connections.add(connection)
            try:
                with contextlib.suppress(OSError):
                    await _lead(from_client, to_client, targets())
            finally:
                self._connections.discard(connection)

        return serve


async def _lead(
    from_client: asyncio.StreamReader,
    to_client: asyncio.StreamWriter,
    targets: Sequence[Target],
) -> None:
    """Join a connection to one target, until both sides have ended."""
    if not targets:
        to_client.transport.abort()
        return
    try:
        from_server, to_server = await asyncio.open_connection(
            *random.SystemRandom().choice(targets)
        )
    except OSError:
        to_client.transport.abort()
        return
    await asyncio.gather(
        _copy(from_client, to_server),
        _copy(from_server, to_client),
        return_exceptions=True,
    )
    to_server.close()
    to_client.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Move bytes until one side ends; then tell the other."""
    try:
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        writer.transport.abort()
        raise


def choose_endpoints(
    slices: Sequence[JsonObject], port_name: str | None
) -> Sequence[Target]:
    """Return who is ready; where nobody is, who still serves while it ends."""
    ready: list[Target] = []
    ending: list[Target] = []
    for one in slices:
        ports = [
            port["port"]
            for port in one.get("ports") or ()
            if (port.get("name") or "") == (port_name or "")
        ]
        for endpoint in one.get("endpoints") or ():
            conditions = endpoint.get("conditions", {})
            if conditions.get("ready", True):
                into = ready
            elif conditions.get("serving") and conditions.get("terminating"):
                into = ending
            else:
                continue
            into += [(ip, port) for ip in endpoint["addresses"] for port in ports]
    return ready or ending


def hosts_text(services: Sequence[JsonObject]) -> str:
    """Return the file of names for these Services."""
    lines = ["127.0.0.1 localhost"]
    for service in services:
        metadata = service["metadata"]
        short = f"{metadata['name']}.{metadata['namespace']}"
        names = f"{short}.svc {short}.svc.{DOMAIN} {short}"
        lines.append(f"{_address_of(service)} {names}")
    return "".join(f"{line}\n" for line in lines)


def _address_of(service: JsonObject) -> str:
    address: str = service["spec"].get("clusterIP") or ""
    return "" if address == "None" else address
