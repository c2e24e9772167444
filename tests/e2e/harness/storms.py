"""Storms of pods that ask for MIG slices, drawn at random and played for real.

Each storm has nodes of its own, which its pods select, so that several can be played
at once; their names and owners they share, as pods of one controller do.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.e2e.harness.builders import GPU, JsonObject, make_node, make_pod
from tests.e2e.harness.denials import DENIED, FULL_NAMESPACE

LARGE: Final = "nvidia.com/mig-2g.20gb"
SMALL: Final = "nvidia.com/mig-1g.10gb"
# What may stand in for what; whole GPUs there are always enough.
TIERS: Final = (LARGE, SMALL, GPU)
SLICES: Final = (LARGE, SMALL)

POOL: Final = "pool"
BY_NOBODY: Final = "nobody"
PODS_OF_A_STORM: Final = 20
WHOLE_GPUS: Final = 64
MOST_SLICES: Final = 5
OWNERS: Final = ("", "", "replica-set-1", "replica-set-2")
PREFIXES: Final = ("infer-", "train-")


class Fate(StrEnum):
    """What becomes of a pod after the webhook has seen it."""

    STAYS = "stays"
    DENIED = "denied by a policy"
    OVER_QUOTA = "over a quota"
    TAKEN_NAME = "of a name that is taken"
    DRY_RUN = "dry run"
    DELETED = "deleted at once"
    REPLACED = "deleted and created anew under its name"
    BOUND = "bound"
    LEAVES = "bound and deleted"
    FINISHES = "bound and finished"


WEIGHTS: Final[Mapping[Fate, int]] = {
    Fate.STAYS: 6,
    Fate.DENIED: 3,
    Fate.OVER_QUOTA: 2,
    Fate.TAKEN_NAME: 1,
    Fate.DRY_RUN: 2,
    Fate.DELETED: 2,
    Fate.REPLACED: 2,
    Fate.BOUND: 4,
    Fate.LEAVES: 3,
    Fate.FINISHES: 2,
}
NEVER_CREATED: Final = frozenset(
    {Fate.DENIED, Fate.OVER_QUOTA, Fate.TAKEN_NAME, Fate.DRY_RUN}
)
NAMED: Final = frozenset({Fate.TAKEN_NAME, Fate.REPLACED})


@dataclass(frozen=True, slots=True)
class StormPod:
    """One pod of a storm: what is sent to the API server, and what becomes of it."""

    body: JsonObject
    fate: Fate
    asks: str


@dataclass(frozen=True, slots=True)
class Storm:
    """What a storm is played with.

    Attributes
    ----------
    pool : str
        Value of the label `POOL` of its nodes.
    quantity : int
        What each of its pods asks of its resource.
    is_scheduled : bool
        Whether kube-scheduler binds its pods, rather than the test.
    is_calm : bool
        Whether all of its pods stay, or are bound.
    nodes : sequence of JsonObject
    pods : sequence of StormPod
    """

    pool: str
    quantity: int
    is_scheduled: bool
    is_calm: bool
    nodes: Sequence[JsonObject]
    pods: Sequence[StormPod]


def draw_storm(seed: int, number: int) -> Storm:
    """Return the storm of a number, always the same for the same seed."""
    draw = random.Random(f"{seed}-{number}")  # noqa: S311 - reproducible, no secret
    pool = f"storm-{number}"
    quantity = draw.choice((1, 1, 1, 2))
    is_scheduled = draw.random() < 0.25
    is_calm = draw.random() < 0.15
    nodes = [
        make_node(
            f"{pool}-{index}",
            gpus=WHOLE_GPUS,
            labels={POOL: pool},
            resources={name: draw.randint(0, MOST_SLICES) for name in SLICES},
        )
        for index in range(draw.randint(1, 3))
    ]
    fates = (Fate.STAYS, Fate.BOUND) if is_calm else tuple(WEIGHTS)
    weights = [WEIGHTS[fate] for fate in fates]
    pods = [
        _draw_pod(draw, pool, fate, quantity, is_scheduled=is_scheduled)
        for fate in draw.choices(fates, weights, k=PODS_OF_A_STORM)
    ]
    return Storm(pool, quantity, is_scheduled, is_calm, nodes, pods)


def _draw_pod(
    draw: random.Random, pool: str, fate: Fate, quantity: int, *, is_scheduled: bool
) -> StormPod:
    asks = LARGE if draw.random() < 0.8 else SMALL
    owner = draw.choice(OWNERS)
    prefix = draw.choice(PREFIXES)
    is_named = fate in NAMED or draw.random() < 0.25
    body = make_pod(
        f"{prefix}{pool}-{draw.randrange(10**9)}" if is_named else None,
        generate_name=prefix,
        namespace=FULL_NAMESPACE if fate is Fate.OVER_QUOTA else "default",
        resources={asks: quantity},
        node_selector={POOL: pool},
        scheduler_name=None if is_scheduled else BY_NOBODY,
        labels={POOL: pool, **(DENIED if fate is Fate.DENIED else {})},
    )
    if owner:
        body["metadata"]["ownerReferences"] = [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": owner,
                "uid": f"uid-of-{owner}",
                "controller": True,
            }
        ]
    return StormPod(body, fate, asks)
