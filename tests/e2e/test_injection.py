"""gpuinjector's documented examples, created with kubectl and read back."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from tests.e2e.harness.builders import GPU, JsonObject
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.product import Product

AMD: Final = "amd.com/gpu"
SHM: Final = "nvidia.com/shm"
TRIGGER: Final = "task.bkbcs.tencent.com/gpu-type"
NETWORKS: Final = {"tke.cloud.tencent.com/networks": "tke-route-eni"}
NAMESPACES: Final = ("gpu-training", "special-ns", "white-ns")


def amount(name: str, coefficient: float, unit: str = "") -> JsonObject:
    """Return one line of a rule."""
    line: JsonObject = {"name": name, "coefficient": coefficient}
    return {**line, "unit": unit} if unit else line


RULES: Final = {
    "resourceMap": {
        "V100": {
            GPU: {
                "resourceList": [amount("cpu", 4000, "m"), amount("memory", 8, "Gi")],
                "annotations": NETWORKS,
            },
            AMD: {"resourceList": [amount("cpu", 1000, "m")]},
        },
        "T4": {
            GPU: {
                "resourceList": [
                    amount("cpu", 4000, "m"),
                    amount("memory", 8, "Gi"),
                    amount(SHM, 1, "Gi"),
                ]
            }
        },
    },
    "namespaceResourceMap": {
        "gpu-training": {
            "V100": {
                GPU: {
                    "resourceList": [
                        amount("cpu", 6000, "m"),
                        amount("memory", 12, "Gi"),
                        amount(SHM, 2, "Gi"),
                    ],
                    "annotations": {"x": "y"},
                }
            }
        },
        "special-ns": {"V100": {AMD: {"resourceList": [amount("cpu", 1, "")]}}},
    },
    "namespaceWhiteList": ["white-ns"],
}


@pytest.fixture(scope="module")
def product(
    shared_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Product]:
    """The service with the rules of the examples, for all tests of this file."""
    rules = tmp_path_factory.mktemp("rules") / "rules.json"
    rules.write_text(json.dumps(RULES))
    plane = shared_control_plane
    settings: Mapping[str, Any] = {"injection": {"rulesFile": str(rules)}}
    with Product(plane, settings=settings) as installed:
        for name in NAMESPACES:
            namespace = {"apiVersion": "v1", "kind": "Namespace"}
            plane.client.apply({**namespace, "metadata": {"name": name}})
        installed.start()
        installed.register_webhook()
        yield installed
    plane.reset()


def container(
    name: str,
    requests: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
) -> JsonObject:
    """Return a container; without `limits`, those are the GPUs of `requests`."""
    wanted = dict(requests or {})
    bounds = {key: wanted[key] for key in (GPU, AMD) if key in wanted}
    resources = {
        "requests": wanted,
        "limits": dict(bounds if limits is None else limits),
    }
    return {"name": name, "image": "registry.invalid/w:1", "resources": resources}


def created(
    product: Product,
    *containers: JsonObject,
    namespace: str = "default",
    gpu_type: str | None = "V100",
) -> JsonObject:
    """Create a pod with kubectl, and read it back from the API server."""
    pod = manifest(*containers, namespace=namespace, gpu_type=gpu_type)
    name = product.plane.kubectl("create", "-o", "name", "-f", "-", stdin=pod).strip()
    return product.plane.kubectl.json("get", "-n", namespace, name)


def manifest(*containers: JsonObject, namespace: str, gpu_type: str | None) -> str:
    """Return a pod as kubectl takes it."""
    annotations = {} if gpu_type is None else {TRIGGER: gpu_type}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "generateName": "example-",
                "namespace": namespace,
                "annotations": annotations,
            },
            "spec": {"containers": list(containers)},
        }
    )


def asked(pod: JsonObject) -> dict[str, tuple[JsonObject, JsonObject]]:
    """Return container name -> (requests, limits)."""
    return {
        one["name"]: (
            one.get("resources", {}).get("requests", {}),
            one.get("resources", {}).get("limits", {}),
        )
        for one in pod["spec"]["containers"]
    }


def both(**amounts: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return equal requests and limits; `gpu`, `amd`, `shm` stand for resources."""
    names = {"gpu": GPU, "amd": AMD, "shm": SHM}
    same = {names.get(key, key): value for key, value in amounts.items()}
    return same, same


def added_annotations(pod: JsonObject) -> dict[str, str]:
    """Return the annotations beside the trigger."""
    annotations: dict[str, str] = dict(pod["metadata"].get("annotations", {}))
    annotations.pop(TRIGGER, None)
    return annotations


