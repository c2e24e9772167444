"""The classic score to the digit, on the table that its page gives."""

from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pytest

from scoring.candidates import Candidates, PodRequest
from scoring.normalization import METHODS, Scale, normalize
from scoring.profiles import (
    PROFILES,
    TERMS,
    classic,
    score_terms,
    weighted_mean,
)
from scoring.snapshot import Int64Array
from scoring.terms import STRATEGIES, ScoreOptions
from tests.builders import GPU, make_node, make_pod, make_snapshot, take_candidates

V100 = "nvidia-tesla-v100"
A100 = "nvidia-tesla-a100"
T4 = "nvidia-tesla-t4"
NV = "nvlink"
WEIGHTS = MappingProxyType({"utilization": 40, "typeMatch": 30, "topology": 30})
OPTIONS = ScoreOptions(
    target_low=0.6,
    target_high=0.8,
    strategy="target",
    compatible_types=MappingProxyType(
        {
            V100: frozenset({A100}),
            A100: frozenset({V100}),
            T4: frozenset({"nvidia-rtx-3080", "nvidia-rtx-3090"}),
        }
    ),
)


@dataclass(frozen=True, slots=True)
class Row:
    """A node of the table, and what it earns."""

    used: int
    gpus: int
    accelerator: str
    link: str
    # utilization, typeMatch, topology, score, normalised, wire
    typed: tuple[int, int, int, int, int, int]
    untyped: tuple[int, int, int, int, int, int]


# fmt: off
TABLE = {
    "n1": Row(0, 8, V100, NV, (0, 100, 100, 110, 37, 4), (0, 50, 100, 95, 0, 0)),
    "n2": Row(2, 8, V100, "", (41, 100, 50, 111, 39, 4), (41, 50, 100, 111, 40, 4)),
    "n3": Row(3, 8, A100, NV, (62, 70, 100, 125, 60, 6), (62, 50, 100, 119, 60, 6)),
    "n4": Row(5, 8, V100, NV,
              (100, 100, 100, 150, 100, 10), (100, 50, 100, 135, 100, 10)),
    "n5": Row(3, 5, V100, "",
              (100, 100, 50, 135, 76, 8), (100, 50, 100, 135, 100, 10)),
    "n6": Row(7, 10, T4, NV, (100, 0, 100, 120, 53, 5), (100, 50, 100, 135, 100, 10)),
    "n7": Row(9, 10, V100, NV, (49, 100, 100, 129, 67, 7), (49, 50, 100, 114, 47, 5)),
    "n8": Row(7, 8, "", "", (62, 0, 50, 89, 4, 0), (62, 50, 100, 119, 60, 6)),
    "n9": Row(4, 4, A100, "", (0, 70, 50, 86, 0, 0), (0, 50, 100, 95, 0, 0)),
    "n10": Row(0, 0, V100, NV, (0, 100, 100, 110, 37, 4), (0, 50, 100, 95, 0, 0)),
}
# fmt: on
ASKS = {
    "typed": PodRequest("", ((GPU, 2),), GPU, V100, ""),
    "untyped": PodRequest("", ((GPU, 1),), GPU, None, ""),
}


def table_candidates(pod_request: PodRequest) -> Candidates:
    nodes, pods = [], []
    for name, row in TABLE.items():
        labels = {"accelerator": row.accelerator} if row.accelerator else {}
        if row.link:
            labels["gpu-interconnect"] = row.link
        nodes.append(make_node(name=name, gpus=row.gpus, labels=labels))
        pods.append(make_pod(name=f"on-{name}", gpus=row.used, node_name=name))
    snapshot = make_snapshot(nodes=nodes, pods=pods)
    return take_candidates(snapshot, list(TABLE), pod_request)


def expected(kind: str, position: int) -> list[int]:
    return [getattr(row, kind)[position] for row in TABLE.values()]


def totals_of(kind: str) -> Int64Array:
    pod_request = ASKS[kind]
    return classic(
        score_terms(table_candidates(pod_request), pod_request, OPTIONS, WEIGHTS),
        WEIGHTS,
    )


