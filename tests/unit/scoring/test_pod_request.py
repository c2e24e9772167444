from typing import Any

import msgspec
import pytest

from cluster.decode.objects import Pod, PodSpec
from scoring.pod_request import effective_request, extended_fault, is_resizing
from scoring.quantity import MAX_QUANTITY, QuantityError
from scoring.resources import Request, any_resource
from tests.builders import GPU, Tree, make_container, make_pod

MIG = "nvidia.com/mig-1g.10gb"


def requested_by(pod: Tree) -> dict[str, int]:
    request, faults = request_and_faults(pod)
    assert not faults
    return dict(request)


def request_and_faults(pod: Tree) -> tuple[Request, dict[str, str]]:
    faults: dict[str, str] = {}

    def collect(path: str, error: QuantityError) -> None:
        faults[path] = error.reason

    spec = msgspec.convert(pod["spec"], PodSpec)
    return effective_request(spec, any_resource, collect), faults


def gpus(count: int, *, is_sidecar: bool = False) -> Tree:
    asked = {GPU: str(count)}
    return make_container(requests=asked, limits=asked, is_sidecar=is_sidecar)


@pytest.mark.parametrize(
    ("init_containers", "containers", "count"),
    [
        pytest.param([], [1], 1, id="one container"),
        pytest.param([], [1, 2], 3, id="containers add up"),
        pytest.param([1, 1, 1], [1], 1, id="init containers in turn, not in sum"),
        pytest.param([2], [1], 2, id="larger init container"),
        pytest.param([1, 3, 2], [2], 3, id="largest init container"),
    ],
)
def test_ordinary_init_containers_need_their_maximum(
    init_containers: list[int], containers: list[int], count: int
) -> None:
    pod = make_pod(
        init_containers=[gpus(own) for own in init_containers],
        containers=[gpus(own) for own in containers],
    )

    assert requested_by(pod) == {GPU: count}


SIDECAR = gpus(1, is_sidecar=True)
INIT = gpus(4)


@pytest.mark.parametrize(
    ("init_containers", "count"),
    [
        # running needs 2 and 1
        pytest.param([SIDECAR], 3, id="sidecar alone"),
        # starting needs 4 beside 1, above the running 3
        pytest.param([SIDECAR, INIT], 5, id="sidecar before an init container"),
        # starting needs 4 alone, above the running 3
        pytest.param([INIT, SIDECAR], 4, id="sidecar behind an init container"),
        # starting needs 4, then 4 beside 1
        pytest.param([INIT, SIDECAR, INIT], 5, id="sidecar between two"),
        # running needs 2 and 3
        pytest.param([SIDECAR, SIDECAR, SIDECAR], 5, id="three sidecars"),
        # starting needs 4 beside 2
        pytest.param([SIDECAR, SIDECAR, INIT], 6, id="two sidecars, then init"),
    ],
)
def test_sidecars_add_up_and_their_place_matters(
    init_containers: list[Tree], count: int
) -> None:
    pod = make_pod(init_containers=init_containers, containers=[gpus(2)])

    assert requested_by(pod) == {GPU: count}


@pytest.mark.parametrize(
    ("requests", "limits", "count"),
    [
        pytest.param(None, {GPU: "2"}, 2, id="limits alone"),
        pytest.param({GPU: "2"}, {GPU: "2"}, 2, id="both, counted once"),
        pytest.param({GPU: "2"}, None, 2, id="requests alone"),
        pytest.param({}, {GPU: "2"}, 2, id="empty requests"),
        pytest.param({GPU: "1"}, {GPU: "2"}, 1, id="request below the limit"),
        pytest.param({GPU: "0"}, {GPU: "2"}, None, id="request of zero stands"),
    ],
)
def test_a_limit_without_a_request_is_a_request(
    requests: Tree | None, limits: Tree | None, count: int | None
) -> None:
    pod = make_pod(containers=[make_container(requests=requests, limits=limits)])

    assert requested_by(pod).get(GPU) == count


