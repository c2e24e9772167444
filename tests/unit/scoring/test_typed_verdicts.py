"""Verdicts and scores of pods that want something of the GPUs themselves."""

from dataclasses import replace
from types import MappingProxyType
from typing import Final

import numpy as np
import pytest

from cluster.ledger.changes import NodesListed, PodGone, PodSeen, PodsListed
from cluster.ledger.ledger import Ledger
from scoring.candidates import Candidates, PodRequest
from scoring.feasibility import Verdict, judge
from scoring.gpu.models import GIB, default_table
from scoring.gpu.requirements import NO_GPU_REQUIREMENTS, UNREADABLE, GpuRequirements
from scoring.snapshot import Snapshot
from scoring.terms import (
    ScoreOptions,
    compatible_names,
    labelled_topology,
    type_match,
    type_tiers,
)
from tests.builders import (
    BUILDER,
    GPU,
    LABEL_KEYS,
    Tree,
    make_ledger,
    make_node,
    make_node_record,
    make_pod,
    make_pod_record,
    make_snapshot,
    take_candidates,
)

PRODUCT: Final = "nvidia.com/gpu.product"
H100: Final = "NVIDIA-H100-80GB-HBM3"
A100_80: Final = "NVIDIA-A100-SXM4-80GB"
A100_40: Final = "NVIDIA-A100-PCIE-40GB"
EXCLUSIVE: Final = {"gpu-extender.io/exclusive": "true"}
COMPATIBLE: Final = {"nvidia-tesla-v100": frozenset({"nvidia-tesla-a100"})}
OPTIONS: Final = ScoreOptions(
    0.6,
    0.8,
    MappingProxyType(COMPATIBLE),
    "target",
    compatible_names=compatible_names(default_table(), COMPATIBLE),
)


def asking(
    gpu_requirements: GpuRequirements = NO_GPU_REQUIREMENTS,
    *request: tuple[str, int],
    uid: str = "",
    accelerator: str | None = None,
    nominated_node: str = "",
) -> PodRequest:
    request = request or ((GPU, 1),)
    return PodRequest(
        uid, request, request[0][0], accelerator, nominated_node, gpu_requirements
    )


def node_of(name: str, product: str = "", **labels: str) -> Tree:
    stated = {PRODUCT: product} if product else {}
    return make_node(name=name, gpus=8, labels={**stated, **labels})


def taken(pod_request: PodRequest, snapshot: Snapshot) -> Candidates:
    return take_candidates(snapshot, snapshot.nodes.names, pod_request)


def verdicts_of(
    pod_request: PodRequest, snapshot: Snapshot, *, is_enforcing: bool = False
) -> dict[str, Verdict]:
    verdicts = judge(
        taken(pod_request, snapshot), pod_request, is_enforcing=is_enforcing
    ).verdicts
    return dict(zip(snapshot.nodes.names, map(Verdict, verdicts.tolist()), strict=True))


# --- type and memory ---------------------------------------------------------

MIXED: Final = make_snapshot(
    nodes=[
        node_of("h100", H100),
        node_of("a100", A100_80),
        node_of("small-a100", A100_40),
        node_of("shared-t4", "Tesla-T4-SHARED", **{"nvidia.com/gpu.replicas": "4"}),
        node_of("unlabelled"),
    ]
)
FITS, WRONG, OPEN, LITTLE = (
    Verdict.FEASIBLE,
    Verdict.WRONG_TYPE,
    Verdict.TYPE_UNKNOWN,
    Verdict.TOO_LITTLE_MEMORY,
)


