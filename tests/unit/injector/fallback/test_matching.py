from typing import Any

import pytest

from cluster.decode.objects import (
    NO_CONSTRAINTS,
    LabelRequirement,
    NodeSelectorTerm,
    PodConstraints,
)
from cluster.ledger.pods import RecentPodRecord
from injector.fallback.matching import likeness
from injector.fallback.simulation import Claim

MIG = "nvidia.com/mig-1g.10gb"
A100 = LabelRequirement(key="model", operator="In", values=("A100",))
EAST = LabelRequirement(key="zone", operator="In", values=("east",))
NODE = LabelRequirement(key="metadata.name", operator="In", values=("a",))


def terms(*each: tuple[LabelRequirement, ...]) -> PodConstraints:
    """Return required affinity for labels, one term for each argument."""
    return PodConstraints(
        affinity_terms=tuple(NodeSelectorTerm(expressions=term) for term in each)
    )


OF_NODE = PodConstraints(affinity_terms=(NodeSelectorTerm(fields=(NODE,)),))
NARROWED = PodConstraints(
    affinity_terms=(NodeSelectorTerm(expressions=(A100,), fields=(NODE,)),)
)
IN_POOL = PodConstraints(node_selector={"pool": "a"})


@pytest.mark.parametrize(
    ("now", "then", "found"),
    [
        pytest.param(NO_CONSTRAINTS, NO_CONSTRAINTS, (True, True, 0), id="any node"),
        pytest.param(IN_POOL, IN_POOL, (True, True, 0), id="the same pool"),
        pytest.param(IN_POOL, NO_CONSTRAINTS, (True, False, 0), id="another pool"),
        pytest.param(OF_NODE, OF_NODE, (True, True, 1), id="the same node"),
        pytest.param(NARROWED, OF_NODE, (True, True, 1), id="cards asked on top"),
        pytest.param(OF_NODE, NARROWED, (True, True, -1), id="one requirement less"),
        pytest.param(NO_CONSTRAINTS, OF_NODE, (True, True, -1), id="no affinity left"),
        pytest.param(
            terms((A100,), (A100, EAST)),
            terms((A100,)),
            (True, True, 1),
            id="more terms",
        ),
        pytest.param(
            terms((A100,), (EAST,)), terms((A100,)), (True, True, -1), id="a wider term"
        ),
    ],
)
def test_how_like_a_pod_is_by_where_it_may_go(
    now: PodConstraints, then: PodConstraints, found: tuple[Any, ...]
) -> None:
    arrival = RecentPodRecord(1, "ml", "train-1", "train-", "job-1", ((MIG, 1),), now)

    assert likeness(arrival, Claim(((MIG, 1),), then)) == found


@pytest.mark.parametrize(
    ("request_now", "is_same"),
    [
        pytest.param(((MIG, 1),), True, id="as much"),
        pytest.param(((MIG, 2),), False, id="more"),
        pytest.param(((MIG, 1), ("cpu", 1000)), True, id="other resources beside it"),
    ],
)
def test_how_like_a_pod_is_by_its_amounts(
    request_now: tuple[tuple[str, int], ...], is_same: bool
) -> None:
    arrival = RecentPodRecord(
        1, "ml", "train-1", "train-", "job-1", request_now, NO_CONSTRAINTS
    )

    assert likeness(arrival, Claim(((MIG, 1),), NO_CONSTRAINTS))[0] is is_same


def test_of_thousands_of_terms_only_the_same_are_told_to_be_kept() -> None:
    many = [
        (LabelRequirement(key=f"k{place}", operator="Exists"),)
        for place in range(20_000)
    ]
    then = terms(*many)
    kept, narrowed = terms(*many), terms(*((*term, EAST) for term in many))
    claim = Claim(((MIG, 1),), then)

    found = [
        likeness(
            RecentPodRecord(1, "ml", "t-1", "t-", "job-1", ((MIG, 1),), now), claim
        )
        for now in (kept, narrowed)
    ]

    assert found == [(True, True, 20_000), (True, True, -1)]
