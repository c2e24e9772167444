import sys
from copy import deepcopy
from typing import Any

import msgspec
import pytest

import cluster.decode.records
from cluster.decode.faults import MAX_FAULTS, convert_with_faults, decode_object
from cluster.decode.objects import (
    NO_CONSTRAINTS,
    DeviceClass,
    Node,
    Pod,
    parse_time,
)
from cluster.decode.records import RecordBuilder, constraints_of, shared
from scoring.faults import Fault
from tests.builders import (
    BUILDER,
    GPU,
    SCOPE,
    Tree,
    make_container,
    make_node,
    make_node_record,
    make_pod,
    make_pod_record,
)
from tests.defaults import GPU_ANNOTATIONS

NOON = 1795780800.0  # 2026-11-27T12:00:00Z
MIG_STATE = "nvidia.com/mig.config.state"
UPGRADE_STATE = "nvidia.com/gpu-driver-upgrade-state"
PRODUCT = "nvidia.com/gpu.product"


def faults_of(tree: Tree, kind: type[Any] = Node) -> dict[str, str]:
    """Return path and message of each fault found while converting."""
    _, faults = convert_with_faults(deepcopy(tree), kind)
    return {fault.path: fault.message for fault in faults}


def test_a_node_record_holds_all_that_the_node_offers() -> None:
    record = make_node_record(
        make_node(
            name="a",
            gpus=8,
            cpu="4",
            memory="1Gi",
            pods="10",
            resources={"nvidia.com/mig-1g.10gb": "0", "hugepages-2Mi": "8Mi"},
            capacity={GPU: "9", "cpu": "5"},
            labels={"x": "y"},
            taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}],
            is_cordoned=True,
        )
    )

    assert record.name == "a"
    assert record.labels["x"] == "y"
    assert dict(record.allocatable) == {
        "cpu": 4000,
        "memory": 2**30,
        GPU: 8,
        "pods": 10,
        "hugepages-2Mi": 8 * 2**20,
    }
    assert dict(record.capacity) == {**dict(record.allocatable), GPU: 9, "cpu": 5000}
    assert [(taint.key, taint.effect) for taint in record.taints] == [
        ("k", "NoSchedule")
    ]
    assert (record.is_ready, record.is_cordoned, record.is_faulted) == (
        True,
        True,
        False,
    )


@pytest.mark.parametrize(
    ("conditions", "is_ready"),
    [
        pytest.param([{"type": "Ready", "status": "True"}], True, id="ready"),
        pytest.param([{"type": "Ready", "status": "False"}], False, id="not ready"),
        pytest.param([{"type": "Ready", "status": "Unknown"}], False, id="lost"),
        pytest.param([{"type": "Other", "status": "True"}], False, id="not said"),
        pytest.param([], False, id="no conditions"),
        pytest.param(None, False, id="null"),
    ],
)
def test_readiness_is_the_ready_condition(
    conditions: list[Tree] | None, is_ready: bool
) -> None:
    node = make_node()
    node["status"]["conditions"] = conditions

    assert make_node_record(node).is_ready is is_ready


