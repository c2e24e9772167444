"""What one label leaves open of the GPUs of a node."""

import pytest

from scoring.gpu.models import GIB, default_table
from scoring.gpu.node_gpus import ANY_SIZE, GpuLabelRules
from scoring.gpu.node_labels import gpus_by_label

RULES = GpuLabelRules(default_table())


def sizes_of(label: str, stated: str) -> set[tuple[int, int]]:
    """Return between which sizes, in GiB, the memory of each reading is."""
    return {
        (gpus.memory.low // GIB, gpus.memory.high // GIB)
        for gpus in gpus_by_label(RULES, label, stated)
    }


@pytest.mark.parametrize(
    ("label", "stated", "sizes"),
    [
        pytest.param("accelerator", "A30", {(24, 24)}, id="one model"),
        pytest.param(
            "accelerator", "A100", {(40, 40), (80, 80), (40, 80)}, id="two sizes"
        ),
        pytest.param(
            "cloud.google.com/gke-accelerator",
            "nvidia-tesla-a100",
            {(40, 40)},
            id="one model under the label of a cloud",
        ),
        pytest.param(
            "accelerator", "A100-MIG-1g.10gb", {(40, 80)}, id="slices hide the size"
        ),
    ],
)
def test_a_name_is_read_as_each_that_memory_can_tell_apart(
    label: str, stated: str, sizes: set[tuple[int, int]]
) -> None:
    assert sizes_of(label, stated) == sizes


def test_sizes_that_one_label_can_mean_stay_together() -> None:
    table = default_table()
    rules = GpuLabelRules(table)
    alike = {name for name, model in table.models.items() if model.memory == 80 * GIB}

    parts = [gpus.names for gpus in gpus_by_label(rules, "accelerator", "H100-80GB")]

    assert {"H100-SXM5-80GB", "H100-PCIe"} <= alike
    assert all("h100-80gb" in names for names in parts)
    assert not any("h100-pcie" in names for names in parts)


def test_a_mark_is_all_that_is_known_of_a_value_without_a_name() -> None:
    (gpus,) = gpus_by_label(RULES, "accelerator", "-SHARED")

    assert (gpus.model, gpus.is_shared, gpus.memory) == ("", True, ANY_SIZE)


def test_what_no_table_has_goes_by_its_own_name_and_may_have_any_size() -> None:
    (gpus,) = gpus_by_label(RULES, "accelerator", "my-card")

    assert gpus.names == {"my-card"}
    assert gpus.memory == ANY_SIZE
