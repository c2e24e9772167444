"""Summaries of any pod on any cluster: every node counts once, and what helps helps."""

from pathlib import Path
from typing import Any, Final

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.ledger.writer import SnapshotCell
from extender.explain.explain import explain
from extender.explain.page import build_page
from extender.explain.pending import PendingClass, PendingClasses, classify
from extender.explain.pod import (
    Admit,
    read_subject,
    read_subjects,
    subject_of_record,
)
from extender.explain.scheduler_checks import _number_columns
from extender.explain.summary import Summary, summarize
from extender.explain.summary_text import MAX_LINES, render_summary
from extender.explain.table import WIDTH
from extender.explain.templates import templates_in
from scoring.snapshot import Snapshot
from service.runtime import build_verb_options
from service.submission import preview_by
from service.webhook import Uncounted, Webhook
from tests.builders import (
    GPU,
    Tree,
    make_container,
    make_node,
    make_pod,
    make_pod_record,
    make_snapshot,
)
from tests.extender_app import make_settings
from tests.pending_pods import EXCLUSIVE, MEMORY, TYPE, carry_out

# Actions that somebody has to wait for, or that end outside of pod and nodes.
NOT_CARRIED_OUT: Final = frozenset({"wait", "label", "nodeReady", "gpusReady"})
ALL_OPTIONS: Final = [
    build_verb_options(make_settings({"extender": {"counts": counts}}))
    for counts in ("enforce", "trust")
]
TAINT: Final = {"key": "team", "value": "a", "effect": "NoSchedule"}

products = st.sampled_from(
    [None, "Tesla-T4", "NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-SXM4-40GB-SHARED"]
)
shapes = st.fixed_dictionaries(
    {
        "gpus": st.sampled_from([None, 0, 1, 4, 8]),
        "cpu": st.sampled_from(["2", "16", "64"]),
        "memory": st.sampled_from(["4Gi", "256Gi"]),
        "pods": st.sampled_from(["1", "110"]),
        "taints": st.sampled_from([[], [], [TAINT]]),
        "is_cordoned": st.sampled_from([False, False, True]),
        "is_ready": st.sampled_from([True, True, True, False]),
        "product": products,
        "zone": st.sampled_from(["a", "b", None]),
        "accelerator": st.sampled_from(["t4", "a100", None]),
        "upgrade": st.sampled_from([None, None, "failed"]),
        "in_use": st.sampled_from([0, 0, 1, 3]),
        "is_exclusive": st.booleans(),
    }
)
wishes = st.fixed_dictionaries(
    {
        "gpus": st.integers(1, 9),
        "cpu": st.sampled_from([None, "1", "12", "70"]),
        "memory": st.sampled_from([None, "1Gi", "8Gi"]),
        "type": st.sampled_from([None, None, "T4", "A100", "A100-80", "B200"]),
        "min_memory": st.sampled_from([None, None, "20Gi", "60Gi"]),
        "is_exclusive": st.sampled_from([False, False, True]),
        "selector": st.sampled_from(
            [
                {},
                {},
                {"zone": "a"},
                {"accelerator": "a100"},
                {"zone": "c"},
                {"zone": "a", "accelerator": "a100"},
            ]
        ),
        "affinity": st.sampled_from([None, None, None, "a", "c"]),
        "overhead": st.sampled_from([{}, {}, {"cpu": "3", "memory": "2Gi"}]),
        "other": st.sampled_from([{}, {"cpu": "500m"}, {"cpu": "9"}, {GPU: "1"}]),
        "init": st.sampled_from([{}, {"cpu": "40"}, {GPU: "5"}]),
        "is_sidecar": st.booleans(),
    }
)


