"""The probes of a container that runs: startup, readiness, liveness."""

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Final

from tests.e2e.cluster.spaces import Space, connect
from tests.e2e.harness.builders import JsonObject

KINDS: Final = ("startupProbe", "readinessProbe", "livenessProbe")
# A kubelet takes an answer of this range for a success.
SUCCESS: Final = range(200, 400)


class ProbeError(ValueError):
    """A probe that nobody can make."""


Execute = Callable[[list[str], float], bool]


def port_of(container: JsonObject, port: int | str) -> int:
    """Return a port's number; a name must be one of the container's own ports."""
    if isinstance(port, int):
        return port
    named = {p.get("name"): p["containerPort"] for p in container.get("ports", ())}
    if port not in named:
        raise ProbeError(f"container {container['name']}: no port named {port}")
    return int(named[port])


def check_ports(container: JsonObject) -> None:
    """Raise `ProbeError` for a probe that a kubelet could never make.

    It would say nothing of it but in its own log, and take the container for alive.
    """
    for kind in KINDS:
        for action in ("httpGet", "tcpSocket"):
            asked = container.get(kind, {}).get(action)
            if asked is not None:
                port_of(container, asked["port"])


class Prober:
    """Threads that probe one run of a container, until `stop`.

    Attributes
    ----------
    is_started, is_ready : bool
        What the probes have found so far.
    failure : str
        The probe that says that the container must be started again; empty if none.
    """

    def __init__(
        self, spec: JsonObject, space: Space, execute: Execute, wake: threading.Event
    ) -> None:
        self.is_started = "startupProbe" not in spec
        self.is_ready = "readinessProbe" not in spec
        self.failure = ""
        self._spec = spec
        self._space = space
        self._execute = execute
        self._wake = wake
        self._started = threading.Event()
        self._stopping = threading.Event()
        if self.is_started:
            self._started.set()
        for kind in KINDS:
            if kind in spec:
                name = f"{kind} of {spec['name']}"
                # A probe that hangs holds up nobody.
                threading.Thread(
                    target=self._run, args=(kind,), name=name, daemon=True
                ).start()

    def stop(self) -> None:
        """Probe no more; what is under way counts no more."""
        self._stopping.set()
        self._started.set()

    def _run(self, kind: str) -> None:
        probe = self._spec[kind]
        if kind != "startupProbe":
            self._started.wait()
        self._stopping.wait(probe.get("initialDelaySeconds", 0))
        successes = failures = 0
        while not self._stopping.is_set():
            passed = self._passes(probe)
            successes, failures = (successes + 1, 0) if passed else (0, failures + 1)
            if self._stopping.is_set():
                return
            if successes >= probe.get("successThreshold", 1):
                self._succeed(kind)
                if kind == "startupProbe":
                    return
            if failures >= probe.get("failureThreshold", 3):
                self._fail(kind)
            self._stopping.wait(probe.get("periodSeconds", 10))

    def _succeed(self, kind: str) -> None:
        if kind == "startupProbe":
            self.is_started = True
            self._started.set()
        elif kind == "readinessProbe":
            self.is_ready = True
        self._wake.set()

    def _fail(self, kind: str) -> None:
        if kind == "readinessProbe":
            self.is_ready = False
        else:
            self.failure = kind
        self._wake.set()

    def _passes(self, probe: JsonObject) -> bool:
        timeout = probe.get("timeoutSeconds", 1)
        if "exec" in probe:
            return self._execute(probe["exec"]["command"], timeout)
        if "httpGet" in probe:
            return self._answers(probe["httpGet"], timeout)
        asked = probe.get("tcpSocket")
        if asked is None:
            return False
        with contextlib.suppress(OSError):
            self._connect(asked, timeout).close()
            return True
        return False

    def _answers(self, asked: JsonObject, timeout: float) -> bool:
        try:
            with contextlib.closing(self._connect(asked, timeout)) as plain:
                link = plain
                if asked.get("scheme") == "HTTPS":
                    # As a kubelet does, which knows no CA of a pod.
                    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                    context.check_hostname = False
                    context.verify_mode = ssl.CERT_NONE
                    link = context.wrap_socket(plain)
                connection = http.client.HTTPConnection("probe", timeout=timeout)
                connection.sock = link
                headers = {"User-Agent": "kube-probe/stand-in", "Connection": "close"}
                connection.request("GET", asked.get("path", "/"), headers=headers)
                status = connection.getresponse().status
                link.close()
        except (OSError, http.client.HTTPException):
            return False
        return status in SUCCESS

    def _connect(self, asked: JsonObject, timeout: float) -> socket.socket:
        port = port_of(self._spec, asked["port"])
        host = asked.get("host")
        # A host that is named is one of the node, or of the pod on the node's network.
        return connect(
            (host or self._space.address, port), timeout, self._space if host else None
        )
