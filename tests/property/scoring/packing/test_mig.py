"""MIG places and prices, for all models, against trying out everything."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import combinations
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scoring.candidates import PodRequest
from scoring.gpu.models import MigProfile, default_table
from scoring.packing.mig import (
    MEDIA,
    Geometry,
    MigGpus,
    count_places,
    place,
    price,
    weigh_profiles,
)
from service.runtime import build_verb_options
from tests.builders import Tree, make_node, make_pod, make_snapshot, take_candidates
from tests.extender_app import make_settings

GEOMETRIES: Final = sorted(
    {model.mig for model in default_table().models.values() if model.mig},
    key=lambda geometry: geometry[-1].name,
)

# Instances on one GPU: profile and where each begins.
Instances = tuple[tuple[MigProfile, int], ...]


def taken(profile: MigProfile, start: int) -> set[int]:
    return set(range(start, start + profile.memory_slices))


def can_be(instances: Instances) -> bool:
    """Whether instances can be on one GPU together, by NVIDIA's rules."""
    slices = [
        number for profile, start in instances for number in taken(profile, start)
    ]
    media = sum("+me" in profile.name for profile, _ in instances)
    return len(slices) == len(set(slices)) and media <= 1


def options(geometry: Geometry, instances: Instances) -> Iterator[Instances]:
    """Yield the GPU with each instance that could be added."""
    for profile in geometry:
        for start in profile.starts:
            if can_be((*instances, (profile, start))):
                yield (*instances, (profile, start))


def most(profile: MigProfile, instances: Instances) -> int:
    """Return how many more of a profile a GPU takes, by trying every way."""
    return _most(unnamed(profile), mask(instances))


@cache
def unnamed(profile: MigProfile) -> MigProfile:
    """Return a profile as all models have it: they differ in its name alone."""
    return replace(profile, name="+me" if "+me" in profile.name else "")


@cache
def _most(profile: MigProfile, in_use: int) -> int:
    """Return the same by what is in use."""
    one = MigProfile("+me" if in_use & MEDIA else "", 0, 1, 1, ())
    held = tuple((one, number) for number in range(8) if in_use >> number & 1)
    held = (
        (held[0], *((replace(one, name=""), at) for _, at in held[1:])) if held else ()
    )
    return max(
        count
        for count in range(len(profile.starts) + 1)
        for starts in combinations(profile.starts, count)
        if can_be((*held, *((profile, start) for start in starts)))
    )


def mask(instances: Instances) -> int:
    found = 0
    for profile, start in instances:
        found |= sum(1 << number for number in taken(profile, start))
        found |= MEDIA if "+me" in profile.name else 0
    return found


def reachable(geometry: Geometry) -> dict[int, Instances]:
    """Return every state that a GPU can be in, by its mask, each by one way to it."""
    found: dict[int, Instances] = {0: ()}
    waiting: list[Instances] = [()]
    while waiting:
        for more in options(geometry, waiting.pop()):
            if mask(more) not in found:
                found[mask(more)] = more
                waiting.append(more)
    return found


STATES: Final = {geometry: reachable(geometry) for geometry in GEOMETRIES}


def test_all_models_that_can_be_cut_are_here() -> None:
    assert len(GEOMETRIES) == 12  # A100-80 and H100-80 are cut alike
    assert sum(len(geometry) for geometry in GEOMETRIES) == 80


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=lambda g: g[-1].name)
def test_places_are_those_that_trying_finds(geometry: Geometry) -> None:
    places = count_places(geometry)

    for state, instances in STATES[geometry].items():
        for row, profile in enumerate(geometry):
            assert places[row, state] == most(profile, instances)


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=lambda g: g[-1].name)
def test_compute_slices_never_bind(geometry: Geometry) -> None:
    for instances in STATES[geometry].values():
        held = sum(profile.compute_slices for profile, _ in instances)
        assert held <= geometry[-1].compute_slices


def plain_price(
    geometry: Geometry, gpus: list[Instances], profile: MigProfile
) -> float | None:
    """Return the least that one more instance breaks, place by place; None for none."""
    size = (profile.compute_slices, profile.memory_slices)
    larger = [
        other
        for other in geometry
        if (other.compute_slices, other.memory_slices) > size and "+" not in other.name
    ]
    whole = sum(other.memory_slices for other in larger)

    def count(other: MigProfile, gpus: list[Instances]) -> int:
        return sum(most(other, instances) for instances in gpus)

    losses = []
    for index, instances in enumerate(gpus):
        for more in options((profile,), instances):
            after = [*gpus[:index], more, *gpus[index + 1 :]]
            lost = 0.0
            for other in larger:
                places = count(other, gpus)
                if places:
                    part = (places - count(other, after)) / places
                    lost += other.memory_slices / whole * part
            losses.append(lost)
    return min(losses, default=None)