def node_of(number: int, shape: dict[str, Any]) -> Tree:
    labels = {
        "nvidia.com/gpu.product": shape["product"],
        "zone": shape["zone"],
        "accelerator": shape["accelerator"],
        "nvidia.com/gpu-driver-upgrade-state": shape["upgrade"],
    }
    kept = ("gpus", "cpu", "memory", "pods", "taints", "is_cordoned", "is_ready")
    return make_node(
        name=f"n{number}",
        labels={key: value for key, value in labels.items() if value},
        **{key: shape[key] for key in kept},
    )


def bound_to(number: int, shape: dict[str, Any]) -> list[Tree]:
    if not shape["in_use"]:
        return []
    exclusive = {EXCLUSIVE: "true"} if shape["is_exclusive"] else {}
    return [
        make_pod(
            name=f"p{number}",
            gpus=shape["in_use"],
            cpu="2",
            node_name=f"n{number}",
            annotations=exclusive,
        )
    ]


def in_zone(zone: str) -> Tree:
    wanted = [{"key": "zone", "operator": "In", "values": [zone]}]
    terms = {"nodeSelectorTerms": [{"matchExpressions": wanted}]}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"nodeAffinity": {required: terms}}


def pod_of(wish: dict[str, Any]) -> Tree:
    annotations = {
        TYPE: wish["type"],
        MEMORY: wish["min_memory"],
        EXCLUSIVE: "true" if wish["is_exclusive"] else None,
    }
    pod = make_pod(
        name="asking",
        gpus=wish["gpus"],
        cpu=wish["cpu"],
        memory=wish["memory"],
        annotations={key: value for key, value in annotations.items() if value},
        init_containers=[
            make_container(
                name="init",
                requests=wish["init"],
                limits=wish["init"],
                is_sidecar=wish["is_sidecar"],
            )
        ],
        spec={
            "nodeSelector": dict(wish["selector"]),
            "overhead": dict(wish["overhead"]),
            **({"affinity": in_zone(wish["affinity"])} if wish["affinity"] else {}),
        },
    )
    other = make_container(name="other", requests=wish["other"], limits=wish["other"])
    pod["spec"]["containers"].append(other)
    return pod


@settings(max_examples=500)
@given(st.lists(shapes, max_size=5), wishes, st.sampled_from(ALL_OPTIONS))
def test_every_node_counts_once_and_what_would_help_does(
    drawn: list[dict[str, Any]], wish: dict[str, Any], options: Any
) -> None:
    nodes = [node_of(number, shape) for number, shape in enumerate(drawn)]
    bound = [pod for n, shape in enumerate(drawn) for pod in bound_to(n, shape)]
    pod = pod_of(wish)

    def summarized(asking: Tree, snapshot: Snapshot) -> tuple[Summary, set[str]]:
        explanation = explain(read_subject(asking, options), snapshot, options)
        takes = explanation.offered & explanation.result.feasible
        names = explanation.verb_call.names
        return summarize(explanation), {names[i] for i in takes.nonzero()[0].tolist()}

    snapshot = make_snapshot(nodes=nodes, pods=bound)
    summary, taking = summarized(pod, snapshot)

    assert summary.fits == bool(taking)
    assert sum(reason.node_count for reason in summary.reasons) == (
        len(nodes) - len(taking)
    )
    assert sum(group.node_count for group in summary.groups) == len(nodes)
    page = build_page(explain(read_subject(pod, options), snapshot, options))
    lines = render_summary(page).splitlines()
    assert len(lines) <= MAX_LINES
    assert all(len(line) <= WIDTH for line in lines)
    for remedy in summary.remedies:
        if remedy.action in NOT_CARRIED_OUT or not remedy.node_count:
            continue
        if remedy.text.startswith("write "):  # has it, and may be full
            continue
        if "*" in remedy.containers.values():  # how is up to the author
            continue
        changed, after = carry_out(remedy, pod, nodes)
        _, then = summarized(changed, make_snapshot(nodes=after, pods=bound))
        assert remedy.node in then, remedy
        is_of_one = remedy.action in {"uncordon", "labelNode"}
        assert len(then) >= (1 if is_of_one else remedy.node_count)


