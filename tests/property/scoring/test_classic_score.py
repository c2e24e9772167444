"""The classic score on random clusters against its page in plain Python."""

from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scoring.candidates import LabelKeys, PodRequest
from scoring.normalization import Scale, normalize
from scoring.profiles import classic, score_terms
from scoring.terms import ScoreOptions
from tests.builders import GPU, make_node, make_pod, make_snapshot, take_candidates

TYPES = ("", "v100", "a100", "t4")
COMPATIBLE = {"v100": {"a100"}, "a100": {"v100"}}
OPTIONS = ScoreOptions(
    target_low=0.6,
    target_high=0.8,
    strategy="target",
    compatible_types=MappingProxyType(
        {asked: frozenset(accepted) for asked, accepted in COMPATIBLE.items()}
    ),
)


@dataclass(frozen=True, slots=True)
class Host:
    """A candidate as the page describes one."""

    used: int
    gpus: int
    accelerator: str
    is_linked: bool
    is_known: bool


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights in hundredths."""

    utilization: int
    type_match: int
    topology: int


HOSTS = st.lists(
    st.builds(
        Host,
        used=st.integers(0, 20),
        gpus=st.integers(0, 16),
        accelerator=st.sampled_from(TYPES),
        is_linked=st.booleans(),
        is_known=st.integers(0, 5).map(bool),
    ),
    min_size=1,
    max_size=8,
)
WEIGHTS = st.just(Weights(40, 30, 30)) | st.builds(
    Weights,
    utilization=st.integers(1, 1000),
    type_match=st.integers(1, 1000),
    topology=st.integers(1, 1000),
)


def plain_utilization(host: Host) -> int:
    if host.gpus == 0:
        return 0
    u = min(host.used / host.gpus, 1.0)
    if u < 0.6:
        return int(u * 100 / 0.6)
    if u <= 0.8:
        return 100
    return int((1.0 - u) * 100 / 0.2)


def plain_type_match(host: Host, asked: str | None) -> int:
    if asked is None:
        return 50
    if host.accelerator == asked:
        return 100
    return 70 if host.accelerator in COMPATIBLE.get(asked, set()) else 0


def plain_score(host: Host, asked: str | None, count: int, weights: Weights) -> int:
    topology = 100 if count <= 1 or host.is_linked else 50
    return (
        50
        + int(plain_utilization(host) * (weights.utilization / 100))
        + int(plain_type_match(host, asked) * (weights.type_match / 100))
        + int(topology * (weights.topology / 100))
    )


def plain_wire(scores: list[int], known: list[bool], max_score: int) -> list[int]:
    taking_part = [
        score for score, is_known in zip(scores, known, strict=True) if is_known
    ]
    wire = []
    for score, is_known in zip(scores, known, strict=True):
        if not is_known:
            wire.append(0)
        elif max(taking_part) == min(taking_part):
            wire.append(max_score)
        else:
            low, high = min(taking_part), max(taking_part)
            normalised = (score - low) * 100 // (high - low)
            wire.append(int(normalised * max_score / 100 + 0.5))
    return wire


@settings(max_examples=300)
@given(
    hosts=HOSTS,
    weights=WEIGHTS,
    asked=st.sampled_from((None, *TYPES[1:])),
    count=st.integers(1, 4),
    max_score=st.sampled_from((1, 10, 100)),
)
def test_the_classic_score_is_that_of_its_page(
    hosts: list[Host], weights: Weights, asked: str | None, count: int, max_score: int
) -> None:
    nodes, pods, names = [], [], []
    for number, host in enumerate(hosts):
        name = f"n{number}"
        names.append(name)
        labels = {"accelerator": host.accelerator} if host.accelerator else {}
        if host.is_linked:
            labels["gpu-interconnect"] = "nvlink"
        if host.is_known:
            nodes.append(make_node(name=name, gpus=host.gpus, labels=labels))
        pods.append(make_pod(name=name, gpus=host.used, node_name=name))
    pod_request = PodRequest("", ((GPU, count),), GPU, asked, "")
    of_term = {
        "utilization": weights.utilization,
        "typeMatch": weights.type_match,
        "topology": weights.topology,
    }

    candidates = take_candidates(
        make_snapshot(nodes=nodes, pods=pods), names, pod_request, LabelKeys()
    )
    totals = classic(score_terms(candidates, pod_request, OPTIONS, of_term), of_term)
    scale = Scale("minMax", max_score, 50, 150)
    order = np.arange(len(names), dtype=np.int64)
    wire = normalize(totals, candidates.known, scale, None, order)

    known = [host.is_known for host in hosts]
    plain = [plain_score(host, asked, count, weights) for host in hosts]
    assert candidates.known.tolist() == known
    assert np.where(candidates.known, totals, 0).tolist() == [
        score if is_known else 0 for score, is_known in zip(plain, known, strict=True)
    ]
    assert wire.tolist() == plain_wire(plain, known, max_score)
