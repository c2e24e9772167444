"""Linked sets in verdicts, scores, evictions and explanations, from objects on."""

import json
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any, Final

import numpy as np
import pytest

import cluster.ledger.columns
from cluster.decode.faults import convert_with_faults
from cluster.decode.objects import Pod
from cluster.ledger.changes import NodeSeen
from extender.explain.explain import explain
from extender.explain.page import PageQuery, build_page
from extender.explain.pod import read_subject
from extender.verbs.call import VerbCall
from extender.verbs.lookup import read_pod_request
from extender.verbs.preempt import preempt_nodes
from extender.verbs.verbs import filter_nodes, total_nodes, with_assumed
from extender.wire.preempt import PreemptArgs, Victims
from scoring.candidates import take_columns
from scoring.feasibility import REASONS, Verdict
from scoring.snapshot import Snapshot
from scoring.topology.devices import CONTRADICTED, NOT_TOLD
from scoring.topology.layouts import NAMED_LAYOUTS, layout_of, set_of
from scoring.topology.tables import table_of
from service.runtime import build_verb_options
from tests.builders import (
    Tree,
    make_ledger,
    make_node,
    make_node_record,
    make_pod,
    make_pod_request,
    make_snapshot,
)
from tests.extender_app import make_settings

LINKS: Final = "gpu-extender.io/links"
ALLOCATED: Final = "gpu-extender.io/allocated"
LINKED: Final = {"gpu-extender.io/linked": "required"}
DGX_1: Final = '{"layout": "dgx-1-v100"}'
PAIRS: Final = '{"layout": "bridged-pairs-8"}'
GRADED: Final = {"scoring": {"topology": "graded"}}
BROKEN: Final = '[["X", "NV1"], ["NV2", "X"]]'


def node(
    name: str = "a",
    links: str | None = None,
    gpus: int = 8,
    labels: Mapping[str, str] | None = None,
) -> Tree:
    annotations = {} if links is None else {LINKS: links}
    return make_node(name=name, gpus=gpus, annotations=annotations, labels=labels or {})


def holder(allocated: str | None, gpus: int, node_name: str = "a") -> Tree:
    name = f"held-{allocated}-{gpus}-{node_name}"
    told = {} if allocated is None else {ALLOCATED: allocated}
    return make_pod(
        name=name, uid=name, gpus=gpus, node_name=node_name, annotations=told
    )


def call_of(snapshot: Snapshot, pod: Tree, settings: Mapping[str, Any]) -> VerbCall:
    options = build_verb_options(make_settings(settings))
    read, faults = convert_with_faults(pod, Pod)
    assert read is not None, faults
    columns = np.arange(len(snapshot.nodes.names), dtype=np.intp)
    pod_request = read_pod_request(read, options)
    return VerbCall(pod_request, snapshot.nodes.names, columns, snapshot)


def verdict_of(
    tree: Tree,
    pods: Iterable[Tree] = (),
    gpus: int = 2,
    annotations: Mapping[str, str] = LINKED,
) -> Verdict:
    snapshot = make_snapshot(nodes=[tree], pods=pods)
    pod = make_pod(name="new", gpus=gpus, annotations=annotations)
    options = build_verb_options(make_settings())
    result = filter_nodes(call_of(snapshot, pod, {}), options)
    return Verdict(int(result.verdicts[0]))


def term_of(
    tree: Tree,
    pods: Iterable[Tree] = (),
    gpus: int = 2,
    settings: Mapping[str, Any] | None = None,
) -> float:
    """Return the topology term of the only node."""
    snapshot = make_snapshot(nodes=[tree], pods=pods)
    options = build_verb_options(make_settings(settings or {}))
    call = call_of(snapshot, make_pod(name="new", gpus=gpus), settings or {})
    candidates = take_columns(
        snapshot, call.columns, call.pod_request, options.label_keys
    )
    return float(options.score_terms(candidates, call.pod_request)["topology"][0])


