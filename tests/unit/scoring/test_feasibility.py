import numpy as np
import pytest

from scoring.candidates import Candidates, PodRequest
from scoring.feasibility import (
    REASONS,
    Verdict,
    counted_as_full,
    judge,
    short_of,
    shown_verdict,
)
from tests.builders import (
    GPU,
    Tree,
    make_container,
    make_node,
    make_pod,
    make_snapshot,
    take_candidates,
)

MIG = "nvidia.com/mig-1g.10gb"
PENDING = {"nvidia.com/mig.config.state": "pending"}


def asking(
    *request: tuple[str, int],
    accelerator: str | None = None,
    nominated_node: str = "",
    uid: str = "",
) -> PodRequest:
    primary = request[0][0] if request else ""
    return PodRequest(uid, request, primary, accelerator, nominated_node)


def taken(
    pod_request: PodRequest,
    node: Tree,
    *,
    pods: list[Tree] | None = None,
    device_class_resources: tuple[str, ...] = (),
) -> Candidates:
    snapshot = make_snapshot(
        nodes=[node], pods=pods or [], device_class_resources=device_class_resources
    )
    return take_candidates(snapshot, [node["metadata"]["name"]], pod_request)


def verdict_on(
    pod_request: PodRequest,
    node: Tree,
    *,
    pods: list[Tree] | None = None,
    is_enforcing: bool = True,
) -> Verdict:
    candidates = taken(pod_request, node, pods=pods)
    return Verdict(
        int(judge(candidates, pod_request, is_enforcing=is_enforcing).verdicts[0])
    )


def holding(gpus: int, **more: str) -> Tree:
    return make_pod(name=f"holds-{gpus}", gpus=gpus, node_name="node-1", **more)  # type: ignore[arg-type]  # text arguments only


@pytest.mark.parametrize(
    ("pod_request", "node", "verdict"),
    [
        pytest.param(
            asking((GPU, 2)), make_node(gpus=2), Verdict.FEASIBLE, id="just enough"
        ),
        pytest.param(
            asking((GPU, 3)), make_node(gpus=2), Verdict.TOO_FEW, id="never enough"
        ),
        pytest.param(
            asking((GPU, 1000)), make_node(gpus=8), Verdict.TOO_FEW, id="a thousand"
        ),
        pytest.param(
            asking((GPU, 2**63 - 1)),
            make_node(gpus=8),
            Verdict.TOO_FEW,
            id="the largest amount there is",
        ),
        pytest.param(
            asking((GPU, 1)), make_node(), Verdict.NO_GPU, id="no GPU resource"
        ),
        pytest.param(
            asking((GPU, 1)), make_node(gpus=0), Verdict.NO_GPU, id="zero GPUs"
        ),
        pytest.param(
            asking((MIG, 1)),
            make_node(gpus=8),
            Verdict.NO_SUCH_RESOURCE,
            id="whole GPUs, but no slices",
        ),
        pytest.param(
            asking((GPU, 1)),
            make_node(resources={MIG: "7"}),
            Verdict.IN_PARTS,
            id="slices, but no whole GPUs",
        ),
        pytest.param(
            asking((GPU, 1)),
            make_node(gpus=0, capacity={GPU: "8"}),
            Verdict.NOT_READY,
            id="all GPUs unhealthy",
        ),
        pytest.param(
            asking((GPU, 8)),
            make_node(gpus=6, capacity={GPU: "8"}),
            Verdict.TOO_FEW,
            id="capacity does not count",
        ),
        pytest.param(
            asking((GPU, 1)),
            make_node(gpus=8, labels=PENDING),
            Verdict.NOT_READY,
            id="MIG layout is being changed",
        ),
        pytest.param(
            asking((GPU, 1)),
            make_node(gpus=8, labels={"accelerator": "v100"}),
            Verdict.FEASIBLE,
            id="no type asked",
        ),
        pytest.param(
            asking((GPU, 1), accelerator="v100"),
            make_node(gpus=8, labels={"accelerator": "v100"}),
            Verdict.FEASIBLE,
            id="the type asked",
        ),
        pytest.param(
            asking((GPU, 1), accelerator="a10"),
            make_node(gpus=8, labels={"accelerator": "a100"}),
            Verdict.WRONG_TYPE,
            id="a type whose name begins alike",
        ),
        pytest.param(
            asking((GPU, 1), accelerator="v100"),
            make_node(gpus=8),
            Verdict.WRONG_TYPE,
            id="type asked, node without label",
        ),
        pytest.param(
            asking((GPU, 1), accelerator=""),
            make_node(gpus=8),
            Verdict.WRONG_TYPE,
            id="empty type asked, node without label",
        ),
        pytest.param(
            asking((GPU, 1), accelerator=""),
            make_node(gpus=8, labels={"accelerator": ""}),
            Verdict.FEASIBLE,
            id="empty type asked, empty label",
        ),
        pytest.param(
            asking((GPU, 1), (MIG, 2)),
            make_node(gpus=8, resources={MIG: "1"}),
            Verdict.TOO_FEW,
            id="the second resource is short",
        ),
        pytest.param(
            asking(), make_node(is_cordoned=True), Verdict.FEASIBLE, id="asks nothing"
        ),
        pytest.param(
            asking((GPU, 1)),
            make_node(gpus=8, is_cordoned=True, is_ready=False),
            Verdict.FEASIBLE,
            id="cordon and readiness are kube-scheduler's business",
        ),
    ],
)
def test_verdict_on_an_empty_node(
    pod_request: PodRequest, node: Tree, verdict: Verdict
) -> None:
    assert verdict_on(pod_request, node) is verdict


