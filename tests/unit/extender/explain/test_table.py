from dataclasses import replace

import msgspec
import pytest

from extender.explain.explain import Explanation, explain
from extender.explain.page import ALL_NODES, build_page
from extender.explain.pod import find_subject, read_subject
from extender.explain.scheduler_checks import check_nodes
from extender.explain.summary import Group
from extender.explain.summary_text import render_summary
from extender.explain.table import render, render_narrow
from extender.verbs.verbs import NOTHING_ASSUMED, Assumed
from scoring.gpu.requirements import GpuRequirements
from scoring.snapshot import Snapshot
from service.runtime import build_verb_options
from tests.builders import Tree, make_node, make_pod, make_pod_request, make_snapshot
from tests.extender_app import make_settings

TERMS = (
    "utilization",
    "typeMatch",
    "topology",
    "domain",
    "fragmentation",
    "scarcity",
    "mig",
)
OPTIONS = build_verb_options(make_settings())


def explained(
    pod: Tree,
    snapshot: Snapshot,
    gpu_requirements: GpuRequirements | None = None,
    assumed: Assumed = NOTHING_ASSUMED,
) -> Explanation:
    subject = read_subject(pod, OPTIONS)
    if gpu_requirements is not None:
        subject = replace(
            subject,
            pod_request=replace(subject.pod_request, gpu_requirements=gpu_requirements),
        )
    return explain(subject, snapshot, OPTIONS, assumed)


def lines(explanation: Explanation) -> list[str]:
    return render(build_page(explanation, ALL_NODES)).splitlines()


def test_the_order_of_types_is_a_column_of_its_own() -> None:
    nodes = [
        make_node(name=name, gpus=8, labels={"nvidia.com/gpu.product": product})
        for name, product in (("a", "Tesla-T4"), ("b", "NVIDIA-L4"))
    ]
    gpu_requirements = GpuRequirements(types=("L4", "T4"))

    printed = lines(
        explained(make_pod(gpus=1), make_snapshot(nodes=nodes), gpu_requirements)
    )

    head, first, second = (line.split() for line in printed[1:4])
    tier = head.index("TIER")
    assert (first[0], first[tier]) == ("b", "0")
    assert (second[0], second[tier]) == ("a", "1")


@pytest.mark.parametrize(
    ("weights", "tables"),
    [
        pytest.param({"utilization": 40, "typeMatch": 30, "topology": 30}, 1, id="few"),
        pytest.param(dict.fromkeys(TERMS, 1000), 2, id="all"),
    ],
)
def test_the_best_nodes_have_every_figure_however_long_their_names(
    weights: dict[str, int], tables: int
) -> None:
    names = [f"gpu-pool-{'x' * 80}-eu-central-1a-{number}" for number in range(2)]
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    nodes = [make_node(name=name, gpus=8, labels=labels) for name in names]
    settings = make_settings({"scoring": {"weights": weights, "normalize": "rank"}})
    options = build_verb_options(settings)
    found = explain(
        read_subject(make_pod(gpus=1), options), make_snapshot(nodes=nodes), options
    )

    printed = render_summary(build_page(found, ALL_NODES)).splitlines()

    assert max(map(len, printed)) <= 100
    heads = [n for n, line in enumerate(printed) if line.startswith("BEST")]
    assert len(heads) == tables
    told: dict[str, str] = {}
    for head in heads:
        for row in printed[head + 1 : head + 3]:
            name, *cells = row.split()
            assert name.startswith("gpu-pool-x")
            assert name.endswith(("1a-0", "1a-1"))
            told.update(zip(printed[head].split()[1:], cells, strict=True))
    assert told.keys() == {
        "TYPE",
        "SCORE",
        *(f"{name}({weight})" for name, weight in weights.items()),
    }


def test_a_long_name_lacks_its_middle_in_every_list() -> None:
    name = f"gpu-pool-{'x' * 80}-eu-central-1a-7"
    page = build_page(
        explained(
            make_pod(gpus=9), make_snapshot(nodes=[make_node(name=name, gpus=8)])
        ),
        ALL_NODES,
    )

    short = "gpu-pool-xxxxxxxxxx...xx-eu-central-1a-7"
    assert any(line.startswith(short) for line in render_summary(page).splitlines())
    assert any(line.startswith(short) for line in render_narrow(page).splitlines())


def test_a_node_where_pods_failed_lately_says_so() -> None:
    snapshot = make_snapshot(nodes=[make_node(gpus=8)])
    failing = snapshot.schedulable  # the same node, the same shape: True

    printed = lines(explained(make_pod(gpus=1), replace(snapshot, failing=failing)))

    assert printed[2].endswith("; pods failed here lately: takes no part in scores")


