"""`kubectl gpu` and the service of the same version, over the demo cluster."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.builders import make_pod
from tests.kubectl_gpu import SCRIPT, KubectlStandIn
from tests.service_process import ROOT, ServiceProcess, run_command

DEMO: Final = {
    "cluster": {"source": "file", "files": [str(ROOT / "configs/demo-cluster.yaml")]}
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """The service over the demo cluster."""
    with ServiceProcess(tmp_path_factory.mktemp("service"), DEMO) as process:
        process.wait_ready()
        yield process


def run(service: ServiceProcess, path: Path, *arguments: str) -> tuple[int, str, str]:
    """Run the command with a folder before the PATH; return status and outputs."""
    url = f"http://127.0.0.1:{service.port}"
    done = subprocess.run(  # noqa: S603 - our own command
        [SCRIPT, *arguments, "--url", url],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": f"{path}{os.pathsep}{os.environ['PATH']}"},
    )
    return done.returncode, done.stdout, done.stderr


def test_both_agree_on_every_page(service: ServiceProcess, tmp_path: Path) -> None:
    page = service.get("/explain?namespace=research&pod=huge-0").json()
    nodes = service.get("/cluster").json()["nodes"]

    status, out, err = run(service, tmp_path, "explain", "huge-0", "-n", "research")
    assert (status, err) == (1, "")
    assert " ".join(out.split()).startswith(page["summary"]["sentence"])
    as_json = run(service, tmp_path, "explain", "huge-0", "-n=research", "-o", "json")
    assert json.loads(as_json[1])["summary"] == page["summary"]

    status, out, err = run(service, tmp_path, "nodes")
    assert (status, err) == (0, "")
    shown = {line.split()[0] for line in out.partition("\nNODE ")[2].splitlines()[1:]}
    assert shown == {
        node["name"]
        for node in nodes
        if any("unit" in amounts for amounts in node["resources"].values())
    }
    assert json.loads(run(service, tmp_path, "nodes", "-o", "json")[1]) == nodes
    assert run(service, tmp_path, "doctor")[1].startswith("No fault found.\n")


def test_the_file_of_kube_scheduler_is_judged_by_the_service(
    service: ServiceProcess, tmp_path: Path
) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({**DEMO, "server": {"port": service.port}}))
    printed = run_command("scheduler-config", "--config", str(config))
    good.write_text(printed.stdout.replace("ignorable: false", "ignorable: true"))
    bad.write_text("a: [\n")

    status, out, err = run(service, tmp_path, "doctor", "--scheduler-config", str(good))
    assert (status, err) == (1, "")
    assert out.startswith("1 fault found.\n\n1. scheduler configuration: ignorable is")
    assert "\n- scheduler configuration: " not in out

    status, out, err = run(service, tmp_path, "doctor", "--scheduler-config", str(bad))
    assert (status, out) == (2, "")
    assert f"schedulerConfig: {bad}: line 2, column 1: " in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["nodes", "nope"], "no node 'nope' in the cache.\n", id="node"),
        pytest.param(
            ["explain", "huge-0", "-n", "research", "--node", "nope"],
            "no node 'nope' in the cache.\n",
            id="row",
        ),
        pytest.param(
            ["explain", "huge-0", "-n", "research", "--limit", "5000"],
            "The value may not exceed 1000.\n",
            id="limit",
        ),
    ],
)
def test_what_the_service_refuses_is_a_sentence(
    service: ServiceProcess, tmp_path: Path, arguments: list[str], said: str
) -> None:
    status, out, err = run(service, tmp_path, *arguments)

    assert (status, out) == (2, "")
    assert err.endswith(said)
    assert err.count("\n") == 1


def test_a_pod_that_is_gone_and_a_manifest(
    service: ServiceProcess, tmp_path: Path
) -> None:
    kubectl = KubectlStandIn(tmp_path)
    kubectl.answer("get pods -A", {"items": []})
    kubectl.answer("create --dry-run=client", make_pod(gpus=1))
    manifest = tmp_path / "pod.yaml"
    manifest.write_text("kind: Pod")

    assert run(service, tmp_path, "explain", "gone", "-n", "research") == (
        2,
        "",
        "There is no pod research/gone: it may have been deleted meanwhile.\n",
    )
    status, out, err = run(service, tmp_path, "explain", "-f", str(manifest), "--nodes")
    assert (status, err) == (0, "")
    assert "\nNODE " in out
