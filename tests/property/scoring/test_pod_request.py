"""A pod's effective request against one that lets its containers run, one by one."""

import copy
from collections import Counter
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.decode.objects import Pod, PodSpec
from scoring.pod_request import (
    LargestShare,
    effective_request,
    is_resizing,
    largest_shares,
)
from scoring.quantity import scale_of
from scoring.resources import any_resource
from tests.builders import GPU, Tree, make_container, make_pod

RESOURCES = ("cpu", "memory", GPU)
AMOUNTS = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 9), max_size=3)


@st.composite
def containers(draw: st.DrawFn, *, may_be_sidecar: bool = False) -> Tree:
    return make_container(
        requests=draw(st.none() | AMOUNTS),
        limits=draw(st.none() | AMOUNTS),
        is_sidecar=may_be_sidecar and draw(st.booleans()),
    )


def asked_by(tree: Tree) -> Counter[str]:
    """Return what a container asks, in whole units."""
    resources = tree.get("resources", {})
    return Counter(
        {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    )


def plain_request(spec: Tree) -> dict[str, int]:
    """Return the most that runs at the same time, plus overhead."""
    moments: list[Counter[str]] = []
    sidecars: Counter[str] = Counter()
    for container in spec.get("initContainers", []):
        own = asked_by(container)
        moments.append(sidecars + own)
        if container.get("restartPolicy") == "Always":
            sidecars = sidecars + own
    moments.append(sum(map(asked_by, spec["containers"]), sidecars))
    total = {name: max(moment[name] for moment in moments) for name in RESOURCES}
    pod_level: Tree = spec.get("resources", {})
    named_by_containers = {
        name
        for container in (*spec["containers"], *spec.get("initContainers", []))
        for name in asked_by(container)
    }
    for name in ("cpu", "memory"):
        if name in pod_level.get("requests", {}):
            total[name] = pod_level["requests"][name]
        elif name in pod_level.get("limits", {}) and name not in named_by_containers:
            total[name] = pod_level["limits"][name]
    for name, amount in spec.get("overhead", {}).items():
        total[name] += amount
    return {name: amount for name, amount in total.items() if amount}


@settings(max_examples=300)
@given(
    app=st.lists(containers(), max_size=3),
    init=st.lists(containers(may_be_sidecar=True), max_size=4),
    more=st.fixed_dictionaries(
        {},
        optional={
            "overhead": AMOUNTS,
            "resources": st.fixed_dictionaries(
                {}, optional={"requests": AMOUNTS, "limits": AMOUNTS}
            ),
        },
    ),
)
def test_the_effective_request_is_the_most_that_runs_at_the_same_time(
    app: list[Tree], init: list[Tree], more: dict[str, Any]
) -> None:
    spec = make_pod(containers=app, init_containers=init, spec=more)["spec"]
    faults: list[str] = []

    request = effective_request(
        msgspec.convert(spec, PodSpec),
        any_resource,
        lambda path, _error: faults.append(path),
    )

    assert not faults
    assert [name for name, _ in request] == sorted(name for name, _ in request)
    assert {
        name: amount // 1000 if name == "cpu" else amount for name, amount in request
    } == plain_request(spec)


SAID = st.none() | AMOUNTS


@settings(max_examples=300)
@given(
    asked=st.lists(
        st.tuples(AMOUNTS, st.booleans(), SAID, SAID), min_size=1, max_size=4
    ),
    reasons=st.lists(st.sampled_from(["Deferred", "Infeasible"]), max_size=1),
)
def test_a_resize_counts_the_largest_of_what_is_said_of_each_container(
    asked: list[tuple[dict[str, int], bool, Any, Any]], reasons: list[str]
) -> None:
    """As ``PodRequests`` with ``UseStatusResources`` of 1.34 to 1.36 has it."""
    total: Counter[str] = Counter()
    spec, statuses, is_told = [], [], False
    for number, (requests, has_resources, used, allocated) in enumerate(asked):
        name = f"c{number}"
        spec.append(make_container(name=name, requests=requests))
        status: Tree = {"name": name, "allocatedResources": allocated}
        counted = [requests]
        if has_resources:
            status["resources"] = {"requests": used}
            said = [amounts for amounts in (used, allocated) if amounts]
            is_told |= (used or {}) != requests
            is_told |= any(amounts != requests for amounts in said)
            counted = [*said, *([] if reasons == ["Infeasible"] else [requests])]
        statuses.append(status)
        largest: dict[str, int] = {}
        for amounts in counted:
            for key, amount in amounts.items():
                largest[key] = max(amount, largest.get(key, 0))
        total.update(largest)
    conditions = [
        {"type": "PodResizePending", "status": "True", "reason": reason}
        for reason in reasons
    ]
    tree = make_pod(
        containers=spec,
        status={"containerStatuses": statuses, "conditions": conditions},
    )
    pod = msgspec.convert(tree, Pod)
    faults: list[str] = []

    request = effective_request(
        pod.spec, any_resource, lambda path, _error: faults.append(path), pod.status
    )

    assert not faults
    assert is_resizing(pod.spec, pod.status) is is_told
    assert {
        name: amount // 1000 if name == "cpu" else amount for name, amount in request
    } == {name: amount for name, amount in total.items() if amount}


def asking(spec: Tree, container: str, resource: str, amount: int) -> dict[str, int]:
    """Return what the pod asks with another ask of one container."""
    changed = copy.deepcopy(spec)
    for tree in (*changed["containers"], *changed["initContainers"]):
        resources = tree.setdefault("resources", {})
        limits, requests = resources.get("limits"), resources.get("requests")
        asks = {**(limits or {}), **(requests or {})}.get(resource)
        if tree["name"] == container or (not container and asks):
            resources["requests"] = {**(requests or {}), resource: amount}
    decoded = msgspec.convert(changed, PodSpec)
    return dict(effective_request(decoded, any_resource, lambda _path, _error: None))


@settings(max_examples=300)
@given(
    st.lists(containers(), min_size=1, max_size=3),
    st.lists(containers(may_be_sidecar=True), max_size=3),
    AMOUNTS,
    st.fixed_dictionaries({"requests": AMOUNTS}) | st.none(),
    st.data(),
)
def test_less_of_the_largest_share_is_so_much_less_of_the_pod(
    running: list[Tree],
    starting: list[Tree],
    overhead: dict[str, int],
    pod_level: Tree | None,
    data: st.DataObject,
) -> None:
    for number, tree in enumerate([*running, *starting]):
        tree["name"] = f"c{number}"
    spec = {"containers": running, "initContainers": starting, "overhead": overhead}
    if pod_level is not None:
        spec["resources"] = pod_level
    decoded = msgspec.convert(spec, PodSpec)
    request = effective_request(decoded, any_resource, lambda _path, _error: None)
    shares = {share.resource: share for share in largest_shares(decoded)}

    for resource, total in request:
        share = shares.get(resource, LargestShare(resource))
        scale = scale_of(resource)
        if resource in (pod_level or {}).get("requests", {}) and resource != GPU:
            assert share.least == share.beside == overhead.get(resource, 0) * scale
            continue
        assert 0 <= share.overhead <= share.beside <= share.least <= total
        amount = data.draw(st.integers(share.least // scale, total // scale))
        asked = amount - share.beside // scale
        assert (
            asking(spec, share.container, resource, asked).get(resource, 0)
            == amount * scale
        )
