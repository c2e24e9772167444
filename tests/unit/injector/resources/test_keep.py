"""What stays and what is filled where the operator chose ``existing: keep``."""

import json
from typing import Any

import pytest

from injector.admitted_pod import FILLED_ANNOTATION
from injector.resources.inject import ExistingMode
from injector.steps import AdmissionOutcome, AdmissionReason
from tests.fakes.webhook import (
    C1,
    GPU,
    NETWORKS,
    SHM,
    TRIGGER,
    Webhook,
    both,
    container,
    gpus,
    make_pod,
    make_webhook,
    per_gpu,
    v100,
)

LIMIT_RANGER = "kubernetes.io/limit-ranger"
A100 = v100(per_gpu("cpu", 12), per_gpu("memory", 96, "Gi"))


def keeping(rules: dict[str, Any] = A100) -> Webhook:
    return make_webhook(rules, existing="keep")


def test_only_what_is_unset_is_filled() -> None:
    answered = keeping().send(
        make_pod(
            container("c0", {"limits": {GPU: "2"}}),
            container("c1"),
            container("c2", {"requests": {GPU: "1", "cpu": "1"}, "limits": {GPU: "1"}}),
        )
    )

    assert answered.amounts("c0") == {GPU: "2", "cpu": "24", "memory": "192Gi"}
    assert answered.resources("c1") == {}
    assert answered.resources("c2") == {
        "requests": {GPU: "1", "cpu": "1", "memory": "96Gi"},
        "limits": {GPU: "1", "memory": "96Gi"},
    }
    assert answered.warnings == []


def test_a_request_is_cut_to_a_limit_that_is_set() -> None:
    answered = keeping().send(
        make_pod(
            container("a", {"limits": {GPU: "1", "cpu": "2", "memory": "8Gi"}}),
        )
    )

    assert answered.amounts("a") == {GPU: "1", "cpu": "2", "memory": "8Gi"}
    assert answered.warnings == [
        "container 'a': cpu 12 cut to the limit 2; raise the limit to get more",
        "container 'a': memory 96Gi cut to the limit 8Gi; raise the limit to get more",
    ]


def test_a_request_stays_below_a_roomy_limit() -> None:
    answered = keeping().send(
        make_pod(container("a", {"limits": {GPU: "1", "cpu": "64"}}))
    )

    assert answered.resources("a")["requests"]["cpu"] == "12"
    assert answered.resources("a")["limits"]["cpu"] == "64"


def test_limits_replaced_by_a_rule_are_never_below_the_request() -> None:
    answered = make_webhook(A100).send(
        make_pod(container("a", {"limits": {GPU: "1", "cpu": "2"}}))
    )

    assert answered.amounts("a") == {GPU: "1", "cpu": "12", "memory": "96Gi"}


def test_nothing_is_refused_where_nothing_is_to_be_filled() -> None:
    answered = keeping(C1).send(
        make_pod(
            container("a", gpus(1, cpu="1", memory="1Gi")),
            container("s", both({"cpu": "64", "memory": "640Gi"})),
        )
    )

    assert answered.is_allowed
    assert answered.amounts("a") == {GPU: "1", "cpu": "1", "memory": "1Gi"}


def test_what_a_review_filled_in_follows_what_a_later_webhook_adds() -> None:
    webhook = keeping()
    gpu = container("a", gpus(1))
    mixed = container("b", {"limits": {GPU: "1", "cpu": "20"}, "requests": {GPU: "1"}})
    logger = container("logger", {"requests": {"cpu": "2", "memory": "2Gi"}})
    seen = webhook.send(make_pod(gpu, mixed)).pod
    seen["spec"]["containers"].append(logger)

    twice = webhook.send(seen).pod

    assert twice == webhook.send(make_pod(gpu, mixed, logger)).pod
    assert twice["spec"]["containers"][0]["resources"] == gpus(
        1, cpu="11", memory="95Gi"
    )
    assert twice["metadata"]["annotations"][FILLED_ANNOTATION] == (
        '{"a":{"requests":{"cpu":"11","memory":"95Gi"},'
        '"limits":{"cpu":"11","memory":"95Gi"}},'
        '"b":{"requests":{"cpu":"11","memory":"95Gi"},"limits":{"memory":"95Gi"}}}'
    )


def test_what_was_changed_after_a_review_is_kept() -> None:
    webhook = keeping()
    seen = webhook.send(make_pod(container("a", gpus(1)))).pod
    for amounts in seen["spec"]["containers"][0]["resources"].values():
        amounts["cpu"] = "3"

    assert webhook.send(seen).amounts("a") == {GPU: "1", "cpu": "3", "memory": "96Gi"}


@pytest.mark.parametrize(
    "note",
    [
        pytest.param("a.cpu", id="no JSON"),
        pytest.param('{"a":{"requests":["cpu"]}}', id="another form"),
        pytest.param('{"other":{"requests":{"cpu":"1"}}}', id="another container"),
    ],
)
def test_a_note_that_says_nothing_of_a_container_changes_nothing(note: str) -> None:
    pod = make_pod(
        container("a", gpus(1, cpu="1")), annotations={FILLED_ANNOTATION: note}
    )

    assert keeping().send(pod).amounts("a")["cpu"] == "1"


