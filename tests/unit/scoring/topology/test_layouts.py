import numpy as np
import pytest

from scoring.gpu.models import default_table
from scoring.gpu.node_gpus import NodeGpus
from scoring.topology.layouts import (
    NAMED_LAYOUTS,
    NO_LINKS,
    LinkLayout,
    bridged,
    gpus_of,
    layout_of,
    layout_of_model,
    links_of_node,
    set_of,
)
from scoring.topology.links import LinkData, LinkMatrix

DGX_1 = layout_of(*NAMED_LAYOUTS["dgx-1-v100"])
A100 = NodeGpus(model="A100-SXM4-40GB", links="clique")


@pytest.mark.parametrize(
    ("name", "gpus", "bandwidth"),
    [
        ("dgx-1-v100", (0, 3), 100.0),
        ("dgx-1-v100", (0, 1), 50.0),
        pytest.param("dgx-1-v100", (0, 5), 12.0, id="no link: across the sockets"),
        pytest.param("dgx-1-v100", (0, 1, 2, 3), 200.0, id="weakest GPU has 4 links"),
        pytest.param("dgx-1-v100", (0, 1, 6), 12.0, id="joined through no member"),
        ("dgx-1-v100", range(8), 300.0),
        ("dgx-1-p100", (0, 3), 40.0),
        ("dgx-2", (3, 9), 300.0),
        ("dgx-2", range(16), 300.0),
        ("dgx-a100", (0, 5), 600.0),
        pytest.param("hgx-a100-4", (0, 1), 200.0, id="a mesh: 4 of 12 links"),
        ("hgx-a100-4", range(4), 600.0),
        ("dgx-h100", range(8), 900.0),
        ("hgx-b200", (1, 2, 3), 1800.0),
        ("bridged-pairs-8", (2, 3), 600.0),
        pytest.param("bridged-pairs-8", (0, 1, 2, 3), 20.0, id="two bridges: PCIe"),
        ("bridged-fours-8", (4, 5, 6, 7), 900.0),
        ("pcie-8", (0, 1), 24.0),
        ("pcie-8", (0, 2), 20.0),
        ("pcie-8", (3, 4), 12.0),
        pytest.param("pcie-8", (3,), 0.0, id="one GPU"),
        pytest.param("pcie-8", (), 0.0, id="none"),
    ],
)
def test_bandwidth_of_sets(name: str, gpus: range, bandwidth: float) -> None:
    layout = layout_of(*NAMED_LAYOUTS[name])

    assert layout.bandwidth[set_of(gpus)] == bandwidth
    assert layout.is_linked[set_of(gpus)] == (bandwidth > 24.0)


def test_a_gpu_with_few_links_to_the_switch_slows_its_sets_down() -> None:
    board = layout_of(*NAMED_LAYOUTS["dgx-h100"])
    worn = layout_of(
        tuple(
            tuple(min(n, 16 if 5 in {i, j} else n) for j, n in enumerate(row))
            for i, row in enumerate(board.matrix)
        )
    )

    assert worn.bandwidth[set_of((0, 1, 2, 3))] == 900.0
    assert worn.bandwidth[set_of((0, 5))] == 800.0
    assert worn.bandwidth[worn.full] == 800.0
    assert worn.is_linked[worn.full]


def test_rows_of_a_dgx_1_have_six_links_each() -> None:
    matrix = np.maximum(np.array(DGX_1.matrix), 0)

    assert matrix.sum(axis=0).tolist() == [6] * 8


def test_equal_matrices_are_one_layout() -> None:
    assert layout_of(bridged(4, 2, 12)) is layout_of(bridged(4, 2, 12))


def test_a_layout_in_use_stays_the_one_of_its_links_among_many_others() -> None:
    links = bridged(6, 2, 7)
    layout = layout_of(links)
    for rate in range(1, 300):
        layout_of(((0, 1), (1, 0)), float(rate))

    assert layout_of(links) is layout


def test_sixteen_gpus_of_which_not_all_are_alike() -> None:
    layout = layout_of(bridged(16, 4, 6))

    assert layout.bandwidth[set_of(range(4))] == 900.0
    assert layout.bandwidth[layout.full] == 12.0
    assert not layout.is_linked[layout.full]


def test_a_component_too_large_for_cuts_goes_by_its_weakest_gpu() -> None:
    ring: LinkMatrix = tuple(
        tuple(0 if i == j else 2 if (i - j) % 12 in (1, 11) else -5 for j in range(12))
        for i in range(12)
    )
    layout = layout_of(ring)

    assert layout.bandwidth[layout.full] == 200.0
    assert layout.bandwidth[set_of((0, 1, 2))] == 100.0
    assert layout.bandwidth[set_of((0, 1, 5, 6))] == 12.0
    assert not layout.is_linked[set_of((0, 1, 5, 6))]


