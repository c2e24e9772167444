"""Unschedulable pods over a real ledger, and a clock that a test turns."""

from dataclasses import replace
from typing import Any, Final, TypeAlias

from cluster.decode.records import RecordBuilder
from cluster.ledger.changes import (
    DeviceClassesListed,
    GpuModelsChanged,
    NodeGone,
    NodeSeen,
    PodGone,
    PodSeen,
)
from cluster.ledger.ledger import Ledger
from extender.verbs.lookup import pod_request_of_record
from extender.verbs.options import VerbOptions
from extender.wakeup.queue import WakeUps
from scoring.candidates import PodRequest
from scoring.gpu.node_gpus import GpuLabelRules
from scoring.snapshot import Snapshot
from service.runtime import build_verb_options
from tests.builders import (
    BUILDER,
    make_ledger,
    make_node,
    make_node_record,
    make_pod,
    make_pod_record,
)
from tests.extender_app import make_settings

Tree: TypeAlias = dict[str, Any]
TICK_SECONDS: Final = 0.05
UNSCHEDULABLE: Final = {
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "lastTransitionTime": "2026-11-27T12:00:01Z",
        }
    ]
}

POD: Final = make_pod(gpus=1)


def make_busy(name: str = "node-1", **more: Any) -> Tree:
    """Return a node whose GPUs are being changed."""
    labels = {"nvidia.com/mig.config.state": "pending"}
    return make_node(name=name, gpus=4, labels=labels, **more)


class UnschedulablePods:
    """A cluster in which pods are refused and woken.

    Attributes
    ----------
    now : float
        Seconds.
    woken : list of (float, str)
        When each pod was woken, by name.
    """

    def __init__(self, *objects: Tree, builder: RecordBuilder = BUILDER) -> None:
        self._builder = builder
        self.now = 0.0
        self.woken: list[tuple[float, str]] = []
        self.wake_ups = WakeUps()
        self.options: VerbOptions = build_verb_options(make_settings())
        self._ledger: Ledger = make_ledger()
        self._names: dict[str, str] = {}
        self.put(*objects)
        self.snapshot: Snapshot = self._ledger.build()

    def put(self, *objects: Tree) -> None:
        """Create or change nodes and pods."""
        for tree in objects:
            if tree["kind"] == "Node":
                self._ledger.apply(
                    NodeSeen(make_node_record(tree, builder=self._builder))
                )
            else:
                record = make_pod_record(tree, builder=self._builder)
                self._names[record.uid] = record.name
                self._ledger.apply(PodSeen(record))
        self.publish()

    def remove(self, tree: Tree) -> None:
        """Delete a node or pod."""
        name = tree["metadata"]["name"]
        uid = tree["metadata"]["uid"]
        self._ledger.apply(NodeGone(name) if tree["kind"] == "Node" else PodGone(uid))
        self.publish()

    def put_device_class(self, resource: str) -> None:
        """Let a DeviceClass carry an extended resource."""
        self._ledger.apply(DeviceClassesListed(frozenset({resource})))
        self.publish()

    def publish(self) -> None:
        """Show what was applied."""
        if self._ledger.has_changes:
            self.snapshot = self._ledger.build()

    def refuse(
        self,
        tree: Tree | None = None,
        *,
        offered: int = 1,
        generation: int | None = None,
    ) -> None:
        """Answer a pod's call with nothing, on the newest snapshot or an older one."""
        self._answer(tree or make_pod(gpus=1), generation, offered, is_empty=True)

    def accept(self, tree: Tree | None = None) -> None:
        """Answer a pod's call with a node."""
        self._answer(tree or make_pod(gpus=1), None, 1, is_empty=False)

    def request_of(self, tree: Tree, nominated_node: str = "") -> PodRequest:
        """Return what a pod asks."""
        record = make_pod_record(tree, builder=self._builder)
        pod_request = pod_request_of_record(record, self.options)
        return replace(pod_request, nominated_node=nominated_node)

    def use_settings(self, **settings: Any) -> None:
        """Put other settings in the place of the present ones, as a reload does."""
        self.options = build_verb_options(make_settings(settings))

    def use_gpus(self, rules: GpuLabelRules) -> None:
        """Tell GPUs by other rules, as a reload does."""
        self._builder.gpus.use(rules)
        demands = self._builder.requirements_reader
        self._ledger.apply(GpuModelsChanged(self._builder.gpus.read, demands.reread))
        self.publish()

    def _answer(
        self, tree: Tree, generation: int | None, offered: int, *, is_empty: bool
    ) -> None:
        pod_request = self.request_of(tree)
        if generation is None:
            generation = self.snapshot.generation
        self.wake_ups.note(pod_request, generation, offered, is_empty=is_empty)

    def wait(self, seconds: float) -> list[str]:
        """Let time pass, and return the names of the pods that were woken in it."""
        before = len(self.woken)
        end = self.now + seconds
        while self.now < end - TICK_SECONDS / 2:
            self.tick()
            self.now = round(self.now + TICK_SECONDS, 6)
        return [name for _, name in self.woken[before:]]

    def tick(self) -> str | None:
        """Wake one pod, if one is due, and return its name."""
        wake = self.wake_ups.next(self.snapshot, self.options, self.now)
        if wake is None:
            return None
        assert self._names[wake.uid] == wake.name
        self.wake_ups.woken(wake, self.now)
        self.woken.append((self.now, wake.name))
        return wake.name