NO_WISH: Final[dict[str, Any]] = {
    "cpu": None,
    "memory": None,
    "is_exclusive": False,
    "selector": {},
    "affinity": None,
    "overhead": {},
    "other": {},
    "init": {},
    "is_sidecar": False,
}
LARGE: Final[dict[str, Any]] = {
    "cpu": "64",
    "memory": "256Gi",
    "pods": "110",
    "is_cordoned": False,
    "is_ready": True,
    "upgrade": None,
    "in_use": 0,
    "is_exclusive": False,
}

# As a pod's author may have written them beside the wishes, or instead.
gpu_conditions = st.sampled_from(
    [
        ("nvidia.com/gpu.product", "In", ["NVIDIA-A100-SXM4-80GB"]),
        ("nvidia.com/gpu.product", "In", ["Tesla-T4", "NVIDIA-L4"]),
        ("nvidia.com/gpu.product", "In", ["NVIDIA-H100-80GB-HBM3"]),
        ("nvidia.com/gpu.product", "NotIn", ["Tesla-T4"]),
        ("nvidia.com/gpu.product", "Exists", []),
        ("nvidia.com/gpu.memory", "NotIn", ["15360"]),
        ("nvidia.com/gpu.memory", "Gt", ["20000"]),
        ("accelerator", "In", ["a100"]),
        ("accelerator", "DoesNotExist", []),
        ("zone", "In", ["a"]),
    ]
)
# Little else keeps such pods from such nodes: what a node fails is its type.
gpu_wishes = st.fixed_dictionaries(
    {
        "gpus": st.integers(1, 2),
        "type": st.sampled_from([None, "T4", "A100", "B200"]),
        "min_memory": st.sampled_from([None, None, "20Gi", "60Gi"]),
    }
).map(lambda drawn: {**NO_WISH, **drawn})
gpu_shapes = st.fixed_dictionaries(
    {
        "product": products,
        "accelerator": st.sampled_from(["t4", "a100", None]),
        "zone": st.sampled_from(["a", "b", None]),
        "taints": st.sampled_from([[], [], [TAINT]]),
        "gpus": st.sampled_from([0, 2, 8]),
    }
).map(lambda drawn: {**LARGE, **drawn})
gpu_terms = st.lists(st.lists(gpu_conditions, max_size=2), min_size=1, max_size=2)
memories = st.sampled_from([None, None, "15360", "81251", "20000"])


def with_affinity(pod: Tree, terms: list[list[tuple[str, str, list[str]]]]) -> Tree:
    """Return the pod with these terms of required node affinity in place of its own."""
    written = [
        {
            "matchExpressions": [
                {"key": key, "operator": operator, **({"values": v} if v else {})}
                for key, operator, v in term
            ]
        }
        for term in terms
    ]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = {"nodeAffinity": {required: {"nodeSelectorTerms": written}}}
    return {**pod, "spec": {**pod["spec"], "affinity": affinity}}


def admit_on(snapshot: Snapshot) -> Admit:
    """Return what reviews a pod on a cluster, as the webhook does by default."""
    cell = SnapshotCell()
    cell.publish(snapshot)
    webhook = Webhook(cell, make_settings(), Uncounted(), Path())
    return preview_by(webhook.admission.preview)


