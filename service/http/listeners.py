"""`Listeners`: both listeners of one application, behind one concurrency limit."""

import contextlib
import ctypes
import resource
import threading
from collections.abc import Callable
from typing import Final

from service.certificates.files import ServedCertificate
from service.http.health import Health
from service.http.https import HttpsServer, PathAllowlist
from service.http.middleware import MUTATE_PATH, SPARE_THREADS, ConcurrencyLimit
from service.http.plain import HttpServer
from service.http.waitress_channel import WsgiApp
from service.settings.settings import Settings

MAX_OPEN_FILES: Final = 65_536

# glibc's number of it.
M_MMAP_THRESHOLD: Final = -3

# Bodies of calls about a thousand nodes are far smaller.
MAPPED_BYTES: Final = 2**20

# What kubelet asks of the pod's address.
PROBE_PATHS: Final = frozenset(
    {"/healthz", "/readyz", "/readyz/extender", "/livez/extender"}
)

# The rest is for whoever may use the loopback address.
HTTPS_PATHS: Final = PROBE_PATHS | {MUTATE_PATH, "/metrics"}

PROBE_THREADS: Final = 4

PROBE_CONNECTIONS: Final = 50


def allow_connections() -> None:
    """Let the process open as many files as it may: 1024 is the usual beginning.

    Each connection is one, and two listeners may have two thousand.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else hard
    wanted = min(wanted, MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def return_memory() -> None:
    """Have the memory of large bodies go back to the system at once.

    As soon as one has been freed, glibc takes those up to 32 MiB from its heap, where
    whatever comes after them keeps them. Other C libraries have no such setting.
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES)


class Listeners:
    """The listeners of the process.

    The constructor binds the ports, and raises `ListenError` if it cannot.

    Parameters
    ----------
    concurrency_limit : ConcurrencyLimit
        Before the application.
    settings : Settings
    certificate : ServedCertificate or None
        Without one there is no HTTPS.
    health : Health
    is_elsewhere : callable
        Whether callers of the webhook had better come back on a new connection.
    lets_go : callable
        Whether connections that they leave idle are to end, too.
    """

    def __init__(  # noqa: PLR0913 - the last one is named
        self,
        concurrency_limit: ConcurrencyLimit,
        settings: Settings,
        certificate: ServedCertificate | None,
        health: Health,
        is_elsewhere: Callable[[], bool] = lambda: False,
        *,
        lets_go: Callable[[], bool] = lambda: False,
    ) -> None:
        webhook = concurrency_limit.slots["webhook"].limit
        # One thread for each request that the limit lets through, and some for what it
        # does not count: nothing waits where nobody sees it.
        threads = concurrency_limit.slots["extender"].limit + webhook + SPARE_THREADS
        self.http = HttpServer(concurrency_limit, settings.server, health, threads)
        self.https: HttpsServer | None = None
        if certificate is not None:
            self.https = HttpsServer(
                PathAllowlist(concurrency_limit, HTTPS_PATHS),
                settings.webhook,
                certificate,
                lambda: health.is_draining or is_elsewhere(),
                self.http.dispatcher,
                lets_go=lets_go,
            )
        self.probes = _build_probes(concurrency_limit, settings, health)

    def start(self) -> None:
        """Serve."""
        if self.https is not None:
            self.https.start()
        self.http.start()
        if self.probes is not None:
            self.probes.start()

    def drain(self, interrupted: threading.Event) -> None:
        """Let all calls finish, then stop; see `HttpServer.drain`."""
        self.http.drain(interrupted, None if self.https is None else self.https.stop)
        if self.probes is not None:
            self.probes.stop()


def _build_probes(
    app: WsgiApp, settings: Settings, health: Health
) -> HttpServer | None:
    """Return the listener that has probes alone, with threads of its own, if any."""
    port = settings.server.probe_port
    if port is None:
        return None
    update = {
        "host": settings.webhook.host,
        "port": port,
        "connection_limit": PROBE_CONNECTIONS,
    }
    server = settings.server.model_copy(update=update)
    return HttpServer(PathAllowlist(app, PROBE_PATHS), server, health, PROBE_THREADS)
