"""GPU types in the real process, over files that change."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.api.two_nodes import FILTER, file_config, fitting, write_dump
from tests.builders import Tree, make_node, make_pod
from tests.service_process import ServiceProcess, wait_until

TYPE: Final = "gpu-extender.io/gpu-type"
RULE_KEY: Final = "task.bkbcs.tencent.com/gpu-type"


def node_of(name: str, type_: str) -> Tree:
    return make_node(name=name, gpus=4, labels={"accelerator": type_})


def feasible_nodes(service: ServiceProcess, type_: str) -> list[str]:
    """Return which of the nodes a and b take a pod that wants this type."""
    pod = make_pod(gpus=1, annotations={TYPE: type_})
    verb_call = {"Pod": pod, "Nodes": None, "NodeNames": ["a", "b"]}
    body = json.dumps(verb_call).encode()
    names: list[str] = service.request("POST", FILTER, body).json()["NodeNames"]
    return names


def explained(service: ServiceProcess, pod: str) -> dict[str, float]:
    """Return the term typeMatch of each node, for a pod of the cluster."""
    answer = service.get(f"/explain?namespace=default&pod={pod}&nodes=true").json()
    return {
        node["name"]: node["terms"]["typeMatch"] for node in answer.get("nodes", ())
    }


def test_models_are_reloaded_and_apply_to_the_nodes_that_are_there(
    folder: Path, service: ServiceProcess
) -> None:
    write_dump(folder / "dump.json", node_of("a", "green"), node_of("b", "nvidia-l4"))
    wait_until(lambda: feasible_nodes(service, "L4") == ["b"], "the new dump is in use")
    assert feasible_nodes(service, "H100") == []
    settings: dict[str, Any] = yaml.safe_load(service.config.read_text())

    settings["gpuTypes"] = {"aliases": {"H100": ["Green"]}}
    service.config.write_text(json.dumps(settings))

    wait_until(
        lambda: feasible_nodes(service, "H100") == ["a"], "the new name is in use"
    )
    assert not service.logs("settings changed that need a restart")


def test_pods_that_are_there_want_what_their_rule_key_means_now(
    folder: Path, service: ServiceProcess
) -> None:
    pod = make_pod(gpus=1, annotations={RULE_KEY: "Acme-1"})
    write_dump(folder / "dump.json", node_of("a", "Acme-1"), node_of("b", "L4"), pod)
    wait_until(lambda: explained(service, "pod-1") == {"a": 50, "b": 50}, "the dump")

    models = {"Acme-1": {"memory": "24Gi"}}
    service.config.write_text(json.dumps(file_config(gpuTypes={"models": models})))

    wait_until(
        lambda: explained(service, "pod-1") == {"a": 100, "b": 0}, "the new model"
    )


@pytest.mark.parametrize(
    ("aliases", "fault"),
    [
        pytest.param(
            {"H100": ["L4"]}, "name 'L4' is shared by L4 and H100", id="of two models"
        ),
        pytest.param(
            {"H100": ["A100"], "A100": ["H100"]},
            "name 'A100' is shared by A100 and H100",
            id="a loop",
        ),
    ],
)
def test_a_name_of_two_models_keeps_the_last_good_table(
    service: ServiceProcess, aliases: Mapping[str, list[str]], fault: str
) -> None:
    settings = file_config(gpuTypes={"aliases": aliases})
    reload_ok = 'gpu_extender_config_reload_ok{file="settings"}'

    service.config.write_text(json.dumps(settings))

    wait_until(lambda: service.metric(reload_ok) == 0, "the fault is noticed")
    (line,) = service.logs("file refused, the last good contents stay in use")
    assert f"gpuTypes: {fault}" in line["faults"]
    assert fitting(service) == ["a"]


def test_a_pending_pod_that_cannot_be_read_is_counted_and_harms_nobody(
    folder: Path, service: ServiceProcess
) -> None:
    odd = make_pod(name="odd", gpus=1, annotations={TYPE: "H100;A100"})

    write_dump(folder / "dump.json", make_node(name="b", gpus=4), odd)

    wait_until(lambda: fitting(service) == ["b"], "the new dump is in use")
    assert service.metric("gpu_extender_unreadable_pending_pods") == 1