@settings(max_examples=500)
@given(
    st.lists(st.tuples(gpu_shapes, memories), min_size=1, max_size=5),
    st.lists(st.tuples(gpu_wishes, gpu_terms), min_size=4, max_size=4),
    st.sampled_from(ALL_OPTIONS),
    st.sampled_from(["as it is", "reviewed", "there"]),
)
def test_what_would_help_a_pod_with_affinity_for_gpus_does(
    drawn: list[tuple[dict[str, Any], str | None]],
    asked: list[tuple[dict[str, Any], Any]],
    options: Any,
    whence: str,
) -> None:
    nodes = [node_of(number, shape) for number, (shape, _) in enumerate(drawn)]
    for node, (_, memory) in zip(nodes, drawn, strict=True):
        if memory:
            node["metadata"]["labels"]["nvidia.com/gpu.memory"] = memory

    def summarized(asking: Tree, snapshot: Snapshot) -> tuple[Summary, set[str]]:
        admit = admit_on(snapshot) if whence != "as it is" else None
        (subject,) = read_subjects(asking, options, admit)
        if whence == "there" and admit is not None:
            record = make_pod_record(admit(templates_in(asking)[0]).pod)
            subject = subject_of_record(record, options)
        explanation = explain(subject, snapshot, options)
        takes = explanation.offered & explanation.result.feasible
        names = explanation.verb_call.names
        return summarize(explanation), {names[i] for i in takes.nonzero()[0].tolist()}

    snapshot = make_snapshot(nodes=nodes)
    for wish, terms in asked:
        pod = with_affinity(pod_of(wish), terms)
        summary, _ = summarized(pod, snapshot)
        for remedy in summary.remedies:
            if remedy.action in NOT_CARRIED_OUT or not remedy.node_count:
                continue
            if remedy.text.startswith("write ") or "*" in remedy.containers.values():
                continue
            changed, after = carry_out(remedy, pod, nodes)
            _, then = summarized(changed, make_snapshot(nodes=after))
            assert remedy.node in then, remedy
            is_of_one = remedy.action in {"uncordon", "labelNode"}
            assert len(then) >= (1 if is_of_one else remedy.node_count), remedy


@settings(max_examples=300)
@given(
    st.lists(shapes, max_size=5),
    st.lists(st.tuples(wishes, st.booleans()), max_size=6),
    st.sampled_from(ALL_OPTIONS),
)
def test_each_pending_pod_counts_in_one_class_and_that_is_told_of_it(
    drawn: list[dict[str, Any]], asked: list[tuple[dict[str, Any], bool]], options: Any
) -> None:
    bound = [pod for n, shape in enumerate(drawn) for pod in bound_to(n, shape)]
    asking = []
    for number, (wish, is_gated) in enumerate(asked):
        pod = pod_of(wish)
        pod["metadata"].update(name=f"asking-{number}", uid=f"uid-{number}")
        if is_gated:
            pod["spec"]["schedulingGates"] = [{"name": "g"}]
        asking.append(pod)
    snapshot = make_snapshot(
        nodes=[node_of(number, shape) for number, shape in enumerate(drawn)],
        pods=[*bound, *asking],
    )

    # No round ends early by this clock.
    counts = PendingClasses(lambda: options, busy=lambda: 0.0).count(snapshot)

    assert sum(counts.values()) == len(asking)
    expected = dict.fromkeys(PendingClass, 0)
    for pod, (_, is_gated) in zip(asking, asked, strict=True):
        record = make_pod_record(pod)
        found = classify(record, snapshot, options)
        expected[found] += 1
        summary = summarize(
            explain(subject_of_record(record, options), snapshot, options)
        )
        assert (found is PendingClass.GATED) == is_gated
        assert (found is PendingClass.FITS) == summary.fits
        if found is PendingClass.FULL:
            told = {"full", "exclusive", "gpuLinks"}
            assert told & {name.partition(":")[0] for name in summary.reason_classes}
    assert counts == expected


@given(st.integers(1, 80), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_columns_of_reasons_are_numbered_as_numpy_sorts_them(
    rows: int, columns: int, seed: int
) -> None:
    lots = np.random.default_rng(seed)
    table = lots.random((rows, columns)) < lots.choice([0.02, 0.5])

    first, numbers = _number_columns(table)

    patterns, known = np.unique(table, axis=1, return_inverse=True)
    assert (table[:, first] == patterns).all()
    assert (numbers == known.reshape(-1)).all()
