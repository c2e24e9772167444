"""Nearness of nodes to siblings, and the verbs with it, against plain counting."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.verbs.call import VerbCall
from extender.verbs.verbs import total_nodes, with_assumed
from scoring.candidates import PodRequest, take_columns
from scoring.topology.domains import nearness
from service.runtime import build_verb_options
from tests.builders import (
    Tree,
    make_node,
    make_pod,
    make_pod_request,
    make_snapshot,
)
from tests.extender_app import make_settings

# A node's domains, the nearest first; None where it lacks the label.
Place = tuple[int | None, ...]
KEYS: Final = ("nvidia.com/gpu.clique", "rack", "zone")
SETTINGS: Final = {
    "labels": {"domains": list(KEYS)},
    "scoring": {"weights": {"domain": 60}},
}
GPUS: Final = 64

places = st.tuples(*[st.one_of(st.none(), st.integers(1, 3)) for _ in KEYS])
siblings = st.lists(st.tuples(places, st.integers(1, 4)), max_size=5)


def plain_nearness(place: Place, siblings: Sequence[tuple[Place, int]]) -> float:
    """Return what the docstring of `nearness` says, one sibling at a time."""
    shares = []
    total = sum(count for _, count in siblings)
    for kind in range(len(KEYS)):
        with_kind = [(p[kind], n) for p, n in siblings if p[kind] is not None]
        if with_kind:
            here = sum(n for value, n in with_kind if value == place[kind])
            shares.append(here / total)
    return sum(shares) / len(shares) if shares else 0.0


@given(st.lists(places, min_size=1, max_size=8), siblings)
def test_nearness_is_the_mean_share_of_siblings(
    candidates: list[Place], siblings: list[tuple[Place, int]]
) -> None:
    found = nearness(
        [np.array([p[k] or 0 for p in candidates], dtype=np.int64) for k in range(3)],
        [np.array([p[k] or 0 for p, _ in siblings], dtype=np.int64) for k in range(3)],
        np.array([count for _, count in siblings], dtype=np.int64),
    )

    wanted = [plain_nearness(place, siblings) for place in candidates]
    assert found.tolist() == pytest.approx(wanted)
    assert (found >= 0).all()
    assert (found <= 1).all()


def node(index: int, place: Place) -> Tree:
    pairs = zip(KEYS, place, strict=True)
    labels = {key: str(value) for key, value in pairs if value is not None}
    return make_node(name=f"n{index}", gpus=GPUS, labels=labels)


@given(
    st.lists(places, min_size=2, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["", "j", "k"])), max_size=8),
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["", "j", "k"])), max_size=4),
)
def test_pods_that_ask_alike_get_the_totals_of_their_own_job(
    cluster: list[Place], bound: list[tuple[int, str]], under_way: list[tuple[int, str]]
) -> None:
    options = build_verb_options(make_settings(SETTINGS))
    count = len(cluster)
    snapshot = make_snapshot(
        nodes=[node(index, place) for index, place in enumerate(cluster)],
        pods=[
            make_pod(name=f"p{i}", gpus=1, node_name=f"n{at % count}", owner_uid=job)
            for i, (at, job) in enumerate(bound)
        ],
        label_keys=options.label_keys.columns(),
    )
    assumed: dict[str, list[PodRequest]] = {}
    for at, job in under_way:
        name = f"n{at % count}"
        assumed.setdefault(name, []).append(make_pod_request(1, job=job))
    every = np.arange(count, dtype=np.intp)

    for asking in ("j", "", "k", "j"):  # results are shared as far as they may be
        request = make_pod_request(1, uid="new", job=asking)
        call = VerbCall(request, snapshot.nodes.names, every, snapshot)
        totals = total_nodes(call, options, assumed)[0].tolist()

        own = [
            (cluster[at % count], 1)
            for at, job in (*bound, *under_way)
            if asking and job == asking
        ]
        candidates = with_assumed(
            take_columns(snapshot, every, request, options.label_keys),
            request,
            snapshot,
            assumed,
        )
        plain = np.array([plain_nearness(place, own) for place in cluster])
        apart = replace(candidates, nearness=plain)
        assert totals == options.total_up(apart, request)[0].tolist()