@pytest.mark.parametrize(
    ("pod_request", "node", "verdict"),
    [
        pytest.param(
            asking((GPU, 9), accelerator="x"),
            make_node(labels=PENDING),
            Verdict.NO_GPU,
            id="no GPU goes before all others",
        ),
        pytest.param(
            asking((MIG, 9), accelerator="x"),
            make_node(labels=PENDING),
            Verdict.NO_SUCH_RESOURCE,
            id="missing resource goes before not ready",
        ),
        pytest.param(
            asking((GPU, 9), accelerator="x"),
            make_node(gpus=8, labels=PENDING),
            Verdict.NOT_READY,
            id="not ready goes before too few",
        ),
        pytest.param(
            asking((GPU, 9), accelerator="x"),
            make_node(gpus=8),
            Verdict.TOO_FEW,
            id="too few goes before the type",
        ),
        pytest.param(
            asking((GPU, 8), accelerator="x"),
            make_node(gpus=8),
            Verdict.WRONG_TYPE,
            id="the type goes before the count",
        ),
    ],
)
def test_the_first_check_that_fails_gives_the_reason(
    pod_request: PodRequest, node: Tree, verdict: Verdict
) -> None:
    assert verdict_on(pod_request, node, pods=[holding(1)]) is verdict


def test_finished_pods_free_their_gpus_at_the_change_of_phase() -> None:
    node = make_node(gpus=8)
    done = [
        make_pod(name="a", gpus=4, node_name="node-1", phase="Succeeded"),
        make_pod(name="b", gpus=4, node_name="node-1", phase="Failed"),
    ]
    running, finished = (
        make_pod(name="c", gpus=2, node_name="node-1", phase=phase)
        for phase in ("Running", "Succeeded")
    )

    before = [
        verdict_on(asking((GPU, count)), node, pods=[*done, running])
        for count in (6, 7)
    ]
    after = verdict_on(asking((GPU, 8)), node, pods=[*done, finished])

    assert before == [Verdict.FEASIBLE, Verdict.INSUFFICIENT]
    assert after is Verdict.FEASIBLE


@pytest.mark.parametrize("phase", ["Pending", "Running", "Unknown", "", "SomethingNew"])
def test_all_other_phases_count(phase: str) -> None:
    pod = make_pod(gpus=8, node_name="node-1", status={"phase": phase})

    assert verdict_on(asking((GPU, 1)), make_node(gpus=8), pods=[pod]) is (
        Verdict.INSUFFICIENT
    )


def test_a_pod_that_is_being_deleted_still_holds_its_gpus() -> None:
    pod = make_pod(
        gpus=8,
        node_name="node-1",
        metadata={
            "deletionTimestamp": "2026-11-27T12:00:00Z",
            "deletionGracePeriodSeconds": 600,
        },
    )

    assert verdict_on(asking((GPU, 1)), make_node(gpus=8), pods=[pod]) is (
        Verdict.INSUFFICIENT
    )


def test_three_init_containers_in_turn_fit_on_one_free_gpu() -> None:
    one = make_container(requests={GPU: "1"}, limits={GPU: "1"})
    pod = make_pod(
        containers=[one], init_containers=[one, one, one], node_name="node-1"
    )

    free = verdict_on(asking((GPU, 7)), make_node(gpus=8), pods=[pod])

    assert free is Verdict.FEASIBLE