A100: Final = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
T4: Final = {"nvidia.com/gpu.product": "Tesla-T4"}


@pytest.mark.parametrize(
    ("tree", "pods", "gpus", "verdict"),
    [
        pytest.param(node(links=DGX_1), [], 8, Verdict.FEASIBLE, id="empty mesh"),
        pytest.param(node(links=PAIRS), [], 2, Verdict.FEASIBLE, id="a bridge"),
        pytest.param(node(links=PAIRS), [], 4, Verdict.UNLINKED, id="never four"),
        pytest.param(
            node(links=PAIRS),
            [holder(g, 1) for g in "0246"],
            2,
            Verdict.UNLINKED,
            id="each pair is broken",
        ),
        pytest.param(
            node(links=PAIRS),
            [holder("0,1,2,4,6", 5)],
            2,
            Verdict.UNLINKED,
            id="none free now",
        ),
        pytest.param(
            node(links=PAIRS),
            [holder("0,1,2,3,4,6", 6)],
            2,
            Verdict.UNLINKED,
            id="two free of two pairs",
        ),
        pytest.param(
            node(links=PAIRS),
            [holder("0,1,2,3,4,5", 6)],
            2,
            Verdict.FEASIBLE,
            id="the last pair",
        ),
        pytest.param(
            node(links=PAIRS),
            [holder(None, 4)],
            2,
            Verdict.FEASIBLE,
            id="nobody knows which are free",
        ),
        pytest.param(
            node(links=PAIRS),
            [holder("0,0", 4)],
            2,
            Verdict.FEASIBLE,
            id="pods that contradict themselves",
        ),
        pytest.param(node(links=BROKEN, gpus=2), [], 2, Verdict.FEASIBLE, id="broken"),
        pytest.param(node(links='{"layout": "?"}'), [], 2, Verdict.FEASIBLE, id="name"),
        pytest.param(node(labels=A100), [], 8, Verdict.FEASIBLE, id="by the model"),
        pytest.param(
            node(labels=T4), [], 2, Verdict.UNLINKED, id="a model without links"
        ),
        pytest.param(node(), [], 2, Verdict.FEASIBLE, id="nothing is known"),
        pytest.param(node(labels=T4), [], 1, Verdict.FEASIBLE, id="one GPU"),
        pytest.param(
            node(links=PAIRS),
            [holder("0,2,4,6", 4), holder("1,3,5", 3)],
            2,
            Verdict.INSUFFICIENT,
            id="fewer than asked are free: a matter of counts",
        ),
    ],
)
def test_a_linked_set_is_required(
    tree: Tree, pods: list[Tree], gpus: int, verdict: Verdict
) -> None:
    assert verdict_of(tree, pods, gpus) is verdict


@pytest.mark.parametrize("value", ["preferred", None])
def test_whoever_does_not_insist_is_not_refused(value: str | None) -> None:
    told = {} if value is None else {"gpu-extender.io/linked": value}

    assert verdict_of(node(labels=T4), annotations=told) is Verdict.FEASIBLE


def test_no_eviction_mends_links() -> None:
    reason = REASONS[Verdict.UNLINKED]

    assert (reason.text, reason.is_resolvable) == ("GPUs are not linked", False)


# --- scores ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tree", "pods", "gpus", "settings", "score"),
    [
        pytest.param(node(labels=A100), [], 2, {}, 50.0, id="classic: no label"),
        pytest.param(
            node(labels={**A100, "gpu-interconnect": "nvlink"}),
            [],
            2,
            {},
            100.0,
            id="label",
        ),
        pytest.param(node(links=DGX_1), [], 1, {}, 100.0, id="classic: one GPU"),
        pytest.param(node(links=BROKEN), [], 2, {}, 50.0, id="a broken matrix: label"),
        pytest.param(
            node(links=DGX_1),
            [],
            2,
            {"scoring": {"topology": "label"}},
            50.0,
            id="label alone",
        ),
        pytest.param(
            node(labels={"gpu-interconnect": "nvlink"}),
            [],
            2,
            GRADED,
            75.0,
            id="a claim",
        ),
        pytest.param(node(), [], 2, GRADED, 50.0, id="nothing known"),
        pytest.param(node(), [], 1, GRADED, 100.0, id="nothing known, one GPU"),
    ],
)
def test_what_the_label_decides(
    tree: Tree,
    pods: list[Tree],
    gpus: int,
    settings: Mapping[str, Any],
    score: float,
) -> None:
    assert term_of(tree, pods, gpus, settings) == score