@pytest.mark.parametrize(
    ("containers", "options", "expected", "annotations"),
    [
        pytest.param(
            [container("a", {GPU: "2"})],
            {},
            {"a": both(cpu="8", memory="16Gi", gpu="2")},
            NETWORKS,
            id="two GPUs get twice the rule and its annotation",
        ),
        pytest.param(
            [
                container("a", {GPU: "2"}),
                container("s", {"cpu": "1", "memory": "2Gi"}),
            ],
            {},
            {
                "a": both(cpu="7", memory="14Gi", gpu="2"),
                "s": ({"cpu": "1", "memory": "2Gi"}, {}),
            },
            NETWORKS,
            id="what a sidecar asks is taken out",
        ),
        # 8 - 0.5 cores, 16 - 1 GiB.
        pytest.param(
            [
                container("a", {GPU: "2", "cpu": "1", "memory": "2Gi"}),
                container("s", {"cpu": "500m", "memory": "1Gi"}),
            ],
            {},
            {
                "a": both(cpu="7500m", memory="15Gi", gpu="2"),
                "s": ({"cpu": "500m", "memory": "1Gi"}, {}),
            },
            NETWORKS,
            id="own values of a GPU container are replaced",
        ),
        pytest.param(
            [
                container("a", {GPU: "2"}, limits={}),
                container("s", {"cpu": "1", "memory": "2Gi"}),
            ],
            {},
            {
                "a": both(cpu="7", memory="14Gi", gpu="2"),
                "s": ({"cpu": "1", "memory": "2Gi"}, {}),
            },
            NETWORKS,
            id="GPUs in the requests alone get limits",
        ),
        pytest.param(
            [container("a", {GPU: "1"}), container("p"), container("b", {GPU: "2"})],
            {},
            {
                "a": both(cpu="4", memory="8Gi", gpu="1"),
                "p": ({}, {}),
                "b": both(cpu="8", memory="16Gi", gpu="2"),
            },
            NETWORKS,
            id="several GPU containers share by their GPUs",
        ),
        pytest.param(
            [container("a", {GPU: "2"})],
            {"namespace": "gpu-training"},
            {"a": both(cpu="12", memory="24Gi", shm="4Gi", gpu="2")},
            {"x": "y"},
            id="a namespace rule replaces the default whole",
        ),
        pytest.param(
            [container("a", {GPU: "2"})],
            {"namespace": "special-ns"},
            {"a": both(cpu="8", memory="16Gi", gpu="2")},
            NETWORKS,
            id="a namespace rule for another resource leaves the default",
        ),
        pytest.param(
            [container("a", {GPU: "1"})],
            {"gpu_type": "T4"},
            {"a": both(cpu="4", memory="8Gi", shm="1Gi", gpu="1")},
            {},
            id="an extended resource is injected, too",
        ),
        pytest.param(
            [container("a", {GPU: "2"})],
            {"namespace": "white-ns"},
            {"a": both(gpu="2")},
            {},
            id="a listed namespace is let through",
        ),
        pytest.param(
            [container("a", {GPU: "2"})],
            {"gpu_type": "P4"},
            {"a": both(gpu="2")},
            {},
            id="a type without a rule is let through",
        ),
        pytest.param(
            [container("a", {GPU: "2"})],
            {"gpu_type": None},
            {"a": both(gpu="2")},
            {},
            id="a pod without the annotation is let through",
        ),
        pytest.param(
            [container("a", {"cpu": "1"})],
            {},
            {"a": ({"cpu": "1"}, {})},
            {},
            id="a type but no GPU is let through",
        ),
        pytest.param(
            [container("a", {AMD: "3"})],
            {},
            {"a": both(cpu="3", amd="3")},
            {},
            id="another vendor has a rule of its own",
        ),
    ],
)
def test_a_documented_example(
    product: Product,
    containers: list[JsonObject],
    options: Mapping[str, Any],
    expected: Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]],
    annotations: Mapping[str, str],
) -> None:
    pod = created(product, *containers, **options)

    assert asked(pod) == expected
    marks = {
        key: value
        for key, value in added_annotations(pod).items()
        if not key.startswith("gpu-extender.io/")
    }
    assert marks == annotations


@pytest.mark.parametrize(
    ("containers", "said"),
    [
        pytest.param(
            [container("a", {GPU: "1"}), container("b", {AMD: "1"})],
            ("amd.com/gpu, nvidia.com/gpu",),
            id="two GPU resources in one pod",
        ),
        pytest.param(
            [container("a", {GPU: "1"}), container("s", {"cpu": "4001m"})],
            ("cpu", "1m", "4001m"),
            id="a sidecar that asks more than the budget",
        ),
    ],
)
def test_a_contradiction_is_refused_with_the_numbers(
    product: Product, containers: list[JsonObject], said: tuple[str, ...]
) -> None:
    pod = manifest(*containers, namespace="default", gpu_type="V100")

    done = product.plane.kubectl.run("create", "-f", "-", stdin=pod)

    assert done.returncode == 1
    assert "admission webhook" in done.stderr
    assert [text for text in said if text not in done.stderr] == []


def test_kubectl_shows_the_warning_about_a_type_without_a_rule(
    product: Product,
) -> None:
    pod = manifest(container("a", {GPU: "1"}), namespace="default", gpu_type="v100")

    done = product.plane.kubectl.run("create", "-f", "-", stdin=pod)

    assert done.returncode == 0
    assert "Warning:" in done.stderr
    assert "v100" in done.stderr
