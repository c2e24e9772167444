"""Texts of `nvidia-smi topo -m`, and annotations, sound and broken.

``texts/h100-1.txt`` was captured; the others have the matrices that machines of these
models print, in the forms that drivers of several years give them: with blanks or tabs,
network cards before and after, a legend or none, and escapes of a terminal.
"""

import json
from pathlib import Path
from typing import Final

import pytest

from scoring.gpu.models import default_table
from scoring.topology.layouts import NAMED_LAYOUTS, layout_of_model, pcie_box
from scoring.topology.links import (
    LinkData,
    LinksError,
    read_links,
    read_matrix_text,
)

TEXTS: Final = Path(__file__).parent / "texts"

# text -> model and number of GPUs of the machine
MACHINES: Final = {
    "h100-1": ("H100-SXM5-80GB", 1),
    "dgx-1-v100": ("V100-SXM2-16GB", 8),
    "dgx-2": ("V100-SXM3-32GB", 16),
    "dgx-a100": ("A100-SXM4-40GB", 8),
    "dgx-h100": ("H100-SXM5-80GB", 8),
    "hgx-a100-4": ("A100-SXM4-80GB", 4),
    "hgx-h100-4": ("H100-SXM5-80GB", 4),
}


@pytest.mark.parametrize("name", [path.stem for path in TEXTS.glob("*.txt")])
def test_texts_match_the_layout_of_their_model(name: str) -> None:
    model, count = MACHINES[name]
    kind = default_table().models[model].links

    matrix = read_matrix_text((TEXTS / f"{name}.txt").read_text())

    layout = layout_of_model(model, kind, count)
    assert layout is not None
    assert matrix == layout.matrix
    if name in NAMED_LAYOUTS:
        assert matrix == NAMED_LAYOUTS[name][0]


# Pairs that bridges join where they are not neighbours, as users have reported it, and
# a machine of an old driver, which says SOC for SYS.
CROSSED: Final = """
        GPU0    GPU1    GPU2    GPU3    CPU Affinity
GPU0     X      SOC     NV12    SOC     0-15
GPU1    SOC      X      SOC     NV12    0-15
GPU2    NV12    SOC      X      SOC     16-31
GPU3    SOC     NV12    SOC      X      16-31
"""


def test_bridges_of_gpus_that_are_no_neighbours() -> None:
    matrix = read_matrix_text("some line before\n" + CROSSED)

    assert matrix == (
        (0, -5, 12, -5),
        (-5, 0, -5, 12),
        (12, -5, 0, -5),
        (-5, 12, -5, 0),
    )


@pytest.mark.parametrize(
    ("text", "data"),
    [
        pytest.param(
            '[["X", "NV4"], ["NV4", "X"]]', LinkData(((0, 4), (4, 0))), id="a matrix"
        ),
        pytest.param("[[null, 4], [4, 0]]", LinkData(((0, 4), (4, 0))), id="numbers"),
        pytest.param(
            "[[0, 0], [0, 0]]", LinkData(((0, -5), (-5, 0))), id="no link is SYS"
        ),
        pytest.param("[[0]]", LinkData(((0,),)), id="one GPU"),
        pytest.param(
            '{"matrix": [["X", "PIX"], ["PIX", "X"]], "ids": ["GPU-a", "GPU-b"]}',
            LinkData(((0, -1), (-1, 0)), ids=("GPU-a", "GPU-b")),
            id="a matrix with UUIDs",
        ),
        pytest.param(
            '  {"layout": "dgx-1-v100"}', LinkData(layout="dgx-1-v100"), id="a name"
        ),
        pytest.param(
            json.dumps({"topology": CROSSED}),
            LinkData(read_matrix_text(CROSSED)),
            id="the text in JSON",
        ),
    ],
)
def test_annotations(text: str, data: LinkData) -> None:
    assert read_links(text) == data


def square(count: int, entry: str = "SYS") -> str:
    rows = [["X" if i == j else entry for j in range(count)] for i in range(count)]
    return json.dumps(rows)


