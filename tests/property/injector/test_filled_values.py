"""What LimitRanger filled in, against a plain reference in whole bytes."""

import random
from typing import Any, Final

from injector.admitted_pod import LIMIT_RANGER_ANNOTATION
from tests.fakes.webhook import (
    both,
    container,
    gpus,
    make_pod,
    make_webhook,
    per_gpu,
    v100,
)

GIB: Final = 2**30
PER_GPU: Final = 8 * GIB
PAGE: Final = 4096
PODS: Final = 600
WEBHOOK: Final = make_webhook(v100(per_gpu("memory", 8, "Gi")))
SIZES: Final = (0, 1, GIB, 3 * GIB + 1, 5 * GIB, 8 * GIB, 2**20 - 7)


def share(pool: int, weights: list[int]) -> list[int]:
    """Share whole bytes by weight; the largest fractions get one more, in order."""
    total = sum(weights)
    shares = [pool * weight // total for weight in weights]
    order = sorted(range(len(weights)), key=lambda i: (-(pool * weights[i] % total), i))
    for index in order[: pool - sum(shares)]:
        shares[index] += 1
    return shares


def reference(
    counts: list[int], written: list[int], filled: list[int]
) -> tuple[list[int], list[int]] | None:
    """Return bytes of the GPU containers and of the filled ones, None for a refusal."""
    left = PER_GPU * sum(counts) - sum(written)
    if left <= 0:
        return None
    if sum(filled) * 2 > left:
        lowered = share(left // 2, filled)
        filled = [
            min(max(new, PAGE), old) for new, old in zip(lowered, filled, strict=True)
        ]
    rest = left - sum(filled)
    shares = share(max(rest, 0), counts)
    return (shares, filled) if min(shares) >= PAGE else None


def draw(dice: random.Random) -> tuple[dict[str, Any], list[list[int]]]:
    """Return a pod, and GPUs, written and filled bytes of its containers."""
    counts = [dice.randint(1, 4) for _ in range(dice.randint(1, 3))]
    written = [dice.choice(SIZES) for _ in range(dice.randint(0, 2))]
    filled = [dice.choice(SIZES[1:]) for _ in range(dice.randint(0, 3))]
    main = [container(f"g{i}", gpus(count)) for i, count in enumerate(counts)]
    main += [
        container(f"w{i}", both({"memory": str(size)}))
        for i, size in enumerate(written)
    ]
    init, clauses = [], []
    for i, size in enumerate(filled):
        asked = both({"memory": str(size)})
        kind = "container"
        if dice.random() < 0.5:
            main.append(container(f"f{i}", asked))
        else:
            init.append(container(f"f{i}", asked, restartPolicy="Always"))
            kind = "init container"
        clauses += [f"memory {side} for {kind} f{i}" for side in ("request", "limit")]
    said = {LIMIT_RANGER_ANNOTATION: "LimitRanger plugin set: " + "; ".join(clauses)}
    pod = make_pod(*main, initContainers=init, annotations=said if clauses else {})
    # Regular containers come first among those that share.
    order = [item["name"] for item in (*main, *init) if item["name"][0] == "f"]
    return pod, [counts, written, [filled[int(name[1:])] for name in order]]


def test_amounts_beside_filled_values_are_those_of_the_reference() -> None:
    dice = random.Random(49)  # noqa: S311  the same pods in every run
    lowered = 0
    for _ in range(PODS):
        pod, (counts, written, filled) = draw(dice)

        answered = WEBHOOK.send(pod)

        wanted = reference(counts, written, filled)
        assert answered.is_allowed == (wanted is not None), pod
        if wanted is None:
            continue
        spec = answered.pod["spec"]
        everything = [*spec["containers"], *spec["initContainers"]]

        def bytes_of(first: str, found: list[Any] = everything) -> list[int]:
            return [
                whole(item["resources"]["requests"]["memory"])
                for item in found
                if item["name"][0] == first
            ]

        assert (bytes_of("g"), bytes_of("f")) == wanted, pod
        assert bytes_of("w") == written
        lowered += wanted[1] != filled
    assert lowered > PODS // 20


def whole(text: str) -> int:
    """Return a quantity of memory in bytes."""
    for suffix, factor in (("Ki", 2**10), ("Mi", 2**20), ("Gi", 2**30)):
        if text.endswith(suffix):
            return int(text.removesuffix(suffix)) * factor
    return int(text)