def test_a_matrix_on_the_node_is_gone_by() -> None:
    fast = term_of(node(links=DGX_1), [holder("1,2,4,5,6,7", 6)])  # 0 3: two links
    slow = term_of(node(links=DGX_1), [holder("2,3,4,5,6,7", 6)])  # 0 1: one link
    none = term_of(node(links=DGX_1), [holder("1,2,3,4,6,7", 6)])  # 0 5: PCIe

    assert fast > slow > 50.0 > none


def test_where_only_the_number_is_known_the_score_is_between() -> None:
    fast = term_of(node(links=DGX_1), [holder("1,2,4,5,6,7", 6)])
    none = term_of(node(links=DGX_1), [holder("1,2,3,4,6,7", 6)])

    assert none < term_of(node(links=DGX_1), [holder(None, 6)]) < fast


def test_one_gpu_goes_where_it_breaks_nothing() -> None:
    whole = term_of(node(labels=A100), [], 1, GRADED)
    used = term_of(node(links=PAIRS), [holder("1", 1)], 1, GRADED)
    box = term_of(node(links='{"layout": "pcie-8"}'), [], 1, GRADED)

    assert whole < used
    assert whole < box


def test_assumed_pods_take_what_the_device_plugin_would() -> None:
    snapshot = make_snapshot(nodes=[node(links=PAIRS)], pods=[holder("0", 1)])
    call = call_of(snapshot, make_pod(name="new", gpus=2), {})
    options = build_verb_options(make_settings())
    candidates = take_columns(
        snapshot, call.columns, call.pod_request, options.label_keys
    )

    two, one, nine = (make_pod_request(gpus) for gpus in (2, 1, 9))
    crowded = with_assumed(candidates, call.pod_request, snapshot, {"a": (two, one)})

    assert crowded.free_sets.tolist() == [set_of((4, 5, 6, 7))]
    many = with_assumed(candidates, call.pod_request, snapshot, {"a": (nine,)})
    assert many.free_sets.tolist() == [NOT_TOLD]


def test_where_kube_scheduler_counts_more_than_we_its_count_is_scored() -> None:
    trusting = {"extender": {"counts": "trust"}}
    full = [holder("0,1,2,3,4,5,6,7", 8)]

    assert 0.0 < term_of(node(links=DGX_1), full, 2, trusting) < 100.0


def test_totals_of_all_nodes_take_one_look_up_each() -> None:
    nodes = [node(name=f"n{i}", links=DGX_1 if i % 2 else PAIRS) for i in range(50)]
    snapshot = make_snapshot(nodes=nodes)
    options = build_verb_options(make_settings(GRADED))
    call = call_of(snapshot, make_pod(name="new", gpus=2), GRADED)

    totals, taking_part = total_nodes(call, options, {})

    assert taking_part.all()
    assert len(set(totals.tolist())) == 2


# --- state -------------------------------------------------------------------


def free_of(tree: Tree, pods: Iterable[Tree]) -> int:
    return int(make_snapshot(nodes=[tree], pods=pods).gpus.free_sets[0])


def test_free_sets_follow_the_pods() -> None:
    tree = node(links=DGX_1)

    assert free_of(tree, []) == 255
    assert free_of(tree, [holder("0,3", 2)]) == 255 - 9
    assert free_of(tree, [holder(None, 2)]) == NOT_TOLD
    assert free_of(tree, [holder("0,9", 2)]) == CONTRADICTED
    assert free_of(node(), []) == NOT_TOLD
    uids = json.dumps({"layout": "pcie-2", "ids": ["GPU-a", "GPU-b"]})
    assert free_of(node(links=uids, gpus=2), [holder("GPU-b", 1)]) == 1


