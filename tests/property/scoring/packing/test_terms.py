"""Fragmentation and scarcity terms on random clusters against plain Python."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scoring.candidates import PodRequest
from scoring.packing.learning import ExpectedPods, ExpectedShape
from scoring.packing.shapes import Shape
from scoring.profiles import PROFILES, score_terms
from scoring.snapshot import Snapshot
from service.runtime import build_verb_options
from tests.builders import GPU, make_node, make_pod, make_snapshot, take_candidates
from tests.extender_app import make_settings

SHARED: Final = "nvidia.com/gpu.shared"
PRODUCT: Final = "nvidia.com/gpu.product"
MODELS: Final = ("Tesla-T4", "NVIDIA-L4")
OPTIONS: Final = build_verb_options(make_settings({"scoring": {"profile": "packing"}}))


@dataclass(frozen=True, slots=True)
class Place:
    """A node: its cores, GPUs, model, and the thousandths taken of each GPU."""

    cpu: int
    taken: tuple[int, ...]
    model: str
    is_sharing: bool
    used_cpu: int


places = st.builds(
    Place,
    st.integers(0, 32),
    st.lists(st.sampled_from((0, 0, 300, 500, 1000)), max_size=4).map(tuple),
    st.sampled_from(MODELS),
    st.booleans(),
    st.integers(0, 34),
)
gpus = st.one_of(
    st.tuples(st.integers(0, 4), st.just(1000)),
    st.tuples(st.just(1), st.integers(1, 999)),
)
shapes = st.builds(
    lambda cpu, asked: Shape(cpu * 500, *asked), st.integers(0, 20), gpus
)
mixes = st.dictionaries(
    st.builds(
        ExpectedShape,
        shapes,
        st.sampled_from((frozenset[str](), frozenset({"t4"}), frozenset({"l4", "x"}))),
    ),
    st.floats(0.01, 10),
    max_size=5,
)


def snapshot_of(cluster: list[Place]) -> Snapshot:
    nodes, pods = [], []
    for index, place in enumerate(cluster):
        name, count = f"n{index}", len(place.taken)
        resources: dict[str, Any] = {}
        if count:
            resources[GPU] = str(count)
            if place.is_sharing:
                resources[SHARED] = str(1000 * count)
        labels = {PRODUCT: place.model} if count else {}
        nodes.append(
            make_node(name=name, cpu=str(place.cpu), resources=resources, labels=labels)
        )
        if place.used_cpu:
            cpu = str(place.used_cpu)
            pods.append(make_pod(name=f"c{index}", cpu=cpu, node_name=name))
        for gpu, taken in enumerate(place.taken):
            if not taken or not (place.is_sharing or taken == 1000):
                continue
            requests = {GPU: "1"}
            if place.is_sharing:
                requests = {SHARED: str(taken)}
            pods.append(
                make_pod(
                    name=f"g{index}-{gpu}",
                    requests=requests,
                    node_name=name,
                    annotations={"gpu-extender.io/allocated": f"{gpu}={taken}"},
                )
            )
    return make_snapshot(nodes=nodes, pods=pods)


def free_of(place: Place) -> list[int]:
    return [
        1000 - taken if place.is_sharing or taken == 1000 else 1000
        for taken in place.taken
    ]


def accepts(expected: ExpectedShape, place: Place) -> bool:
    if not expected.accepted:
        return True
    own = {"Tesla-T4": "t4", "NVIDIA-L4": "l4"}[place.model]
    return bool(place.taken) and own in expected.accepted


def fragments(
    parts: Mapping[ExpectedShape, float], place: Place, free: list[int], cpu: int
) -> float:
    total, lost = sum(parts.values()), 0.0
    for expected, weight in parts.items():
        shape = expected.shape
        enough = [one for one in free if one >= shape.thousandths]
        can_run = (
            shape.gpus > 0
            and cpu >= shape.cpu
            and len(enough) >= shape.gpus
            and accepts(expected, place)
        )
        small = sum(one for one in free if one < shape.thousandths)
        lost += weight / total * (small if can_run else sum(free)) / 1000
    return lost if parts else sum(free) / 1000


def plain_points(
    parts: Mapping[ExpectedShape, float], place: Place, shape: Shape
) -> float:
    free, cpu = free_of(place), max(place.cpu - place.used_cpu, 0) * 1000
    if cpu < shape.cpu or sum(one >= shape.thousandths for one in free) < shape.gpus:
        return 0.0
    after = list(free)
    for _ in range(shape.gpus):
        tightest = min(one for one in after if one >= shape.thousandths)
        after[after.index(tightest)] -= shape.thousandths
    gain = fragments(parts, place, free, cpu)
    gain -= fragments(parts, place, after, cpu - shape.cpu)
    gain -= 0.05 / 16 * (sum(after) / 1000 + (cpu - shape.cpu) / 16_000)
    if shape.gpus:
        own = place.cpu * 1000 / max(len(free), 1) * shape.total / 1000
        gain -= 0.01 * max(shape.cpu - own, 0) / 1000
    return min(max(50 + 50 / 16 * gain, 0.0), 100.0)


def plain_scarcity(
    parts: Mapping[ExpectedShape, float], cluster: list[Place], place: Place, gpus: int
) -> float:
    """Return the points for a pod of so many thousandths."""
    of_model = [len(p.taken) for p in cluster if p.taken and p.model == place.model]
    models = {p.model: p for p in cluster if p.taken}
    asked = sum(w * e.shape.total for e, w in parts.items())
    if not (gpus and asked and place.taken):
        return 100.0
    named = sum(
        weight * expected.shape.total
        for expected, weight in parts.items()
        if accepts(expected, place)
        and not all(accepts(expected, other) for other in models.values())
    )
    supply = sum(of_model) / sum(len(p.taken) for p in cluster)
    return max(100 - 50 / 16 * gpus / 1000 * named / asked / supply, 0.0)


@given(st.lists(places, min_size=1, max_size=6), shapes, mixes)
@settings(max_examples=80, deadline=None)
def test_terms_equal_a_plain_reference(
    cluster: list[Place], shape: Shape, parts: dict[ExpectedShape, float]
) -> None:
    snapshot = snapshot_of(cluster)
    if shape.gpus and shape.thousandths < 1000:
        if not any(place.is_sharing and place.taken for place in cluster):
            return  # nobody knows what a share is
        request: tuple[tuple[str, int], ...] = ((SHARED, shape.thousandths),)
    else:
        request = ((GPU, shape.gpus),) if shape.gpus else ()
    primary = request[0][0] if request else ""
    ask = PodRequest("", request, primary, None, "", cpu=shape.cpu)
    expected = ExpectedPods(parts)
    candidates = take_candidates(snapshot, snapshot.nodes.names, ask)
    options = replace(OPTIONS.score_options, expected=expected)

    terms = score_terms(candidates, ask, options, OPTIONS.weights)

    found = terms["fragmentation"].tolist()
    assert found == pytest.approx(
        [plain_points(parts, place, shape) for place in cluster], abs=1e-9
    )
    assert terms["scarcity"].tolist() == pytest.approx(
        [plain_scarcity(parts, cluster, place, shape.total) for place in cluster]
    )
    totals = PROFILES["packing"].combine(terms, OPTIONS.weights)
    for values in (*terms.values(), totals):
        assert np.isfinite(values).all()
        assert ((values >= 0) & (values <= 100)).all()
