from dataclasses import replace
from types import MappingProxyType

import pytest

from scoring import terms as strategies
from scoring.candidates import Candidates, PodRequest
from scoring.snapshot import Float64Array
from scoring.terms import ScoreOptions, labelled_topology, type_match
from tests.builders import (
    GPU,
    Tree,
    make_node,
    make_pod,
    make_snapshot,
    take_candidates,
)

OPTIONS = ScoreOptions(
    target_low=0.6,
    target_high=0.8,
    strategy="target",
    compatible_types=MappingProxyType({"v100": frozenset({"a100"})}),
)


def asking(gpus: int, *, accelerator: str | None = None) -> PodRequest:
    return PodRequest("", ((GPU, gpus),), GPU, accelerator, "")


def taken(
    pod_request: PodRequest, node: Tree, *, used: int = 0, claims: str = ""
) -> Candidates:
    snapshot = make_snapshot(
        nodes=[node],
        pods=[make_pod(gpus=used, node_name="node-1")] if used else [],
        device_class_resources=[claims] if claims else [],
    )
    return take_candidates(snapshot, ["node-1"], pod_request)


def only(scores: Float64Array) -> float:
    """Return the one score, its dtype and shape checked."""
    assert scores.dtype == "float64"
    assert scores.shape == (1,)
    return float(scores[0])


def utilization(used: int, gpus: int, options: ScoreOptions = OPTIONS) -> float:
    pod_request = asking(1)
    candidates = taken(pod_request, make_node(gpus=gpus), used=used)
    return only(strategies.utilization(candidates, pod_request, options))


@pytest.mark.parametrize(
    ("used", "gpus", "score"),
    [
        pytest.param(0, 8, 0.0, id="empty"),
        # 0.25 / 0.6 of 100
        pytest.param(2, 8, 41.666, id="a quarter"),
        pytest.param(3, 5, 100.0, id="lower bound"),
        pytest.param(7, 10, 100.0, id="between the bounds"),
        pytest.param(4, 5, 100.0, id="upper bound"),
        # (1 - 0.9) / 0.2 of 100
        pytest.param(9, 10, 49.999, id="above"),
        pytest.param(8, 8, 0.0, id="full"),
        pytest.param(9, 8, 0.0, id="more than full"),
        pytest.param(2**40, 8, 0.0, id="far more than full"),
        pytest.param(0, 0, 0.0, id="no GPUs"),
    ],
)
def test_utilization_is_best_between_the_bounds(
    used: int, gpus: int, score: float
) -> None:
    assert utilization(used, gpus) == pytest.approx(score, abs=1e-3)


@pytest.mark.parametrize(
    ("low", "high", "used", "score"),
    [
        pytest.param(0.5, 0.5, 4, 100.0, id="one point"),
        pytest.param(0.5, 0.5, 2, 50.0, id="below it"),
        pytest.param(0.5, 0.5, 6, 50.0, id="above it"),
        pytest.param(0.5, 0.9999999999999999, 8, 0.0, id="bound next to 1, full"),
        pytest.param(0.5, 0.9999999999999999, 7, 100.0, id="same, not full"),
    ],
)
def test_the_bounds_can_be_set(
    low: float, high: float, used: int, score: float
) -> None:
    options = replace(OPTIONS, target_low=low, target_high=high)

    assert utilization(used, 8, options) == score


def test_utilization_is_that_before_placement() -> None:
    pod_request = asking(8)
    candidates = taken(pod_request, make_node(gpus=8), used=6)

    assert only(
        strategies.utilization(candidates, pod_request, OPTIONS)
    ) == utilization(6, 8)


def test_a_pod_without_managed_resources_has_no_utilization() -> None:
    pod_request = PodRequest("", (), "", None, "")
    candidates = taken(pod_request, make_node(gpus=8))

    assert only(strategies.utilization(candidates, pod_request, OPTIONS)) == 0.0


def test_gpus_behind_a_device_class_score_neutrally() -> None:
    pod_request = asking(1)
    candidates = taken(pod_request, make_node(), claims=GPU)

    assert only(strategies.utilization(candidates, pod_request, OPTIONS)) == 50.0


@pytest.mark.parametrize(
    ("asked", "label", "score"),
    [
        pytest.param(None, "v100", 50.0, id="nothing asked"),
        pytest.param(None, None, 50.0, id="nothing asked, no label"),
        pytest.param("v100", "v100", 100.0, id="the type itself"),
        pytest.param("v100", "a100", 70.0, id="a compatible type"),
        pytest.param("a100", "v100", 0.0, id="not compatible in this direction"),
        pytest.param("v100", "t4", 0.0, id="another type"),
        pytest.param("v100", None, 0.0, id="no label"),
        pytest.param("v100", "V100", 0.0, id="other letter case"),
        pytest.param("v10", "v100", 0.0, id="a name that begins alike"),
        pytest.param("", None, 0.0, id="empty type asked, no label"),
        pytest.param("", "", 100.0, id="empty type asked, empty label"),
    ],
)
def test_types_match_exactly_or_by_the_table(
    asked: str | None, label: str | None, score: float
) -> None:
    pod_request = asking(1, accelerator=asked)
    labels = {} if label is None else {"accelerator": label}
    candidates = taken(pod_request, make_node(gpus=8, labels=labels))

    assert only(type_match(candidates, pod_request, OPTIONS)) == score


@pytest.mark.parametrize(
    ("gpus", "link", "score"),
    [
        pytest.param(1, None, 100.0, id="one GPU"),
        pytest.param(1, "nvlink", 100.0, id="one GPU, linked"),
        pytest.param(2, "nvlink", 100.0, id="two, linked"),
        pytest.param(2, "pcie", 50.0, id="two, other link"),
        pytest.param(2, "NVLink", 50.0, id="two, other letter case"),
        pytest.param(2, None, 50.0, id="two, nothing said"),
    ],
)
def test_several_gpus_want_nvlink(gpus: int, link: str | None, score: float) -> None:
    pod_request = asking(gpus)
    labels = {} if link is None else {"gpu-interconnect": link}
    candidates = taken(pod_request, make_node(gpus=8, labels=labels))

    assert only(labelled_topology(candidates, pod_request, OPTIONS)) == score


@pytest.mark.parametrize(
    ("strategy", "scores"),
    [
        pytest.param("binpack", [0.0, 25.0, 100.0], id="the fuller, the better"),
        pytest.param("spread", [100.0, 75.0, 0.0], id="the emptier, the better"),
    ],
)
def test_other_strategies_take_the_ratio_itself(
    strategy: str, scores: list[float]
) -> None:
    options = replace(OPTIONS, strategy=strategy)

    assert [utilization(used, 8, options) for used in (0, 2, 8)] == scores
