from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from extender.explain.details import DETAILS, show_gpus, show_size
from extender.explain.explain import explain
from extender.explain.page import (
    ALL_NODES,
    ExplanationPage,
    NodeRow,
    PageQuery,
    build_page,
)
from extender.explain.pod import (
    MAX_RESOURCES,
    find_subject,
    read_subject,
    subject_of_record,
)
from extender.verbs.fresh_snapshot import Deadline, DeadlineError
from extender.verbs.options import VerbOptions
from extender.verbs.verbs import NOTHING_ASSUMED, Assumed
from extender.wire.filter import WireError
from scoring.feasibility import Verdict
from scoring.gpu.node_gpus import Bounds, NodeGpus
from scoring.gpu.requirements import UNREADABLE, GpuRequirements
from scoring.snapshot import Snapshot
from service.runtime import build_verb_options
from tests.builders import (
    GPU,
    Tree,
    make_node,
    make_pod,
    make_pod_record,
    make_pod_request,
    make_snapshot,
)
from tests.extender_app import make_settings

SLICE = "nvidia.com/mig-1g.10gb"

# For a kube-scheduler that ignores GPUs, and offers full nodes, too.
COUNTS_ALONE = {"extender": {"counts": "enforce"}}


def options(tree: Mapping[str, Any] | None = None) -> VerbOptions:
    return build_verb_options(make_settings(tree))


def page_of(
    pod: Tree,
    snapshot: Snapshot,
    settings: Mapping[str, Any] | None = None,
    assumed: Assumed = NOTHING_ASSUMED,
    page: PageQuery | None = None,
) -> ExplanationPage:
    verb_options = options(settings)
    subject = read_subject(pod, verb_options)
    return build_page(
        explain(subject, snapshot, verb_options, assumed), page or PageQuery()
    )


def node_of(
    pod: Tree,
    node: Tree,
    pods: Iterable[Tree] = (),
    settings: Mapping[str, Any] | None = None,
    assumed: Assumed = NOTHING_ASSUMED,
) -> NodeRow:
    """Return the facts of the only node."""
    snapshot = make_snapshot(nodes=[node], pods=pods)
    (facts,) = page_of(pod, snapshot, settings, assumed).nodes
    return facts


TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}
TERMS = [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]
REQUIRED = {
    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": TERMS}
}


@pytest.mark.parametrize(
    ("pod", "node", "reason", "detail"),
    [
        pytest.param({}, {}, None, "", id="nothing against it"),
        pytest.param(
            {},
            {"is_cordoned": True},
            "node(s) were unschedulable",
            "the node is cordoned",
            id="cordon",
        ),
        pytest.param(
            {},
            {"is_ready": False},
            "node(s) had untolerated taint(s)",
            "the node is not ready",
            id="not ready",
        ),
        pytest.param(
            {},
            {"taints": [TAINT, {"key": "quiet", "effect": "PreferNoSchedule"}]},
            "node(s) had untolerated taint(s)",
            "not tolerated: team=a:NoSchedule",
            id="taint",
        ),
        pytest.param(
            {"spec": {"nodeSelector": {"zone": "a", "disk": "ssd"}}},
            {"labels": {"zone": "b"}},
            "node(s) didn't match Pod's node affinity/selector",
            "zone=a wanted, has b; disk=ssd wanted, has no such label",
            id="selector",
        ),
        pytest.param(
            {"spec": {"affinity": {"nodeAffinity": REQUIRED}}},
            {},
            "node(s) didn't match Pod's node affinity/selector",
            "no term of the required node affinity holds",
            id="affinity",
        ),
        pytest.param(
            {"cpu": "2500m", "memory": "3Gi"},
            {"cpu": "2", "memory": "2Gi"},
            "Insufficient cpu, Insufficient memory",
            "asks 2500m cpu: 2 free of 2 (0 requested);"
            " asks 3Gi memory: 2Gi free of 2Gi (0 requested)",
            id="cpu and memory",
        ),
        pytest.param(
            {},
            {"pods": "0"},
            "Too many pods",
            "asks 1 pods: 0 free of 0 (0 requested)",
            id="pods",
        ),
        pytest.param(
            {"spec": {"nodeName": "elsewhere"}},
            {},
            None,
            "",
            id="a node that it has already binds it to none",
        ),
    ],
)
def test_what_kube_scheduler_says_is_shown_as_its_own(
    pod: dict[str, Any], node: dict[str, Any], reason: str | None, detail: str
) -> None:
    facts = node_of(make_pod(gpus=1, **pod), make_node(gpus=8, **node))

    assert (facts.scheduler.reason, facts.scheduler.detail) == (reason, detail)
    assert facts.scheduler.passes == facts.offered == (reason is None)
    assert facts.verdict.feasible


