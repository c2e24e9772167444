"""How many requests each face works on at a time; the next is refused at once.

A call that waited in a queue would be answered after its caller has given up, and the
next one later still.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from service.closing import WsgiApp
from service.frame import FACE_OF_PATH
from service.process_settings import ServerSettings, WebhookSettings

# Beside both faces' own: probes and metrics are answered however busy those are.
SPARE_THREADS: Final = 4
# Pages of the cluster, for people; fewer than the spare threads.
MAX_CLUSTER_PAGES: Final = 2


class Slots:
    """The requests that one face works on; any thread may call it.

    Parameters
    ----------
    limit : int
    monotonic : callable
    """

    def __init__(
        self, limit: int, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.limit = limit
        self._monotonic = monotonic
        self._lock = threading.Lock()
        # number of the request -> when the work on it began
        self._started: dict[int, float] = {}
        self._next = 0

    @property
    def count(self) -> int:
        """How many requests are being worked on."""
        return len(self._started)

    def enter(self) -> int | None:
        """Take a slot and return its number, None if there is none."""
        now = self._monotonic()
        with self._lock:
            if len(self._started) >= self.limit:
                return None
            self._next += 1
            self._started[self._next] = now
            return self._next

    def leave(self, number: int) -> None:
        """Give a slot back."""
        with self._lock:
            del self._started[number]

    def is_stuck(self, seconds: float) -> bool:
        """Say whether every slot has been taken for longer than `seconds`."""
        latest = self._monotonic() - seconds
        with self._lock:
            return len(self._started) >= self.limit and all(
                started < latest for started in self._started.values()
            )


def build_slots(server: ServerSettings, webhook: WebhookSettings) -> dict[str, Slots]:
    """Return the slots of each face."""
    return {
        "extender": Slots(server.max_in_flight),
        "webhook": Slots(webhook.max_in_flight),
        "cluster": Slots(MAX_CLUSTER_PAGES),
    }


class Gate:
    """WSGI middleware that refuses what is beyond a face's limit.

    Parameters
    ----------
    app : WSGI application
    slots : mapping
        face -> its slots
    refused : callable
        Told of the face of each request that is refused.
    """

    def __init__(
        self, app: WsgiApp, slots: Mapping[str, Slots], refused: Callable[[str], None]
    ) -> None:
        self._app = app
        self.slots = slots
        self._refused = refused

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        """Pass one request on, or answer 503 with nothing in it."""
        face = FACE_OF_PATH.get(environ.get("PATH_INFO", ""))
        if face is None:
            return self._app(environ, start_response)
        slots = self.slots[face]
        number = slots.enter()
        if number is None:
            self._refused(face)
            # Nobody reads the body of an error, and unread it costs the connection.
            start_response("503 Service Unavailable", [("Content-Length", "0")])
            return [b""]
        try:
            return self._app(environ, start_response)
        finally:
            slots.leave(number)