def test_free_is_counted_from_the_healthy_gpus() -> None:
    node = make_node(gpus=6, capacity={GPU: "8"})

    verdicts = [
        verdict_on(asking((GPU, count)), node, pods=[holding(5)]) for count in (1, 2)
    ]

    assert verdicts == [Verdict.FEASIBLE, Verdict.INSUFFICIENT]


def test_allocatable_is_not_what_is_free() -> None:
    assert verdict_on(asking((GPU, 1)), make_node(gpus=8), pods=[holding(8)]) is (
        Verdict.INSUFFICIENT
    )


def test_pods_of_any_origin_count() -> None:
    pods = [
        make_pod(name="other", gpus=1, node_name="node-1", spec={"schedulerName": "x"}),
        make_pod(
            name="daemon",
            gpus=1,
            node_name="node-1",
            metadata={
                "ownerReferences": [
                    {"kind": "DaemonSet", "uid": "d", "controller": True}
                ]
            },
        ),
        make_pod(
            name="static",
            gpus=1,
            node_name="node-1",
            annotations={"kubernetes.io/config.mirror": "0123"},
        ),
    ]

    verdicts = [
        verdict_on(asking((GPU, count)), make_node(gpus=8), pods=pods)
        for count in (5, 6)
    ]

    assert verdicts == [Verdict.FEASIBLE, Verdict.INSUFFICIENT]


def test_replicas_of_shared_gpus_are_counted_as_slots() -> None:
    node = make_node(
        gpus=16,
        labels={
            "nvidia.com/gpu.product": "Tesla-T4-SHARED",
            "nvidia.com/gpu.count": "4",
            "nvidia.com/gpu.replicas": "4",
        },
    )

    verdicts = [
        verdict_on(asking((GPU, count)), node, pods=[holding(13)]) for count in (3, 4)
    ]

    assert verdicts == [Verdict.FEASIBLE, Verdict.INSUFFICIENT]


def test_a_node_that_holds_more_than_it_has_is_merely_full() -> None:
    assert verdict_on(asking((GPU, 1)), make_node(gpus=4), pods=[holding(8)]) is (
        Verdict.INSUFFICIENT
    )


def test_what_the_asking_pod_itself_holds_does_not_count_against_it() -> None:
    pod = make_pod(gpus=8, node_name="node-1", uid="me")

    own = verdict_on(asking((GPU, 8), uid="me"), make_node(gpus=8), pods=[pod])
    other = verdict_on(asking((GPU, 8), uid="you"), make_node(gpus=8), pods=[pod])

    assert (own, other) == (Verdict.FEASIBLE, Verdict.INSUFFICIENT)


def test_trusted_counts_let_a_full_node_pass_and_report_it() -> None:
    pod_request = asking((GPU, 1))
    candidates = taken(pod_request, make_node(gpus=8), pods=[holding(8)])

    trusting = judge(candidates, pod_request, is_enforcing=False)
    enforcing = judge(candidates, pod_request, is_enforcing=True)

    assert trusting.feasible.tolist() == [True]
    assert trusting.count_mismatches == 1
    assert enforcing.feasible.tolist() == [False]
    assert enforcing.count_mismatches == 0


def test_a_node_refused_for_another_reason_is_no_disagreement() -> None:
    pod_request = asking((GPU, 1), accelerator="x")
    candidates = taken(pod_request, make_node(gpus=8), pods=[holding(8)])

    assert judge(candidates, pod_request, is_enforcing=False).count_mismatches == 0


@pytest.mark.parametrize(
    ("node", "accelerator", "verdict"),
    [
        pytest.param(make_node(gpus=8), None, Verdict.FEASIBLE, id="count"),
        pytest.param(make_node(gpus=1), None, Verdict.TOO_FEW, id="not from the total"),
        pytest.param(
            make_node(gpus=8), "x", Verdict.WRONG_TYPE, id="nor from the type"
        ),
        pytest.param(
            make_node(gpus=8, labels=PENDING),
            None,
            Verdict.NOT_READY,
            id="nor from readiness",
        ),
    ],
)
def test_the_nominated_node_is_exempt_from_the_count_alone(
    node: Tree, accelerator: str | None, verdict: Verdict
) -> None:
    pod_request = asking((GPU, 2), accelerator=accelerator, nominated_node="node-1")

    assert verdict_on(pod_request, node, pods=[holding(8)]) is verdict


