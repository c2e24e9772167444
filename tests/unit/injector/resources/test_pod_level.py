"""Pods whose resources are set for the pod as a whole, in part or in full."""

import copy
import json
from typing import Any

import pytest

from cluster.decode.objects import Pod
from injector.admitted_pod import FILLED_ANNOTATION
from injector.resources.containers import read_containers
from injector.resources.inject import ExistingMode
from injector.resources.pod_level import default_pod_level, read_pod_level
from injector.review import decode_pod
from tests.fakes.webhook import (
    GPU,
    both,
    container,
    gpus,
    make_pod,
    make_webhook,
    per_gpu,
    v100,
)

RULES = v100(per_gpu("cpu", 4000, "m"), per_gpu("memory", 8, "Gi"))
PAGES = "hugepages-2Mi"
MODES = pytest.mark.parametrize("existing", ["overwrite", "keep"])


def as_stored(pod: dict[str, Any]) -> dict[str, Any]:
    """Return a pod as the API server completes it, before and after each webhook."""
    stored = copy.deepcopy(pod)
    spec = stored["spec"]
    for item in (*spec["containers"], *spec.get("initContainers", ())):
        resources = item.setdefault("resources", {})
        limits = resources.get("limits") or {}
        requests = {**limits, **(resources.get("requests") or {})}
        resources.update({"requests": requests} if requests else {})
    if spec.get("resources"):
        default_pod_level(spec["resources"], containers_of(stored))
    return stored


def containers_of(pod: dict[str, Any]) -> Any:
    decoded: Pod = decode_pod(pod)
    return read_containers(decoded)


def is_consistent(pod: dict[str, Any]) -> bool:
    """Whether the API server takes it: no pod level below that of its containers."""
    containers = containers_of(pod)
    level = read_pod_level(decode_pod(pod), containers, {})
    return all(
        sum(item.requested(name) for item in containers.regular) <= most
        for name, most in level.requests.items()
    )


@MODES
def test_a_container_that_a_later_webhook_adds_is_made_room_for(
    existing: ExistingMode,
) -> None:
    webhook = make_webhook(RULES, existing=existing)
    limits = {"limits": {"memory": "4Gi"}}
    pod = as_stored(make_pod(container("a", gpus(1)), resources=limits))

    first = as_stored(webhook.send(pod).pod)
    assert first["spec"]["resources"]["requests"] == {"cpu": "4", "memory": "4Gi"}
    first["spec"]["containers"].append(container("later", both({"cpu": "1"})))
    second = webhook.send(as_stored(first))

    assert second.amounts("a") == {GPU: "1", "cpu": "3"}
    assert second.pod["spec"]["resources"] == {
        "requests": {"cpu": "4", "memory": "4Gi"},
        "limits": {"memory": "4Gi"},
    }
    assert is_consistent(second.pod)


@MODES
def test_what_was_derived_from_a_container_is_nobodys_word(
    existing: ExistingMode,
) -> None:
    pod = as_stored(
        make_pod(
            container("a", gpus(1)),
            container("s", {"requests": {"cpu": "500m"}}),
            resources={"limits": {"memory": "4Gi"}},
        )
    )
    assert pod["spec"]["resources"]["requests"]["cpu"] == "500m"

    answered = make_webhook(RULES, existing=existing).send(pod)

    assert answered.amounts("a") == {GPU: "1", "cpu": "3500m"}
    assert answered.pod["spec"]["resources"]["requests"] == {
        "cpu": "4",
        "memory": "4Gi",
    }
    assert answered.warnings == [
        (
            "memory is set for the pod as a whole: not injected; remove it from"
            " spec.resources to change that"
        )
    ]
    note = json.loads(answered.annotations[FILLED_ANNOTATION])
    assert note[""] == {"requests": {"cpu": "4"}}