@pytest.mark.parametrize("kind", list(ASKS))
@pytest.mark.parametrize(
    ("position", "term"), [(0, "utilization"), (1, "typeMatch"), (2, "topology")]
)
def test_each_term_of_the_table(kind: str, position: int, term: str) -> None:
    pod_request = ASKS[kind]

    scores = TERMS[term](table_candidates(pod_request), pod_request, OPTIONS)

    assert np.trunc(scores).tolist() == expected(kind, position)


@pytest.mark.parametrize("kind", list(ASKS))
def test_scores_of_the_table(kind: str) -> None:
    assert totals_of(kind).tolist() == expected(kind, 3)


@pytest.mark.parametrize("kind", list(ASKS))
@pytest.mark.parametrize(
    ("position", "max_score"),
    [pytest.param(4, 100, id="normalised"), pytest.param(5, 10, id="on the wire")],
)
def test_normalised_scores_of_the_table(
    kind: str, position: int, max_score: int
) -> None:
    known = np.ones(len(TABLE), dtype=np.bool_)

    scores = normalize(
        totals_of(kind),
        known,
        Scale("minMax", max_score, 50, 150),
        None,
        np.arange(len(TABLE)),
    )

    assert scores.tolist() == expected(kind, position)


@pytest.mark.parametrize(
    ("weights", "total"),
    [
        # n3 with utilization 62, typeMatch 70, topology 100
        pytest.param(
            {"utilization": 40, "typeMatch": 30, "topology": 30},
            50 + 24 + 21 + 30,
            id="the classic ones",
        ),
        pytest.param(
            {"utilization": 33, "typeMatch": 33, "topology": 34},
            50 + 20 + 23 + 34,
            id="each product is cut",
        ),
        pytest.param(
            {"utilization": 100, "typeMatch": 0, "topology": 0},
            50 + 62,
            id="one term alone",
        ),
        pytest.param({"typeMatch": 1000}, 50 + 700, id="above a whole"),
    ],
)
def test_weights_are_hundredths(weights: dict[str, int], total: int) -> None:
    pod_request = ASKS["typed"]
    terms = score_terms(table_candidates(pod_request), pod_request, OPTIONS, weights)

    assert classic(terms, weights).tolist()[2] == total


def test_terms_without_weight_are_not_computed() -> None:
    pod_request = ASKS["typed"]

    terms = score_terms(
        table_candidates(pod_request), pod_request, OPTIONS, {"topology": 5}
    )

    assert list(terms) == ["topology"]


def test_terms_are_cut_before_they_are_weighted() -> None:
    # 59.9 x 0.4 = 23.96; cut first it is 59 x 0.4 = 23.6. And 62.5: 25 against 24.
    total = classic({"utilization": np.array([59.9, 62.5])}, {"utilization": 40})

    assert total.tolist() == [73, 74]


def test_a_weighted_mean_keeps_fractions() -> None:
    terms = {"utilization": np.array([50.5, 100.0]), "topology": np.array([100.0, 0])}

    totals = weighted_mean(terms, {"utilization": 30, "topology": 10})

    assert totals.tolist() == [62.875, 75.0]


def test_the_order_of_summing_tells_no_totals_apart() -> None:
    terms = {"utilization": np.array([33.3, 33.3 + 1e-13])}

    first, second = weighted_mean(terms, {"utilization": 7}).tolist()

    assert first == second


@pytest.mark.parametrize("name", list(PROFILES))
def test_a_profile_weighs_terms_that_there_are(name: str) -> None:
    profile = PROFILES[name]
    low, high = profile.span(profile.weights)

    assert set(profile.weights) <= set(TERMS)
    assert low < high
    assert profile.normalize in METHODS
    assert profile.strategy in STRATEGIES


def test_terms_without_capacity_are_neutral() -> None:
    pod_request = ASKS["untyped"]
    weights = {"fragmentation": 1, "scarcity": 1}

    terms = score_terms(table_candidates(pod_request), pod_request, OPTIONS, weights)

    assert set(terms["fragmentation"].tolist()) == {50.0}
    assert set(terms["scarcity"].tolist()) == {100.0}


def test_the_classic_profile_can_be_chosen() -> None:
    assert PROFILES["classic"].combine is classic
    assert PROFILES["classic"].span({"utilization": 40, "topology": 7}) == (50, 97)