def test_the_own_gpus_of_a_pod_are_free_for_it() -> None:
    held = holder("0,1,2,4,6", 5)
    snapshot = make_snapshot(nodes=[node(links=PAIRS)], pods=[held])
    asked = make_pod(name=held["metadata"]["name"], uid=held["metadata"]["uid"], gpus=5)
    call = call_of(snapshot, asked, {})
    options = build_verb_options(make_settings())

    candidates = take_columns(
        snapshot, call.columns, call.pod_request, options.label_keys
    )

    assert candidates.free_sets.tolist() == [255]


# --- evictions ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("victims", "is_kept"),
    [
        pytest.param(["held-1-1-a"], True, id="a pair comes free"),
        pytest.param(["held-2-1-a"], False, id="two that are no pair"),
        pytest.param([], False, id="nobody has to go: it is not a matter of counts"),
    ],
)
def test_evictions_for_a_linked_set(victims: list[str], is_kept: bool) -> None:
    pods = [*(holder(gpu, 1) for gpu in "123"), holder("4,5,6,7", 4)]
    snapshot = make_snapshot(nodes=[node(links=PAIRS)], pods=pods)
    read, _ = convert_with_faults(make_pod(name="x", gpus=2, annotations=LINKED), Pod)
    assert read is not None
    args = PreemptArgs(read, {"a": Victims(tuple(victims))})

    answer = preempt_nodes(args, snapshot, build_verb_options(make_settings()))

    assert ("a" in answer.kept) is is_kept


def test_an_empty_list_of_victims_drops_even_a_linked_node() -> None:
    snapshot = make_snapshot(nodes=[node(links=PAIRS)])
    read, _ = convert_with_faults(make_pod(name="x", gpus=2, annotations=LINKED), Pod)
    assert read is not None
    args = PreemptArgs(read, {"a": Victims(())})

    assert not preempt_nodes(args, snapshot, build_verb_options(make_settings())).kept


# --- explanations ------------------------------------------------------------


