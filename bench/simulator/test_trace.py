"""The trace benchmark, untimed: a small trace, so that its parts are known to fit."""

from pathlib import Path

import pytest

from bench.simulator.trace import (
    DEFAULT_SCORING,
    FGD_PUBLISHED,
    LISTS,
    OURS,
    POLICIES,
    VARIANTS,
    Figures,
    PodList,
    Task,
    bars,
    list_tasks,
    main,
    replay,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A trace of three nodes with two GPUs each."""
    nodes = [f"{name},16000,65536,2,T4\n" for name in "abc"]
    pods = ["p,1000,1024,1,1000\n", "q,1000,1024,2,1000\n", "r,1000,1024,1,300\n"]
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(nodes)
    )
    for pod_list in LISTS:
        (tmp_path / f"openb_pod_list_{pod_list.name}.csv").write_text(
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n" + "".join(pods)
        )
    return tmp_path


@pytest.mark.parametrize("label", [*POLICIES, *VARIANTS])
def test_each_policy_replays_a_list(folder: Path, label: str) -> None:
    task = Task(folder, PodList("default", 130, 95.4), label, 42, DEFAULT_SCORING)

    figures = replay(task)

    assert 50 < figures.at_100 <= figures.at_130 <= 100
    assert figures == replay(task)


def test_variants_are_replayed_on_the_first_list_alone(folder: Path) -> None:
    tasks = list_tasks(folder, [42, 43], DEFAULT_SCORING)

    assert len(tasks) == 2 * (len(LISTS) * len(POLICIES) + len(VARIANTS))


def test_bars_compare_with_constants_and_with_fgd() -> None:
    means = {
        (pods.name, label): Figures(pods.name, label, 95.5, value, 90.0)
        for pods in LISTS
        for label, value in ((OURS, 95.4), (FGD_PUBLISHED, 95.55))
    }

    assert [bar.line() for bar in bars(means)] == [
        "bar trace_fgd_off_published 0.15 <=0.2 pass",
        "bar trace_default_130 95.40 >=95.4 pass",
        "bar trace_gpuspec33_100 95.50 >=95.5 pass",
        "bar trace_multigpu50_130 95.40 >=95.45 miss",
        "bar trace_gpushare40_130 95.40 >=95.45 miss",
    ]


def test_a_trace_that_is_not_there_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--trace", str(tmp_path)]) == 2
    assert "openb_node_list_gpu_node.csv" in capsys.readouterr().err
