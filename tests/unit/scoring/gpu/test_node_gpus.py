"""What the labels of a node say of its GPUs."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from scoring.gpu.models import GIB
from scoring.gpu.node_gpus import ANY_SIZE, Bounds, GpuLabelReader, NodeGpus

CAPTURES: Final = Path(__file__).parents[3] / "contract" / "captures"


PRODUCT: Final = "nvidia.com/gpu.product"


MEMORY: Final = "nvidia.com/gpu.memory"


GKE: Final = "cloud.google.com/gke-accelerator"


KARPENTER_MEMORY: Final = "karpenter.k8s.aws/instance-gpu-memory"


ACK: Final = "aliyun.accelerator/nvidia_name"


MIB: Final = 2**20


def gpus_of(labels: Mapping[str, str], gpus: int = 0) -> NodeGpus:
    """Return what the labels say of a node's GPUs."""
    capacity = (("nvidia.com/gpu", gpus),) if gpus else ()
    return GpuLabelReader().read(labels, capacity)


def gib(size: int) -> Bounds:
    return Bounds(size * GIB, size * GIB)


@pytest.mark.parametrize(
    ("labels", "model"),
    [
        pytest.param({}, "", id="no label"),
        pytest.param({PRODUCT: ""}, "", id="an empty one"),
        pytest.param({"kubernetes.azure.com/accelerator": "nvidia"}, "", id="vendor"),
        pytest.param({"accelerator": "true"}, "", id="a mark"),
        pytest.param({"accelerator": "nvidia", GKE: "nvidia-l4"}, "L4", id="next one"),
        pytest.param(
            {"accelerator": "nvidia-tesla-t4", PRODUCT: "NVIDIA-L4"}, "L4", id="first"
        ),
        pytest.param(
            {
                "beta.amd.com/gpu.product-name.Instinct_MI300X": "4",
                "beta.amd.com/gpu.product-name.Instinct_MI210": "4",
            },
            "",
            id="two models by AMD's labels",
        ),
    ],
)
def test_the_first_label_that_names_a_model_counts(
    labels: dict[str, str], model: str
) -> None:
    assert gpus_of(labels).model == model


def test_a_node_with_two_models_has_gpus_of_an_unknown_type() -> None:
    labels = {PRODUCT: "NVIDIA-L4", MEMORY: "23034", "nvidia.com/gpu.count": "2"}

    assert gpus_of(labels, gpus=2).model == "L4"
    assert gpus_of(labels, gpus=4) == NodeGpus(vendor="nvidia")


# --- units -------------------------------------------------------------------

GPU: Final = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("labels", "model", "profile", "replicas"),
    [
        pytest.param({PRODUCT: "NVIDIA-A100-SXM4-80GB"}, "A100-SXM4-80GB", "", 1,
                     id="plain"),
        pytest.param({PRODUCT: "NVIDIA-A100-SXM4-80GB-SHARED"}, "A100-SXM4-80GB", "", 0,
                     id="shared, by how many is not said"),
        pytest.param({PRODUCT: "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"}, "A100-SXM4-80GB",
                     "1g.10gb", 1, id="MIG strategy single"),
        pytest.param({PRODUCT: "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb-SHARED",
                      "nvidia.com/gpu.replicas": "2"}, "A100-SXM4-80GB", "1g.10gb", 2,
                     id="MIG, shared"),
        pytest.param({PRODUCT: "Tesla-T4", "nvidia.com/gpu.replicas": "4"}, "T4", "", 4,
                     id="shared under another resource name"),
        pytest.param({PRODUCT: "Tesla-T4", "nvidia.com/gpu.sharing-strategy": "mps"},
                     "T4", "", 0, id="shared, by its strategy"),
        pytest.param({PRODUCT: "Tesla-T4", "nvidia.com/gpu.replicas": "0",
                      "nvidia.com/gpu.sharing-strategy": "none"}, "T4", "", 1,
                     id="0 replicas"),
        pytest.param({PRODUCT: "Tesla-T4", "nvidia.com/gpu.replicas": "many"}, "T4", "",
                     1, id="no number of replicas"),
        pytest.param({PRODUCT: "NVIDIA-A100-SXM4-80GB-MIG-INVALID"}, "A100-SXM4-80GB",
                     "INVALID", 1, id="an invalid layout"),
        pytest.param({GKE: "nvidia-tesla-a100",
                      "cloud.google.com/gke-gpu-partition-size": "1g.5gb"},
                     "A100-SXM4-40GB", "1g.5gb", 1, id="a partition of GKE"),
        pytest.param({GKE: "nvidia-l4",
                      "cloud.google.com/gke-gpu-sharing-strategy": "time-sharing",
                      "cloud.google.com/gke-max-shared-clients-per-gpu": "3"},
                     "L4", "", 3, id="shared on GKE"),
        pytest.param({"amd.com/gpu.product-name": "Instinct_MI300X",
                      "amd.com/gpu.compute-memory-partition": "CPX_NPS4"},
                     "MI300X", "", 0, id="an AMD GPU in parts"),
        pytest.param({"amd.com/gpu.product-name": "Instinct_MI300X",
                      "amd.com/gpu.compute-memory-partition": "SPX_NPS1"},
                     "MI300X", "", 1, id="an AMD GPU in one part"),
    ],
)  # fmt: skip
def test_marks_of_slices_and_shares_are_no_part_of_the_model(
    labels: dict[str, str], model: str, profile: str, replicas: int
) -> None:
    gpus = gpus_of(labels)

    assert (gpus.model, gpus.profile, gpus.replicas) == (model, profile, replicas)
    assert gpus.is_whole == (replicas == 1 and not profile)


A100: Final = {PRODUCT: "NVIDIA-A100-SXM4-80GB"}


