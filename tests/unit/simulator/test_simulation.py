"""Small lists of pods with the outcome worked out by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from extender.explain.pod import read_subjects
from extender.tracking.assumed_pods import AssumedPods
from simulator.cluster import Cluster
from simulator.devices import devices_of
from simulator.pods import queue_subjects
from simulator.scheduler import SchedulerRules
from simulator.simulation import Simulation
from simulator.trace import TracePod
from simulator.verbs import ExtenderPolicy
from tests.builders import make_ledger, make_node, make_pod
from tests.simulated import (
    BY_NAME,
    OPTIONS,
    Replay,
    make_place,
    make_replay,
    make_row,
    nodes_of,
)


@pytest.mark.parametrize("policy", ["ours", "fgd", "bestFit", "random"])
def test_what_fits_nowhere_is_dropped_and_the_next_pod_goes_on(policy: str) -> None:
    replay = make_replay(
        [make_place("a", gpus=2)],
        [make_row("p", gpus=2), make_row("q"), make_row("r", gpus=0)],
    )

    outcome = replay.run(replay.policy(policy))

    assert nodes_of(outcome) == ["a", None, "a"]
    assert outcome.first_refusal == 1
    # 2 of 2 GPUs at once; the refused third has arrived all the same
    assert [point.arrived for point in outcome.points] == [2000, 3000, 3000]
    assert [point.allocated for point in outcome.points] == [2000, 2000, 2000]
    assert outcome.allocated_at(100) == 100.0
    assert outcome.allocated_at(160) is None


def test_our_verbs_fill_a_node_before_they_open_another() -> None:
    # binpack: the fuller node first; by name where both are empty
    replay = make_replay(
        [make_place("a"), make_place("b")], [make_row(name) for name in "pqrs"]
    )

    outcome = replay.run(replay.policy("ours"))

    assert nodes_of(outcome) == ["a", "a", "b", "b"]


def test_best_fit_takes_the_node_with_least_left_over() -> None:
    # after the pod: a has 1 GPU and 7 cores left, b none and 3
    replay = make_replay(
        [make_place("a"), make_place("b", gpus=1, cpu=4000)], [make_row("p")]
    )

    assert nodes_of(replay.run(replay.policy("bestFit"))) == ["b"]


def test_fgd_goes_where_the_rest_stays_useful() -> None:
    # Every pod asks two GPUs but the first, which asks one. On a (one GPU, a fragment
    # for the others) it leaves b whole; on b it makes a second fragment.
    replay = make_replay(
        [make_place("b", gpus=2), make_place("a", gpus=1)],
        [make_row("p", gpus=1), *(make_row(f"q{i}", gpus=2) for i in range(20))],
    )

    outcome = replay.run(replay.policy("fgd"))

    assert nodes_of(outcome)[:3] == ["a", "b", None]


def test_shares_of_one_gpu_are_taken_tightest_first() -> None:
    # 600 opens GPU 0, 500 GPU 1; 400 goes to GPU 0, which it fills; 500 to GPU 1; the
    # last finds 2000 of 2000 taken.
    shares = [600, 500, 400, 500, 100]
    replay = make_replay(
        [make_place("a")],
        [make_row(f"p{i}", share=share) for i, share in enumerate(shares)],
    )

    outcome = replay.run(replay.policy("ours"))

    assert nodes_of(outcome) == ["a", "a", "a", "a", None]
    assert replay.cluster.devices.free.tolist() == [[0, 0]]


def test_a_share_does_not_fit_over_two_gpus() -> None:
    replay = make_replay(
        [make_place("a")], [make_row(f"p{i}", share=600) for i in range(3)]
    )

    outcome = replay.run(replay.policy("ours"))

    assert nodes_of(outcome) == ["a", "a", None]
    assert replay.cluster.devices.free.tolist() == [[400, 400]]


def test_a_gpu_of_which_a_share_is_taken_is_no_whole_one() -> None:
    replay = make_replay(
        [make_place("a")], [make_row("p", share=100), make_row("q", gpus=2)]
    )

    assert nodes_of(replay.run(replay.policy("ours"))) == ["a", None]


@pytest.mark.parametrize("policy", ["ours", "fgd", "bestFit", "random"])
def test_a_pod_goes_to_the_models_that_it_accepts(policy: str) -> None:
    replay = make_replay(
        [
            make_place("a"),
            make_place("b", model="G2"),
            make_place("c", model="V100M32"),
        ],
        [make_row(f"p{i}", models=("G2", "V100M32")) for i in range(5)],
    )

    outcome = replay.run(replay.policy(policy))

    assert sorted(map(str, nodes_of(outcome))) == ["None", "b", "b", "c", "c"]


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([make_row("p", cpu=5000), make_row("q", cpu=5000)], id="cpu"),
        pytest.param(
            [make_row("p", memory=40_000), make_row("q", memory=40_000)], id="memory"
        ),
    ],
)
def test_kube_schedulers_own_amounts_count(rows: list[TracePod]) -> None:
    replay = make_replay([make_place("a")], rows)

    assert nodes_of(replay.run(replay.policy("ours"))) == ["a", None]


def test_without_lots_the_outcome_needs_no_seed() -> None:
    rows = [make_row(f"p{i}", share=100 * (i % 7 + 1)) for i in range(30)]
    nodes = [make_place(f"n{i}") for i in range(5)]
    one, other = make_replay(nodes, rows), make_replay(nodes, rows)
    other.random = np.random.default_rng(99)

    assert nodes_of(one.run(one.policy("ours"))) == nodes_of(
        other.run(other.policy("ours"))
    )


@pytest.mark.parametrize(
    ("lag", "is_counting", "node"),
    [
        pytest.param(0, False, "b", id="seen at once"),
        pytest.param(1, False, "a", id="not seen yet"),
        pytest.param(1, True, "b", id="not seen yet, but under way"),
    ],
)
def test_a_cache_that_lags_shows_the_nodes_as_they_were(
    lag: int, is_counting: bool, node: str
) -> None:
    # p may go to b alone. Who knows of it fills b up; both look empty to others, and
    # a is the first by name.
    replay = make_replay(
        [make_place("a", gpus=4), make_place("b", gpus=4, model="G2")],
        [make_row("p", models=["G2"]), make_row("q")],
    )
    assumed = AssumedPods(is_counting=is_counting, clock=lambda: 0.0)

    outcome = replay.run(replay.policy("ours", lag=lag, assumed=assumed))

    assert nodes_of(outcome) == ["b", node]


def test_fragments_are_counted_where_the_list_passes_the_capacity() -> None:
    # Before q the one GPU left is a fragment for every pod of the list: each asks two.
    replay = make_replay(
        [make_place("a", gpus=3)], [make_row("p", gpus=2), make_row("q", gpus=2)]
    )

    outcome = replay.run(replay.policy("bestFit"))

    assert outcome.fragmented == {100: 1.0}
    assert outcome.fragmented_at_end == 1.0


def test_pods_of_manifests_count_as_they_do_in_a_cluster() -> None:
    nodes = [make_node(name="a", gpus=4), make_node(name="b", gpus=4)]
    bound = [make_pod(name="old", gpus=3, node_name="a")]
    ledger = make_ledger(nodes=nodes, pods=bound)
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {
            "parallelism": 3,
            "completions": 3,
            "template": {"spec": make_pod(gpus=2)["spec"]},
        },
    }
    snapshot = ledger.build()
    subjects = read_subjects(job, OPTIONS)
    pods = list(queue_subjects(subjects, snapshot.gpus.kinds, OPTIONS.builder))
    cluster = Cluster(snapshot, devices_of(snapshot))
    policy = ExtenderPolicy(cluster, ledger, OPTIONS)
    models = np.zeros(2, dtype=np.int64)

    outcome = Simulation(cluster, BY_NAME, policy, None, models).run(
        pods, np.random.default_rng(1)
    )

    # a has one GPU left, which is too few for each of them
    assert nodes_of(outcome) == ["b", "b", None]
    assert [p.pod for p in outcome.placements] == ["train-0", "train-1", "train-2"]
    assert (outcome.capacity, outcome.at_start) == (8000, 3000)
    assert outcome.allocated == 100 * 7 / 8


@pytest.mark.parametrize(
    ("job_label", "alike"),
    [
        pytest.param("", [[0, 1], [2, 3], [4]], id="by controller"),
        pytest.param("team", [[0, 1, 4], [2], [3]], id="by label"),
    ],
)
def test_pods_of_one_object_are_one_job(job_label: str, alike: list[list[int]]) -> None:
    def described(kind: str, replicas: int, **labels: str) -> dict[str, Any]:
        template = {"metadata": {"labels": labels}, "spec": make_pod(gpus=2)["spec"]}
        return {
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": {"name": "train"},
            "spec": {"replicas": replicas, "template": template},
        }

    builder = replace(OPTIONS.builder, job_label=job_label)
    objects = [
        described("Deployment", 2, team="a"),
        described("StatefulSet", 2),
        described("ReplicaSet", 1, team="a"),
    ]
    subjects = [
        subject
        for one in objects
        for subject in read_subjects(one, replace(OPTIONS, builder=builder))
    ]

    jobs = [pod.record.job for pod in queue_subjects(subjects, [], builder)]

    # A pod without a job is near nobody.
    assert [
        [
            other
            for other in range(len(jobs))
            if other == place or (jobs[place] and jobs[other] == jobs[place])
        ]
        for place in range(len(jobs))
    ] == [next(group for group in alike if place in group) for place in range(5)]


def test_a_pod_refused_on_a_sample_is_tried_on_the_next() -> None:
    class Picky:
        """Takes the last node only."""

        def __init__(self, replay: Replay) -> None:
            self.replay, self.calls = replay, 0

        def rate(self, _pod, columns):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            self.calls += 1
            passed = columns[columns == 249]
            return passed, np.zeros(len(passed), dtype=np.int64)

        def gpu_of(self, _pod, _column):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            return 0

        def placed(self, _record):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            return None

    replay = make_replay([make_place(f"n{i:03}") for i in range(250)], [make_row("p")])
    picky = Picky(replay)

    outcome = replay.run(picky, SchedulerRules(percentage=40))

    assert nodes_of(outcome) == ["n249"]
    assert picky.calls == 3  # 100 nodes a sample: 0 to 99, 100 to 199, the rest
