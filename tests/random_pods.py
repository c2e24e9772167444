"""Random pods of all kinds that the webhook meets, the same ones in every run."""

import random
from typing import Any, Final

from tests.fakes.webhook import GPU, SHM, TRIGGER, container, per_gpu, rule

MIG_1G: Final = "nvidia.com/mig-1g.10gb"
MIG_2G: Final = "nvidia.com/mig-2g.20gb"
CHAIN: Final = (MIG_2G, MIG_1G, GPU)
_RULE: Final = rule(
    per_gpu("cpu", 3.7),
    per_gpu("memory", 7.3, "Gi"),
    per_gpu(SHM, 1, "Gi"),
    per_gpu("hugepages-2Mi", 4, "Mi"),
    annotations={"x.com/networks": "eni"},
)
RULES: Final = {"resourceMap": {"V100": dict.fromkeys(CHAIN, _RULE)}}

_COUNTS: Final = (
    *("1", "1", "1", "2", "4", "0", "1000m", "2e0", "1.0", "3k"),
    *("500m", "1500m", "1.5", "999900u", "1.0001"),
)
_CORES: Final = ("1", "250m", "1.5", "3", "100u", "7e-1", "0", "17", "0.1")
_BYTES: Final = ("1Gi", "1.2Gi", "1G", "512Mi", "3e8", "40Gi", "0", "1500m", "333Mi")
_PAGES: Final = ("2Mi", "4Mi", "3Mi")
# How often a container asks it, and in which amounts.
_ASKED: Final = {
    GPU: (0.35, _COUNTS),
    MIG_2G: (0.15, _COUNTS),
    MIG_1G: (0.1, _COUNTS),
    SHM: (0.1, ("1", "2Gi", "1.5")),
    "cpu": (0.4, _CORES),
    "memory": (0.4, _BYTES),
    "ephemeral-storage": (0.1, _BYTES),
    "hugepages-2Mi": (0.07, _PAGES),
}


class RandomPods:
    """Draws pods; the same seed draws the same."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)  # noqa: S311  the same pods in every run

    def draw(self) -> dict[str, Any]:
        """Return a pod as a user writes it."""
        dice = self._dice
        names = [f"c{index}" for index in range(dice.choice((1, 1, 2, 3)))]
        spec: dict[str, Any] = {"containers": [self._container(name) for name in names]}
        if dice.random() < 0.4:
            spec["initContainers"] = [
                self._container(
                    f"i{index}",
                    **({"restartPolicy": "Always"} if dice.random() < 0.6 else {}),
                )
                for index in range(dice.randint(1, 2))
            ]
        if dice.random() < 0.25:
            spec["resources"] = self._pod_level()
        metadata: dict[str, Any] = {"generateName": "random-"}
        if dice.random() < 0.75:
            metadata["annotations"] = {TRIGGER: dice.choice(("V100", "V100", "T4"))}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def chance(self, probability: float) -> bool:
        """Return whether what has this probability comes about."""
        return self._dice.random() < probability

    def _container(self, name: str, **fields: Any) -> dict[str, Any]:
        dice = self._dice
        if dice.random() < 0.2:
            return container(name, **fields)
        resources: dict[str, dict[str, str]] = {"requests": {}, "limits": {}}
        for resource, (probability, amounts) in _ASKED.items():
            if dice.random() < probability:
                amount = dice.choice(amounts)
                form = dice.random()
                if form < 0.8 or "/" not in resource:
                    resources["limits"][resource] = amount
                if form > 0.3:
                    other = dice.choice(amounts) if dice.random() < 0.15 else amount
                    resources["requests"][resource] = other
        return container(name, resources, **fields)

    def _pod_level(self) -> dict[str, dict[str, str]]:
        dice = self._dice
        level: dict[str, dict[str, str]] = {}
        for side in ("requests", "limits"):
            amounts = {
                name: dice.choice(values)
                for name, values in (
                    ("cpu", ("2", "8", "64", "500m")),
                    ("memory", ("4Gi", "64Gi", "512Gi")),
                )
                if dice.random() < 0.4
            }
            if amounts:
                level[side] = amounts
        return level
