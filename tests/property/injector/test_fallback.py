"""Random storms of reviews against a plain model of the rules for fallback."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import make_node
from tests.fakes.admissions import (
    GPU,
    MIG_1G,
    MIG_2G,
    Admissions,
    asked_of,
    make_review,
)

CHAIN = (MIG_2G, MIG_1G, GPU)
HOLD_SECONDS = 10


@dataclass(slots=True)
class ModelPod:
    """A pod that was admitted."""

    name: str
    resource: str
    quantity: int
    zone: str
    tree: dict[str, Any]
    promised_at: float
    state: str = "under way"  # then pending, a node's name, gone


@dataclass(slots=True)
class Model:
    """The rules, one node and one pod at a time."""

    nodes: dict[str, dict[str, int]]  # name -> resource -> allocatable
    zones: dict[str, str]
    pods: list[ModelPod] = field(default_factory=list)
    seconds: float = 0.0

    def eligible(self, zone: str) -> list[str]:
        return [node for node in self.nodes if zone in ("", self.zones[node])]

    def free(self) -> dict[tuple[str, str], int]:
        """What bound pods and those on their way leave, by node and resource."""
        left = {
            (node, resource): amount
            for node, offered in self.nodes.items()
            for resource, amount in offered.items()
        }
        for pod in self.pods:
            if pod.state in self.nodes:
                left[pod.state, pod.resource] -= pod.quantity
        pending = [pod for pod in self.pods if pod.state == "pending"]
        under_way = [
            pod
            for pod in self.pods
            if pod.state == "under way"
            and self.seconds < pod.promised_at + HOLD_SECONDS
        ]
        for pod in [*sorted(pending, key=lambda pod: pod.name), *under_way]:
            places = [
                (left[node, pod.resource], node)
                for node in self.eligible(pod.zone)
                if left[node, pod.resource] >= pod.quantity
            ]
            if places:
                left[min(places)[1], pod.resource] -= pod.quantity
        return left

    def choose(self, resource: str, quantity: int, zone: str) -> str | None:
        """Return the resource that the pod ends with, None if there is none at all."""
        tiers = CHAIN[CHAIN.index(resource) :]
        left, eligible = self.free(), self.eligible(zone)
        for tier in tiers:
            if any(left[node, tier] >= quantity for node in eligible):
                return tier
        for tier in tiers:
            if any(self.nodes[node][tier] >= quantity for node in eligible):
                return tier
        return None


nodes = st.lists(
    st.tuples(
        st.integers(0, 2), st.integers(0, 3), st.integers(0, 4), st.sampled_from("xy")
    ),
    min_size=1,
    max_size=4,
)
admit = st.tuples(
    st.just("admit"),
    st.sampled_from([MIG_2G, MIG_2G, MIG_1G]),
    st.integers(1, 2),
    st.sampled_from(["", "", "x", "y"]),
)
happen = st.tuples(
    st.sampled_from(["appear", "bind", "delete", "refuse", "try", "wait"]),
    st.integers(0, 30),
)


class Storm:
    """Drives the step and the model side by side."""

    def __init__(self, drawn: list[tuple[int, int, int, str]]) -> None:
        names = [f"n{index}" for index in range(len(drawn))]
        self.model = Model(
            nodes={
                name: dict(zip(CHAIN, amounts[:3], strict=True))
                for name, amounts in zip(names, drawn, strict=True)
            },
            zones={name: node[3] for name, node in zip(names, drawn, strict=True)},
        )
        self.admissions = Admissions(
            nodes=[
                make_node(
                    name=name,
                    resources={key: str(amount) for key, amount in offered.items()},
                    labels={"zone": self.model.zones[name]},
                )
                for name, offered in self.model.nodes.items()
            ],
            chains=(CHAIN,),
        )
        self.identities: dict[str, Any] = {}

    def admit(
        self, resource: str, quantity: int, zone: str, *, is_dry_run: bool = False
    ) -> None:
        review = make_review(
            {resource: quantity}, spec={"nodeSelector": {"zone": zone}} if zone else {}
        )
        name = f"pod-{len(self.model.pods):03}"
        expected = self.model.choose(resource, quantity, zone)

        pod, result, identity = self.admissions.review(
            review, name=name, is_dry_run=is_dry_run
        )

        assert asked_of(pod) == [{expected or resource: str(quantity)}]
        assert (result.outcome == "nowhere") == (expected is None)
        if not is_dry_run:
            self.identities[name] = identity
            self.model.pods.append(
                ModelPod(
                    name=name,
                    resource=expected or resource,
                    quantity=quantity,
                    zone=zone,
                    tree=pod,
                    promised_at=self.model.seconds,
                )
            )

    def pick(self, state: str, number: int) -> ModelPod | None:
        found = [pod for pod in self.model.pods if pod.state == state]
        return found[number % len(found)] if found else None

    def appear(self, number: int) -> None:
        pod = self.pick("under way", number)
        if pod is not None:
            self.admissions.appear(pod.tree, name=pod.name)
            pod.state = "pending"

    def bind(self, number: int) -> None:
        """Let kube-scheduler place a pending pod, anywhere that it fits."""
        pod = self.pick("pending", number)
        if pod is None:
            return
        for node in self.model.eligible(pod.zone):
            bound = [each for each in self.model.pods if each.state == node]
            held = sum(each.quantity for each in bound if each.resource == pod.resource)
            if self.model.nodes[node][pod.resource] - held >= pod.quantity:
                self.admissions.appear(pod.tree, name=pod.name, node_name=node)
                pod.state = node
                return

    def delete(self, number: int) -> None:
        pod = self.pick("pending", number) or self.pick("n0", number)
        if pod is not None:
            self.admissions.disappear(name=pod.name)
            pod.state = "gone"

    def refuse(self, number: int) -> None:
        pod = self.pick("under way", number)
        if pod is not None:
            self.admissions.fallback.release(self.identities[pod.name])
            pod.state = "gone"

    def wait(self, number: int) -> None:
        self.model.seconds += number % 4
        self.admissions.seconds = self.model.seconds

    def step(self, event: tuple[Any, ...]) -> None:
        steps: dict[str, Callable[..., None]] = {
            "admit": self.admit,
            "appear": self.appear,
            "bind": self.bind,
            "delete": self.delete,
            "refuse": self.refuse,
            "try": lambda number: self.admit(
                MIG_2G, 1 + number % 2, "", is_dry_run=True
            ),
            "wait": self.wait,
        }
        steps[event[0]](*event[1:])


@settings(max_examples=60)
@given(nodes, st.lists(st.one_of(admit, admit, happen), max_size=40))
def test_storms_end_as_the_plain_rules_say(
    drawn: list[tuple[int, int, int, str]], events: list[tuple[Any, ...]]
) -> None:
    storm = Storm(drawn)

    for event in events:
        storm.step(event)

    storm.wait(3)
    storm.wait(3)
    storm.wait(3)
    storm.wait(3)
    assert storm.admissions.holds.count() == 0


@settings(max_examples=60)
@given(nodes, st.integers(1, 30))
def test_nothing_free_is_promised_twice(
    drawn: list[tuple[int, int, int, str]], arriving: int
) -> None:
    storm = Storm(drawn)
    promised = dict.fromkeys(CHAIN, 0)

    for _ in range(arriving):
        pod, result, _ = storm.admissions.review(make_review({MIG_2G: 1}))
        if result.outcome in ("kept", "changed"):
            (asked,) = asked_of(pod)
            promised[next(iter(asked))] += 1

    supply = {tier: sum(n[tier] for n in storm.model.nodes.values()) for tier in CHAIN}
    assert all(promised[tier] <= supply[tier] for tier in CHAIN)
    assert sum(promised.values()) == min(arriving, sum(supply.values()))
