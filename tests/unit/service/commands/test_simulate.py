import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from service.commands.cli import main
from service.commands.simulate import ProgressBar
from simulator.report import PolicyRow, Report, render_text
from tests.builders import make_node, make_pod

pytestmark = pytest.mark.usefixtures("root_logger_as_it_was")

SCORING = {"scoring": {"strategy": "binpack", "normalize": "rank"}}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Two nodes of two GPUs; pods that ask for three and a half of them."""
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\na,8000,8192,2,T4\nb,8000,8192,2,T4\n"
    )
    (tmp_path / "openb_pod_list_default.csv").write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n"
        "p,1000,1024,2,1000\nq,1000,1024,1,1000\nr,1000,1024,1,500\n"
    )
    return tmp_path


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Settings by which nodes are filled up."""
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(SCORING))
    return path


def run(*arguments: str | Path | int) -> int:
    return main(["simulate", *map(str, arguments)])


def shown(capsys: pytest.CaptureFixture[str]) -> Mapping[str, Any]:
    tree: Mapping[str, Any] = json.loads(capsys.readouterr().out)
    return tree


def write_cluster(folder: Path, *, gpus: int = 2) -> Path:
    path = folder / "dump.json"
    nodes = [
        make_node(name="a", gpus=gpus, labels={"gpu-interconnect": "nvlink"}),
        make_node(name="b", gpus=gpus),
    ]
    path.write_text(json.dumps({"kind": "List", "items": nodes}))
    return path


def write_pods(folder: Path, *objects: Any) -> Path:
    path = folder / "pods.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return path


def test_the_answer_comes_first_then_the_conditions(
    trace: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = run("--trace", trace, "--config", config, "--arrived", 90)

    # 90 % of four GPUs are 3.6, and the list asks for 3.5; the half that is left is a
    # fragment for two of the three pods
    assert status == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "All 3 pods found a node; 87.50 % of 4 GPUs on 2 nodes are allocated.",
        (
            "(list default, seed 42, ties random, offered as stock, score plugins on,"
            " lag 0)"
        ),
    ]
    assert lines[4].split() == [
        *("classic", "-", "-", "87.50", "-", "0", "66.7", "-"),
    ]
    assert max(map(len, lines)) <= 100


