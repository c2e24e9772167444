"""Tables of layouts against plain enumeration, and the parser against any text."""

import json
from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scoring.topology.layouts import (
    MOST_LINKS,
    NAMED_LAYOUTS,
    PATH_BANDWIDTH,
    LinkLayout,
    gpus_of,
    layout_of,
    set_of,
)
from scoring.topology.links import (
    LinkMatrix,
    LinksError,
    read_links,
    read_matrix_text,
)
from scoring.topology.policy import Policy, pair_scores
from scoring.topology.tables import LOSS_PRICE, table_of, worth

SMALL: Final = [name for name, (m, _) in NAMED_LAYOUTS.items() if len(m) <= 8]


@st.composite
def matrices(draw: st.DrawFn, most: int = 6) -> LinkMatrix:
    count = draw(st.integers(1, most))
    entry = st.sampled_from((-5, -4, -3, -2, -1, 1, 2, 4, 6, 12))
    rows = [[0] * count for _ in range(count)]
    for i, j in combinations(range(count), 2):
        rows[i][j] = rows[j][i] = draw(entry)
    return tuple(map(tuple, rows))


def is_joined(matrix: LinkMatrix, gpus: tuple[int, ...]) -> bool:
    reached = set(gpus[:1])
    for _ in gpus:
        reached |= {j for i in reached for j in gpus if matrix[i][j] > 0}
    return len(gpus) > 1 and reached == set(gpus)


def group_of(matrix: LinkMatrix, gpu: int) -> tuple[int, ...]:
    every = range(len(matrix))
    reached = {gpu}
    for _ in every:
        reached |= {j for i in reached for j in every if matrix[i][j] > 0}
    return tuple(sorted(reached))


def bandwidth_of(matrix: LinkMatrix, rate: float, gpus: tuple[int, ...]) -> float:
    """Return the narrowest cut, by trying all."""
    if len(gpus) < 2:
        return 0.0
    if not is_joined(matrix, gpus):
        paths = [matrix[i][j] for i, j in combinations(gpus, 2)]
        return min(PATH_BANDWIDTH[path] for path in paths if path < 0)
    group = group_of(matrix, gpus[0])
    if any(sum(max(n, 0) for n in matrix[i]) > MOST_LINKS for i in group):
        links = (matrix[i][j] for i, j in combinations(gpus, 2))
        return min(n for n in links if n > 0) * rate
    cuts = [
        sum(max(matrix[i][j], 0) for i in side for j in gpus if j not in side)
        for size in range(1, len(gpus))
        for side in combinations(gpus, size)
    ]
    return min(cuts) * rate


def value(layout: LinkLayout, rate: float, free: tuple[int, ...]) -> float:
    sizes = [size for size in (2, 4, 8, 16) if size <= layout.count]
    return sum(
        size / sum(sizes) * float(worth(best(layout, rate, free, size)))
        for size in sizes
    )


def best(layout: LinkLayout, rate: float, free: tuple[int, ...], size: int) -> float:
    found = (bandwidth_of(layout.matrix, rate, s) for s in combinations(free, size))
    return max(found, default=0.0)


def check(layout: LinkLayout, rate: float, free: int, size: int) -> None:
    """Compare one row of a table with what enumeration finds."""
    table, gpus = table_of(layout, size), gpus_of(free)
    found = best(layout, rate, gpus, size)
    assert table.best[free] == found
    assert table.is_linked[free] == any(
        is_joined(layout.matrix, chosen) for chosen in combinations(gpus, size)
    )
    taken = gpus_of(int(table.picked[free]))
    if len(gpus) < size:
        assert (taken, table.score[free], table.loss[free]) == ((), 0.0, 0.0)
        return
    assert len(taken) == size
    assert set(taken) <= set(gpus)
    most = best(layout, rate, gpus_of(layout.full), size)
    assert table.quality[free] == pytest.approx(found / most if most else 1.0)
    left = tuple(gpu for gpu in gpus if gpu not in taken)
    loss = value(layout, rate, gpus) - value(layout, rate, left)
    assert table.loss[free] == pytest.approx(loss)
    own = 100.0 if size == 1 else float(worth(bandwidth_of(layout.matrix, rate, taken)))
    assert table.score[free] == pytest.approx(max(own - LOSS_PRICE * loss, 0.0))


@pytest.mark.parametrize("name", SMALL)
def test_tables_equal_enumeration_on_every_layout(name: str) -> None:
    matrix, rate = NAMED_LAYOUTS[name]
    layout = layout_of(matrix, rate)
    for free in range(1 << layout.count):
        gpus = gpus_of(free)
        assert layout.bandwidth[free] == bandwidth_of(matrix, rate, gpus)
    # Enumeration of all sets of free GPUs takes minutes: each eleventh one, and all.
    for free in (*range(0, layout.full, 11), layout.full):
        for size in range(1, layout.count + 1):
            check(layout, rate, free, size)


@given(matrices(), st.integers(0), st.integers(1, 6))
@settings(deadline=None)
def test_tables_equal_enumeration_on_any_matrix(
    matrix: LinkMatrix, free: int, size: int
) -> None:
    layout = layout_of(matrix)
    check(layout, 50.0, free & layout.full, min(size, layout.count))


