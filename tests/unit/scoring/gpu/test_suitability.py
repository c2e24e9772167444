"""Which GPUs suit a pod that wants something of them."""

from typing import Final

import pytest

from scoring.gpu.node_gpus import NO_GPUS, GpuLabelReader, NodeGpus
from scoring.gpu.requirements import UNREADABLE, GpuRequirements
from scoring.gpu.suitability import Suitability, choice_of, suitability
from scoring.resources import Request
from tests.builders import GPU

GIB: Final = 2**30


PRODUCT: Final = "nvidia.com/gpu.product"


# --- suitability -------------------------------------------------------------

A100_80: Final = {PRODUCT: "NVIDIA-A100-SXM4-80GB"}


A100_SOME: Final = {"accelerator": "nvidia-tesla-a100"}


T4_SHARED: Final = {PRODUCT: "Tesla-T4-SHARED", "nvidia.com/gpu.replicas": "4"}


T4_RENAMED: Final = {PRODUCT: "Tesla-T4", "nvidia.com/gpu.replicas": "4"}


SLICES: Final = {PRODUCT: "NVIDIA-A100-SXM4-80GB-MIG-3g.40gb"}


UNKNOWN: Final = {PRODUCT: "Acme-1", "nvidia.com/gpu.memory": "38100"}


UNSIZED: Final = {PRODUCT: "Acme-1"}


ONE: Final = ((GPU, 1),)


SUITS, WRONG, OPEN, LITTLE = Suitability


def gpus_of(labels: dict[str, str]) -> NodeGpus:
    return GpuLabelReader().read(labels, ())


@pytest.mark.parametrize(
    ("labels", "gpu_requirements", "found"),
    [
        pytest.param(A100_80, GpuRequirements(types=("A100",)), SUITS, id="family"),
        pytest.param(
            A100_80, GpuRequirements(types=("H100", "A100-80GB")), SUITS, id="second"
        ),
        pytest.param(
            A100_80, GpuRequirements(types=("A100-40GB",)), WRONG, id="smaller"
        ),
        pytest.param(
            A100_80, GpuRequirements(types=("A100X", "A10")), WRONG, id="like names"
        ),
        pytest.param(
            A100_80, GpuRequirements(types=("A10", "acme")), WRONG, id="unheard of"
        ),
        pytest.param(
            A100_80, GpuRequirements(excluded=("A100",)), WRONG, id="excluded family"
        ),
        pytest.param(
            A100_80,
            GpuRequirements(types=("A100",), excluded=("A100-40GB",)),
            SUITS,
            id="another one is excluded",
        ),
        pytest.param(
            A100_SOME, GpuRequirements(types=("A100",)), SUITS, id="family of family"
        ),
        pytest.param(
            A100_SOME, GpuRequirements(types=("A100-80GB",)), OPEN, id="maybe"
        ),
        pytest.param(
            A100_SOME, GpuRequirements(types=("T4",)), WRONG, id="certainly not"
        ),
        pytest.param(
            A100_SOME, GpuRequirements(excluded=("A100-40GB",)), OPEN, id="maybe not"
        ),
        pytest.param(
            A100_SOME,
            GpuRequirements(types=("A100",), excluded=("A100-40GB",)),
            OPEN,
            id="maybe the excluded one",
        ),
        pytest.param({}, GpuRequirements(types=("A100",)), OPEN, id="no label"),
        pytest.param(
            {}, GpuRequirements(excluded=("A100",)), OPEN, id="no label to exclude"
        ),
        pytest.param(UNSIZED, GpuRequirements(types=("ACME 1",)), SUITS, id="own name"),
        pytest.param(
            UNSIZED, GpuRequirements(excluded=("L4",)), SUITS, id="not the excluded"
        ),
        pytest.param(
            UNSIZED, GpuRequirements(types=("L4",)), WRONG, id="own name is another"
        ),
        pytest.param(A100_80, UNREADABLE, WRONG, id="nobody knows what is wanted"),
    ],
)
def test_types_are_accepted_excluded_or_unknown(
    labels: dict[str, str], gpu_requirements: GpuRequirements, found: Suitability
) -> None:
    assert suitability(gpus_of(labels), gpu_requirements, ONE) is found


