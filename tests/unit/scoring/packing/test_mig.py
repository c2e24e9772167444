"""Places for MIG instances: the cases of docs/scoring.md, and what cannot be."""

from collections.abc import Mapping
from typing import Final

import pytest

from scoring.gpu.models import default_table
from scoring.packing.mig import (
    MEDIA,
    Geometry,
    MigGpus,
    Placement,
    is_on_demand,
    no_instances,
    occupy,
    place,
    places_on,
    price,
    with_pod,
    without_pod,
)

H100: Final = default_table().models["H100-SXM5-80GB"].mig
A30: Final = default_table().models["A30"].mig
# A profile of each size, by what it is called below.
NAMES: Final = {"1g": "1g.10gb", "dbl": "1g.20gb", "2g": "2g.20gb", "3g": "3g.40gb"}
NAMES_OF_LARGE: Final = {"4g": "4g.40gb", "7g": "7g.80gb"}
SIZES: Final = {**NAMES, **NAMES_OF_LARGE}


def slices(*ranges: tuple[int, int]) -> int:
    """Return a mask of windows, each given by start and number of slices."""
    return sum(((1 << size) - 1) << start for start, size in ranges)


def gpus(*occupied: int, geometry: Geometry = H100) -> MigGpus:
    return MigGpus(geometry, occupied, tuple(range(len(occupied))))


def placed(state: MigGpus, profile: str, amount: int = 1) -> Placement:
    found = place(state, profile, amount)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("occupied", "places"),
    [
        # as NVIDIA's placements have it: 1g, 1g of double memory, 2g, 3g, 4g, 7g
        pytest.param(0, [7, 4, 3, 2, 1, 1], id="nothing"),
        pytest.param(slices((0, 4)), [3, 2, 1, 1, 0, 0], id="3g or 4g at 0"),
        pytest.param(slices((4, 4)), [4, 2, 2, 1, 1, 0], id="3g at 4"),
        pytest.param(slices((0, 2)), [5, 3, 2, 1, 0, 0], id="2g at 0"),
        pytest.param(slices((4, 2)), [5, 3, 2, 1, 1, 0], id="2g at 4"),
        pytest.param(slices((3, 1)), [6, 3, 2, 1, 0, 0], id="1g at 3"),
        pytest.param(slices((6, 1)), [6, 3, 3, 1, 1, 0], id="1g at 6"),
        pytest.param(slices((0, 2), (4, 4)), [2, 1, 1, 0, 0, 0], id="2g and 3g"),
        pytest.param(slices((0, 8)), [0, 0, 0, 0, 0, 0], id="everything"),
    ],
)
def test_which_slices_are_in_use_decides_what_fits(
    occupied: int, places: list[int]
) -> None:
    found = dict(
        zip([p.name for p in H100], places_on(gpus(occupied)).tolist(), strict=True)
    )

    assert [found[name] for name in SIZES.values()] == places


@pytest.mark.parametrize(
    ("state", "cost"),
    [
        # The instance breaks one of 4 double places at least, and so on, by the memory
        # slices of each: 2, 2, 4, 4 and 8 of 20.
        pytest.param(gpus(0), 2 / 4 + 4 / 2 + 8, id="an empty GPU"),
        pytest.param(gpus(slices((6, 1))), 2 / 3 + 2 / 3, id="beside one at the end"),
        pytest.param(gpus(slices((0, 2))), 2 / 3 + 2 / 2, id="beside a 2g"),
        pytest.param(gpus(slices((0, 4), (6, 1))), 2 + 2, id="the last pair of slices"),
        pytest.param(gpus(slices((0, 1), (2, 6))), 0, id="a slice by itself"),
    ],
)
def test_the_price_of_a_slice_is_what_it_breaks(state: MigGpus, cost: float) -> None:
    assert price(state, [("1g.10gb", 1)]) == pytest.approx(cost / 20)


def test_of_many_places_one_counts_little() -> None:
    many = gpus(*[0] * 8)

    assert price(many, [("1g.10gb", 1)]) == pytest.approx(
        price(gpus(0), [("1g.10gb", 1)]) / 8
    )


def test_an_instance_goes_where_it_breaks_least_and_there_to_the_end() -> None:
    assert placed(gpus(0), "1g.10gb").windows == ((0, 6),)
    assert placed(gpus(0), "2g.20gb").windows == ((0, 4),)
    assert placed(gpus(0), "3g.40gb").windows == ((0, 4),)
    assert placed(gpus(0, slices((6, 1))), "1g.10gb").windows == ((1, 5),)
    # Of two where it breaks the same, the one with more in use.
    worse, better = slices((0, 1), (2, 2)), slices((0, 1), (2, 4))
    assert placed(gpus(worse, better), "1g.10gb").windows == ((1, 1),)


def test_several_instances_of_a_pod_are_laid_one_after_another() -> None:
    found = placed(gpus(0, 0), "3g.40gb", 3)

    assert found.windows == ((0, 4), (0, 0), (1, 4))
    assert found.gpus == gpus(slices((0, 8)), slices((4, 4)))
    assert dict(zip([p.name for p in H100], found.after, strict=True))["4g.40gb"] == 1
    # Half of the places for 4g, all of those for 7g: 4 and 8 of 12.
    assert found.price == pytest.approx((4 / 2 + 8) / 12)
    assert place(gpus(0, 0), "3g.40gb", 5) is None


