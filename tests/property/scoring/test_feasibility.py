"""Verdicts on random clusters against one node after the other in plain Python."""

from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from scoring.candidates import PodRequest, primary_resource
from scoring.feasibility import Verdict, counted_as_full, judge, shown_verdict
from tests.builders import (
    GPU,
    SCOPE,
    Tree,
    make_node,
    make_pod,
    make_snapshot,
    take_candidates,
)

MIG = "nvidia.com/mig-1g.10gb"
RESOURCES = (GPU, MIG)
NAMES = ("n0", "n1", "n2", "n3")
TYPES = (None, "", "v100", "a100")
AMOUNTS = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 8), max_size=2)


@dataclass(frozen=True, slots=True)
class Case:
    """A cluster and a pod that looks for a place in it."""

    nodes: list[Tree]
    pods: list[Tree]
    claimed: frozenset[str]
    pod_request: PodRequest
    names: list[str]
    is_enforcing: bool


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Tree:
    labels: dict[str, str] = {}
    accelerator = draw(st.sampled_from(TYPES))
    if accelerator is not None:
        labels["accelerator"] = accelerator
    if draw(st.integers(0, 5)) == 0:
        labels["nvidia.com/mig.config.state"] = "pending"
    return make_node(
        name=name, resources=draw(AMOUNTS), capacity=draw(AMOUNTS), labels=labels
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    present = draw(st.lists(st.sampled_from(NAMES), unique=True))
    pods = [
        make_pod(
            name=f"p{number}",
            uid=f"p{number}",
            requests={name: str(amount) for name, amount in draw(AMOUNTS).items()},
            node_name=draw(st.sampled_from(("", *NAMES))),
            phase=draw(st.sampled_from(("Running", "Pending", "Succeeded", "Failed"))),
        )
        for number in range(draw(st.integers(0, 6)))
    ]
    request = tuple(
        sorted((name, amount) for name, amount in draw(AMOUNTS).items() if amount)
    )
    pod_request = PodRequest(
        uid=draw(st.sampled_from(("", "p0", "p1", "other"))),
        request=request,
        primary=primary_resource(request, SCOPE),
        accelerator=draw(st.sampled_from(TYPES)),
        nominated_node=draw(st.sampled_from(("", *NAMES))),
    )
    return Case(
        nodes=[draw(nodes(name)) for name in present],
        pods=pods,
        claimed=draw(st.frozensets(st.sampled_from(RESOURCES), max_size=1)),
        pod_request=pod_request,
        names=draw(st.lists(st.sampled_from((*NAMES, "ghost")), unique=True)),
        is_enforcing=draw(st.booleans()),
    )


def held(case: Case, node_name: str, resource: str) -> int:
    """Return what pods other than the asking one hold on a node."""
    return sum(
        int(
            pod["spec"]["containers"][0]
            .get("resources", {})
            .get("requests", {})
            .get(resource, 0)
        )
        for pod in case.pods
        if pod["spec"].get("nodeName") == node_name
        and pod["status"]["phase"] not in ("Succeeded", "Failed")
        and pod["metadata"]["uid"] != (case.pod_request.uid or None)
    )


@dataclass(frozen=True, slots=True)
class Offer:
    """What one node has of one resource, and how much of it is asked."""

    resource: str
    asked: int
    allocatable: int
    is_offered: bool
    is_claimed: bool
    is_short: bool


def offers(case: Case, node: Tree) -> list[Offer]:
    status: Any = node["status"]
    found = []
    for resource, asked in case.pod_request.request:
        allocatable = int(status["allocatable"].get(resource, 0))
        has_device = allocatable > 0 or int(status["capacity"].get(resource, 0)) > 0
        is_claimed = not has_device and resource in case.claimed
        free = max(allocatable - held(case, node["metadata"]["name"], resource), 0)
        found.append(
            Offer(
                resource,
                asked,
                allocatable,
                has_device or is_claimed,
                is_claimed,
                free < asked and not is_claimed,
            )
        )
    return found


def plain_verdict(case: Case, name: str) -> tuple[Verdict, bool]:
    """Return the verdict on one candidate, and whether our count disagrees."""
    node = next((tree for tree in case.nodes if tree["metadata"]["name"] == name), None)
    if not case.pod_request.request:
        return Verdict.FEASIBLE, False
    if node is None:
        return Verdict.UNKNOWN_NODE, False
    labels = node["metadata"]["labels"]
    having = offers(case, node)
    counted = [offer for offer in having if not offer.is_claimed]
    lacking = [offer.resource for offer in having if not offer.is_offered]
    asked_type = case.pod_request.accelerator
    is_short = (
        any(offer.is_short for offer in having)
        and name != case.pod_request.nominated_node
    )
    has_slices = any(
        int(amounts.get(MIG, 0)) > 0
        for amounts in (node["status"]["allocatable"], node["status"]["capacity"])
    )
    is_faulted = "nvidia.com/mig.config.state" in labels
    if is_faulted and labels.get("accelerator"):  # v100, a100: GPUs of that vendor
        return Verdict.NOT_READY, False
    table = {
        Verdict.IN_PARTS: GPU in lacking and has_slices,
        Verdict.NO_GPU: GPU in lacking,
        Verdict.NO_SUCH_RESOURCE: bool(lacking),
        Verdict.NOT_READY: is_faulted
        or any(not offer.allocatable for offer in counted),
        Verdict.TOO_FEW: any(offer.allocatable < offer.asked for offer in counted),
        Verdict.WRONG_TYPE: asked_type is not None
        and labels.get("accelerator") != asked_type,
        Verdict.INSUFFICIENT: is_short and case.is_enforcing,
    }
    verdict = next((kind for kind, fails in table.items() if fails), Verdict.FEASIBLE)
    return verdict, is_short and verdict is Verdict.FEASIBLE


@settings(max_examples=400)
@given(case=cases())
def test_verdicts_are_those_of_one_node_after_the_other(case: Case) -> None:
    snapshot = make_snapshot(
        nodes=case.nodes, pods=case.pods, device_class_resources=case.claimed
    )
    candidates = take_candidates(snapshot, case.names, case.pod_request)

    feasibility = judge(candidates, case.pod_request, is_enforcing=case.is_enforcing)

    plain = [plain_verdict(case, name) for name in case.names]
    assert feasibility.verdicts.tolist() == [verdict for verdict, _ in plain]
    assert feasibility.count_mismatches == sum(disagrees for _, disagrees in plain)
    assert feasibility.feasible.tolist() == [
        verdict is Verdict.FEASIBLE for verdict, _ in plain
    ]
    refused = [verdict for verdict, _ in plain if verdict is not Verdict.FEASIBLE]
    assert shown_verdict(feasibility.verdicts) == (
        max(refused) if refused and len(refused) == len(plain) else None
    )


@settings(max_examples=100)
@given(case=cases())
def test_a_node_that_is_short_is_counted_as_full_and_no_other(case: Case) -> None:
    snapshot = make_snapshot(
        nodes=case.nodes, pods=case.pods, device_class_resources=case.claimed
    )
    candidates = take_candidates(snapshot, case.names, case.pod_request)
    before = candidates.requested.tolist()

    full = counted_as_full(candidates, case.pod_request)

    assert candidates.requested.tolist() == before
    for position, name in enumerate(case.names):
        node = next(
            (tree for tree in case.nodes if tree["metadata"]["name"] == name), None
        )
        if node is None:
            continue
        for row, offer in enumerate(offers(case, node)):
            requested = int(full.requested[row, position])
            assert requested == (
                offer.allocatable if offer.is_short else before[row][position]
            )
