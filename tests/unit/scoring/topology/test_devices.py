import pytest

from scoring.topology.devices import (
    CONTRADICTED,
    NOT_TOLD,
    UNREADABLE_DEVICES,
    Devices,
    DevicesError,
    free_set,
    held_set,
    read_devices,
)
from scoring.topology.layouts import NO_LINKS, NodeLinks, layout_of, set_of
from scoring.topology.links import LinkData

DATA = LinkData(((0, 4, -5), (4, 0, -5), (-5, -5, 0)), ids=("GPU-a", "GPU-b", "GPU-c"))
LINKS = NodeLinks(DATA, layout_of(DATA.matrix), is_measured=True)


@pytest.mark.parametrize(
    ("text", "shares"),
    [
        ("0", (("0", 1000),)),
        (" 0 , 3 ", (("0", 1000), ("3", 1000))),
        ("GPU-1f2e=500", (("GPU-1f2e", 500),)),
        ("0=1000,1=1", (("0", 1000), ("1", 1))),
    ],
)
def test_devices_are_read(text: str, shares: tuple[tuple[str, int], ...]) -> None:
    assert read_devices(text) == Devices(shares)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "0,,1",
        "0,0",
        "0=",
        "0=0",
        "0=1001",
        "0=x",
        "=5",
        "a\nb",
        "x" * 129,
        ",".join(map(str, range(65))),
    ],
)
def test_devices_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(DevicesError):
        read_devices(text)


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("0,2", 5),
        ("GPU-c", 4),
        ("GPU-a,1", 3),
        pytest.param("GPU-a,0", CONTRADICTED, id="the same one by both names"),
        pytest.param("3", CONTRADICTED, id="no such index"),
        pytest.param("GPU-x", CONTRADICTED, id="no such UUID"),
        pytest.param("MIG-1", CONTRADICTED, id="a slice"),
    ],
)
def test_sets_that_pods_hold(text: str, held: int) -> None:
    assert held_set(read_devices(text), LINKS) == held


def test_nothing_is_held_of_a_node_without_links() -> None:
    assert held_set(read_devices("0"), NO_LINKS) == CONTRADICTED


@pytest.mark.parametrize(
    ("holders", "free"),
    [
        ([], 0b111),
        ([(2, "0,2")], 0b010),
        ([(1, "0"), (1, "GPU-c")], 0b010),
        pytest.param([(0, None)], 0b111, id="a pod without GPUs"),
        pytest.param([(1, None)], NOT_TOLD, id="a pod says nothing"),
        pytest.param([(1, "1"), (1, None)], NOT_TOLD, id="one of two says nothing"),
        pytest.param([(1, "1"), (1, "1")], CONTRADICTED, id="two hold the same"),
        pytest.param([(2, "1")], CONTRADICTED, id="fewer than it asks"),
        pytest.param([(1, "0,1")], CONTRADICTED, id="more than it asks"),
        pytest.param([(1, "7")], CONTRADICTED, id="none of the node's"),
        pytest.param([(1, "")], CONTRADICTED, id="unreadable"),
    ],
)
def test_sets_that_are_free(holders: list[tuple[int, str | None]], free: int) -> None:
    told = [
        (
            gpus,
            None
            if text is None
            else read_devices(text)
            if text
            else UNREADABLE_DEVICES,
        )
        for gpus, text in holders
    ]

    assert free_set(LINKS, 3, told) == free


@pytest.mark.parametrize(
    ("holders", "free"),
    [
        pytest.param([(1, "GPU-a")], NOT_TOLD, id="a UUID"),
        pytest.param([(2, "GPU-a,1")], NOT_TOLD, id="a UUID and an index"),
        pytest.param([(1, "GPU-a,GPU-b")], CONTRADICTED, id="more than it asks"),
        pytest.param([(1, "GPU-a"), (1, "7")], CONTRADICTED, id="another is wrong"),
        pytest.param([(1, "MIG-a")], CONTRADICTED, id="a slice"),
        pytest.param([(1, "1")], 0b101, id="an index"),
    ],
)
def test_a_uuid_tells_nothing_where_those_of_the_node_are_not_known(
    holders: list[tuple[int, str]], free: int
) -> None:
    told = [(gpus, read_devices(text)) for gpus, text in holders]

    assert free_set(NodeLinks(layout=LINKS.layout), 3, told) == free


def test_where_a_gpu_is_sick_nobody_says_which_are_free() -> None:
    assert free_set(LINKS, 2, []) == NOT_TOLD
    assert free_set(NO_LINKS, 3, []) == NOT_TOLD
    assert LINKS.layout is not None
    assert set_of(range(3)) == LINKS.layout.full