DRIVER = "nvidia.com/gpu-driver-upgrade-state"
MIG_STATE = "nvidia.com/mig.config.state"
CUT_FOR_EVER = {MIG_STATE: "pending", "nvidia.com/gpu.product": "A100-80GB-PCIe"}


@pytest.mark.parametrize(
    ("pod", "node", "reason", "detail"),
    [
        pytest.param(
            {"gpus": 2},
            {"gpus": 8},
            None,
            "asks 2 nvidia.com/gpu: 5 free of 8 (3 requested)",
            id="fits",
        ),
        pytest.param(
            {},
            {"gpus": 8},
            None,
            "asks nothing that is managed",
            id="asks nothing",
        ),
        pytest.param(
            {"gpus": 1},
            {"resources": {SLICE: "7"}},
            "GPUs are cut or shared",
            f"asks nvidia.com/gpu: the node offers 7 {SLICE}",
            id="slices alone",
        ),
        pytest.param(
            {"requests": {SLICE: "1"}},
            {},
            "Node does not offer the GPU resource",
            f"asks {SLICE}: the node offers nothing that is managed",
            id="no slices",
        ),
        pytest.param(
            {"gpus": 1},
            {"gpus": 8, "labels": {DRIVER: "failed"}},
            "GPUs are not ready",
            f"label {DRIVER}=failed (usable: , upgrade-done, upgrade-required)",
            id="driver",
        ),
        pytest.param(
            {"gpus": 1},
            {"gpus": 8, "labels": {"nvidia.com/gpu.product": "A100-MIG-INVALID"}},
            "GPUs are not ready",
            "label nvidia.com/gpu.product=A100-MIG-INVALID",
            id="product",
        ),
        pytest.param(
            {"gpus": 1},
            {"gpus": 8, "conditions": {"AcceleratedHardwareReady": "False"}},
            "GPUs are not ready",
            "a condition of the node: AcceleratedHardwareReady=False",
            id="condition",
        ),
        pytest.param(
            {"gpus": 1},
            {"gpus": 0, "labels": CUT_FOR_EVER, "resources": {SLICE: "7"}},
            "GPUs are not ready",
            f"label {MIG_STATE}=pending (usable: success);"
            f" asks nvidia.com/gpu: the node offers 7 {SLICE}",
            id="MIG manager, with slices meanwhile",
        ),
        pytest.param(
            {"gpus": 1},
            {"labels": CUT_FOR_EVER},
            "GPUs are not ready",
            f"label {MIG_STATE}=pending (usable: success); asks nvidia.com/gpu: the"
            " node offers nothing that is managed; its labels tell of A100-PCIE-80GB",
            id="MIG manager, without any",
        ),
        pytest.param(
            {"gpus": 1},
            {"labels": {"nvidia.com/gpu.product": "NVIDIA-H100-PCIe"}},
            "Node has no GPU",
            "asks nvidia.com/gpu: the node offers nothing that is managed;"
            " its labels tell of H100-PCIe",
            id="cards are gone",
        ),
        pytest.param(
            {"gpus": 1},
            {"gpus": 0, "capacity": {"nvidia.com/gpu": "8"}},
            "GPUs are not ready",
            "asks 1 nvidia.com/gpu: 0 free of 0 (3 requested, capacity 8)",
            id="all cards sick",
        ),
        pytest.param(
            {"gpus": 4},
            {"gpus": 3, "capacity": {"nvidia.com/gpu": "4"}},
            "Too few GPUs on the node",
            "asks 4 nvidia.com/gpu: 0 free of 3 (3 requested, capacity 4)",
            id="one of four cards sick",
        ),
        pytest.param(
            {"gpus": 6},
            {"gpus": 8},
            "Insufficient GPUs",
            "asks 6 nvidia.com/gpu: 5 free of 8 (3 requested)",
            id="too many in use",
        ),
    ],
)
def test_our_verdict_is_shown_with_its_numbers(
    pod: dict[str, Any], node: dict[str, Any], reason: str | None, detail: str
) -> None:
    settings = {"faultSignals": {"conditions": {"AcceleratedHardwareReady": "False"}}}
    bound = make_pod(name="bound", gpus=3, node_name="node-1")

    facts = node_of(make_pod(**pod), make_node(**node), [bound], settings)

    assert (facts.verdict.reason, facts.verdict.detail) == (reason, detail)
    assert facts.verdict.feasible == (reason is None)
    assert facts.verdict.resolvable == (reason == "Insufficient GPUs")


