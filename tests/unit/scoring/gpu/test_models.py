from collections.abc import Mapping
from typing import Final

import pytest

from scoring.gpu.models import (
    GIB,
    GpuModel,
    GpuTableError,
    NameLists,
    build_table,
    default_table,
    extended_table,
    normal_name,
)
from scoring.gpu.node_gpus import (
    DEFAULT_MEMORY_LABELS,
    DEFAULT_TYPE_LABELS,
    Bounds,
    GpuLabelReader,
    GpuLabelRules,
    NodeGpus,
)

PRODUCT: Final = "nvidia.com/gpu.product"
MEMORY: Final = "nvidia.com/gpu.memory"
GKE: Final = "cloud.google.com/gke-accelerator"
EKS: Final = "k8s.amazonaws.com/accelerator"
KARPENTER: Final = "karpenter.k8s.aws/instance-gpu-name"
AUTO_MODE: Final = "eks.amazonaws.com/instance-gpu-name"
KARPENTER_MEMORY: Final = "karpenter.k8s.aws/instance-gpu-memory"
TKE: Final = "cloud.tencent.com/tke-accelerator"
ACK: Final = "aliyun.accelerator/nvidia_name"
MIB: Final = 2**20


def gpus_of(labels: Mapping[str, str], gpus: int = 0) -> NodeGpus:
    """Return what the labels say of a node's GPUs."""
    capacity = (("nvidia.com/gpu", gpus),) if gpus else ()
    return GpuLabelReader().read(labels, capacity)


def holds(gpus: NodeGpus, name: str) -> bool:
    return normal_name(name) in gpus.names


def gib(size: int) -> Bounds:
    return Bounds(size * GIB, size * GIB)


# --- product names -----------------------------------------------------------

PRODUCTS: Final = {
    "Tesla-V100-SXM2-16GB": ("V100-SXM2-16GB", 16),
    "Tesla-V100-SXM2-32GB": ("V100-SXM2-32GB", 32),
    "Tesla-V100-PCIE-16GB": ("V100-PCIE-16GB", 16),
    "Tesla-V100-PCIE-32GB": ("V100-PCIE-32GB", 32),
    "Tesla-V100S-PCIE-32GB": ("V100S-PCIE-32GB", 32),
    "Tesla-T4": ("T4", 16),
    "NVIDIA-T4": ("T4", 16),
    "NVIDIA-A10": ("A10", 24),
    "NVIDIA-A10G": ("A10G", 24),
    "NVIDIA-A30": ("A30", 24),
    "NVIDIA-A100-SXM4-40GB": ("A100-SXM4-40GB", 40),
    "A100-SXM4-40GB": ("A100-SXM4-40GB", 40),
    "NVIDIA-A100-PCIE-40GB": ("A100-PCIE-40GB", 40),
    "A100-PCIE-40GB": ("A100-PCIE-40GB", 40),
    "NVIDIA-A100-SXM4-80GB": ("A100-SXM4-80GB", 80),
    "NVIDIA A100-SXM4-80GB": ("A100-SXM4-80GB", 80),
    "nvidia-a100-sxm4-80gb": ("A100-SXM4-80GB", 80),
    "NVIDIA-A100-80GB-PCIe": ("A100-PCIE-80GB", 80),
    "NVIDIA-A100-PCIE-80GB": ("A100-PCIE-80GB", 80),
    "NVIDIA-A100X": ("A100X", 80),
    "NVIDIA-L4": ("L4", 24),
    "NVIDIA-L40S": ("L40S", 48),
    "NVIDIA-H20": ("H20", 96),
    "NVIDIA-H100-80GB-HBM3": ("H100-SXM5-80GB", 80),
    "NVIDIA-H100-SXM5-80GB": ("H100-SXM5-80GB", 80),
    "NVIDIA-H100-PCIe": ("H100-PCIe", 80),
    "NVIDIA-H100-NVL": ("H100-NVL", 94),
    "NVIDIA-H200": ("H200-SXM5", 141),
    "NVIDIA-H200-141GB-HBM3e": ("H200-SXM5", 141),
    "NVIDIA-H200-SXM": ("H200-SXM5", 141),
    "NVIDIA-H200-NVL": ("H200-NVL", 141),
    "NVIDIA-B200": ("B200", 180),
    "NVIDIA-B300-SXM6-AC": ("B300", 269),
    "NVIDIA-GB200": ("GB200", 186),
    "NVIDIA GB200 NVL": ("GB200", 186),
    "NVIDIA-GB300": ("GB300", 278),
    "NVIDIA-GeForce-RTX-3090": ("RTX-3090", 24),
    "NVIDIA-GeForce-RTX-4090": ("RTX-4090", 24),
    "NVIDIA-GeForce-RTX-4090-D": ("RTX-4090-D", 24),
    "NVIDIA-RTX-5880-Ada-Generation": ("RTX-5880-Ada", 48),
    "NVIDIA-A800-40GB-Active": ("A800-PCIE-40GB", 40),
    "NVIDIA-RTX-PRO-5000-Blackwell": ("RTX-PRO-5000", 48),
    "NVIDIA-RTX-PRO-5000-72GB-Blackwell": ("RTX-PRO-5000-72GB", 72),
    "NVIDIA-GB10": ("GB10", 128),
    "NVIDIA-GeForce-RTX-4070-SUPER": ("RTX-4070-SUPER", 12),
    "NVIDIA-GeForce-RTX-5090": ("RTX-5090", 32),
    "NVIDIA-RTX-4000-Ada-Generation": ("RTX-4000-Ada", 20),
    "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition": ("RTX-PRO-6000-Server", 96),
    "NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition": (
        "RTX-PRO-6000-Max-Q",
        96,
    ),
}


