"""Pods that another webhook changes, after ours has seen them or before."""

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from tests.e2e.harness.builders import GPU, JsonObject, make_node
from tests.e2e.harness.connection import ApiError
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.injecting import Creator, containers_of
from tests.e2e.harness.pod_changes import adds, asks, has_init
from tests.e2e.harness.product import Product
from tests.e2e.harness.second_webhook import (
    LABEL,
    Change,
    SecondWebhook,
    second_webhook,
)
from tests.e2e.harness.waiting import wait_for
from tests.fakes.webhook import (
    SHM,
    both,
    container,
    gpus,
    make_pod,
    per_gpu,
    rule,
)

MIG_1G: Final = "nvidia.com/mig-1g.10gb"
MIG_2G: Final = "nvidia.com/mig-2g.20gb"
MIG_3G: Final = "nvidia.com/mig-3g.30gb"
CHAIN: Final = [MIG_3G, MIG_2G, MIG_1G, GPU]
SEEN_SECONDS: Final = 10.0
MARK: Final = "gpu-extender.io/fallback-weighed"
HOLDS: Final = "gpu_extender_webhook_holds"
# Whatever is held at the end was not taken back by the pod.
HOLD_SECONDS: Final = 600
NETWORKS: Final = {"x.com/networks": "eni"}
PIECES: Final = per_gpu(SHM, 1, "Gi")
SLICE_RULE: Final = rule(
    per_gpu("cpu", 2), per_gpu("memory", 4, "Gi"), PIECES, annotations=NETWORKS
)
RULES: Final = {
    "resourceMap": {
        "V100": {
            GPU: rule(
                per_gpu("cpu", 4000, "m"),
                per_gpu("memory", 8, "Gi"),
                PIECES,
                annotations=NETWORKS,
            ),
            **dict.fromkeys(CHAIN[:-1], SLICE_RULE),
        }
    }
}


@pytest.fixture(scope="module")
def product(
    shared_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Product]:
    """The service and its webhook, and what nodes offer, for all tests of this file."""
    rules = tmp_path_factory.mktemp("rules") / "rules.json"
    rules.write_text(json.dumps(RULES))
    settings: Mapping[str, Any] = {
        "injection": {"rulesFile": str(rules), "schedulerName": "gpu-scheduler"},
        "fallback": {"chains": [CHAIN], "holdSeconds": HOLD_SECONDS},
    }
    plane = shared_control_plane
    with Product(plane, settings=settings) as installed:
        labels = {"nvidia.com/gpu.product": "Tesla-T4"}
        plane.client.create(make_node("a", resources={MIG_3G: 1, MIG_1G: 3}, gpus=4))
        plane.client.create(make_node("b", resources={MIG_2G: 1}))
        plane.client.create(make_node("c", gpus=8, labels=labels))
        installed.start()
        installed.register_webhook()
        yield installed
    plane.reset()


@pytest.fixture(scope="module")
def last(product: Product) -> Iterator[SecondWebhook]:
    """A webhook that is called after ours, for all tests of this file."""
    with second_webhook(product.plane, "later-than-ours") as started:
        yield started


@pytest.fixture(scope="module")
def first(product: Product) -> Iterator[SecondWebhook]:
    """A webhook that is called before ours, and again if we have changed the pod."""
    with second_webhook(
        product.plane, "before-ours", reinvocation="IfNeeded"
    ) as started:
        yield started


@pytest.fixture
def after(last: SecondWebhook) -> Iterator[SecondWebhook]:
    """The webhook that is called after ours; it changes nothing until it is told."""
    yield last
    last.stop_changing()


@pytest.fixture
def before(first: SecondWebhook) -> Iterator[SecondWebhook]:
    """The webhook that is called before ours; it changes nothing until it is told."""
    yield first
    first.stop_changing()


@pytest.fixture
def created(product: Product) -> Iterator[Creator]:
    """Creates pods, which are deleted at the end."""
    creator = Creator(product)
    yield creator
    creator.delete_all()
    wait_for_calm(product)


def wait_for_calm(product: Product) -> None:
    """Wait until the service knows of no pod, and nothing is held."""

    def is_calm() -> bool:
        pods = product.metric("gpu_extender_cache_objects", kind="pods")
        return not pods and not product.metric(HOLDS)

    wait_for(is_calm, timeout_seconds=SEEN_SECONDS, what="no pod and no hold")


