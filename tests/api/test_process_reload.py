"""Files that change under the real process."""

import json
import signal
from pathlib import Path
from typing import Final

import yaml

from tests.api.two_nodes import file_config, fitting, scores, write_dump
from tests.builders import make_node
from tests.service_process import (
    ServiceProcess,
    exchange,
    wait_until,
)

FAULTY: Final = "file refused, the last good contents stay in use"


def test_a_changed_dump_is_picked_up(folder: Path, service: ServiceProcess) -> None:
    generation = service.generation()

    write_dump(folder / "dump.json", make_node(name="b", gpus=4))

    wait_until(lambda: fitting(service) == ["b"], "the new dump is in use")
    assert service.generation() > generation
    assert service.metric('gpu_extender_cache_objects{kind="nodes"}') == 1


def test_a_broken_dump_keeps_the_last_good_state_until_it_is_mended(
    folder: Path, service: ServiceProcess
) -> None:
    generation = service.generation()
    reload_ok = 'gpu_extender_config_reload_ok{file="cluster"}'

    write_dump(folder / "dump.json", make_node(name="a", gpus="1.2.3Gi"))

    wait_until(lambda: service.metric(reload_ok) == 0, "the fault is noticed")
    (line,) = service.logs("file refused, the last good contents stay in use")
    assert line["file"] == "cluster"
    assert "status.allocatable['nvidia.com/gpu']: quantity '1.2.3Gi'" in line["faults"]
    assert service.generation() == generation
    assert fitting(service) == ["a"]
    assert service.get("/readyz/extender").status == 200

    write_dump(folder / "dump.json", make_node(name="b", gpus=2))

    wait_until(lambda: service.metric(reload_ok) == 1, "the mended dump is noticed")
    wait_until(lambda: fitting(service) == ["b"], "the mended dump is in use")


def test_a_removed_dump_keeps_the_last_good_state(
    folder: Path, service: ServiceProcess
) -> None:
    reload_ok = 'gpu_extender_config_reload_ok{file="cluster"}'

    (folder / "dump.json").unlink()

    wait_until(lambda: service.metric(reload_ok) == 0, "the loss is noticed")
    assert fitting(service) == ["a"]


def test_weights_are_reloaded_and_other_keys_want_a_restart(
    service: ServiceProcess,
) -> None:
    assert scores(service) == [0, 10]  # u 0 and 0.75
    settings = json.loads(json.dumps(file_config()))
    settings["server"] = {"port": 0, "drainSeconds": 0, "maxInFlight": 9}
    settings["scoring"] = {"weights": {"utilization": 0, "typeMatch": 100}}

    service.config.write_text(json.dumps(settings))

    wait_until(lambda: scores(service) == [10, 10], "the new weights are in use")
    (line,) = service.logs("settings changed that need a restart")
    assert line["keys"] == ["server"]


def test_a_faulty_configuration_keeps_the_last_good_one(
    service: ServiceProcess,
) -> None:
    reload_ok = 'gpu_extender_config_reload_ok{file="settings"}'
    good = service.config.read_text()

    service.config.write_text("scoring: {weights: {utilization: -1}}\n")

    wait_until(lambda: service.metric(reload_ok) == 0, "the fault is noticed")
    (line,) = service.logs("file refused, the last good contents stay in use")
    assert "scoring.weights.utilization: " in line["faults"]
    assert scores(service) == [0, 10]

    service.config.write_text(good)

    wait_until(lambda: service.metric(reload_ok) == 1, "the mended file is noticed")


def test_sighup_reads_every_file_again_and_ends_nothing(folder: Path) -> None:
    rules = folder / "rules.json"
    rules.write_text('{"resourceMap": {}}')
    config = file_config(injection={"rulesFile": rules.name})
    config["cluster"]["pollSeconds"] = 3600  # nobody looks by himself
    config["server"] = {"drainSeconds": 3600}
    with ServiceProcess(folder, config) as service:
        service.wait_ready()
        connection = service.connect()
        before = scores(service)

        def hang_up(reads: int) -> list[str]:
            service.send(signal.SIGHUP)
            events = ("file reloaded", FAULTY)
            wait_until(
                lambda: sum(len(service.logs(event)) for event in events) == reads,
                "all files are read",
            )
            return [line["file"] for line in service.logs(FAULTY)]

        assert hang_up(3) == []  # settings, dump and rules, though unchanged
        settings = yaml.safe_load(service.config.read_text())
        settings["scoring"] = {"weights": {"utilization": 0, "typeMatch": 100}}
        service.config.write_text(yaml.safe_dump(settings))
        assert hang_up(6) == []
        assert scores(service) != before
        rules.write_text("[]")
        (folder / "dump.json").write_text("{")
        service.config.write_text("server: [")
        assert sorted(hang_up(9)) == ["cluster", "rules", "settings"]
        assert fitting(service) == ["a"]
        assert exchange(connection, "GET", "/readyz/extender").status == 200
        connection.close()
        service.send(signal.SIGTERM)  # while it drains, too
        wait_until(lambda: bool(service.logs("draining started")), "it drains")
        hang_up(12)
        assert service.get("/healthz").status == 200
        service.send(signal.SIGTERM)

        assert service.wait_stopped() == 0