def test_a_limit_stands_in_for_its_own_resource_only() -> None:
    container = make_container(
        requests={"cpu": "2"}, limits={"cpu": "4", "memory": "1Gi"}
    )

    request = requested_by(make_pod(containers=[container]))

    assert request == {"cpu": 2000, "memory": 2**30}


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        pytest.param(
            {"requests": {"cpu": "8", "memory": "64Gi"}},
            {"cpu": 8000, "memory": 64 * 2**30, GPU: 1},
            id="requests replace the total of the containers",
        ),
        pytest.param(
            {"requests": {GPU: "4"}, "limits": {GPU: "4"}},
            {"cpu": 2000, GPU: 1},
            id="GPUs never come from there",
        ),
        pytest.param(
            {"limits": {"cpu": "8", "memory": "64Gi"}},
            {"cpu": 2000, "memory": 64 * 2**30, GPU: 1},
            id="a limit counts where no container asks",
        ),
        pytest.param(
            {"requests": {"cpu": "1"}, "limits": {"cpu": "8"}},
            {"cpu": 1000, GPU: 1},
            id="a request goes before a limit",
        ),
        pytest.param({}, {"cpu": 2000, GPU: 1}, id="nothing set"),
    ],
)
def test_pod_level_resources_replace_cpu_and_memory_only(
    resources: Tree, expected: dict[str, int]
) -> None:
    pod = make_pod(gpus=1, cpu="2", spec={"resources": resources})

    assert requested_by(pod) == expected


def test_huge_pages_can_come_from_the_pod_level() -> None:
    spec = msgspec.convert(
        {"resources": {"requests": {"hugepages-2Mi": "4Mi"}}}, PodSpec
    )

    request = effective_request(spec, lambda _: True, lambda _path, _error: None)

    assert request == (("hugepages-2Mi", 4 * 2**20),)


def test_overhead_is_added() -> None:
    pod = make_pod(
        gpus=1, cpu="1", spec={"overhead": {"cpu": "250m", "memory": "120Mi"}}
    )

    assert requested_by(pod) == {"cpu": 1250, "memory": 120 * 2**20, GPU: 1}


def test_overhead_is_added_to_pod_level_resources_too() -> None:
    pod = make_pod(
        cpu="1",
        spec={"resources": {"requests": {"cpu": "8"}}, "overhead": {"cpu": "250m"}},
    )

    assert requested_by(pod) == {"cpu": 8250}


def test_resources_that_are_not_looked_at_are_skipped_unread() -> None:
    pod = make_pod(requests={"example.com/fpga": "nonsense", GPU: "1"})
    spec = msgspec.convert(pod["spec"], PodSpec)
    faults: list[str] = []

    request = effective_request(
        spec, GPU.__eq__, lambda path, _error: faults.append(path)
    )

    assert request == ((GPU, 1),)
    assert not faults


def test_amounts_of_zero_are_left_out() -> None:
    assert requested_by(make_pod(gpus="0")) == {}


def test_amounts_are_sorted_by_name() -> None:
    pod = make_pod(gpus=1, cpu="1", memory="1Gi", requests={MIG: "1"})

    request, _ = request_and_faults(pod)

    assert [name for name, _ in request] == ["cpu", "memory", GPU, MIG]


def test_a_sum_above_the_cap_is_capped() -> None:
    almost = {GPU: str(MAX_QUANTITY - 1)}
    container = make_container(requests=almost)

    pod = make_pod(containers=[container, container])

    assert requested_by(pod) == {GPU: MAX_QUANTITY}


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({}, id="nothing at all"),
        pytest.param({"containers": None, "initContainers": None}, id="nulls"),
        pytest.param({"containers": [{"name": "a"}]}, id="no resources"),
        pytest.param({"containers": [{"resources": {}}]}, id="empty resources"),
        pytest.param(
            {"containers": [{"resources": {"requests": None, "limits": None}}]},
            id="null maps",
        ),
        pytest.param({"overhead": {}, "resources": {}}, id="empty pod level"),
    ],
)
def test_a_pod_without_amounts_asks_for_nothing(spec: dict[str, Any]) -> None:
    assert requested_by({"spec": spec}) == {}