def test_a_wrong_type_is_shown_with_both_types() -> None:
    selecting = {"nodeSelector": {"accelerator": "nvidia-tesla-v100"}}
    node = make_node(gpus=8, labels={"accelerator": "nvidia-tesla-t4"})

    facts = node_of(make_pod(gpus=1, spec=selecting), node)

    assert facts.verdict.reason == "GPU type does not match"
    assert facts.verdict.detail.startswith(
        "accelerator=nvidia-tesla-v100 wanted, has nvidia-tesla-t4"
    )


def test_with_counts_trusted_it_is_kube_scheduler_who_counts_gpus() -> None:
    bound = make_pod(name="bound", gpus=3, node_name="node-1")

    facts = node_of(
        make_pod(gpus=6),
        make_node(gpus=8),
        [bound],
        {"extender": {"counts": "trust"}},
    )

    assert facts.scheduler.reason == "Insufficient nvidia.com/gpu"
    assert facts.verdict.feasible
    assert facts.verdict.detail == (
        "asks 6 nvidia.com/gpu: 5 free of 8 (3 requested);"
        " too few by our count, kube-scheduler's is trusted"
    )


def test_the_nominated_node_is_said_to_be_exempt() -> None:
    bound = make_pod(name="bound", gpus=8, node_name="node-1")
    pod = make_pod(gpus=1, status={"nominatedNodeName": "node-1"})

    facts = node_of(pod, make_node(gpus=8), [bound])

    assert facts.verdict.feasible
    assert facts.verdict.detail.endswith("exempt from our count: the nominated node")


def test_a_resource_of_a_device_class_has_no_numbers() -> None:
    snapshot = make_snapshot(
        nodes=[make_node()], device_class_resources=["nvidia.com/gpu"]
    )

    (facts,) = page_of(make_pod(gpus=1), snapshot).nodes

    assert facts.verdict.detail == (
        "nvidia.com/gpu comes from a DeviceClass: not counted here"
    )


def test_each_term_the_total_and_the_priority_are_shown() -> None:
    # u = 3/8: 62.5; 50 + trunc(62 * 0.4) + trunc(50 * 0.3) + 30 = 119
    # u = 0: 50 + 0 + 15 + 30 = 95
    snapshot = make_snapshot(
        nodes=[make_node(name="a", gpus=8), make_node(name="b", gpus=8)],
        pods=[make_pod(name="bound", gpus=3, node_name="b")],
    )

    first, second = page_of(make_pod(gpus=1), snapshot).nodes

    assert (first.name, first.total, first.priority) == ("b", 119, 10)
    assert first.terms == {"utilization": 62.5, "typeMatch": 50.0, "topology": 100.0}
    assert (second.name, second.total, second.priority) == ("a", 95, 0)
    assert not first.failing


def test_nodes_come_best_first_and_refused_ones_by_name() -> None:
    snapshot = make_snapshot(
        nodes=[
            make_node(name="z-small", gpus=1),
            make_node(name="y-cordoned", gpus=8, is_cordoned=True),
            make_node(name="c", gpus=8),
            make_node(name="b", gpus=8),
            make_node(name="a-none"),
        ],
        pods=[make_pod(name="bound", gpus=4, node_name="c")],
    )

    nodes = page_of(make_pod(gpus=2), snapshot).nodes

    assert [n.name for n in nodes] == ["c", "b", "y-cordoned", "a-none", "z-small"]
    assert [n.priority for n in nodes] == [10, 0, None, None, None]


