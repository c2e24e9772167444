"""Pods through the real API server with the webhook and without it."""

import copy
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from tests.e2e.harness.builders import GPU, JsonObject, make_node
from tests.e2e.harness.connection import ApiError
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.product import Product
from tests.e2e.harness.second_webhook import LABEL, SecondWebhook, second_webhook
from tests.fakes.webhook import TRIGGER, both, container, gpus, make_pod, per_gpu, rule
from tests.random_pods import CHAIN, MIG_1G, MIG_2G, RULES, RandomPods

# Our webhook is not called in it.
WITHOUT: Final = "without-us"
RANGED: Final = "ranged"
RANGED_WITHOUT: Final = "ranged-without-us"
PLAIN: Final = "default"
PODS: Final = int(os.environ.get("RANDOM_PODS", "2000"))
V100_4: Final = rule(per_gpu("cpu", 4), per_gpu("memory", 8, "Gi"))
SHOWN: Final = 5
# What we refuse by our own word.
OURS: Final = ("asks more than one GPU resource", "the budget of")
UNLIMITED: Final = "Limit must be set for non overcommitable resources"
STALE: Final = "must be greater than or equal to aggregate container requests"
ADMISSION_WEBHOOK: Final = "admission webhook"


@pytest.fixture(scope="module")
def product(
    shared_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Product]:
    """The service with chains and rules, in namespaces with and without LimitRange."""
    plane = shared_control_plane
    rules = tmp_path_factory.mktemp("rules") / "rules.json"
    everything: dict[str, Any] = copy.deepcopy(RULES)
    everything["resourceMap"]["A100"] = dict.fromkeys(CHAIN, V100_4)
    rules.write_text(json.dumps(everything))
    settings: Mapping[str, Mapping[str, Any]] = {
        "injection": {"rulesFile": str(rules)},
        "fallback": {"chains": [list(CHAIN)]},
    }
    with Product(plane, settings=settings) as installed:
        disabled = {"gpu-extender.io/webhook": "disabled"}
        for name, labels in {
            WITHOUT: disabled,
            RANGED: {},
            RANGED_WITHOUT: disabled,
        }.items():
            plane.client.apply(
                {
                    "apiVersion": "v1",
                    "kind": "Namespace",
                    "metadata": {"name": name, "labels": labels},
                }
            )
        for name in (RANGED, RANGED_WITHOUT):
            plane.client.apply(limit_range(name))
        plane.client.create(make_node("a", resources={MIG_1G: 28}, gpus=8))
        installed.start()
        installed.register_webhook()
        yield installed
    plane.reset()


def limit_range(namespace: str) -> JsonObject:
    """Return defaults that take the whole memory of one GPU."""
    amounts = {"cpu": "2", "memory": "8Gi"}
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "defaults", "namespace": namespace},
        "spec": {
            "limits": [
                {"type": "Container", "default": amounts, "defaultRequest": amounts}
            ]
        },
    }


@pytest.fixture(scope="module")
def later(product: Product) -> Iterator[SecondWebhook]:
    """A webhook after ours, which adds a container where it is told."""
    with second_webhook(product.plane, "later-than-ours") as started:
        yield started


def tried(product: Product, pod: JsonObject, namespace: str) -> JsonObject | ApiError:
    """Return what the API server would store, or why it refuses the pod."""
    sent = copy.deepcopy(pod)
    sent["metadata"]["namespace"] = namespace
    try:
        return product.client.create(sent, query={"dryRun": "All"})
    except ApiError as error:
        return error


def stored(product: Product, pod: JsonObject, namespace: str = PLAIN) -> JsonObject:
    answer = tried(product, pod, namespace)
    assert not isinstance(answer, ApiError), answer
    return answer


def resources_of(pod: JsonObject) -> dict[str, JsonObject]:
    return {item["name"]: item["resources"] for item in pod["spec"]["containers"]}


@pytest.mark.parametrize("gpu_type", [None, "A100"])
@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(both({MIG_2G: "500m"}), id="half a slice"),
        pytest.param(both({MIG_2G: "1500m"}), id="a slice and a half"),
        pytest.param(
            {"requests": {MIG_2G: "1"}, "limits": {MIG_2G: "2"}}, id="below its limit"
        ),
        pytest.param(
            {"requests": {MIG_2G: "2"}, "limits": {MIG_2G: "1"}}, id="above its limit"
        ),
        pytest.param(both({GPU: "1500m"}), id="parts of what does not fall"),
    ],
)
def test_what_the_api_server_refuses_it_refuses_with_us(
    product: Product, asked: JsonObject, gpu_type: str | None
) -> None:
    pod = make_pod(container("a", asked), gpu_type=gpu_type)

    with_us, without = tried(product, pod, PLAIN), tried(product, pod, WITHOUT)

    assert isinstance(with_us, ApiError)
    assert isinstance(without, ApiError)
    assert with_us.status == without.status == 422
    assert with_us.message == without.message


