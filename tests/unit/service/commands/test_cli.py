import json
import tomllib
from pathlib import Path

import pytest
import yaml

from service.commands.cli import main
from tests.builders import make_node, make_pod
from tests.doctor import make_scheduler_tree
from tests.service_process import ROOT


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration over a sound dump of one GPU node and one slice node."""
    items = [
        make_node(name="a", gpus=8),
        make_node(name="b", resources={"nvidia.com/mig-1g.10gb": "7"}),
        make_pod(name="p", gpus=1, node_name="a"),
    ]
    (tmp_path / "dump.json").write_text(json.dumps({"kind": "List", "items": items}))
    path = tmp_path / "config.yaml"
    path.write_text("cluster: {source: file, files: [dump.json]}\n")
    return path


def test_a_sound_configuration_has_no_faults(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["check-config", str(config)])

    assert status == 0
    assert capsys.readouterr() == ("config.yaml: no faults\n", "")


def test_a_configuration_that_names_no_api_server_is_sound_without_one(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(config.parent / "lacking"))
    config.write_text("scoring: {profile: packing}\n")

    status = main(["check-config", str(config)])

    assert status == 0
    assert capsys.readouterr() == ("config.yaml: no faults\n", "")


@pytest.mark.parametrize("named", ["kubeconfig: lacking", "context: no-such-one"])
def test_an_api_server_that_a_configuration_names_is_looked_up(
    config: Path, capsys: pytest.CaptureFixture[str], named: str
) -> None:
    config.write_text(f"cluster: {{{named}}}\n")

    assert main(["check-config", str(config)]) == 2
    assert capsys.readouterr().err.startswith("kubeconfig ")


def test_the_shipped_configuration_has_neither_faults_nor_warnings(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = main(["check-config", str(ROOT / "configs" / "demo.yaml")])

    assert status == 0
    assert capsys.readouterr() == ("demo.yaml: no faults\n", "")


def test_a_type_in_a_rule_that_nobody_knows_is_a_warning(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = "gpu-extender.io/gpu-type"
    rule = {"annotations": {key: "H100 A100"}}
    rules = {"namespaceResourceMap": {"ml": {"large": {"nvidia.com/gpu": rule}}}}
    (config.parent / "rules.json").write_text(json.dumps(rules))
    config.write_text(config.read_text() + "injection: {rulesFile: rules.json}\n")

    status = main(["check-config", str(config)])

    printed = capsys.readouterr()
    assert (status, printed.out) == (0, "config.yaml: no faults\n")
    assert printed.err.startswith(
        f"Warning: namespaceResourceMap.ml.large.nvidia.com/gpu: annotation {key}:"
        " 'H100 A100' is no known GPU model, only nodes labelled so match"
    )


def test_a_type_of_expected_pods_that_nobody_knows_is_a_warning(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = "[{types: [A100]}, {types: [T4, H1000]}]"
    scoring = f"scoring: {{profile: packing, expectedPods: {expected}}}\n"
    config.write_text(config.read_text() + scoring)

    status = main(["check-config", str(config)])

    printed = capsys.readouterr()
    assert (status, printed.out) == (0, "config.yaml: no faults\n")
    assert printed.err.startswith(
        "Warning: scoring.expectedPods.1.types.1: 'H1000' is no known GPU model, only"
        " nodes labelled so match; did you mean 'H100'"
    )
    assert printed.err.count("Warning") == 1


@pytest.mark.parametrize(
    ("text", "warnings"),
    [
        ("scoring: {expectedPods: [{}]}", ["scoring.expectedPods has no effect: "]),
        ("scoring: {expectedPods: [{}], weights: {scarcity: 1}}", []),
        ("scoring: {profile: packing, expectedPods: [{}]}", []),
        (
            "scoring: {profile: packing, topology: graded}",
            ["scoring.topology 'graded' has no effect: topology weighs 0"],
        ),
        ("scoring: {topology: graded}", []),
        ("scoring: {profile: packing, topology: auto}", []),
        (
            "labels: {job: example.com/job}",
            ["labels.job has no effect: domain weighs 0"],
        ),
        ("{labels: {job: example.com/job}, scoring: {profile: training}}", []),
        (
            "{labels: {domains: []}, scoring: {profile: training}}",
            ["scoring.weights.domain has no effect: labels.domains is empty"],
        ),
        (
            "{labels: {job: a, domains: []}, scoring: {expectedPods: [{}]}}",
            ["scoring.expectedPods has no effect: ", "labels.job has no effect: "],
        ),
    ],
)
def test_keys_that_no_score_goes_by_are_warnings(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    warnings: list[str],
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)

    status = main(["check-config", str(path)])

    told = capsys.readouterr().err.replace("\n  ", " ").splitlines()
    assert status == 0
    assert len(told) == len(warnings)
    for line, warning in zip(told, warnings, strict=True):
        assert line.startswith(f"Warning: {warning}")


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        pytest.param(None, "extender.schedulerConfigFile: ", id="no file"),
        pytest.param(
            "kind: KubeSchedulerConfiguration",
            "No extender in s.yaml calls port 8888",
            id="no extender",
        ),
        pytest.param("httpTimeout: 800ms", "httpTimeout is 800ms in s.yaml", id="time"),
        pytest.param("httpTimeout: 1s", "", id="sound"),
    ],
)
def test_a_scheduler_configuration_that_does_not_fit_is_a_warning(
    config: Path, capsys: pytest.CaptureFixture[str], text: str | None, warning: str
) -> None:
    config.write_text(config.read_text() + "extender: {schedulerConfigFile: s.yaml}\n")
    if text is not None and text.startswith("httpTimeout"):
        tree = make_scheduler_tree(["nvidia.com/gpu"])
        tree["extenders"][0] |= yaml.safe_load(text)
        text = yaml.safe_dump(tree)
    if text is not None:
        (config.parent / "s.yaml").write_text(text)

    status = main(["check-config", str(config)])

    printed = capsys.readouterr()
    assert (status, printed.out) == (0, "config.yaml: no faults\n")
    assert printed.err.startswith(f"Warning: {warning}" if warning else "")
    assert bool(printed.err) is bool(warning)


def test_all_faults_of_a_configuration_are_printed(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text("server: {port: -1}\nextra: 1\n")

    status = main(["check-config", str(config)])

    printed = capsys.readouterr()
    assert (status, printed.out) == (2, "")
    assert printed.err == (
        "config.yaml: 2 fault(s)\n"
        "  server.port: Input should be greater than or equal to 0, got -1\n"
        "  extra: unknown key, got 1\n"
    )


def test_all_faults_of_the_files_it_names_are_printed(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (config.parent / "dump.json").write_text('{"kind":"Node","metadata":{}}')
    config.write_text(
        "cluster: {source: file, files: [dump.json, ghost.yaml]}\n"
        "injection: {rulesFile: rules.json}\n"
        "webhook: {certificateFile: c.pem, keyFile: k.pem}\n"
    )

    status = main(["check-config", str(config)])

    printed = capsys.readouterr().err
    assert status == 2
    assert "dump.json: object.metadata.name: wanted text, got none" in printed
    assert "ghost.yaml: no such file or directory" in printed
    assert "rules.json" in printed
    assert "certificate c.pem, key k.pem: " in printed


def test_a_configuration_that_is_not_there_is_a_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "ghost.yaml")

    statuses = [
        main(["check-config", path]),
        main(["serve", "--config", path]),
        main(["scheduler-config", "--config", path]),
    ]

    assert statuses == [2, 2, 2]
    assert capsys.readouterr().err.count("ghost.yaml: 1 fault(s)\n") == 3


@pytest.mark.usefixtures("root_logger_as_it_was")
def test_the_scheduler_configuration_names_what_the_cluster_offers(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["scheduler-config", "--config", str(config)])

    (extender,) = yaml.safe_load(capsys.readouterr().out)["extenders"]
    names = {resource["name"] for resource in extender["managedResources"]}
    assert status == 0
    assert extender["urlPrefix"] == "http://127.0.0.1:8888/scheduler"
    assert [
        extender[f"{verb}Verb"] for verb in ("filter", "prioritize", "preempt")
    ] == [
        "filter",
        "prioritize",
        "preempt",
    ]
    assert {"nvidia.com/gpu", "nvidia.com/mig-1g.10gb"} <= names
    assert (extender["weight"], extender["httpTimeout"]) == (10, "1s")


@pytest.mark.usefixtures("root_logger_as_it_was")
@pytest.mark.parametrize(
    ("max_score", "deadline", "printed"),
    [
        pytest.param(1, 10, (10, "1s"), id="never a weight above 10"),
        pytest.param(10, 999, (10, "1s"), id="the contract's score"),
        pytest.param(11, 1000, (9, "2s"), id="just above, and a whole second"),
        pytest.param(30, 1001, (3, "2s"), id="a weight that is cut"),
        pytest.param(100, 60_000, (1, "61s"), id="the largest of both"),
    ],
)
def test_weight_and_timeout_fit_the_settings(
    config: Path,
    capsys: pytest.CaptureFixture[str],
    max_score: int,
    deadline: int,
    printed: tuple[int, str],
) -> None:
    tree = yaml.safe_load(config.read_text())
    tree["scoring"] = {"maxScore": max_score}
    tree["extender"] = {"deadlineMilliseconds": deadline}
    config.write_text(yaml.safe_dump(tree))

    status = main(["scheduler-config", "--config", str(config)])

    (extender,) = yaml.safe_load(capsys.readouterr().out)["extenders"]
    assert status == 0
    assert (extender["weight"], extender["httpTimeout"]) == printed


@pytest.mark.usefixtures("root_logger_as_it_was")
@pytest.mark.parametrize(
    ("scoring", "is_off"),
    [
        pytest.param({}, False, id="classic"),
        pytest.param({"profile": "spread"}, False, id="a profile that spreads"),
        pytest.param({"profile": "packing"}, True, id="packing"),
        pytest.param({"weights": {"fragmentation": 1}}, True, id="by its weight"),
    ],
)
def test_plugins_that_spread_are_off_where_scores_fill_nodes(
    config: Path,
    capsys: pytest.CaptureFixture[str],
    scoring: dict[str, object],
    *,
    is_off: bool,
) -> None:
    tree = yaml.safe_load(config.read_text())
    config.write_text(yaml.safe_dump({**tree, "scoring": scoring}))

    main(["scheduler-config", "--config", str(config)])

    (profile,) = yaml.safe_load(capsys.readouterr().out)["profiles"]
    off = [
        {"name": "NodeResourcesFit"},
        {"name": "NodeResourcesBalancedAllocation"},
    ]
    assert profile.get("plugins") == ({"score": {"disabled": off}} if is_off else None)


@pytest.mark.usefixtures("root_logger_as_it_was")
def test_all_pods_are_sent_where_that_is_wanted(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["scheduler-config", "--config", str(config), "--all-pods"])

    text = capsys.readouterr().out
    (extender,) = yaml.safe_load(text)["extenders"]
    assert "managedResources" not in extender
    assert "while we are away it places none" in text


def test_the_version_is_that_of_the_project(capsys: pytest.CaptureFixture[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    with pytest.raises(SystemExit) as ended:
        main(["--version"])

    assert ended.value.code == 0
    assert capsys.readouterr().out == f"gpu-extender {project['version']}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param([], id="nothing"),
        pytest.param(["dance"], id="an unknown command"),
        pytest.param(["serve"], id="serve without a configuration"),
        pytest.param(["check-config"], id="check-config without a file"),
    ],
)
def test_a_wrong_command_line_ends_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)

    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("usage: gpu-extender")


@pytest.mark.parametrize("port", ["-1", "65536", "http", "", "٣", "80.0", "1e3"])
def test_a_port_that_is_none_ends_with_2(
    config: Path, port: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--config", str(config), f"--port={port}"])

    assert ended.value.code == 2
    assert f"wanted a port from 0 to 65535, got {port!r}" in capsys.readouterr().err
