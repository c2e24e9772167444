"""A rolling restart under load: two processes, and clients as behind a Service."""

import contextlib
import http.client
import random
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.api.two_nodes import FILTER, QUESTION, file_config
from tests.service_process import (
    DEADLINE_SECONDS,
    Answer,
    ServiceProcess,
    exchange,
    wait_until,
)

# How often it is looked which processes are ready, as a kubelet does.
PROBE_SECONDS: Final = 0.1
# Longer than it takes until all clients have heard of it.
DRAIN_SECONDS: Final = 1.5


@dataclass(slots=True)
class Tally:
    """What became of the calls."""

    calls: int = 0
    longest_seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, seconds: float, failure: str | None) -> None:
        """Note one call."""
        with self.lock:
            self.calls += 1
            self.longest_seconds = max(self.longest_seconds, seconds)
            if failure is not None:
                self.failures.append(failure)


class Endpoints(threading.Thread):
    """Knows which processes are ready, with the delay of a probe."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.ports: set[int] = set()
        self.ready: tuple[int, ...] = ()
        self.stopped = threading.Event()

    def run(self) -> None:
        """Probe."""
        while not self.stopped.wait(PROBE_SECONDS):
            self.ready = tuple(port for port in self.ports.copy() if is_ready(port))


def is_ready(port: int) -> bool:
    """Say whether the process that listens there calls itself ready."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_SECONDS)
    with contextlib.closing(connection):
        try:
            return exchange(connection, "GET", "/readyz/extender").status == 200
        except (OSError, http.client.HTTPException):
            return False


class Client(threading.Thread):
    """Calls one after another, on a connection that it keeps.

    Like a client of a Service, it opens connections to ready processes only; it goes
    on using one until an answer says ``Connection: close``.
    """

    def __init__(self, endpoints: Endpoints, tally: Tally, seed: int) -> None:
        super().__init__(daemon=True)
        self._endpoints = endpoints
        self._tally = tally
        self._random = random.Random(seed)  # noqa: S311  which of two ports
        self._connection: http.client.HTTPConnection | None = None
        self.stopped = threading.Event()

    def run(self) -> None:
        """Call until stopped."""
        while not self.stopped.is_set():
            started = time.monotonic()
            try:
                answer = self._call()
            except (OSError, http.client.HTTPException) as error:
                failure: str | None = repr(error)
                self._hang_up()
            else:
                failure = None if answer.status == 200 else str(answer.status)
                if answer.headers.get("connection") == "close":
                    self._hang_up()
            self._tally.add(time.monotonic() - started, failure)
        self._hang_up()

    def _call(self) -> Answer:
        if self._connection is None:
            port = self._random.choice(self._endpoints.ready)
            self._connection = http.client.HTTPConnection(
                "127.0.0.1", port, timeout=DEADLINE_SECONDS
            )
        return exchange(self._connection, "POST", FILTER, QUESTION)

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@contextlib.contextmanager
def calling(endpoints: Endpoints, clients: int) -> Iterator[Tally]:
    """Have so many clients call until the block ends."""
    tally = Tally()
    callers = [Client(endpoints, tally, seed) for seed in range(clients)]
    for caller in callers:
        caller.start()
    try:
        yield tally
    finally:
        for caller in callers:
            caller.stopped.set()
        for caller in callers:
            caller.join(DEADLINE_SECONDS)


def restart_under_load(folder: Path, *, rounds: int, calls: int, clients: int) -> Tally:
    """Restart both of two processes `rounds` times, during at least `calls` calls."""
    config = file_config(server={"drainSeconds": DRAIN_SECONDS})
    processes = []
    for name in ("one", "two"):
        (folder / name).mkdir()
        shutil.copy(folder / "dump.json", folder / name)
        processes.append(ServiceProcess(folder / name, config))
    endpoints = Endpoints()
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.wait_serving()
            process.wait_ready()
            endpoints.ports.add(process.port)
        endpoints.start()
        wait_until(lambda: len(endpoints.ready) == 2, "both are ready")
        with calling(endpoints, clients) as tally:
            for _ in range(rounds):
                for process in processes:
                    _restart(process, endpoints)
            wait_until(lambda: tally.calls >= calls, "all calls are made", 120.0)
    finally:
        endpoints.stopped.set()
        for process in processes:
            process.stop()
    return tally


def _restart(process: ServiceProcess, endpoints: Endpoints) -> None:
    """End a process as Kubernetes would, start it anew, and wait until it is used."""
    port = process.port
    process.send(signal.SIGTERM)
    assert process.wait_stopped() == 0
    endpoints.ports.discard(port)
    process.start()
    process.wait_serving()
    process.wait_ready()
    endpoints.ports.add(process.port)
    wait_until(lambda: len(endpoints.ready) == 2, "both are ready again")
