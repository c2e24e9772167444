import json
from typing import Any

import pytest

from extender.explain.templates import templates_in
from extender.wire.filter import WireError

SPEC = {"containers": [{"name": "main"}]}
TEMPLATE = {"spec": SPEC}


def replicated(key: str, **roles: int) -> dict[str, Any]:
    return {
        key: {role: {"replicas": n, "template": TEMPLATE} for role, n in roles.items()}
    }


@pytest.mark.parametrize(
    ("version", "kind", "spec", "expected"),
    [
        pytest.param(
            "apps/v1", "Deployment", {"replicas": 3, "template": TEMPLATE},
            [("spec.template.", 3)], id="Deployment",
        ),
        pytest.param(
            "batch/v1", "Job", {"parallelism": 4, "template": TEMPLATE},
            [("spec.template.", 4)], id="Job",
        ),
        pytest.param(
            "batch/v1", "Job",
            {"parallelism": 40, "completions": 2, "template": TEMPLATE},
            [("spec.template.", 2)], id="Job with fewer completions",
        ),
        pytest.param(
            "apps/v1", "Deployment", {"replicas": 0, "template": TEMPLATE},
            [("spec.template.", 0)], id="none",
        ),
        pytest.param(
            "batch/v1", "CronJob", {"jobTemplate": {"spec": {"template": TEMPLATE}}},
            [("spec.jobTemplate.spec.template.", 1)], id="CronJob",
        ),
        pytest.param(
            "batch.volcano.sh/v1alpha1", "Job",
            {"tasks": [{"name": "w", "replicas": 8, "template": TEMPLATE}]},
            [("spec.tasks[0].template.", 8)], id="Volcano's Job",
        ),
        pytest.param(
            "kubeflow.org/v1", "PyTorchJob",
            replicated("pytorchReplicaSpecs", Master=1, Worker=3),
            [("spec.pytorchReplicaSpecs.Master.template.", 1),
             ("spec.pytorchReplicaSpecs.Worker.template.", 3)], id="PyTorchJob",
        ),
        pytest.param(
            "kubeflow.org/v2beta1", "MPIJob",
            replicated("mpiReplicaSpecs", Launcher=1, Worker=2),
            [("spec.mpiReplicaSpecs.Launcher.template.", 1),
             ("spec.mpiReplicaSpecs.Worker.template.", 2)], id="MPIJob",
        ),
        pytest.param(
            "ray.io/v1", "RayCluster",
            {"headGroupSpec": {"template": TEMPLATE},
             "workerGroupSpecs": [{"replicas": 5, "template": TEMPLATE}]},
            [("spec.headGroupSpec.template.", 1),
             ("spec.workerGroupSpecs[0].template.", 5)], id="RayCluster",
        ),
        pytest.param(
            "ray.io/v1", "RayCluster",
            {"headGroupSpec": {"template": TEMPLATE},
             "workerGroupSpecs": [
                {"replicas": 2, "numOfHosts": 4, "template": TEMPLATE},
                {"minReplicas": 3, "maxReplicas": 9, "template": TEMPLATE}]},
            [("spec.headGroupSpec.template.", 1),
             ("spec.workerGroupSpecs[0].template.", 8),
             ("spec.workerGroupSpecs[1].template.", 3)], id="several hosts",
        ),
        pytest.param(
            "ray.io/v1", "RayJob",
            {"rayClusterSpec": {"headGroupSpec": {"template": TEMPLATE}},
             "submitterPodTemplate": TEMPLATE},
            [("spec.rayClusterSpec.headGroupSpec.template.", 1),
             ("spec.submitterPodTemplate.", 1)], id="RayJob with a submitter",
        ),
        pytest.param(
            "ray.io/v1", "RayJob",
            {"rayClusterSpec": {"headGroupSpec": {"template": TEMPLATE}}},
            [("spec.rayClusterSpec.headGroupSpec.template.", 1)], id="RayJob",
        ),
        pytest.param(
            "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet",
            {"replicas": 2, "leaderWorkerTemplate":
                {"size": 4, "leaderTemplate": TEMPLATE, "workerTemplate": TEMPLATE}},
            [("spec.leaderWorkerTemplate.leaderTemplate.", 2),
             ("spec.leaderWorkerTemplate.workerTemplate.", 6)], id="with a leader",
        ),
        pytest.param(
            "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet",
            {"replicas": 2, "leaderWorkerTemplate":
                {"size": 4, "workerTemplate": TEMPLATE}},
            [("spec.leaderWorkerTemplate.workerTemplate.", 8)], id="without a leader",
        ),
        pytest.param(
            "jobset.x-k8s.io/v1alpha2", "JobSet",
            {"replicatedJobs": [{"name": "w", "replicas": 2, "template":
                {"spec": {"parallelism": 3, "template": TEMPLATE}}}]},
            [("spec.replicatedJobs[0].template.spec.template.", 6)], id="JobSet",
        ),
        pytest.param(
            "jobset.x-k8s.io/v1alpha2", "JobSet",
            {"replicatedJobs": [{"name": "w", "replicas": 2, "template":
                {"spec": {"parallelism": 3, "completions": 1, "template": TEMPLATE}}}]},
            [("spec.replicatedJobs[0].template.spec.template.", 2)],
            id="JobSet with fewer completions",
        ),
        pytest.param(
            "serving.kserve.io/v1beta1", "InferenceService",
            {"predictor": {"minReplicas": 2, "model": {"name": "m"}}},
            [("spec.predictor.", 2)], id="InferenceService",
        ),
        pytest.param(
            "serving.kserve.io/v1beta1", "InferenceService",
            {"predictor": {"minReplicas": 2, "model": {"name": "m"},
                           "workerSpec": {"pipelineParallelSize": 4}}},
            [("spec.predictor.", 2), ("spec.predictor.workerSpec.", 6)],
            id="InferenceService of several nodes",
        ),
        pytest.param(
            "serving.kserve.io/v1beta1", "InferenceService",
            {"predictor": {"model": {"name": "m"}, "workerSpec": {}}},
            [("spec.predictor.", 1), ("spec.predictor.workerSpec.", 1)],
            id="InferenceService of two nodes",
        ),
    ],
)  # fmt: skip
def test_the_templates_of_a_kind_are_found_with_their_numbers(
    version: str, kind: str, spec: dict[str, Any], expected: list[tuple[str, int]]
) -> None:
    tree = {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "x", "namespace": "ml"},
        "spec": spec,
    }

    found = templates_in(tree)

    assert [(item.path, item.replicas) for item in found] == expected
    for item in found:
        assert item.tree["metadata"] == {"name": "x", "namespace": "ml"}
        assert item.tree["spec"]["containers"]
        assert kind in item.note


