"""Pods that are told why they are pending, over a real ledger and a turned clock."""

from typing import Any, TypeAlias

from cluster.ledger.changes import NodeSeen, PodGone, PodSeen
from cluster.ledger.ledger import Ledger
from extender.events.event import Event
from extender.events.plan import Describe, EventPlan
from scoring.snapshot import Snapshot
from tests.builders import make_ledger, make_node_record, make_pod_record

Tree: TypeAlias = dict[str, Any]

# Of the pods of `tests.builders`.
CREATED_SECONDS = 1_795_780_800.0  # 2026-11-27T12:00:00Z


class ToldPods:
    """A cluster whose pending pods are told, as an `EventPlan` has it.

    Attributes
    ----------
    now : float
        Seconds since the pods were created.
    told : list of (float, Event)
        All that was told, and when.
    """

    def __init__(self, *objects: Tree, describe: Describe) -> None:
        self.now = 0.0
        self.told: list[tuple[float, Event]] = []
        self.plan = EventPlan(describe)
        self._ledger: Ledger = make_ledger()
        self.put(*objects)
        self.snapshot: Snapshot = self._ledger.build()

    def put(self, *objects: Tree) -> None:
        """Create or change nodes and pods; `build` shows them."""
        for tree in objects:
            if tree["kind"] == "Node":
                self._ledger.apply(NodeSeen(make_node_record(tree)))
            else:
                self._ledger.apply(PodSeen(make_pod_record(tree)))

    def delete(self, uid: str) -> None:
        """Delete a pod."""
        self._ledger.apply(PodGone(uid))

    def build(self) -> None:
        """Publish what has changed."""
        self.snapshot = self._ledger.build()

    def step(self, seconds: float = 0.1) -> Event | None:
        """Let time pass, and return what is told then."""
        self.now += seconds
        event = self.plan.next(self.snapshot, CREATED_SECONDS + self.now, self.now)
        if event is not None:
            self.told.append((self.now, event))
        return event

    def run(self, seconds: float) -> list[Event]:
        """Let time pass at ten steps a second, and return all that is told."""
        count = len(self.told)
        until = self.now + seconds
        while self.now < until:
            self.step()
        return [event for _, event in self.told[count:]]