@pytest.mark.parametrize(
    ("gpu_requirements", "of_part", "of_whole"),
    [
        pytest.param(GpuRequirements(types=("L4",)), WRONG, SUITS, id="type"),
        pytest.param(
            GpuRequirements(types=("L4",), min_memory=20 * GIB), WRONG, SUITS, id="both"
        ),
        pytest.param(GpuRequirements(min_memory=20 * GIB), WRONG, SUITS, id="memory"),
        pytest.param(GpuRequirements(excluded=("T4",)), WRONG, SUITS, id="exclusion"),
        pytest.param(GpuRequirements(linked="required"), WRONG, SUITS, id="links"),
        pytest.param(
            GpuRequirements(types=("L4",), is_sharing_allowed=True),
            SUITS,
            SUITS,
            id="sharing allowed",
        ),
        pytest.param(
            GpuRequirements(min_memory=20 * GIB, is_sharing_allowed=True),
            LITTLE,
            SUITS,
            id="sharing allowed, but too little",
        ),
        pytest.param(GpuRequirements(), SUITS, SUITS, id="nothing wanted"),
    ],
)
def test_a_part_of_a_card_stands_for_no_card(
    gpu_requirements: GpuRequirements, of_part: Suitability, of_whole: Suitability
) -> None:
    name, memory = (
        f"karpenter.k8s.aws/instance-gpu-{what}" for what in ("name", "memory")
    )
    part = gpus_of({name: "l4", memory: "5722"})
    whole = gpus_of({name: "l4", memory: "22888"})

    assert suitability(part, gpu_requirements, ONE) is of_part
    assert suitability(whole, gpu_requirements, ONE) is of_whole


CPX: Final = {
    "amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM",
    "amd.com/gpu.vram": "24G",
    "amd.com/gpu.compute-memory-partition": "cpx_nps4",
}


LARGE: Final = GpuRequirements(min_memory=100 * GIB)


SMALL: Final = GpuRequirements(min_memory=20 * GIB)


LINKED: Final = GpuRequirements(linked="required")


@pytest.mark.parametrize(
    ("resource", "gpu_requirements", "found"),
    [
        pytest.param("amd.com/cpx_nps4", LARGE, LITTLE, id="too large a partition"),
        pytest.param("amd.com/cpx_nps4", SMALL, SUITS, id="a small one"),
        pytest.param("amd.com/cpx_nps4", LINKED, WRONG, id="linked partitions"),
        pytest.param(
            "amd.com/cpx_nps4",
            GpuRequirements(types=("MI300X",)),
            SUITS,
            id="partitions of a type",
        ),
        pytest.param("amd.com/gpu", SMALL, WRONG, id="partitions by the plain name"),
        pytest.param("nvidia.com/mig-1g.10gb", LINKED, WRONG, id="linked slices"),
        pytest.param("nvidia.com/gpu.shared", LINKED, WRONG, id="linked shares"),
        pytest.param(
            "nvidia.com/mig-1g.10gb",
            GpuRequirements(linked="required", is_sharing_allowed=True),
            SUITS,
            id="linked slices, sharing allowed",
        ),
        pytest.param(
            "nvidia.com/AD102_GEFORCE_RTX_4090", SMALL, OPEN, id="unit not known"
        ),
        pytest.param("nvidia.com/gpu-memory", SMALL, OPEN, id="amounts, no units"),
    ],
)
def test_a_demand_is_compared_with_the_unit_that_is_asked(
    resource: str, gpu_requirements: GpuRequirements, found: Suitability
) -> None:
    assert suitability(gpus_of(CPX), gpu_requirements, ((resource, 1),)) is found


def test_what_is_asked_beside_gpus_has_no_memory() -> None:
    request = ((GPU, 1), ("nvidia.com/gpucores", 30), ("nvidia.com/gpumem", 3000))

    assert suitability(gpus_of(A100_80), SMALL, request) is SUITS
    assert suitability(gpus_of(A100_80), LARGE, request) is LITTLE