@pytest.mark.parametrize(
    ("labels", "conditions", "is_faulted"),
    [
        pytest.param({}, {}, False, id="nothing said"),
        pytest.param({MIG_STATE: "success"}, {}, False, id="MIG layout done"),
        pytest.param({MIG_STATE: "pending"}, {}, True, id="MIG layout pending"),
        pytest.param({MIG_STATE: "rebooting"}, {}, True, id="MIG layout rebooting"),
        pytest.param({MIG_STATE: "failed"}, {}, True, id="MIG layout failed"),
        pytest.param({MIG_STATE: ""}, {}, True, id="MIG layout, nothing"),
        pytest.param({UPGRADE_STATE: "upgrade-done"}, {}, False, id="driver done"),
        pytest.param(
            {UPGRADE_STATE: "upgrade-required"}, {}, False, id="driver not begun"
        ),
        pytest.param({UPGRADE_STATE: ""}, {}, False, id="driver, nothing"),
        *[
            pytest.param({UPGRADE_STATE: state}, {}, True, id=f"driver {state}")
            for state in (
                "cordon-required",
                "wait-for-jobs-required",
                "pod-deletion-required",
                "drain-required",
                "pod-restart-required",
                "validation-required",
                "uncordon-required",
                "upgrade-failed",
            )
        ],
        pytest.param(
            {PRODUCT: "NVIDIA-A100-SXM4-80GB-MIG-INVALID"}, {}, True, id="MIG invalid"
        ),
        pytest.param(
            {PRODUCT: "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"}, {}, False, id="MIG valid"
        ),
        pytest.param(
            {"other": "NVIDIA-A100-MIG-INVALID"}, {}, False, id="said of another label"
        ),
        pytest.param(
            {}, {"AcceleratedHardwareReady": "False"}, True, id="condition fails"
        ),
        pytest.param(
            {}, {"AcceleratedHardwareReady": "True"}, False, id="condition holds"
        ),
        pytest.param(
            {}, {"AcceleratedHardwareReady": "Unknown"}, False, id="condition unknown"
        ),
        pytest.param(
            {MIG_STATE: "success", UPGRADE_STATE: "drain-required"},
            {},
            True,
            id="one signal is enough",
        ),
    ],
)
def test_fault_signals(
    labels: dict[str, str], conditions: dict[str, str], is_faulted: bool
) -> None:
    node = make_node(gpus=8, labels=labels, conditions=conditions)

    assert make_node_record(node).is_faulted is is_faulted


def test_without_signals_no_node_is_faulted() -> None:
    node = make_node(gpus=8, labels={MIG_STATE: "pending"})

    assert not make_node_record(
        node, builder=RecordBuilder(SCOPE, GPU_ANNOTATIONS)
    ).is_faulted


def test_quantities_of_a_node_that_do_not_parse_are_named_and_left_out() -> None:
    node = msgspec.convert(
        make_node(
            gpus=8,
            resources={"memory": "1.2.3Gi", "cpu": "-1", "example.com/x": "nonsense"},
        ),
        Node,
    )

    record, faults = BUILDER.node_record(node)

    assert dict(record.allocatable) == {GPU: 8, "pods": 110}
    assert [str(fault) for fault in faults] == [
        f"status.{part}[{name!r}]: quantity {said}"
        for part in ("allocatable", "capacity")
        for name, said in (
            ("cpu", "'-1': negative"),
            ("memory", "'1.2.3Gi': not a number with an optional suffix"),
            ("example.com/x", "'nonsense': not a number with an optional suffix"),
        )
    ]


def test_a_pod_record_holds_its_request_and_one_place() -> None:
    record = make_pod_record(
        make_pod(
            name="p",
            namespace="ml",
            uid="u",
            gpus=2,
            cpu="1",
            owner_uid="job",
            metadata={"generateName": "p-"},
        )
    )

    assert dict(record.request) == {GPU: 2, "cpu": 1000, "pods": 1}
    assert (record.uid, record.namespace, record.name) == ("u", "ml", "p")
    assert (record.generate_name, record.owner_uid) == ("p-", "job")
    assert record.created == NOON
    assert record.is_managed
    assert not record.is_terminal
    assert not record.is_gated
    assert record.unschedulable_since is None


def test_a_pod_that_asks_nothing_of_ours_is_not_managed() -> None:
    record = make_pod_record(make_pod(cpu="1"))

    assert not record.is_managed
    assert dict(record.request) == {"cpu": 1000, "pods": 1}


def test_a_pod_that_asks_zero_gpus_is_not_managed() -> None:
    assert not make_pod_record(make_pod(gpus="0")).is_managed


@pytest.mark.parametrize(
    ("phase", "is_terminal"),
    [
        ("Pending", False),
        ("Running", False),
        ("Unknown", False),
        ("Succeeded", True),
        ("Failed", True),
    ],
)
def test_succeeded_and_failed_are_terminal(phase: str, is_terminal: bool) -> None:
    assert make_pod_record(make_pod(phase=phase)).is_terminal is is_terminal


def test_a_pod_without_uid_is_known_by_its_name() -> None:
    record = make_pod_record(make_pod(name="p", namespace="ml", uid=""))

    assert record.uid == "ml/p"


