from typing import Any

import pytest

from cluster.decode.objects import (
    NO_CONSTRAINTS,
    LabelRequirement,
    NodeSelectorTerm,
    PodConstraints,
)
from cluster.ledger.pods import RecentPodRecord
from cluster.ledger.writer import NotSyncedError, SnapshotCell
from injector.admitted_pod import PodIdentity
from injector.fallback.holds import Holds, match_score
from injector.fallback.simulation import PendingClaim
from scoring.snapshot import Snapshot
from tests.builders import Tree, make_node, make_pod
from tests.defaults import HOLD_SECONDS
from tests.fakes.admissions import GPU, MIG_1G, MIG_2G, Admissions, make_review

FALL, STAY = "2g.20gb->gpu", "2g.20gb->1g.10gb"


def one_slice(**rest: Any) -> Admissions:
    """Return a cluster with one free slice: who is promised it falls to 1g."""
    nodes = [
        make_node(name="a", resources={MIG_1G: "1"}),
        make_node(name="b", gpus=8),
    ]
    return Admissions(nodes=nodes, **rest)


def test_what_was_promised_is_not_free() -> None:
    admissions = one_slice()

    assert [admissions.outcome() for _ in range(3)] == [STAY, FALL, FALL]
    assert admissions.holds.count() == 3


def test_a_hold_ends_after_its_time() -> None:
    admissions = one_slice()
    admissions.review()

    admissions.seconds = 9.9
    before = admissions.outcome()
    admissions.seconds = 10.0
    after = admissions.outcome()

    assert (before, after) == (FALL, STAY)


def test_a_dry_run_sees_the_holds_and_leaves_none() -> None:
    admissions = one_slice()

    dry = [admissions.outcome(is_dry_run=True) for _ in range(2)]
    real = admissions.outcome()
    after = admissions.outcome(is_dry_run=True)

    assert (dry, real, after) == ([STAY, STAY], STAY, FALL)
    assert admissions.holds.count() == 1


def test_a_dry_run_of_a_pod_under_way_neither_counts_nor_ends_its_hold() -> None:
    admissions = one_slice()
    admissions.review(name="web-0")

    dry = admissions.outcome(name="web-0", is_dry_run=True)

    assert dry == STAY
    assert admissions.outcome(name="web-1") == FALL


def test_a_refused_pod_gives_back_what_it_held() -> None:
    admissions = one_slice()
    _, _, identity = admissions.review()

    admissions.fallback.release(identity)
    admissions.fallback.release(identity)

    assert admissions.outcome() == STAY


def test_a_named_pod_that_is_reviewed_again_replaces_its_hold() -> None:
    admissions = one_slice()

    outcomes = [admissions.outcome(name="web-0") for _ in range(2)]

    assert outcomes == [STAY, STAY]
    assert admissions.holds.count() == 1


def test_the_same_name_in_another_namespace_is_another_pod() -> None:
    admissions = one_slice()

    outcomes = [admissions.outcome(name="web-0", namespace=ns) for ns in ("a", "b")]

    assert outcomes == [STAY, FALL]


def test_the_same_request_sent_again_gets_the_same_answer() -> None:
    admissions = one_slice()

    outcomes = [admissions.outcome(request_uid="once") for _ in range(2)]

    assert outcomes == [STAY, STAY]
    assert admissions.holds.count() == 1


def test_two_pods_of_one_controller_are_not_mixed_up() -> None:
    admissions = one_slice()
    pod, _, _ = admissions.review()
    admissions.review()

    admissions.appear(pod, name="train-1")

    assert admissions.holds.count() == 1
    assert admissions.outcome() == FALL


def test_a_pod_that_has_appeared_counts_as_pending_instead() -> None:
    admissions = one_slice()
    pod, _, _ = admissions.review()

    admissions.appear(pod, name="train-1")

    assert admissions.holds.count() == 0
    assert admissions.outcome() == FALL


def test_a_pod_that_is_deleted_while_pending_leaves_its_slice_free() -> None:
    admissions = one_slice()
    pod, _, _ = admissions.review()

    admissions.appear(pod, name="train-1")
    admissions.disappear(name="train-1")

    assert admissions.outcome() == STAY


def test_a_pod_that_is_bound_late_counts_once() -> None:
    admissions = Admissions(nodes=[make_node(name="a", resources={MIG_1G: "2"})])
    pod, _, _ = admissions.review()
    admissions.appear(pod, name="train-1")
    admissions.appear(pod, name="train-1", node_name="a")

    results = [str(admissions.review()[1].outcome) for _ in range(2)]

    assert results == ["changed", "changed_full"]


def test_a_pod_that_was_there_before_does_not_end_a_hold() -> None:
    admissions = one_slice()
    admissions.appear(make_review({GPU: 1}), name="train-0")
    admissions.review()

    admissions.publish()

    assert admissions.outcome() == FALL


def test_a_pod_that_arrived_ends_one_hold_only_once() -> None:
    admissions = one_slice()
    pod, _, _ = admissions.review()
    admissions.appear(pod, name="train-1", node_name="a")
    admissions.review()

    admissions.appear(pod, name="train-1", node_name="a", status={"phase": "Running"})

    assert admissions.holds.count() == 1


def appeared(requests: dict[str, int], **metadata: Any) -> Tree:
    pod = make_review(requests)
    pod["metadata"] = metadata
    return pod


