"""Refused pods and the waker that wakes them, over an API of the test's own."""

import contextlib
import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from cluster.api.protocol import ApiError
from cluster.ledger.writer import SnapshotCell
from extender.wakeup.waker import Waker
from scoring.feasibility import Verdict
from tests.builders import make_node, make_pod
from tests.fakes.api import NoApi
from tests.fakes.outcomes import make_filter_outcome
from tests.fakes.unschedulable_pods import Tree, UnschedulablePods

BUSY: Final = make_node(gpus=4, labels={"nvidia.com/mig.config.state": "pending"})


class Writer(NoApi):
    """An API server that takes patches, or fails as it is told to.

    Attributes
    ----------
    error : ApiError or None
        Answer to every patch.
    fail : callable
        Given the name of the pod, raises what is wrong with this one.
    """

    def __init__(self) -> None:
        self.patches: list[tuple[str, Any]] = []
        self.error: ApiError | None = None
        self.fail: Callable[[str], None] = lambda _name: None

    def patch(self, path: str, body: bytes) -> None:
        self.patches.append((path, json.loads(body)))
        if self.error is not None:
            raise self.error
        self.fail(path.split("/")[-2])


def waiting(name: str, *, gpus: int = 1) -> Tree:
    """Return a pod; ``a-1`` is one of the namespace ``a``."""
    namespace = name.rpartition("-")[0] or "default"
    return make_pod(name=name, namespace=namespace, gpus=gpus)


class Scene:
    """Refused pods that a node takes from the first second on.

    Attributes
    ----------
    tries : list of (float, str)
        When each pod was patched, by name.
    """

    def __init__(
        self, names: Sequence[str] = ("a", "b"), *, is_synced: bool = True
    ) -> None:
        self.api = Writer()
        self.outcomes: list[str] = []
        self.tries: list[tuple[float, str]] = []
        pods = [waiting(name) for name in names]
        self.pods = UnschedulablePods(BUSY, *pods)
        self._cell = SnapshotCell()
        self.waker = Waker(
            self._cell,
            lambda: self.pods.options,
            self.api,
            self.outcomes.append,
            annotation="example.com/woken",
            monotonic=lambda: self.pods.now,
        )
        for pod in pods:
            self.refuse(pod)
        self.pods.put(make_node(gpus=4))
        if is_synced:
            self._cell.publish(self.pods.snapshot)

    def refuse(self, pod: Tree) -> None:
        """Answer a pod's call with nothing."""
        self.waker.filtered(
            make_filter_outcome(
                [Verdict.TOO_FEW],
                pod_request=self.pods.request_of(pod),
                generation=self.pods.snapshot.generation,
            )
        )

    def put(self, tree: Tree) -> None:
        """Create or change a node or pod."""
        self.pods.put(tree)
        self._cell.publish(self.pods.snapshot)

    def remove(self, tree: Tree) -> None:
        """Delete a node or pod."""
        self.pods.remove(tree)
        self._cell.publish(self.pods.snapshot)

    def wait(self, seconds: float) -> list[str]:
        """Let time pass, and return the names of the pods that were patched in it."""
        before, end = len(self.tries), self.pods.now + seconds
        while self.pods.now < end - 0.01:
            begun, known = self.pods.now, len(self.api.patches)
            with contextlib.suppress(ValueError):  # the thread goes on as well
                self.waker.step()
            for path, _ in self.api.patches[known:]:
                self.tries.append((begun, path.split("/")[-2]))
            to_turn = self.waker._wake_ups.seconds_to_turn(self.pods.now)
            self.pods.now += min(0.05, to_turn) if to_turn else 0.05
        return [name for _, name in self.tries[before:]]
