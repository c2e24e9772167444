"""kube-scheduler's own rules."""

import numpy as np
import pytest

from simulator.scheduler import NodeSampler, SchedulerRules, pick, plugin_scores
from tests.simulated import make_place, make_replay, make_row


def test_the_search_goes_on_where_the_last_one_ended() -> None:
    sampler = NodeSampler(SchedulerRules(percentage=40), 300)
    fits = np.ones(300, dtype=np.bool_)

    samples = [sampler.sample(fits) for _ in range(3)]

    assert [(s[0], s[-1], len(s)) for s in samples] == [
        (0, 119, 120),
        (120, 239, 120),
        (240, 59, 120),
    ]


def test_all_nodes_are_found_where_few_fit() -> None:
    sampler = NodeSampler(SchedulerRules(percentage=40), 300)
    fits = np.zeros(300, dtype=np.bool_)
    fits[[5, 200]] = True

    assert sampler.sample(fits).tolist() == [5, 200]
    assert sampler.sample(fits).tolist() == [5, 200]


def test_ties_are_settled_by_lot_or_by_name() -> None:
    totals = np.array([5, 9, 9, 9])
    order = np.array([0, 3, 1, 2])
    random = np.random.default_rng(3)

    drawn = {pick(totals, order, "random", random) for _ in range(100)}

    assert drawn == {1, 2, 3}
    assert pick(totals, order, "name", random) == 2


@pytest.mark.parametrize(
    ("rules", "scores"),
    [
        pytest.param(SchedulerRules(), [0, 0], id="plugins off"),
        # asks 2 of 8 and 4 cores, 1024 of 65536 and 4096 MiB:
        # a: cpu 75, memory 98 -> 86; b: 50 and 75 -> 62
        pytest.param(SchedulerRules(fit_weight=1), [86, 62], id="least allocated"),
        # used after: a 0.25 and 0.015625 -> 100 - 11.7 = 88; b 0.5 and 0.25 -> 87;
        # before 100: 50 + (50 - 12) // 2 = 69; 50 + (50 - 13) // 2 = 68
        pytest.param(SchedulerRules(balance_weight=1), [69, 68], id="balanced"),
        pytest.param(
            SchedulerRules(fit_weight=2, balance_weight=1), [241, 192], id="both"
        ),
    ],
)
def test_score_plugins(rules: SchedulerRules, scores: list[int]) -> None:
    replay = make_replay(
        [make_place("a"), make_place("b", cpu=4000, memory=4096)],
        [make_row("p", cpu=2000, memory=1024)],
    )

    got = plugin_scores(rules, replay.cluster, replay.pods[0], np.array([0, 1]))

    assert got.tolist() == scores


def test_what_a_pod_without_requests_counts_as() -> None:
    # 100 of 200 millicores, 200 of 400 MiB: (50 + 50) / 2; balance does not look at it
    replay = make_replay(
        [make_place("a", cpu=200, memory=400)], [make_row("p", cpu=0, memory=0)]
    )
    rules = SchedulerRules(fit_weight=1, balance_weight=1)

    got = plugin_scores(rules, replay.cluster, replay.pods[0], np.array([0]))

    assert got.tolist() == [50]


def test_the_plugins_weigh_with_our_answers() -> None:
    # binpack sends both to a; LeastAllocated outweighs one step of ours and spreads
    nodes = [make_place("a", gpus=8), make_place("b", gpus=8)]
    rows = [make_row("p", cpu=4000), make_row("q", cpu=4000)]
    ours, spread = make_replay(nodes, rows), make_replay(nodes, rows)
    rules = SchedulerRules(percentage=100, ties="name")
    heavy = SchedulerRules(percentage=100, ties="name", weight=1, fit_weight=10)

    alone = ours.run(ours.policy("ours"), rules)
    together = spread.run(spread.policy("ours"), heavy)

    assert [p.node for p in alone.placements] == ["a", "a"]
    assert [p.node for p in together.placements] == ["a", "b"]