def test_what_is_under_way_counts_in_the_score_alone() -> None:
    assumed = {"node-1": [make_pod_request(6)]}

    facts = node_of(make_pod(gpus=4), make_node(gpus=8), assumed=assumed)

    amounts = facts.amounts["nvidia.com/gpu"]
    assert (amounts.requested, amounts.free, amounts.assumed) == (0, 8, 6)
    assert facts.verdict.feasible
    assert facts.terms["utilization"] == 100.0  # 6 of 8


def test_an_empty_answer_carries_one_text() -> None:
    snapshot = make_snapshot(nodes=[make_node(name="a"), make_node(name="b", gpus=1)])

    page = page_of(make_pod(gpus=2), snapshot, COUNTS_ALONE)

    assert page.wire.shown == "Too few GPUs on the node"
    assert page.wire.reasons == {"Too few GPUs on the node": 2}
    assert [node.verdict.reason for node in page.nodes] == [
        "Node has no GPU",
        "Too few GPUs on the node",
    ]


def test_reasons_of_an_answer_that_passes_nodes_are_counted() -> None:
    names = {"a": 8, "b": 1, "c": 1}
    snapshot = make_snapshot(
        nodes=[make_node(name=name, gpus=gpus) for name, gpus in names.items()]
    )

    wire = page_of(make_pod(gpus=2), snapshot, COUNTS_ALONE).wire

    assert (wire.asked, wire.offered, wire.passed, wire.shown) == (True, 3, 1, "")
    assert wire.reasons == {"Too few GPUs on the node": 2}


def test_a_shortlist_is_shown_node_by_node() -> None:
    nodes = [make_node(name=f"n{number:02}", gpus=8) for number in range(17)]
    short = replace(options(), shortlist=16)
    subject = read_subject(make_pod(gpus=1), short)

    page = build_page(explain(subject, make_snapshot(nodes=nodes), short), ALL_NODES)

    assert [node.shortlisted for node in page.nodes] == [True] * 16 + [False]
    assert (page.wire.passed, page.wire.reasons) == (16, {})
    assert page.nodes[-1].priority is None
    assert any("best 16 feasible nodes" in note for note in page.notes)


WHOLE = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
PART = {"accelerator": "nvidia-l4", "nvidia.com/gpu.memory": "6144"}
SHARED = {
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-SHARED",
    "nvidia.com/gpu.replicas": "4",
    "nvidia.com/gpu.sharing-strategy": "time-slicing",
}


