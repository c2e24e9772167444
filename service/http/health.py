"""Health: alive, ready, ready for kube-scheduler, and answering a filter call."""

import http.client
import json
import logging
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

import falcon

from cluster.ledger.writer import SnapshotCell
from extender.verbs.lookup import look_up
from extender.verbs.options import VerbOptions
from extender.verbs.verbs import filter_nodes
from extender.wire import filter as wire
from extender.wire.answers import encode_filter
from scoring.quantity import one_line
from scoring.snapshot import Snapshot


class Health:
    """State that probes ask for; any thread may call it.

    Parameters
    ----------
    ages : callable
        Returns seconds since the last contact, by kind of object.
    stale_after_seconds : float
        Age from which the extender is not ready.
    certificate_not_ready_reasons : callable
        Returns why no client would take our certificate; empty if one might.
    """

    def __init__(
        self,
        cell: SnapshotCell,
        ages: Callable[[], Mapping[str, float]],
        stale_after_seconds: float,
        certificate_not_ready_reasons: Callable[[], list[str]] = list,
    ) -> None:
        self._cell = cell
        self._ages = ages
        self._stale_after_seconds = stale_after_seconds
        self._certificate_not_ready_reasons = certificate_not_ready_reasons
        self._draining = threading.Event()
        self._serving = threading.Event()

    @property
    def is_draining(self) -> bool:
        """Whether the process is about to stop."""
        return self._draining.is_set()

    def serve(self) -> None:
        """Note that the listeners are up."""
        self._serving.set()

    def drain(self) -> None:
        """Note that the process is about to stop."""
        self._draining.set()

    def age_seconds(self) -> float | None:
        """Return the time since the last contact with the source that lags most."""
        return max(self._ages().values(), default=None)

    def not_ready_reasons(self) -> list[str]:
        """Return why the process is not ready; empty if it is."""
        found = []
        if not self._serving.is_set():
            found.append("the listeners are not up yet")
        if self._draining.is_set():
            found.append("draining")
        return found + self._certificate_not_ready_reasons()

    def extender_not_ready_reasons(self) -> list[str]:
        """Return why the extender is not ready; empty if it is."""
        found = self.not_ready_reasons()
        if not self._cell.is_synced:
            found.append("the cluster has not been read yet")
        found += [
            f"{kind}: last contact {age:.0f} s ago"
            for kind, age in sorted(self._ages().items())
            if age > self._stale_after_seconds
        ]
        return found


class HealthResource:
    """``GET /healthz``: the process answers."""

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """Answer ok."""
        resp.content_type = falcon.MEDIA_TEXT
        resp.text = "ok"


class ReadinessResource:
    """``GET /readyz`` and ``/readyz/extender``: 503 with the reasons, or ok."""

    def __init__(self, not_ready_reasons: Callable[[], list[str]]) -> None:
        self._not_ready_reasons = not_ready_reasons

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """Answer ok or what stands in the way."""
        found = self._not_ready_reasons()
        resp.content_type = falcon.MEDIA_TEXT
        resp.text = "; ".join(found) or "ok"
        if found:
            resp.status = falcon.HTTP_503


logger = logging.getLogger(__name__)

ANSWER_SECONDS: Final = 0.2

# As long as kubelet waits at a heavy load, and less than our probe's timeoutSeconds.
SCHEDULER_SECONDS: Final = 3.0

# Probes that wait at the same time; one more is told what the last one was.
MAX_WAITING_PROBES: Final = 2


class Liveness:
    """Asks itself to filter, beside the calls that come in; any thread may ask it.

    An extender that has not read the cluster yet, or is busy or drains, is alive.
    Another leader would not read the cluster any sooner, and busy is not stuck.

    Parameters
    ----------
    filter_once : callable
        Makes the call, and raises whatever goes wrong.
    is_stuck : callable
        Whether every slot for calls has been taken for longer than a call may last.
    ask_scheduler : callable, optional
        Asks the kube-scheduler beside us for its health, and raises if it has not got
        it; without one, nobody is asked.
    """

    def __init__(  # noqa: PLR0913 - the last three are optional
        self,
        cell: SnapshotCell,
        filter_once: Callable[[], None],
        is_stuck: Callable[[], bool],
        *,
        ask_scheduler: Callable[[], None] | None = None,
        answer_seconds: float = ANSWER_SECONDS,
        scheduler_seconds: float = SCHEDULER_SECONDS,
    ) -> None:
        self._cell = cell
        self._is_stuck = is_stuck
        self._filter = _Question("self-filter", filter_once, answer_seconds)
        self._scheduler = (
            None
            if ask_scheduler is None
            else _Question("kube-scheduler", ask_scheduler, scheduler_seconds)
        )
        self._places = threading.Semaphore(MAX_WAITING_PROBES)
        self._last: list[str] = []

    def not_ready_reasons(self) -> list[str]:
        """Return why a filter call would not be answered; empty if it would."""
        if self._is_stuck():
            return ["every call under way has passed its deadline"]
        if not self._places.acquire(blocking=False):
            return self._last
        try:
            self._last = self._ask()
            return self._last
        finally:
            self._places.release()

    def _ask(self) -> list[str]:
        asked = [self._filter] if self._cell.is_synced else []
        if self._scheduler is not None:
            asked.append(self._scheduler)
        calls = [question.begin() for question in asked]
        return [
            fault
            for question, call in zip(asked, calls, strict=True)
            if (fault := question.find_fault(call))
        ]


