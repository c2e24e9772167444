"""MIG instances made on demand, in scores and explanations, from objects on."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pytest

from cluster.ledger.changes import GpuModelsChanged
from cluster.ledger.writer import SnapshotCell
from extender.explain.explain import explain
from extender.explain.page import NodeRow, PageQuery, build_page
from extender.explain.pod import read_subject
from extender.verbs.verbs import NOTHING_ASSUMED, Assumed
from scoring.candidates import PodRequest
from scoring.gpu.models import GpuTable, default_table
from scoring.gpu.node_gpus import GpuLabelReader, GpuLabelRules
from scoring.topology.devices import CONTRADICTED, NOT_TOLD
from service.collectors import ClusterCollector
from service.runtime import build_verb_options
from tests.builders import (
    BUILDER,
    Tree,
    make_ledger,
    make_node,
    make_pod,
    make_snapshot,
)
from tests.extender_app import make_settings

ALLOCATED: Final = "gpu-extender.io/allocated"
WEIGHTED: Final = {"scoring": {"weights": {"mig": 100}}}
SMALL: Final = "nvidia.com/mig-1g.10gb"
# What an agent offers that makes instances of an empty GPU on demand.
ALL: Final = {"1g.10gb": 7, "1g.20gb": 4, "2g.20gb": 3, "3g.40gb": 2, "7g.80gb": 1}
PRODUCT: Final = "nvidia.com/gpu.product"
H100: Final = {PRODUCT: "NVIDIA-H100-80GB-HBM3"}


def node(
    name: str = "a",
    offered: Mapping[str, int] = ALL,
    count: str = "1",
    labels: Mapping[str, str] | None = None,
) -> Tree:
    resources = {f"nvidia.com/mig-{key}": str(n) for key, n in offered.items()}
    return make_node(
        name=name,
        resources=resources,
        labels={**H100, "nvidia.com/gpu.count": count, **(labels or {})},
    )


def holder(
    instances: str | None, profile: str = "2g.20gb", amount: int = 1, name: str = "h"
) -> Tree:
    return make_pod(
        name=name,
        requests={f"nvidia.com/mig-{profile}": str(amount)},
        node_name="a",
        annotations={} if instances is None else {ALLOCATED: instances},
    )


TWO_AT_0: Final = holder("gpu-0-mig-2g20gb-14-0")
BESIDE: Final = make_pod(name="b", requests={"nvidia.com/x": "1"}, node_name="a")


def row_of(
    tree: Tree,
    pods: Iterable[Tree] = (),
    settings: Mapping[str, Any] = WEIGHTED,
    assumed: Assumed = NOTHING_ASSUMED,
    **asked: Any,
) -> NodeRow:
    options = build_verb_options(make_settings(settings))
    pod = make_pod(**{"name": "new", "requests": {SMALL: "1"}, **asked})
    snapshot = make_snapshot(nodes=[tree], pods=pods)
    explanation = explain(read_subject(pod, options), snapshot, options, assumed)
    return build_page(explanation, PageQuery()).nodes[0]


def score_of(tree: Tree, pods: Iterable[Tree] = (), **more: Any) -> float:
    return row_of(tree, pods, **more).terms["mig"]


# What a 1g.10gb breaks of an empty GPU: one of 4 places for 1g.20gb, one of 2 for
# 3g.40gb and the last for 7g.80gb; 4g.40gb keeps its one.
EMPTY: Final = 100 * (1 - (2 / 4 + 4 / 2 + 8) / 20)
BESIDE_2G: Final = 100 * (1 - (2 / 3 + 2 / 2) / 20)


# A 3g.40gb at slice 4 leaves one place for 4g.40gb and takes the last for 7g.80gb; a
# 1g.10gb beside it, at slice 3, takes one of 2 for 1g.20gb and 2g.20gb each, the last
# for 3g.40gb and that for 4g.40gb.
BOTH: Final = 100 * max(1 - 8 / 12 - (2 / 2 + 2 / 2 + 4 + 4) / 20, 0)


@pytest.mark.parametrize(
    ("held", "score"),
    [
        pytest.param([], BOTH, id="what both break"),
        pytest.param([TWO_AT_0], 0.0, id="no place for the larger one"),
    ],
)
def test_all_profiles_of_a_pod_count(held: list[Tree], score: float) -> None:
    asked = {SMALL: "1", "nvidia.com/mig-3g.40gb": "1" if not held else "2"}
    assert score_of(node(), held, requests=asked) == pytest.approx(score)


def test_instances_beside_a_whole_gpu_count() -> None:
    tree = node(count="2", labels={"nvidia.com/gpu.count": "2"})
    for amounts in tree["status"]["allocatable"], tree["status"]["capacity"]:
        amounts["nvidia.com/gpu"] = "1"
    asked = {SMALL: "1", "nvidia.com/gpu": "1"}
    assert score_of(tree, requests=asked) == pytest.approx(EMPTY)


@pytest.mark.parametrize(
    ("tree", "pods", "score"),
    [
        pytest.param(node(), [], EMPTY, id="an empty GPU"),
        pytest.param(node(), [TWO_AT_0], BESIDE_2G, id="beside a 2g"),
        pytest.param(node(), [TWO_AT_0, BESIDE], BESIDE_2G, id="pods without any"),
        pytest.param(
            node(), [holder("gpu-0-mig-7g80gb-0-0", "7g.80gb")], 0.0, id="no place"
        ),
        pytest.param(node(), [holder(None)], 100.0, id="nobody knows where"),
        pytest.param(node(), [holder("MIG-4d2c")], 100.0, id="a UUID tells no place"),
        pytest.param(
            node(), [holder("gpu-0-mig-2g20gb-14-1")], 100.0, id="where none can be"
        ),
        pytest.param(node(), [holder("0=7000")], 100.0, id="not to be read"),
        pytest.param(
            node(offered={"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}),
            [],
            100.0,
            id="a static layout",
        ),
        pytest.param(node(count="8"), [], 100.0, id="what eight GPUs may well have"),
        pytest.param(node(count="?"), [], 100.0, id="no number of GPUs"),
        pytest.param(
            node(labels={PRODUCT: "Tesla-T4"}), [], 100.0, id="a model that is not cut"
        ),
        pytest.param(node(labels={PRODUCT: "Own"}), [], 100.0, id="an unknown model"),
        pytest.param(
            node(labels={f"{SMALL}.replicas": "4"}), [], 100.0, id="shared instances"
        ),
    ],
)
def test_what_is_broken_counts_where_places_are_known(
    tree: Tree, pods: list[Tree], score: float
) -> None:
    assert score_of(tree, pods) == pytest.approx(score, abs=1e-3)


def test_gpus_that_are_not_cut_have_no_places() -> None:
    tree = node(offered=ALL, count="3")
    tree["status"]["allocatable"]["nvidia.com/gpu"] = "2"

    assert score_of(tree) == pytest.approx(EMPTY, abs=1e-3)


def test_several_instances_count_together() -> None:
    assert score_of(node(), requests={SMALL: "2"}) < score_of(node())
    assert score_of(node(), requests={"nvidia.com/mig-7g.80gb": "1"}) == 100.0


@pytest.mark.parametrize("asked", [{"gpus": 1, "requests": None}, {"cpu": "1"}])
def test_other_pods_break_nothing(asked: Mapping[str, Any]) -> None:
    tree = node(offered=ALL, count="2")
    tree["status"]["allocatable"]["nvidia.com/gpu"] = "1"
    wanted = {"gpus": 1, **asked, "requests": None}

    assert score_of(tree, **wanted) == 100.0


def test_pods_under_way_take_their_places() -> None:
    request = ((SMALL, 1),)
    assumed = {"a": [PodRequest("u", request, SMALL, None, "")]}

    found = score_of(node(), assumed=assumed)

    # Beside a first one at slice 6, the next breaks but one pair of slices of three.
    assert found == pytest.approx(100 * (1 - (2 / 3 + 2 / 3) / 20), abs=1e-3)
    assert score_of(node(), [holder(None)], assumed=assumed) == 100.0


def test_the_own_instances_of_a_pod_are_places_for_it() -> None:
    own = holder("gpu-0-mig-1g10gb-19-0", "1g.10gb", name="new")

    assert score_of(node(), [own]) == pytest.approx(EMPTY, abs=1e-3)


def test_by_default_nothing_is_computed_or_said() -> None:
    row = row_of(node(), settings={})

    assert "mig" not in row.terms
    assert "slice" not in row.verdict.detail


# --- explanations ------------------------------------------------------------


@pytest.mark.parametrize(
    ("pods", "said"),
    [
        pytest.param(
            [TWO_AT_0],
            "would begin at slice 3 of GPU 0, leaves places: 4 for 1g.10gb, 2 for"
            " 1g.20gb, 1 for 2g.20gb, 1 for 3g.40gb, breaks 1 of 3 for 1g.20gb, 1 of 2"
            " for 2g.20gb",
            id="beside a 2g",
        ),
        pytest.param(
            [],
            "would begin at slice 6 of GPU 0, leaves places: 6 for 1g.10gb, 3 for"
            " 1g.20gb, 3 for 2g.20gb, 1 for 3g.40gb, 1 for 4g.40gb, breaks 1 of 4 for"
            " 1g.20gb, 1 of 2 for 3g.40gb, the last for 7g.80gb",
            id="an empty GPU",
        ),
        pytest.param(
            [
                holder("gpu-0-mig-4g40gb-5-0", "4g.40gb", name="p"),
                holder("gpu-0-mig-2g20gb-14-4"),
            ],
            "would begin at slice 6 of GPU 0, leaves places: none, breaks the last for"
            " 1g.20gb",
            id="the last slice",
        ),
        pytest.param(
            [holder("gpu-0-mig-7g80gb-0-0", "7g.80gb")],
            "by the slices in use there is no place",
            id="no place",
        ),
        pytest.param(
            [holder(None)], "which MIG slices are in use is not known", id="not told"
        ),
    ],
)
def test_explanations(pods: list[Tree], said: str) -> None:
    assert row_of(node(), pods).verdict.detail.endswith(f"; {said}")


def test_of_a_static_layout_nothing_is_said() -> None:
    assert "slice" not in row_of(node(count="8")).verdict.detail


# --- state -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "free_set"),
    [
        pytest.param(TWO_AT_0, NOT_TOLD, id="sound"),
        pytest.param(holder(None), NOT_TOLD, id="not told"),
        pytest.param(holder("MIG-4d2c"), NOT_TOLD, id="a UUID"),
        pytest.param(holder("gpu-0-mig-9g90gb-0-0"), CONTRADICTED, id="no profile"),
        pytest.param(holder("gpu-0-mig-1g10gb-19-0"), CONTRADICTED, id="not asked"),
        pytest.param(holder("0=7000"), CONTRADICTED, id="not to be read"),
    ],
)
def test_what_contradicts_the_node_counts_in_the_metric(
    pod: Tree, free_set: int
) -> None:
    cell = SnapshotCell()
    cell.publish(make_snapshot(nodes=[node()], pods=[pod]))

    assert cell.current().gpus.free_sets.tolist() == [free_set]
    values = {
        family.name: family.samples[0].value
        for family in ClusterCollector(cell).collect()
        if family.name.endswith("_device_nodes")
    }
    assert values == {
        "gpu_extender_unreadable_device_nodes": float(free_set == CONTRADICTED)
    }


def test_other_rules_for_models_tell_other_places() -> None:
    ledger = make_ledger(nodes=[node()])
    assert ledger.build().gpus.mig[0] is not None
    nothing = GpuTable({}, {}, {}, frozenset(), {}, {})

    for table, is_known in ((nothing, False), (default_table(), True)):
        reader = GpuLabelReader(GpuLabelRules(table))
        ledger.apply(GpuModelsChanged(reader.read, BUILDER.requirements_reader.reread))
        assert (ledger.build().gpus.mig[0] is not None) is is_known


def test_a_sick_gpu_that_is_not_cut_does_not_count_as_cut() -> None:
    tree = node(count="3", offered={"1g.10gb": 7, "2g.20gb": 3, "3g.40gb": 2})
    tree["status"]["capacity"]["nvidia.com/gpu"] = "2"
    tree["status"]["allocatable"]["nvidia.com/gpu"] = "1"

    assert score_of(tree) == pytest.approx(EMPTY)
