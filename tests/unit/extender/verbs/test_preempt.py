from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from cluster.decode.faults import convert_with_faults
from cluster.decode.objects import Pod
from extender.verbs.lookup import read_pod_request
from extender.verbs.preempt import Preemption, preempt_nodes, without_victims
from extender.wire.preempt import PreemptArgs, Victims
from scoring.feasibility import Verdict
from scoring.snapshot import Snapshot
from service.runtime import build_verb_options
from tests.builders import GPU, make_node, make_pod, make_snapshot
from tests.extender_app import make_settings

ENFORCING = build_verb_options(make_settings())
TRUSTING = build_verb_options(make_settings({"extender": {"counts": "trust"}}))
MEMORY = "nvidia.com/gpu-memory"


def cluster(*, pods: Iterable[dict[str, Any]] = (), **node: Any) -> Snapshot:
    """Return a snapshot of the node ``a``, eight GPUs unless said otherwise."""
    return make_snapshot(nodes=[make_node(name="a", **{"gpus": 8, **node})], pods=pods)


def holding(gpus: int, uid: str, node_name: str = "a") -> dict[str, Any]:
    """Return a bound pod."""
    return make_pod(name=uid, uid=uid, gpus=gpus, node_name=node_name)


def args_of(
    pod: dict[str, Any], victims: Mapping[str, Sequence[str]] | None = None
) -> PreemptArgs:
    """Return a call; by default the pod ``low`` is to leave the node ``a``."""
    read, faults = convert_with_faults(pod, Pod)
    assert read is not None, faults
    named = {"a": ["low"]} if victims is None else victims
    return PreemptArgs(read, {name: Victims(tuple(named[name])) for name in named})


def is_kept(
    snapshot: Snapshot, *uids: str, gpus: int = 8, is_trusting: bool = False
) -> bool:
    """Say whether the node ``a`` stays a candidate with these victims."""
    options = TRUSTING if is_trusting else ENFORCING
    args = args_of(make_pod(name="high", gpus=gpus), {"a": uids})
    return "a" in preempt_nodes(args, snapshot, options).kept


# --- amounts, where our own count decides --------------------------------------


@pytest.mark.parametrize(
    ("pods", "victims", "expected"),
    [
        # 8 - 8 + 8 = 8
        pytest.param([holding(8, "low")], ["low"], True, id="the victim holds all"),
        # 8 - 8 + 4 = 4
        pytest.param(
            [holding(4, "low"), holding(4, "mid")],
            ["low"],
            False,
            id="another pod stays",
        ),
        pytest.param(
            [holding(4, "low"), holding(4, "mid")],
            ["low", "mid"],
            True,
            id="two victims hold all",
        ),
        # 8 - 8 + 4, not + 8
        pytest.param(
            [holding(4, "low"), holding(4, "mid")],
            ["low", "low"],
            False,
            id="a victim named twice counts once",
        ),
        pytest.param([holding(8, "low")], ["ghost"], False, id="unknown victim"),
        pytest.param([], ["ghost"], True, id="unknown victim, free as we see it"),
        # what is not in our sum cannot leave it: 8 - 4 = 4
        pytest.param(
            [holding(4, "mid")], ["ghost"], False, id="unknown victim, another stays"
        ),
        pytest.param(
            [holding(8, "mid"), holding(8, "low", "b")],
            ["low"],
            False,
            id="the victim is on another node",
        ),
        pytest.param(
            [holding(8, "low") | {"status": {"phase": "Succeeded"}}],
            ["low"],
            True,
            id="the victim has ended",
        ),
        pytest.param([], [], True, id="nobody needs to leave"),
        pytest.param([holding(1, "mid")], [], False, id="nobody is named, not free"),
    ],
)
def test_amounts_with_the_victims_gone(
    pods: list[dict[str, Any]], victims: list[str], expected: bool
) -> None:
    assert is_kept(cluster(pods=pods), *victims) is expected