@pytest.mark.parametrize(
    ("labels", "resource", "memory"),
    [
        pytest.param(A100, GPU, gib(80), id="a GPU"),
        pytest.param(A100, "nvidia.com/gpu-memory", gib(80), id="memory of a GPU"),
        pytest.param({**A100, "nvidia.com/gpu.replicas": "4"}, GPU, gib(20),
                     id="a share"),
        pytest.param({**A100, "nvidia.com/gpu.replicas": "4"}, "nvidia.com/gpu.shared",
                     gib(20), id="a share of its own name"),
        pytest.param(A100, "nvidia.com/gpu.shared", Bounds(0, 80 * GIB),
                     id="a share among nobody knows how many"),
        pytest.param({PRODUCT: "NVIDIA-A100-SXM4-80GB-MIG-3g.40gb", MEMORY: "40192"},
                     GPU, gib(40), id="a slice by another name"),
        pytest.param(A100, "nvidia.com/mig-1g.10gb", gib(10), id="a slice"),
        pytest.param(A100, "nvidia.com/mig-1g.10gb.me", gib(10), id="with media"),
        pytest.param(A100, "nvidia.com/mig-1c.3g.40gb", Bounds(40 * GIB // 3,
                     40 * GIB // 3), id="a compute instance"),
        pytest.param({**A100, "nvidia.com/mig-1g.10gb.replicas": "2"},
                     "nvidia.com/mig-1g.10gb", gib(5), id="a shared slice"),
        pytest.param({**A100, "nvidia.com/mig-1g.10gb.replicas": "2"},
                     "nvidia.com/mig-1g.10gb.shared", gib(5), id="of its own name"),
        pytest.param({**A100, "nvidia.com/mig-1g.10gb.replicas": "1"},
                     "nvidia.com/mig-1g.10gb", gib(10), id="a slice of one"),
        pytest.param(A100, "nvidia.com/mig-1g.10gb.shared", Bounds(0, 10 * GIB),
                     id="a slice shared by nobody knows how many"),
        pytest.param(A100, "nvidia.com/mig-huge", ANY_SIZE, id="no profile"),
        pytest.param(A100, "nvidia.com/mig-9c.3g.40gb", gib(40), id="no instance"),
        pytest.param(A100, "nvidia.com/mig-1c.0g.10gb", gib(10), id="no slices"),
        pytest.param({}, GPU, ANY_SIZE, id="nothing known"),
    ],
)  # fmt: skip
def test_each_resource_has_the_memory_of_its_unit(
    labels: dict[str, str], resource: str, memory: Bounds
) -> None:
    assert gpus_of(labels).memory_of(resource) == memory


@pytest.mark.parametrize(
    ("labels", "size"),
    [
        pytest.param({MEMORY: "49140"}, 49140 * MIB, id="MiB"),
        pytest.param({KARPENTER_MEMORY: "22888"}, 22888 * MIB, id="Karpenter"),
        pytest.param({"aliyun.accelerator/nvidia_mem": "16160MiB"}, 16160 * MIB,
                     id="ACK"),
        pytest.param({"amd.com/gpu.vram": "64G"}, 64 * GIB, id="AMD"),
        pytest.param({MEMORY: "0", "amd.com/gpu.vram": "64G"}, 64 * GIB, id="0"),
        pytest.param({MEMORY: "lots"}, None, id="no number"),
        pytest.param({MEMORY: "1" * 40}, None, id="too long a number"),
    ],
)  # fmt: skip
def test_the_memory_of_an_unknown_model_is_read_from_labels(
    labels: dict[str, str], size: int | None
) -> None:
    memory = gpus_of({PRODUCT: "Acme-1", **labels}).memory

    assert memory == (
        ANY_SIZE if size is None else Bounds(size * 100 // 93, size * 100 // 93)
    )


# --- captured nodes ----------------------------------------------------------

CAPTURED: Final = {
    "a100-mig-01": ("A100-SXM4-40GB", 40, 1),
    "a100-pcie-01": ("A100-PCIE-40GB", 40, 1),
    "a100-sxm-01": ("A100-SXM4-80GB", 80, 1),
    "cpu-01": ("", None, 1),
    "h100-01": ("H100-SXM5-80GB", 80, 1),
    "h100-02": ("H100-SXM5-80GB", 80, 1),
    "l4-01": ("L4", 24, 1),
    "t4-01": ("T4", 16, 1),
    "t4-shared-01": ("T4", 16, 4),
    "v100-01": ("V100-SXM2-16GB", 16, 1),
}


def captured_nodes() -> list[dict[str, Any]]:
    """Return each distinct node of the recorded calls."""
    found = {}
    paths = [
        *CAPTURES.glob("*/scheduler-nodes-*.json"),
        *CAPTURES.glob("*/list-*.json"),
    ]
    for path in paths:
        body = json.loads(path.read_bytes())
        nodes = body.get("Nodes", body) if isinstance(body, dict) else {}
        if nodes.get("kind", "NodeList") == "NodeList":
            for node in nodes.get("items") or ():
                found[node["metadata"]["name"]] = node
    return [found[name] for name in sorted(found)]


@pytest.mark.parametrize(
    "node",
    [pytest.param(node, id=node["metadata"]["name"]) for node in captured_nodes()],
)
def test_a_recorded_node_has_the_gpus_that_its_labels_say(
    node: dict[str, Any],
) -> None:
    model, size, replicas = CAPTURED[node["metadata"]["name"]]
    count = int(node["status"]["capacity"].get(GPU, 0))

    gpus = gpus_of(node["metadata"].get("labels") or {}, count)

    assert (gpus.model, gpus.replicas) == (model, replicas)
    assert gpus.memory == (ANY_SIZE if size is None else gib(size))
