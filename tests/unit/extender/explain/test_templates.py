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
            "serving.kserve.io/v1beta1", "InferenceService",
            {"predictor": {"minReplicas": 2, "model": {"name": "m"}}},
            [("spec.predictor.", 2)], id="InferenceService",
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


@pytest.mark.parametrize(
    ("tree", "fault"),
    [
        pytest.param(
            {"apiVersion": "batch.example/v1", "kind": "Job", "spec": {}},
            "apiVersion: wanted group batch or group batch.volcano.sh for a Job, got",
            id="a Job of somebody else",
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
    ],
)
def test_what_is_no_template_is_a_fault_with_its_path(
    tree: dict[str, Any], fault: str
) -> None:
    with pytest.raises(WireError) as raised:
        templates_in(tree)

    assert str(raised.value).startswith(fault)