def test_the_largest_profile_breaks_nothing() -> None:
    assert price(gpus(0), [("7g.80gb", 1)]) == 0.0


@pytest.mark.parametrize(
    ("profile", "amount"),
    [("7g.80gb", 1), ("9g.90gb", 1), ("1g.5gb", 1), ("1g.10gb", 10**12)],
)
def test_where_no_place_is_known_the_price_is_the_highest(
    profile: str, amount: int
) -> None:
    assert price(gpus(1), [(profile, amount)]) == 1.0


def test_a_static_layout_has_no_price() -> None:
    assert price(None, [("1g.10gb", 1)]) == 0.0


def test_one_instance_of_a_gpu_has_the_media_engines() -> None:
    first = placed(gpus(0), "1g.10gb.me")

    assert first.gpus.occupied == (slices((6, 1)) | MEDIA,)
    assert place(first.gpus, "1g.10gb.me") is None
    assert placed(first.gpus, "1g.10gb").windows == ((0, 5),)


# --- instances that pods have ------------------------------------------------


def test_instances_are_known_by_the_names_of_the_dra_driver() -> None:
    found = occupy(
        no_instances(H100, 3),
        [
            ({"1g.10gb": 1}, ["gpu-0-mig-1g10gb-19-6"]),
            (
                {"3g.40gb": 1, "2g.20gb": 1},
                ["gpu-9-mig-3g40gb-9-4", "gpu-9-mig-2g20gb-14-0"],
            ),
            ({"1g.10gb.me": 1}, ["gpu-0-mig-1g10gb-me-20-0"]),
        ],
    )

    # Of the third GPU nobody has told the number.
    assert found is not None
    assert found.numbers == (0, 1, 9)
    assert found.occupied == (slices((0, 1), (6, 1)) | MEDIA, 0, slices((0, 2), (4, 4)))


def test_a_pod_comes_and_goes() -> None:
    two = (("cpu", 4), ("nvidia.com/mig-1g.10gb", 2), ("nvidia.com/mig-9g.90gb", 1))
    names = ["gpu-0-mig-1g10gb-19-6", "gpu-0-mig-1g10gb-19-5", "gpu-7-mig-1g10gb-19-5"]

    taken = with_pod(gpus(0), two)

    assert taken == gpus(slices((5, 2)))
    assert without_pod(taken, [*names, "0"]) == gpus(0)
    assert with_pod(None, two) is without_pod(None, names) is None


ONE: Final = {"1g.10gb": 1}


@pytest.mark.parametrize(
    ("pods", "count"),
    [
        pytest.param([(ONE, ["gpu-0-mig-1g5gb-19-6"])], 1, id="of another model"),
        pytest.param([(ONE, ["gpu-0-mig-1g10gb-19-7"])], 1, id="no place"),
        pytest.param([(ONE, ["MIG-4d2c"])], 1, id="a UUID tells no place"),
        pytest.param([(ONE, [])], 1, id="not told"),
        pytest.param([({"2g.20gb": 1}, ["gpu-0-mig-1g10gb-19-6"])], 1, id="not asked"),
        pytest.param(
            [(ONE, ["gpu-0-mig-1g10gb-19-6"]), (ONE, ["gpu-0-mig-1g10gb-19-6"])],
            1,
            id="two in one place",
        ),
        pytest.param(
            [({"1g.10gb.me": 2}, [f"gpu-0-mig-1g10gb-me-20-{n}" for n in (0, 1)])],
            1,
            id="media engines twice",
        ),
        pytest.param(
            [(ONE, [f"gpu-{n}-mig-1g10gb-19-6"]) for n in (3, 4)], 1, id="two GPUs"
        ),
    ],
)
def test_instances_that_cannot_be(
    pods: list[tuple[Mapping[str, int], list[str]]], count: int
) -> None:
    assert occupy(no_instances(H100, count), pods) is None


@pytest.mark.parametrize(
    ("geometry", "count", "offered", "is_so"),
    [
        pytest.param(H100, 1, {"1g.10gb": 7, "2g.20gb": 3}, True, id="all that fit"),
        pytest.param(H100, 1, {"3g.40gb": 2, "1g.10gb": 1}, True, id="more memory"),
        pytest.param(H100, 1, {"3g.40gb": 1, "1g.10gb": 4}, False, id="exactly"),
        pytest.param(H100, 2, {"1g.10gb": 7, "2g.20gb": 3}, False, id="two GPUs"),
        pytest.param(A30, 1, {"1g.6gb": 4, "2g.12gb": 2}, True, id="a small one"),
        pytest.param(A30, 1, {"2g.12gb": 2}, False, id="a small one, exactly"),
        pytest.param(H100, 1, {"1g.5gb": 70}, False, id="a profile of others"),
        pytest.param(H100, 1, {}, False, id="nothing"),
        pytest.param((), 1, {"1g.10gb": 70}, False, id="a model that is not cut"),
        pytest.param(H100, 0, {"1g.10gb": 70}, False, id="no GPUs"),
        pytest.param(H100, 17, {"1g.10gb": 700}, False, id="too many GPUs"),
    ],
)
def test_who_offers_more_than_there_can_be_makes_it_on_demand(
    geometry: Geometry, count: int, offered: Mapping[str, int], is_so: bool
) -> None:
    assert is_on_demand(geometry, count, offered) is is_so