@pytest.mark.parametrize(
    ("labels", "memory", "found"),
    [
        pytest.param(A100_80, 80 * GIB, SUITS, id="as much as its name says"),
        pytest.param(A100_80, 80 * GIB + 1, LITTLE, id="a byte more"),
        pytest.param(
            {PRODUCT: "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"},
            80 * GIB,
            SUITS,
            id="the label says less",
        ),
        pytest.param({PRODUCT: "Tesla-T4"}, 16 * GIB, SUITS, id="T4"),
        pytest.param(A100_SOME, 40 * GIB, SUITS, id="as each of them has"),
        pytest.param(A100_SOME, 41 * GIB, OPEN, id="as one of them has"),
        pytest.param(A100_SOME, 81 * GIB, LITTLE, id="as none of them has"),
        pytest.param(UNKNOWN, 40 * GIB, SUITS, id="unknown, 93 % of it"),
        pytest.param(UNKNOWN, 41 * GIB, LITTLE, id="unknown, less than 93 %"),
        pytest.param(UNSIZED, GIB, OPEN, id="unknown, without a label"),
        pytest.param({}, GIB, OPEN, id="no label at all"),
        pytest.param({"nvidia.com/gpu.memory": "40960"}, GIB, SUITS, id="memory alone"),
    ],
)
def test_memory_is_that_of_the_model_or_of_the_label(
    labels: dict[str, str], memory: int, found: Suitability
) -> None:
    assert (
        suitability(gpus_of(labels), GpuRequirements(min_memory=memory), ONE) is found
    )


@pytest.mark.parametrize(
    "gpu_requirements",
    [
        pytest.param(GpuRequirements(types=("T4", "A100")), id="a type"),
        pytest.param(GpuRequirements(excluded=("L4",)), id="an exclusion"),
        pytest.param(GpuRequirements(min_memory=2**20), id="memory"),
        pytest.param(GpuRequirements(is_exclusive=True), id="no other pod"),
        pytest.param(GpuRequirements(linked="required"), id="links"),
    ],
)
@pytest.mark.parametrize("labels", [T4_SHARED, T4_RENAMED, SLICES])
def test_a_demand_on_gpus_is_met_by_whole_gpus_unless_sharing_is_allowed(
    gpu_requirements: GpuRequirements, labels: dict[str, str]
) -> None:
    gpus = gpus_of(labels)
    shared = GpuRequirements(
        gpu_requirements.types,
        gpu_requirements.excluded,
        (),
        gpu_requirements.min_memory,
        True,  # noqa: FBT003 - in order
    )

    assert suitability(gpus, gpu_requirements, ONE) is WRONG
    assert suitability(gpus, shared, ONE) is SUITS


@pytest.mark.parametrize(
    ("labels", "request_", "gib", "found"),
    [
        pytest.param(T4_SHARED, ONE, 4, SUITS, id="a quarter of a T4"),
        pytest.param(T4_SHARED, ONE, 5, LITTLE, id="more than a quarter"),
        pytest.param(SLICES, ONE, 40, SUITS, id="a slice"),
        pytest.param(SLICES, ONE, 41, LITTLE, id="more than a slice"),
        pytest.param(A100_80, (("nvidia.com/mig-1g.10gb", 2),), 10, SUITS, id="MIG"),
        pytest.param(A100_80, (("nvidia.com/mig-1g.10gb", 2),), 11, LITTLE, id="more"),
        pytest.param(
            A100_80, (("nvidia.com/gpu.shared", 1),), 8, OPEN, id="a share of unknown"
        ),
        pytest.param(
            A100_80,
            ((GPU, 1), ("nvidia.com/mig-1g.10gb", 1)),
            40,
            LITTLE,
            id="the smallest of two",
        ),
    ],
)
def test_the_memory_asked_is_that_of_one_unit(
    labels: dict[str, str], request_: Request, gib: int, found: Suitability
) -> None:
    gpu_requirements = GpuRequirements(min_memory=gib * GIB, is_sharing_allowed=True)

    assert suitability(gpus_of(labels), gpu_requirements, request_) is found


def test_slices_that_are_asked_by_name_need_no_whole_gpu() -> None:
    gpu_requirements = GpuRequirements(types=("A100",))

    assert suitability(
        gpus_of(SLICES), gpu_requirements, (("nvidia.com/mig-1g.10gb", 1),)
    ) is (SUITS)


def test_the_first_name_that_holds_is_the_choice() -> None:
    names = ("H100", "A100-80GB", "A100")

    assert choice_of(gpus_of(A100_80), names) == 1
    assert choice_of(gpus_of(A100_SOME), names) == 2
    assert choice_of(NO_GPUS, names) == 3