def test_a_victim_may_hold_what_no_node_has() -> None:
    victim = make_pod(
        name="low",
        uid="low",
        gpus=8,
        requests={"nvidia.com/made-up": "1"},
        node_name="a",
    )

    assert is_kept(cluster(pods=[victim]), "low")


def test_every_managed_resource_of_the_pod_must_suffice() -> None:
    snapshot = cluster(
        resources={MEMORY: "80Gi"},
        pods=[
            make_pod(name="low", uid="low", gpus=8, node_name="a"),
            make_pod(name="mid", requests={MEMORY: "60Gi"}, node_name="a"),
        ],
    )
    pod = make_pod(name="high", gpus=8, requests={MEMORY: "40Gi"})

    preemption = preempt_nodes(args_of(pod), snapshot, ENFORCING)

    assert preemption.kept == {}
    assert preemption.result.verdicts.tolist() == [Verdict.INSUFFICIENT]


def test_the_pods_own_share_never_counts() -> None:
    own = make_pod(name="high", gpus=8, node_name="a")
    snapshot = cluster(pods=[own])

    kept = preempt_nodes(args_of(own, {"a": []}), snapshot, ENFORCING).kept

    assert list(kept) == ["a"]


def test_the_pods_own_share_is_taken_out_once_even_if_it_is_its_own_victim() -> None:
    own = make_pod(name="high", uid="high", gpus=6, node_name="a")
    # 8 - 12 + 6 = 2; taken out twice it would be 8
    snapshot = cluster(pods=[own, holding(6, "mid")])

    kept = preempt_nodes(args_of(own, {"a": ["high"]}), snapshot, ENFORCING).kept

    assert kept == {}


def test_the_nominated_node_is_not_exempt() -> None:
    pod = make_pod(name="high", gpus=8, status={"nominatedNodeName": "a"})
    snapshot = cluster(pods=[holding(8, "mid")])

    assert preempt_nodes(args_of(pod), snapshot, ENFORCING).kept == {}


def test_victims_of_one_node_free_nothing_on_another() -> None:
    snapshot = make_snapshot(
        nodes=[make_node(name=name, gpus=4) for name in "ab"],
        pods=[holding(4, "on-a"), holding(4, "on-b", "b")],
    )
    args = args_of(
        make_pod(name="high", gpus=4), {"b": ["on-a"], "a": ["on-a"], "c": []}
    )

    preemption = preempt_nodes(args, snapshot, ENFORCING)

    assert list(preemption.kept) == ["a"]
    assert preemption.result.verdicts.tolist() == [
        Verdict.INSUFFICIENT,
        Verdict.FEASIBLE,
        Verdict.UNKNOWN_NODE,
    ]


# --- amounts, where kube-scheduler's count is trusted --------------------------


def test_under_trust_no_node_is_dropped_for_amounts() -> None:
    # kube-scheduler has seen `mid` end, we have not yet
    snapshot = cluster(pods=[holding(4, "low"), holding(4, "mid")])

    assert not is_kept(snapshot, "low")
    assert is_kept(snapshot, "low", is_trusting=True)


def test_under_trust_a_node_that_we_find_too_full_is_counted() -> None:
    snapshot = cluster(pods=[holding(4, "low"), holding(4, "mid")])
    args = args_of(make_pod(name="high", gpus=8))

    assert preempt_nodes(args, snapshot, TRUSTING).result.count_mismatches == 1
    assert (
        preempt_nodes(
            args_of(make_pod(name="high", gpus=4)), snapshot, TRUSTING
        ).result.count_mismatches
        == 0
    )


# --- all other verdicts, under either ------------------------------------------