def test_each_quantity_that_does_not_parse_is_named_and_left_out() -> None:
    pod = make_pod(
        containers=[
            make_container(requests={GPU: "1", "cpu": "x"}, limits={GPU: "1"}),
            make_container(limits={GPU: "1K"}),
        ],
        init_containers=[make_container(requests={"memory": "-1"})],
        spec={
            "overhead": {"cpu": "1GB"},
            "resources": {"requests": {"cpu": True}, "limits": {"memory": ""}},
        },
    )

    request, faults = request_and_faults(pod)

    assert request == ((GPU, 1),)
    assert faults == {
        "spec.containers[0].resources.requests['cpu']": (
            "not a number with an optional suffix"
        ),
        "spec.containers[1].resources.limits['nvidia.com/gpu']": (
            "not a number with an optional suffix"
        ),
        "spec.initContainers[0].resources.requests['memory']": "negative",
        "spec.resources.limits['memory']": "no digits",
        "spec.resources.requests['cpu']": "neither text nor a number",
        "spec.overhead['cpu']": "not a number with an optional suffix",
    }


@pytest.mark.parametrize(
    ("resources", "fault"),
    [
        pytest.param(None, "", id="nothing asked"),
        pytest.param({"limits": {GPU: "2"}, "requests": {GPU: 2}}, "", id="equal"),
        pytest.param({"requests": {GPU: "2"}}, "", id="without a limit"),
        pytest.param({"limits": {GPU: "many"}}, "", id="unreadable"),
        pytest.param({"limits": {GPU: "1.5"}}, "limit", id="half a GPU"),
        pytest.param(
            {"limits": {GPU: "2"}, "requests": {GPU: "1"}}, "request", id="unequal"
        ),
    ],
)
def test_why_kubernetes_refuses_an_extended_resource(
    resources: Tree | None, fault: str
) -> None:
    pod = msgspec.convert({"containers": [{"resources": resources}]}, PodSpec)
    assert pod.containers is not None
    said = extended_fault(pod.containers[0].resources, GPU)
    assert (fault in said) if fault else not said


# --- in the middle of an in-place resize --------------------------------------


def resized(
    name: str, requests: Tree | None, allocated: Tree | None = None, **more: Any
) -> Tree:
    return {
        "name": name,
        "resources": {"requests": requests},
        "allocatedResources": allocated,
        **more,
    }


def condition(kind: str, reason: str) -> Tree:
    return {"type": kind, "status": "True", "reason": reason}


ASKED = {"cpu": "2", GPU: "1"}
SIX = {"cpu": "6", GPU: "1"}
GROWING = condition("PodResizeInProgress", "")
DEFERRED = condition("PodResizePending", "Deferred")
INFEASIBLE = condition("PodResizePending", "Infeasible")


def sidecar(cpu: str, *, is_sidecar: bool = True) -> Tree:
    return make_container(name="s", requests={"cpu": cpu}, is_sidecar=is_sidecar)