def divisions(devices: list[int | None], size: int) -> Iterator[list[list[int | None]]]:
    """Yield the divisions in the order of go-gpuallocator, one list of sets each."""
    padding = devices.count(None)

    def divide(left: list[int | None]) -> Iterator[list[list[int | None]]]:
        if len(left) == size:
            yield [left]
            return
        for rest in combinations(range(1, len(left)), size - 1):
            chosen = [left[i] for i in (0, *rest)]
            if chosen.count(None) in {0, padding}:
                others = [x for i, x in enumerate(left) if i not in {0, *rest}]
                for division in divide(others):
                    yield [chosen, *division]

    yield from divide(devices)


def plain_pick(layout: LinkLayout, free: tuple[int, ...], size: int) -> int:
    scores = pair_scores(layout)

    def score(gpus: Iterable[int | None]) -> int:
        real = [gpu for gpu in gpus if gpu is not None]
        return sum(scores[i][j] for i, j in combinations(real, 2))

    if size == 1:
        return set_of(free[:1])
    devices = [*free, *[None] * (-len(free) % size)]
    chosen: list[list[int | None]] = []
    total = -1
    for division in divisions(devices, size):
        # A set with padding does not hold all that is asked.
        if sum(map(score, division)) > total:
            chosen, total = division, sum(map(score, division))
    sets = [found for found in chosen if None not in found]
    return set_of(gpu for gpu in max(sets, key=score) if gpu is not None)


@given(matrices(7), st.integers(1), st.integers(1, 7))
@settings(deadline=None)
def test_choices_equal_those_of_the_device_plugin(
    matrix: LinkMatrix, free: int, size: int
) -> None:
    layout = layout_of(matrix)
    gpus = gpus_of(free & layout.full)
    if len(gpus) < size:
        return

    assert Policy(layout).pick(set_of(gpus), size) == plain_pick(layout, gpus, size)


def ways_to_sets(layout: LinkLayout) -> dict[int, int]:
    """Return the sets of free GPUs that pods leave, and in how many ways each.

    Pods of the usual sizes come and go in any order, and the device plugin chooses
    their GPUs. A way is one division of the GPUs in use among pods.
    """
    policy, start = Policy(layout), ()
    seen: set[tuple[int, ...]] = {start}
    fresh: list[tuple[int, ...]] = [start]
    ways: dict[int, int] = {}
    while fresh:
        held = fresh.pop()
        free = layout.full & ~sum(held)
        ways[free] = ways.get(free, 0) + 1
        following = {held[:i] + held[i + 1 :] for i in range(len(held))}
        picked = (policy.pick(free, size) for size in (1, 2, 4, 8))
        following |= {tuple(sorted((*held, gpus))) for gpus in picked if gpus}
        fresh += following - seen
        seen |= following
    return ways


@pytest.mark.parametrize("name", ["dgx-1-v100", "bridged-pairs-6", "pcie-4"])
def test_scores_by_number_are_the_mean_over_all_that_pods_leave(name: str) -> None:
    layout = layout_of(*NAMED_LAYOUTS[name])
    table, ways = table_of(layout, 2), ways_to_sets(layout)

    for count in range(layout.count + 1):
        sets = {gpus: n for gpus, n in ways.items() if gpus.bit_count() == count}
        total = sum(n * table.score[gpus] for gpus, n in sets.items())
        assert table.score_by_count[count] == pytest.approx(total / sum(sets.values()))


CODES: Final = {0: " X ", -1: "PIX", -2: "PXB", -3: "PHB", -4: "NODE", -5: "SYS"}


def as_text(matrix: LinkMatrix, cards: int) -> str:
    names = [f"GPU{i}" for i in range(len(matrix))]
    nics = [f"NIC{i}" for i in range(cards)]
    rows = ["\t".join(["", *names, *nics, "CPU Affinity"])]
    for name, row in zip(names, matrix, strict=True):
        codes = [CODES.get(entry, f"NV{entry}") for entry in row]
        rows.append("\t".join([name, *codes, *["SYS"] * cards, "0-15"]))
    return "\n".join(rows)


@given(matrices(), st.integers(0, 3))
def test_what_is_printed_is_read(matrix: LinkMatrix, cards: int) -> None:
    assert read_matrix_text(as_text(matrix, cards)) == matrix
    assert read_links(as_text(matrix, cards)).matrix == matrix


@given(matrices(), st.data())
def test_a_damaged_text_is_read_as_a_sound_matrix_or_refused(
    matrix: LinkMatrix, data: st.DataObject
) -> None:
    text = as_text(matrix, 1)
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 12)))
        text = text[:start] + data.draw(st.text(max_size=6)) + text[end:]
    is_sound(text)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 40)
    | st.floats()
    | st.sampled_from(["X", "NV1", "SYS", "NV99", "matrix", ""])
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(
            st.sampled_from(["matrix", "layout", "topology", "ids", "x"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=20,
)


@given(json_values.map(repr) | json_values.map(json.dumps) | st.text())
def test_anything_is_read_as_a_sound_matrix_or_refused(text: str) -> None:
    is_sound(text)


def is_sound(text: str) -> None:
    """Read a text; nothing but `LinksError` may come of it, and no odd matrix."""
    try:
        data = read_links(text)
    except LinksError:
        return
    rows = np.array(data.matrix)
    assert data.layout or 1 <= len(rows) <= 16
    if data.matrix:
        assert (rows == rows.T).all()
        assert (np.diag(rows) == 0).all()
        layout_of(data.matrix)