def detail_of(
    tree: Tree,
    pods: Iterable[Tree] = (),
    gpus: int = 2,
    settings: Mapping[str, Any] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> str:
    options = build_verb_options(make_settings(settings or {}))
    pod = make_pod(name="new", gpus=gpus, annotations=annotations)
    snapshot = make_snapshot(nodes=[tree], pods=pods)
    explanation = explain(read_subject(pod, options), snapshot, options)
    page = build_page(explanation, PageQuery())
    return page.nodes[0].verdict.detail


@pytest.mark.parametrize(
    ("tree", "pods", "gpus", "said"),
    [
        pytest.param(
            node(links=DGX_1),
            [holder("4,5,6,7", 4)],
            2,
            "would get GPUs 0 3 (100 GB/s, NVLink), leaves GPUs 1 2, breaks a set of 4"
            " (200 GB/s)",
            id="the set, what is left, what breaks",
        ),
        pytest.param(
            node(links=DGX_1),
            [holder("0,1,2,3,4,6", 6)],
            1,
            "would get GPU 5, leaves GPU 7, breaks a set of 2 (50 GB/s)",
            id="one GPU of a pair",
        ),
        pytest.param(
            node(links=PAIRS),
            [holder("0,1,2,3,4,5", 6)],
            2,
            "would get GPUs 6 7 (600 GB/s, NVLink), leaves none, breaks a set of 2"
            " (600 GB/s)",
            id="the last pair",
        ),
        pytest.param(
            node(links=PAIRS),
            [holder(None, 3)],
            2,
            "which GPUs are free is not known (5 of 8); empty, it gives GPUs 0 1"
            " (600 GB/s, NVLink)",
            id="only the number is known",
        ),
        pytest.param(
            node(links=PAIRS),
            [holder("99", 1)],
            2,
            "which GPUs are free is not known (annotation gpu-extender.io/allocated of"
            " its pods cannot be right); empty, it gives",
            id="a GPU that is none of the node's",
        ),
        pytest.param(
            node(links=PAIRS),
            [holder("1", 1), holder("1,2", 2)],
            2,
            "(annotation gpu-extender.io/allocated of its pods cannot be right)",
            id="a GPU of two pods",
        ),
        pytest.param(
            node(links=BROKEN, gpus=2),
            [],
            2,
            "links unknown: annotation gpu-extender.io/links: not symmetric: GPU0 to"
            " GPU1 and back differ",
            id="broken",
        ),
        pytest.param(node(), [], 2, "links unknown", id="nothing is known"),
    ],
)
def test_explanations(tree: Tree, pods: list[Tree], gpus: int, said: str) -> None:
    assert said in detail_of(tree, pods, gpus, GRADED)


def test_the_annotation_of_pods_has_the_name_that_is_set() -> None:
    own = {"linkAnnotations": {"allocated": "example.com/held"}}
    options = build_verb_options(make_settings({**GRADED, **own}))
    held = make_pod(gpus=1, node_name="a", annotations={"example.com/held": "99"})
    snapshot = make_snapshot(
        nodes=[node(links=PAIRS)], pods=[held], builder=options.builder
    )

    subject = read_subject(make_pod(name="new", gpus=2), options)
    page = build_page(explain(subject, snapshot, options), PageQuery())

    said = "(annotation example.com/held of its pods cannot be right)"
    assert said in page.nodes[0].verdict.detail


def test_a_refusal_names_the_set_that_there_is() -> None:
    said = detail_of(node(links=PAIRS), [], 4, annotations=LINKED)

    assert said.startswith("would get GPUs 0 1 2 3 (20 GB/s, PCIe)")


def test_with_the_label_alone_nothing_is_said_of_links() -> None:
    assert "GPUs" not in detail_of(node(labels=A100)).replace("nvidia.com/gpu", "")


def test_a_broken_matrix_is_named_by_default() -> None:
    assert "links unknown: annotation" in detail_of(node(links=BROKEN, gpus=2))


# --- every kind of bad input -------------------------------------------------


@pytest.mark.parametrize(
    "links",
    [
        BROKEN,
        json.dumps([["X" if i == j else "NV6" for j in range(17)] for i in range(17)]),
        "GPU0 GPU1\nGPU0 X",
        '{"layout": "DGX-9"}',
        '{"layout": "dgx-2"}',
        '{"matrix": 7}',
        "",
        "null",
        "[" * 9999,
        "\x1b[31mgarbage",
    ],
)
@pytest.mark.parametrize("settings", [{}, GRADED])
@pytest.mark.parametrize("gpus", [1, 2, 8])
def test_bad_links_are_unknown_links(
    links: str, settings: Mapping[str, Any], gpus: int
) -> None:
    tree = node(links=links, labels=A100)

    assert verdict_of(tree, [], gpus) is Verdict.FEASIBLE
    assert term_of(tree, [], gpus, settings) == term_of(node(), [], gpus, settings)
    assert "links unknown: annotation" in detail_of(tree, [], gpus, GRADED)


# --- tables before a pod asks ------------------------------------------------


def misses(sizes: Iterable[int], layout: str) -> int:
    """Return how many tables pods of these sizes have to wait for."""
    links = layout_of(*NAMED_LAYOUTS[layout])
    before = table_of.cache_info().misses
    for size in sizes:
        table_of(links, size)
    return table_of.cache_info().misses - before


def test_a_node_has_its_tables_before_a_pod_asks() -> None:
    table_of.cache_clear()

    make_snapshot(nodes=[node(links=PAIRS), node("b", gpus=2), node("c", gpus=3)])

    assert misses((1, 2, 4, 8), "bridged-pairs-8") == 0
    assert misses((3,), "bridged-pairs-8") == 1  # seldom asked


def test_a_heartbeat_is_no_change_where_hundreds_of_nodes_all_differ() -> None:
    trees = [
        node(f"n{i}", gpus=3, links=f"[[0, {a}, {b}], [{a}, 0, 0], [{b}, 0, 0]]")
        for i, (a, b) in enumerate(product(range(1, 18), repeat=2))
    ]
    ledger = make_ledger(nodes=trees)
    ledger.build()

    for tree in trees:
        ledger.apply(NodeSeen(make_node_record(tree)))

    assert not ledger.has_changes


def test_nodes_that_all_differ_do_not_hold_the_ledger_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster.ledger.columns, "MAX_PREPARED", 1)
    table_of.cache_clear()

    make_snapshot(nodes=[node(links=PAIRS), node("b", links=DGX_1)])

    assert misses((1, 2), "bridged-pairs-8") == 0
    assert misses((1, 2), "dgx-1-v100") == 2


