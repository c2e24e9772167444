"""The webhook hides nothing that Kubernetes has against a pod, and adds nothing."""

import random
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

import pytest

from tests.builders import make_node
from tests.fakes.admissions import Admissions
from tests.fakes.webhook import (
    GPU,
    SHM,
    Webhook,
    container,
    make_pod,
    make_webhook,
    per_gpu,
    rule,
)

MIG_2G: Final = "nvidia.com/mig-2g.20gb"
MIG_1G: Final = "nvidia.com/mig-1g.10gb"
CHAIN: Final = (MIG_2G, MIG_1G, GPU)
RULE: Final = rule(per_gpu("cpu", 4), per_gpu("memory", 8, "Gi"), per_gpu(SHM, 1))
RULES: Final = {"resourceMap": {"V100": dict.fromkeys((GPU, MIG_1G, MIG_2G), RULE)}}
# quantity -> what it is worth
COUNTS: Final = {
    "0": Fraction(0),
    "1": Fraction(1),
    "1000m": Fraction(1),
    "2": Fraction(2),
    "2e0": Fraction(2),
    "500m": Fraction(1, 2),
    "1.5": Fraction(3, 2),
    "999900u": Fraction(9999, 10000),
    "1.0001": Fraction(10001, 10000),
}
CORES: Final = {"1": Fraction(1), "1500m": Fraction(3, 2), "2": Fraction(2)}
PODS: Final = 1500


def make_all() -> Webhook:
    """Return a webhook with chains and rules, in a cluster with a little of all."""
    nodes = [make_node(gpus=4, resources={MIG_1G: "7"})]
    admissions = Admissions(nodes=nodes, chains=(CHAIN,))
    return make_webhook(RULES, fallback=admissions.fallback)


def draw_resources(dice: random.Random) -> dict[str, Any]:
    """Return what one container asks, as the API server completes it."""
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    names = [name for name in (MIG_2G, MIG_1G, SHM) if dice.random() < 0.4]
    for name in names:
        limits[name] = dice.choice(list(COUNTS))
        if dice.random() < 0.3:
            requests[name] = dice.choice(list(COUNTS))
    if dice.random() < 0.5:
        limits["cpu"] = dice.choice(list(CORES))
        if dice.random() < 0.5:
            requests["cpu"] = dice.choice(list(CORES))
    return {"requests": {**limits, **requests}, "limits": limits}


def is_refused(resources: Mapping[str, Mapping[str, str]]) -> bool:
    """Say what Kubernetes says, by its own rules, of one container."""
    requests, limits = resources.get("requests", {}), resources.get("limits", {})
    for name, text in [*requests.items(), *limits.items()]:
        if "/" in name and -(-worth(text) * 1000 // 1) % 1000:
            return True
    for name, text in requests.items():
        if "/" in name and name not in limits:
            return True
        if name in limits:
            asked, most = worth(text), worth(limits[name])
            if asked > most or ("/" in name and asked != most):
                return True
    return False


def worth(text: str) -> Fraction:
    """Return what a quantity of this page, or of the webhook, is worth."""
    known = {**COUNTS, **CORES}
    if text in known:
        return known[text]
    for suffix, factor in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if text.endswith(suffix):
            return Fraction(text.removesuffix(suffix)) * factor
    if text.endswith("m"):
        return Fraction(text.removesuffix("m")) / 1000
    return Fraction(text)


@pytest.mark.parametrize("gpu_type", [None, "V100"])
def test_a_pod_is_refused_with_the_webhook_just_where_it_is_without(
    gpu_type: str | None,
) -> None:
    dice = random.Random(43)  # noqa: S311  a test
    refused = fallen = 0
    for _ in range(PODS):
        containers = [
            container(name, draw_resources(dice)) for name in "ab"[: dice.randint(1, 2)]
        ]
        pod = make_pod(*containers, gpu_type=gpu_type)

        answered = make_all().send(pod)

        if not answered.is_allowed:  # two GPU resources, or a budget: says so itself
            continue
        before = [is_refused(item["resources"]) for item in pod["spec"]["containers"]]
        after = [
            is_refused(item.get("resources", {}))
            for item in answered.pod["spec"]["containers"]
        ]
        assert after == before, (pod, answered.pod)
        refused += any(before)
        fallen += bool(answered.operations)
    assert refused > PODS // 10
    assert fallen > PODS // 10
