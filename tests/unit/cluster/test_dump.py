import contextlib
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import cluster.dump
from cluster.dump import MAX_SHOWN_FAULTS, DumpError, load_dump
from cluster.ledger.ledger import Ledger
from scoring.protocols import LimitMaxima
from scoring.snapshot import Snapshot
from tests.builders import (
    BUILDER,
    GPU,
    LABEL_KEYS,
    Tree,
    make_container,
    make_node,
    make_pod,
)

CAPTURES = Path(__file__).parents[2] / "contract" / "captures" / "1.36"
DUMP = CAPTURES / "cluster-dump.yaml"

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes text, bytes or trees to a file."""

    def write_file(name: str, *contents: Any) -> Path:
        path = tmp_path / name
        if len(contents) == 1 and isinstance(contents[0], bytes):
            path.write_bytes(contents[0])
        elif len(contents) == 1 and isinstance(contents[0], str):
            path.write_text(contents[0], encoding="utf-8")
        elif path.suffix == ".json":
            path.write_text(json.dumps(contents[0]), encoding="utf-8")
        else:
            path.write_text(yaml.safe_dump_all(contents), encoding="utf-8")
        return path

    return write_file


def load(*paths: Path) -> Snapshot:
    ledger = Ledger(LABEL_KEYS)
    for change in load_dump(paths, BUILDER):
        ledger.apply(change)
    return ledger.build()


def free_gpus(snapshot: Snapshot) -> dict[str, int]:
    return dict(zip(snapshot.nodes.names, snapshot.free(GPU).tolist(), strict=True))


def faults_of(*paths: Path) -> list[str]:
    with pytest.raises(DumpError) as caught:
        load_dump(paths, BUILDER)
    return [str(fault) for fault in caught.value.faults]


def plain(snapshot: Snapshot) -> dict[str, Any]:
    """Return all that a snapshot says, in a form that can be compared."""
    return {
        "names": snapshot.nodes.names,
        "resources": snapshot.resources,
        "tables": [
            table.tolist()
            for table in (
                snapshot.allocatable,
                snapshot.requested,
                snapshot.offered,
                snapshot.schedulable,
                snapshot.faulted,
            )
        ],
        "labels": {
            key: (column.codes.tolist(), dict(column.code_of))
            for key, column in snapshot.labels.items()
        },
        "facts": snapshot.facts,
        "shares": dict(snapshot.bound_pods),
        "pending": snapshot.pending,
        "classes": snapshot.device_class_resources,
    }


def test_the_dump_of_a_real_cluster() -> None:
    snapshot = load(DUMP)

    assert free_gpus(snapshot) == {
        "a100-mig-01": 0,
        "a100-pcie-01": 2,
        "a100-sxm-01": 0,
        "cpu-01": 0,
        "h100-01": 6,
        "h100-02": 0,
        "l4-01": 2,
        "t4-01": 4,
        "t4-shared-01": 7,
        "v100-01": 0,
    }
    assert len(snapshot.pending) == 5
    assert snapshot.free("nvidia.com/mig-2g.10gb").max() == 6


def test_yaml_and_json_of_the_same_cluster_are_the_same(write: Write) -> None:
    converted = write("dump.json", yaml.safe_load(DUMP.read_bytes()))

    assert plain(load(converted)) == plain(load(DUMP))


def test_two_lists_of_the_api_server_are_the_same_as_the_dump() -> None:
    lists = load(CAPTURES / "list-nodes.json", CAPTURES / "list-pods.json")

    assert plain(lists) == plain(load(DUMP))


def test_nodes_and_pods_may_be_in_two_files_of_either_form(write: Write) -> None:
    nodes = write("nodes.yaml", {"kind": "NodeList", "items": [make_node(gpus=8)]})
    pods = write(
        "pods.json",
        {"kind": "PodList", "items": [make_pod(gpus=3, node_name="node-1")]},
    )

    assert free_gpus(load(nodes, pods)) == {"node-1": 5}
    assert free_gpus(load(pods, nodes)) == {"node-1": 5}


def test_items_of_a_typed_list_need_no_kind(write: Write) -> None:
    node, pod = make_node(gpus=8), make_pod(gpus=3, node_name="node-1")
    del node["kind"], pod["kind"]
    path = write(
        "dump.yaml",
        {"kind": "NodeList", "items": [node]},
        {"kind": "PodList", "items": [pod]},
    )

    assert free_gpus(load(path)) == {"node-1": 5}


def test_several_documents_in_one_file(write: Write) -> None:
    path = write(
        "dump.yaml",
        make_node(name="a", gpus=8),
        {"kind": "List", "items": [make_node(name="b", gpus=4)]},
        make_pod(gpus=1, node_name="b"),
        None,
    )

    assert free_gpus(load(path)) == {"a": 8, "b": 3}


@pytest.mark.parametrize("name", ["node.yaml", "node.json", "node.txt"])
def test_one_object_alone(write: Write, name: str) -> None:
    assert free_gpus(load(write(name, make_node(gpus=8)))) == {"node-1": 8}


def test_pods_alone_make_a_cluster_that_waits_for_its_nodes(write: Write) -> None:
    snapshot = load(write("pods.yaml", make_pod(gpus=1)))

    assert snapshot.nodes.names == ()
    assert [pod.uid for pod in snapshot.pending] == ["uid-of-default-pod-1"]


def test_objects_of_other_kinds_are_skipped(write: Write) -> None:
    path = write(
        "dump.yaml",
        {"kind": "List", "items": [make_node(gpus=8), {"kind": "Service", "spec": 5}]},
        {"kind": "ConfigMapList", "items": [{"data": 1}]},
        {"kind": "Namespace"},
    )

    assert free_gpus(load(path)) == {"node-1": 8}


def test_device_classes_are_read(write: Write) -> None:
    carrying = {
        "kind": "DeviceClass",
        "metadata": {"name": "gpu"},
        "spec": {"extendedResourceName": GPU},
    }
    other = {"kind": "DeviceClass", "metadata": {"name": "nic"}}
    path = write("dump.yaml", {"kind": "List", "items": [make_node(), carrying, other]})

    assert load(path).device_class_resources == frozenset({GPU})


def test_plain_times_in_yaml_are_text_as_in_json(write: Write) -> None:
    path = write(
        "pods.yaml",
        "kind: Pod\n"
        "metadata:\n"
        "  name: p\n"
        "  uid: u\n"
        "  creationTimestamp: 2026-11-27T12:00:00Z\n"
        "  annotations: {day: 2026-11-27}\n"
        "spec:\n"
        "  containers:\n"
        "  - resources: {limits: {nvidia.com/gpu: 1}}\n",
    )

    assert [pod.created for pod in load(path).pending] == [1795780800.0]


def test_a_plain_equals_sign_in_yaml_is_text(write: Write) -> None:
    path = write(
        "pods.yaml",
        "kind: Pod\n"
        "metadata: {name: p, uid: u, annotations: {comparison: =}}\n"
        "spec:\n"
        "  containers:\n"
        "  - args:\n"
        "    - test\n"
        "    - =\n"
        "    resources: {limits: {nvidia.com/gpu: 1}}\n",
    )

    assert len(load(path).pending) == 1


def test_quantities_may_be_plain_numbers(write: Write) -> None:
    path = write(
        "node.yaml",
        "kind: Node\n"
        "metadata: {name: a}\n"
        "status: {allocatable: {nvidia.com/gpu: 8, cpu: 1.5, memory: 1e3}}\n",
    )
    snapshot = load(path)

    assert dict(zip(snapshot.resources, snapshot.allocatable[:, 0], strict=True)) == {
        "cpu": 1500,
        "memory": 1000,
        GPU: 8,
    }


def test_an_object_may_be_repeated_by_alias(write: Write) -> None:
    path = write(
        "nodes.yaml",
        "kind: List\n"
        "items:\n"
        "- kind: Node\n"
        "  metadata: {name: a}\n"
        "  status: &status {allocatable: {nvidia.com/gpu: 8}}\n"
        "- kind: Node\n"
        "  metadata: {name: b}\n"
        "  status: *status\n",
    )

    assert free_gpus(load(path)) == {"a": 8, "b": 8}


def test_every_fault_of_every_file_is_named_at_once(
    write: Write, tmp_path: Path
) -> None:
    nameless = make_node()
    del nameless["metadata"]["name"]
    first = write(
        "first.yaml",
        {
            "kind": "List",
            "items": [
                make_node(
                    name="a", resources={"memory": "1.2.3Gi"}, capacity={"memory": "1"}
                ),
                nameless,
                "not an object",
                {"metadata": {"name": "b"}},
                make_node(name="a", labels={"count": 8}),  # type: ignore[dict-item]  # the fault under test
                make_pod(gpus="-1", metadata={"creationTimestamp": 5}),
                make_pod(),
                {"kind": "Pod", "metadata": {"namespace": "ml"}},
                {"kind": "Node"},
            ],
        },
    )
    second = write("second.yaml", make_pod(), None, {"kind": "PodList", "items": {}})
    broken_json = write("broken.json", '{"kind": "List", "items": [')
    broken_yaml = write("broken.yaml", "kind: [List")
    missing = tmp_path / "missing.yaml"
    empty = write("empty.yaml", "")

    faults = faults_of(first, second, broken_json, broken_yaml, missing, empty)

    limits = "spec.containers[0].resources"
    assert faults[:-4] == [
        (
            "first.yaml: items[0].status.allocatable['memory']:"
            " quantity '1.2.3Gi': not a number with an optional suffix"
        ),
        "first.yaml: items[1].metadata.name: wanted text, got none",
        "first.yaml: items[2]: wanted an object, got 'not an object'",
        "first.yaml: items[3].kind: wanted text, got None",
        "first.yaml: items[4].metadata.labels['count']: wanted text, got 8",
        "first.yaml: items[4].metadata.name: wanted each once, got 'a' again",
        (
            "first.yaml: items[5].metadata.creationTimestamp:"
            " wanted str | null, got int: 5"
        ),
        (
            f"first.yaml: items[5].{limits}.limits['nvidia.com/gpu']:"
            " quantity '-1': negative"
        ),
        (
            f"first.yaml: items[5].{limits}.requests['nvidia.com/gpu']:"
            " quantity '-1': negative"
        ),
        (
            "first.yaml: items[6].metadata.uid:"
            " wanted each once, got 'uid-of-default-pod-1' again"
        ),
        "first.yaml: items[7].metadata.name: wanted text, got none",
        "first.yaml: items[8].metadata: wanted a value, got none",
        (
            "second.yaml: document 1.metadata.uid:"
            " wanted each once, got 'uid-of-default-pod-1' again"
        ),
        "second.yaml: document 2 items: wanted a list, got {}",
    ]
    assert [fault.split(": ")[0] for fault in faults[-4:]] == [
        str(path) for path in (broken_json, broken_yaml, missing, empty)
    ]
    assert "truncated" in faults[-4]
    assert "line 1" in faults[-3]
    assert "no such file" in faults[-2]
    assert faults[-1].endswith("wanted objects, got an empty file")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("- a\n", "file: wanted an object, got ['a']", id="a list"),
        pytest.param("text", "file: wanted an object, got 'text'", id="a text"),
        pytest.param("{a: 1}", "object.kind: wanted text, got None", id="no kind"),
        pytest.param("kind: 5", "object.kind: wanted text, got 5", id="kind, a number"),
        pytest.param("kind: NodeList", "items: wanted a list, got None", id="no items"),
        pytest.param(
            "items: 5\nkind: List", "items: wanted a list, got 5", id="items, a number"
        ),
        pytest.param(
            "{kind: Node, metadata: {name: a}, 7: 8}",
            "object[7]: wanted text as key, got 7",
            id="a key that is no text",
        ),
        pytest.param("# nothing", "got an empty file", id="a comment alone"),
        pytest.param("---\n---\n", "got an empty file", id="empty documents"),
        pytest.param(
            "kind: List\nitems: []", "wanted nodes and pods, got none", id="no objects"
        ),
        pytest.param("a: !!int ''", "wanted int, got ''", id="no number"),
        pytest.param("a: !!bool maybe", "wanted bool, got 'maybe'", id="no flag"),
        pytest.param("a: 0x_", "wanted int, got '0x_'", id="a number without digits"),
        pytest.param("a: " + "1" * 5000, "wanted int, got '111", id="5,000 digits"),
        pytest.param("a: !!set {b}", "could not determine a constructor", id="a set"),
        pytest.param(
            "a: !!python/name:os.system", "could not determine a constructor", id="code"
        ),
        pytest.param("[" * 5000, "nesting depth", id="5,000 levels"),
        pytest.param("- " * 5000, "nesting depth", id="5,000 block levels"),
        pytest.param("? [a]\n: b", "unhashable key", id="a list as key"),
        pytest.param("a: *nowhere", "undefined alias", id="unknown alias"),
        pytest.param("a: \x07", "control characters", id="control character"),
    ],
)
def test_a_yaml_file_that_is_no_dump(write: Write, text: str, said: str) -> None:
    (fault,) = faults_of(write("dump.yaml", text))

    assert said in fault
    assert "dump.yaml" in fault
    assert "\n" not in fault


@pytest.mark.parametrize(
    ("data", "said"),
    [
        pytest.param(b"", "truncated", id="empty"),
        pytest.param(b"\xff\xfe{\x00}\x00", "malformed", id="UTF-16"),
        pytest.param(b'{"a": "\xff"}', "utf-8", id="not UTF-8"),
        pytest.param(b"[" * 100_000, "recursion", id="100,000 levels"),
        pytest.param(b"1" * 5000, "out of range", id="5,000 digits"),
        pytest.param(b"null", "wanted an object, got None", id="null"),
    ],
)
def test_a_json_file_that_is_no_dump(write: Write, data: bytes, said: str) -> None:
    (fault,) = faults_of(write("dump.json", data))

    assert said in fault
    assert "dump.json" in fault


@pytest.mark.parametrize("sign", ["", "-"])
def test_a_number_that_python_does_not_print_is_a_fault(
    write: Write, sign: str
) -> None:
    amount = f"{sign}0x{'F' * 5000}"
    path = write(
        "pod.yaml",
        "kind: Pod\n"
        "metadata: {name: a, uid: a}\n"
        "spec:\n"
        "  containers:\n"
        f"  - resources: {{limits: {{nvidia.com/gpu: {amount}}}}}\n",
    )

    (fault,) = faults_of(path)

    assert "wanted int, got " in fault
    assert "line 5" in fault


def test_large_numbers_are_capped(write: Write) -> None:
    path = write(
        "node.yaml",
        "kind: Node\n"
        "metadata: {name: a}\n"
        f"status: {{allocatable: {{nvidia.com/gpu: 0x{'F' * 900}}}}}\n",
    )

    assert free_gpus(load(path)) == {"a": 2**63 - 1}


def test_a_folder_is_no_dump(tmp_path: Path) -> None:
    (fault,) = faults_of(tmp_path)

    assert fault.startswith(f"{tmp_path}: ")


def test_a_device_class_that_does_not_decode_is_a_fault(write: Write) -> None:
    (fault,) = faults_of(write("class.yaml", {"kind": "DeviceClass", "spec": {}}))

    assert fault == "class.yaml: object.metadata: wanted a value, got none"


def test_a_pod_of_which_too_much_is_wrong_is_given_up(write: Write) -> None:
    path = write("pod.json", make_pod(spec={"tolerations": [{"key": 1}] * 60}))

    assert len(faults_of(path)) == 50


def test_the_same_pod_without_uid_is_a_duplicate(write: Write) -> None:
    path = write("dump.yaml", make_pod(uid=""), make_pod(uid=""))

    (fault,) = faults_of(path)

    assert "document 2.metadata.uid: wanted each once, got 'default/pod-1'" in fault


def test_a_long_list_of_faults_is_cut_in_the_message_only(write: Write) -> None:
    count = MAX_SHOWN_FAULTS + 7
    path = write("dump.yaml", {"kind": "List", "items": [1] * count})

    with pytest.raises(DumpError) as caught:
        load_dump([path], BUILDER)

    assert len(caught.value.faults) == count
    assert str(caught.value).count("\n") == MAX_SHOWN_FAULTS + 1
    assert str(caught.value).endswith("and 7 more")


def test_a_large_yaml_file_is_warned_of(
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(cluster.dump, "LARGE_YAML_BYTES", 10)
    in_yaml, in_json = write("a.yaml", make_node()), write("a.json", make_node())

    with caplog.at_level(logging.WARNING):
        load(in_json)
        load(in_yaml)

    assert [record.message for record in caplog.records] == ["large YAML dump read"]


def test_request_spellings_in_a_dump(write: Write) -> None:
    spellings = ["1k", "1e3", "2", 2, "1000m", "0"]
    pods: list[Tree] = [
        make_pod(
            name=f"p{number}",
            containers=[make_container(limits={GPU: spelling})],
        )
        for number, spelling in enumerate(spellings)
    ]
    snapshot = load(write("pods.json", {"kind": "List", "items": pods}))

    assert [dict(pod.request)[GPU] for pod in snapshot.pending] == [1000, 1000, 2, 2, 1]


def test_a_file_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    whole = (Path(__file__).parents[3] / "configs" / "demo-cluster.yaml").read_text()
    lines = whole.splitlines(keepends=True)
    path = tmp_path / "cut.yaml"
    accepted = []

    for end in range(3, len(lines) - 3, 97):
        path.write_text("".join(lines[:end]))
        with contextlib.suppress(DumpError):
            load_dump([path], BUILDER)
            accepted.append(end)

    assert accepted == []


def test_limit_ranges_are_read(write: Write) -> None:
    limit_range = {
        "kind": "LimitRange",
        "metadata": {"name": "limits", "namespace": "ml"},
        "spec": {"limits": [{"type": "Container", "max": {"cpu": "4"}}]},
    }

    path = write("dump.yaml", make_node(), limit_range)

    assert load(path).limit_maxima == {"ml": LimitMaxima((("cpu", 4000),))}


def test_a_limit_range_with_a_faulty_amount_is_a_fault(write: Write) -> None:
    limits = {"limits": [{"type": "Pod", "max": {"cpu": "many"}}]}
    tree = {"kind": "LimitRange", "metadata": {"name": "x"}, "spec": limits}

    (fault,) = faults_of(write("limits.yaml", tree))

    assert fault.startswith("limits.yaml: object.spec.limits[0].max['cpu']: quantity")
