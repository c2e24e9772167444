"""Which pods the policy sends to a scheduler: those that the webhook would."""

import operator
import random
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import cel
import pytest

from injector.steps import SchedulerStep
from scoring.quantity import exact_amount
from service.settings.settings import Settings
from tests.chart.rendering import HELMS, MODES, find, merged, render
from tests.fakes.webhook import both, container, gpus, make_pod, make_webhook
from tests.random_pods import RandomPods

POLICY: Final = "MutatingAdmissionPolicy"
OURS: Final = "gpu-extender-scheduler"
OUT: Final = "gpu-extender.io/scheduler"
MIRROR: Final = {"kubernetes.io/config.mirror": "x"}
NOTHING: Final[Mapping[str, Any]] = {}
THEIRS: Final[Mapping[str, Any]] = {
    "scheduler": {"enabled": False},
    "config": {
        "managedPrefixes": ["x.io/", "it's/"],
        "gpuResources": ["y.io/gpu", "z.io/a-*"],
        "injection": {
            "schedulerName": "their.scheduler",
            "schedulerOptOutLabel": "example.org/scheduler",
        },
    },
}

helms = pytest.mark.parametrize("helm", HELMS)


def rendered(helm: str, values: Mapping[str, Any] = NOTHING) -> list[dict[str, Any]]:
    """Return the objects of a release with the policy."""
    return render(helm, merged(values, MODES["scheduler name policy"]))


@cache
def default_policy() -> Any:
    """Return the spec of the policy that is rendered without other values."""
    return find(rendered(HELMS[0]), POLICY)["spec"]


def is_matched(policy: Any, pod: Mapping[str, Any]) -> bool:
    """Say whether the policy changes a pod in a namespace that it looks at.

    Amounts are compared as numbers, as those of the API server's `quantity` are.
    """
    labels = pod["metadata"].get("labels", {})
    for term in policy["matchConstraints"]["objectSelector"]["matchExpressions"]:
        assert term["operator"] == "NotIn"
        if labels.get(term["key"]) in term["values"]:
            return False
    context = cel.Context({"object": pod})
    context.add_function("quantity", lambda text: float(exact_amount(text)))
    context.add_function("isGreaterThan", operator.gt)
    return all(
        cel.evaluate(condition["expression"], context)
        for condition in policy["matchConditions"]
    )


def chosen_by_policy(pod: Mapping[str, Any]) -> str:
    """Return the scheduler of a pod behind the policy."""
    before: str = pod["spec"]["schedulerName"]
    return OURS if is_matched(default_policy(), pod) else before


def chosen_by_webhook(pod: Mapping[str, Any]) -> str | None:
    """Return the scheduler of a pod behind the webhook; None if it is refused."""
    settings = Settings()
    label = settings.injection.scheduler_opt_out_label
    steps = (SchedulerStep(settings.scope(), OURS, label),)
    answered = make_webhook({}, steps=steps).send(pod)
    name: str = answered.pod["spec"]["schedulerName"]
    return name if answered.is_allowed else None


def pod_with(
    resources: Any, /, *, scheduler: str = "default-scheduler", **more: Any
) -> Any:
    """Return a pod of one container, defaulted as the API server shows it."""
    main = container("main", resources)
    return make_pod(main, gpu_type=None, schedulerName=scheduler, **more)


def init(resources: Any, /, **more: Any) -> dict[str, Any]:
    return {"initContainers": [container("init", resources, **more)]}


ONE: Final = gpus(1)
POD_LEVEL: Final[Mapping[str, Any]] = {"resources": both({"cpu": "4", "memory": "8Gi"})}
PODS: Final[Mapping[str, tuple[Any, str]]] = {
    "limits alone": (pod_with({"limits": ONE["limits"]}), OURS),
    "requests alone": (pod_with({"requests": ONE["requests"]}), OURS),
    "init container": (pod_with(None, **init(ONE)), OURS),
    "sidecar": (pod_with({}, **init(ONE, restartPolicy="Always")), OURS),
    "MIG slice": (pod_with(both({"nvidia.com/mig-1g.10gb": "2"})), OURS),
    "share": (pod_with(both({"nvidia.com/gpu.shared": "1"})), OURS),
    "memory of a GPU": (pod_with(both({"nvidia.com/gpu-memory": "4"})), OURS),
    "another vendor": (pod_with(both({"amd.com/gpu": "1"})), OURS),
    "pod level beside": (pod_with(ONE, **POD_LEVEL), OURS),
    "amount with a suffix": (pod_with(both({"nvidia.com/gpu": "1k"})), OURS),
    "another scheduler": (pod_with(ONE, scheduler="volcano"), OURS),
    "our scheduler": (pod_with(ONE, scheduler=OURS), OURS),
    "label of no meaning": (pod_with(ONE, metadata={"labels": {OUT: "no"}}), OURS),
    "keep": (pod_with(ONE, metadata={"labels": {OUT: "keep"}}), "default-scheduler"),
    "keep another": (
        pod_with(ONE, scheduler="volcano", metadata={"labels": {OUT: "keep"}}),
        "volcano",
    ),
    "mirror pod": (pod_with(ONE, annotations=MIRROR), "default-scheduler"),
    "none": (pod_with(both({"nvidia.com/gpu": "0"})), "default-scheduler"),
    "no GPU": (pod_with(both({"cpu": "1"})), "default-scheduler"),
    "no GPU on pod level": (pod_with(None, **POD_LEVEL), "default-scheduler"),
    "another resource": (pod_with(both({"rdma/hca": "1"})), "default-scheduler"),
    "type alone": (
        pod_with(None, annotations={"task.bkbcs.tencent.com/gpu-type": "T4"}),
        "default-scheduler",
    ),
}