@pytest.mark.parametrize(
    ("pod_level", "others", "injected", "after"),
    [
        pytest.param(
            both({"cpu": "8"}),
            [],
            {"memory": "8Gi"},
            {"requests": {"cpu": "8"}, "limits": {"cpu": "8"}},
            id="a limit of cpu, no other container",
        ),
        pytest.param(
            {"limits": {"cpu": "8"}},
            [container("s", {"requests": {"memory": "1Gi"}})],
            {"memory": "7Gi"},
            {"requests": {"cpu": "8", "memory": "8Gi"}, "limits": {"cpu": "8"}},
            id="memory of a container",
        ),
        pytest.param(
            {"requests": {"cpu": "8"}},
            [container("s", {"requests": {"memory": "1Gi"}})],
            {"memory": "7Gi"},
            {"requests": {"cpu": "8"}},
            id="requests alone, from which nothing is derived",
        ),
        pytest.param(
            {"requests": {"cpu": "500m"}, "limits": {"memory": "9Gi"}},
            [container("s", {"requests": {"cpu": "100m"}})],
            {},
            {
                "requests": {"cpu": "500m", "memory": "9Gi"},
                "limits": {"memory": "9Gi"},
            },
            id="a request of cpu that somebody wrote",
        ),
        pytest.param(
            {"limits": {"memory": "9Gi"}},
            [
                container("s", {"requests": {"cpu": "1"}}),
                container("t", both({"cpu": "1"})),
            ],
            {"cpu": "2"},
            {"requests": {"cpu": "4", "memory": "9Gi"}, "limits": {"memory": "9Gi"}},
            id="cpu of two containers",
        ),
        pytest.param(
            {"requests": {"cpu": "3", "memory": "9Gi"}},
            [container("s", {"requests": {"cpu": "1"}})],
            {},
            {"requests": {"cpu": "3", "memory": "9Gi"}},
            id="all of it written",
        ),
    ],
)
@MODES
def test_what_is_written_stays_and_what_is_derived_follows(
    pod_level: dict[str, Any],
    others: list[dict[str, Any]],
    injected: dict[str, str],
    after: dict[str, Any],
    existing: ExistingMode,
) -> None:
    pod = as_stored(make_pod(container("a", gpus(1)), *others, resources=pod_level))

    answered = make_webhook(RULES, existing=existing).send(pod)

    assert answered.amounts("a") == {GPU: "1", **injected}
    assert answered.pod["spec"]["resources"] == after


def test_an_init_container_counts_in_what_is_derived() -> None:
    pod = as_stored(
        make_pod(
            container("a", gpus(1)),
            initContainers=[
                container("i", both({"cpu": "6"})),
                container("r", both({"cpu": "1"}), restartPolicy="Always"),
            ],
            resources={"limits": {"memory": "4Gi"}},
        )
    )
    assert pod["spec"]["resources"]["requests"]["cpu"] == "6"

    answered = make_webhook(RULES).send(pod)

    assert answered.amounts("a") == {GPU: "1", "cpu": "3"}
    assert answered.pod["spec"]["resources"]["requests"]["cpu"] == "6"


@pytest.mark.parametrize(
    ("resources", "own", "gets_pages"),
    [
        pytest.param(both({"cpu": "8", "memory": "9Gi"}), {}, False, id="both set"),
        pytest.param(both({"cpu": "8"}), {}, True, id="memory is injected"),
        pytest.param(both({"memory": "9Gi"}), {}, True, id="cpu is injected"),
        pytest.param(
            both({"cpu": "8", "memory": "9Gi"}), {"cpu": "1"}, True, id="its own cpu"
        ),
        pytest.param({}, {}, True, id="nothing set"),
    ],
)
@MODES
def test_huge_pages_go_only_where_cpu_or_memory_is(
    resources: dict[str, Any],
    own: dict[str, str],
    gets_pages: bool,
    existing: ExistingMode,
) -> None:
    rules = v100(per_gpu(PAGES, 4, "Mi"), per_gpu("cpu", 4), per_gpu("memory", 8, "Gi"))
    pod = as_stored(make_pod(container("a", gpus(1, **own)), resources=resources))

    answered = make_webhook(rules, existing=existing).send(pod)

    assert (PAGES in answered.amounts("a")) == gets_pages
    said = (
        f"container 'a': {PAGES} not injected, it needs cpu or memory in the container"
    )
    assert (said in answered.warnings) == (not gets_pages)


def test_huge_pages_that_were_derived_follow() -> None:
    rules = v100(per_gpu(PAGES, 4, "Mi"), per_gpu("cpu", 4))
    pod = as_stored(
        make_pod(
            container("a", gpus(2)),
            container("s", both({"cpu": "1", PAGES: "2Mi"})),
            resources={"limits": {"memory": "9Gi"}},
        )
    )
    assert pod["spec"]["resources"]["limits"] == {"memory": "9Gi", PAGES: "2Mi"}

    answered = make_webhook(rules).send(pod)

    assert answered.amounts("a") == {GPU: "2", "cpu": "7", PAGES: "8Mi"}
    assert answered.pod["spec"]["resources"] == {
        "requests": {"cpu": "8", "memory": "9Gi", PAGES: "10Mi"},
        "limits": {"memory": "9Gi", PAGES: "10Mi"},
    }