@pytest.mark.parametrize(
    ("pod", "appears", "held"),
    [
        pytest.param(
            appeared({MIG_1G: 1}, generateName="train-"), {}, 0, id="its very pod"
        ),
        pytest.param(
            appeared({MIG_1G: 1}, generateName="train-"),
            {"owner_uid": "job-2"},
            1,
            id="another owner",
        ),
        pytest.param(
            appeared({MIG_1G: 1}, generateName="test-"), {}, 1, id="another name"
        ),
        pytest.param(appeared({MIG_1G: 1}), {}, 1, id="a name that was not made"),
        pytest.param(
            appeared({GPU: 1}, generateName="train-"), {}, 1, id="another resource"
        ),
        pytest.param(
            appeared({MIG_1G: 1, "nvidia.com/shm": 1}, generateName="train-"),
            {},
            0,
            id="more than that was added later",
        ),
    ],
)
def test_which_pod_ends_a_hold(pod: Tree, appears: dict[str, Any], held: int) -> None:
    admissions = one_slice()
    admissions.review()

    admissions.appear(pod, name="train-x", **appears)

    assert admissions.holds.count() == held


@pytest.mark.parametrize(
    ("name", "held"),
    [
        pytest.param("web-0", 0, id="the same name"),
        pytest.param("web-1", 1, id="another name"),
    ],
)
def test_a_named_pod_ends_its_hold_even_if_it_has_a_generate_name(
    name: str, held: int
) -> None:
    admissions = one_slice()
    admissions.review(name="web-0", generate_name="web-")

    admissions.appear(appeared({MIG_1G: 1}, generateName="web-"), name=name)

    assert admissions.holds.count() == held


def test_the_oldest_hold_of_a_controller_ends_first() -> None:
    admissions = Admissions(nodes=[make_node(name="a", resources={MIG_1G: "7"})])
    pod, _, _ = admissions.review()
    admissions.seconds = 5.0
    admissions.review()

    admissions.appear(pod, name="train-1")
    admissions.seconds = 12.0

    assert admissions.holds.count() == 1  # the younger one, until 15 seconds


def claim_slice(
    _snapshot: Snapshot, held: tuple[PendingClaim, ...]
) -> tuple[PendingClaim | None, int]:
    return PendingClaim(((MIG_2G, 1),), NO_CONSTRAINTS), len(held)


def identity_of(uid: str) -> PodIdentity:
    return PodIdentity(uid, "ml", "", "train-", "", is_dry_run=False)


def test_holds_are_bounded_and_the_oldest_ends_first() -> None:
    holds = Holds(
        Admissions().cell, hold_seconds=HOLD_SECONDS, limit=2, monotonic=lambda: 0.0
    )

    seen = [holds.decide(identity_of(uid), claim_slice) for uid in "abcd"]
    holds.release(identity_of("a"))

    assert seen == [0, 1, 2, 2]
    assert holds.count() == 2


def test_without_a_snapshot_nothing_is_decided() -> None:
    holds = Holds(SnapshotCell(), hold_seconds=HOLD_SECONDS)

    with pytest.raises(NotSyncedError):
        holds.decide(identity_of("a"), claim_slice)
    assert holds.count() == 0


def test_holds_end_in_time_while_the_cluster_is_quiet() -> None:
    admissions = one_slice(pods=[make_pod(name="old", gpus=1, node_name="b")])
    admissions.review()

    admissions.seconds = 60.0

    assert admissions.holds.count() == 0


def wanting(pool: str, **affinity: str) -> Tree:
    """Return a pod that asks for a slice of a pool, or of a node that a field names."""
    spec: Tree = {"nodeSelector": {"pool": pool}} if pool else {}
    if affinity:
        fields = [
            {"key": f"metadata.{key}", "operator": "In", "values": [value]}
            for key, value in affinity.items()
        ]
        required = {"nodeSelectorTerms": [{"matchFields": fields}]}
        terms = {"requiredDuringSchedulingIgnoredDuringExecution": required}
        spec["affinity"] = {"nodeAffinity": terms}
    return make_review({MIG_1G: 1}, spec=spec)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(wanting("a"), wanting("b"), id="of two pools"),
        pytest.param(
            wanting("", name="a"), wanting("", name="b"), id="of a DaemonSet, by node"
        ),
        pytest.param(wanting("", name="a"), wanting(""), id="of one node and of any"),
    ],
)
def test_of_unlike_pods_of_one_controller_each_ends_its_own_hold(
    first: Tree, second: Tree
) -> None:
    nodes = [
        make_node(name=name, resources={MIG_1G: "1"}, labels={"pool": name})
        for name in ("a", "b")
    ]
    admissions = Admissions(nodes=[*nodes, make_node(name="c", gpus=8)])
    under_way, _, _ = admissions.review(first)
    arrived, _, _ = admissions.review(second)

    admissions.appear(arrived, name="train-2", owner_uid="job-1")
    admissions.disappear(name="train-2")
    results = [str(admissions.review(first)[1].outcome), admissions.holds.count()]

    assert under_way["spec"] == first["spec"]
    assert results == ["kept_full", 2]


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

    assert match_score(arrival, PendingClaim(((MIG, 1),), then)) == found


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

    claim = PendingClaim(((MIG, 1),), NO_CONSTRAINTS)
    assert match_score(arrival, claim)[0] is is_same


def test_of_thousands_of_terms_only_the_same_are_told_to_be_kept() -> None:
    many = [
        (LabelRequirement(key=f"k{number}", operator="Exists"),)
        for number in range(20_000)
    ]
    then = terms(*many)
    kept, narrowed = terms(*many), terms(*((*term, EAST) for term in many))
    claim = PendingClaim(((MIG, 1),), then)

    found = [
        match_score(
            RecentPodRecord(1, "ml", "t-1", "t-", "job-1", ((MIG, 1),), now), claim
        )
        for now in (kept, narrowed)
    ]

    assert found == [(True, True, 20_000), (True, True, -1)]