@pytest.mark.parametrize(
    ("model", "count", "name"),
    [
        ("V100-SXM2-32GB", 8, "dgx-1-v100"),
        ("P100-SXM2-16GB", 8, "dgx-1-p100"),
        ("V100-SXM2-16GB", 4, "p3.8xlarge"),
        ("V100-SXM3-32GB", 16, "dgx-2"),
        ("A100-SXM4-80GB", 8, "dgx-a100"),
        ("A100-SXM4-80GB", 4, "hgx-a100-4"),
        ("H100-SXM5-80GB", 8, "dgx-h100"),
        ("H100-SXM5-80GB", 4, "hgx-h100-4"),
        ("B200", 8, "hgx-b200"),
        ("L4", 8, "pcie-8"),
        pytest.param("V100-SXM2-16GB", 7, None, id="which of the mesh is open"),
        pytest.param("A100-PCIE-40GB", 8, None, id="which pairs are bridged is open"),
        pytest.param("A100-SXM4-80GB", 17, None, id="too many"),
        pytest.param("A100-SXM4-80GB", 0, None, id="none"),
        pytest.param("MI300X", 8, None, id="another vendor's links"),
    ],
)
def test_layouts_of_models(model: str, count: int, name: str | None) -> None:
    found = layout_of_model(model, default_table().models[model].links, count)

    if name is None:
        assert found is None
    else:
        wanted = layout_of(*NAMED_LAYOUTS[name])
        assert found is not None
        assert found.matrix == wanted.matrix
        assert found.bandwidth.tolist() == wanted.bandwidth.tolist()


def test_every_model_with_a_clique_has_a_layout() -> None:
    for model in default_table().models.values():
        if model.links in {"clique", "none", "cube-mesh"}:
            found = layout_of_model(model.name, model.links, 8)
            assert isinstance(found, LinkLayout), model.name


def test_an_annotation_counts_before_the_model() -> None:
    links = links_of_node(A100, 2, LinkData(((0, -5), (-5, 0))))

    assert links.is_measured
    assert links.layout is layout_of(((0, -5), (-5, 0)))
    assert not links_of_node(A100, 2, None).is_measured


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (LinkData(layout="dgx-9"), "unknown layout 'dgx-9'"),
        (LinkData(layout="dgx-a100"), "8 GPUs, the node has 2"),
        (LinkData(((0,),)), "1 GPUs, the node has 2"),
        (LinkData(layout="pcie-2", ids=("GPU-a",)), "ids: wanted 2, got 1"),
    ],
)
def test_an_annotation_that_does_not_fit_leaves_the_links_unknown(
    data: LinkData, said: str
) -> None:
    links = links_of_node(A100, 2, data)

    assert links.layout is None
    assert said in links.fault
    assert links.ids == ()


def test_an_unreadable_annotation_leaves_the_links_unknown() -> None:
    links = links_of_node(A100, 8, None, "not symmetric")

    assert (links.layout, links.fault) == (None, "not symmetric")


@pytest.mark.parametrize(
    "gpus",
    [
        NodeGpus(model="A100-SXM4-40GB", links="clique", is_shared=True, replicas=2),
        NodeGpus(model="A100-SXM4-40GB", links="clique", profile="1g.5gb"),
        NodeGpus(model="A100-SXM4-40GB", is_part=True),
    ],
)
def test_parts_of_gpus_have_no_links(gpus: NodeGpus) -> None:
    assert links_of_node(gpus, 8, None) == NO_LINKS
    assert links_of_node(gpus, 8, LinkData(layout="dgx-a100")).layout is None


def test_sets_and_masks() -> None:
    assert set_of((0, 3, 3)) == 9
    assert gpus_of(9) == (0, 3)
    assert gpus_of(0) == ()


@pytest.mark.parametrize(
    ("model", "count", "bandwidth"),
    [("V100-SXM3-32GB", 4, 300.0), ("H800-SXM5-80GB", 3, 400.0)],
)
def test_no_set_has_more_than_a_gpu_of_its_own(
    model: str, count: int, bandwidth: float
) -> None:
    layout = layout_of_model(model, "clique", count)

    assert layout is not None
    assert layout.bandwidth.max() == bandwidth
    text = LinkData(layout.matrix)
    measured = links_of_node(NodeGpus(model=model), count, text).layout
    assert measured is layout
