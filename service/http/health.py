"""Health: alive, ready, ready for kube-scheduler, and answering a filter call."""

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import falcon

from cluster.ledger.writer import SnapshotCell
from extender.verbs.lookup import look_up
from extender.verbs.options import VerbOptions
from extender.verbs.verbs import filter_nodes
from extender.wire import filter as wire
from extender.wire.answers import encode_filter
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
    """

    def __init__(
        self,
        cell: SnapshotCell,
        filter_once: Callable[[], None],
        is_stuck: Callable[[], bool],
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._cell = cell
        self._filter_once = filter_once
        self._is_stuck = is_stuck
        self._answer_seconds = answer_seconds
        self._lock = threading.Lock()
        self._call: _Call | None = None

    def not_ready_reasons(self) -> list[str]:
        """Return why a filter call would not be answered; empty if it would."""
        if self._is_stuck():
            return ["every call under way has passed its deadline"]
        if not self._cell.is_synced:
            return []
        call = self._running_call()
        if not call.ended.wait(self._answer_seconds):
            return [f"self-filter: no answer within {self._answer_seconds:g} s"]
        return [] if call.is_answered else ["self-filter: failed, see the log"]

    def _running_call(self) -> "_Call":
        """Return the call that has not ended yet, or a new one.

        One at a time: were it to hang, each probe would leave a thread behind.
        """
        with self._lock:
            if self._call is None or self._call.ended.is_set():
                self._call = _Call(self._filter_once)
            return self._call


class _Call:
    """One self-filter on a thread of its own."""

    def __init__(self, filter_once: Callable[[], None]) -> None:
        self._filter_once = filter_once
        self.is_answered = False
        self.ended = threading.Event()
        threading.Thread(target=self._run, name="self-filter", daemon=True).start()

    def _run(self) -> None:
        try:
            self._filter_once()
            self.is_answered = True
        except Exception:
            logger.exception("self-filter failed")
        finally:
            self.ended.set()


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