@pytest.mark.parametrize(
    ("gpu_requirements", "verdicts"),
    [
        pytest.param(NO_GPU_REQUIREMENTS, [FITS] * 5, id="nothing"),
        pytest.param(
            GpuRequirements(preferred=("H100",)), [FITS] * 5, id="a preference"
        ),
        pytest.param(
            GpuRequirements(linked="preferred"), [FITS] * 5, id="links, rather"
        ),
        pytest.param(
            GpuRequirements(types=("H100", "A100-80GB")),
            [FITS, FITS, WRONG, WRONG, OPEN],
            id="a list",
        ),
        pytest.param(
            GpuRequirements(excluded=("H100",)),
            [WRONG, FITS, FITS, WRONG, OPEN],
            id="exclusion",
        ),
        pytest.param(
            GpuRequirements(min_memory=41 * GIB),
            [FITS, FITS, LITTLE, WRONG, OPEN],
            id="memory",
        ),
        pytest.param(
            GpuRequirements(min_memory=4 * GIB, is_sharing_allowed=True),
            [FITS, FITS, FITS, FITS, OPEN],
            id="memory, of a share if need be",
        ),
        pytest.param(UNREADABLE, [WRONG] * 5, id="nobody knows"),
    ],
)
def test_nodes_are_judged_by_their_gpus(
    gpu_requirements: GpuRequirements, verdicts: list[Verdict]
) -> None:
    assert list(verdicts_of(asking(gpu_requirements), MIXED).values()) == verdicts


def test_type_and_memory_come_after_the_total_and_before_the_free_count() -> None:
    snapshot = make_snapshot(
        nodes=[
            make_node(name="few", gpus=1, labels={PRODUCT: H100}),
            node_of("wrong", A100_80),
            node_of("full", H100),
        ],
        pods=[
            make_pod(name=f"on-{name}", gpus=8, node_name=name)
            for name in ("wrong", "full")
        ],
    )
    pod_request = asking(GpuRequirements(types=("H100",)), (GPU, 2))

    assert verdicts_of(pod_request, snapshot, is_enforcing=True) == {
        "few": Verdict.TOO_FEW,
        "wrong": WRONG,
        "full": Verdict.INSUFFICIENT,
    }


def test_the_accelerator_selector_holds_beside_a_list() -> None:
    snapshot = make_snapshot(nodes=[node_of("a", A100_80, accelerator="nvidia-a100")])
    gpu_requirements = GpuRequirements(types=("A100",))

    assert verdicts_of(
        asking(gpu_requirements, accelerator="nvidia-a100"), snapshot
    ) == {"a": FITS}
    assert verdicts_of(asking(gpu_requirements, accelerator="other"), snapshot) == {
        "a": WRONG
    }


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param({"nvidia.com/mig.config.state": "pending"}, id="MIG is changed"),
        pytest.param(
            {"nvidia.com/gpu-driver-upgrade-state": "drain-required"}, id="new driver"
        ),
        pytest.param({PRODUCT: f"{H100}-MIG-INVALID"}, id="an invalid layout"),
    ],
)
def test_a_node_in_flux_is_not_ready_whatever_its_type(labels: dict[str, str]) -> None:
    snapshot = make_snapshot(
        nodes=[make_node(name="a", gpus=8, labels={PRODUCT: H100, **labels})]
    )

    for type_ in ("H100", "A100"):
        pod_request = asking(GpuRequirements(types=(type_,)))
        assert verdicts_of(pod_request, snapshot) == {"a": Verdict.NOT_READY}


def test_unknown_nodes_have_no_type() -> None:
    pod_request = asking(GpuRequirements(types=("H100",), is_exclusive=True))
    for snapshot in (MIXED, make_snapshot()):
        candidates = take_candidates(snapshot, ["ghost"], pod_request)

        (verdict,) = judge(
            candidates, pod_request, is_enforcing=False
        ).verdicts.tolist()

        assert verdict == Verdict.UNKNOWN_NODE


# --- exclusive ---------------------------------------------------------------


def test_a_pod_that_wants_to_be_alone_needs_a_node_without_gpu_pods() -> None:
    snapshot = make_snapshot(
        nodes=[node_of("empty"), node_of("used"), node_of("cpu-only")],
        pods=[
            make_pod(name="a", gpus=1, node_name="used"),
            make_pod(name="b", cpu="1", node_name="cpu-only"),
        ],
    )

    assert verdicts_of(asking(GpuRequirements(is_exclusive=True)), snapshot) == {
        "empty": FITS,
        "used": Verdict.NOT_ALONE,
        "cpu-only": FITS,
    }


def test_nobody_joins_a_pod_that_wants_to_be_alone() -> None:
    lone = make_pod(name="lone", gpus=1, node_name="a", annotations=EXCLUSIVE)
    snapshot = make_snapshot(nodes=[node_of("a"), node_of("b")], pods=[lone])

    assert verdicts_of(asking(), snapshot) == {"a": Verdict.NOT_ALONE, "b": FITS}