def test_what_is_under_way_is_said_of_its_node() -> None:
    snapshot = make_snapshot(nodes=[make_node(gpus=8)])
    assumed = {"node-1": [make_pod_request(3)]}

    printed = lines(explained(make_pod(gpus=1), snapshot, assumed=assumed))

    assert printed[2].endswith("; 3 nvidia.com/gpu under way to it")


def test_a_node_that_the_shortlist_leaves_out_says_so() -> None:
    nodes = [make_node(name=f"n{number}", gpus=8) for number in range(3)]
    options = replace(OPTIONS, shortlist=1)
    subject = read_subject(make_pod(gpus=1), options)

    printed = lines(explain(subject, make_snapshot(nodes=nodes), options))

    assert [line.endswith("; not on the shortlist") for line in printed[2:5]] == [
        False,
        True,
        True,
    ]


def test_a_pod_that_asks_for_nothing_has_no_scores() -> None:
    printed = lines(explained(make_pod(), make_snapshot(nodes=[make_node(gpus=8)])))

    assert printed[2].split()[:9] == [
        "node-1",
        *("-", "ok", "ok", "-", "-", "-", "-", "0"),
    ]


def test_a_pod_that_wants_to_be_alone_keeps_others_off() -> None:
    alone = make_pod(
        name="alone",
        gpus=1,
        node_name="node-1",
        annotations={"gpu-extender.io/exclusive": "true"},
    )
    snapshot = make_snapshot(nodes=[make_node(gpus=8)], pods=[alone])

    (node,) = build_page(explained(make_pod(gpus=1), snapshot), ALL_NODES).nodes

    assert node.verdict.reason == "GPUs are not shared with this pod"
    assert node.verdict.detail == "a pod on the node wants no other GPU pod there"


def test_a_node_that_the_pod_names_is_the_only_one() -> None:
    snapshot = make_snapshot(nodes=[make_node(gpus=8)])
    subject = read_subject(make_pod(gpus=1), OPTIONS)
    elsewhere = msgspec.structs.replace(subject.constraints, node_name="elsewhere")

    checks = check_nodes(
        snapshot,
        snapshot.nodes.order.astype("intp"),
        subject.pod_request,
        elsewhere,
        OPTIONS.label_keys,
    )

    assert checks.reason(0) == "node(s) didn't match the requested node name"
    assert checks.detail(0) == "the pod names the node elsewhere"


def test_a_pending_pod_with_gates_says_so() -> None:
    gated = make_pod(name="p", gpus=1, spec={"schedulingGates": [{"name": "g"}]})
    snapshot = make_snapshot(nodes=[make_node(gpus=8)], pods=[gated])

    subject = find_subject(snapshot, "default", "p", OPTIONS)

    assert subject is not None
    (obstacle,) = subject.obstacles
    assert obstacle.text.startswith("Scheduling gates hold the pod")


@pytest.mark.parametrize(
    ("count", "last"),
    [
        pytest.param(8, "1 reason 7 ours", id="as many as are shown"),
        pytest.param(9, "1 reason 8 ours", id="one more is shown, too"),
        pytest.param(10, "2 2 other pairs of reasons", id="two more are counted"),
    ],
)
def test_pairs_of_reasons_beyond_eight_are_counted(count: int, last: str) -> None:
    page = build_page(explained(make_pod(gpus=9), make_snapshot(nodes=[make_node()])))
    groups = tuple(Group(1, f"reason {number}", "ours") for number in range(count))
    assert page.summary is not None
    summary = msgspec.structs.replace(page.summary, groups=groups)

    printed = render_summary(msgspec.structs.replace(page, summary=summary))

    head, _, rest = printed.partition("\nNODES  ")[2].partition("\nAs kube-scheduler")
    assert rest
    assert head.splitlines()[-1].split() == last.split()


def test_nothing_that_a_terminal_would_obey_is_printed() -> None:
    labels = {"nvidia.com/gpu.product": "a\x1b]0;b\x07"}
    snapshot = make_snapshot(nodes=[make_node(gpus=8, labels=labels)])
    pod = make_pod(name="x\n\x1b[31my", gpus=1)

    printed = lines(explained(pod, snapshot))

    summary = render_summary(build_page(explained(pod, snapshot))).splitlines()
    assert all(line.isprintable() for line in printed + summary)
    assert r"default/x\n\x1b[31my asks 1 nvidia.com/gpu" in "\n".join(summary)