def test_an_annotation_that_is_set_stays() -> None:
    answered = keeping(C1).send(
        make_pod(container("a", gpus(1)), annotations={NETWORKS: "mine"})
    )

    assert answered.annotations[NETWORKS] == "mine"


def test_an_extended_resource_that_is_set_stays_and_is_completed() -> None:
    answered = keeping(v100(per_gpu(SHM, 2, "Gi"))).send(
        make_pod(container("a", {"limits": {GPU: "1", SHM: "1Gi"}, "requests": {}}))
    )

    # filled as a request, up to the limit
    assert answered.amounts("a") == {GPU: "1", SHM: "1Gi"}

    answered = keeping(v100(per_gpu(SHM, 2, "Gi"))).send(
        make_pod(container("a", {"limits": {GPU: "1"}, "requests": {SHM: "1Gi"}}))
    )

    assert answered.amounts("a") == {GPU: "1", SHM: "1Gi"}


def test_a_pod_with_everything_set_is_not_changed() -> None:
    webhook = keeping(v100(per_gpu("cpu", 4)))

    answered = webhook.send(make_pod(container("a", gpus(1, cpu="1"))))

    assert not answered.operations
    assert set(webhook.observer.admissions) == {
        (AdmissionOutcome.UNCHANGED, AdmissionReason.ALREADY_APPLIED)
    }


@pytest.mark.parametrize("existing", ["keep", "overwrite"])
def test_what_limit_ranger_filled_in_counts_as_unset(existing: ExistingMode) -> None:
    said = (
        "LimitRanger plugin set: cpu, memory, nvidia.com/gpu request for container c;"
        " cpu, memory, nvidia.com/gpu limit for container c;"
        " cpu request for init container a"
    )
    pod = make_pod(
        container("c", gpus(1, cpu="2", memory="8Gi")), annotations={LIMIT_RANGER: said}
    )

    answered = make_webhook(A100, existing=existing).send(pod)

    assert answered.amounts("c") == {GPU: "1", "cpu": "12", "memory": "96Gi"}
    assert answered.warnings == []
    assert "overwritten" not in answered.response["auditAnnotations"]


def test_a_limit_that_is_a_number_is_noted_like_any_other() -> None:
    said = "LimitRanger plugin set: memory request for container c"
    asked = {"limits": {GPU: "1", "memory": 2.5}, "requests": {GPU: "1", "memory": 2.5}}
    pod = make_pod(container("c", asked), annotations={LIMIT_RANGER: said})

    answered = keeping().send(pod)  # a second review changes nothing, or this fails

    note = json.loads(answered.pod["metadata"]["annotations"][FILLED_ANNOTATION])
    assert note["c"]["requests"] == {"cpu": "12", "memory": "2.5"}


@pytest.mark.parametrize(
    "names",
    [pytest.param(["c", "c"], id="one name"), pytest.param(["", "c"], id="no name")],
)
def test_containers_that_a_note_cannot_tell_apart_are_not_noted(
    names: list[str],
) -> None:
    pod = make_pod(
        container(names[0], {"limits": {GPU: "2"}, "requests": {"cpu": "1"}}),
        container(names[1], {"limits": {GPU: "1"}}),
    )

    answered = keeping().send(pod)  # a second review changes nothing, or this fails

    assert FILLED_ANNOTATION not in answered.pod["metadata"].get("annotations", {})


def test_a_limit_that_somebody_wrote_beside_a_filled_request_stays() -> None:
    pod = make_pod(
        container(
            "c",
            {"requests": {GPU: "1", "cpu": "1"}, "limits": {GPU: "1", "cpu": "3"}},
        ),
        annotations={
            LIMIT_RANGER: "LimitRanger plugin set: cpu request for container c"
        },
    )

    answered = keeping(v100(per_gpu("cpu", 12))).send(pod)

    assert answered.amounts("c") == {GPU: "1", "cpu": "3"}


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(
            "LimitRanger plugin set: cpu limit for container other", id="other"
        ),
        pytest.param("cpu, memory", id="not of its form"),
        pytest.param("", id="empty"),
    ],
)
def test_what_limit_ranger_did_not_fill_in_stays(said: str) -> None:
    pod = make_pod(
        container("c", gpus(1, cpu="2", memory="8Gi")), annotations={LIMIT_RANGER: said}
    )

    assert not keeping().send(pod).operations


@pytest.mark.parametrize("existing", ["keep", "overwrite"])
def test_pod_level_resources_are_not_contradicted(existing: ExistingMode) -> None:
    pod_level = both({"cpu": "8"})
    pod = make_pod(container("a", gpus(1)), resources=pod_level)

    answered = make_webhook(A100, existing=existing).send(pod)

    assert answered.amounts("a") == {GPU: "1", "memory": "96Gi"}
    assert answered.pod["spec"]["resources"] == pod_level
    assert answered.warnings == [
        (
            "cpu is set for the pod as a whole: not injected; remove it from"
            " spec.resources to change that"
        )
    ]