@pytest.mark.parametrize(
    ("gpu_requirements", "labels", "reason", "detail"),
    [
        pytest.param(
            GpuRequirements(types=("H100", "L4"), excluded=("V100",)),
            WHOLE,
            "GPU type does not match",
            "H100 or L4, not V100, whole cards wanted, the node has A100-SXM4-80GB",
            id="another model",
        ),
        pytest.param(
            GpuRequirements(types=("H100",)),
            {},
            "GPU type unknown",
            "H100, whole cards wanted, the node has cards of an unknown model",
            id="unknown model",
        ),
        pytest.param(
            GpuRequirements(min_memory=96 * 2**30),
            WHOLE,
            "Too little GPU memory",
            "at least 96Gi of memory, whole cards wanted,"
            " the node has A100-SXM4-80GB, nvidia.com/gpu with 80Gi",
            id="small model",
        ),
        pytest.param(
            GpuRequirements(min_memory=96 * 2**30),
            {},
            "GPU type unknown",
            "at least 96Gi of memory, whole cards wanted,"
            " the node has cards of an unknown model, nvidia.com/gpu with"
            " memory unknown",
            id="unknown memory",
        ),
        pytest.param(
            GpuRequirements(min_memory=40 * 2**30, is_sharing_allowed=True),
            SHARED,
            "Too little GPU memory",
            "at least 40Gi of memory wanted, the node has A100-SXM4-80GB,"
            " shared by 4, nvidia.com/gpu with 20Gi",
            id="shares of a card",
        ),
        pytest.param(
            GpuRequirements(types=("L4",)),
            PART,
            "GPU type does not match",
            "L4, whole cards wanted, the node has L4, parts of a card of 6Gi",
            id="a part of a card",
        ),
        pytest.param(
            GpuRequirements(min_memory=20 * 2**30, is_sharing_allowed=True),
            PART,
            "Too little GPU memory",
            "at least 20Gi of memory wanted, the node has L4, parts of a card,"
            " nvidia.com/gpu with 6Gi",
            id="memory of a part",
        ),
        pytest.param(
            UNREADABLE,
            WHOLE,
            "GPU type does not match",
            "an annotation of the pod cannot be read",
            id="unreadable annotation",
        ),
        pytest.param(
            GpuRequirements(is_exclusive=True),
            WHOLE,
            "GPUs are not shared with this pod",
            "wants no other GPU pod on the node: it has 1",
            id="wants to be alone",
        ),
    ],
)
def test_what_is_wanted_of_the_gpus_is_shown_beside_what_they_are(
    gpu_requirements: GpuRequirements, labels: dict[str, str], reason: str, detail: str
) -> None:
    verb_options = options()
    snapshot = make_snapshot(
        nodes=[make_node(gpus=8, labels=labels)],
        pods=[make_pod(name="bound", gpus=1, node_name="node-1")],
    )
    subject = read_subject(make_pod(gpus=1), verb_options)
    wanting = replace(
        subject,
        pod_request=replace(subject.pod_request, gpu_requirements=gpu_requirements),
    )

    page = build_page(explain(wanting, snapshot, verb_options), ALL_NODES)

    (facts,) = page.nodes
    assert (facts.verdict.reason, facts.verdict.detail) == (reason, detail)
    assert page.pod.demand is not None
    assert page.pod.demand.types == gpu_requirements.types


@pytest.mark.parametrize(
    ("gpu_requirements", "selector", "detail"),
    [
        pytest.param(
            GpuRequirements(types=("H100",)),
            {},
            "H100 wanted, the node has A100-SXM4-80GB",
            id="of a type",
        ),
        pytest.param(
            GpuRequirements(is_exclusive=True),
            {"accelerator": "h100"},
            "accelerator=h100 wanted, has no such label",
            id="alone, and of a label",
        ),
    ],
)
def test_a_pod_that_asks_a_slice_is_not_said_to_want_whole_gpus(
    gpu_requirements: GpuRequirements, selector: dict[str, str], detail: str
) -> None:
    verb_options = options()
    node = make_node(resources={SLICE: "7"}, labels=WHOLE)
    pod = make_pod(requests={SLICE: "1"}, spec={"nodeSelector": selector})
    subject = read_subject(pod, verb_options)
    wanting = replace(
        subject,
        pod_request=replace(subject.pod_request, gpu_requirements=gpu_requirements),
    )

    page = build_page(
        explain(wanting, make_snapshot(nodes=[node]), verb_options), ALL_NODES
    )

    (facts,) = page.nodes
    assert facts.verdict.reason == "GPU type does not match"
    assert facts.verdict.detail == detail


@pytest.mark.parametrize(
    ("size", "text"),
    [
        pytest.param(Bounds(2**30, 2**30), "1Gi", id="known"),
        pytest.param(Bounds(2**30, 2**31), "1Gi to 2Gi", id="between two"),
        pytest.param(Bounds(2**30), "at least 1Gi", id="open above"),
        pytest.param(Bounds(), "memory unknown", id="unknown"),
    ],
)
def test_memory_is_shown_as_far_as_it_is_known(size: Bounds, text: str) -> None:
    assert show_size(size) == text


def test_slices_are_told_from_gpus() -> None:
    assert show_gpus(NodeGpus("A100", profile="1g.10gb")) == "A100, cut into 1g.10gb"