@pytest.mark.parametrize("is_trusting", [False, True], ids=["enforce", "trust"])
@pytest.mark.parametrize(
    "node",
    [
        pytest.param({"gpus": None}, id="no GPU"),
        pytest.param({"gpus": 0, "capacity": {GPU: "8"}}, id="all GPUs sick"),
        pytest.param({"gpus": 4}, id="too few even when empty"),
        pytest.param(
            {"labels": {"nvidia.com/mig.config.state": "pending"}}, id="MIG in flux"
        ),
        pytest.param({"name": "b"}, id="unknown node"),
    ],
)
def test_a_node_that_eviction_does_not_help_is_dropped(
    node: dict[str, Any], is_trusting: bool
) -> None:
    snapshot = make_snapshot(
        nodes=[make_node(**{"name": "a", "gpus": 8, **node})], pods=[holding(1, "low")]
    )

    assert not is_kept(snapshot, "low", is_trusting=is_trusting)


def test_a_node_of_another_type_is_dropped() -> None:
    snapshot = cluster(labels={"accelerator": "v100"}, pods=[holding(8, "low")])

    def kept_for(accelerator: str) -> list[str]:
        selector = {"nodeSelector": {"accelerator": accelerator}}
        args = args_of(make_pod(name="high", gpus=8, spec=selector))
        return list(preempt_nodes(args, snapshot, TRUSTING).kept)

    assert kept_for("v100") == ["a"]
    assert kept_for("a100") == []


@pytest.mark.parametrize("is_trusting", [False, True], ids=["enforce", "trust"])
@pytest.mark.parametrize(
    ("wants_alone", "named", "expected"),
    [
        pytest.param(["high"], ["low", "mid"], True, id="both others leave"),
        pytest.param(["high"], ["low"], False, id="one other stays"),
        pytest.param(["high"], [], False, id="free as it is, but not empty"),
        pytest.param(["low"], ["low"], True, id="the one that wants none leaves"),
        pytest.param(["low"], ["mid"], False, id="the one that wants none stays"),
        pytest.param([], ["low"], True, id="nobody minds"),
    ],
)
def test_who_wants_the_gpus_alone_decides(
    wants_alone: list[str], named: list[str], expected: bool, is_trusting: bool
) -> None:
    def pod(name: str, node_name: str = "") -> dict[str, Any]:
        alone = {"gpu-extender.io/exclusive": "true"} if name in wants_alone else {}
        return make_pod(
            name=name, uid=name, gpus=1, node_name=node_name, annotations=alone
        )

    snapshot = cluster(pods=[pod("low", "a"), pod("mid", "a")])
    options = TRUSTING if is_trusting else ENFORCING

    kept = preempt_nodes(args_of(pod("high"), {"a": named}), snapshot, options).kept

    assert ("a" in kept) is expected


def test_a_pod_that_asks_for_nothing_of_ours_gets_everything_back() -> None:
    args = args_of(make_pod(name="high", cpu="4"), {"ghost": ["x", "y"], "a": []})

    preemption: Preemption = preempt_nodes(args, cluster(), ENFORCING)

    assert preemption.kept == args.victims
    assert list(preemption.kept) == ["ghost", "a"]


def test_a_cluster_without_nodes_keeps_nothing() -> None:
    assert not is_kept(make_snapshot(), "low")


# --- what is not touched -------------------------------------------------------


def test_the_snapshot_itself_is_left_as_it_is() -> None:
    snapshot = cluster(pods=[holding(8, "low")])
    args = args_of(make_pod(name="high", gpus=8))

    afterwards = without_victims(
        snapshot, args.victims, read_pod_request(args.pod, ENFORCING)
    )

    assert snapshot.free(GPU).tolist() == [0]
    assert afterwards.free(GPU).tolist() == [8]
    assert not afterwards.requested.flags.writeable


def test_victims_and_violations_come_back_as_they_were() -> None:
    snapshot = cluster(pods=[holding(8, "low")])
    victims = {"a": Victims(("ghost", "low"), 3)}
    args = PreemptArgs(args_of(make_pod(name="high", gpus=8)).pod, victims)

    assert preempt_nodes(args, snapshot, ENFORCING).kept == victims