@pytest.mark.parametrize(
    ("pod", "status", "cpu"),
    [
        pytest.param({}, {"containerStatuses": [resized("main", SIX, SIX)]}, 6000,
                     id="not shrunk yet"),
        pytest.param({}, {"containerStatuses": [resized("main", ASKED, SIX)]}, 6000,
                     id="allocated, not in use yet"),
        pytest.param({}, {"containerStatuses": [resized("main", SIX, ASKED)]}, 6000,
                     id="in use, no longer allocated"),
        pytest.param({}, {"containerStatuses": [resized("main", {"cpu": "1"})],
                          "conditions": [DEFERRED]}, 2000, id="deferred counts whole"),
        pytest.param({}, {"containerStatuses": [resized("main", {"cpu": "1"})],
                          "conditions": [INFEASIBLE]}, 1000,
                     id="infeasible is left out"),
        pytest.param({}, {"containerStatuses": [resized("main", None, {"cpu": "1"})],
                          "conditions": [GROWING, INFEASIBLE]}, 1000,
                     id="infeasible, only allocated is told"),
        pytest.param({}, {"containerStatuses": [{"name": "main",
                                                 "allocatedResources": SIX}]},
                     2000, id="no resources in the status"),
        pytest.param({}, {"containerStatuses": [resized("other", SIX, SIX)]}, 2000,
                     id="a container that is not there"),
        pytest.param({"init_containers": [sidecar("1")]},
                     {"initContainerStatuses": [resized("s", {"cpu": "3"})]}, 5000,
                     id="a sidecar"),
        pytest.param({"init_containers": [sidecar("1", is_sidecar=False)]},
                     {"initContainerStatuses": [resized("s", {"cpu": "9"})]}, 2000,
                     id="an init container never is"),
        pytest.param({"spec": {"resources": {"requests": {"cpu": "3"}}}},
                     {"resources": {"requests": {"cpu": "5"}},
                      "allocatedResources": {"cpu": "4"}}, 5000,
                     id="the pod as a whole"),
        pytest.param({"spec": {"resources": {"requests": {"cpu": "3"}}}},
                     {"resources": {"requests": {"cpu": "1"}},
                      "conditions": [INFEASIBLE]}, 1000,
                     id="infeasible for the pod as a whole"),
        pytest.param({"spec": {"resources": {"requests": {"cpu": "3"}}}},
                     {"containerStatuses": [resized("main", SIX)]}, 3000,
                     id="a container, where the pod as a whole is told nothing of"),
        pytest.param({"spec": {"overhead": {"cpu": "1"}}},
                     {"containerStatuses": [resized("main", SIX)]}, 7000,
                     id="with overhead"),
    ],
)  # fmt: skip
def test_a_pod_in_a_resize_takes_the_largest_that_the_node_may_owe_it(
    pod: Tree, status: Tree, cpu: int
) -> None:
    tree = make_pod(
        containers=[make_container(requests=ASKED, limits={GPU: "1"})],
        node_name="a",
        status=status,
        **pod,
    )
    decoded = msgspec.convert(tree, Pod)

    faults: list[str] = []

    request = effective_request(
        decoded.spec,
        any_resource,
        lambda path, _error: faults.append(path),
        decoded.status,
    )

    assert dict(request)["cpu"] == cpu
    assert not faults


@pytest.mark.parametrize(
    ("status", "is_told"),
    [
        ({}, False),
        ({"containerStatuses": [{"name": "main"}]}, False),
        ({"containerStatuses": [resized("main", ASKED, ASKED)]}, False),
        ({"containerStatuses": [resized("main", ASKED, SIX)]}, True),
        ({"containerStatuses": [resized("main", {"cpu": "2"}, None)]}, True),
        ({"containerStatuses": [resized("main", {}, None)]}, True),
        ({"containerStatuses": [resized("main", None, ASKED)]}, True),
        ({"containerStatuses": [resized("gone", SIX)]}, True),
        ({"containerStatuses": [resized("gone", {}), resized("gone", None)]}, False),
        ({"resources": {"requests": {"cpu": "4"}}}, True),
    ],
)
def test_whether_a_status_tells_of_a_resize(status: Tree, is_told: bool) -> None:
    tree = make_pod(containers=[make_container(requests=ASKED)], status=status)
    decoded = msgspec.convert(tree, Pod)

    assert is_resizing(decoded.spec, decoded.status) is is_told


def test_a_quantity_of_the_status_that_does_not_parse_is_named() -> None:
    tree = make_pod(
        containers=[make_container(requests=ASKED)],
        status={"containerStatuses": [resized("main", {"cpu": "some"}, {"cpu": "x"})]},
    )
    decoded = msgspec.convert(tree, Pod)
    faults: list[str] = []

    request = effective_request(
        decoded.spec,
        any_resource,
        lambda path, _error: faults.append(path),
        decoded.status,
    )

    assert dict(request)["cpu"] == 2000
    assert faults == [
        "status.containerStatuses[0].resources.requests['cpu']",
        "status.containerStatuses[0].allocatedResources['cpu']",
    ]
