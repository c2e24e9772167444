"""Replays a large cluster as an API server sends it, from a process of its own.

``python -m bench.cluster.cache.server NODES PODS`` prints its port. A watch of pods
says nothing until ``GET /stream?count=N&rate=R`` asks for N events, R a second or as
fast as they are taken (0); that call is answered when all are sent, or ``GET /stop``
came.
"""

import json
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from bench.cluster.cache.objects import event_lines, node_texts, pod_texts

PAGE: Final = 500
VERSION: Final = 1_000_000
BATCH_SECONDS: Final = 0.01
UNLIMITED_BATCH: Final = 200
BOOKMARK_SECONDS: Final = 30.0
GO_BUFFER: Final = 2048
KINDS: Final = {
    "/api/v1/nodes": "Node",
    "/api/v1/pods": "Pod",
    "/apis/resource.k8s.io/v1/deviceclasses": "DeviceClass",
    "/api/v1/limitranges": "LimitRange",
}


@dataclass
class Job:
    """Events to be sent, and whether they were."""

    count: int
    rate: int
    done: threading.Event = field(default_factory=threading.Event)


class Replay:
    """What is served. Handlers' threads call it."""

    def __init__(self, nodes: int, pods: int) -> None:
        # kind -> the body of each page; the place of the next one is its token
        self.pages = {
            "Node": list(pages("Node", node_texts(nodes), nodes)),
            "Pod": list(pages("Pod", pod_texts(pods, nodes), pods)),
            "DeviceClass": list(pages("DeviceClass", iter(()), 0)),
            "LimitRange": list(pages("LimitRange", iter(()), 0)),
        }
        self.events = event_lines(nodes, VERSION)
        self.first_list_at = 0.0
        self.has_jobs = threading.Condition()
        # The jobs are for the newest watch; older ones are of processes that are gone.
        self.watches = 0
        self.jobs: list[Job] = []
        self.current: Job | None = None

    def next_job(self, watch: int) -> Job | None:
        """Wait a while for a job of this watch."""
        with self.has_jobs:
            self.has_jobs.wait_for(lambda: bool(self.jobs), 1.0)
            if not self.jobs or watch != self.watches:
                return None
            self.current = self.jobs.pop(0)
            return self.current

    def carry_out(self, job: Job) -> Iterator[bytes]:
        """Yield the lines of a job in batches, at its rate."""
        started = time.monotonic()
        sent = 0
        while sent < job.count and not job.done.is_set():
            if job.rate:
                time.sleep(BATCH_SECONDS)
                due = int((time.monotonic() - started) * job.rate) - sent
            else:
                due = UNLIMITED_BATCH
            lines = list(islice(self.events, min(due, job.count - sent)))
            sent += len(lines)
            yield b"".join(map(chunk, lines))
        job.done.set()


def pages(kind: str, items: Iterator[bytes], count: int) -> Iterator[bytes]:
    """Yield the bodies of a list's pages, as kube-apiserver 1.36 splits them.

    It sends each item in two chunks: Go's buffer of 2,048 bytes, and the rest.
    """
    for start in range(0, max(count, 1), PAGE):
        metadata: dict[str, str | int] = {"resourceVersion": str(VERSION)}
        if start + PAGE < count:
            metadata["continue"] = str(start // PAGE + 1)
            metadata["remainingItemCount"] = count - start - PAGE
        head = f'{{"kind":"{kind}List","apiVersion":"v1","metadata":'
        head += json.dumps(metadata, separators=(",", ":")) + ',"items":['
        parts = [chunk(head.encode())]
        for number, item in enumerate(islice(items, PAGE)):
            text = item if number == 0 else b"," + item
            parts += (chunk(text[:GO_BUFFER]), chunk(text[GO_BUFFER:]))
        yield b"".join([*parts, chunk(b"]}\n"), chunk(b"")])


def bookmark(kind: str) -> bytes:
    """Return a bookmark line."""
    metadata = {"resourceVersion": str(VERSION), "name": ""}
    tree = {"kind": kind, "apiVersion": "v1", "metadata": metadata}
    return json.dumps({"type": "BOOKMARK", "object": tree}).encode() + b"\n"


def chunk(data: bytes) -> bytes:
    """Return data as one chunk of an HTTP body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # as Go does
    replay: Replay

    def log_message(self, *_: object) -> None:
        """Keep quiet."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query))
        if url.path == "/stream":
            self._stream(Job(int(query["count"]), int(query["rate"])))
        elif url.path == "/stop":
            if self.replay.current is not None:
                self.replay.current.done.set()
            self._tell(time.monotonic())
        elif url.path == "/first-list":
            self._tell(self.replay.first_list_at)
        elif query.get("watch"):
            self._watch(KINDS[url.path])
        else:
            self._list(KINDS[url.path], int(query.get("continue", 0)))

    def _stream(self, job: Job) -> None:
        with self.replay.has_jobs:
            self.replay.jobs.append(job)
            self.replay.has_jobs.notify_all()
        job.done.wait()
        self._tell(time.monotonic())

    def _tell(self, value: float) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _list(self, kind: str, number: int) -> None:
        if not number and kind == "Node":
            self.replay.first_list_at = time.monotonic()
        self._begin()
        self.wfile.write(self.replay.pages[kind][number])

    def _watch(self, kind: str) -> None:
        """Send jobs to the watch of pods, and bookmarks where there is nothing else."""
        self._begin()
        if kind == "Pod":
            self.replay.watches += 1
        watch, quiet_since = self.replay.watches, time.monotonic()
        while True:
            job = self.replay.next_job(watch) if kind == "Pod" else None
            if job is not None:
                for batch in self.replay.carry_out(job):
                    self.wfile.write(batch)
                quiet_since = time.monotonic()
            elif kind != "Pod":
                time.sleep(1.0)
            if time.monotonic() - quiet_since > BOOKMARK_SECONDS:
                self.wfile.write(chunk(bookmark(kind)))
                quiet_since = time.monotonic()

    def _begin(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()


class Server(ThreadingHTTPServer):
    """Ends with its process, open watches or not."""

    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Keep quiet: the reader has left."""


def main() -> None:
    """Serve until ended."""
    Handler.replay = Replay(int(sys.argv[1]), int(sys.argv[2]))
    server = Server(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
