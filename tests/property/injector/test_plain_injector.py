"""Random pods and rules, against injection in exact fractions without our code."""

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from injector.admitted_pod import FILLED_ANNOTATION
from tests.fakes.webhook import GPU, SHM, container, make_pod, make_webhook, rule
from tests.oracles.injector import as_fractions, inject

MIG = "nvidia.com/mig-1g.10gb"
CORE = "x.com/core"
NAMESPACES = (*("default",) * 4, *("training",) * 4, "by-hand")
CPU = ("0", "1", "250m", "1.5", ".5", "3", "100u", "7e-1", "+2", "17", "1e0", 2)
BYTES = ("0", "1Gi", "1.2Gi", "1G", "512Mi", "333", "1e9", "1500m", "2.5M", "4096")
SIDES = (("limits",), ("requests",), ("requests", "limits"))
PIECES = ("0", "1", "2", "1k", "3", 1)


def draw_rule(dice: random.Random, name: str) -> dict[str, Any]:
    """Return resources per GPU: some whole, some with more digits than needed."""

    def number(most: float) -> float:
        drawn = dice.uniform(0.01, most)
        digits = dice.choice((0, 1, 2, 9))
        return max(round(drawn, digits), 0.5) if digits else max(int(drawn), 1)

    entries = [{"name": "cpu", "coefficient": number(9)}]
    if dice.random() < 0.3:
        entries[0] = {"name": "cpu", "coefficient": dice.randint(1, 9000), "unit": "m"}
    unit = dice.choice(("Gi", "G", "Mi", "M"))
    most = 12 if unit in ("Gi", "G") else 12_000
    entries.append({"name": "memory", "coefficient": number(most), "unit": unit})
    if dice.random() < 0.4:
        entries.append({"name": SHM, "coefficient": number(3), "unit": "Gi"})
    if dice.random() < 0.4:
        entries.append({"name": CORE, "coefficient": number(2)})
    if dice.random() < 0.2:
        entries.append(
            {"name": "ephemeral-storage", "coefficient": number(9), "unit": "Gi"}
        )
    dice.shuffle(entries)
    return rule(*entries, annotations={f"of/{name}": "yes"})


def draw_rules(dice: random.Random) -> dict[str, Any]:
    default = {GPU: draw_rule(dice, "default")}
    if dice.random() < 0.5:
        default[MIG] = draw_rule(dice, "slices")
    rules: dict[str, Any] = {"resourceMap": {"V100": default}}
    if dice.random() < 0.5:
        resource = dice.choice((GPU, MIG))
        own = {"V100": {resource: draw_rule(dice, "training")}}
        rules["namespaceResourceMap"] = {"training": own}
    rules["namespaceWhiteList"] = ["by-hand"]
    return rules


def draw_container(dice: random.Random, name: str, gpu: str, **more: Any) -> Any:
    asked: dict[str, dict[str, Any]] = {}
    chances = {"cpu": (0.5, CPU), "memory": (0.5, BYTES), SHM: (0.1, PIECES)}
    for resource, (chance, amounts) in chances.items():
        if dice.random() < chance:
            amount = dice.choice(amounts)
            for side in dice.choice(SIDES):
                asked.setdefault(side, {})[resource] = amount
            if dice.random() < 0.05:  # mostly one that Kubernetes refuses
                asked.setdefault("limits", {})[resource] = dice.choice(amounts)
    if dice.random() < 0.8:
        count = dice.choice(("0", "1", "1", "2", "3", "8", "2e0", 1))
        for side in dice.choice(SIDES):
            asked.setdefault(side, {})[gpu] = count
        if dice.random() < 0.05:
            asked.setdefault("limits", {})[gpu] = dice.choice(("500m", "4", "1.5"))
    resources = asked if asked or dice.random() < 0.5 else None
    return container(name, resources, **more)


def draw_pod(dice: random.Random) -> dict[str, Any]:
    gpu = dice.choice((GPU, GPU, GPU, MIG))
    main = [
        draw_container(dice, name, MIG if dice.random() < 0.05 else gpu)
        for name in "abc"[: dice.randint(1, 3)]
    ]
    init = [
        draw_container(dice, name, gpu, restartPolicy=dice.choice(("Always", "Never")))
        for name in "xy"[: dice.randint(0, 2)]
    ]
    return make_pod(
        *main,
        gpu_type=dice.choice((*("V100",) * 8, "T4", None)),
        initContainers=init,
    )


@settings(max_examples=300)
@given(seed=st.integers(0, 2**48))
def test_injection_is_that_of_exact_fractions(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 -- repeatable, not secret
    rules, pod = draw_rules(dice), draw_pod(dice)
    namespace = dice.choice(NAMESPACES)

    answered = make_webhook(rules).send(pod, namespace=namespace)

    wanted = inject(rules, pod, namespace)
    assert answered.is_allowed == (wanted is not None)
    if wanted is not None:
        answered.pod["metadata"].get("annotations", {}).pop(FILLED_ANNOTATION, None)
        assert as_fractions(answered.pod) == wanted