@pytest.mark.parametrize(
    ("pod", "node", "note"),
    [
        pytest.param({}, {"gpus": 8}, "asks for nothing that is managed", id="no GPU"),
        pytest.param(
            {"gpus": 1},
            {"gpus": 8, "is_cordoned": True},
            "No node passes kube-scheduler's own checks",
            id="nothing is offered",
        ),
        pytest.param(
            {"gpus": 1, "node_name": "node-1"},
            {"gpus": 8},
            "has a node already, node-1",
            id="bound",
        ),
    ],
)
def test_a_note_says_what_is_special(
    pod: dict[str, Any], node: dict[str, Any], note: str
) -> None:
    page = page_of(make_pod(**pod), make_snapshot(nodes=[make_node(**node)]))

    assert any(note in said for said in page.notes)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"schedulerName": "other"}, id="another scheduler's"),
        pytest.param({"schedulingGates": [{"name": "x"}]}, id="gated once"),
    ],
)
def test_nothing_keeps_a_pod_that_has_a_node_from_one(spec: dict[str, Any]) -> None:
    of_a_pod = {
        node_name: subject_of_record(
            make_pod_record(make_pod(gpus=1, node_name=node_name, spec=spec)), options()
        )
        for node_name in ("", "node-1")
    }

    assert of_a_pod[""].obstacles
    assert not of_a_pod["node-1"].obstacles


def test_from_a_hundred_nodes_on_kube_scheduler_takes_a_sample() -> None:
    nodes = [make_node(name=f"n{number:03}", gpus=8) for number in range(100)]

    page = page_of(make_pod(gpus=1), make_snapshot(nodes=nodes))

    assert any("a sample of these 100 nodes" in note for note in page.notes)


def test_a_cluster_without_nodes_is_explained() -> None:
    page = page_of(make_pod(gpus=1), make_snapshot())

    assert (page.nodes, page.wire.asked) == ((), False)


@pytest.mark.parametrize(
    ("page", "names", "next_offset"),
    [
        pytest.param(PageQuery(), ["a", "b", "c"], None, id="all"),
        pytest.param(PageQuery(limit=2), ["a", "b"], 2, id="the first two"),
        pytest.param(PageQuery(offset=2, limit=2), ["c"], None, id="the rest"),
        pytest.param(PageQuery(offset=9, limit=2), [], None, id="past the end"),
        pytest.param(PageQuery(node="b"), ["b"], None, id="one node"),
        pytest.param(PageQuery(node="ghost"), [], None, id="a node that is not there"),
    ],
)
def test_nodes_come_in_pages(
    page: PageQuery, names: list[str], next_offset: int | None
) -> None:
    snapshot = make_snapshot(nodes=[make_node(name=n, gpus=8) for n in "abc"])

    shown = page_of(make_pod(gpus=1), snapshot, page=page)

    assert [node.name for node in shown.nodes] == names
    assert shown.next_offset == next_offset
    assert shown.wire.offered == 3


def test_given_names_are_what_is_offered_unknown_ones_among_them() -> None:
    verb_options = options()
    snapshot = make_snapshot(nodes=[make_node(name="a", gpus=8, is_cordoned=True)])
    subject = read_subject(make_pod(gpus=1), verb_options)

    page = build_page(
        explain(subject, snapshot, verb_options, names=["ghost", "a"]), ALL_NODES
    )

    known, ghost = page.nodes
    assert (known.name, known.priority) == ("a", 10)
    assert ghost.verdict.reason == "Node is not known to gpu-extender"
    assert ghost.verdict.detail == "the cache has no node of this name"


def test_a_pending_pod_of_the_cache_is_explained_by_what_is_kept_of_it() -> None:
    pending = make_pod(
        name="p", gpus=2, cpu="8", spec={"nodeSelector": {"accelerator": "t4"}}
    )
    labels = {"accelerator": "t4"}
    snapshot = make_snapshot(
        nodes=[make_node(name="a", gpus=8), make_node(name="b", gpus=8, labels=labels)],
        pods=[pending],
    )
    verb_options = options()

    subject = find_subject(snapshot, "default", "p", verb_options)

    assert subject is not None
    given = read_subject(pending, verb_options)
    assert (subject.pod_request, subject.request) == (given.pod_request, given.request)
    page = build_page(explain(subject, snapshot, verb_options), ALL_NODES)
    assert page.pod.origin == "pending"
    assert [(node.name, node.offered) for node in page.nodes] == [
        ("b", True),
        ("a", False),
    ]


