import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.commands.cli import main
from tests.builders import GPU, make_container, make_node, make_pod
from tests.extender_app import ExtenderApp

pytestmark = pytest.mark.usefixtures("root_logger_as_it_was")

NODES = [make_node(name="a", gpus=8), make_node(name="b", gpus=1)]


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """A cluster of two nodes."""
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"kind": "List", "items": NODES}))
    return path


def write_manifest(folder: Path, *objects: Any, name: str = "pod.yaml") -> Path:
    path = folder / name
    path.write_text(yaml.safe_dump_all(objects))
    return path


def run(*arguments: str | Path) -> int:
    return main(["explain", *map(str, arguments)])


def test_a_summary_is_printed_and_a_row_for_each_node_if_asked(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = write_manifest(tmp_path, make_pod(name="p", namespace="ml", gpus=2))

    status = run("-f", pod, "--cluster", dump)
    summary = capsys.readouterr()
    run("-f", pod, "--cluster", dump, "--nodes")
    rows = capsys.readouterr().out

    assert status == 0
    assert summary.err == (
        f"Warning: {dump}: the dump has no pods, so its nodes count as empty;"
        " `kubectl get nodes,pods -A -o yaml` has both\n"
    )
    assert summary.out.splitlines() == [
        "1 of 2 nodes fits: a (score 10).",
        "ml/p asks 2 nvidia.com/gpu; the cluster has 2 nodes.",
        "",
        "NODES  KUBE-SCHEDULER               GPU-EXTENDER",
        "    1  ok                           ok",
        "    1  Insufficient nvidia.com/gpu  Too few GPUs on the node",
        "",
        "BEST  TYPE  SCORE  utilization(40)  typeMatch(30)  topology(30)",
        "a     -        10                0             50            50",
        (
            "SCORE is what kube-scheduler is sent, 0 to 10 (minMax); the terms are 0 to"
            " 100, with their weights."
        ),
    ]
    assert rows.removeprefix(summary.out).splitlines() == [
        "",
        "NODE  TYPE  SCORE  REASON",
        "a     -     10     fits: asks 2 nvidia.com/gpu: 8 free of 8 (0 requested)",
        (
            "b     -     -      Insufficient nvidia.com/gpu: asks 2 nvidia.com/gpu: 1"
            " free of 1 (0 requested)"
        ),
    ]


def test_rows_are_as_many_and_as_wide_as_asked_or_one_in_full(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = write_manifest(tmp_path, make_pod(name="p", gpus=2))

    run("-f", pod, "--cluster", dump, "--limit", "1")
    limited = capsys.readouterr().out
    run("-f", pod, "--cluster", dump, "-o", "wide")
    wide = capsys.readouterr().out
    run("-f", pod, "--cluster", dump, "--node", "b")
    one = capsys.readouterr().out

    assert limited.splitlines()[-2:] == [
        "a     -     10     fits: asks 2 nvidia.com/gpu: 8 free of 8 (0 requested)",
        "... and 1 more nodes",
    ]
    assert wide.splitlines()[-3].split()[:4] == ["NODE", "TYPE", "SCHEDULER", "VERDICT"]
    assert one.splitlines()[-5:] == [
        "b: no GPU model known",
        (
            "  kube-scheduler: Insufficient nvidia.com/gpu: asks 2 nvidia.com/gpu: 1"
            " free of 1 (0 requested)"
        ),
        (
            "  gpu-extender: Too few GPUs on the node: asks 2 nvidia.com/gpu: 1 free of"
            " 1 (0 requested)"
        ),
        "  nvidia.com/gpu: 1 free of 1",
        "  score sent: -",
    ]


def test_yaml_says_what_json_does(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = write_manifest(tmp_path, make_pod(name="p", gpus=2))

    run("-f", pod, "--cluster", dump, "-o", "json")
    as_json = json.loads(capsys.readouterr().out)
    run("-f", pod, "--cluster", dump, "-o", "yaml")

    assert yaml.safe_load(capsys.readouterr().out) == as_json


def test_an_unknown_node_and_a_dump_without_nodes_are_faults(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = write_manifest(tmp_path, make_pod(name="p", gpus=2))
    empty = tmp_path / "empty.json"
    empty.write_text(json.dumps({"kind": "List", "items": [make_pod(name="q")]}))

    statuses = [
        run("-f", pod, "--cluster", dump, "--node", "nope"),
        run("-f", pod, "--cluster", empty),
    ]

    assert statuses == [2, 2]
    assert capsys.readouterr().err.splitlines() == [
        "--node: the cluster has no node 'nope'",
        f"cluster: {empty}: the dump has no nodes",
    ]


def test_json_is_what_the_endpoint_answers(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = make_pod(name="p", gpus=2)

    status = run("-f", write_manifest(tmp_path, pod), "--cluster", dump, "-o", "json")

    answer = ExtenderApp(nodes=NODES).client.simulate_post(
        "/explain", body=json.dumps(pod).encode()
    )
    expected = answer.json
    expected["snapshot"]["ageSeconds"] = None  # read once, just now
    expected["notModelled"].remove("quota")  # which the command looks at itself
    assert status == 0
    assert json.loads(capsys.readouterr().out) == expected


def test_a_pod_that_fits_nowhere_ends_with_1(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = run("-f", write_manifest(tmp_path, make_pod(gpus=9)), "--cluster", dump)

    printed = capsys.readouterr().out
    assert status == 1
    assert printed.startswith(
        "No node fits: 2 have too few GPUs (needs 9, largest node 8).\n"
    )
    assert printed.endswith(
        "\nWould help: ask for at most 8 GPUs (1 node fits then)\n\n"
        "No node passes kube-scheduler's own checks, so it does not ask gpu-extender.\n"
    )


@pytest.mark.parametrize(
    ("sections", "shown"),
    [
        pytest.param(None, "2 Insufficient nvidia.com/gpu", id="no configuration"),
        pytest.param({}, "2 Insufficient nvidia.com/gpu", id="of an installation"),
        pytest.param(
            {"cluster": {"source": "file", "files": ["x.json"]}},
            "2 Insufficient nvidia.com/gpu",
            id="of a demo",
        ),
        pytest.param(
            {"extender": {"counts": "trust"}},
            "2 Insufficient nvidia.com/gpu",
            id="trusting",
        ),
        pytest.param(
            {"extender": {"counts": "enforce"}},
            "2 Insufficient GPUs",
            id="beside a kube-scheduler that ignores GPUs",
        ),
    ],
)
def test_a_dump_is_told_of_as_kube_scheduler_would(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    sections: dict[str, Any] | None,
    shown: str,
) -> None:
    dump = tmp_path / "dump.json"
    nodes = [make_node(name=name, gpus=2) for name in "ab"]
    pods = [make_pod(name=name, gpus=1, node_name=name) for name in "ab"]
    dump.write_text(json.dumps({"kind": "List", "items": [*nodes, *pods]}))
    pod = write_manifest(tmp_path, make_pod(gpus=2))
    config = () if sections is None else ("--config", configured(tmp_path, **sections))

    run("-f", pod, "--cluster", dump, *config)

    message = f"As kube-scheduler puts it: 0/2 nodes are available: {shown}.\n"
    assert message in capsys.readouterr().out


def test_each_pod_of_several_manifests_is_explained(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = write_manifest(
        tmp_path, make_pod(name="p", gpus=1), make_pod(name="q", gpus=9)
    )
    listed = {"kind": "List", "items": [make_pod(name="r", gpus=1)]}
    second = write_manifest(tmp_path, listed, name="list.yaml")

    status = run("-f", first, "-f", second, "--cluster", dump, "-o", "json")

    assert status == 1  # q fits nowhere
    explained = json.loads(capsys.readouterr().out)
    assert [page["pod"]["name"] for page in explained] == ["p", "q", "r"]


def test_the_template_of_a_deployment_is_explained_and_a_service_passed_over(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deployment = {
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"template": {"spec": make_pod(gpus=1)["spec"]}},
    }
    service = {"kind": "Service", "metadata": {"name": "web"}}

    status = run("-f", write_manifest(tmp_path, service, deployment), "--cluster", dump)

    assert status == 0
    printed = capsys.readouterr().out
    assert "\ndefault/web asks 1 nvidia.com/gpu; " in printed
    assert printed.endswith("The pod is the template of the Deployment 'web'.\n")


def test_what_is_not_modelled_is_said_first_and_last(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spread = make_pod(gpus=1, spec={"topologySpreadConstraints": [{}]})

    run("-f", write_manifest(tmp_path, spread), "--cluster", dump)

    printed = capsys.readouterr().out
    assert printed.endswith("\nNot modelled, and asked by this pod: topology spread\n")
    assert printed.startswith(
        "2 of 2 nodes fit by GPUs, CPU and memory, but kube-scheduler may refuse them"
    )
    assert printed.count("Not modelled") == 1


def test_all_faults_of_all_inputs_are_told_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("extra: 1\n")
    odd = write_manifest(
        tmp_path,
        make_pod(gpus="many"),
        make_pod(requests={"cpu": "x"}, gpus=1),
    )
    none = write_manifest(tmp_path, name="none.yaml")

    status = run(
        "-f", odd, "-f", "ghost.yaml", "-f", none,
        "--cluster", tmp_path / "nowhere.json", "--config", config,
    )  # fmt: skip

    printed = capsys.readouterr()
    assert (status, printed.out) == (2, "")
    for message in (
        "config.yaml: 1 fault(s)\n  extra: unknown key, got 1",
        (
            f"{odd}: document 1: spec.containers[0].resources.limits['nvidia.com/gpu']:"
            " quantity 'many': not a number with an optional suffix"
        ),
        f"{odd}: document 2: spec.containers[0].resources.limits['cpu']: quantity 'x'",
        "ghost.yaml: no such file or directory",
        f"{none}: wanted a Pod, got no object",
        "nowhere.json: no such file or directory",
    ):
        assert message in printed.err


def test_a_manifest_without_pods_is_a_fault(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = write_manifest(tmp_path, {"kind": "Service"})

    status = run("-f", manifest, "--cluster", dump)

    assert status == 2
    assert f"{manifest}: kind: wanted Pod or one of" in capsys.readouterr().err


def test_a_manifest_that_is_no_yaml_is_a_fault(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = tmp_path / "pod.yaml"
    manifest.write_text("a: [b\n")

    status = run("-f", manifest, "--cluster", dump)

    assert status == 2
    assert capsys.readouterr().err.startswith(f"{manifest}: line ")


def test_the_configuration_says_where_the_cluster_is_and_how_to_score(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        f"cluster: {{source: file, files: [{dump.name}]}}\nscoring: {{maxScore: 100}}\n"
    )

    status = run("-f", write_manifest(tmp_path, make_pod(gpus=1)), "--config", config)

    assert status == 0
    assert "kube-scheduler is sent, 0 to 100" in capsys.readouterr().out


def test_a_faulty_kubeconfig_is_a_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("{}\n")

    status = run(
        "-f", write_manifest(tmp_path, make_pod(gpus=1)), "--kubeconfig", kubeconfig
    )

    assert status == 2
    assert "kubeconfig" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param([], id="no manifest"),
        pytest.param(["-f", "p.yaml", "-o", "xml"], id="an unknown form"),
        pytest.param(
            ["-f", "p.yaml", "--cluster", "a", "--kubeconfig", "b"], id="two clusters"
        ),
    ],
)
def test_a_wrong_command_line_ends_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(*arguments)

    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("usage: gpu-extender explain")


A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
RULES = Path(__file__).parents[4] / "configs" / "injection-rules.json"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        pytest.param(
            "pod.yaml",
            "items:\n- {a: [b\n",
            "line 3, column 1: did not find expected ',' or ']' (while parsing a flow"
            " sequence of line 2, column 7)",
            id="no YAML",
        ),
        pytest.param(
            "pod.yaml",
            "kind: Pod\nmetadata: {namespace: a, namespace: b}\n",
            "line 2, column 26: wanted each key once, got 'namespace' again",
            id="a key twice",
        ),
        pytest.param(
            "pod.json",
            '{"kind": "Pod", "metadata": {"name": "a", "name": "b"}}',
            "wanted each key once, got 'name' again",
            id="a key twice in JSON",
        ),
        pytest.param(
            "pod.yaml",
            "kind: P\0d\n",
            "unacceptable character #x0000: control characters are not allowed at"
            " position 7",
            id="a character that no text has",
        ),
    ],
)
def test_a_manifest_that_cannot_be_read_is_told_with_the_place(  # noqa: PLR0913, PLR0917
    dump: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    text: str,
    said: str,
) -> None:
    manifest = tmp_path / name
    manifest.write_text(text)

    status = run("-f", manifest, "--cluster", dump)

    assert (status, capsys.readouterr().err) == (2, f"{manifest}: {said}\n")


def configured(folder: Path, **sections: Any) -> Path:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(sections))
    return path


def test_a_pod_is_judged_as_the_webhook_would_admit_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dump = tmp_path / "dump.json"
    nodes = [make_node(name=n, gpus=8, memory="1Ti", labels=A100) for n in "ab"]
    dump.write_text(json.dumps({"kind": "List", "items": nodes}))
    config = configured(tmp_path, injection={"rulesFile": str(RULES)})
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "ml"},
        "spec": {
            "template": {
                "metadata": {
                    "annotations": {"task.bkbcs.tencent.com/gpu-type": "A100"}
                },
                "spec": make_pod(gpus=8)["spec"],
            }
        },
    }
    manifest = write_manifest(tmp_path, job)

    status = run("-f", manifest, "--cluster", dump, "--config", config)
    admitted = capsys.readouterr().out
    as_is = run("-f", manifest, "--cluster", dump, "--config", config, "--as-is")
    written = capsys.readouterr().out

    assert (status, as_is) == (1, 0)
    assert admitted.startswith(
        "No node fits: 2 lack CPU (needs 96, largest node 64).\n"
    )
    assert "\nThe webhook changes it: 96 cpu, 768Gi memory" in admitted
    assert ": 0/2 nodes are available: 2 Insufficient cpu" in admitted
    # Its author asks GPUs alone: the rule gives 12 CPUs for each.
    assert "\nWould help: ask for at most 5 GPUs (2 nodes fit then)\n" in admitted
    assert "The webhook" not in written
    assert written.startswith("2 of 2 nodes fit: a ")


def test_fewer_gpus_are_told_beside_the_overhead_and_other_containers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dump = tmp_path / "dump.json"
    nodes = [make_node(name="a", gpus=8, memory="1Ti", labels=A100)]
    dump.write_text(json.dumps({"kind": "List", "items": nodes}))
    config = configured(tmp_path, injection={"rulesFile": str(RULES)})
    containers = [
        make_container(name=name, limits={"nvidia.com/gpu": count})
        for name, count in (("main", "6"), ("other", "2"))
    ]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"annotations": {"task.bkbcs.tencent.com/gpu-type": "A100"}},
        "spec": {"containers": containers, "overhead": {"cpu": "8"}},
    }

    run(*("-f", write_manifest(tmp_path, pod), "--cluster", dump, "--config", config))

    # 12 CPUs for each GPU: 4 on the 56 that are left of 64, 2 of them the other's.
    assert (
        "\nWould help: ask for at most 2 GPUs in container 'main' (1 node fits then)\n"
        in capsys.readouterr().out
    )


def test_a_fall_is_shown_with_where_it_leads_and_holds_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small, large = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb"
    dump = tmp_path / "dump.json"
    nodes = [make_node(name="a", resources={small: "7", large: "0"})]
    dump.write_text(json.dumps({"kind": "List", "items": nodes}))
    config = configured(tmp_path, fallback={"chains": [[large, small]]})
    pods = [
        {
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": make_pod(requests={large: 6})["spec"],
        }
        for name in ("first", "second")
    ]

    status = run(
        "-f", write_manifest(tmp_path, *pods), "--cluster", dump, "--config", config
    )  # fmt: skip

    printed = capsys.readouterr().out
    assert status == 0
    # Held for the first one, six of seven slices would not be there for the second.
    assert printed.count(f"changes it: 6 {small}, no {large}.") == 2
    assert printed.count("The only node fits: a (score 10).") == 2


def test_another_scheduler_a_full_quota_and_replicas_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quota = {
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "ml"},
        "status": {
            "hard": {"requests.nvidia.com/gpu": "4"},
            "used": {"requests.nvidia.com/gpu": "4"},
        },
    }
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"kind": "List", "items": [*NODES, quota]}))
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "ml"},
        "spec": {
            "replicas": 500,
            "template": {
                "spec": make_pod(gpus=1, spec={"schedulerName": "other"})["spec"]
            },
        },
    }

    status = run("-f", write_manifest(tmp_path, deployment), "--cluster", dump)

    printed = capsys.readouterr().out
    assert status == 1
    text = " ".join(printed.split())
    assert "The pod waits for another scheduler, 'other': default-scheduler, " in text
    assert (
        "The quota q of namespace ml refuses the pod: asks 1 nvidia.com/gpu, 0 of 4"
        in text
    )
    assert "500 such pods are asked for; this is about one, and 9 fit now." in text


