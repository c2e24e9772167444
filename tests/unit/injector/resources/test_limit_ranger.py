"""Containers beside the GPUs in which LimitRanger filled in what nobody asked."""

import json
from fractions import Fraction
from typing import Any

import pytest

from injector.admitted_pod import FILLED_ANNOTATION, LIMIT_RANGER_ANNOTATION
from injector.resources.inject import ExistingMode
from scoring.protocols import LimitDefaults
from tests.fakes.webhook import (
    GPU,
    NETWORKS,
    TRIGGER,
    Answered,
    Webhook,
    both,
    container,
    gpus,
    make_pod,
    make_webhook,
    per_gpu,
    v100,
)

GIB = 2**30
RULES = v100(per_gpu("cpu", 4), per_gpu("memory", 8, "Gi"))
DEFAULTS = LimitDefaults(
    (("cpu", 2000), ("memory", 8 * GIB)), (("cpu", 2000), ("memory", 8 * GIB))
)
MODES = pytest.mark.parametrize("existing", ["overwrite", "keep"])


def webhook(
    defaults: LimitDefaults | None = DEFAULTS, existing: ExistingMode = "overwrite"
) -> Webhook:
    return make_webhook(
        RULES, existing=existing, limit_defaults=lambda _namespace: defaults
    )


def named(*clauses: str) -> dict[str, str]:
    """Return LimitRanger's annotation."""
    return {LIMIT_RANGER_ANNOTATION: "LimitRanger plugin set: " + "; ".join(clauses)}


def filled(name: str, kind: str = "container") -> tuple[str, str]:
    """Return what LimitRanger says of a container that asked nothing."""
    return (
        f"cpu, memory request for {kind} {name}",
        f"cpu, memory limit for {kind} {name}",
    )


def lowered(name: str, resource: str, old: str, new: str) -> str:
    return (
        f"container {name!r}: {resource} {old} from LimitRanger lowered to {new}; set"
        " requests to choose"
    )


@MODES
def test_a_sidecar_that_asked_nothing_leaves_half(existing: ExistingMode) -> None:
    pod = make_pod(
        container("a", gpus(1, cpu="2", memory="8Gi")),
        container("s", both({"cpu": "2", "memory": "8Gi"})),
        annotations=named(*filled("a"), *filled("s")),
    )

    answered = webhook(existing=existing).send(pod)

    assert answered.amounts("a") == {GPU: "1", "cpu": "2", "memory": "4Gi"}
    assert answered.amounts("s") == {"cpu": "2", "memory": "4Gi"}
    assert answered.warnings == [lowered("s", "memory", "8Gi", "4Gi")]
    note = json.loads(answered.annotations[FILLED_ANNOTATION])
    assert note["s"] == {
        "requests": {"memory": "4Gi"},
        "defaultRequest": {"memory": "8Gi"},
        "limits": {"memory": "4Gi"},
        "default": {"memory": "8Gi"},
    }


@pytest.mark.parametrize(
    ("others", "init", "clauses", "expected"),
    [
        pytest.param(
            [container("s", both({"cpu": "1", "memory": "2Gi"}))],
            [],
            filled("s"),
            {"a": ("3", "6Gi"), "s": ("1", "2Gi")},
            id="less than half comes off whole",
        ),
        pytest.param(
            [
                container("s", both({"cpu": "2", "memory": "8Gi"})),
                container("t", both({"cpu": "2", "memory": "8Gi"})),
            ],
            [],
            (*filled("s"), *filled("t")),
            {"a": ("2", "4Gi"), "s": ("1", "2Gi"), "t": ("1", "2Gi")},
            id="two shrink alike",
        ),
        pytest.param(
            [
                container("s", both({"cpu": "2", "memory": "8Gi"})),
                container("u", both({"cpu": "1", "memory": "4Gi"})),
            ],
            [],
            filled("s"),
            {"a": ("1500m", "2Gi"), "s": ("1500m", "2Gi"), "u": ("1", "4Gi")},
            id="what a user wrote comes off first",
        ),
        pytest.param(
            [container("p")],
            [
                container(
                    "s", both({"cpu": "2", "memory": "8Gi"}), restartPolicy="Always"
                ),
                container("i", both({"cpu": "2", "memory": "8Gi"})),
            ],
            (*filled("s", "init container"), *filled("i", "init container")),
            {"a": ("2", "4Gi"), "s": ("2", "4Gi"), "i": ("2", "8Gi")},
            id="a restartable init container, and one that ends",
        ),
        pytest.param(
            [
                container("s", both({"cpu": "2", "memory": "8Gi"})),
                container("t", both({"cpu": "2", "memory": "8Gi"})),
                container("v", both({"cpu": "2", "memory": "8Gi"})),
            ],
            [],
            (*filled("s"), *filled("t"), *filled("v")),
            {
                "a": ("2", "4Gi"),
                "s": ("667m", "1431655766"),
                "t": ("667m", "1431655765"),
                "v": ("666m", "1431655765"),
            },
            id="a remainder goes to the first of equals",
        ),
        pytest.param(
            [
                container(
                    "s",
                    {
                        "requests": {"cpu": "2", "memory": "8Gi"},
                        "limits": {"cpu": "2", "memory": "8Gi"},
                    },
                )
            ],
            [],
            ("cpu limit for container s", "memory request for container s"),
            {"a": ("2", "4Gi")},
            id="a request of memory and a limit of cpu alone",
        ),
    ],
)
def test_values_of_limit_ranger_make_way(
    others: list[dict[str, Any]],
    init: list[dict[str, Any]],
    clauses: tuple[str, ...],
    expected: dict[str, tuple[str, str]],
) -> None:
    pod = make_pod(
        container("a", gpus(1)),
        *others,
        initContainers=init,
        annotations=named(*clauses),
    )

    answered = webhook(None).send(pod)

    assert {name: requests_of(answered, name) for name in expected} == expected
    for name in expected:
        resources = answered.resources(name)
        for resource in ("cpu", "memory"):
            assert resources["requests"][resource] == resources["limits"][resource] or (
                name == "s" and len(clauses) == 2 and clauses[0].startswith("cpu limit")
            )