def test_a_pod_of_the_cache_whose_annotation_cannot_be_read_says_so() -> None:
    pod = make_pod(name="p", gpus=2, annotations={"gpu-extender.io/gpu-type": "H100,,"})
    snapshot = make_snapshot(nodes=[make_node(gpus=8)], pods=[pod])

    subject = find_subject(snapshot, "default", "p", options())

    assert subject is not None
    (obstacle,) = subject.obstacles
    assert obstacle.reason_class == "annotation"
    assert obstacle.text.startswith(
        "The pod will not be scheduled: annotation gpu-extender.io/gpu-type: wanted"
    )
    assert obstacle == read_subject(pod, options()).obstacles[0]


def test_an_explanation_ends_at_its_deadline() -> None:
    verb_options = options()
    subject = read_subject(make_pod(gpus=1), verb_options)
    snapshot = make_snapshot(nodes=[make_node(gpus=8)])

    with pytest.raises(DeadlineError):
        explain(subject, snapshot, verb_options, deadline=Deadline(0.0))


def test_a_page_of_an_explanation_ends_at_its_deadline() -> None:
    verb_options = options()
    subject = read_subject(make_pod(gpus=1), verb_options)
    snapshot = make_snapshot(nodes=[make_node(gpus=8)])
    explanation = explain(subject, snapshot, verb_options)

    with pytest.raises(DeadlineError):
        build_page(explanation, deadline=Deadline(0.0))


def test_a_pod_that_asks_too_many_resources_is_not_explained() -> None:
    many = {f"nvidia.com/x{number}": "1" for number in range(MAX_RESOURCES)}
    pod = make_pod(name="p", requests=many)
    snapshot = make_snapshot(nodes=[make_node(gpus=8)], pods=[pod])
    wanted = f"wanted at most {MAX_RESOURCES} resources, got {MAX_RESOURCES + 1}"

    with pytest.raises(WireError, match=wanted):  # one of them is its place
        read_subject(pod, options())
    with pytest.raises(WireError, match=wanted):
        find_subject(snapshot, "default", "p", options())


def test_of_many_labels_that_are_missed_the_first_are_listed() -> None:
    wanted = {f"k{number:02}": "v" for number in range(13)}
    pod = make_pod(gpus=1, spec={"nodeSelector": wanted})

    detail = node_of(pod, make_node(gpus=8)).scheduler.detail

    assert detail.startswith("k00=v wanted, has no such label; k01=v wanted")
    assert detail.endswith("k09=v wanted, has no such label; and 3 more")


def test_a_bound_pod_does_not_count_against_itself() -> None:
    snapshot = make_snapshot(
        nodes=[make_node(gpus=8)],
        pods=[make_pod(name="p", gpus=8, node_name="node-1")],
    )
    verb_options = options()

    subject = find_subject(snapshot, "default", "p", verb_options)

    assert subject is not None
    (facts,) = build_page(explain(subject, snapshot, verb_options), ALL_NODES).nodes
    assert subject.origin == "bound"
    assert facts.amounts["nvidia.com/gpu"].free == 8
    assert facts.scheduler.passes
    assert facts.verdict.feasible


@pytest.mark.parametrize(
    ("namespace", "name"),
    [
        pytest.param("default", "ghost", id="another name"),
        pytest.param("other", "p", id="another namespace"),
        pytest.param("default", "no-gpu", id="a pod without GPUs"),
    ],
)
def test_other_pods_are_not_found(namespace: str, name: str) -> None:
    pods = [
        make_pod(name="p", gpus=8, node_name="node-1"),
        make_pod(name="q", gpus=1),
        make_pod(name="no-gpu", cpu="1"),
    ]
    snapshot = make_snapshot(nodes=[make_node(gpus=8)], pods=pods)

    assert find_subject(snapshot, namespace, name, options()) is None


def test_every_verdict_has_its_numbers() -> None:
    assert set(DETAILS) == set(Verdict)