def test_equal_requests_are_kept_once() -> None:
    first, second = (
        make_pod_record(make_pod(name=name, gpus=3, cpu="7")) for name in "ab"
    )

    assert first.request is second.request
    assert shared(first.request) is first.request


def test_a_request_is_remembered_only_by_all_that_it_depends_on() -> None:
    container = make_container(limits={GPU: 1})
    flag: Tree = {"name": "main", "resources": {"limits": {GPU: True}}}
    builder = RecordBuilder(SCOPE, GPU_ANNOTATIONS)

    def read(**pod: Any) -> tuple[int, int]:
        tree = msgspec.convert(make_pod(**pod), Pod)
        record, faults = builder.pod_record(tree)
        return dict(record.request).get(GPU, 0), len(faults)

    for _ in range(2):
        assert read(containers=[container]) == (1, 0)
        assert read(containers=[flag]) == (0, 1)
        assert read(containers=[container], spec={"overhead": {GPU: "1"}}) == (2, 0)
        assert read(containers=[container], init_containers=[container]) == (1, 0)
        sidecar = make_container(limits={GPU: 1}, is_sidecar=True)
        assert read(containers=[container], init_containers=[sidecar]) == (2, 0)


def test_the_memory_of_requests_has_its_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster.decode.records, "MAX_KNOWN_REQUESTS", 3)
    builder = RecordBuilder(SCOPE, GPU_ANNOTATIONS)

    for gpus in (1, 2, 3, 4, 5, 1, 2):
        record = make_pod_record(make_pod(gpus=gpus), builder=builder)

        assert dict(record.request)[GPU] == gpus
        assert len(builder._requests) <= 3


def test_the_request_of_a_pod_with_very_much_in_it_is_not_kept() -> None:
    builder = RecordBuilder(SCOPE, GPU_ANNOTATIONS)
    pod = make_pod(containers=[make_container(limits={GPU: "2"})] * 100)

    record = make_pod_record(pod, builder=builder)

    assert dict(record.request)[GPU] == 200
    assert builder._requests == {}


def test_a_pod_with_gates_is_gated() -> None:
    gated = make_pod(spec={"schedulingGates": [{"name": "wait"}]})

    assert make_pod_record(gated).is_gated


UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "lastTransitionTime": "2026-11-27T13:00:00+01:00",
}


@pytest.mark.parametrize(
    ("change", "since"),
    [
        pytest.param({}, NOON, id="said"),
        pytest.param({"reason": "SchedulingGated"}, None, id="gated"),
        pytest.param({"status": "True"}, None, id="scheduled"),
        pytest.param({"type": "Ready"}, None, id="another condition"),
        pytest.param({"lastTransitionTime": None}, None, id="no time"),
    ],
)
def test_since_when_a_pod_fits_nowhere(change: Tree, since: float | None) -> None:
    conditions = [{"type": "Other", "status": "x"}, {**UNSCHEDULABLE, **change}]

    record = make_pod_record(make_pod(status={"conditions": conditions}))

    assert record.unschedulable_since == since


def test_times_that_do_not_parse_are_named() -> None:
    pod = msgspec.convert(
        make_pod(
            gpus=1,
            metadata={"creationTimestamp": "yesterday"},
            status={"conditions": [{**UNSCHEDULABLE, "lastTransitionTime": "x" * 999}]},
        ),
        Pod,
    )

    record, faults = BUILDER.pod_record(pod)

    assert (record.created, record.unschedulable_since) == (0.0, None)
    assert [fault.path for fault in faults] == [
        "metadata.creationTimestamp",
        "status.conditions[0].lastTransitionTime",
    ]
    assert str(faults[0]).endswith("wanted an RFC 3339 time, got 'yesterday'")
    assert len(faults[1].message) < 150


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("2026-11-27T12:00:00Z", id="UTC"),
        pytest.param("2026-11-27T12:00:00.000000Z", id="microseconds"),
        pytest.param("2026-11-27T13:00:00+01:00", id="offset"),
    ],
)
def test_times_are_seconds_since_the_epoch(text: str) -> None:
    assert parse_time(text) == NOON


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("2026-11-27T12:00:00", id="no offset"),
        pytest.param("2026-11-27", id="a date"),
        pytest.param("0001-01-01T00:00:00", id="year 1 without offset"),
        pytest.param("2026-13-27T12:00:00Z", id="month 13"),
        pytest.param("", id="empty"),
    ],
)
def test_other_texts_are_no_times(text: str) -> None:
    with pytest.raises(ValueError, match=r"time|isoformat|month"):
        parse_time(text)