@given(st.data())
def test_the_price_is_the_least_that_an_instance_breaks(data: st.DataObject) -> None:
    geometry = data.draw(st.sampled_from(GEOMETRIES))
    states = STATES[geometry]
    gpus = data.draw(st.lists(st.sampled_from(list(states)), min_size=1, max_size=3))
    profile = data.draw(st.sampled_from(geometry))
    name = profile.name.replace("+", ".")
    state = MigGpus(geometry, tuple(gpus), tuple(range(len(gpus))))

    found = place(state, name)

    wanted = plain_price(geometry, [states[gpu] for gpu in gpus], profile)
    assert (found is None) == (wanted is None)
    if found is not None:
        assert found.price == pytest.approx(wanted)
        assert 0.0 <= found.price <= 1.0 + 1e-9
    assert 0.0 <= price(state, [(name, 1)]) <= 1.0


@given(st.data())
def test_several_instances_go_one_by_one(data: st.DataObject) -> None:
    geometry = data.draw(st.sampled_from(GEOMETRIES))
    gpus = data.draw(
        st.lists(st.sampled_from(list(STATES[geometry])), min_size=1, max_size=3)
    )
    name = data.draw(st.sampled_from(geometry)).name.replace("+", ".")
    start = state = MigGpus(geometry, tuple(gpus), tuple(range(len(gpus))))
    amount = data.draw(st.integers(1, 4))

    whole = place(start, name, amount)

    for _ in range(amount):
        one = place(state, name)
        if one is None:
            assert whole is None
            return
        state = one.gpus
    assert whole is not None
    assert whole.gpus == state
    assert len(whole.windows) == amount
    assert 0.0 <= whole.price <= 1.0


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=lambda g: g[-1].name)
def test_what_profiles_count_adds_up(geometry: Geometry) -> None:
    for index in range(len(geometry)):
        total = weigh_profiles(geometry, index).sum()
        assert total == pytest.approx(0.0 if index == len(geometry) - 1 else 1.0)


H100: Final = default_table().models["H100-SXM5-80GB"].mig
OPTIONS: Final = build_verb_options(make_settings({"scoring": {"weights": {"mig": 1}}}))


def cut_node(name: str, gpus: int) -> Tree:
    """Return a node that offers all that its GPUs can be cut into."""
    return make_node(
        name=name,
        resources={
            f"nvidia.com/mig-{profile.name.replace('+', '.')}": str(
                gpus * len(profile.starts)
            )
            for profile in H100
        },
        labels={
            "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
            "nvidia.com/gpu.count": str(gpus),
        },
    )


def pod_with(node: str, gpu: int, profile: MigProfile, start: int) -> Tree:
    """Return a pod that has an instance, and says which."""
    resource = f"nvidia.com/mig-{profile.name.replace('+', '.')}"
    plain = profile.name.replace(".", "").replace("+", "-")
    number = H100.index(profile)
    return make_pod(
        name=f"{node}-{gpu}-{start}",
        requests={resource: "1"},
        node_name=node,
        annotations={
            "gpu-extender.io/allocated": f"gpu-{gpu}-mig-{plain}-{number}-{start}"
        },
    )


@given(st.data())
def test_scores_of_nodes_are_those_of_trying_each(data: st.DataObject) -> None:
    one_gpu = st.sampled_from(list(STATES[H100].values()))
    cluster = data.draw(
        st.lists(st.lists(one_gpu, min_size=1, max_size=3), min_size=1, max_size=4)
    )
    asked = data.draw(st.sampled_from(H100))
    snapshot = make_snapshot(
        nodes=[cut_node(f"n{i}", len(gpus)) for i, gpus in enumerate(cluster)],
        pods=[
            pod_with(f"n{i}", gpu, profile, start)
            for i, gpus in enumerate(cluster)
            for gpu, instances in enumerate(gpus)
            for profile, start in instances
        ],
    )
    resource = f"nvidia.com/mig-{asked.name.replace('+', '.')}"
    request = PodRequest("", ((resource, 1),), resource, None, "")

    candidates = take_candidates(snapshot, snapshot.nodes.names, request)
    scores = OPTIONS.score_terms(candidates, request)["mig"]

    prices = [plain_price(H100, gpus, asked) for gpus in cluster]
    wanted = [0.0 if price is None else 100.0 * (1.0 - price) for price in prices]
    assert scores.tolist() == pytest.approx(wanted)
    assert (scores >= 0.0).all()
    assert (scores <= 100.0).all()