def test_volcanos_jobs_are_of_its_scheduler_unless_they_say_another() -> None:
    task = {"name": "w", "template": TEMPLATE}
    own = {"name": "w", "template": {"spec": {**SPEC, "schedulerName": "mine"}}}
    job = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "spec": {"tasks": [task, own]},
    }

    names = [item.tree["spec"]["schedulerName"] for item in templates_in(job)]

    assert names == ["volcano", "mine"]


def test_what_a_serving_runtime_adds_is_not_known() -> None:
    own = {"containers": [{"name": "w"}]}
    predictor = {"model": {"name": "m"}, "workerSpec": own}
    service = {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "spec": {"predictor": predictor},
    }
    bare = {**service, "spec": {"predictor": {**predictor, "workerSpec": {}}}}

    unsaid = ("what its ServingRuntime adds",)
    assert [t.not_modelled for t in templates_in(service)] == [unsaid, ()]
    assert [t.not_modelled for t in templates_in(bare)] == [unsaid, unsaid]


@pytest.mark.parametrize("is_on_host", [False, True])
def test_a_pod_of_a_daemon_set_tolerates_what_its_controller_has_it(
    is_on_host: bool,
) -> None:
    own = {"key": "team", "operator": "Exists"}
    spec = {**SPEC, "tolerations": [own], "hostNetwork": is_on_host}
    daemons = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "spec": {"template": {"spec": spec}},
    }

    (found,) = templates_in(daemons)

    first, *added = found.tree["spec"]["tolerations"]
    keys = {item["key"].removeprefix("node.kubernetes.io/") for item in added}
    assert first == own
    assert {"not-ready", "unreachable", "unschedulable", "disk-pressure"} <= keys
    assert ("network-unavailable" in keys) == is_on_host
    assert "one for each node" in found.note
    assert spec["tolerations"] == [own]


def test_the_claims_of_a_stateful_set_are_volumes_of_its_pods() -> None:
    stateful = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "spec": {
            "template": TEMPLATE,
            "volumeClaimTemplates": [{"metadata": {"name": "data"}}, {}, 3],
        },
    }

    (found,) = templates_in(stateful)

    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    assert found.tree["spec"]["volumes"] == [claim]


@pytest.mark.parametrize("kind", ["DaemonSet", "StatefulSet"])
@pytest.mark.parametrize("spec", [None, 3, {"volumes": 3, "tolerations": 3}])
def test_what_a_controller_adds_makes_no_faulty_template_sound(
    kind: str, spec: Any
) -> None:
    template = {"spec": spec}
    tree = {"kind": kind, "spec": {"template": template, "volumeClaimTemplates": [{}]}}

    assert templates_in(tree)[0].tree["spec"] == spec


