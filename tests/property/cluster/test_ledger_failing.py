"""The failing column of snapshots, over histories of pods, nodes and time."""

from datetime import UTC, datetime
from itertools import count
from typing import Any, TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from cluster.ledger.changes import (
    NodeGone,
    NodeSeen,
    NodesListed,
    PodGone,
    PodSeen,
    PodsListed,
)
from cluster.ledger.failures import FailureLimits, Failures
from cluster.ledger.ledger import Ledger
from scoring.snapshot import Snapshot
from tests.builders import make_node, make_node_record, make_pod, make_pod_record

SPAN = 10
NODES = {
    name: make_node_record(make_node(name=name, gpus=8)) for name in ("a", "b", "c")
}
names = st.sampled_from(sorted(NODES))
owners = st.sampled_from(["x", "y"])
Step: TypeAlias = tuple[str, Any]
steps = st.one_of(
    st.tuples(st.just("fail"), st.tuples(names, owners, st.booleans())),
    st.tuples(st.just("fail"), st.tuples(names, owners, st.booleans())),
    st.tuples(st.just("wait"), st.integers(1, 8)),
    st.tuples(st.just("go"), names),
    st.tuples(st.just("come"), names),
    st.tuples(st.just("publish"), st.none()),
)


class History:
    """A ledger, and what is to be known of it in plain words."""

    def __init__(self) -> None:
        self.now = 1_800_000_000
        self.ledger = Ledger((), Failures(FailureLimits(2, SPAN), lambda: self.now))
        self.ledger.apply(NodesListed(tuple(NODES.values())))
        self.ledger.apply(PodsListed(()))
        self.present = set(NODES)
        # node name -> when whose pod failed there
        self.failed: dict[str, list[tuple[int, str]]] = {name: [] for name in NODES}
        self._numbers = count()

    def fail(self, node_name: str, owner: str, *, has_time: bool) -> None:
        """Have a pod fail on a node and be deleted by its controller."""
        moment = datetime.fromtimestamp(self.now, UTC).isoformat()
        tree = make_pod(
            uid=f"u{next(self._numbers)}",
            gpus=1,
            node_name=node_name,
            phase="Failed",
            owner_uid=owner,
            status={
                "reason": "UnexpectedAdmissionError",
                "startTime": moment if has_time else None,
            },
        )
        record = make_pod_record(tree)
        self.ledger.apply(PodSeen(record))
        self.ledger.apply(PodGone(record.uid))
        self.failed[node_name].append((self.now, owner))

    def go(self, name: str) -> None:
        """Delete a node: what is known of a present one is forgotten."""
        self.ledger.apply(NodeGone(name))
        if name in self.present:
            self.failed[name].clear()
        self.present.discard(name)

    def come(self, name: str) -> None:
        self.ledger.apply(NodeSeen(NODES[name]))
        self.present.add(name)

    def failing(self) -> set[str]:
        """Return the nodes that are to be failing now."""
        return {
            name
            for name in self.present
            if any(
                one != other
                and abs(at - then) <= SPAN
                and max(at, then) + SPAN > self.now
                for at, one in self.failed[name]
                for then, other in self.failed[name]
            )
        }


def failing(snapshot: Snapshot) -> set[str]:
    flags = zip(snapshot.nodes.names, snapshot.failing.tolist(), strict=True)
    return {name for name, is_failing in flags if is_failing}


@given(st.lists(steps, max_size=40))
def test_the_failing_column_follows_pods_nodes_and_time(steps: list[Step]) -> None:
    history = History()
    snapshot = history.ledger.build()

    for kind, value in [*steps, ("publish", None)]:
        if kind == "fail":
            history.fail(value[0], value[1], has_time=value[2])
        elif kind == "wait":
            history.now += value
        elif kind == "go":
            history.go(value)
        elif kind == "come":
            history.come(value)
        else:  # as the writer does
            history.ledger.expire()
            if history.ledger.has_changes:
                snapshot = history.ledger.build()
            assert failing(snapshot) == history.failing()
