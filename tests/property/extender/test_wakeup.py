"""Wake-ups against a plain reference, over random lives of a small cluster."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.wakeup.feasible_nodes import MAX_COST
from tests.builders import make_node, make_pod
from tests.fakes.unschedulable_pods import UnschedulablePods

NODES: Final = ("a", "b", "c")
SIZES: Final = (1, 2, 4)


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node as a test sets it."""

    gpus: int
    used: int
    is_ready: bool
    is_cordoned: bool

    def takes(self, size: int) -> bool:
        """Say whether a pod of so many GPUs may go there."""
        is_usable = self.is_ready and not self.is_cordoned
        return is_usable and self.gpus - self.used >= size

    def tree(self, name: str) -> dict[str, Any]:
        state = "success" if self.is_ready else "pending"
        return make_node(
            name=name,
            gpus=self.gpus,
            labels={"nvidia.com/mig.config.state": state},
            is_cordoned=self.is_cordoned,
        )

    def holder(self, name: str) -> dict[str, Any]:
        return make_pod(name=f"holder-{name}", gpus=self.used, node_name=name)


NODE_STATES: Final = st.builds(
    NodeState,
    st.sampled_from([2, 4]),
    st.integers(0, 4),
    st.booleans(),
    st.booleans(),
)
STEPS: Final = st.one_of(
    st.tuples(st.just("set"), st.sampled_from(NODES), NODE_STATES),
    st.tuples(st.just("refuse"), st.sampled_from(SIZES), st.integers(0, 2)),
    st.tuples(st.just("accept"), st.sampled_from(SIZES), st.none()),
)
# Each step is followed by a while in which nothing happens, or by none.
LIVES: Final = st.lists(
    st.tuples(STEPS, st.sampled_from([0.0, 0.05, 0.2, 2.0])), min_size=5, max_size=30
)


def refusable(size: int) -> dict[str, Any]:
    """Return a pod that may go to any node, in many words."""
    terms = [
        {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}
    ]
    required = {"nodeSelectorTerms": terms}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    spec = {"affinity": {"nodeAffinity": affinity}}
    return make_pod(name=str(size), gpus=size, spec=spec)


class Reference:
    """The same cluster, kept in the plainest way."""

    def __init__(self, states: dict[str, NodeState]) -> None:
        trees = [state.tree(name) for name, state in states.items()]
        self.states = dict(states)
        self.pods = UnschedulablePods(
            *trees,
            *map(refusable, SIZES),
            *(state.holder(name) for name, state in states.items()),
        )
        self.first = self.pods.snapshot.generation
        self.changed_at = dict.fromkeys(NODES, self.first)
        # size of the pod -> generation that it was refused on, until it is woken
        self.refused: dict[int, int] = {}

    def do(self, what: str, argument: Any, more: Any) -> None:
        """Take one step."""
        pod = refusable(argument) if what != "set" else {}
        match what:
            case "set":
                self.pods.put(more.tree(argument))
                self.pods.put(more.holder(argument))
                if more != self.states[argument]:
                    self.changed_at[argument] = self.pods.snapshot.generation
                self.states[argument] = more
            case "refuse":
                generation = max(self.first, self.pods.snapshot.generation - more)
                self.pods.refuse(pod, generation=generation)
                self.refused[argument] = generation
            case "accept":
                self.pods.accept(pod)
                self.refused.pop(argument, None)

    def wait(self, seconds: float) -> None:
        """Let time pass; each wake-up must have been right."""
        for name in self.pods.wait(seconds):
            size = int(name)
            assert size in self.refused  # woken once until it is refused again
            assert any(self.fitting(size))
            del self.refused[size]

    def fitting(self, size: int) -> Iterable[str]:
        """Yield the nodes that changed since the refusal and would take the pod."""
        for name, state in self.states.items():
            is_changed = self.changed_at[name] > self.refused[size]
            if is_changed and state.takes(size):
                yield name


@pytest.mark.parametrize(
    "max_cost",
    [
        pytest.param(MAX_COST, id="all nodes at a time"),
        pytest.param(1, id="one node at a time"),
    ],
)
@given(
    states=st.fixed_dictionaries(dict.fromkeys(NODES, NODE_STATES)),
    life=LIVES,
)
def test_exactly_the_pods_that_a_changed_node_would_take_are_woken(
    states: dict[str, NodeState],
    life: list[tuple[tuple[str, Any, Any], float]],
    max_cost: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("extender.wakeup.feasible_nodes.MAX_COST", max_cost)
        check(states, life)


def check(
    states: dict[str, NodeState], life: list[tuple[tuple[str, Any, Any], float]]
) -> None:
    reference = Reference(states)

    for step, pause_seconds in life:
        reference.do(*step)
        reference.wait(pause_seconds)
    reference.wait(15.0)  # longer than the longest pause

    assert not any(any(reference.fitting(size)) for size in reference.refused)
    times = [moment for moment, _ in reference.pods.woken]
    assert all(b - a > 0.0999 for a, b in pairwise(times))
