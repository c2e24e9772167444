"""A Lease and the pods of its namespace in memory, as several replicas see them."""

import copy
import json
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from cluster.api.lease import LeaseStore
from cluster.api.protocol import ApiError
from service.lease import ActiveLabel, Elector, LeaseTimes, OwnPod
from tests.fakes.api import NoApi

LABEL: Final = "gpu-extender.io/active"
TIMES: Final = LeaseTimes(6, 4.0, 1.0)
START: Final = 1000.0
NO_SPEC: Final[dict[str, Any]] = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "gpu-extender", "namespace": "gpu-extender"},
}


class LeaseObjects:
    """The Lease with its versions, and pods with their labels; time stands still.

    Attributes
    ----------
    now : float
        What every monotonic clock shows.
    lease : dict or None
        The whole object; None while there is none.
    labels : dict
        pod name -> value of the label, of those that have it
    """

    def __init__(self) -> None:
        self.now = START
        self.lease: dict[str, Any] | None = None
        self.labels: dict[str, str] = {}
        self._version = 0
        self.put({})

    def put(self, spec: dict[str, Any] | None) -> None:
        """Have another Lease, whoever wrote it; an empty `spec` is none."""
        self._version += 1
        if spec is None:
            self.lease = None
            return
        self.lease = copy.deepcopy(NO_SPEC)
        self.lease["metadata"]["resourceVersion"] = str(self._version)
        if spec:
            self.lease["spec"] = dict(spec)

    @property
    def spec(self) -> dict[str, Any]:
        """The Lease's ``spec``, empty if there is none."""
        return dict((self.lease or {}).get("spec", {}))

    @property
    def holder(self) -> str:
        """Who holds it, by what is written."""
        return str(self.spec.get("holderIdentity", ""))


class LeaseApi(NoApi):
    """What one replica reads and writes.

    Attributes
    ----------
    error : ApiError or None
        What every call fails with; None while calls succeed.
    seen : list of str
        The calls so far: verb and what is asked of.
    before_call : callable
        Where others come in.
    """

    def __init__(self, objects: LeaseObjects) -> None:
        self._objects = objects
        self.error: ApiError | None = None
        self.errors: dict[str, ApiError] = {}  # pod name -> of a patch
        self.seen: list[str] = []
        self.before_call: Callable[[], None] = lambda: None
        self.after_write: Callable[[], None] = lambda: None

    def read(self, path: str) -> bytes:
        url = urlsplit(path)
        self._call(f"get {url.path.rpartition('/')[2]}")
        if url.path == "/api/v1/namespaces/gpu-extender/pods":
            assert parse_qs(url.query) == {"labelSelector": [LABEL]}
            items = [
                {"metadata": {"name": name, "uid": f"uid-{name}", "labels": {LABEL: v}}}
                for name, v in sorted(self._objects.labels.items())
            ]
            return json.dumps({"items": items}).encode()
        return json.dumps(self._lease(path)).encode()

    def replace(self, path: str, body: bytes) -> None:
        self._call("update lease")
        before, tree = self._lease(path), json.loads(body)
        if tree["metadata"] != before["metadata"]:
            raise ApiError("changed", reason="http_409", status=409)
        if tree["spec"]["leaseTransitions"] >= 2**31:
            raise ApiError("int32", reason="http_400", status=400)
        self._objects.put(tree["spec"])
        self.after_write()

    def patch(self, path: str, body: bytes) -> None:
        name = path.rpartition("/")[2]
        self._call(f"patch {name}")
        if name in self.errors:
            raise self.errors[name]
        metadata = json.loads(body)["metadata"]
        assert metadata["uid"] == f"uid-{name}"
        ((label, value),) = metadata["labels"].items()
        assert label == LABEL
        if value is None:
            self._objects.labels.pop(name, None)
        else:
            self._objects.labels[name] = value

    def _lease(self, path: str) -> dict[str, Any]:
        assert path == (
            "/apis/coordination.k8s.io/v1/namespaces/gpu-extender/leases/gpu-extender"
        )
        if self._objects.lease is None:
            raise ApiError("not found", reason="http_404", status=404)
        return self._objects.lease

    def _call(self, what: str) -> None:
        self.before_call()
        self.seen.append(what)
        if self.error is not None:
            raise self.error


class Replica:
    """One elector over the objects, and what its process says of itself.

    Attributes
    ----------
    is_ready, is_wanted, is_called : bool
    alone : int
        How many decisions it has made without the lease.
    waited_seconds : list of float
        For how long its decisions have waited.
    while_waiting : callable
        Where others come in.
    """

    def __init__(self, objects: LeaseObjects, name: str) -> None:
        self.api = LeaseApi(objects)
        self.is_ready = self.is_wanted = self.is_called = True
        self.alone = 0
        self.waited_seconds: list[float] = []
        self.while_waiting: Callable[[], None] = lambda: None
        self._objects = objects
        self.identity = f"uid-{name}"
        own = OwnPod(name, "gpu-extender", self.identity)
        self.elector = Elector(
            LeaseStore(self.api, "gpu-extender", "gpu-extender"),
            ActiveLabel(self.api, own, LABEL),
            own.uid,
            TIMES,
            is_wanted=lambda: self.is_wanted,
            is_ready=lambda: self.is_ready,
            is_called=lambda: self.is_called,
            on_alone=self._note_alone,
            waiting_limit=2,
            monotonic=lambda: objects.now,
            clock=lambda: 1.9e9 + objects.now,
            pause=self._pause,
        )

    def _note_alone(self) -> None:
        self.alone += 1

    def _pause(self, seconds: float) -> None:
        self.waited_seconds.append(seconds)
        self.while_waiting()
        self._objects.now += seconds