@pytest.mark.parametrize(
    "labels",
    [
        {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.product": "Tesla-T4-SHARED"},
        {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"},
    ],
)
def test_shares_and_slices_score_below_any_set(labels: dict[str, str]) -> None:
    pcie = [["X" if i == j else "SYS" for j in range(4)] for i in range(4)]
    snapshot = make_snapshot(
        nodes=[
            node("shared", gpus=16, labels=labels | {"gpu-interconnect": "nvlink"}),
            node("whole", links=json.dumps(pcie), gpus=4),
        ]
    )
    settings = {"scoring": {**GRADED["scoring"], "weights": {"topology": 100}}}
    options = build_verb_options(make_settings(settings))

    totals, *_ = total_nodes(call_of(snapshot, make_pod(gpus=2), settings), options, {})

    assert totals[0] < totals[1]


@pytest.mark.parametrize(
    ("gpus", "stated", "bandwidth"),
    [
        pytest.param(4, "8", 600.0, id="half of eight, the others cut by MIG"),
        pytest.param(4, "4", 200.0, id="four without a switch"),
        pytest.param(2, "4", 200.0, id="two of four without a switch"),
        pytest.param(4, "", 200.0, id="no label"),
    ],
)
def test_gpus_beside_cut_ones_have_the_links_of_their_machine(
    gpus: int, stated: str, bandwidth: float
) -> None:
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
        "nvidia.com/gpu.count": stated,
    }

    layout = make_node_record(node(gpus=gpus, labels=labels)).links.layout

    assert layout is not None
    assert layout.bandwidth[0b11] == bandwidth


def test_links_that_no_node_has_any_more_are_forgotten() -> None:
    ledger = make_ledger(nodes=[node("a", links=DGX_1), node("b", links=PAIRS)])
    for links in range(2, 9):
        matrix = [["X", links, 1], [links, "X", 0], [1, 0, "X"]]
        changed = make_node_record(node("a", links=json.dumps(matrix), gpus=3))
        ledger.apply(NodeSeen(changed))

        kinds = ledger.build().gpus.link_kinds

        assert [kind.layout for kind in kinds][:1] == [changed.links.layout]
        assert len(kinds) == 2


def test_links_of_other_nodes_keep_their_kind_beside_new_ones() -> None:
    trees = [node("a", links=DGX_1), node("b", links=DGX_1), node("c", links=PAIRS)]
    ledger = make_ledger(nodes=trees)
    ledger.build()
    bridged = json.dumps({"layout": "bridged-fours-8"})
    trees = [node("a", links=bridged), node("b", links=DGX_1), node("c")]
    for tree in trees:
        ledger.apply(NodeSeen(make_node_record(tree)))

    gpus = ledger.build().gpus
    found = [gpus.link_kinds[code].layout for code in gpus.link_codes.tolist()]

    assert found == [make_node_record(tree).links.layout for tree in trees]
