"""A fake Kubernetes API server: real HTTP on loopback, scripted faults.

It serves lists and watches of nodes, pods and DeviceClasses; a test changes the
objects by calling it.
"""

import contextlib
import socket
import threading
from collections import defaultdict, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

import yaml

from tests.fakes.api_http import Fault, Request, Server, Status
from tests.fakes.api_state import ApiState, Tree, bookmark_line, event_line

LOOPBACK: Final = "127.0.0.1"
DEADLINE_SECONDS: Final = 60.0


class FakeApiServer:
    """The server and its script; any thread may call it.

    Attributes
    ----------
    state : ApiState
    requests : list of Request
        Every request so far, in the order of arrival.
    ends_after_each_event : bool
        Whether a watch ends, politely, after each event.
    denied : set of str
        Verbs on resources that nobody may use, such as ``patch pods/status``.
    clock_offset_seconds : float
        By how much the server's clock is ahead.
    """

    def __init__(self) -> None:
        self.state = ApiState()
        self.requests: list[Request] = []
        self.ends_after_each_event = False
        self.token = ""
        self.denied: set[str] = set()
        self.clock_offset_seconds = 0.0
        self._faults: dict[tuple[str, str], deque[Fault]] = defaultdict(deque)
        self._absent: dict[str, int] = {}
        self._bookmarks: list[int] = []  # how many requests had come before each
        self._connections: set[socket.socket] = set()
        self._server: Server | None = None
        self._port = 0

    def __enter__(self) -> Self:
        self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        self.refuse()

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://{LOOPBACK}:{self._port}"

    def listen(self) -> None:
        """Accept connections, on the same port each time."""
        self._server = Server((LOOPBACK, self._port), self)
        self._port = self._server.server_address[1]
        threading.Thread(
            target=self._server.serve_forever, args=(0.01,), name="fake-api"
        ).start()

    def refuse(self) -> None:
        """Refuse connections and cut the open ones."""
        server, self._server = self._server, None
        if server is None:
            return
        server.shutdown()
        server.is_closing = True
        self.cut()
        server.server_close()

    def cut(self) -> None:
        """Break all connections, as a crash does."""
        with self.state.changed:
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self.state.changed.notify_all()

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Be unreachable for a while."""
        self.refuse()
        yield
        self.listen()

    def put(self, *trees: Tree) -> None:
        """Create or replace objects."""
        for tree in trees:
            self.state.put(tree)

    def remove(self, tree: Tree) -> None:
        """Delete an object."""
        self.state.remove(tree)

    def forget_history(self) -> None:
        """Let versions from before now be expired for a new watch."""
        self.state.compact()

    def kubeconfig(self, folder: Path) -> Path:
        """Write a kubeconfig for this server and return its path."""
        path = folder / "kubeconfig"
        user: Tree = {"token": self.token} if self.token else {}
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "fake",
                    "contexts": [
                        {"name": "fake", "context": {"cluster": "fake", "user": "us"}}
                    ],
                    "clusters": [{"name": "fake", "cluster": {"server": self.url}}],
                    "users": [{"name": "us", "user": user}],
                }
            )
        )
        return path

    def script(self, verb: str, resource: str, *faults: Fault) -> None:
        """Let the next requests of that kind meet these faults, one each."""
        with self.state.changed:
            self._faults[verb, resource].extend(faults)

    def withhold(self, resource: str, code: int | None) -> None:
        """Answer all requests for a resource with a status, or serve it again."""
        with self.state.changed:
            self._absent.pop(resource, None)
            if code is not None:
                self._absent[resource] = code

    def bookmark(self) -> None:
        """Let each watch that was asked for send a bookmark, once it is served."""
        with self.state.changed:
            self._bookmarks.append(len(self.requests))
            self.state.changed.notify_all()

    def seen(self, verb: str, resource: str) -> list[Request]:
        """Return the requests of one kind so far."""
        with self.state.changed:
            return [
                request
                for request in self.requests
                if (request.verb, request.resource) == (verb, resource)
            ]

    def wait_seen(self, verb: str, resource: str, count: int) -> list[Request]:
        """Wait until there were so many requests of one kind."""
        with self.state.changed:
            arrived = self.state.changed.wait_for(
                lambda: len(self.seen(verb, resource)) >= count, DEADLINE_SECONDS
            )
        found = self.seen(verb, resource)
        assert arrived, f"waited in vain for {count} x {verb} {resource}: {len(found)}"
        return found

    def admit(self, request: Request) -> Fault | None:
        """Note a request; return the fault that is scripted for it."""
        with self.state.changed:
            self.requests.append(request)
            self.state.changed.notify_all()
            if request.resource in self._absent:
                return Status(self._absent[request.resource], "NotFound")
            faults = self._faults[request.verb, request.resource]
            return faults.popleft() if faults else None

    def lines(self, request: Request, revision: int) -> Iterator[bytes]:
        """Yield a watch's lines from a revision on, for as long as it is wanted."""
        resource = request.resource
        with self.state.changed:  # a bookmark may have come since the request
            position = next(
                index for index, seen in enumerate(self.requests) if seen is request
            )
            told = sum(before <= position for before in self._bookmarks)
        while True:
            with self.state.changed:
                events, now = self.state.events_after(resource, revision)
                asked = len(self._bookmarks)
                if not events and asked == told:
                    self.state.changed.wait(0.05)
            for event in events:
                yield event_line(event.type, event.tree)
            revision = now
            if asked != told:
                told = asked
                yield bookmark_line(resource, now)
            yield b""

    @contextlib.contextmanager
    def tracked(self, connection: socket.socket) -> Iterator[None]:
        """Make a connection one that `cut` breaks."""
        with self.state.changed:
            self._connections.add(connection)
        try:
            yield
        finally:
            with self.state.changed:
                self._connections.discard(connection)