def requests_of(answered: Answered, name: str) -> tuple[str, str]:
    """Return the requests of cpu and memory of a container."""
    requests = answered.resources(name)["requests"]
    return requests["cpu"], requests["memory"]


def sidecar_pod(cpu: str, memory: str, *, limit: str = "") -> dict[str, Any]:
    asked = both({"cpu": cpu, "memory": memory})
    if limit:
        asked["limits"]["memory"] = limit
    return make_pod(
        container("a", gpus(1)), container("s", asked), annotations=named(*filled("s"))
    )


@pytest.mark.parametrize(
    ("defaults", "expected"),
    [
        pytest.param(
            LimitDefaults(minima=(("memory", 6 * GIB),)),
            ("2", "8Gi"),
            id="values that are not those of the LimitRange are somebody's",
        ),
        pytest.param(
            LimitDefaults(DEFAULTS.limits, DEFAULTS.requests, (("memory", 6 * GIB),)),
            ("2", "6Gi"),
            id="a minimum",
        ),
        pytest.param(
            LimitDefaults(DEFAULTS.limits, DEFAULTS.requests, (("cpu", 100),)),
            ("2", "4Gi"),
            id="a minimum that is low",
        ),
        pytest.param(
            LimitDefaults(
                DEFAULTS.limits, DEFAULTS.requests, (), (("memory", Fraction(2)),)
            ),
            ("2", "4Gi"),
            id="a ratio where the limit follows",
        ),
        pytest.param(None, ("2", "4Gi"), id="no LimitRange known"),
    ],
)
def test_the_limit_range_says_how_low_it_may_be(
    defaults: LimitDefaults | None, expected: tuple[str, str]
) -> None:
    answered = webhook(defaults).send(sidecar_pod("2", "8Gi"))

    if expected[1] == "8Gi":
        assert "memory 0 left for container 'a'" in answered.message
        return
    assert requests_of(answered, "s") == expected


def test_a_request_is_not_lowered_below_the_ratio_to_a_limit_of_ones_own() -> None:
    ratio = LimitDefaults(
        (), (("cpu", 2000), ("memory", 8 * GIB)), (), (("memory", Fraction(3, 2)),)
    )
    pod = sidecar_pod("2", "8Gi", limit="9Gi")

    answered = webhook(ratio).send(pod)

    assert answered.resources("s") == {
        "requests": {"cpu": "2", "memory": "6Gi"},
        "limits": {"cpu": "2", "memory": "9Gi"},
    }
    assert requests_of(answered, "a") == ("2", "2Gi")


def test_what_users_wrote_alone_exceeds_the_budget_as_ever() -> None:
    pod = make_pod(
        container("a", gpus(1)),
        container("s", both({"cpu": "2", "memory": "8Gi"})),
        container("u", both({"cpu": "5", "memory": "1Gi"})),
        annotations=named(*filled("s")),
    )

    assert webhook().send(pod).message == (
        "pod default/p: cpu short by 1 for container 'a': others ask 5 ('u' 5), the"
        " budget of 1 nvidia.com/gpu is 4"
    )


@MODES
def test_a_later_container_makes_of_the_pod_what_it_had_become_at_once(
    existing: ExistingMode,
) -> None:
    hook = webhook(None, existing)
    pod = sidecar_pod("2", "8Gi")
    later = container("later", both({"cpu": "1", "memory": "1Gi"}))
    more = container("more", gpus(3))

    for added in ([later], [more], [later, more]):
        first = hook.send(pod).pod
        first["spec"]["containers"] += added
        whole = json.loads(json.dumps(pod))
        whole["spec"]["containers"] += added

        assert hook.send(first).pod["spec"] == hook.send(whole).pod["spec"]


def test_a_value_that_somebody_changed_later_is_his() -> None:
    hook = webhook(None)
    seen = hook.send(sidecar_pod("2", "8Gi")).pod
    for amounts in seen["spec"]["containers"][1]["resources"].values():
        amounts["memory"] = "5Gi"

    answered = hook.send(seen)

    assert requests_of(answered, "s")[1] == "5Gi"
    assert requests_of(answered, "a")[1] == "3Gi"


def test_a_note_that_is_none_lowers_nothing() -> None:
    pod = make_pod(
        container("a", gpus(1)),
        container("s", both({"cpu": "1", "memory": "6Gi"})),
        annotations={
            FILLED_ANNOTATION: (
                '{"s":{"requests":{"memory":"6Gi"},"defaultRequest":{"memory":"many"}}}'
            )
        },
    )

    answered = webhook().send(pod)

    assert requests_of(answered, "s") == ("1", "6Gi")
    assert answered.annotations[TRIGGER] == "V100"
    assert NETWORKS not in answered.annotations
