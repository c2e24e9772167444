"""Totals that are kept while pods come and go equal those that are computed at once."""

from dataclasses import replace
from typing import Any, Final

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.ledger.changes import Change, NodeGone, NodeSeen, PodGone, PodSeen
from extender.verbs.options import VerbOptions
from scoring.candidates import PodRequest
from scoring.snapshot import Snapshot
from service.runtime import build_verb_options
from tests.builders import (
    GPU,
    make_ledger,
    make_node,
    make_node_record,
    make_pod,
    make_pod_record,
)
from tests.extender_app import make_settings

SHARED: Final = "nvidia.com/gpu.shared"
NODES: Final = 4
OPTIONS: Final = build_verb_options(make_settings({"scoring": {"profile": "packing"}}))


def node(number: int, **more: Any) -> dict[str, Any]:
    labels = {"nvidia.com/gpu.product": ("Tesla-T4", "NVIDIA-L4")[number % 2]}
    resources = {SHARED: "4000"} if number % 2 else {}
    asked = {"gpus": 4, "cpu": "16", "resources": resources, **more}
    return make_node(name=f"n{number}", labels=labels, **asked)


numbers = st.integers(0, NODES - 1)
cores = st.integers(0, 6).map(str)
pods = st.one_of(
    st.fixed_dictionaries({"gpus": st.integers(1, 3), "cpu": cores}),
    st.fixed_dictionaries({"cpu": cores}),
    st.fixed_dictionaries(
        {"requests": st.integers(1, 999).map(lambda n: {SHARED: str(n)}), "cpu": cores}
    ),
)


def seen(number: int, pod: dict[str, Any], where: int | None, kind: str) -> PodSeen:
    name = f"p{number}"
    place = "" if where is None else f"n{where}"
    annotations = {"gpu-extender.io/gpu-type": kind} if kind and "gpus" in pod else {}
    tree = make_pod(name=name, node_name=place, annotations=annotations, **pod)
    return PodSeen(make_pod_record(tree))


changes: st.SearchStrategy[Change] = st.one_of(
    st.builds(
        seen,
        st.integers(0, 30),
        pods,
        st.none() | numbers,
        st.sampled_from(("", "T4", "L4, T4")),
    ),
    st.integers(0, 30).map(lambda n: PodGone(f"uid-of-default-p{n}")),
    st.builds(
        lambda n, gpus: NodeSeen(make_node_record(node(n, gpus=gpus))),
        numbers,
        st.sampled_from((2, 4, 8)),
    ),
    numbers.map(lambda n: NodeGone(f"n{n}")),
)


def totals(snapshot: Snapshot, options: VerbOptions, ask: PodRequest) -> list[Any]:
    every = np.arange(len(snapshot.nodes.names), dtype=np.intp)
    arrays = options.shared_results.take(snapshot, every, ask)
    return [array.tolist() for array in arrays]


@given(
    st.lists(st.lists(changes, min_size=1, max_size=12), max_size=6),
    st.sampled_from(((), ((GPU, 1),), ((GPU, 2),), ((SHARED, 300),))),
    st.integers(0, 6),
)
@settings(max_examples=60, deadline=None)
def test_kept_totals_equal_those_computed_at_once(
    steps: list[list[Change]], request: tuple[tuple[str, int], ...], cpu: int
) -> None:
    primary = request[0][0] if request else ""
    ask = PodRequest("", request, primary, None, "", cpu=cpu * 1000)
    ledger = make_ledger(nodes=[node(number) for number in range(NODES)])
    keeping = replace(OPTIONS)
    totals(ledger.build(), keeping, ask)
    for step in steps:
        for change in step:
            ledger.apply(change)
        snapshot = ledger.build()
        if snapshot.nodes.names:
            kept = totals(snapshot, keeping, ask)
            assert kept == totals(snapshot, replace(OPTIONS), ask)
