"""The real process over an API server: not synced yet, synced, and without one."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from cluster.api.protocol import ServerClock
from service.commands.inputs import NoClusterError, read_once
from service.runtime import build_ledger, build_records
from service.settings.process import ClusterSettings
from service.settings.settings import Settings
from tests.builders import make_node, make_pod
from tests.fakes.api_http import Held
from tests.fakes.api_server import FakeApiServer
from tests.service_process import ServiceProcess, run_command, wait_until

FILTER: Final = "/scheduler/filter"
PRIORITIZE: Final = "/scheduler/prioritize"
QUESTION: Final = {"Pod": make_pod(gpus=2), "Nodes": None, "NodeNames": ["a", "b"]}


@pytest.fixture
def config(api: FakeApiServer, tmp_path: Path) -> dict[str, Any]:
    """A configuration over an API server with two nodes, of which b is full."""
    api.put(
        make_node(name="a", gpus=4),
        make_node(name="b", gpus=4),
        make_pod(name="holder", gpus=4, node_name="b"),
    )
    kubeconfig = str(api.kubeconfig(tmp_path))
    return {"cluster": {"source": "kubernetes", "kubeconfig": kubeconfig}}


@pytest.fixture
def service(tmp_path: Path, config: dict[str, Any]) -> Iterator[ServiceProcess]:
    """Run the process; it may not be synced yet."""
    with ServiceProcess(tmp_path, config) as running:
        yield running


def write_plugin(folder: Path, api: FakeApiServer) -> Path:
    """Have the kubeconfig ask a plugin that hangs while there is a file `hang`."""
    plugin = folder / "plugin"
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "one"},
    }
    plugin.write_text(
        f"#!/bin/sh\ntouch {folder}/called\n"
        f"[ -e {folder}/hang ] && exec sleep 60\necho '{json.dumps(credential)}'\n"
    )
    plugin.chmod(0o700)
    path = api.kubeconfig(folder)
    tree = yaml.safe_load(path.read_text())
    tree["users"][0]["user"] = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(plugin),
            "interactiveMode": "Never",
        }
    }
    path.write_text(yaml.safe_dump(tree))
    return path


def test_a_plugin_that_hangs_does_not_keep_the_process_from_starting_to_end(
    api: FakeApiServer, config: dict[str, Any], tmp_path: Path
) -> None:
    write_plugin(tmp_path, api)
    (tmp_path / "hang").touch()
    service = ServiceProcess(tmp_path, config)
    service.start()
    wait_until((tmp_path / "called").exists, "the plugin is called")

    service.send(signal.SIGTERM)

    assert service.wait_stopped() == 0
    assert "Traceback" not in service.stderr


def test_a_plugin_that_hangs_does_not_keep_the_process_from_ending(
    api: FakeApiServer, config: dict[str, Any], tmp_path: Path
) -> None:
    write_plugin(tmp_path, api)
    config["server"] = {"stopSeconds": 1}
    with ServiceProcess(tmp_path, config) as service:
        service.wait_ready()
        (tmp_path / "called").unlink()
        (tmp_path / "hang").touch()
        api.token = "another"  # noqa: S105  of a test: what we have is no longer good
        api.cut()
        wait_until((tmp_path / "called").exists, "the plugin is called again")

        service.send(signal.SIGTERM)

        assert service.wait_stopped() == 0


def test_until_pods_are_listed_nobody_gets_a_verdict(
    api: FakeApiServer, config: dict[str, Any], tmp_path: Path
) -> None:
    api.withhold("pods", 500)
    with ServiceProcess(tmp_path, config) as service:
        wait_until(lambda: bool(api.seen("list", "nodes")), "nodes are listed")

        answers = [service.post(path, QUESTION) for path in (FILTER, PRIORITIZE)]

        assert [answer.status for answer in answers] == [503, 503]
        assert service.get("/readyz/extender").status == 503
        assert service.get("/readyz").status == 200
        assert service.get("/healthz").status == 200
        assert service.metric("gpu_extender_cache_synced") == 0

        api.withhold("pods", None)

        service.wait_ready()
        assert service.post(FILTER, QUESTION).status == 200


def test_a_watched_cluster_trusts_the_count_of_kube_scheduler(
    service: ServiceProcess,
) -> None:
    service.wait_ready()

    answer = service.post(FILTER, QUESTION).json()

    assert answer["NodeNames"] == ["a", "b"]
    count_mismatches = "gpu_extender_scheduler_count_disagreements_total"
    assert service.metric(count_mismatches) == 1


def test_a_change_of_the_cluster_is_seen(
    api: FakeApiServer, service: ServiceProcess
) -> None:
    service.wait_ready()

    api.remove(make_node(name="a"))

    wait_until(
        lambda: service.post(FILTER, QUESTION).json()["NodeNames"] == ["b"],
        "the node is gone",
    )


def test_the_scheduler_configuration_is_made_from_the_api_server(
    config: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps(config))

    result = run_command(
        "scheduler-config", "--config", str(path), "--url-prefix", "http://10.0.0.1/x"
    )

    assert result.returncode == 0, result.stderr
    (extender,) = yaml.safe_load(result.stdout)["extenders"]
    assert extender["urlPrefix"] == "http://10.0.0.1/x"


def release_at_once() -> Held:
    """Return what holds a request for no time: the small question before the list."""
    held = Held()
    held.release.set()
    return held


def test_a_cluster_that_cannot_be_read_in_time_is_an_error(
    api: FakeApiServer, config: dict[str, Any], tmp_path: Path
) -> None:
    held = Held()
    api.script("list", "nodes", release_at_once(), held)
    settings = Settings()
    cluster = ClusterSettings.model_validate_json(json.dumps(config["cluster"]))

    with pytest.raises(
        NoClusterError, match=r"not listed all nodes and .* 0\.3 s; try"
    ):
        read_once(
            cluster,
            tmp_path,
            build_records(settings),
            build_ledger(settings),
            ServerClock(),
            timeout_seconds=0.3,
        )
    held.release.set()


def test_a_missing_kubeconfig_ends_with_2_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("cluster: {kubeconfig: ghost}\n")

    result = run_command("serve", "--config", str(path))

    assert result.returncode == 2
    assert "ghost" in result.stderr
    assert "Traceback" not in result.stderr
