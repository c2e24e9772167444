"""Pods that fell to a resource for which their type has no rule."""

import copy
from typing import Any, Final

import pytest

from injector.admitted_pod import FallenResource
from injector.fallback.alternatives import read_record
from injector.fallback.chains import Chains
from tests.builders import make_node
from tests.fakes.admissions import Admissions
from tests.fakes.webhook import (
    GPU,
    TRIGGER,
    Webhook,
    both,
    container,
    make_pod,
    make_webhook,
    per_gpu,
    rule,
)

MIG_3G: Final = "nvidia.com/mig-3g.30gb"
MIG_2G: Final = "nvidia.com/mig-2g.20gb"
MIG_1G: Final = "nvidia.com/mig-1g.10gb"
CHAIN: Final = (MIG_3G, MIG_2G, MIG_1G, GPU)
RECORD: Final = "gpu-webhook.k8s.io/fallback"
MARK: Final = "gpu-extender.io/fallback-weighed"
TWO: Final = rule(
    per_gpu("cpu", 3), per_gpu("memory", 6, "Gi"), annotations={"x.com/y": "2"}
)
THREE: Final = rule(per_gpu("cpu", 5), per_gpu("x.com/core", 1.5))
ONE_RULE: Final = {"resourceMap": {"A100": {MIG_2G: TWO}}}
TWO_RULES: Final = {"resourceMap": {"A100": {MIG_2G: TWO, MIG_3G: THREE}}}
WARNING: Final = f"no rule for GPU type 'A100' and {GPU}: that of {MIG_2G} applies"


def webhook(rules: dict[str, Any], existing: str = "overwrite") -> Webhook:
    """Return a webhook in a cluster that has whole GPUs only."""
    admissions = Admissions(nodes=[make_node(gpus=8)], chains=(CHAIN,))
    return make_webhook(rules, existing=existing, fallback=admissions.fallback)


def pod_of(*asked: dict[str, str], **spec: Any) -> dict[str, Any]:
    containers = [
        container(f"c{index}", both(amounts)) for index, amounts in enumerate(asked)
    ]
    return make_pod(*containers, gpu_type="A100", **spec)


@pytest.mark.parametrize("existing", ["overwrite", "keep"])
def test_the_rule_of_what_it_asked_counts(existing: str) -> None:
    hook = webhook(ONE_RULE, existing)

    answered = hook.send(pod_of({MIG_2G: "1"}))

    assert answered.amounts("c0") == {GPU: "1", "cpu": "3", "memory": "6Gi"}
    assert answered.annotations[RECORD] == "2g.20gb->gpu"
    assert answered.annotations["x.com/y"] == "2"
    assert WARNING in answered.warnings


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param(
            [{MIG_2G: "2"}],
            [{GPU: "2", "cpu": "6", "memory": "12Gi"}],
            id="two of them",
        ),
        pytest.param(
            [{MIG_2G: "1", GPU: "1"}],
            [{GPU: "2", "cpu": "3", "memory": "6Gi"}],
            id="units that it asked itself get none",
        ),
        pytest.param(
            [{MIG_2G: "1"}, {GPU: "2", "cpu": "1"}],
            [{GPU: "1", "cpu": "2", "memory": "6Gi"}, {GPU: "2", "cpu": "1"}],
            id="another container that asked the target",
        ),
        pytest.param(
            [{MIG_2G: "1"}, {MIG_3G: "1"}],
            [
                {GPU: "1", "cpu": "3", "memory": "6Gi"},
                {GPU: "1", "cpu": "5", "x.com/core": "1"},
            ],
            id="each container its own",
        ),
        pytest.param(
            [{MIG_2G: "1", MIG_3G: "1"}],
            [{GPU: "2", "cpu": "8", "memory": "6Gi", "x.com/core": "1"}],
            id="two sources in one container",
        ),
        pytest.param(
            [{MIG_2G: "1"}, {MIG_3G: "1"}, {"cpu": "800m"}],
            [
                {GPU: "1", "cpu": "2700m", "memory": "6Gi"},
                {GPU: "1", "cpu": "4500m", "x.com/core": "1"},
                {"cpu": "800m"},
            ],
            id="others come off in proportion",
        ),
        pytest.param(
            [{MIG_2G: "1"}, {"cpu": "1", "memory": "2Gi"}],
            [
                {GPU: "1", "cpu": "2", "memory": "4Gi"},
                {"cpu": "1", "memory": "2Gi"},
            ],
            id="others come off",
        ),
    ],
)
def test_each_container_gets_what_it_had_asked(
    asked: list[dict[str, str]], expected: list[dict[str, str]]
) -> None:
    answered = webhook(TWO_RULES).send(pod_of(*asked))

    assert [answered.amounts(f"c{index}") for index in range(len(asked))] == expected


