"""An explanation tells what a pod leaves to those that come next."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from extender.explain.explain import explain
from extender.explain.page import NodeRow, PageQuery, build_page
from extender.explain.pod import read_subject
from extender.explain.summary_text import render_page
from extender.verbs.verbs import NOTHING_ASSUMED, Assumed
from service.runtime import build_verb_options
from tests.builders import (
    GPU,
    Tree,
    make_node,
    make_pod,
    make_pod_request,
    make_snapshot,
)
from tests.extender_app import make_settings

PAGE: Final = Path(__file__).parents[4] / "docs" / "scoring.md"
PRODUCT: Final = "nvidia.com/gpu.product"

# The example of docs/scoring.md.
EXPECTED: Final = [
    {"gpus": 1, "cpuMillicores": 8000, "weight": 3},
    {"gpus": 8, "cpuMillicores": 64000, "weight": 1},
]
NODES: Final = [
    make_node(name=name, gpus=8, cpu="64") for name in ("empty", "half", "last")
]
PODS: Final = [
    make_pod(name="h", gpus=3, cpu="24", node_name="half"),
    make_pod(name="l", gpus=7, cpu="56", node_name="last"),
]


def rows(
    pod: Tree,
    *,
    nodes: Iterable[Tree] = NODES,
    pods: Iterable[Tree] = PODS,
    expected: Iterable[Mapping[str, Any]] = EXPECTED,
    assumed: Assumed = NOTHING_ASSUMED,
) -> dict[str, NodeRow]:
    scoring = {"profile": "packing", "expectedPods": list(expected)}
    options = build_verb_options(make_settings({"scoring": scoring}))
    subject = read_subject(pod, options)
    snapshot = make_snapshot(nodes=nodes, pods=pods)
    page = build_page(explain(subject, snapshot, options, assumed), PageQuery())
    return {row.name: row for row in page.nodes}


def test_the_example_of_the_page() -> None:
    found = rows(make_pod(gpus=1, cpu="8"))

    scores = {name: row.terms["fragmentation"] for name, row in found.items()}
    assert scores == pytest.approx(
        {"empty": 44.43, "half": 50.72, "last": 50.78}, abs=0.005
    )
    assert {name: row.priority for name, row in found.items()} == {
        "empty": 0,
        "half": 4,
        "last": 10,
    }
    details = {name: row.verdict.detail.split("; ")[-1] for name, row in found.items()}
    assert details == {
        "empty": (
            "leaves 7 GPUs and 56 cores, 1.75 GPUs of no use to the pods that come,"
            " 0.00 before, no room then for 8 GPUs with 64 cores (25%) of them"
        ),
        "half": (
            "leaves 4 GPUs and 32 cores, 1.00 GPUs of no use to the pods that come,"
            " 1.25 before"
        ),
        "last": (
            "leaves 0 GPUs and 0 cores, 0.00 GPUs of no use to the pods that come,"
            " 0.25 before"
        ),
    }
    page = PAGE.read_text()
    assert all(text in page for text in (details["empty"], "**50.78**", "**44.43**"))


def test_the_example_of_a_pod_without_gpus() -> None:
    found = rows(make_pod(cpu="60"))

    assert found["empty"].terms["fragmentation"] == pytest.approx(24.92, abs=0.005)
    assert found["empty"].verdict.detail == (
        "asks nothing that is managed; leaves 8 GPUs and 4 cores,"
        " 8.00 GPUs of no use to the pods that come, 0.00 before,"
        " no room then for 1 GPU with 8 cores (75%), 8 GPUs with 64 cores (25%) of them"
    )
    assert "**24.92**" in PAGE.read_text()


def test_the_example_of_a_rare_model() -> None:
    expected: list[dict[str, Any]] = [
        {"gpus": 1, "weight": 3},
        {"gpus": 1, "types": ["H100"], "weight": 1},
    ]
    nodes = [
        make_node(name="t4", gpus=8, labels={PRODUCT: "Tesla-T4"}),
        make_node(name="h100", gpus=2, labels={PRODUCT: "NVIDIA-H100-PCIe"}),
    ]

    found = rows(make_pod(gpus=2), nodes=nodes, pods=(), expected=expected)

    assert {n: row.terms["scarcity"] for n, row in found.items()} == pytest.approx(
        {"t4": 100, "h100": 92.19}, abs=0.005
    )
    said = "insisted on 1.25 times what there is"
    assert found["h100"].verdict.detail.endswith(said)
    assert "insisted" not in found["t4"].verdict.detail
    assert said in PAGE.read_text()
    assert "**92.19**" in PAGE.read_text()


def test_many_kinds_are_counted() -> None:
    expected = [{"gpus": gpus, "weight": 10 - gpus} for gpus in range(4, 9)]

    found = rows(make_pod(gpus=5), expected=expected)

    assert found["empty"].verdict.detail.endswith(
        "no room then for 4 GPUs with 0 cores (30%), 5 GPUs with 0 cores (25%),"
        " 6 GPUs with 0 cores (20%) and 2 more of them"
    )


def test_a_node_that_is_full_by_our_count_is_told() -> None:
    found = rows(make_pod(gpus=1), assumed={"last": (make_pod_request(1),)})

    assert found["last"].verdict.detail.endswith("; does not fit by our count")


def test_a_device_class_tells_nothing() -> None:
    options = build_verb_options(make_settings({"scoring": {"profile": "packing"}}))
    snapshot = make_snapshot(nodes=[make_node(name="a")], device_class_resources=[GPU])
    subject = read_subject(make_pod(gpus=1), options)

    page = build_page(explain(subject, snapshot, options), PageQuery())

    assert page.nodes[0].verdict.detail == (
        "nvidia.com/gpu comes from a DeviceClass: not counted here"
    )


def test_one_gpu_and_one_core_are_no_several() -> None:
    found = rows(make_pod(gpus=7, cpu="63"))

    assert "leaves 1 GPU and 1 core," in found["empty"].verdict.detail


def test_what_the_best_node_gives_is_told_in_lines_that_can_be_read() -> None:
    scoring = {"profile": "training", "topology": "graded", "expectedPods": EXPECTED}
    options = build_verb_options(make_settings({"scoring": scoring}))
    labels = {PRODUCT: "NVIDIA-H100-80GB-HBM3"}
    snapshot = make_snapshot(nodes=[make_node(name="a", gpus=8, labels=labels)])
    explanation = explain(
        read_subject(make_pod(gpus=2, cpu="8"), options), snapshot, options
    )

    page = build_page(explanation, PageQuery())
    text = render_page(page, "a")

    assert page.summary is not None
    assert page.summary.best[0].detail.startswith("would get GPUs 0 1 (900 GB/s")
    assert (
        "On a: would get GPUs 0 1 (900 GB/s, NVLink), leaves GPUs 2 3 4 5 6 7" in text
    )
    assert "fragmentation(100)" in text
    assert max(map(len, text.splitlines())) <= 100
