import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from cluster.api.protocol import ApiError
from extender.explain.pod import read_subject
from service.commands.quota import (
    ResourceQuota,
    find_quota_obstacles,
    quotas_of_server,
)
from service.runtime import build_verb_options
from tests.builders import make_container, make_pod
from tests.extender_app import make_settings

OPTIONS = build_verb_options(make_settings())


def quota(
    hard: Mapping[str, Any], used: Mapping[str, Any] | None = None, **more: Any
) -> ResourceQuota:
    tree = {
        "metadata": {"name": "q", "namespace": "ml"},
        "status": {"hard": dict(hard), "used": dict(used or {})},
        **more,
    }
    return msgspec.convert(tree, ResourceQuota)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        pytest.param(quota({"requests.nvidia.com/gpu": 2}), [], id="room"),
        pytest.param(
            quota({"requests.nvidia.com/gpu": "4"}, {"requests.nvidia.com/gpu": "3"}),
            ["asks 2 nvidia.com/gpu, 1 of 4 are left"],
            id="GPUs",
        ),
        pytest.param(
            quota({"cpu": "1"}), ["asks 1500m cpu, 1 of 1 are left"], id="by plain name"
        ),
        pytest.param(
            quota({"requests.memory": "1Gi"}),
            ["a pod that states no memory"],
            id="what is not stated",
        ),
        pytest.param(
            quota({"count/pods": 5}, {"count/pods": 5}),
            ["asks 1 pods, 0 of 5 are left"],
            id="pods",
        ),
        pytest.param(
            quota({"cpu": "1", "requests.nvidia.com/gpu": 0}),
            ["asks 1500m cpu, 1 of 1", "asks 2 nvidia.com/gpu, 0 of 0 are left"],
            id="two at once",
        ),
        pytest.param(quota({"limits.cpu": 0}), [], id="limits are not compared"),
        pytest.param(
            quota({"cpu": 0}, spec={"scopes": ["BestEffort"]}), [], id="with a scope"
        ),
        pytest.param(quota({"cpu": "x"}), [], id="a number that is none"),
        pytest.param(
            quota({"cpu": 0}, metadata={"name": "q", "namespace": "other"}),
            [],
            id="of another namespace",
        ),
    ],
)
def test_a_quota_that_would_refuse_the_pod_is_told(
    given: ResourceQuota, told: list[str]
) -> None:
    pod = make_pod(namespace="ml", gpus=2, cpu="1500m")
    subject = read_subject(pod, OPTIONS)

    found = find_quota_obstacles(subject, [given])

    assert len(found) == len(told)
    for obstacle, text in zip(found, told, strict=True):
        assert text in obstacle.text
        assert "The quota q of namespace ml refuses" in obstacle.text
        assert obstacle.remedy


def test_what_a_quota_leaves_is_never_rounded_up() -> None:
    subject = read_subject(make_pod(namespace="ml", memory="2Ti"), OPTIONS)

    (obstacle,) = find_quota_obstacles(
        subject, [quota({"requests.memory": "1800Gi"}, {"requests.memory": "100Gi"})]
    )

    assert obstacle.remedy.startswith("ask for at most 1700Gi memory, or ")


class OneAnswer:
    """An API server that has one answer."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.paths: list[str] = []

    def read(self, path: str) -> bytes:
        self.paths.append(path)
        return self.body


def test_quotas_are_read_in_the_namespace_alone() -> None:
    item = {"metadata": {"name": "q"}, "status": {"hard": {"pods": "1"}}}
    api: Any = OneAnswer(json.dumps({"items": [item]}).encode())

    (found,) = quotas_of_server(api, "ml")

    assert (found.metadata.name, found.status.hard) == ("q", {"pods": "1"})
    assert api.paths == ["/api/v1/namespaces/ml/resourcequotas"]


def test_an_answer_that_is_no_list_is_a_fault_of_the_server() -> None:
    api: Any = OneAnswer(b"<html>")

    with pytest.raises(ApiError, match="malformed"):
        quotas_of_server(api, "ml")


@pytest.mark.parametrize(
    ("containers", "spec", "remedy"),
    [
        pytest.param({"main": "6"}, {}, "ask for at most 4 cpu, or ", id="alone"),
        pytest.param(
            {"main": "5"},
            {"overhead": {"cpu": "1"}},
            "ask for at most 3 cpu beside the overhead, or ",
            id="with overhead",
        ),
        pytest.param(
            {"main": "3", "log": "2"},
            {},
            "ask for at most 2 cpu in container 'main', or ",
            id="beside another container",
        ),
        pytest.param(
            {"main": "4", "log": "4"}, {}, "", id="less of one container is not enough"
        ),
        pytest.param(
            {"main": "1"},
            {"overhead": {"cpu": "4"}},
            "",
            id="overhead alone is as much",
        ),
    ],
)
def test_what_a_quota_leaves_is_told_for_the_container(
    containers: dict[str, str], spec: Mapping[str, Any], remedy: str
) -> None:
    trees = [
        make_container(name=name, requests={"cpu": cpu})
        for name, cpu in containers.items()
    ]
    subject = read_subject(make_pod(containers=trees, spec=spec), OPTIONS)
    given = quota({"cpu": "4"}, metadata={"name": "q", "namespace": "default"})

    (obstacle,) = find_quota_obstacles(subject, [given])

    raised = "have the quota raised, or wait until pods end"
    assert obstacle.remedy == f"{remedy}{raised}"