def lines(*rows: str) -> str:
    return "\n".join(rows)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("", "got no text$", id="empty"),
        pytest.param(" \n\x1b[0m\n", "got no text$", id="blanks alone"),
        pytest.param('{"topology": ""}', "got no text$", id="empty in JSON"),
        pytest.param("nonsense", "begins with GPU0", id="no matrix"),
        pytest.param("[[", "JSON", id="broken JSON"),
        pytest.param("[" * 60_000, "JSON", id="deep JSON"),
        pytest.param("[]", "1 to 16", id="no GPU"),
        pytest.param(square(17), "1 to 16", id="17 GPUs"),
        pytest.param('[["X", "NV1"], ["NV2", "X"]]', "symmetric", id="not symmetric"),
        pytest.param('[["X", "SYS"], [1, "X"]]', "symmetric", id="link and path"),
        pytest.param('[["X", "SYS"], ["SYS"]]', "^GPU1: wanted 2", id="a short row"),
        pytest.param(
            '[["SYS"]]', "^GPU0: wanted X .* itself, got 'SYS'$", id="a path to itself"
        ),
        pytest.param(
            '[["X", "X"], ["X", "X"]]', "^GPU0: .* alone$", id="X between two"
        ),
        pytest.param("[[0, null], [null, 0]]", "alone", id="null between two"),
        pytest.param(square(2, "NV0"), "wanted NV1 to", id="no links by name"),
        pytest.param(square(2, "NV37"), "to NV36, PIX", id="too many links"),
        pytest.param(
            "[[0, 37], [37, 0]]", "^GPU0 to GPU1: .* links, got 37$", id="by number"
        ),
        pytest.param("[[0, -1], [-1, 0]]", "links", id="less than none"),
        pytest.param("[[0, true], [true, 0]]", "got True$", id="true is no number"),
        pytest.param("[[0, 1.5], [1.5, 0]]", "got 1.5$", id="half a link"),
        pytest.param("[[0, NaN], [NaN, 0]]", "got nan$", id="not a number"),
        pytest.param("[1, 2]", "^GPU0: wanted a list, got 1$", id="rows that are none"),
        pytest.param('{"matrix": {}}', "matrix", id="a matrix that is none"),
        pytest.param("{}", "got 0", id="nothing given"),
        pytest.param('{"layout": "dgx-2", "matrix": [[0]]}', "got 2", id="two given"),
        pytest.param('{"layout": 7}', "text", id="a name that is none"),
        pytest.param('{"links": []}', "unknown key", id="unknown key"),
        pytest.param('{"matrix": [[0]], "ids": "a"}', "ids", id="ids are no list"),
        pytest.param('{"matrix": [[0]], "ids": ["a", "b"]}', "ids", id="too many ids"),
        pytest.param('{"layout": "x", "ids": ["a", "a"]}', "twice", id="an id twice"),
        pytest.param(
            json.dumps({"layout": "x", "ids": [str(i) for i in range(17)]}),
            "at most 16",
            id="17 ids",
        ),
        pytest.param('{"layout": "x", "ids": [""]}', "ids", id="an empty id"),
        pytest.param("x" * 65_537, "characters", id="too long"),
        pytest.param(
            lines("GPU0 GPU1", "GPU0 X SYS"), r"got \['GPU0'\]$", id="a row is missing"
        ),
        pytest.param(
            lines("GPU0 GPU1", "GPU1 SYS X", "GPU0 X SYS"),
            r"in the order of the columns, got \['GPU1', 'GPU0'\]$",
            id="rows exchanged",
        ),
        pytest.param(lines("GPU0", "GPU0 X", "GPU0 X"), "two rows", id="a row twice"),
        pytest.param(
            lines("GPU0 GPU1", "GPU0 X X", "GPU1 X X"), "alone", id="X between two"
        ),
        pytest.param(lines("GPU0 GPU2", "GPU0 X SYS"), "columns", id="a GPU left out"),
        pytest.param(
            lines("GPU0 GPU1", "GPU0 X", "GPU1 SYS X"), "^GPU0: wanted 2", id="cut off"
        ),
    ],
)
def test_what_no_machine_can_have(text: str, said: str) -> None:
    with pytest.raises(LinksError, match=said):
        read_links(text)


@pytest.mark.parametrize("code", ["NV99", "FOO"])
def test_a_code_that_is_none_is_told_with_its_place(code: str) -> None:
    wanted = f"wanted NV1 to NV36, PIX, PXB, PHB, NODE or SYS, got {code!r}"
    rows = [["X", "SYS"], [code, "X"]]
    printed = lines("GPU0 GPU1", "GPU0 X SYS", f"GPU1 {code} X")

    for text in (printed, json.dumps(rows), json.dumps({"topology": printed})):
        with pytest.raises(LinksError) as caught:
            read_links(text)

        assert str(caught.value) == f"GPU1 to GPU0: {wanted}"


def test_a_long_code_is_cut_in_the_message() -> None:
    with pytest.raises(LinksError) as caught:
        read_links(square(2, "NV" * 1000))

    assert len(str(caught.value)) < 160


def test_boxes_without_nvlink_have_switches_and_sockets() -> None:
    assert pcie_box(4)[0] == (0, -1, -5, -5)
    assert pcie_box(8)[0] == (0, -1, -3, -3, -5, -5, -5, -5)
