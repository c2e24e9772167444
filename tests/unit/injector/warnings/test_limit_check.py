"""Warnings for pods above what a LimitRange allows."""

from typing import Any

import pytest

from cluster.ledger.changes import LimitRangesListed
from cluster.ledger.writer import SnapshotCell
from injector.warnings.capacity import LimitCheck
from scoring.protocols import LimitMaxima
from tests.builders import SCOPE, make_ledger
from tests.fakes.webhook import Webhook, container, gpus, make_pod, make_webhook

GIB = 2**30


def checking(maxima: LimitMaxima | None, namespace: str = "default") -> Webhook:
    """Return a webhook over a cluster whose namespace allows no more than that."""
    cell = SnapshotCell()
    if maxima is not None:
        ledger = make_ledger()
        ledger.apply(LimitRangesListed({namespace: maxima}))
        cell.publish(ledger.build())
    return make_webhook(steps=(LimitCheck(cell, SCOPE),))


PAIR = make_pod(container("a", gpus(2)), container("b", gpus(1)))
REFUSED = "; it will be refused: ask for less, or have its max raised"
SIDECAR = container("i", {"limits": {"cpu": "2"}}, restartPolicy="Always")


@pytest.mark.parametrize(
    ("pod", "maxima", "warnings"),
    [
        pytest.param(
            PAIR,
            LimitMaxima(container=(("cpu", 6000), ("memory", 16 * GIB))),
            [
                "container 'a': cpu 8 is more than the 6 that a LimitRange allows"
                + REFUSED
            ],
            id="one container",
        ),
        pytest.param(
            PAIR,
            LimitMaxima(pod=(("cpu", 11_500), ("memory", 20 * GIB))),
            [
                "the pod: cpu 12 is more than the 11500m that a LimitRange allows"
                + REFUSED,
                "the pod: memory 24Gi is more than the 20Gi that a LimitRange allows"
                + REFUSED,
            ],
            id="all containers together",
        ),
        pytest.param(
            PAIR,
            LimitMaxima(container=(("cpu", 8000),), pod=(("cpu", 12_000),)),
            [],
            id="exactly as much",
        ),
        pytest.param(
            make_pod(container("a", gpus(1)), initContainers=[SIDECAR]),
            LimitMaxima(container=(("cpu", 1900),), pod=(("nvidia.com/gpu", 0),)),
            [
                "container 'a': cpu 2 is more than the 1900m that a LimitRange allows"
                + REFUSED,
                "container 'i': cpu 2 is more than the 1900m that a LimitRange allows"
                + REFUSED,
                "the pod: nvidia.com/gpu 1 is more than the 0 that a LimitRange allows"
                + REFUSED,
            ],
            id="a container that goes on running beside",
        ),
        pytest.param(
            make_pod(container("a", {"limits": {"cpu": "9"}}), gpu_type=None),
            LimitMaxima(container=(("cpu", 1000),)),
            [],
            id="a pod without a GPU",
        ),
    ],
)
def test_what_is_above_a_maximum_is_told_with_both_numbers(
    pod: Any, maxima: LimitMaxima, warnings: list[str]
) -> None:
    answered = checking(maxima).send(pod)

    assert answered.is_allowed
    assert answered.warnings == warnings


@pytest.mark.parametrize(
    "webhook",
    [
        pytest.param(
            checking(LimitMaxima(container=(("cpu", 1),)), "other"),
            id="another namespace's",
        ),
        pytest.param(checking(None), id="before the cluster is read"),
    ],
)
def test_no_maximum_is_no_warning(webhook: Webhook) -> None:
    assert webhook.send(PAIR).warnings == []
