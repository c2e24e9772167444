from typing import Final

from hypothesis import assume, given
from hypothesis import strategies as st

from cluster.decode.gpu_requirements import GpuRequirementsReader
from scoring.gpu.models import default_table, normal_name
from scoring.gpu.node_gpus import (
    DEFAULT_MEMORY_LABELS,
    DEFAULT_TYPE_LABELS,
    Bounds,
    GpuLabelReader,
)
from scoring.gpu.requirements import (
    GpuRequirements,
    GpuRequirementsError,
)
from scoring.gpu.suitability import Suitability, suitability
from tests.defaults import GPU_ANNOTATIONS

NAMES: Final = GPU_ANNOTATIONS
READER: Final = GpuLabelReader()
TABLE: Final = default_table().models
MODELS: Final = sorted(TABLE)
WIDER: Final = sorted(
    {name for m in default_table().models.values() for name in (m.name, *m.families)}
)
values = st.one_of(
    st.text(),
    st.text(alphabet="HAL10!, -GB"),
    st.lists(st.sampled_from([*WIDER, "!L4", ""])).map(",".join),
    st.sampled_from(["40Gi", "1e9", "true", "allowed", "required", "0", "-1"]),
)
annotations = st.dictionaries(st.sampled_from(NAMES.names), values)
labels = st.dictionaries(
    st.one_of(
        st.sampled_from(
            [
                *DEFAULT_TYPE_LABELS,
                *DEFAULT_MEMORY_LABELS,
                "nvidia.com/gpu.replicas",
                "nvidia.com/gpu.count",
                "nvidia.com/mig-1g.10gb.replicas",
            ]
        ),
        st.text(),
    ),
    st.one_of(
        st.text(),
        st.sampled_from(WIDER),
        st.integers(-2, 200_000).map(str),
        st.sampled_from(["Tesla-T4-SHARED", "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"]),
    ),
)


@given(annotations)
def test_annotations_are_read_or_named(annotations: dict[str, str]) -> None:
    try:
        gpu_requirements = GpuRequirementsReader(NAMES).read(annotations)
    except GpuRequirementsError as error:
        names = [fault.path for fault in error.faults]
        assert names
        assert set(names) <= annotations.keys()
    else:
        assert gpu_requirements.is_readable
        assert all(
            normal_name(name)
            for name in gpu_requirements.types + gpu_requirements.excluded
        )
        assert hash(gpu_requirements) == hash(
            GpuRequirementsReader(NAMES).read(annotations)
        )


@given(labels, st.integers(0, 16))
def test_whatever_the_labels_the_gpus_are_told_without_contradiction(
    labels: dict[str, str], count: int
) -> None:
    gpus = GpuLabelReader().read(labels, (("nvidia.com/gpu", count),) if count else ())

    assert not gpus.names & gpus.possible_names
    assert 0 <= gpus.memory.low <= gpus.memory.high
    assert gpus.replicas >= 0
    assert gpus.is_whole == (
        gpus.replicas == 1 and not gpus.profile and not gpus.is_part
    )


@given(
    st.sampled_from([name for name, model in TABLE.items() if not model.is_unified]),
    st.sampled_from(DEFAULT_MEMORY_LABELS),
    st.integers(1, 130),
    st.booleans(),
)
def test_less_than_three_quarters_of_a_card_is_a_part_whoever_labels_it(
    model: str, label: str, percent: int, is_sharing_allowed: bool
) -> None:
    nominal = TABLE[model].memory
    mib = nominal // 2**20 * percent // 100
    assume(mib >= 1024)  # less is no memory of a GPU

    gpus = READER.read({"accelerator": model, label: str(mib)}, ())

    is_part = mib * 2**20 * 100 < nominal * 75
    size = mib * 2**20 if is_part else nominal
    assert (gpus.is_part, gpus.memory) == (is_part, Bounds(size, size))
    wish = GpuRequirements(types=(model,), is_sharing_allowed=is_sharing_allowed)
    assert suitability(gpus, wish, (("nvidia.com/gpu", 1),)) is (
        Suitability.WRONG_TYPE
        if is_part and not is_sharing_allowed
        else Suitability.SUITS
    )


@given(st.sampled_from(MODELS), st.sampled_from(WIDER))
def test_a_type_matches_exactly_the_models_that_it_takes_in(
    model: str, wanted: str
) -> None:
    known = default_table().models[model]
    gpus = READER.read({"zone/any": model, "accelerator": model}, ())
    named = default_table().find(model)
    expected = (
        Suitability.SUITS
        if named <= default_table().find(wanted)
        else Suitability.TYPE_UNKNOWN
        if named & default_table().find(wanted)
        else Suitability.WRONG_TYPE
    )

    assert known.name in named
    assert suitability(
        gpus, GpuRequirements(types=(wanted,)), (("nvidia.com/gpu", 1),)
    ) is (expected)
