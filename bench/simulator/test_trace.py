"""The trace benchmark, untimed: a small trace, so that its parts are known to fit."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from bench.scoring import nvlink_fleet
from bench.scoring.nvlink_fleet import PLACEMENTS
from bench.simulator.trace import (
    BY_BYTES,
    DEFAULT_SCORING,
    FGD_PUBLISHED,
    LAGGING,
    LEARNED,
    LISTS,
    OURS,
    PLUGINS,
    POLICIES,
    VARIANTS,
    Figures,
    PodList,
    Task,
    bars,
    bytes_bar,
    list_tasks,
    main,
    replay,
    seeds_of,
)
from service.commands.simulate import Workload, read_workload

Result = TypeVar("Result")

BARS: Final = [
    "trace_fgd_off_published",
    "trace_default_130",
    "trace_gpuspec33_100",
    "trace_multigpu50_130",
    "trace_gpushare40_130",
    "trace_learned_loss_default",
    "trace_learned_loss_gpuspec33",
    "trace_learned_loss_multigpu50",
    "trace_learned_loss_gpushare40",
    "trace_plugins_loss",
    "trace_lag_loss",
    "trace_bytes_differing",
    "nvlink_fleet",
    "nvlink_fleet_closer_than_count",
]

run_fleet: Final = nvlink_fleet.run


def few_jobs(
    placement: nvlink_fleet.Placement, seed: int, _jobs: int
) -> nvlink_fleet.Outcome:
    """Stand for a fleet of many jobs."""
    return run_fleet(placement, seed, 20)


class InThisProcess(Executor):
    """Stands for a pool of processes: works at once."""

    def __init__(self, *_arguments: object) -> None:
        """Take no notice of how many."""

    def submit(
        self, work: Callable[..., Result], /, *arguments: Any, **named: Any
    ) -> Future[Result]:
        """Have it done before it is asked for."""
        future: Future[Result] = Future()
        future.set_result(work(*arguments, **named))
        return future


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

    by_bytes = [task.seed for task in tasks if task.label == BY_BYTES]
    assert len(tasks) == 2 * (len(LISTS) * len(POLICIES) + len(VARIANTS)) - 1
    assert by_bytes == [42]


def test_pods_go_where_their_json_sends_them(folder: Path) -> None:
    pods = LISTS[0]
    runs = {
        label: [replay(Task(folder, pods, label, 42, DEFAULT_SCORING))]
        for label in (OURS, BY_BYTES)
    }

    assert runs[OURS][0].nodes
    assert bytes_bar(runs).line() == "bar trace_bytes_differing 0.00 <=0 pass"


def test_a_pod_that_goes_elsewhere_is_counted() -> None:
    functions, sent = (
        Figures("default", label, 95.0, 95.0, 90.0, nodes)
        for label, nodes in ((OURS, ("a", "b", None)), (BY_BYTES, ("a", "c", "a")))
    )

    bar = bytes_bar({OURS: [functions], BY_BYTES: [sent]})

    assert bar.line() == "bar trace_bytes_differing 2.00 <=0 miss"


def test_a_task_finds_what_another_one_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []

    def note(*arguments: Any) -> Workload:
        read.append(arguments)
        return read_workload(*arguments)

    monkeypatch.setattr("bench.simulator.trace.read_workload", note)
    figures = [replay(task) for task in list_tasks(folder, [52, 53], DEFAULT_SCORING)]

    assert len(read) == 2 * len(LISTS)
    assert {one.pods for one in figures} == {pods.name for pods in LISTS}


@pytest.mark.parametrize(
    ("text", "seeds"), [("42-51", [*range(42, 52)]), ("40-41", [40, 41]), ("7", [7])]
)
def test_seeds_are_read(text: str, seeds: list[int]) -> None:
    assert list(seeds_of(text)) == seeds


def test_seeds_from_the_higher_to_the_lower_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["--trace", "trace", "--seeds", "51-42"])

    assert "--seeds: invalid seeds_of value: '51-42'" in capsys.readouterr().err


def test_all_is_printed_and_bars_come_last(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bench.simulator.trace.ProcessPoolExecutor", InThisProcess)
    monkeypatch.setattr("bench.scoring.nvlink_fleet.run", few_jobs)

    status = main(["--trace", str(folder), "--seeds", "42-43", "--fleet"])

    lines = capsys.readouterr().out.splitlines()
    tables = [line for line in lines if "1st refusal" in line]
    assert status == 0
    assert [line.split()[0].rstrip(",") for line in tables] == [
        pods.name for pods in LISTS
    ]
    for label in (*POLICIES, *VARIANTS):
        count = len(LISTS) if label in POLICIES else 1
        assert sum(line[2:36].rstrip() == label for line in lines) == count
    assert sum("refused of 20: {1: '" in line for line in lines) == len(PLACEMENTS)
    assert [line.split()[1] for line in lines if line.startswith("bar ")] == BARS
    assert all(line.startswith("bar ") for line in lines[-len(BARS) :])


def test_bars_compare_with_constants_and_with_fgd() -> None:
    means = {
        (pods.name, label): Figures(pods.name, label, 95.5, value, 90.0)
        for pods in LISTS
        for label, value in (
            (OURS, 95.4),
            (FGD_PUBLISHED, 95.55),
            (LEARNED, 95.0),
            (PLUGINS, 94.9),
            (LAGGING, 95.3),
        )
    }

    assert [bar.line() for bar in bars(means)] == [
        "bar trace_fgd_off_published 0.15 <=0.2 pass",
        "bar trace_default_130 95.40 >=95.4 pass",
        "bar trace_gpuspec33_100 95.50 >=95.5 pass",
        "bar trace_multigpu50_130 95.40 >=95.45 miss",
        "bar trace_gpushare40_130 95.40 >=95.45 miss",
        "bar trace_learned_loss_default 0.40 <=0.3 miss",
        "bar trace_learned_loss_gpuspec33 0.00 <=0.3 pass",
        "bar trace_learned_loss_multigpu50 0.40 <=0.3 miss",
        "bar trace_learned_loss_gpushare40 0.40 <=0.3 miss",
        "bar trace_plugins_loss 0.50 <=0.5 pass",
        "bar trace_lag_loss 0.10 <=0.1 pass",
    ]


def test_a_trace_that_is_not_there_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--trace", str(tmp_path)]) == 2
    assert "openb_node_list_gpu_node.csv" in capsys.readouterr().err