class _Question:
    """Something that is asked on a thread of its own, and may hang.

    Parameters
    ----------
    name : str
        Of whom is asked.
    ask : callable
        Raises whatever goes wrong.
    seconds : float
        How long an answer may take.
    """

    def __init__(self, name: str, ask: Callable[[], None], seconds: float) -> None:
        self._name = name
        self._ask = ask
        self._seconds = seconds
        self._lock = threading.Lock()
        self._call: _Call | None = None

    def begin(self) -> "_Call":
        """Return the call that has not ended yet, or a new one.

        One at a time: were it to hang, each probe would leave a thread behind.
        """
        with self._lock:
            if self._call is None or self._call.ended.is_set():
                self._call = _Call(self._name, self._ask)
            return self._call

    def find_fault(self, call: "_Call") -> str:
        """Return what is wrong with the answer; empty if it is right."""
        if not call.ended.wait(self._seconds):
            return f"{self._name}: no answer within {self._seconds:g} s"
        return f"{self._name}: {call.fault}" if call.fault else ""


class _Call:
    """One question on a thread of its own."""

    def __init__(self, name: str, ask: Callable[[], None]) -> None:
        self._ask = ask
        self.fault = ""
        self.ended = threading.Event()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        try:
            self._ask()
        except SchedulerHealthError as error:
            self.fault = str(error)
        except Exception:
            logger.exception("self-filter failed")
            self.fault = "failed, see the log"
        finally:
            self.ended.set()


class SchedulerHealthError(RuntimeError):
    """The kube-scheduler beside us is not healthy, or does not answer."""


def ask_scheduler(url: str) -> None:
    """Ask a kube-scheduler on this host for its health; raise if it has not got it.

    Its certificate is its own and nobody's business, as for kubelet.
    """
    parts = urlsplit(url)
    connection: http.client.HTTPConnection
    host, port = parts.hostname or "", parts.port
    if parts.scheme == "https":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(
            host, port, timeout=SCHEDULER_SECONDS, context=context
        )
    else:
        connection = http.client.HTTPConnection(host, port, timeout=SCHEDULER_SECONDS)
    query = f"?{parts.query}" if parts.query else ""
    try:
        headers = {"Connection": "close"}
        connection.request("GET", f"{parts.path or '/'}{query}", headers=headers)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        raise SchedulerHealthError(f"does not answer: {one_line(error)}") from error
    finally:
        connection.close()
    if status != http.client.OK:
        raise SchedulerHealthError(f"says {status}")


NAME: Final = "self-filter"

MAX_NAMES: Final = 3

_ANY_GPU: Final = "nvidia.com/gpu"


class SelfFilterError(RuntimeError):
    """Our own answer to our own question is wrong."""


def build_call(snapshot: Snapshot, gpu_resources: Sequence[str]) -> bytes:
    """Return a filter call about the first nodes, for a pod with one GPU."""
    exact = (name for name in gpu_resources if not name.endswith("*"))
    resource = next(exact, _ANY_GPU)
    container = {"name": "main", "resources": {"limits": {resource: "1"}}}
    pod = {
        "metadata": {"name": NAME, "namespace": "gpu-extender", "uid": NAME},
        "spec": {"containers": [container]},
    }
    names = list(snapshot.nodes.names[:MAX_NAMES])
    call = {"Pod": pod, "Nodes": None, "NodeNames": names}
    return json.dumps(call, separators=(",", ":")).encode()


def filter_ourselves(snapshot: Snapshot, options: VerbOptions) -> None:
    """Make the call as kube-scheduler would; raise whatever goes wrong.

    The same code runs as for a call that comes in, but nothing is counted, remembered
    or told to anybody.
    """
    body = build_call(snapshot, options.builder.scope.gpu_resources)
    args = wire.decode_args(body)
    verb_call = look_up(args, snapshot, options)
    result = filter_nodes(verb_call, options)
    answer = json.loads(
        encode_filter(body, args, verb_call.names, result.verdicts, None).data
    )
    refused = {**answer["FailedNodes"], **answer["FailedAndUnresolvableNodes"]}
    if sorted([*answer["NodeNames"], *refused]) != sorted(args.names):
        raise SelfFilterError("self-filter: an asked node is not in the answer")