@pytest.mark.parametrize(
    ("tree", "fault"),
    [
        pytest.param(
            {"apiVersion": "batch.example/v1", "kind": "Job", "spec": {}},
            "apiVersion: wanted group batch or group batch.volcano.sh for a Job, got",
            id="a Job of somebody else",
        ),
        pytest.param(
            {"apiVersion": "v2", "kind": "Pod"},
            "apiVersion: wanted v1 for a Pod, got 'v2'",
            id="a Pod of another version",
        ),
        pytest.param(
            {"apiVersion": ["v1"], "kind": "Pod"},
            "apiVersion: wanted v1 for a Pod, got ['v1']",
            id="a version that is a list",
        ),
        pytest.param(
            {"apiVersion": "ray.io/v1", "kind": "Deployment"},
            "apiVersion: wanted group apps for a Deployment, got 'ray.io/v1'",
            id="a Deployment of Ray",
        ),
        pytest.param(
            {
                "apiVersion": "batch.volcano.sh/v1alpha1",
                "kind": "Job",
                "spec": {"tasks": []},
            },
            "spec.tasks: wanted templates of pods, got none",
            id="no task",
        ),
        pytest.param(
            {
                "apiVersion": "batch.volcano.sh/v1alpha1",
                "kind": "Job",
                "spec": {"tasks": [3]},
            },
            "spec.tasks[0]: wanted an object, got 3",
            id="a task that is none",
        ),
        pytest.param(
            {"apiVersion": "ray.io/v1", "kind": "RayCluster", "spec": 7},
            "spec: wanted an object, got 7",
            id="no spec",
        ),
        pytest.param(
            {"apiVersion": "batch/v1", "kind": "CronJob", "spec": [1]},
            "spec: wanted an object, got [1]",
            id="a list for a spec",
        ),
        pytest.param(
            {
                "apiVersion": "serving.kserve.io/v1beta1",
                "kind": "InferenceService",
                "spec": {"predictor": {"containers": [{}]}, "transformer": []},
            },
            "spec.transformer: wanted an object, got []",
            id="a list for an optional part",
        ),
    ],
)
def test_what_is_no_template_is_a_fault_with_its_path(
    tree: dict[str, Any], fault: str
) -> None:
    with pytest.raises(WireError) as raised:
        templates_in(tree)

    assert str(raised.value).startswith(fault)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("many", id="a word"),
        pytest.param("3", id="a number in quotes"),
        pytest.param(-1, id="below 0"),
        pytest.param(1.5, id="a part"),
        pytest.param(True, id="true"),
        pytest.param([3], id="a list"),
    ],
)
@pytest.mark.parametrize(
    ("version", "kind", "spec", "path"),
    [
        pytest.param("apps/v1", "Deployment", {"replicas": "?", "template": TEMPLATE},
                     "spec.replicas", id="Deployment"),
        pytest.param("batch/v1", "Job", {"parallelism": "?", "template": TEMPLATE},
                     "spec.parallelism", id="Job"),
        pytest.param("batch/v1", "Job",
                     {"parallelism": 3, "completions": "?", "template": TEMPLATE},
                     "spec.completions", id="completions"),
        pytest.param("batch.volcano.sh/v1alpha1", "Job",
                     {"tasks": [{"name": "a", "template": TEMPLATE},
                                {"name": "w", "replicas": "?", "template": TEMPLATE}]},
                     "spec.tasks[1].replicas", id="Volcano"),
        pytest.param("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet",
                     {"replicas": "?", "leaderWorkerTemplate":
                      {"size": 2, "workerTemplate": TEMPLATE}},
                     "spec.replicas", id="LeaderWorkerSet"),
        pytest.param("jobset.x-k8s.io/v1alpha2", "JobSet",
                     {"replicatedJobs": [{"name": "w", "template": {"spec":
                      {"parallelism": "?", "template": TEMPLATE}}}]},
                     "spec.replicatedJobs[0].template.spec.parallelism", id="JobSet"),
    ],
)  # fmt: skip
def test_what_is_no_number_of_pods_is_a_fault_with_its_path(
    version: str, kind: str, spec: dict[str, Any], path: str, value: Any
) -> None:
    text = json.dumps({"apiVersion": version, "kind": kind, "spec": spec})
    tree = json.loads(text.replace('"?"', json.dumps(value)))

    with pytest.raises(WireError) as raised:
        templates_in(tree)

    (fault,) = raised.value.faults
    assert fault.path == path
    assert fault.message.startswith("wanted a whole number from 0, got ")


def test_a_number_of_pods_that_is_null_is_that_of_the_default() -> None:
    tree = {"apiVersion": "apps/v1", "kind": "Deployment",
            "spec": {"replicas": None, "template": TEMPLATE}}  # fmt: skip

    (found,) = templates_in(tree)

    assert found.replicas == 1