def test_a_limit_range_that_refuses_the_pod_comes_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bounds = {
        "kind": "LimitRange",
        "metadata": {"name": "bounds", "namespace": "ml"},
        "spec": {
            "limits": [
                {"type": "Container", "max": {GPU: "4"}, "min": {"cpu": "500m"}},
            ]
        },
    }
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"kind": "List", "items": [*NODES, bounds]}))
    few, many = (
        make_pod(name=name, namespace="ml", gpus=gpus, cpu=cpu)
        for name, gpus, cpu in (("few", 1, "1"), ("many", 5, "250m"))
    )
    elsewhere = make_pod(name="else", namespace="web", gpus=1, cpu="250m")
    for pod in (few, many, elsewhere):
        for key in ("uid", "creationTimestamp"):
            pod["metadata"].pop(key, None)

    statuses = [
        run("-f", write_manifest(tmp_path, pod), "--cluster", dump)
        for pod in (few, elsewhere, many)
    ]

    text = " ".join(capsys.readouterr().out.split())
    assert statuses == [0, 0, 1]
    assert (
        f"A LimitRange of namespace ml refuses the pod: maximum {GPU} usage per"
        " Container is 4, but limit is 5; minimum cpu usage per Container is 500m, but"
        " request is 250m; "
    ) in text
    assert f"Would help: ask for at most 4 {GPU} in container" in text


def test_colours_are_for_terminals_without_no_color(
    dump: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pod = write_manifest(tmp_path, make_pod(gpus=1))
    monkeypatch.delenv("NO_COLOR", raising=False)

    run("-f", pod, "--cluster", dump)
    piped = capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    run("-f", pod, "--cluster", dump)
    shown = capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    run("-f", pod, "--cluster", dump)

    assert "\x1b" not in piped
    assert shown.startswith("\x1b[1;32m2 of 2 nodes fit: ")
    assert capsys.readouterr().out == piped


@pytest.mark.parametrize(
    ("namespace", "where"),
    [("ML X", "metadata.namespace"), ("a/b", "metadata.namespace")],
)
def test_what_cannot_be_reviewed_is_told_with_its_file(
    namespace: str,
    where: str,
    dump: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sound = write_manifest(tmp_path, make_pod(name="p"), name="sound.yaml")
    pod = write_manifest(tmp_path, make_pod(name="p", namespace=namespace))

    status = run("-f", sound, "-f", pod, "--cluster", dump)

    assert status == 2
    assert capsys.readouterr().err == (
        f"{pod}: {where}: wanted the name of a namespace, got {namespace!r}\n"
    )