SLICE: Final = make_pod(container("a", both({MIG_2G: "1"})))
LARGE: Final = make_pod(container("a", both({MIG_3G: "2"})))
GPU_POD: Final = make_pod(container("a", gpus(1)))
CHANGES: Final = [
    pytest.param(GPU_POD, asks({GPU: "1"}), id="adds a container with a GPU"),
    pytest.param(GPU_POD, asks({"cpu": "1"}), id="adds a container without GPU"),
    pytest.param(GPU_POD, asks({GPU: "2"}, "a"), id="changes the number of GPUs"),
    pytest.param(GPU_POD, has_init(), id="adds an init container"),
    pytest.param(GPU_POD, has_init(restartPolicy="Always"), id="adds a sidecar"),
    pytest.param(GPU_POD, asks({MIG_3G: "1"}, "a"), id="a slice for a card"),
    pytest.param(SLICE, asks({MIG_3G: "1"}, "a"), id="another slice, which is free"),
    pytest.param(SLICE, asks({MIG_3G: "2"}, "a"), id="another slice, which falls"),
    pytest.param(SLICE, asks({MIG_2G: "2"}, "a"), id="more slices than there are"),
    pytest.param(SLICE, asks({MIG_2G: "1"}), id="a second container with a slice"),
    pytest.param(SLICE, asks({"cpu": "1"}), id="a container beside the slice"),
    pytest.param(LARGE, asks({"cpu": "1"}), id="a container beside one that fell"),
    pytest.param(LARGE, asks({MIG_2G: "1"}, "a"), id="a slice for what it fell to"),
]


@pytest.mark.parametrize(("pod", "change"), CHANGES)
@pytest.mark.parametrize("name", ["named", ""])
def test_a_pod_that_is_changed_afterwards_is_as_if_it_had_come_like_that(
    after: SecondWebhook,
    created: Creator,
    pod: JsonObject,
    change: Change,
    name: str,
) -> None:
    once = created_alone(created, with_name(pod, name), change)
    after.change = change
    reviews = created.product.calls_of("mutate")

    twice = created.create(with_name(pod, name, labels=LABEL))

    assert created.product.calls_of("mutate") == reviews + 2
    assert decided(twice) == decided(once)


def created_alone(created: Creator, pod: JsonObject, change: Change) -> JsonObject:
    """Return what becomes of a changed pod that no other webhook sees.

    It is gone when this returns, and nothing is held.
    """
    change(pod)
    made = created.create(pod)
    created.delete_all()
    wait_for_calm(created.product)
    return made


def with_name(pod: JsonObject, name: str, **metadata: Any) -> JsonObject:
    """Return a copy with a name, or one whose name is to be generated."""
    named = copy.deepcopy(pod)
    annotations = pod["metadata"]["annotations"]
    who = {"name": name} if name else {"generateName": "made-"}
    named["metadata"] = {**who, "annotations": annotations, **metadata}
    return named


def decided(pod: JsonObject) -> JsonObject:
    """Return all that we decide about a pod."""
    resources = {one["name"]: one.get("resources") for one in containers_of(pod)}
    spec = pod["spec"]
    return {
        "resources": resources,
        "annotations": pod["metadata"]["annotations"],
        "affinity": spec.get("affinity"),
        "scheduler": spec["schedulerName"],
    }


def test_a_pod_that_is_changed_before_is_reviewed_by_us_once(
    before: SecondWebhook, created: Creator
) -> None:
    change = adds({MIG_2G: "1"})
    once = created_alone(created, with_name(SLICE, ""), change)
    before.change = change
    reviews = created.product.calls_of("mutate")

    made = created.create(with_name(SLICE, "", labels=LABEL))

    assert created.product.calls_of("mutate") == reviews + 1
    assert decided(made) == decided(once)
    # It is asked again, since we have changed the pod, and finds nothing to do.
    assert [MARK in pod["metadata"]["annotations"] for pod in before.seen] == [
        False,
        True,
    ]


def test_a_webhook_before_ours_that_answers_our_change_is_followed(
    before: SecondWebhook, created: Creator
) -> None:
    change = adds({MIG_2G: "1"})
    once = created_alone(created, with_name(SLICE, ""), change)

    def answer(pod: JsonObject) -> None:
        if MARK in pod["metadata"]["annotations"]:
            change(pod)

    before.change = answer
    reviews = created.product.calls_of("mutate")

    made = created.create(with_name(SLICE, "", labels=LABEL))

    assert created.product.calls_of("mutate") == reviews + 2
    assert decided(made) == decided(once)


def test_a_pod_that_is_changed_beyond_its_budget_is_refused_and_holds_nothing(
    after: SecondWebhook, created: Creator
) -> None:
    after.change = asks({"cpu": "3"})

    with pytest.raises(ApiError) as refused:
        created.create(with_name(SLICE, "", labels=LABEL))

    assert "cpu short by 1 for container 'a'" in refused.value.message


def test_a_change_that_is_none_has_no_second_review(
    after: SecondWebhook, created: Creator
) -> None:
    reviews = created.product.calls_of("mutate")

    made = created.create(with_name(SLICE, "", labels=LABEL))

    assert created.product.calls_of("mutate") == reviews + 1
    assert made["metadata"]["annotations"][MARK] == MIG_2G
    assert len(after.seen) == 1