@pytest.mark.parametrize(
    ("product", "model", "size"),
    [pytest.param(name, *known, id=name) for name, known in PRODUCTS.items()],
)
def test_a_product_name_is_that_of_one_model(
    product: str, model: str, size: int
) -> None:
    gpus = gpus_of({PRODUCT: product})

    assert (gpus.model, gpus.memory, gpus.is_whole) == (model, gib(size), True)
    assert holds(gpus, model)


@pytest.mark.parametrize(
    "product",
    ["NVIDIA-A16-4QX", "NVIDIA-T400", "GH200L", "Ascend-910B", "MI-300A", "Acme-4C"],
)
def test_a_product_that_the_table_lacks_keeps_its_own_name(product: str) -> None:
    gpus = gpus_of({PRODUCT: product, MEMORY: "4096"})

    assert gpus.model == product
    assert gpus.names == {normal_name(product)}
    assert gpus.memory == Bounds(4096 * MIB * 100 // 93, 4096 * MIB * 100 // 93)


CLOUD_NAMES: Final = [
    (GKE, "nvidia-tesla-k80", "K80"),
    (GKE, "nvidia-tesla-p100", "P100-PCIE-16GB"),
    (GKE, "nvidia-tesla-v100", "V100-SXM2-16GB"),
    (GKE, "nvidia-tesla-p4", "P4"),
    (GKE, "nvidia-tesla-t4", "T4"),
    (GKE, "nvidia-l4", "L4"),
    (GKE, "nvidia-tesla-a100", "A100-SXM4-40GB"),
    (GKE, "nvidia-a100-80gb", "A100-SXM4-80GB"),
    (GKE, "nvidia-h100-80gb", "H100-SXM5-80GB"),
    (GKE, "nvidia-h100-mega-80gb", "H100-SXM5-80GB"),
    (GKE, "nvidia-h200-141gb", "H200-SXM5"),
    (GKE, "nvidia-b200", "B200"),
    (GKE, "nvidia-gb200", "GB200"),
    (GKE, "nvidia-rtx-pro-6000", "RTX-PRO-6000-Server"),
    (EKS, "nvidia-tesla-k80", "K80"),
    (EKS, "nvidia-tesla-t4", "T4"),
    (EKS, "nvidia-a10g", "A10G"),
    (EKS, "nvidia-l4", "L4"),
    (EKS, "nvidia-l40s", "L40S"),
    *(
        (label, name, model)
        for label in (KARPENTER, AUTO_MODE)
        for name, model in (
            ("t4", "T4"),
            ("t4g", "T4G"),
            ("a10g", "A10G"),
            ("l4", "L4"),
            ("l40s", "L40S"),
            ("h100", "H100-SXM5-80GB"),
            ("h200", "H200-SXM5"),
            ("b200", "B200"),
            ("b300", "B300"),
            ("rtx-pro-4500", "RTX-PRO-4500"),
            ("rtx-pro-server-6000", "RTX-PRO-6000-Server"),
            ("radeon-pro-v520", "Radeon-Pro-V520"),
        )
    ),
    (TKE, "nvidia-tesla-t4", "T4"),
    (ACK, "Tesla-V100-SXM2-16GB", "V100-SXM2-16GB"),
    (ACK, "Tesla-P4", "P4"),
    ("accelerator", "nvidia-rtx-3090", "RTX-3090"),
    ("amd.com/gpu.product-name", "AMD_Instinct_MI300X_OAM", "MI300X"),
    ("beta.amd.com/gpu.product-name.Instinct_MI300X", "8", "MI300X"),
    ("amd.com/gpu.product-name", "AMD_Instinct_MI100", "MI100"),
    ("amd.com/gpu.product-name", "AMD_Instinct_MI300A", "MI300A"),
    ("amd.com/gpu.product-name", "AMD_Instinct_MI300X_VF", "MI300X"),
    ("amd.com/gpu.product-name", "AMD_Instinct_MI300X_HF", "MI300X"),
    ("amd.com/gpu.product-name", "AMD_Instinct_MI308X", "MI308X"),
    ("amd.com/gpu.product-name", "AMD_Instinct_MI325X_VF", "MI325X"),
    ("amd.com/gpu.product-name", "AMD_Instinct_MI350X", "MI350X"),
    ("beta.amd.com/gpu.product-name.AMD_Instinct_MI355X_VF", "8", "MI355X"),
]


@pytest.mark.parametrize(
    ("label", "value", "model"),
    [pytest.param(*row, id=f"{row[0]}={row[1]}") for row in CLOUD_NAMES],
)
def test_a_name_of_a_cloud_is_that_of_one_model(
    label: str, value: str, model: str
) -> None:
    assert gpus_of({label: value}).model == model


@pytest.mark.parametrize(
    ("label", "value", "family", "sizes"),
    [
        pytest.param(EKS, "nvidia-tesla-v100", "V100-SXM2", (16, 32), id="V100 of AWS"),
        pytest.param(EKS, "nvidia-tesla-a100", "A100-SXM4", (40, 80), id="A100 of AWS"),
        pytest.param(KARPENTER, "a100", "A100-SXM4", (40, 80), id="A100 of Karpenter"),
        pytest.param(TKE, "nvidia-tesla-a100", "A100", (40, 80), id="A100 of TKE"),
        pytest.param("baidu/nvidia_name", "nTeslaV100", "V100", (16, 32), id="Baidu"),
        pytest.param(PRODUCT, "NVIDIA-H100", "H100", (80, 94), id="written by hand"),
        pytest.param("accelerator", "h200", "H200", (141, 141), id="H200 by hand"),
    ],
)
def test_a_name_that_several_models_have_says_no_more_than_their_family(
    label: str, value: str, family: str, sizes: tuple[int, int]
) -> None:
    gpus = gpus_of({label: value})

    assert holds(gpus, family)
    assert gpus.memory == Bounds(sizes[0] * GIB, sizes[1] * GIB)
    assert gpus.possible_names
    assert (gpus.model, gpus.links) == (value, "")


@pytest.mark.parametrize(
    ("labels", "model"),
    [
        pytest.param(
            {KARPENTER: "a100", KARPENTER_MEMORY: "40960"}, "A100-SXM4-40GB", id="p4d"
        ),
        pytest.param(
            {KARPENTER: "a100", KARPENTER_MEMORY: "81920"}, "A100-SXM4-80GB", id="p4de"
        ),
        pytest.param(
            {"accelerator": "nvidia-tesla-v100", MEMORY: "32510"}, "", id="three boards"
        ),
        pytest.param({EKS: "nvidia-tesla-v100", MEMORY: "32510"}, "V100-SXM2-32GB",
                     id="an older driver"),
    ],
)  # fmt: skip
def test_memory_tells_the_models_of_a_name_apart(
    labels: dict[str, str], model: str
) -> None:
    gpus = gpus_of(labels)

    assert not model or gpus.model == model
    assert gpus.memory.low == gpus.memory.high


def test_memory_that_fits_no_model_of_a_name_is_taken_for_itself() -> None:
    gpus = gpus_of({"accelerator": "a100", MEMORY: "65536"})

    assert holds(gpus, "A100")
    assert gpus.memory == Bounds(65536 * MIB * 100 // 93, 65536 * MIB * 100 // 93)


@pytest.mark.parametrize(
    ("wanted", "labelled"),
    [
        pytest.param("A10", {"NVIDIA-A10"}, id="A10"),
        pytest.param(
            "A100",
            {"NVIDIA-A100-SXM4-80GB", "A100-PCIE-40GB", "GRID-A100-40C"},
            id="A100, not A100X",
        ),
        pytest.param("H20", {"NVIDIA-H20"}, id="H20"),
        pytest.param("L4", {"NVIDIA-L4"}, id="L4"),
        pytest.param("T4", {"Tesla-T4"}, id="T4"),
        pytest.param("V100", {"Tesla-V100S-PCIE-32GB"}, id="V100 takes V100S"),
    ],
)
def test_names_match_whole(wanted: str, labelled: set[str]) -> None:
    products = (
        "NVIDIA-A10", "NVIDIA-A10G", "NVIDIA-A100-SXM4-80GB", "A100-PCIE-40GB",
        "NVIDIA-A100X", "NVIDIA-H20", "NVIDIA-H200", "NVIDIA-L4", "NVIDIA-L40S",
        "Tesla-T4", "NVIDIA-T400", "Tesla-V100S-PCIE-32GB", "GRID-A100-40C",
    )  # fmt: skip

    assert {p for p in products if holds(gpus_of({PRODUCT: p}), wanted)} == labelled


# --- which label counts ------------------------------------------------------


A100: Final = {PRODUCT: "NVIDIA-A100-SXM4-80GB"}


# --- the table ---------------------------------------------------------------


def test_the_table_of_the_package_has_no_name_twice() -> None:
    table = default_table()

    assert len(table.models) == 80
    assert all(model.memory for model in table.models.values())


def test_a_gpu_that_can_be_cut_has_profiles_that_fit_it() -> None:
    for model in default_table().models.values():
        slices = max((p.memory_slices for p in model.mig), default=0)
        for profile in model.mig:
            assert profile.starts[-1] + profile.memory_slices <= slices
            assert profile.at_most <= len(profile.starts)
    a100 = {p.name: p for p in default_table().models["A100-SXM4-40GB"].mig}
    assert (a100["3g.20gb"].compute_slices, a100["3g.20gb"].memory_slices) == (3, 4)
    assert a100["1g.5gb+me"].at_most == 1


def test_settings_add_models_and_names() -> None:
    table = extended_table(
        [GpuModel("Acme-1", 48 * GIB, families=("Acme",), names=("acme-one",))],
        {"A100": ["big-green"], "Acme": ["acme-any"], "T4": ["small-green"]},
    )
    reader = GpuLabelReader(GpuLabelRules(table, type_labels=("zone/gpu",)))

    assert reader.read({"zone/gpu": "ACME_one"}, ()).model == "Acme-1"
    assert holds(reader.read({"zone/gpu": "acme-one"}, ()), "acme-any")
    assert holds(reader.read({"zone/gpu": "big-green"}, ()), "A100")
    assert reader.read({"zone/gpu": "small-green"}, ()).model == "T4"
    assert reader.read({PRODUCT: "Tesla-T4"}, ()).model == ""


def test_every_name_that_means_two_things_is_told() -> None:
    with pytest.raises(GpuTableError) as caught:
        extended_table(
            [
                GpuModel("Acme-1", GIB, names=("acme", "NVIDIA_l4")),
                GpuModel("Acme-2", GIB, families=("T4",), names=("ACME", "!")),
                GpuModel("A30", GIB),
            ],
            {"A100": ["l40s"], "A1000": ["x"], "H100": ["nvidia"]},
        )

    assert set(map(str, caught.value.faults)) == {
        "model 'A30' is defined twice",
        "name 'T4' is that of a model and of a family",
        "name 'NVIDIA_l4' is shared by L4 and Acme-1",
        "name 'ACME' is shared by Acme-1 and Acme-2",
        "name '!' of Acme-2 has no letter or digit",
        "name 'l40s' is shared by L40S and A100",
        "name 'x' is for 'A1000', which is no model and no family",
        "name 'nvidia' of H100 stands for no model",
    }


def test_a_name_under_one_label_must_mean_something_and_one_thing_only() -> None:
    names = {"one": "A", "ONE": "B", "two": "C"}
    with pytest.raises(GpuTableError) as caught:
        build_table(
            [GpuModel("A", GIB), GpuModel("B", GIB)],
            NameLists(label_names={"label": names}),
        )

    assert tuple(map(str, caught.value.faults)) == (
        "name 'ONE' is shared by A and B",
        "name 'two' is for 'C', which is no model and no family",
    )


# --- the reader --------------------------------------------------------------


def test_other_rules_can_be_put_to_use() -> None:
    reader = GpuLabelReader()
    labels = {PRODUCT: "Acme-1"}
    before = reader.read(labels, ())
    assert reader.read(labels, ()) is before
    assert not reader.knows("acme-1")

    reader.use(GpuLabelRules(extended_table([GpuModel("Acme-1", GIB)], {})))

    assert reader.knows("acme-1")
    assert reader.read(labels, ()).memory == gib(1)


def test_what_was_read_is_kept_in_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scoring.gpu.node_gpus._MAX_KNOWN", 2)
    reader = GpuLabelReader()

    models = [reader.read({PRODUCT: f"Acme-{i}"}, ()).model for i in range(5)]

    assert models == [f"Acme-{i}" for i in range(5)]


def test_default_labels_are_those_of_the_documented_clouds() -> None:
    assert {GKE, EKS, KARPENTER, TKE, ACK} < set(DEFAULT_TYPE_LABELS)
    assert DEFAULT_TYPE_LABELS[:2] == (PRODUCT, "accelerator")
    assert DEFAULT_MEMORY_LABELS[0] == MEMORY