@pytest.mark.parametrize(
    "gpu_requirements", [NO_GPU_REQUIREMENTS, GpuRequirements(is_exclusive=True)]
)
def test_a_pod_is_no_company_for_itself(gpu_requirements: GpuRequirements) -> None:
    lone = make_pod(name="l", uid="lone", gpus=1, node_name="a", annotations=EXCLUSIVE)
    snapshot = make_snapshot(nodes=[node_of("a")], pods=[lone])

    assert verdicts_of(asking(gpu_requirements, uid="lone"), snapshot) == {"a": FITS}


def test_the_nominated_node_is_not_exempt_from_company() -> None:
    snapshot = make_snapshot(
        nodes=[node_of("a")], pods=[make_pod(gpus=1, node_name="a")]
    )
    pod_request = asking(GpuRequirements(is_exclusive=True), nominated_node="a")

    assert verdicts_of(pod_request, snapshot) == {"a": Verdict.NOT_ALONE_NOW}


# --- the ledger --------------------------------------------------------------


def gpu_pods_of(snapshot: Snapshot) -> tuple[list[int], list[int]]:
    return snapshot.gpus.gpu_pods.tolist(), snapshot.gpus.exclusive_gpu_pods.tolist()


def test_gpu_pods_come_and_go() -> None:
    ledger = make_ledger(nodes=[node_of("a"), node_of("b")])
    lone = make_pod_record(
        make_pod(name="lone", uid="lone", gpus=1, node_name="a", annotations=EXCLUSIVE)
    )
    plain = make_pod_record(make_pod(name="plain", uid="plain", gpus=1, node_name="a"))
    assert gpu_pods_of(ledger.build()) == ([0, 0], [0, 0])
    ledger.apply(PodSeen(lone))
    ledger.apply(PodSeen(plain))
    assert gpu_pods_of(ledger.build()) == ([2, 0], [1, 0])
    ledger.apply(PodGone("lone"))
    assert gpu_pods_of(ledger.build()) == ([1, 0], [0, 0])
    ledger.apply(PodGone("plain"))
    assert gpu_pods_of(ledger.build()) == ([0, 0], [0, 0])


def test_a_node_that_was_not_seen_yet_has_its_gpu_pods() -> None:
    ledger = Ledger(LABEL_KEYS)
    ledger.apply(PodsListed((make_pod_record(make_pod(gpus=1, node_name="late")),)))
    ledger.apply(NodesListed((make_node_record(node_of("late")),)))

    assert gpu_pods_of(ledger.build()) == ([1], [0])


def test_a_corrected_label_changes_the_gpus() -> None:
    ledger = make_ledger(nodes=[node_of("a", A100_40), node_of("b", A100_40)])
    pod_request = asking(GpuRequirements(types=("H100",)))
    before = ledger.build()
    assert verdicts_of(pod_request, before) == {"a": WRONG, "b": WRONG}

    ledger.apply(NodesListed(tuple(map(make_node_record, [
        node_of("a", H100), node_of("b", A100_40)]))))  # fmt: skip
    after = ledger.build()

    assert verdicts_of(pod_request, after) == {"a": FITS, "b": WRONG}
    assert after.changed_since(before.generation).tolist() == [0]
    assert len(before.gpus.kinds) == 1


def test_a_mixed_node_is_noticed_by_its_capacity() -> None:
    labels = {PRODUCT: H100, "nvidia.com/gpu.count": "4"}
    node = make_node(name="a", gpus=8, labels=labels)
    record = make_node_record(node, builder=BUILDER)

    assert record.gpus.model == ""


# --- scores ------------------------------------------------------------------


def match(pod_request: PodRequest, *nodes: Tree) -> list[float]:
    snapshot = make_snapshot(nodes=nodes)
    scores = type_match(taken(pod_request, snapshot), pod_request, OPTIONS)
    assert scores.dtype == np.float64
    return [float(score) for score in scores]


NODES: Final = (
    node_of("v100", "Tesla-V100-SXM2-16GB"),
    node_of("a100", A100_80),
    node_of("h100", H100),
    node_of("unlabelled"),
)