@pytest.mark.parametrize(
    ("metadata", "key"),
    [
        pytest.param({"uid": "u", "name": "p", "namespace": "ml"}, "u", id="UID"),
        pytest.param({"name": "p", "namespace": "ml"}, "ml/p", id="no UID"),
        pytest.param({"name": "p"}, "default/p", id="no namespace either"),
        pytest.param({"generateName": "p-", "namespace": "ml"}, "", id="no name yet"),
    ],
)
def test_what_tells_a_pod_from_others(metadata: Tree, key: str) -> None:
    assert msgspec.convert({"metadata": metadata}, Pod).key == key


def test_the_owner_is_the_controller() -> None:
    owners = [{"uid": "a"}, {"uid": "b", "controller": True}]
    pod = msgspec.convert(make_pod(metadata={"ownerReferences": owners}), Pod)
    other = msgspec.convert(make_pod(metadata={"ownerReferences": owners[:1]}), Pod)

    assert (pod.owner_uid, other.owner_uid) == ("b", "")


def test_the_owner_is_kept_while_a_pod_with_gpus_waits() -> None:
    waiting = make_pod_record(make_pod(gpus=1, owner_uid="job"))
    bound = make_pod_record(make_pod(gpus=1, owner_uid="job", node_name="a"))

    owner = waiting.owner
    assert owner is not None
    assert (owner.api_version, owner.kind, owner.name, owner.uid) == (
        "batch/v1",
        "Job",
        "owner",
        "job",
    )
    assert bound.owner is None


def test_a_pending_pod_keeps_whose_ask_decides_and_pods_of_a_template_share_it() -> (
    None
):
    several = [make_container(name=n, requests={"cpu": "1"}) for n in "ab"]
    first, second = (
        make_pod_record(make_pod(name=name, containers=several, uid=name))
        for name in ("first", "second")
    )
    bound = make_pod_record(make_pod(containers=several, node_name="n"))

    assert [(s.resource, s.container, s.beside) for s in first.shares] == [
        ("cpu", "a", 1000)
    ]
    assert first.shares is second.shares
    assert bound.shares == make_pod_record(make_pod(gpus=1, cpu="1")).shares == ()


def test_a_pending_pod_keeps_which_nodes_it_may_go_to() -> None:
    term = {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}
    record = make_pod_record(
        make_pod(
            gpus=1,
            spec={
                "nodeSelector": {"a": "b"},
                "tolerations": [{"key": "t", "operator": "Exists"}],
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [term]
                        }
                    }
                },
            },
        )
    )
    kept = record.constraints

    assert kept.node_selector == {"a": "b"}
    assert [item.key for item in kept.tolerations] == ["t"]
    assert kept.affinity_terms is not None
    assert kept.affinity_terms[0].expressions is not None
    assert kept.affinity_terms[0].expressions[0].values == ("v",)


@pytest.mark.parametrize(
    ("affinity", "terms"),
    [
        pytest.param(None, None, id="null"),
        pytest.param({}, None, id="empty"),
        pytest.param({"nodeAffinity": {}}, None, id="preferences alone"),
        pytest.param(
            {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": None
                    }
                }
            },
            (),
            id="required, without terms",
        ),
    ],
)
def test_affinity_without_terms(affinity: Tree | None, terms: object) -> None:
    pod = msgspec.convert(make_pod(spec={"affinity": affinity}), Pod)

    assert constraints_of(pod).affinity_terms == terms


def test_a_bound_pod_keeps_no_constraints() -> None:
    pod = make_pod(gpus=1, node_name="a", spec={"nodeSelector": {"a": "b"}})

    assert make_pod_record(pod).constraints is NO_CONSTRAINTS


def test_an_object_is_decoded_from_bytes() -> None:
    node = decode_object(b'{"metadata": {"name": "a"}, "unknown": [1]}', Node)

    assert node.metadata.name == "a"
    with pytest.raises(msgspec.ValidationError):
        decode_object(b'{"metadata": {"name": 1}}', Node)