def test_a_rule_for_the_target_always_counts() -> None:
    rules = {"resourceMap": {"A100": {MIG_2G: TWO, GPU: rule(per_gpu("cpu", 1))}}}

    answered = webhook(rules).send(pod_of({MIG_2G: "1"}))

    assert answered.amounts("c0") == {GPU: "1", "cpu": "1"}
    assert WARNING not in answered.warnings


def test_without_a_rule_for_either_nothing_is_injected() -> None:
    rules = {"resourceMap": {"A100": {MIG_3G: THREE}}}

    answered = webhook(rules).send(pod_of({MIG_2G: "1"}))

    assert answered.amounts("c0") == {GPU: "1"}


def test_a_budget_of_several_sources_names_them() -> None:
    asked = [{MIG_2G: "1"}, {MIG_3G: "1"}, {"cpu": "9"}]

    answered = webhook(TWO_RULES).send(pod_of(*asked))

    assert (
        f"cpu short by 1 for container 'c0', 'c1': others ask 9 ('c2' 9), the budget of"
        f" 1 {MIG_2G}, 1 {MIG_3G} is 8"
    ) in answered.message


def test_a_later_container_is_told_from_what_fell() -> None:
    hook = webhook(ONE_RULE)
    pod = hook.send(pod_of({MIG_2G: "1"})).pod
    pod["spec"]["containers"].append(container("own", both({GPU: "1", "cpu": "1"})))

    answered = hook.send(pod)

    assert answered.amounts("c0") == {GPU: "1", "cpu": "2", "memory": "6Gi"}
    assert answered.amounts("own") == {GPU: "1", "cpu": "1"}


@pytest.mark.parametrize(
    ("record", "mark", "fallen"),
    [
        pytest.param(
            "2g.20gb->gpu", [GPU], (FallenResource("", MIG_2G, GPU),), id="one"
        ),
        pytest.param(
            "c0=2g.20gb->1g.10gb,c1=3g.30gb->1g.10gb",
            [MIG_1G],
            (
                FallenResource("c0", MIG_2G, MIG_1G),
                FallenResource("c1", MIG_3G, MIG_1G),
            ),
            id="two containers",
        ),
        pytest.param("2g.20gb->gpu", [MIG_1G], (), id="not what the mark says"),
        pytest.param("1g.10gb->2g.20gb", [MIG_2G], (), id="against the chain"),
        pytest.param("4g.40gb->gpu", [GPU], (), id="not of the chain"),
        pytest.param("gpu", [GPU], (), id="no record"),
        pytest.param("", [GPU], (), id="nothing"),
        pytest.param("->", [GPU], (), id="an arrow"),
        pytest.param("x" * 20_000 + "2g.20gb->gpu", [GPU], (), id="too long"),
    ],
)
def test_a_record_is_read_where_it_agrees_with_mark_and_chain(
    record: str, mark: list[str], fallen: tuple[FallenResource, ...]
) -> None:
    assert read_record(record, mark, Chains((CHAIN,))) == fallen


def test_a_record_that_somebody_made_up_brings_at_most_what_is_asked() -> None:
    pod = pod_of({GPU: "1"})
    pod["metadata"]["annotations"] = {
        TRIGGER: "A100",
        RECORD: "2g.20gb->gpu",
        MARK: GPU,
        "gpu-extender.io/filled": '{"c0":{"fallback":{"nvidia.com/mig-2g.20gb":"99"}}}',
    }

    answered = webhook(ONE_RULE).send(copy.deepcopy(pod))

    assert answered.amounts("c0") == {GPU: "1", "cpu": "3", "memory": "6Gi"}