@pytest.mark.parametrize(
    ("nominated", "own", "reason"),
    [
        pytest.param({}, 0, "Insufficient cpu", id="equal"),
        pytest.param({"priority": 9}, 5, "Insufficient cpu", id="higher"),
        pytest.param({"priority": 4}, 5, None, id="lower: it would be preempted"),
        pytest.param({"node": ""}, 0, None, id="not nominated"),
        pytest.param({"node": "b"}, 0, None, id="to another node"),
        pytest.param({"node": "ghost"}, 0, None, id="to a node that is gone"),
        pytest.param({"uid": "me"}, 0, None, id="the pod itself"),
    ],
)
def test_room_that_kube_scheduler_keeps_for_another_pod_is_counted(
    nominated: dict[str, Any], own: int, reason: str | None
) -> None:
    waiting = make_pod(
        name="victim",
        uid=nominated.get("uid", "other"),
        gpus=1,
        cpu="6",
        spec={"priority": nominated.get("priority", 0)},
        status={"nominatedNodeName": nominated.get("node", "a")},
    )
    pod = make_pod(uid="me", gpus=1, cpu="4", spec={"priority": own})
    nodes = [make_node(name=name, gpus=4, cpu="8") for name in ("a", "b")]
    snapshot = make_snapshot(nodes=nodes, pods=[waiting])

    rows = page_of(pod, snapshot).nodes

    reasons = {row.name: row.scheduler.reason for row in rows}
    assert reasons["a"] == reason


def test_gpus_that_are_kept_for_another_pod_are_counted_in_a_dump() -> None:
    waiting = make_pod(name="first", gpus=3, status={"nominatedNodeName": "kept"})
    nodes = [make_node(name=name, gpus=4) for name in ("kept", "free")]
    snapshot = make_snapshot(nodes=nodes, pods=[waiting])

    rows = {row.name: row for row in page_of(make_pod(gpus=2), snapshot).nodes}

    assert rows["kept"].scheduler.reason == f"Insufficient {GPU}"
    assert rows["kept"].verdict.feasible
    assert rows["free"].scheduler.passes


@pytest.mark.parametrize(
    ("resource", "asked", "has"),
    [
        pytest.param("rdma/shared_mlx5", "1", None, id="RDMA that the node lacks"),
        pytest.param("vpc.amazonaws.com/efa", "4", "1", id="too few EFA devices"),
        pytest.param("intel.com/sriov_nic", "1", "0", id="a NIC that is not healthy"),
        pytest.param("hugepages-2Mi", "1Gi", "512Mi", id="huge pages"),
        pytest.param("ephemeral-storage", "9Gi", "8Gi", id="disk"),
        pytest.param("example.com/fpga", "1", None, id="another device"),
        pytest.param("habana.ai/gaudi", "1", None, id="an accelerator of others"),
        pytest.param(
            "kubernetes.io/batch-cpu", "4k", "2k", id="amounts of Koordinator"
        ),
    ],
)
def test_every_resource_that_a_pod_asks_counts(
    resource: str, asked: str, has: str | None
) -> None:
    more = {} if has is None else {resource: has}
    pods = [
        make_pod(requests={SLICE: "1", resource: amount}) for amount in (asked, "0")
    ]
    lacking = make_node(name="a", resources={SLICE: "14", **more})
    richer = make_node(name="b", resources={GPU: "2", resource: "100Gi"})
    snapshot = make_snapshot(nodes=[lacking, richer])

    (row, _), (other_row, _) = (page_of(pod, snapshot).nodes for pod in pods)

    assert (row.name, row.scheduler.reason) == ("a", f"Insufficient {resource}")
    assert not row.offered
    assert other_row.scheduler.passes


def test_what_is_taken_of_any_resource_is_no_longer_free() -> None:
    rdma = "rdma/shared_mlx5"
    node = make_node(name="a", gpus=4, resources={rdma: "3"})
    holder = make_pod(name="holder", requests={rdma: "2"}, node_name="a")
    pod = make_pod(gpus=1, requests={rdma: "2"})

    row = node_of(pod, node, [holder])

    assert row.scheduler.reason == f"Insufficient {rdma}"
    assert "1 free of 3" in row.scheduler.detail