@pytest.mark.parametrize(
    ("gpu_requirements", "scores"),
    [
        pytest.param(NO_GPU_REQUIREMENTS, [50, 50, 50, 50], id="nothing"),
        pytest.param(
            GpuRequirements(excluded=("L4",)), [50, 50, 50, 50], id="an exclusion"
        ),
        pytest.param(GpuRequirements(types=("H100",)), [0, 0, 100, 0], id="one type"),
        pytest.param(
            GpuRequirements(types=("H100", "A100")), [0, 70, 100, 0], id="two"
        ),
        pytest.param(
            GpuRequirements(types=("H100", "A100", "V100")),
            [70, 85, 100, 0],
            id="three",
        ),
        pytest.param(
            GpuRequirements(preferred=("H100",)), [0, 0, 100, 0], id="a preference"
        ),
        pytest.param(
            GpuRequirements(preferred=("V100",)), [100, 70, 0, 0], id="compatible"
        ),
        pytest.param(
            GpuRequirements(preferred=("v100-16gb",)), [100, 0, 0, 0], id="narrower"
        ),
    ],
)
def test_types_score_by_their_place_in_the_list(
    gpu_requirements: GpuRequirements, scores: list[float]
) -> None:
    assert match(asking(gpu_requirements), *NODES) == scores


def test_a_list_counts_before_the_selector_and_the_selector_before_a_rule_key() -> None:
    node = node_of("a", A100_80, accelerator="x")

    assert match(asking(GpuRequirements(types=("A100",)), accelerator="y"), node) == [
        100
    ]
    assert match(
        asking(GpuRequirements(preferred=("A100",)), accelerator="y"), node
    ) == [0]
    assert match(
        asking(GpuRequirements(preferred=("H100",)), accelerator="x"), node
    ) == [100]


def test_compatible_types_are_found_by_any_name() -> None:
    names = compatible_names(
        default_table(), {"nvidia-tesla-v100": ["nvidia-tesla-a100"], "own": ["T4"]}
    )

    assert names["v100"] == names["tesla-v100"] == {"tesla-a100"}
    assert names["own"] == {"t4"}


def test_each_accepted_type_is_a_tier() -> None:
    snapshot = make_snapshot(nodes=NODES)
    pod_request = asking(GpuRequirements(types=("H100", "A100-80GB", "A100")))

    tiers = type_tiers(taken(pod_request, snapshot), pod_request)

    assert tiers.dtype == np.int64
    assert tiers.tolist() == [3, 1, 0, 3]
    assert type_tiers(taken(asking(), snapshot), asking()).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("request_", "labels", "score"),
    [
        pytest.param(((GPU, 2),), {}, 50, id="two GPUs"),
        pytest.param(((GPU, 2),), {"gpu-interconnect": "nvlink"}, 100, id="linked"),
        pytest.param(
            ((GPU, 2),),
            {"gpu-interconnect": "nvlink", "nvidia.com/gpu.replicas": "4"},
            50,
            id="two shares",
        ),
        pytest.param((("nvidia.com/mig-1g.10gb", 2),), {}, 100, id="two slices"),
        pytest.param((("nvidia.com/gpu-memory", 40),), {}, 100, id="memory"),
        pytest.param((("nvidia.com/gpu.shared", 2),), {}, 100, id="shares by name"),
    ],
)
def test_only_whole_gpus_count_as_several(
    request_: tuple[tuple[str, int], ...], labels: dict[str, str], score: float
) -> None:
    snapshot = make_snapshot(nodes=[node_of("a", H100, **labels)])
    pod_request = asking(NO_GPU_REQUIREMENTS, *request_)

    assert labelled_topology(
        taken(pod_request, snapshot), pod_request, OPTIONS
    ).tolist() == [score]


def test_a_demand_tells_pods_apart() -> None:
    pod_request = asking(GpuRequirements(types=("H100",)))

    assert pod_request != replace(pod_request, gpu_requirements=NO_GPU_REQUIREMENTS)
    assert hash(pod_request) == hash(replace(pod_request))


def test_company_on_a_node_short_of_gpus_may_be_evicted() -> None:
    snapshot = make_snapshot(
        nodes=[make_node(name="a", gpus=2)],
        pods=[make_pod(name="p", gpus=2, node_name="a")],
    )
    pod_request = asking(GpuRequirements(is_exclusive=True))

    assert verdicts_of(pod_request, snapshot) == {"a": Verdict.NOT_ALONE_NOW}