def test_other_policies_stand_beside_ours(
    trace: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("--trace", trace, "--config", config, "--compare", "-o", "json", "--whole")

    report = shown(capsys)
    assert [row["policy"] for row in report["policies"]] == [
        *("classic", "Random", "BestFit", "FGD"),
    ]
    assert report["conditions"]["list"] == "default in whole GPUs"
    assert all(row["allocatedAt100"] <= 100 for row in report["policies"])
    assert len(report["placements"]) == report["pods"]


def test_profiles_stand_beside_each_other(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reports = []
    for profile in ("classic", "packing"):
        config = tmp_path / f"{profile}.yaml"
        config.write_text(f"scoring: {{profile: {profile}, maxScore: 7}}\n")
        run("--trace", trace, "--config", config, "-o", "json")
        reports.append(shown(capsys)["policies"][0])
    config.write_text("scoring: {maxScore: 7}\n")

    run(
        *("--trace", trace, "--config", config, "-o", "json"),
        *("--profile", "packing", "classic", "packing"),
    )

    assert shown(capsys)["policies"] == reports[::-1]


def test_scores_may_know_the_pods_beforehand(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = []
    for more in ((), ("--known-mix",)):
        run("--trace", trace, "--profile", "packing", *more, "-o", "json")
        found.append(shown(capsys))

    learned, known = found
    assert known["conditions"]["mix"] == "known"
    assert "mix" not in learned["conditions"]
    # One GPU and a half beside each other leave two for the next pod.
    assert known["policies"][0]["allocated"] >= learned["policies"][0]["allocated"]


def test_one_seed_has_one_report(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reports = []
    for seed in (1, 1, 2):
        run("--trace", trace, "--seed", seed, "-o", "json", "--arrived", 1000)
        reports.append(shown(capsys)["placements"])

    assert reports[0] == reports[1] != reports[2]


def test_pods_of_manifests_are_placed_in_their_order(
    tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pods = write_pods(
        tmp_path,
        *(make_pod(name=name, gpus=gpus) for name, gpus in (("p", 1), ("q", 2))),
        make_pod(name="r", gpus=2),
    )

    status = run(
        *("--cluster", write_cluster(tmp_path), "--pods", pods, "--config", config),
        *("--ties", "name", "--no-score-plugins"),
    )

    assert status == 1
    out = capsys.readouterr().out
    assert out.startswith("1 of 3 pods found no node; 75.00 % of 4 GPUs on 2 nodes")
    assert out.splitlines()[-4:] == ["POD  NODE", "p    a", "q    b", "r    -"]


def test_pods_of_several_gpus_are_told_apart_by_their_links(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pods = write_pods(tmp_path, *(make_pod(name=name, gpus=2) for name in "pq"))

    run("--cluster", write_cluster(tmp_path), "--pods", pods, "-o", "json")

    assert shown(capsys)["policies"][0]["linkedSets"] == 50.0


def test_a_gated_pod_is_placed_nowhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gated = make_pod(name="p", gpus=1, spec={"schedulingGates": [{"name": "wait"}]})

    status = run(
        *("--cluster", write_cluster(tmp_path), "--pods", write_pods(tmp_path, gated)),
        *("-o", "json"),
    )

    assert status == 1
    assert shown(capsys)["placements"] == [{"pod": "p", "node": None}]


def test_a_cache_that_lags_trusts_kube_schedulers_count(
    tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # By the cache of the last pods, all nodes are empty: nobody is refused for that.
    pods = write_pods(tmp_path, *(make_pod(name=f"p{i}", gpus=1) for i in range(4)))

    status = run(
        *("--cluster", write_cluster(tmp_path), "--pods", pods, "--config", config),
        *("--lag", 9, "-o", "json"),
    )

    assert status == 0
    assert shown(capsys)["policies"][0]["allocated"] == 100.0


def test_a_picture_has_a_line_for_each_policy(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "allocation.svg"

    run("--trace", trace, "--compare", "--plot", picture)

    root = ET.fromstring(picture.read_text())  # noqa: S314 - our own
    names = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert len([e for e in root.iter() if e.tag.endswith("polyline")]) == 4
    assert names[-4:] == ["classic", "Random", "BestFit", "FGD"]
    assert capsys.readouterr().out


def test_all_faults_are_told_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("scoring: {shortlist: 3}\n")
    bad = make_pod(name="p", requests={"nvidia.com/gpu": "many"})

    status = run(
        *("--cluster", tmp_path / "none.yaml", "--pods", write_pods(tmp_path, bad)),
        *("--config", config, "--trace", tmp_path / "nowhere"),
    )
    together = capsys.readouterr().err
    run(
        *("--cluster", tmp_path / "none.yaml", "--pods", tmp_path / "pods.yaml"),
        *("--config", config),
    )
    apart = capsys.readouterr().err

    assert status == 2
    assert "--trace: wanted alone, got --cluster or --pods, too" in together
    assert "scoring: shortlist" in together
    assert "nowhere" in together
    for said in ("scoring: shortlist", "'many'", "none.yaml"):
        assert said in apart


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param([], "got no --cluster and no --pods\n", id="nothing"),
        pytest.param(["--pods", "x.yaml"], "got no --cluster\n", id="no cluster"),
    ],
)
def test_half_of_an_input_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["--list", "default"], ["--whole"], ["--arrived", "130"]],
    ids=lambda arguments: arguments[0],
)
def test_what_is_for_a_trace_alone_is_refused_beside_pods(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pods = write_pods(tmp_path, make_pod(name="p", gpus=1))

    status = run("--cluster", write_cluster(tmp_path), "--pods", pods, *arguments)

    said = capsys.readouterr()
    assert (status, said.out) == (2, "")
    assert said.err == f"{arguments[0]}: wanted with --trace only\n"


@pytest.mark.parametrize("option", ["--seed", "--lag"])
def test_a_number_that_is_too_large_is_told_its_bound(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run("--trace", "x", option, "1000000000")

    said = "wanted a number from 0 to 999999999, got '1000000000'"
    assert f"{option}: {said}" in capsys.readouterr().err


def test_of_several_profiles_it_is_said_whose_answer_it_is(
    tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pods = write_pods(tmp_path, *(make_pod(name=n, gpus=1) for n in "pq"))

    run(
        *("--cluster", write_cluster(tmp_path), "--pods", pods, "--config", config),
        *("--profile", "packing", "classic", "--ties", "name"),
    )

    out = capsys.readouterr().out
    lines = out.splitlines()
    assert " ".join(lines[:2]) == (
        "By packing, all 2 pods found a node; 50.00 % of 4 GPUs on 2 nodes are"
        " allocated. The others allocate as much."
    )
    assert "POD  NODE BY packing" in lines
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize(
    ("allocated", "said"),
    [
        ((50.0, 75.0, 60.0), "b allocates most, 75.00 %."),
        ((50.0, 75.0, 75.0), "b, c allocate most, 75.00 %."),
        ((75.0, 75.001, 75.0), "The others allocate as much."),
    ],
)
def test_the_policy_that_allocates_most_is_named(
    allocated: tuple[float, ...], said: str
) -> None:
    policies = tuple(
        PolicyRow(name, None, None, part, None, 0, 0.0, None, ())
        for name, part in zip("abc", allocated, strict=True)
    )

    text = render_text(Report(1, 4.0, 1, {}, policies, ()), has_placements=False)

    assert said in " ".join(text.splitlines()[:2])


@pytest.mark.parametrize(
    "arguments",
    [
        ["--seed", "-1"],
        ["--percentage", "101"],
        ["--arrived", "0"],
        ["--lag", "x"],
        ["--gpu-choice", "last"],
        ["--profile", "modern"],
    ],
)
def test_faulty_options_are_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run("--trace", "x", *arguments)

    assert ended.value.code == 2
    assert arguments[0] in capsys.readouterr().err


def test_a_picture_that_cannot_be_written_is_a_fault(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--trace", trace, "--plot", trace / "no" / "x.svg") == 2

    said = capsys.readouterr()
    assert said.err.startswith("--plot: ")
    assert not said.out


def test_a_picture_that_cannot_be_written_is_told_before_pods_are_placed(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = trace / "no" / "x.svg"

    assert run("--trace", trace, "--list", "lacking", "--plot", picture) == 2
    first, *others = capsys.readouterr().err.splitlines()
    assert first == f"--plot: wanted a file that can be written, got '{picture}'"
    assert "no such list" in others[1]
    assert run("--trace", trace, "--plot", trace) == 2
    assert f"got '{trace}'" in capsys.readouterr().err


def test_a_picture_that_is_there_is_written_anew(trace: Path) -> None:
    picture = trace / "x.svg"
    picture.write_text("old")

    assert run("--trace", trace, "--plot", picture) == 0
    assert picture.read_text().startswith("<svg")


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_bar_is_shown_on_a_terminal_alone() -> None:
    terminal, pipe = Terminal(), io.StringIO()

    for stream in (terminal, pipe):
        bar = ProgressBar(stream, "classic", 2000)
        bar.show(1000)
        bar.clear()

    half = "#" * 20 + "." * 20
    assert terminal.getvalue() == f"\rclassic [{half}] 1,000 of 2,000\r\x1b[K"
    assert not pipe.getvalue()