def test_a_pod_level_that_is_set_in_part_stands_in_nobodys_way(
    product: Product, later: SecondWebhook
) -> None:
    def add(pod: JsonObject) -> None:
        if len(pod["spec"]["containers"]) == 1:
            pod["spec"]["containers"].append(container("b", both({"cpu": "1"})))

    later.change = add
    pod = make_pod(
        container("a", gpus(1)),
        gpu_type="A100",
        metadata={"labels": LABEL},
        resources={"limits": {"memory": "4Gi"}},
    )

    made = stored(product, pod)
    later.stop_changing()

    assert resources_of(made)["a"] == gpus(1, cpu="3")
    assert made["spec"]["resources"]["requests"] == {"cpu": "4", "memory": "4Gi"}


def test_requests_that_were_derived_for_the_pod_are_followed(product: Product) -> None:
    pod = make_pod(
        container("a", gpus(1)),
        container("s", {"requests": {"cpu": "500m"}}),
        gpu_type="A100",
        resources={"limits": {"memory": "4Gi"}},
    )

    made = stored(product, pod)

    assert resources_of(made)["a"] == gpus(1, cpu="3500m")
    assert made["spec"]["resources"]["requests"] == {"cpu": "4", "memory": "4Gi"}


def test_huge_pages_are_not_injected_where_nothing_stands_beside_them(
    product: Product,
) -> None:
    pod = make_pod(
        container("a", gpus(1)), resources=both({"cpu": "8", "memory": "9Gi"})
    )

    made = stored(product, pod)

    assert "hugepages-2Mi" not in resources_of(made)["a"]["limits"]


def test_a_sidecar_that_asked_nothing_refuses_no_pod(product: Product) -> None:
    pod = make_pod(container("a", gpus(1)), container("s"), gpu_type="A100")

    made = stored(product, pod, RANGED)

    assert resources_of(made) == {
        "a": gpus(1, cpu="2", memory="4Gi"),
        "s": both({"cpu": "2", "memory": "4Gi"}),
    }


def is_completed_by_us(pod: JsonObject, refused: ApiError) -> bool:
    """Whether a limit is missing that injection adds, and nothing else is wrong."""
    causes = refused.message.count("spec.")
    is_typed = pod["metadata"].get("annotations", {}).get(TRIGGER) == "V100"
    return is_typed and refused.message.count(UNLIMITED) == causes


@pytest.mark.long
def test_random_pods_are_refused_with_us_just_where_they_are_without(
    product: Product, later: SecondWebhook
) -> None:
    drawn, counts, apart = RandomPods(3), Counter[str](), list[str]()

    def add(pod: JsonObject) -> None:
        if all(item["name"] != "later" for item in pod["spec"]["containers"]):
            asked = both({"cpu": "100m", "memory": "64Mi"})
            pod["spec"]["containers"].append(container("later", asked))

    later.change = add
    for _ in range(PODS):
        pod = drawn.draw()
        if drawn.chance(0.3):
            pod["metadata"]["labels"] = LABEL
        is_ranged = drawn.chance(0.3)
        with_us = tried(product, pod, RANGED if is_ranged else PLAIN)
        without = tried(product, pod, RANGED_WITHOUT if is_ranged else WITHOUT)
        outcome = compared(pod, with_us, without)
        counts[outcome] += 1
        if not outcome:
            apart.append(f"{json.dumps(pod)}\nwith: {with_us}\nwithout: {without}")
    later.stop_changing()
    print(dict(counts))  # noqa: T201  the figures belong in the run's record
    assert not apart, "\n".join(apart[:SHOWN])
    assert counts["accepted"] > PODS // 5
    assert counts["refused"] > PODS // 20


def compared(
    pod: JsonObject, with_us: JsonObject | ApiError, without: JsonObject | ApiError
) -> str:
    """Return how two answers agree; empty if they do not."""
    if not isinstance(with_us, ApiError):
        if not isinstance(without, ApiError):
            return "accepted"
        if is_completed_by_us(pod, without):
            return "completed"
        # What was derived before a container came follows it only with us.
        is_stale = STALE in without.message and "labels" in pod["metadata"]
        return "followed" if is_stale else ""
    if ADMISSION_WEBHOOK in with_us.message:
        is_told = any(text in with_us.message for text in OURS)
        return "refused by us" if is_told else ""
    return "refused" if isinstance(without, ApiError) else ""
