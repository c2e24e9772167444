"""Two refused pods and the waker that wakes them, over an API of the test's own."""

import json
import random
from typing import Any, Final

from cluster.api.protocol import ApiError
from cluster.ledger.writer import SnapshotCell
from cluster.watch.backoff import Pace
from extender.wakeup.waker import Waker
from scoring.feasibility import Verdict
from tests.builders import make_node, make_pod
from tests.fakes.api import NoApi
from tests.fakes.outcomes import make_filter_outcome
from tests.fakes.unschedulable_pods import UnschedulablePods

BUSY: Final = make_node(gpus=4, labels={"nvidia.com/mig.config.state": "pending"})


class Writer(NoApi):
    """An API server that takes patches, or fails as it is told to."""

    def __init__(self) -> None:
        self.patches: list[tuple[str, Any]] = []
        self.error: ApiError | None = None

    def patch(self, path: str, body: bytes) -> None:
        self.patches.append((path, json.loads(body)))
        if self.error is not None:
            raise self.error


class Scene:
    """Two refused pods that a node takes from the first second on."""

    def __init__(self, *, is_synced: bool = True) -> None:
        self.api = Writer()
        self.outcomes: list[str] = []
        pods = [make_pod(name=name, gpus=1) for name in ("a", "b")]
        self.pods = UnschedulablePods(BUSY, *pods)
        cell = SnapshotCell()
        pace = Pace(monotonic=lambda: self.pods.now, rng=random.Random(1))  # noqa: S311
        self.waker = Waker(
            cell,
            lambda: self.pods.options,
            self.api,
            self.outcomes.append,
            annotation="example.com/woken",
            pace=pace,
        )
        for pod in pods:
            self.waker.filtered(
                make_filter_outcome(
                    [Verdict.TOO_FEW],
                    pod_request=self.pods.request_of(pod),
                    generation=self.pods.snapshot.generation,
                )
            )
        self.pods.put(make_node(gpus=4))
        if is_synced:
            cell.publish(self.pods.snapshot)

    def wait(self, seconds: float) -> list[str]:
        """Let time pass, and return the names of the pods that were patched in it."""
        before = len(self.api.patches)
        for _ in range(round(seconds / 0.05)):
            self.waker.step()
            self.pods.now += 0.05
        return [path.split("/")[-2] for path, _ in self.api.patches[before:]]
