"""Random clusters and lists: what holds of every replay."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.fgd import FragmentationDescent
from simulator.fragmentation import Mix, fragments
from simulator.pods import QueuedPod
from simulator.scheduler import SchedulerRules
from simulator.trace import TraceNode, TracePod
from tests.simulated import Replay, make_place, make_replay, make_row, nodes_of

MODELS = ("T4", "G2", "V100M32")

place = st.builds(
    lambda gpus, cpu, model: make_place("", gpus=gpus, cpu=cpu, model=model),
    st.integers(0, 4),
    st.integers(0, 12_000),
    st.sampled_from(MODELS),
)
gpus_and_share = st.one_of(
    st.tuples(st.integers(0, 4), st.just(1000)),
    st.tuples(st.just(1), st.integers(1, 999)),
)
row = st.builds(
    lambda asked, cpu, models: make_row(
        "", gpus=asked[0], share=asked[1], cpu=cpu, models=models
    ),
    gpus_and_share,
    st.integers(0, 6000),
    st.lists(st.sampled_from(MODELS), max_size=2, unique=True),
)
replays = st.builds(
    lambda nodes, pods: make_replay(
        [
            TraceNode(f"n{i}", n.cpu_milli, n.memory_mib, n.gpus, n.model)
            for i, n in enumerate(nodes)
        ],
        [
            TracePod(f"p{i}", p.cpu_milli, p.memory_mib, p.gpus, p.share, p.models)
            for i, p in enumerate(pods)
        ],
    ),
    st.lists(place, min_size=1, max_size=5),
    st.lists(row, min_size=1, max_size=25),
)
policies = st.sampled_from(["ours", "fgd", "bestFit", "random"])


@given(replays, policies, st.sampled_from(["random", "name"]))
@settings(max_examples=60, deadline=None)
def test_nothing_is_given_away_twice(replay: Replay, policy: str, ties: str) -> None:
    rules = SchedulerRules(ties=ties)  # type: ignore[arg-type]

    outcome = replay.run(replay.policy(policy), rules)

    cluster = replay.cluster
    assert (cluster.devices.free >= 0).all()
    assert (cluster.requested <= cluster.snapshot.allocatable).all()
    # both counts of GPUs tell the same as the devices do
    free = cluster.devices.free
    assert cluster.free("nvidia.com/gpu").tolist() == (free == 1000).sum(1).tolist()
    assert cluster.free("nvidia.com/gpu.shared").tolist() == free.sum(1).tolist()
    taken = sum(
        pod.asked
        for pod, node in zip(replay.pods, nodes_of(outcome), strict=True)
        if node is not None
    )
    assert outcome.points[-1].allocated == taken
    assert int(cluster.devices.total.sum() - free.sum()) == taken
    assert all(a.arrived <= b.arrived for a, b in pairwise(outcome.points))


@given(replays, policies)
@settings(max_examples=40, deadline=None)
def test_a_refused_pod_has_no_node_left(replay: Replay, policy: str) -> None:
    outcome = replay.run(replay.policy(policy))

    for pod, node in zip(replay.pods[-1:], nodes_of(outcome)[-1:], strict=True):
        if node is None:
            assert not replay.cluster.fitting(pod).any()


@given(replays, policies, st.integers(0, 3))
@settings(max_examples=30, deadline=None)
def test_one_seed_has_one_outcome(replay: Replay, policy: str, seed: int) -> None:
    again = Replay(replay.trace)
    rules = SchedulerRules()
    replay.random = np.random.default_rng(seed)
    again.random = np.random.default_rng(seed)

    assert replay.run(replay.policy(policy), rules) == again.run(
        again.policy(policy), rules
    )


def plain_fragments(mix: Mix, cpu: int, free: list[int], model: int) -> float:
    """One node and one class after the other, as the paper has it."""
    total = 0.0
    for m in range(len(mix.parts)):
        share = int(mix.shares[mix.share_of[m]])
        enough = [r for r in free if r >= share]
        can_run = (
            mix.gpus[m] > 0
            and cpu >= mix.cpu[m]
            and len(enough) >= mix.gpus[m]
            and mix.accepts[m][model]
        )
        lost = sum(r for r in free if r < share) if can_run else sum(free)
        total += float(mix.parts[m]) * lost
    return total


def plain_gain(replay: Replay, pod: QueuedPod, column: int) -> float | None:
    """Every way to place the pod on one node; None where it does not fit."""
    free = replay.cluster.devices.free[column].tolist()
    cpu, model = int(replay.cluster.free("cpu")[column]), int(replay.models[column])
    before = plain_fragments(replay.mix, cpu, free, model)
    ways = []
    if pod.gpus and pod.share < 1000:
        for gpu, left in enumerate(free):
            if left >= pod.share:
                ways.append([*free[:gpu], left - pod.share, *free[gpu + 1 :]])
    elif free.count(1000) >= pod.gpus:
        after, missing = [], pod.gpus
        for left in free:
            take = missing > 0 and left == 1000
            after.append(0 if take else left)
            missing -= take
        ways.append(after)
    after_cpu = cpu - pod.cpu
    gains = [before - plain_fragments(replay.mix, after_cpu, w, model) for w in ways]
    return max(gains) if gains else None


@given(replays)
@settings(max_examples=40, deadline=None)
def test_kept_gradients_equal_those_computed_plainly(replay: Replay) -> None:
    policy = replay.policy("fgd")
    assert isinstance(policy, FragmentationDescent)
    replay.run(policy)

    for pod in replay.pods[:6]:
        gains = policy._gradients(pod).gains
        for column in range(len(replay.cluster.names)):
            plain = plain_gain(replay, pod, column)
            if plain is None:
                assert gains[column] == -np.inf
            else:
                assert abs(gains[column] - plain) < 1e-6

    found = fragments(
        replay.mix,
        replay.cluster.free("cpu"),
        replay.cluster.devices.free,
        replay.models,
    )
    assert (found >= -1e-9).all()
    assert (found <= replay.cluster.devices.free.sum(axis=1) + 1e-9).all()
