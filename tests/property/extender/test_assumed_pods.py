"""Assumed pods against the plain rule, over histories of calls and events."""

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from cluster.ledger.changes import Change, PodGone, PodSeen
from cluster.ledger.ledger import Ledger
from extender.tracking.assumed_pods import MAX_SECONDS, AssumedPods
from scoring.candidates import PodRequest
from scoring.resources import Request
from scoring.snapshot import Snapshot
from tests.builders import GPU, make_ledger, make_node, make_pod, make_pod_record

UIDS = ("u1", "u2", "u3", "u4")
NODES = ("a", "b")
ONE: Request = ((GPU, 1),)


def pod_seen(uid: str, node_name: str, phase: str) -> PodSeen:
    return PodSeen(
        make_pod_record(
            make_pod(
                name=f"pod-{uid}", uid=uid, gpus=1, node_name=node_name, phase=phase
            )
        )
    )


uids = st.sampled_from(UIDS)
events = st.one_of(
    st.builds(pod_seen, uids, st.just(""), st.just("Pending")),
    st.builds(pod_seen, uids, st.sampled_from(NODES), st.just("Running")),
    st.builds(pod_seen, uids, st.sampled_from(NODES), st.just("Failed")),
    st.builds(PodGone, uids),
)
Step: TypeAlias = tuple[str, Any]
steps = st.one_of(
    st.tuples(st.just("place"), st.tuples(uids, st.sampled_from(NODES))),
    st.tuples(st.just("ask"), uids),
    st.tuples(st.just("event"), events),
    st.tuples(st.just("wait"), st.sampled_from([0.5, 1.0, 1.5])),
    st.tuples(st.just("look"), st.none()),
)


@dataclass
class Reference:
    """Who is under way, in plain words."""

    placed: dict[str, tuple[str, float]] = field(default_factory=dict)
    # UIDs of pods that live, and of those that did once
    alive: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)

    def see(self, change: Change) -> None:
        match change:
            case PodGone(uid):
                self.gone |= {uid} & self.alive
                self.alive.discard(uid)
                self.bound.discard(uid)
            case PodSeen(record) if record.is_terminal:
                self.gone |= {record.uid} & self.alive
                self.alive.discard(record.uid)
                self.bound.discard(record.uid)
            case PodSeen(record):
                self.alive.add(record.uid)
                self.bound.discard(record.uid)
                if record.node_name:
                    self.bound.add(record.uid)

    def look(self, now: float) -> dict[str, int]:
        """Forget who is no longer under way; return how many are, by node."""
        self.placed = {
            uid: (node_name, at)
            for uid, (node_name, at) in self.placed.items()
            if at >= now - MAX_SECONDS and uid not in self.bound | self.gone
        }
        nodes = [node_name for node_name, _ in self.placed.values()]
        return {name: nodes.count(name) for name in set(nodes)}


def count(assumed_pods: AssumedPods, snapshot: Snapshot) -> dict[str, int]:
    return {name: len(pods) for name, pods in assumed_pods.by_node(snapshot).items()}


@given(st.lists(steps, max_size=40))
def test_who_is_under_way_follows_calls_and_events(steps: list[Step]) -> None:
    now = 0.0
    assumed_pods = AssumedPods(clock=lambda: now)
    reference = Reference()
    ledger: Ledger = make_ledger(nodes=[make_node(name=name, gpus=8) for name in NODES])

    for kind, value in [*steps, ("look", None)]:
        if kind == "place":
            assumed_pods.note(PodRequest(value[0], ONE, GPU, None, ""), value[1])
            reference.placed[value[0]] = (value[1], now)
        elif kind == "ask":
            assumed_pods.forget(value)
            reference.placed.pop(value, None)
        elif kind == "event":
            ledger.apply(value)
            reference.see(value)
        elif kind == "wait":
            now += value
        else:
            assert count(assumed_pods, ledger.build()) == reference.look(now)
