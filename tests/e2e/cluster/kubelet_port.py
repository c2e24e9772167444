"""The kubelets' port, which the API server calls for logs and port-forwards."""

import contextlib
import http.server
import select
import ssl
import threading
import urllib.parse
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from tests.e2e.cluster.kubelet import Kubelets
from tests.e2e.cluster.spaces import HUB, Space, connect
from tests.e2e.harness.certificates import ServingPair
from tests.e2e.harness.process import ManagedProcess, ProcessError
from tests.e2e.harness.reaper import Reaper
from tests.e2e.harness.waiting import DeadlineError

PORT: Final = 10250
# Where the process that understands port-forwards listens in a pod's network.
FORWARDER_PORT: Final = 10251
# Of gpu-extender, on the pod's loopback.
FORWARDED: Final = "127.0.0.1:8888"
CHUNK_BYTES: Final = 65_536
TIMEOUT_SECONDS: Final = 10.0


class KubeletPort:
    """Answers for all nodes; one thread for each call.

    Logs are read from files. A port-forward is handed to a `port-forwarder` in the
    pod's network, started when it is first asked for.
    """

    def __init__(
        self,
        kubelets: Kubelets,
        pair: ServingPair,
        *,
        forwarder: Path,
        log_folder: Path,
        reaper: Reaper,
    ) -> None:
        self._kubelets = kubelets
        self._pair = pair
        self._forwarder = forwarder
        self._log_folder = log_folder
        self._reaper = reaper
        self._forwarders: dict[str, ManagedProcess] = {}  # name of the space -> process
        self._lock = threading.Lock()
        self._server = http.server.ThreadingHTTPServer((HUB, PORT), _handler(self))
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certificate, pair.key)
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="kubelet port", daemon=True
        )

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End the forwarders."""
        with self._lock:
            for process in self._forwarders.values():
                with contextlib.suppress(ProcessError):
                    process.close(at_once=True)

    def logs(self, path: str) -> bytes:
        """Return the log that `/containerLogs/NAMESPACE/POD/CONTAINER` asks for."""
        address = urllib.parse.urlsplit(path)
        _, namespace, pod, container = address.path.strip("/").split("/")
        query = urllib.parse.parse_qs(address.query)
        file = self._kubelets.log_of(namespace, pod, container)
        data = file.read_bytes() if file is not None else b""
        if "tailLines" in query:
            count = int(query["tailLines"][0])
            lines = data.splitlines(keepends=True)
            data = b"".join(lines[-count:] if count else [])
        return data

    def forward(self, path: str, request: bytes, client: ssl.SSLSocket) -> None:
        """Hand a port-forward over, and move its bytes until it ends."""
        _, namespace, pod, *_ = urllib.parse.urlsplit(path).path.strip("/").split("/")
        space = self._kubelets.space_of(namespace, pod)
        if space is None:
            raise FileNotFoundError(f"no process of pod {namespace}/{pod} runs")
        self._start_forwarder(space, f"{namespace}/{pod}")
        with _connect(space) as server:
            server.sendall(request)
            _pump(client, server)

    def _start_forwarder(self, space: Space, pod: str) -> None:
        with self._lock:
            known = self._forwarders.get(space.name)
            if known is not None and known.is_running:
                return
            files = str(self._pair.certificate), str(self._pair.key)
            target = f"{pod}={FORWARDED}"
            listen = f"{space.address}:{FORWARDER_PORT}"
            process = ManagedProcess(
                f"port-forwarder of {pod}",
                [*space.prefix, str(self._forwarder), listen, *files, target],
                log_path=self._log_folder / "port-forwarder.log",
                is_ready=lambda: _is_there(space),
                reaper=self._reaper,
            )
            process.start()
            self._forwarders[space.name] = process


def _handler(port: KubeletPort) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        """Answers one call."""

        def do_GET(self) -> None:
            if self.path.startswith("/containerLogs/"):
                self._answer(lambda: port.logs(self.path))
            else:
                self.do_POST()

        def do_POST(self) -> None:
            if not self.path.startswith("/portForward/"):
                self.send_error(
                    HTTPStatus.NOT_IMPLEMENTED, "logs and port-forward alone"
                )
                return
            self.close_connection = True
            client = self.connection
            assert isinstance(client, ssl.SSLSocket)
            head = f"{self.requestline}\r\n{self.headers}".encode()
            try:
                port.forward(self.path, head, client)
            except (FileNotFoundError, ProcessError, DeadlineError) as error:
                self.send_error(HTTPStatus.NOT_FOUND, str(error).splitlines()[0])

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

        def _answer(self, read: Callable[[], bytes]) -> None:
            try:
                data = read()
            except ValueError:
                self.send_error(HTTPStatus.BAD_REQUEST)
                return
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler


def _connect(space: Space) -> ssl.SSLSocket:
    # The certificate is of the control plane, whose addresses those of pods are not.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    plain = connect((space.address, FORWARDER_PORT), TIMEOUT_SECONDS)
    return context.wrap_socket(plain)


def _is_there(space: Space) -> bool:
    try:
        _connect(space).close()
    except OSError:
        return False
    return True


def _pump(client: ssl.SSLSocket, server: ssl.SSLSocket) -> None:
    """Move bytes both ways until either side ends, in one thread.

    Two threads must not use one TLS connection. What makes a socket readable may be no
    data at all but TLS's own, so reads never wait.
    """
    other = {client: server, server: client}
    while True:
        waiting = [one for one in other if one.pending()]
        for one in waiting or select.select(list(other), [], [])[0]:
            one.setblocking(False)  # noqa: FBT003 - the only way to say it
            try:
                data = one.recv(CHUNK_BYTES)
            except ssl.SSLWantReadError:
                continue
            except OSError:
                return
            if not data:
                return
            other[one].setblocking(True)  # noqa: FBT003
            other[one].sendall(data)