@pytest.mark.parametrize(
    ("node", "verdict"),
    [
        pytest.param(make_node(), Verdict.FEASIBLE, id="passes without a count"),
        pytest.param(make_node(gpus=2), Verdict.TOO_FEW, id="counted where offered"),
        pytest.param(
            make_node(labels=PENDING), Verdict.NOT_READY, id="faults still count"
        ),
    ],
)
def test_a_gpu_behind_a_device_class(node: Tree, verdict: Verdict) -> None:
    pod_request = asking((GPU, 4))
    candidates = taken(pod_request, node, device_class_resources=(GPU,))

    assert judge(candidates, pod_request, is_enforcing=True).verdicts.tolist() == [
        verdict
    ]


def test_unknown_nodes_are_refused_unless_nothing_is_asked() -> None:
    snapshot = make_snapshot(nodes=[make_node(gpus=8)])
    for pod_request, verdict in (
        (asking((GPU, 1)), Verdict.UNKNOWN_NODE),
        (asking(), Verdict.FEASIBLE),
    ):
        candidates = take_candidates(snapshot, ["ghost"], pod_request)

        assert judge(candidates, pod_request, is_enforcing=True).verdicts.tolist() == [
            verdict
        ]


def test_in_an_empty_cluster_every_node_is_unknown() -> None:
    pod_request = asking((GPU, 1))
    candidates = take_candidates(make_snapshot(), ["a", "b"], pod_request)

    feasibility = judge(candidates, pod_request, is_enforcing=False)

    assert feasibility.verdicts.tolist() == [Verdict.UNKNOWN_NODE] * 2
    assert feasibility.count_mismatches == 0


def test_amounts_at_the_cap_do_not_overflow() -> None:
    most = str(2**63 - 1)
    pods = [
        make_pod(name=name, gpus=most, node_name="node-1", uid=name) for name in "abc"
    ]

    full = verdict_on(asking((GPU, 1)), make_node(gpus=most), pods=pods)
    empty = verdict_on(asking((GPU, 2**63 - 1)), make_node(gpus=most))

    assert (full, empty) == (Verdict.INSUFFICIENT, Verdict.FEASIBLE)


def test_short_nodes_are_scored_as_full() -> None:
    pod_request = asking((GPU, 4), (MIG, 1))
    candidates = taken(
        pod_request, make_node(gpus=8, resources={MIG: "7"}), pods=[holding(6)]
    )

    full = counted_as_full(candidates, pod_request)

    assert short_of(candidates, pod_request).tolist() == [[True], [False]]
    assert full.requested.tolist() == [[8], [0]]
    assert candidates.requested.tolist() == [[6], [0]]


@pytest.mark.parametrize(
    ("verdicts", "shown"),
    [
        pytest.param([], None, id="no candidates"),
        pytest.param([0, 0], None, id="all pass"),
        pytest.param([2, 0, 9], None, id="one passes"),
        pytest.param([2, 2], Verdict.NO_GPU, id="all alike"),
        pytest.param([2, 13, 5], Verdict.INSUFFICIENT, id="the check furthest down"),
    ],
)
def test_all_refused_nodes_show_one_verdict(
    verdicts: list[int], shown: Verdict | None
) -> None:
    assert shown_verdict(np.array(verdicts, dtype=np.int64)) is shown


def test_every_refusal_has_a_constant_text_and_only_pods_that_leave_can_help() -> None:
    refusals = set(Verdict) - {Verdict.FEASIBLE}

    assert set(REASONS) == refusals
    assert {verdict for verdict in refusals if REASONS[verdict].is_resolvable} == {
        Verdict.NOT_ALONE_NOW,
        Verdict.INSUFFICIENT,
    }
    assert not any(
        any(character.isdigit() for character in reason.text)
        for reason in REASONS.values()
    )


def test_a_pod_that_asks_nothing_is_nowhere_short() -> None:
    pod_request = asking()
    snapshot = make_snapshot(nodes=[make_node(name="a"), make_node(name="b")])
    candidates = take_candidates(snapshot, ["a", "b"], pod_request)

    assert short_of(candidates, pod_request).shape == (0, 2)
    assert counted_as_full(candidates, pod_request).requested.shape == (0, 2)
