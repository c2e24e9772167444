"""Worked examples of docs/scoring.md for terms that need no more than node and pod."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from extender.explain.explain import explain
from extender.explain.page import PageQuery, build_page
from extender.explain.pod import read_subject
from service.runtime import build_records, build_verb_options
from tests.builders import Tree, make_node, make_pod, make_snapshot
from tests.extender_app import make_settings

PAGE: Final = (Path(__file__).parents[2] / "docs" / "scoring.md").read_text()
PRODUCT: Final = "nvidia.com/gpu.product"
TYPES: Final = {"gpu-extender.io/gpu-type": "H100, A100"}


def scores(
    term: str,
    scoring: Mapping[str, str],
    nodes: Sequence[Tree],
    pods: Iterable[Tree],
    pod: Tree,
) -> dict[str, float]:
    """Return a term of each node."""
    settings = make_settings({"scoring": scoring})
    options = build_verb_options(settings)
    snapshot = make_snapshot(
        nodes=nodes,
        pods=pods,
        label_keys=settings.labels.keys().columns(),
        builder=build_records(settings),
    )
    page = build_page(
        explain(read_subject(pod, options), snapshot, options), PageQuery()
    )
    return {row.name: row.terms[term] for row in page.nodes}


@pytest.mark.parametrize(
    ("strategy", "wanted", "said"),
    [
        ("target", [41.7, 100, 62.5], "**41.7**; with 5 in use 100, with 7 in use"),
        ("binpack", [25, 62.5, 87.5], "**25**, **75**"),
        ("spread", [75, 37.5, 12.5], "**25**, **75**"),
    ],
)
def test_utilization(strategy: str, wanted: list[float], said: str) -> None:
    used = (2, 5, 7)

    found = scores(
        "utilization",
        {"strategy": strategy},
        [make_node(name=f"n{n}", gpus=8) for n in used],
        [make_pod(name=f"p{n}", gpus=n, node_name=f"n{n}") for n in used],
        make_pod(name="new", gpus=1),
    )

    assert [found[f"n{n}"] for n in used] == pytest.approx(wanted, abs=0.05)
    assert said in PAGE


def test_type_match() -> None:
    products = {"H100": "NVIDIA-H100-80GB-HBM3", "A100": "NVIDIA-A100-SXM4-80GB"}

    found = scores(
        "typeMatch",
        {},
        [make_node(name=n, gpus=1, labels={PRODUCT: p}) for n, p in products.items()],
        [],
        make_pod(name="new", gpus=1, annotations=TYPES),
    )

    assert found == {"H100": 100, "A100": 70}
    assert "A100 is the last of two types: **70**; H100 has 100" in PAGE
