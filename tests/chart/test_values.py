"""Values that are refused, and with which sentence."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest
import yaml

from tests.chart.rendering import CHART, HELMS, MODES, HelmError, merged, render, run

helms = pytest.mark.parametrize("helm", HELMS)

OFF: Final = {"enabled": False}

# Values, and words of the sentence about them.
CONTRADICTIONS: Final[Mapping[str, tuple[Mapping[str, Any], str]]] = {
    "no image": (
        {"image": {"repository": ""}},
        "image.repository: there is no default. Build the image",
    ),
    "a name that no Service may have": (
        {"fullnameOverride": "9-gpus"},
        "fullnameOverride: wanted a name that begins with a letter and has letters,",
    ),
    "a tag in the name": (
        {"image": {"repository": "registry.example:5000/gpu-extender:0.1.0"}},
        "image.repository: wanted a name without tag and digest",
    ),
    "a digest in the name": (
        {"scheduler": {"image": {"repository": "kube-scheduler@sha256:0"}}},
        "scheduler.image.repository: wanted a name without tag and digest",
    ),
    "two schedulers of one name": (
        {"scheduler": {"name": "default-scheduler"}},
        "scheduler.name: wanted another name than default-scheduler",
    ),
    "pods sent to another scheduler": (
        {"config": {"injection": {"schedulerName": "other"}}},
        "two schedulers would give away the same GPUs",
    ),
    "nobody sends pods to the second scheduler": (
        {"webhook": OFF},
        "Without the webhook nobody sends GPU pods to the second scheduler",
    ),
    "no certificate": (
        {"webhook": {"selfSigned": OFF}},
        "wanted one source of its certificate",
    ),
    "two certificates": (
        {"webhook": {"existingSecret": "pair"}},
        "got webhook.selfSigned.enabled and webhook.existingSecret",
    ),
    "one replica that must stay": (
        {"replicaCount": 1},
        "podDisruptionBudget.minAvailable: wanted less than replicaCount, 1, got 1",
    ),
    "all replicas must stay": (
        {"podDisruptionBudget": {"minAvailable": "100%"}},
        "no node with a pod of ours could be drained",
    ),
    "all replicas, rounded up": (
        {"podDisruptionBudget": {"minAvailable": "51%"}},
        "podDisruptionBudget.minAvailable: wanted less than replicaCount, 2, got 51%",
    ),
    "no budget": (
        {"podDisruptionBudget": {"minAvailable": None}},
        "podDisruptionBudget: wanted minAvailable or maxUnavailable, got neither",
    ),
    "two leaders": (
        {"scheduler": {"leaderElect": False}},
        "scheduler.leaderElect: wanted true with replicaCount 2",
    ),
    "none may go": (
        {"podDisruptionBudget": {"minAvailable": None, "maxUnavailable": 0}},
        "podDisruptionBudget.maxUnavailable: wanted 1 or more, got 0",
    ),
    "two budgets": (
        {"podDisruptionBudget": {"maxUnavailable": 1}},
        "wanted minAvailable or maxUnavailable, got both",
    ),
    "verbs for everybody": (
        {"config": {"server": {"host": "0.0.0.0"}}},  # noqa: S104  it is refused
        'config.server.host: wanted a loopback address, got "0.0.0.0"',
    ),
    "no port": ({"config": {"server": {"port": 0}}}, "config.server.port: wanted"),
    "one port": ({"webhook": {"port": 8888}}, "wanted two ports, got 8888 twice"),
    "kube-scheduler's port": (
        {"webhook": {"port": 10259}},
        "webhook.port: wanted a free port, got 10259, on which kube-scheduler listens",
    ),
    "kubelet's port": (
        {"scheduler": OFF, "config": {"server": {"port": 10250}}},
        "config.server.port: wanted a free port, got 10250, on which the node's",
    ),
    "what the chart writes": (
        {"config": {"webhook": {"certificateFile": "a", "keyFile": "b"}}},
        "config.webhook.certificateFile: wanted nothing",
    ),
    "names that the chart gives": (
        {"config": {"webhook": {"selfSigned": {"secretName": "x"}}}},
        "config.webhook.selfSigned.secretName: wanted nothing",
    ),
    "a CA that nobody knows yet": (
        {"webhook": {"registration": "rendered"}},
        "nobody knows the CA before gpu-extender has made it",
    ),
    "no CA": (
        merged(MODES["rendered registration"], {"webhook": {"caBundle": ""}}),
        "--set-file webhook.caBundle=ca.crt",
    ),
    "a CA that is filled in": (
        {"webhook": {"caBundle": "PEM"}},
        "webhook.caBundle: wanted nothing",
    ),
    "a policy for the host's network": (
        {"scheduler": OFF, "networkPolicy": {"enabled": True}},
        "no NetworkPolicy applies to pods on the host's network",
    ),
    "two monitors": (
        {
            "metrics": {
                "podMonitor": {"enabled": True},
                "serviceMonitor": {"enabled": True},
            }
        },
        "got metrics.podMonitor.enabled and metrics.serviceMonitor.enabled",
    ),
    "a monitor of nothing": (
        merged(
            MODES["existing scheduler without webhook"],
            {"metrics": {"serviceMonitor": {"enabled": True}}},
        ),
        "metrics.serviceMonitor.enabled: wanted false with webhook.enabled: false",
    ),
    "a policy for the nodes' network": (
        {"hostNetwork": True, "networkPolicy": {"enabled": True}},
        "networkPolicy.enabled: wanted false with hostNetwork: true",
    ),
    "what the chart writes for its own scheduler": (
        {"config": {"server": {"schedulerHealthUrl": "https://127.0.0.1:1/livez"}}},
        "config.server.schedulerHealthUrl: wanted nothing with scheduler.enabled: true",
    ),
    "rules for nobody to apply": (
        merged(
            MODES["own scheduler without webhook"],
            {"rules": {"resourceMap": {"T4": {"nvidia.com/gpu": {"cpu": "4"}}}}},
        ),
        "- rules: wanted nothing with webhook.enabled: false",
    ),
    "chains that nobody lets pods fall along": (
        merged(
            MODES["own scheduler without webhook"],
            {"config": {"fallback": {"chains": [["nvidia.com/mig-1g.5gb", "a.io/b"]]}}},
        ),
        "- config.fallback.chains: wanted nothing with webhook.enabled: false",
    ),
    "rules that nobody applies": (
        merged(
            MODES["existing scheduler without webhook"],
            {"rules": {"resourceMap": {"T4": {"nvidia.com/gpu": {"cpu": "4"}}}}},
        ),
        "- rules: wanted nothing with webhook.enabled: false: nobody reviews pods",
    ),
    "a label of our pods": (
        {"commonLabels": {"app.kubernetes.io/component": "gpu"}},
        "commonLabels: wanted other labels than app.kubernetes.io/component",
    ),
    "a label of the replica that decides": (
        {"podLabels": {"gpu-extender.io/active": "true"}},
        "podLabels: wanted other labels than gpu-extender.io/active",
    ),
    "a policy for a scheduler that nobody named": (
        {"scheduler": OFF, "schedulerNamePolicy": {"enabled": True}},
        "schedulerNamePolicy.enabled: wanted false with scheduler.enabled: false",
    ),
    "no time to drain": (
        {"terminationGracePeriodSeconds": 10},
        "terminationGracePeriodSeconds: wanted at least 20",
    ),
}


@helms
@pytest.mark.parametrize(
    ("values", "words"), CONTRADICTIONS.values(), ids=list(CONTRADICTIONS)
)
def test_values_that_contradict_each_other_are_refused(
    helm: str, values: Mapping[str, Any], words: str
) -> None:
    with pytest.raises(HelmError) as caught:
        render(helm, values)

    assert words in str(caught.value)


@helms
def test_a_minor_that_is_not_tested_is_refused(helm: str) -> None:
    with pytest.raises(HelmError, match=r"which gpu-extender is not tested on"):
        render(helm, {}, kubernetes="1.35.2")


@helms
@pytest.mark.parametrize("kubernetes", ["1.34.4", "v1.35.9-gke.1"])
def test_a_policy_that_the_minor_does_not_know_is_refused(
    helm: str, kubernetes: str
) -> None:
    values = {
        "schedulerNamePolicy": {"enabled": True},
        "scheduler": {"image": {"tag": "v1.35.9"}},
    }

    with pytest.raises(HelmError) as caught:
        render(helm, values, kubernetes=kubernetes)

    minor = kubernetes.lstrip("v")[:4]
    assert (
        "- schedulerNamePolicy.enabled: wanted Kubernetes 1.36 or newer, where"
        f" MutatingAdmissionPolicy is stable, got {minor}."
    ) in str(caught.value)
    assert str(caught.value).count("\n- ") == 1


def test_all_contradictions_are_told_at_once() -> None:
    values = merged(*(values for values, _ in list(CONTRADICTIONS.values())[1:4]))

    with pytest.raises(HelmError) as caught:
        render(HELMS[0], values)

    assert str(caught.value).count("\n- ") == 3


# Values that the schema alone refuses, and where.
MISTYPED: Final[Mapping[str, tuple[Mapping[str, Any], str]]] = {
    "unknown key": ({"replicas": 2}, "replicas"),
    "unknown key below": ({"webhook": {"failPolicy": "Fail"}}, "/webhook"),
    "unknown setting": ({"config": {"scoring": {"x": 1}}}, "/config/scoring"),
    "no number": ({"replicaCount": "2"}, "/replicaCount"),
    "no replica": ({"replicaCount": 0}, "/replicaCount"),
    "no policy": ({"webhook": {"failurePolicy": "fail"}}, "/webhook/failurePolicy"),
    "no registration": ({"webhook": {"registration": "x"}}, "/webhook/registration"),
    "one resource twice": (
        {"scheduler": {"managedResources": ["a.io/gpu", "a.io/gpu"]}},
        "/scheduler/managedResources",
    ),
    "no digest": ({"image": {"digest": "latest"}}, "/image/digest"),
    "a port of root": ({"webhook": {"port": 443}}, "/webhook/port"),
    "no webhook": ({"webhook": None}, "webhook"),
    "no scheduler": ({"scheduler": None}, "scheduler"),
    "nothing of the CA": ({"webhook": {"selfSigned": None}}, "selfSigned"),
    "nothing of certificates": ({"certManager": None}, "certManager"),
    "no rights": ({"rbac": None, "serviceAccount": None}, "serviceAccount"),
    "no budget": ({"podDisruptionBudget": None}, "podDisruptionBudget"),
    "no image": ({"image": None}, "image"),
    "no number of replicas": ({"replicaCount": None}, "replicaCount"),
    "no port": ({"webhook": {"port": None}}, "port"),
    "no name": ({"scheduler": {"name": None}}, "name"),
    "no settings": ({"config": None}, "config"),
    "neither on nor off": ({"webhook": {"enabled": None}}, "enabled"),
}


@helms
@pytest.mark.parametrize(("values", "path"), MISTYPED.values(), ids=list(MISTYPED))
def test_values_of_no_meaning_are_refused_by_the_schema(
    helm: str, values: Mapping[str, Any], path: str
) -> None:
    with pytest.raises(HelmError, match="don't meet the specifications") as caught:
        render(helm, values)

    assert path in str(caught.value)


GOOD: Final[Mapping[str, Mapping[str, Any]]] = {
    "one replica without a budget": {
        "replicaCount": 1,
        "podDisruptionBudget": OFF,
    },
    "one replica without a leader": {
        "replicaCount": 1,
        "podDisruptionBudget": OFF,
        "scheduler": {"leaderElect": False},
    },
    "a port of the registry": {
        "image": {"repository": "registry.example:5000/gpu-extender"}
    },
    "kubelet's port at a pod's own address": {"webhook": {"port": 10250}},
    "defaults taken away": {
        "imagePullSecrets": None,
        "global": {"imagePullSecrets": None},
        "scheduler": {"managedResources": None},
        "webhook": {"skippedNamespaces": None},
    },
    "at most one away": {
        "podDisruptionBudget": {"minAvailable": None, "maxUnavailable": 1}
    },
    "half": {"replicaCount": 3, "podDisruptionBudget": {"minAvailable": "50%"}},
    "the same name twice": {
        "config": {"injection": {"schedulerName": "gpu-extender-scheduler"}}
    },
    "another scheduler's name": {
        "scheduler": OFF,
        "config": {"injection": {"schedulerName": "theirs"}},
    },
    "another scheduler's name by a policy": {
        "scheduler": OFF,
        "config": {"injection": {"schedulerName": "theirs"}},
        "schedulerNamePolicy": {"enabled": True},
    },
    "another scheduler's health": {
        "scheduler": OFF,
        "config": {"server": {"schedulerHealthUrl": "https://127.0.0.1:10259/livez"}},
    },
    "IPv6": {"config": {"server": {"host": "::1"}}},
    "values for charts above": {"global": {"storageClass": "fast"}},
}


@helms
@pytest.mark.parametrize("values", GOOD.values(), ids=list(GOOD))
def test_values_that_fit_are_taken(helm: str, values: Mapping[str, Any]) -> None:
    assert render(helm, values)


def objects_in(schema: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each part of a schema that names properties."""
    if isinstance(schema, dict):
        if "properties" in schema:
            yield path, schema
        for key, part in schema.items():
            yield from objects_in(part, f"{path}/{key}")


def test_the_schema_is_closed_and_knows_each_value() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())

    open_parts = {
        path
        for path, part in objects_in(schema)
        if part.get("additionalProperties") is not False
    }
    assert open_parts == {"/properties/global"}  # Helm's, for charts above ours
    assert set(defaults) == set(schema["properties"])


@helms
def test_the_chart_is_packaged(helm: str, tmp_path: Any) -> None:
    run(helm, "package", CHART, "--destination", tmp_path)

    assert [file.name for file in tmp_path.iterdir()] == ["gpu-extender-0.1.0.tgz"]
