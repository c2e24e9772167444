"""What the labels of a node say of its GPUs."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from scoring.gpu.models import GIB, GpuModel, extended_table
from scoring.gpu.node_gpus import (
    ANY_SIZE,
    Bounds,
    GpuLabelReader,
    GpuLabelRules,
    NodeGpus,
)

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


AMD_COUNT: Final = "beta.amd.com/gpu.product-name.Instinct_MI300X"


@pytest.mark.parametrize(
    ("labels", "capacity", "model"),
    [
        pytest.param({AMD_COUNT: "8"}, {"amd.com/gpu": 8}, "MI300X", id="all of them"),
        pytest.param({AMD_COUNT: "4"}, {"amd.com/gpu": 8}, "", id="half of them"),
        pytest.param(
            {AMD_COUNT: "4", "amd.com/gpu.product-name": "Instinct_MI300X"},
            {"amd.com/gpu": 8},
            "",
            id="half of them, told without the count",
        ),
        pytest.param(
            {AMD_COUNT: "4", "accelerator": "mi300x"},
            {"amd.com/gpu": 8},
            "",
            id="half of them, told by hand",
        ),
        pytest.param(
            {
                "amd.com/gpu.product-name.Instinct_MI300X": "4",
                "amd.com/gpu.product-name.Instinct_MI210": "4",
                "accelerator": "mi300x",
            },
            {"amd.com/gpu": 8},
            "",
            id="two products",
        ),
        pytest.param(
            {AMD_COUNT: "4"}, {"amd.com/spx_nps1": 8}, "", id="by the name of the mode"
        ),
        pytest.param(
            {AMD_COUNT: "8"}, {"amd.com/gpu": 7}, "MI300X", id="one is held back"
        ),
        pytest.param(
            {AMD_COUNT: "4"}, {"nvidia.com/gpu": 8}, "MI300X", id="another vendor's"
        ),
        pytest.param({AMD_COUNT: "many"}, {"amd.com/gpu": 8}, "MI300X", id="no number"),
        pytest.param(
            {AMD_COUNT: "8", "amd.com/gpu.compute-memory-partition": "cpx_nps4"},
            {"amd.com/gpu": 64},
            "MI300X",
            id="partitions, of which the count knows some",
        ),
    ],
)
def test_amds_count_must_be_that_of_all_gpus(
    labels: dict[str, str], capacity: dict[str, int], model: str
) -> None:
    gpus = GpuLabelReader().read(labels, tuple(capacity.items()))

    assert gpus.model == model


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
        pytest.param(A100, "nvidia.com/gpu-memory", ANY_SIZE, id="amounts, no units"),
        pytest.param(A100, "nvidia.com/GA100_A100_PCIE_80GB", ANY_SIZE,
                     id="cards for virtual machines"),
        pytest.param(A100, "gpu.intel.com/i915", ANY_SIZE, id="another vendor's"),
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


# --- parts of cards --------------------------------------------------------

KARPENTER: Final = "karpenter.k8s.aws/instance-gpu-name"
AMD_PRODUCT: Final = "amd.com/gpu.product-name"
VRAM: Final = "amd.com/gpu.vram"
PARTITION: Final = "amd.com/gpu.compute-memory-partition"


def stated(mib: int) -> Bounds:
    return Bounds(mib * MIB, mib * MIB)


@pytest.mark.parametrize(
    ("labels", "model", "memory"),
    [
        pytest.param({KARPENTER: "l4", KARPENTER_MEMORY: "5722"}, "L4", stated(5722),
                     id="a quarter of an L4 on AWS"),
        pytest.param({"eks.amazonaws.com/instance-gpu-name": "a10g",
                      "eks.amazonaws.com/instance-gpu-memory": "11444"}, "A10G",
                     stated(11444), id="half an A10G"),
        pytest.param({PRODUCT: "NVIDIA-A100-SXM4-80GB", MEMORY: "40000"},
                     "A100-SXM4-80GB", stated(40000), id="by GPU feature discovery"),
        pytest.param({ACK: "Tesla-V100-SXM2-32GB",
                      "aliyun.accelerator/nvidia_mem": "16160MiB"}, "V100-SXM2-32GB",
                     stated(16160), id="on ACK"),
        pytest.param({"accelerator": "A40", MEMORY: "24Gi"}, "A40", stated(24 * 1024),
                     id="by hand, with a unit"),
        pytest.param({"accelerator": "A100", MEMORY: "20000"}, "A100", stated(20000),
                     id="less than any of the family"),
        pytest.param({"accelerator": "A100", MEMORY: "48000"}, "A100", stated(48000),
                     id="of the larger ones of the family"),
        pytest.param({AMD_PRODUCT: "AMD_Instinct_MI300X_OAM", VRAM: "24G",
                      PARTITION: "cpx_nps4"}, "MI300X", stated(24 * 1024),
                     id="a partition of AMD's, whose memory is stated"),
        pytest.param({AMD_PRODUCT: "AMD_Instinct_MI300X_OAM", VRAM: "96G",
                      PARTITION: "DPX_NPS2"}, "MI300X", stated(96 * 1024),
                     id="two to a card"),
        pytest.param({AMD_PRODUCT: "Instinct_MI300X", PARTITION: "CPX_NPS4"}, "MI300X",
                     Bounds(0, 192 * GIB), id="a partition of nobody knows what size"),
        pytest.param({PRODUCT: "NVIDIA-A10-4Q"}, "A10", gib(4), id="virtual"),
        pytest.param({PRODUCT: "NVIDIA-A16-4Q", MEMORY: "4096"}, "A16", gib(4),
                     id="virtual, as its name says"),
        pytest.param({PRODUCT: "GRID-A100-40C", MEMORY: "40960"}, "A100-PCIE-40GB",
                     gib(40), id="virtual, with all the memory"),
        pytest.param({PRODUCT: "GRID-A100D-1-10CME"}, "A100-PCIE-80GB", gib(10),
                     id="virtual, on a slice"),
        pytest.param({PRODUCT: "NVIDIA-RTX-Pro-6000-Blackwell-DC-1-24CGFX"},
                     "RTX-PRO-6000-Server", gib(24), id="virtual, with graphics"),
        pytest.param({PRODUCT: "NVIDIA-H100XM-80C", MEMORY: "33446"}, "H100-SXM5-80GB",
                     stated(33446), id="virtual, and less than its name says"),
        pytest.param({PRODUCT: "GRID-T4-2B4"}, "T4", gib(2), id="virtual, 4 screens"),
        pytest.param({PRODUCT: "GRID-M60-0Q"}, "M60", Bounds(512 * MIB, 512 * MIB),
                     id="virtual, half a GiB"),
        pytest.param({PRODUCT: "GRID-P6-4Q"}, "GRID-P6-4Q", gib(4),
                     id="virtual, on an unknown board"),
        pytest.param({PRODUCT: "GRID-P6-4Q", MEMORY: "3806"}, "GRID-P6-4Q",
                     gib(4), id="virtual, on an unknown board, less its reserve"),
        pytest.param({PRODUCT: "NVIDIA-RTX5000-Ada-32Q", MEMORY: "16384"},
                     "NVIDIA-RTX5000-Ada-32Q", stated(16384),
                     id="virtual, on an unknown board, and less than its name says"),
        pytest.param({PRODUCT: "NVIDIA-H100XL-94C"}, "NVIDIA-H100XL-94C", gib(94),
                     id="virtual, of a family"),
    ],
)  # fmt: skip
def test_a_part_of_a_card_is_no_card_and_has_the_stated_memory(
    labels: dict[str, str], model: str, memory: Bounds
) -> None:
    gpus = gpus_of(labels)

    assert (gpus.model, gpus.memory) == (model, memory)
    assert (gpus.is_whole, gpus.links) == (False, "")


@pytest.mark.parametrize(
    ("labels", "memory"),
    [
        pytest.param({KARPENTER: "l4", KARPENTER_MEMORY: "22888"}, gib(24), id="AWS"),
        pytest.param({PRODUCT: "Tesla-T4", MEMORY: "12288"}, gib(16), id="just enough"),
        pytest.param({PRODUCT: "NVIDIA-H100-80GB-HBM3", MEMORY: "80"}, gib(80),
                     id="in GiB without saying so"),
        pytest.param({PRODUCT: "NVIDIA-H100-80GB-HBM3", MEMORY: "79"}, gib(80),
                     id="a little less"),
        pytest.param({PRODUCT: "Tesla-T4", MEMORY: "17"}, gib(16), id="a little more"),
        pytest.param({"accelerator": "A100", MEMORY: "80"}, gib(80),
                     id="one of a family, in GiB"),
        pytest.param({PRODUCT: "NVIDIA-L4", MEMORY: "512Mi"}, gib(24), id="no GPU's"),
        pytest.param({GKE: "nvidia-l4", MEMORY: "17"}, gib(24),
                     id="neither MiB nor GiB"),
        pytest.param({PRODUCT: "NVIDIA-L4", MEMORY: "24564000"}, gib(24), id="in KiB"),
        pytest.param({PRODUCT: "NVIDIA-L4", MEMORY: "4", KARPENTER_MEMORY: "22888"},
                     gib(24), id="the next label is better"),
        pytest.param({AMD_PRODUCT: "AMD_Instinct_MI300X_OAM", VRAM: "192G",
                      PARTITION: "spx_nps1"}, gib(192), id="an AMD card in one part"),
    ],
)  # fmt: skip
def test_a_card_is_whole_where_about_its_nominal_memory_is_stated(
    labels: dict[str, str], memory: Bounds
) -> None:
    gpus = gpus_of(labels)

    assert (gpus.memory, gpus.is_whole) == (memory, True)


# Of each board the name of a virtual GPU as NVIDIA's tables have it, with the model
# and the GiB of frame buffer; a share of the model, even with all of its memory.
VIRTUAL: Final = {
    "GRID-P100-16C": ("P100-PCIE-16GB", 16),
    "GRID-P100C-12Q": ("P100-PCIE-12GB", 12),
    "GRID-P100X-4A": ("P100-SXM2-16GB", 4),
    "GRID-P40-1B4": ("P40", 1),
    "GRID-V100-4Q": ("V100-PCIE-16GB", 4),
    "GRID-V100D-8Q": ("V100-PCIE-32GB", 8),
    "GRID-V100DX-32C": ("V100-SXM2-32GB", 32),
    "GRID-RTX6000P-24C": ("Quadro-RTX-6000", 24),
    "NVIDIA-A100-40C": ("A100-PCIE-40GB", 40),
    "NVIDIA-A100X-1-5CME": ("A100-SXM4-40GB", 5),
    "A800-1-10C": ("A800-PCIE-40GB", 10),
    "NVIDIA-A800-40C": ("A800-PCIE-40GB", 40),
    "NVIDIA-A800D-80C": ("A800-PCIE-80GB", 80),
    "NVIDIA-A30-2-12C": ("A30", 12),
    "NVIDIA-L40S-48Q": ("L40S", 48),
    "NVIDIA-H100L-94C": ("H100-NVL", 94),
    "NVIDIA-H20-96C": ("H20", 96),
    "NVIDIA-H200X-1-18C": ("H200-SXM5", 18),
    "NVIDIA-GH200-96C": ("GH200-96GB", 96),
    "NVIDIA-GH200L-144C": ("GH200-144GB", 144),
}


@pytest.mark.parametrize(
    ("product", "model", "size"),
    [pytest.param(name, *meant, id=name) for name, meant in VIRTUAL.items()],
)
def test_a_virtual_gpu_is_a_part_of_one_model_with_the_memory_of_its_name(
    product: str, model: str, size: int
) -> None:
    gpus = gpus_of({PRODUCT: product, "nvidia.com/gpu.count": "1"})

    assert (gpus.model, gpus.memory, gpus.is_whole) == (model, gib(size), False)


@pytest.mark.parametrize(
    ("product", "family"),
    [
        ("GRID-V100L-16C", "v100-16gb"),
        ("NVIDIA-H100XL-47C", "h100"),
        ("NVIDIA-H100XS-64C", "h100"),
        ("NVIDIA-H800L-94C", "h800"),
    ],
)
def test_a_virtual_gpu_of_a_board_that_is_no_model_is_of_its_family(
    product: str, family: str
) -> None:
    gpus = gpus_of({PRODUCT: product})

    assert family in gpus.names
    assert not gpus.is_whole


MI300X: Final = {AMD_PRODUCT: "AMD_Instinct_MI300X_OAM"}
CPX: Final = {**MI300X, VRAM: "24G", PARTITION: "cpx_nps4"}


@pytest.mark.parametrize(
    ("labels", "resource", "memory"),
    [
        pytest.param(CPX, "amd.com/cpx_nps4", stated(24 * 1024), id="of this mode"),
        pytest.param(CPX, "amd.com/gpu", stated(24 * 1024), id="by the plain name"),
        pytest.param(CPX, "amd.com/dpx_nps2", Bounds(0, stated(24 * 1024).high),
                     id="of another mode"),
        pytest.param({**MI300X, VRAM: "96G", PARTITION: "DPX_NPS2"}, "amd.com/dpx_nps2",
                     stated(96 * 1024), id="in capitals"),
        pytest.param({**MI300X, PARTITION: "qpx_nps1"}, "amd.com/qpx_nps1",
                     Bounds(0, 192 * GIB), id="of unknown size"),
        pytest.param(MI300X, "amd.com/cpx_nps4", Bounds(0, 192 * GIB),
                     id="one of several modes"),
        pytest.param(MI300X, "amd.com/spx_nps1", gib(192), id="the whole card"),
        pytest.param({**MI300X, VRAM: "192G", PARTITION: "spx_nps1"},
                     "amd.com/spx_nps1", gib(192), id="the whole card, labelled"),
        pytest.param({PARTITION: "cpx_nps4", VRAM: "24G"}, "amd.com/cpx_nps4",
                     stated(24 * 1024), id="of an unknown model"),
    ],
)  # fmt: skip
def test_a_partition_has_its_own_memory(
    labels: dict[str, str], resource: str, memory: Bounds
) -> None:
    assert gpus_of(labels).memory_of(resource) == memory


def test_time_slices_divide_the_memory_of_a_part() -> None:
    gpus = gpus_of(
        {KARPENTER: "l4", KARPENTER_MEMORY: "5722", "nvidia.com/gpu.replicas": "4"}
    )

    assert gpus.memory_of(GPU) == stated(5722).shared_by(4)


def test_memory_is_not_compared_where_a_profile_names_the_unit() -> None:
    gpus = gpus_of({PRODUCT: "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", MEMORY: "9984"})

    assert (gpus.is_part, gpus.memory_of(GPU)) == (False, gib(10))


@pytest.mark.parametrize(
    ("labels", "size"),
    [
        pytest.param({AMD_PRODUCT: "AMD_Instinct_MI300A", VRAM: "24G"}, 128, id="AMD"),
        pytest.param({PRODUCT: "NVIDIA-GB10", MEMORY: "16384"}, 128, id="NVIDIA"),
        pytest.param({PRODUCT: "NVIDIA-GB10", MEMORY: "119"}, 128, id="in GiB"),
        pytest.param({PRODUCT: "NVIDIA-GB10", MEMORY: "0"}, 128, id="none"),
        pytest.param({PRODUCT: "Acme-1", MEMORY: "4096"}, 64, id="of the settings"),
    ],
)
def test_labels_say_nothing_of_memory_that_is_that_of_the_system(
    labels: dict[str, str], size: int
) -> None:
    acme = GpuModel("Acme-1", 64 * GIB, is_unified=True)
    reader = GpuLabelReader(GpuLabelRules(extended_table([acme], {})))

    gpus = reader.read(labels, ())

    assert (gpus.memory, gpus.is_whole) == (gib(size), True)


@pytest.mark.parametrize(
    ("labels", "is_unread"),
    [
        pytest.param({PRODUCT: "NVIDIA-L4", MEMORY: "4"}, True, id="too small"),
        pytest.param({PRODUCT: "NVIDIA-L4", MEMORY: "512Mi"}, True, id="with its unit"),
        pytest.param({PRODUCT: "Acme-1", MEMORY: "24"}, True, id="unknown model"),
        pytest.param({MEMORY: "24"}, True, id="no model"),
        pytest.param({PRODUCT: "NVIDIA-L4", MEMORY: "24"}, False, id="GiB"),
        pytest.param({PRODUCT: "NVIDIA-L4", MEMORY: "1024"}, False, id="a part"),
        pytest.param({PRODUCT: "NVIDIA-L4"}, False, id="none"),
        pytest.param({PRODUCT: "NVIDIA-L4-MIG-INVALID", MEMORY: "0"}, False,
                     id="an invalid layout has none"),
        pytest.param({PRODUCT: "NVIDIA-GB10", MEMORY: "0"}, False, id="none stated"),
        pytest.param({PRODUCT: "NVIDIA-GB10", MEMORY: "512"}, False,
                     id="that of the system"),
        pytest.param({AMD_PRODUCT: "AMD_Instinct_MI300A", VRAM: "0G"}, False,
                     id="none stated, with its unit"),
        pytest.param({AMD_PRODUCT: "AMD_Instinct_MI300A", VRAM: "512Mi"}, False,
                     id="that of the system, with its unit"),
        pytest.param({PRODUCT: "NVIDIA-Thor", MEMORY: "0"}, False,
                     id="none stated, unknown model"),
        pytest.param({MEMORY: "0"}, False, id="none stated, no model"),
        pytest.param({PRODUCT: "NVIDIA-L4", MEMORY: "0"}, False,
                     id="none stated, known model"),
        pytest.param({PRODUCT: "NVIDIA-L4", MEMORY: "0", KARPENTER_MEMORY: "4"}, True,
                     id="none stated, and too small"),
    ],
)  # fmt: skip
def test_a_memory_that_no_gpu_has_is_noted(
    labels: dict[str, str], is_unread: bool
) -> None:
    assert gpus_of(labels).is_memory_unread is is_unread


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