def test_a_pod_level_limit_alone_is_not_contradicted() -> None:
    pod = make_pod(
        container("a", gpus(1)), resources={"limits": {"cpu": "8", "memory": "9Gi"}}
    )

    assert keeping().send(pod).amounts("a") == {GPU: "1"}


def test_overhead_is_not_touched() -> None:
    overhead = {"cpu": "250m", "memory": "120Mi"}

    answered = make_webhook().send(make_pod(container("a", gpus(1)), overhead=overhead))

    assert answered.pod["spec"]["overhead"] == overhead
    assert answered.amounts("a")["cpu"] == "4"


def test_less_than_one_piece_is_not_injected() -> None:
    answered = make_webhook(v100(per_gpu("x.com/core", 0.29), per_gpu("cpu", 1))).send(
        make_pod(container("a", gpus(1)), container("b", gpus(4)))
    )

    assert answered.amounts("a") == {GPU: "1", "cpu": "1"}
    assert answered.amounts("b") == {GPU: "4", "cpu": "4", "x.com/core": "1"}
    assert answered.warnings == [
        "container 'a': less than one x.com/core, not injected"
    ]


def test_values_that_say_the_same_are_not_called_replaced() -> None:
    answered = make_webhook().send(
        make_pod(container("a", gpus(1, cpu="4000m", memory="8192Mi")))
    )

    assert answered.amounts("a") == {GPU: "1", "cpu": "4", "memory": "8Gi"}
    assert answered.warnings == []
    assert answered.annotations[TRIGGER] == "V100"


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        pytest.param(
            gpus(1, cpu="1K"),
            "container 'a': request of 'cpu': quantity '1K': not a number with an"
            " optional suffix; container 'a': limit of 'cpu': quantity '1K': not a"
            " number with an optional suffix",
            id="wrong suffix, in both maps",
        ),
        pytest.param(
            {"limits": {GPU: "1_000"}},
            "container 'a': limit of 'nvidia.com/gpu': quantity '1_000': not a number"
            " with an optional suffix",
            id="wrong GPU count",
        ),
        pytest.param(
            {"limits": {GPU: "1", "memory": True}},
            "container 'a': limit of 'memory': quantity 'True': neither text nor a"
            " number",
            id="no quantity at all",
        ),
        pytest.param(
            {"limits": {GPU: "-1"}},
            "container 'a': limit of 'nvidia.com/gpu': quantity '-1': negative",
            id="negative",
        ),
        pytest.param(
            {"limits": {GPU: 10**400}},
            "container 'a': limit of 'nvidia.com/gpu': quantity 'a number of many"
            " digits': too large",
            id="endless number",
        ),
    ],
)
def test_illegal_quantities_are_refused(resources: dict[str, Any], said: str) -> None:
    webhook = make_webhook()

    answered = webhook.send(make_pod(container("a", resources)))

    assert answered.response["status"] == {
        "code": 403,
        "message": f"pod default/p: {said}",
    }
    assert set(webhook.observer.admissions) == {
        (AdmissionOutcome.REJECTED, AdmissionReason.ILLEGAL_QUANTITY)
    }


def test_illegal_quantities_of_init_containers_are_refused() -> None:
    answered = make_webhook().send(
        make_pod(
            container("a", gpus(1)),
            initContainers=[container("i", {"requests": {"cpu": "many"}})],
        )
    )

    assert "init container 'i': request of 'cpu': quantity 'many'" in answered.message


@pytest.mark.parametrize(
    ("quantity", "cpu"),
    [
        pytest.param("1k", "4k", id="suffix k"),
        pytest.param("1e3", "4k", id="exponent"),
        pytest.param(2, "8", id="number"),
        pytest.param(2.0, "8", id="number with a point"),
        pytest.param("1000m", "4", id="milli"),
        pytest.param("999900u", "4", id="what Kubernetes rounds up to a thousandth"),
    ],
)
def test_legal_spellings_of_a_gpu_count(quantity: Any, cpu: str) -> None:
    answered = make_webhook(v100(per_gpu("cpu", 4))).send(
        make_pod(container("a", {"limits": {GPU: quantity}}))
    )

    assert answered.amounts("a")["cpu"] == cpu


def test_what_many_containers_of_one_name_were_given_is_looked_up_at_once() -> None:
    asked = {"requests": {GPU: "1", "cpu": "1"}, "limits": {GPU: "1"}}
    note = {"c": {"requests": {f"r{place}": "1" for place in range(50_000)}}}
    pod = make_pod(
        *(container("c", asked) for _ in range(2000)),
        annotations={FILLED_ANNOTATION: json.dumps(note)},
    )

    answered = keeping(v100(per_gpu("cpu", 12))).send(pod)

    assert not answered.operations


def test_a_note_of_limit_ranger_that_somebody_made_up_is_read_at_once() -> None:
    said = "x request for container " * 50_000 + "\nx"
    pod = make_pod(container("c", gpus(1, cpu="2")), annotations={LIMIT_RANGER: said})

    assert not keeping(v100(per_gpu("cpu", 12))).send(pod).operations