@pytest.mark.parametrize(("pod", "scheduler"), PODS.values(), ids=list(PODS))
def test_the_policy_chooses_as_the_webhook_does(pod: Any, scheduler: str) -> None:
    assert chosen_by_policy(pod) == scheduler
    assert chosen_by_webhook(pod) == scheduler


def test_the_policy_chooses_as_the_webhook_does_for_any_pod() -> None:
    dice, drawn = random.Random(1), RandomPods(1)  # noqa: S311  the same in every run
    counted = dict.fromkeys((True, False), 0)
    for _ in range(300):
        pod = drawn.draw()
        pod["spec"]["schedulerName"] = dice.choice(("default-scheduler", "a", OURS))
        label = dice.choice((None, None, "keep", "other"))
        if label is not None:
            pod["metadata"]["labels"] = {OUT: label}
        if dice.random() < 0.1:
            pod["metadata"].setdefault("annotations", {}).update(MIRROR)
        wanted = chosen_by_webhook(pod)
        if wanted is not None:
            assert chosen_by_policy(pod) == wanted, pod
            counted[wanted != pod["spec"]["schedulerName"]] += 1

    assert min(counted.values()) > 50, counted


@helms
def test_a_pod_is_given_the_scheduler_of_the_release(helm: str) -> None:
    values = {"scheduler": {"name": "gpus"}, "webhook": {"failurePolicy": "Ignore"}}
    objects = rendered(helm, values)

    policy = find(objects, POLICY, "gpu-extender-scheduler-name")
    binding = find(objects, f"{POLICY}Binding")
    (mutation,) = policy["spec"]["mutations"]
    assert mutation["jsonPatch"]["expression"].strip() == (
        '[JSONPatch{op: "add", path: "/spec/schedulerName", value: \'gpus\'}]'
    )
    assert policy["spec"]["failurePolicy"] == "Ignore"
    assert binding["spec"] == {"policyName": policy["metadata"]["name"]}


@helms
def test_the_policy_goes_by_the_settings(helm: str) -> None:
    policy = find(rendered(helm, THEIRS), POLICY)["spec"]
    out = {"labels": {"example.org/scheduler": "keep"}}

    def matches(resource: str, **more: Any) -> bool:
        return is_matched(policy, pod_with(both({resource: "1"}), **more))

    managed = ("x.io/a", "it's/a", "y.io/gpu", "z.io/a-b")
    assert [matches(name) for name in managed] == [True] * 4
    assert not any(map(matches, ("y.io/gpus", "z.io/b", "nvidia.com/gpu")))
    assert not matches("x.io/a", metadata=out)
    assert not matches("x.io/a", scheduler="their.scheduler")
    (mutation,) = policy["mutations"]
    assert "value: 'their.scheduler'}" in mutation["jsonPatch"]["expression"]


@helms
def test_the_policy_looks_where_the_registration_does(helm: str) -> None:
    more = {"webhook": {"skippedNamespaces": ["kube-system", "quiet"]}}
    objects = rendered(helm, merged(MODES["rendered registration"], more))

    constraints = find(objects, POLICY)["spec"]["matchConstraints"]
    (webhook,) = find(objects, "MutatingWebhookConfiguration")["webhooks"]
    assert constraints["namespaceSelector"] == webhook["namespaceSelector"]
    assert constraints["resourceRules"] == webhook["rules"]
    assert constraints["matchPolicy"] == webhook["matchPolicy"]


def test_there_is_no_policy_unless_it_is_asked_for() -> None:
    kinds = {o["kind"] for o in render(HELMS[0], NOTHING, kubernetes="1.34.0")}

    assert not {kind for kind in kinds if kind.startswith(POLICY)}
