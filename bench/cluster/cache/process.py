"""The real process over a replayed cluster: started, asked, and its memory read."""

import contextlib
import http.client
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.processes import ROOT, BenchError, started, stop, wait_for_port

POLL_SECONDS: Final = 0.03
SYNC_SECONDS: Final = 120.0
_EVENTS: Final = re.compile(
    rb'^gpu_extender_cache_watch_events_total\{kind="pods",[^}]*\} (\S+)$', re.MULTILINE
)
_RESTARTS: Final = re.compile(
    rb"^gpu_extender_cache_watch_restarts_total\{.*$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Service:
    """A running process."""

    process: subprocess.Popen[bytes]
    port: int

    def connect(self) -> http.client.HTTPConnection:
        """Return a kept-alive connection."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def watched_events(self) -> int:
        """Return how many events of pods it has taken; fail if a watch broke."""
        status, body = fetch(self.port, "/metrics")
        if status != http.HTTPStatus.OK:
            raise BenchError(f"metrics: {status}")
        broken = [
            line for line in _RESTARTS.findall(body) if not line.endswith(b" 0.0")
        ]
        if broken:
            raise BenchError(f"a watch broke while it was timed: {broken[0].decode()}")
        return sum(int(float(number)) for number in _EVENTS.findall(body))

    def memory_mb(self, field: str = "VmRSS") -> float:
        """Return its resident memory, or with ``VmHWM`` the most that it ever had."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        kilobytes = re.search(rf"^{field}:\s+(\d+) kB$", status, re.MULTILINE)
        if kilobytes is None:
            raise BenchError(f"no {field} of the process")
        return int(kilobytes[1]) / 1024


def fetch(port: int, path: str) -> tuple[int, bytes]:
    """Return status and body of one GET request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SYNC_SECONDS)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def stream(server: int, count: int, rate: int) -> None:
    """Let the server send events, and do not wait for them."""

    def keep_calling() -> None:
        # The last job may end with the server.
        with contextlib.suppress(OSError, http.client.HTTPException):
            fetch(server, f"/stream?count={count}&rate={rate}")

    threading.Thread(target=keep_calling, daemon=True).start()


@contextmanager
def replayed(folder: Path, nodes: int, pods: int) -> Iterator[int]:
    """Serve a cluster, and yield the port."""
    log = folder / f"replay-{nodes}.log"
    with started("bench.cluster.cache.server", str(nodes), str(pods), log=log) as port:
        yield port


@contextmanager
def running(folder: Path, server: int) -> Iterator[Service]:
    """Run the process over the server on that port."""
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(json.dumps(_kubeconfig(server)))  # JSON is YAML, too
    config = folder / "config.json"
    cluster = {"source": "kubernetes", "kubeconfig": str(kubeconfig)}
    config.write_text(
        json.dumps({"server": {"port": 0, "drainSeconds": 0}, "cluster": cluster})
    )
    log = folder / "service.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "service", "serve", "--config", str(config)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield Service(process, wait_for_port(process, log))
    finally:
        stop(process)


def _kubeconfig(server: int) -> dict[str, Any]:
    """Return a kubeconfig for a server without TLS."""
    address = f"http://127.0.0.1:{server}"
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bench",
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "us"}}],
        "clusters": [{"name": "bench", "cluster": {"server": address}}],
        "users": [{"name": "us", "user": {}}],
    }


def sync_seconds(service: Service, server: int) -> float:
    """Return the time from the first list request to readiness for kube-scheduler."""
    deadline = time.monotonic() + SYNC_SECONDS
    while fetch(service.port, "/readyz/extender")[0] != http.HTTPStatus.OK:
        if time.monotonic() > deadline:
            raise BenchError(f"not synced after {SYNC_SECONDS:.0f} s")
        time.sleep(POLL_SECONDS)
    ready = time.monotonic()
    return ready - float(json.loads(fetch(server, "/first-list")[1]))