def test_a_right_tree_has_no_faults() -> None:
    assert not faults_of(make_node(gpus=8))
    assert not faults_of(make_pod(gpus=1), Pod)


@pytest.mark.parametrize(
    ("tree", "faults"),
    [
        pytest.param(
            {"metadata": {"name": 5}},
            {"metadata.name": "wanted str, got int: 5"},
            id="a number for text",
        ),
        pytest.param(
            {"metadata": {"name": "a", "labels": {"b": 1, "c": "d", "e": None}}},
            {
                "metadata.labels['b']": "wanted text, got 1",
                "metadata.labels['e']": "wanted text, got None",
            },
            id="label values",
        ),
        pytest.param(
            {"metadata": {"name": "a", "labels": ["x"]}},
            {"metadata.labels": "wanted object | null, got array: ['x']"},
            id="a list for a mapping",
        ),
        pytest.param(
            {"metadata": {"name": "a", "labels": {1: "x", "b": 2}}},
            {
                "metadata.labels[1]": "wanted text as key, got 1",
                "metadata.labels['b']": "wanted text, got 2",
            },
            id="a key that is no text",
        ),
        pytest.param(
            {"metadata": {"name": "a"}, "status": {"allocatable": {1: "x"}}, 7: 8},
            {
                "status.allocatable[1]": "wanted text as key, got 1",
                "[7]": "wanted text as key, got 7",
            },
            id="keys that are no text, elsewhere",
        ),
        pytest.param(
            {"spec": {"unschedulable": "yes"}},
            {
                "metadata": "wanted a value, got none",
                "spec.unschedulable": "wanted bool | null, got str: 'yes'",
            },
            id="missing field and another fault",
        ),
        pytest.param(
            {"metadata": None}, {"metadata": "wanted object, got null: None"}, id="null"
        ),
        pytest.param(
            {
                "metadata": {"name": "a"},
                "spec": {
                    "taints": [
                        "x",
                        {"key": "fine"},
                        {"effect": "NoSchedule"},
                        {"key": 1},
                        {"key": "k", "effect": 2},
                    ]
                },
            },
            {
                "spec.taints[0]": "wanted object, got str: 'x'",
                "spec.taints[2].key": "wanted a value, got none",
                "spec.taints[3].key": "wanted str, got int: 1",
                "spec.taints[4].effect": "wanted str, got int: 2",
            },
            id="items of a list keep their places",
        ),
        pytest.param(5, {"object": "wanted object, got int: 5"}, id="no object"),
    ],
)
def test_every_fault_of_a_tree_is_named_with_its_path(
    tree: Any, faults: dict[str, str]
) -> None:
    assert faults_of(tree) == faults


def test_what_is_right_is_decoded_beside_what_is_wrong() -> None:
    tree = make_pod(
        containers=[
            make_container(requests={GPU: "1"}),
            {"name": "b", "resources": {"requests": {GPU: "2", "cpu": "x"}}},
        ],
        spec={"nodeName": 7, "nodeSelector": {"zone": 1, "disk": "ssd"}},
    )
    tree["spec"]["containers"].insert(0, "no container")
    tree["spec"]["containers"].insert(2, None)

    pod, faults = convert_with_faults(tree, Pod)
    assert pod is not None
    record, more = BUILDER.pod_record(pod)

    assert dict(record.request) == {GPU: 3, "pods": 1}
    assert record.constraints.node_selector == {"disk": "ssd"}
    assert [fault.path for fault in faults] == [
        "spec.containers[0]",
        "spec.containers[2]",
        "spec.nodeName",
        "spec.nodeSelector['zone']",
    ]
    assert [fault.path for fault in more] == [
        "spec.containers[3].resources.requests['cpu']"
    ]


def test_of_values_in_a_list_of_text_only_the_wrong_ones_go() -> None:
    tree: Tree = {
        "spec": {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {
                                        "key": "k",
                                        "operator": "In",
                                        "values": [1, "a", 2, "b"],
                                    }
                                ]
                            }
                        ]
                    }
                }
            }
        }
    }

    pod, faults = convert_with_faults(tree, Pod)

    assert pod is not None
    terms = constraints_of(pod).affinity_terms
    assert terms is not None
    assert terms[0].expressions is not None
    assert terms[0].expressions[0].values == ("a", "b")
    assert [fault.path[-9:] for fault in faults] == ["values[0]", "values[2]"]


