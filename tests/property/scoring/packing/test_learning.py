"""The learned mix against a plain count of the pods, and its bounds."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scoring.packing import learning
from scoring.packing.learning import (
    COVERAGE,
    MAX_SHAPES,
    MAX_TYPICAL,
    MIN_SHIFT,
    NOTHING_LEARNED,
    ExpectedShape,
    ShapeCounts,
    asked_of,
    shift,
)
from scoring.packing.shapes import Shape

PODS = st.lists(
    st.builds(
        ExpectedShape,
        st.builds(Shape, st.integers(0, 3), st.integers(0, 2)),
        st.sampled_from((frozenset[str](), frozenset({"T4"}))),
    ),
    max_size=60,
)


def counts_of(pods: list[ExpectedShape]) -> ShapeCounts:
    counts = ShapeCounts()
    for pod in pods:
        counts.add(pod)
    return counts


@given(pods=PODS)
def test_typical_shapes_cover_most_pods_with_the_fewest_shapes(
    pods: list[ExpectedShape],
) -> None:
    plain = Counter(pods)
    sizes = sorted(plain.values(), reverse=True)
    fewest = next(
        n for n in range(len(sizes) + 1) if sum(sizes[:n]) >= COVERAGE * len(pods)
    )

    typical = counts_of(pods).typical()

    covered = sum(plain[shape] for shape in typical)
    assert len(typical) == fewest
    assert typical == pytest.approx({s: plain[s] / covered for s in typical})


@given(pods=PODS, known=st.integers(0, 60))
def test_a_mix_is_kept_until_enough_pods_come_in_other_shapes(
    pods: list[ExpectedShape], known: int
) -> None:
    before = counts_of(pods[:known]).typical()
    now = counts_of(pods).typical()

    renewed = counts_of(pods).renewed(before)

    moved = shift(before, now)
    assert 0 <= moved <= 1 + 1e-9
    assert (renewed is before) == (moved <= MIN_SHIFT)
    assert renewed is before or renewed == now


@given(pods=PODS)
def test_gpus_are_asked_by_the_models_that_shapes_accept(
    pods: list[ExpectedShape],
) -> None:
    models = {pod.accepted for pod in pods}
    gpus = {
        one: sum(pod.shape.gpus for pod in pods if pod.accepted == one)
        for one in models
    }
    total = sum(gpus.values())

    asked = counts_of(pods).asked()

    assert asked == {
        ExpectedShape(Shape(0, 1), one): n / total for one, n in gpus.items() if n
    }
    assert asked == asked_of(Counter(pods))


def test_nothing_is_expected_before_the_first_pod() -> None:
    assert ShapeCounts().renewed(NOTHING_LEARNED) is NOTHING_LEARNED


def test_shapes_are_bounded_and_the_rarest_goes() -> None:
    often = ExpectedShape(Shape(0, 8))
    pods = [ExpectedShape(Shape(cpu, 1)) for cpu in range(MAX_SHAPES + 10)]

    typical = counts_of([often, often, *pods]).typical()

    assert next(iter(typical)) == often
    assert len(typical) == MAX_TYPICAL


def test_gpus_of_shapes_that_went_are_asked_still() -> None:
    pods = [
        ExpectedShape(Shape(cpu, 1), frozenset({"T4"} if cpu % 2 else ()))
        for cpu in range(4 * MAX_SHAPES)
    ]

    assert sorted(counts_of(pods).asked().values()) == [0.5, 0.5]


def test_models_are_bounded_and_what_is_asked_least_goes() -> None:
    pods = [
        ExpectedShape(Shape(0, 2 + n % 2), frozenset({f"model-{n}"}))
        for n in range(MAX_SHAPES + 1)
    ]

    asked = counts_of(pods).asked()

    assert len(asked) == MAX_SHAPES
    assert pods[0].one_gpu not in asked


def test_older_pods_count_less_and_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "WINDOW", 4)
    old, new = ExpectedShape(Shape(0, 1)), ExpectedShape(Shape(0, 2))

    # 4 and 0 are halved to 2 and 0; then 3 of the new ones come.
    typical = counts_of([old] * 4 + [new] * 3).typical()

    assert typical == {new: 0.6, old: 0.4}


def test_what_older_pods_asked_counts_less_and_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(learning, "WINDOW", 4)
    old, new = ExpectedShape(Shape(0, 1)), ExpectedShape(Shape(0, 1), frozenset({"T4"}))

    assert counts_of([old] * 4 + [new] * 3).asked() == {new: 0.6, old: 0.4}
