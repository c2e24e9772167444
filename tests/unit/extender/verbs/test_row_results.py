"""What is remembered of one candidate equals what would be computed of another."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from extender.verbs.reuse import MAX_FEW, MAX_REQUESTS, MAX_ROWS, RowResults, rows_of
from scoring.candidates import Candidates, LabelKeys, PodRequest, take_columns
from scoring.gpu.models import default_table
from scoring.gpu.node_gpus import NodeGpus
from scoring.packing.learning import ExpectedPods
from scoring.packing.mig import no_instances
from scoring.topology.devices import LinkKind
from scoring.topology.layouts import NAMED_LAYOUTS, layout_of
from tests.builders import GPU, make_node, make_snapshot
from tests.fakes.judging import Judging

KEYS = LabelKeys()
PAIR = layout_of(*NAMED_LAYOUTS["bridged-pairs-2"])
ASK = PodRequest("", ((GPU, 2),), GPU, None, "")


def candidates_with(*gpus: int, pod_request: PodRequest = ASK) -> Candidates:
    names = [f"node-{number}" for number in range(len(gpus))]
    nodes = [
        make_node(name=name, gpus=count)
        for name, count in zip(names, gpus, strict=True)
    ]
    every = np.arange(len(gpus), dtype=np.intp)
    return take_columns(make_snapshot(nodes=nodes), every, pod_request, KEYS)


def test_a_candidate_like_an_earlier_one_is_not_computed() -> None:
    judging = Judging()
    alike = RowResults(judging)

    first = alike(candidates_with(4, 1), ASK)
    again = alike(candidates_with(1, 4, 1), ASK)

    assert judging.counts == [2]
    assert [array.tolist() for array in again] == [
        [array.tolist()[index] for index in (1, 0, 1)] for array in first
    ]
    assert [array.dtype for array in again] == [array.dtype for array in first]


def test_one_unlike_candidate_has_all_computed() -> None:
    judging = Judging()
    alike = RowResults(judging)
    alike(candidates_with(4), ASK)

    verdicts, _ = alike(candidates_with(4, 8), ASK)

    assert judging.counts == [1, 2]
    assert verdicts.tolist() == [0, 0]


def test_pods_that_ask_for_something_else_have_results_of_their_own() -> None:
    alike = RowResults(Judging())
    greedy = replace(ASK, request=((GPU, 8),))

    assert alike(candidates_with(4), ASK)[0].tolist() == [0]
    assert alike(candidates_with(4, pod_request=greedy), greedy)[0].tolist() != [0]


@pytest.mark.parametrize(
    "count", [pytest.param(0, id="none"), pytest.param(MAX_FEW + 1, id="many")]
)
def test_they_are_computed_each_time(count: int) -> None:
    judging = Judging()
    alike = RowResults(judging)

    for _ in range(2):
        alike(candidates_with(*[4] * count), ASK)

    assert judging.counts == [count, count]


def test_a_pod_that_asks_for_many_resources_has_nothing_remembered() -> None:
    judging = Judging()
    alike = RowResults(judging)
    pod_request = replace(ASK, request=tuple((f"x/{n}", 1) for n in range(MAX_FEW + 1)))

    for _ in range(2):
        alike(candidates_with(4, pod_request=pod_request), pod_request)

    assert judging.counts == [1, 1]


def test_results_are_remembered_for_so_many_candidates() -> None:
    judging = Judging()
    alike = RowResults(judging)
    for gpus in range(MAX_ROWS + 1):
        alike(replace(candidates_with(4), gpu_pods=np.array([gpus])), ASK)
    before = len(judging.counts)

    alike(replace(candidates_with(4), gpu_pods=np.array([MAX_ROWS])), ASK)
    assert len(judging.counts) == before
    alike(replace(candidates_with(4), gpu_pods=np.array([0])), ASK)
    assert len(judging.counts) == before + 1


def test_results_are_remembered_for_so_many_requests() -> None:
    judging = Judging()
    alike = RowResults(judging)
    for amount in range(1, MAX_REQUESTS + 2):
        pod_request = replace(ASK, request=((GPU, amount),))
        alike(candidates_with(4, pod_request=pod_request), pod_request)

    first = replace(ASK, request=((GPU, 1),))
    alike(candidates_with(4, pod_request=first), first)

    assert len(judging.counts) == MAX_REQUESTS + 2


TYPES = {"type_codes": np.array([1]), "type_names": ("", "a100")}
GPUS = {"gpu_codes": np.array([1]), "gpu_kinds": (NodeGpus(), NodeGpus("H100"))}
LINKS = {"link_codes": np.array([0]), "link_kinds": (LinkKind(PAIR),)}
WITH_CPU = candidates_with(4, pod_request=replace(ASK, cpu=1000))
CUT = np.array([no_instances(default_table().models["A30"].mig, 1)])
ANOTHER: dict[str, dict[str, Any]] = {
    **dict.fromkeys(TYPES, TYPES),
    **dict.fromkeys(GPUS, GPUS),
    **dict.fromkeys(LINKS, LINKS),
    "capacity": {"capacity": WITH_CPU.capacity},
    "mig": {"mig": CUT},
}


def another(name: str, value: Any) -> dict[str, Any]:
    """Return what `replace` is given to make a field of a candidate another one."""
    if name in ANOTHER:
        return ANOTHER[name]
    return {name: ~value if value.dtype == np.bool_ else value + 1}


@pytest.mark.parametrize(
    "name", [field.name for field in fields(Candidates) if field.name != "columns"]
)
def test_all_that_is_known_of_a_candidate_tells_it_from_others(name: str) -> None:
    candidate = candidates_with(4)

    other = replace(candidate, **another(name, getattr(candidate, name)))

    assert rows_of(other) != rows_of(candidate)


@pytest.mark.parametrize(
    "name", ["devices", "cpu", "models", "allocatable_cpu", "device_count"]
)
def test_so_does_all_that_packing_reads(name: str) -> None:
    candidate = candidates_with(4, pod_request=replace(ASK, cpu=1000))
    capacity = candidate.capacity
    assert capacity is not None

    if name in {"devices", "cpu", "models"}:
        free = replace(capacity.free, **{name: getattr(capacity.free, name) + 1})
        other = replace(capacity, free=free)
    else:
        other = replace(capacity, **{name: getattr(capacity, name) + 1})

    assert rows_of(replace(candidate, capacity=other)) != rows_of(candidate)


def test_and_so_do_the_pods_that_are_expected_and_the_gpus_that_there_are() -> None:
    candidate = candidates_with(4, pod_request=replace(ASK, cpu=1000))
    capacity = candidate.capacity
    assert capacity is not None

    for other in (
        replace(capacity, expected=ExpectedPods()),
        replace(capacity, supply=replace(capacity.supply)),
    ):
        assert rows_of(replace(candidate, capacity=other)) != rows_of(candidate)


def test_the_place_of_a_candidate_makes_no_difference() -> None:
    assert len(set(rows_of(candidates_with(4, 4, 4)))) == 1