def test_a_hopeless_object_is_given_up() -> None:
    tree = {"metadata": {"name": "a"}, "spec": {"taints": [1] * 500}}

    node, faults = convert_with_faults(tree, Node)

    assert node is None
    assert len(faults) == MAX_FAULTS


def test_a_device_class_may_carry_a_resource() -> None:
    tree = {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": GPU}}

    device_class, faults = convert_with_faults(tree, DeviceClass)

    assert not faults
    assert device_class is not None
    assert device_class.spec.extended_resource_name == GPU


def test_a_fault_reads_as_path_and_message() -> None:
    assert str(Fault("spec.x", "wanted text, got 1")) == "spec.x: wanted text, got 1"


@pytest.mark.parametrize(
    ("node_name", "cpu"), [pytest.param("a", 6000), pytest.param("", 2000)]
)
def test_a_resize_counts_on_the_node_and_leaves_other_pods_as_they_are(
    node_name: str, cpu: int
) -> None:
    six = {"cpu": "6"}
    status = {
        "name": "main",
        "resources": {"requests": six},
        "allocatedResources": six,
    }
    plain = make_pod(cpu="2", gpus=1, node_name=node_name)
    tree = make_pod(
        uid="resized",
        cpu="2",
        gpus=1,
        node_name=node_name,
        status={"containerStatuses": [status]},
    )

    for pod, expected in ((plain, 2000), (tree, cpu), (plain, 2000)):
        assert dict(make_pod_record(pod).request)["cpu"] == expected


@pytest.mark.parametrize(
    ("spec", "group"),
    [
        pytest.param({}, "", id="none"),
        pytest.param({"schedulingGroup": {"podGroupName": "team"}}, "team", id="group"),
        pytest.param(
            {"workloadRef": {"name": "job", "podGroup": "workers"}},
            "job/workers",
            id="of Kubernetes 1.35",
        ),
        pytest.param({"schedulingGroup": "team"}, "", id="odd"),
    ],
)
def test_the_group_of_a_pod_is_kept_while_it_waits(spec: Tree, group: str) -> None:
    waiting = make_pod_record(make_pod(gpus=1, spec=spec))
    bound = make_pod_record(make_pod(gpus=1, spec=spec, node_name="n"))

    assert (waiting.group, bound.group) == (group, "")


@pytest.mark.parametrize(
    ("resources", "cpu"),
    [
        pytest.param({}, 1000, id="nothing is in use"),
        pytest.param({"requests": {}}, 1000, id="an empty list is"),
        pytest.param({"requests": None}, 1000, id="no list is"),
        pytest.param({"requests": {"memory": "1Gi"}}, 1000, id="another resource is"),
        pytest.param({"requests": {"cpu": "500m"}}, 1500, id="less is"),
        pytest.param(None, 3000, id="nothing is told"),
    ],
)
def test_what_a_pod_first_asks_in_a_resize_that_is_infeasible_does_not_count(
    resources: Tree | None, cpu: int
) -> None:
    status: Tree = {"name": "late"}
    if resources is not None:
        status["resources"] = resources
    pod = make_pod(
        containers=[
            make_container(requests={"cpu": "1"}),
            make_container(name="late", requests={"cpu": "2"}),
        ],
        node_name="node-1",
        status={
            "containerStatuses": [status],
            "conditions": [
                {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
            ],
        },
    )

    assert dict(make_pod_record(pod).request)["cpu"] == cpu


@pytest.mark.parametrize(
    "annotation", ["gpu-extender.io/allocated", "gpu-extender.io/links"]
)
def test_long_annotations_about_gpus_are_not_kept(annotation: str) -> None:
    text = f"{annotation}," * 8192
    annotations = {annotation: text}
    before = sys.getrefcount(text)

    records = (
        make_node_record(make_node(gpus=1, annotations=annotations)),
        make_pod_record(make_pod(gpus=1, annotations=annotations, node_name="node-1")),
    )

    assert records
    assert sys.getrefcount(text) == before
