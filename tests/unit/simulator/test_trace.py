"""The files of the trace, their faults, and the workload that is made of them."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from extender.verbs.lookup import pod_request_of_record
from scoring.candidates import PodRequest
from simulator.pods import QueuedPod
from simulator.trace import TraceError, inflated, models_of, read_trace
from tests.simulated import OPTIONS, make_place, make_replay, make_row

NODES = """sn,cpu_milli,memory_mib,gpu,model
n0,64000,262144,2,P100
n1,96000,393216,8,G2
"""

PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos
p0,12000,16384,1,460,V100M32|P100|V100M32,LS
p1,6000,12288,2,1000,,BE
p2,6000,12288,0,0,,BE
"""


def asked(pod: QueuedPod) -> PodRequest:
    """Return what the verbs judge a pod by."""
    return pod_request_of_record(pod.record, OPTIONS)


def write_trace(folder: Path, nodes: str = NODES, pods: str = PODS) -> Path:
    """Write the files of a trace."""
    (folder / "openb_node_list_gpu_node.csv").write_text(nodes)
    (folder / "openb_pod_list_default.csv").write_text(pods)
    return folder


def test_rows_are_read_as_they_stand(tmp_path: Path) -> None:
    trace = read_trace(write_trace(tmp_path), "default")

    assert trace.nodes[1] == make_place(
        "n1", gpus=8, cpu=96_000, memory=393_216, model="G2"
    )
    assert trace.pods == (
        make_row(
            "p0", share=460, cpu=12_000, memory=16_384, models=("V100M32", "P100")
        ),
        make_row("p1", gpus=2, cpu=6000, memory=12_288),
        make_row("p2", gpus=0, cpu=6000, memory=12_288),
    )
    assert trace.capacity == 10_000
    assert [pod.asked for pod in trace.in_whole_gpus().pods] == [1000, 2000, 0]


def test_every_fault_is_named_with_field_and_value(tmp_path: Path) -> None:
    nodes = "sn,cpu_milli,memory_mib,gpu,model\nn0,many,1,99,\nn0,1,1,1,T4\n"
    pods = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n"
        "p0,-1,1,1,1001\n,1,1,2,500\np1,1,,1,7\n"
    )

    with pytest.raises(TraceError) as caught:
        read_trace(write_trace(tmp_path, nodes, pods), "default")

    assert str(caught.value) == (
        "trace: 9 fault(s)\n"
        "  openb_node_list_gpu_node.csv: line 2: cpu_milli:"
        " wanted a whole number from 0 to 1000000, got 'many'\n"
        "  openb_node_list_gpu_node.csv: line 2: gpu:"
        " wanted a whole number from 0 to 16, got '99'\n"
        "  openb_node_list_gpu_node.csv: line 2: model: wanted text, got none\n"
        "  openb_node_list_gpu_node.csv: line 3: sn:"
        " wanted each once, got 'n0' again\n"
        "  openb_pod_list_default.csv: line 2: gpu_milli:"
        " wanted a whole number from 1 to 1000, got '1001'\n"
        "  openb_pod_list_default.csv: line 2: cpu_milli:"
        " wanted a whole number from 0 to 1000000, got '-1'\n"
        "  openb_pod_list_default.csv: line 3: name: wanted text, got none\n"
        "  openb_pod_list_default.csv: line 3: gpu_milli:"
        " wanted a whole number from 1000 to 1000, got '500'\n"
        "  openb_pod_list_default.csv: line 4: memory_mib:"
        " wanted a whole number from 0 to 1000000000, got ''"
    )


@pytest.mark.parametrize(
    ("nodes", "pods", "message"),
    [
        pytest.param(
            "sn,gpu\n", PODS, "cpu_milli, memory_mib, model lack", id="columns"
        ),
        pytest.param(NODES, "name\n", "num_gpu, gpu_milli lack", id="pod columns"),
        pytest.param(NODES, PODS.splitlines()[0], "wanted rows, got none", id="empty"),
    ],
)
def test_files_that_are_no_lists(
    tmp_path: Path, nodes: str, pods: str, message: str
) -> None:
    with pytest.raises(TraceError, match=message):
        read_trace(write_trace(tmp_path, nodes, pods), "default")


def test_lists_that_are_there_are_named_in_lines_of_100_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(write_trace(tmp_path))
    names = [f"gpushare{number}" for number in range(10, 40)]
    for name in names:
        Path(f"openb_pod_list_{name}.csv").touch()

    with pytest.raises(TraceError) as caught:
        read_trace(Path(), "nope")

    lines = str(caught.value).splitlines()
    assert max(map(len, lines)) <= 100
    said = " ".join(line.strip() for line in lines[1:])
    assert said == (
        "openb_pod_list_nope.csv: no such list; there are default, " + ", ".join(names)
    )


def test_a_list_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such list; there are default"):
        read_trace(write_trace(tmp_path), "gpuspec33")
    with pytest.raises(TraceError, match=r"list: wanted the name of a list.*'\.\./x'"):
        read_trace(tmp_path, "../x")


def test_a_folder_without_files_is_told_once_for_each(tmp_path: Path) -> None:
    with pytest.raises(TraceError) as caught:
        read_trace(tmp_path, "default")

    assert len(caught.value.faults) == 2


def test_pods_are_added_until_the_next_would_pass_the_limit() -> None:
    trace = make_replay(
        [make_place("a", gpus=10)], [make_row("p"), make_row("q")]
    ).trace

    order = inflated(trace, 130, np.random.default_rng(1))

    assert len(order) == 13
    assert set(order[:2]) == {0, 1}
    assert order == inflated(trace, 130, np.random.default_rng(1))
    assert order != inflated(trace, 130, np.random.default_rng(2))


def test_a_longer_list_loses_random_pods() -> None:
    rows = [make_row(f"p{i:02}") for i in range(30)]
    trace = make_replay([make_place("a", gpus=10)], rows).trace

    order = inflated(trace, 130, np.random.default_rng(1))

    assert len(order) == 13
    assert max(Counter(order).values()) == 1


def test_a_list_that_asks_for_no_gpu_is_not_drawn_from() -> None:
    trace = make_replay([make_place("a")], [make_row("p", gpus=0)]).trace

    assert inflated(trace, 130, np.random.default_rng(1)) == [0]


def test_the_cluster_and_the_queue_have_what_the_rows_say(tmp_path: Path) -> None:
    trace = read_trace(write_trace(tmp_path), "default")
    replay = make_replay(trace.nodes, trace.pods)

    assert models_of(trace)[0] == ("P100", "G2")
    assert replay.cluster.devices.total.tolist() == [2000, 8000]
    assert replay.cluster.free("cpu").tolist() == [64_000, 96_000]
    first, second, third = replay.pods
    assert asked(first).request == (("nvidia.com/gpu.shared", 460),)
    assert asked(first).gpu_requirements.types == ("V100M32", "P100")
    assert first.shape == (12_000, 1, 460, ("V100M32", "P100"))
    assert asked(second).request == (("nvidia.com/gpu", 2),)
    assert asked(third).request == ()
    assert [pod.record.name for pod in replay.pods] == ["p0-0", "p1-1", "p2-2"]
    assert replay.cluster.fitting(first).tolist() == [True, False]
