import sys
from dataclasses import replace
from typing import Any, Final

import pytest

from cluster.decode.gpu_requirements import GpuRequirementsReader
from cluster.decode.records import RecordBuilder
from scoring.gpu.models import default_table
from scoring.gpu.requirements import (
    MAX_NAME,
    MAX_TYPES,
    NO_GPU_REQUIREMENTS,
    UNREADABLE,
    GpuRequirements,
    GpuRequirementsError,
    near_names,
)
from tests.builders import SCOPE, make_pod, make_pod_record
from tests.defaults import GPU_ANNOTATIONS

GIB: Final = 2**30
TYPE: Final = "gpu-extender.io/gpu-type"
MEMORY: Final = "gpu-extender.io/min-gpu-memory"
SHARING: Final = "gpu-extender.io/sharing"
EXCLUSIVE: Final = "gpu-extender.io/exclusive"
LINKED: Final = "gpu-extender.io/linked"
RULE_KEY: Final = "task.bkbcs.tencent.com/gpu-type"


def gpu_requirements_of(annotations: dict[str, str], **names: Any) -> GpuRequirements:
    return GpuRequirementsReader(replace(GPU_ANNOTATIONS, **names)).read(annotations)


# --- annotations -------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotations", "gpu_requirements"),
    [
        pytest.param({}, NO_GPU_REQUIREMENTS, id="nothing"),
        pytest.param({"team": "a"}, NO_GPU_REQUIREMENTS, id="nothing of ours"),
        pytest.param({TYPE: "H100"}, GpuRequirements(types=("H100",)), id="one type"),
        pytest.param(
            {TYPE: " H100 ,A100-80GB,\tA100 "},
            GpuRequirements(types=("H100", "A100-80GB", "A100")),
            id="types in their order",
        ),
        pytest.param(
            {TYPE: "!L4, ! T4"},
            GpuRequirements(excluded=("L4", "T4")),
            id="exclusions alone",
        ),
        pytest.param(
            {TYPE: "A100, !A100-40GB"},
            GpuRequirements(types=("A100",), excluded=("A100-40GB",)),
            id="a family without one of its models",
        ),
        pytest.param(
            {TYPE: "H100, NVIDIA-H100, h100"},
            GpuRequirements(types=("H100",)),
            id="repeated",
        ),
        pytest.param(
            {TYPE: "NVIDIA A100-SXM4-80GB"},
            GpuRequirements(types=("NVIDIA A100-SXM4-80GB",)),
            id="as the driver's tool prints it",
        ),
        pytest.param(
            {MEMORY: "40Gi"}, GpuRequirements(min_memory=40 * GIB), id="memory"
        ),
        pytest.param(
            {MEMORY: " 8e9 "}, GpuRequirements(min_memory=8 * 10**9), id="exponent"
        ),
        pytest.param(
            {MEMORY: "1Mi"}, GpuRequirements(min_memory=2**20), id="least memory"
        ),
        pytest.param(
            {SHARING: "allowed"}, GpuRequirements(is_sharing_allowed=True), id="share"
        ),
        pytest.param(
            {EXCLUSIVE: "true"}, GpuRequirements(is_exclusive=True), id="alone"
        ),
        pytest.param({EXCLUSIVE: "false"}, NO_GPU_REQUIREMENTS, id="not alone"),
        pytest.param(
            {LINKED: "required"}, GpuRequirements(linked="required"), id="linked"
        ),
        pytest.param(
            {LINKED: "preferred"}, GpuRequirements(linked="preferred"), id="rather"
        ),
        pytest.param(
            {RULE_KEY: "V100"}, GpuRequirements(preferred=("V100",)), id="a rule key"
        ),
        pytest.param(
            {RULE_KEY: "big-one"}, NO_GPU_REQUIREMENTS, id="a rule key of its own"
        ),
        pytest.param({RULE_KEY: ""}, NO_GPU_REQUIREMENTS, id="an empty rule key"),
        pytest.param(
            {RULE_KEY: "V100", TYPE: "A100"},
            GpuRequirements(types=("A100",)),
            id="list wins",
        ),
    ],
)
def test_annotations_say_what_a_pod_wants(
    annotations: dict[str, str], gpu_requirements: GpuRequirements
) -> None:
    assert gpu_requirements_of(annotations) == gpu_requirements


def test_a_rule_key_can_filter_or_be_left_alone() -> None:
    annotations = {RULE_KEY: "V100"}

    assert gpu_requirements_of(annotations, is_rule_key_filter=True) == GpuRequirements(
        types=("V100",)
    )
    assert gpu_requirements_of(annotations, rule_key="") == NO_GPU_REQUIREMENTS


def test_every_name_can_be_another() -> None:
    names = {"gpu_type": "t", "min_memory": "m", "sharing": "s", "exclusive": "e"}

    assert gpu_requirements_of(
        {"t": "L4", "m": "8Gi", "s": "allowed", "e": "true", "l": "required"},
        **names,
        linked="l",
    ) == GpuRequirements(("L4",), (), (), 8 * GIB, True, True, "required")  # noqa: FBT003 - in order


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param(TYPE, "", id="no type"),
        pytest.param(TYPE, "H100,,A100", id="a type left out"),
        pytest.param(TYPE, "H100,", id="a comma at the end"),
        pytest.param(TYPE, "!", id="nothing excluded"),
        pytest.param(TYPE, "!!L4", id="excluded twice"),
        pytest.param(TYPE, "A*", id="a pattern"),
        pytest.param(TYPE, "H100|A100", id="another separator"),
        pytest.param(TYPE, "\u041d100", id="a letter that looks like H"),
        pytest.param(TYPE, "H100\nA100", id="two lines"),
        pytest.param(TYPE, "A100, !a100", id="accepted and excluded"),
        pytest.param(TYPE, ",".join(["L4"] * (MAX_TYPES + 1)), id="too many"),
        pytest.param(MEMORY, "", id="no memory"),
        pytest.param(MEMORY, "40GB", id="no unit of Kubernetes"),
        pytest.param(MEMORY, "40", id="a number without a unit"),
        pytest.param(MEMORY, "0", id="none"),
        pytest.param(MEMORY, "-40Gi", id="less than none"),
        pytest.param(SHARING, "no", id="sharing"),
        pytest.param(EXCLUSIVE, "True", id="exclusive"),
        pytest.param(LINKED, "yes", id="linked"),
    ],
)
def test_a_value_that_means_nothing_is_named(name: str, value: str) -> None:
    with pytest.raises(GpuRequirementsError) as caught:
        gpu_requirements_of({name: value})

    (found,) = caught.value.faults
    fault_name, fault = found.path, found.message
    assert fault_name == name
    assert fault.startswith("wanted")
    assert ", got " in fault


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(
        GpuRequirementsError, match="sharing: wanted 'allowed', got 'no'"
    ):
        gpu_requirements_of({SHARING: "no", LINKED: "no"})
    with pytest.raises(GpuRequirementsError) as caught:
        gpu_requirements_of({SHARING: "no", LINKED: "no", MEMORY: "no"})
    assert len(caught.value.faults) == 3


# --- what is kept of a pod ---------------------------------------------------


def kept_of(
    annotations: dict[str, str] | None, gpus: int | None = 1
) -> GpuRequirements:
    return make_pod_record(
        make_pod(gpus=gpus, annotations=annotations)
    ).gpu_requirements


def test_a_record_holds_what_its_pod_wants() -> None:
    assert kept_of({TYPE: "L4"}) == GpuRequirements(types=("L4",))
    assert kept_of({TYPE: "L4"}) is kept_of({TYPE: "L4", "team": "b"})
    assert kept_of(None) is NO_GPU_REQUIREMENTS
    assert kept_of({"team": "a"}) is NO_GPU_REQUIREMENTS


def test_a_pod_without_gpu_wants_nothing_of_gpus_whatever_it_says() -> None:
    assert kept_of({TYPE: ""}, gpus=None) is NO_GPU_REQUIREMENTS


def test_a_pod_whose_annotations_cannot_be_read_is_kept_without_a_fault() -> None:
    assert kept_of({TYPE: "", EXCLUSIVE: "true"}) is UNREADABLE


def test_demands_that_were_read_are_kept_in_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cluster.decode.gpu_requirements._MAX_KNOWN", 2)
    reader = RecordBuilder(SCOPE, GPU_ANNOTATIONS).requirements_reader

    read = [reader.read({TYPE: name}).types for name in ("L4", "T4", "A10", "L4")]

    assert read == [("L4",), ("T4",), ("A10",), ("L4",)]


def test_a_demand_of_any_length_is_read_but_not_remembered() -> None:
    reader = GpuRequirementsReader(GPU_ANNOTATIONS)
    text = " " * 1_000_000 + "L4"
    before = sys.getrefcount(text)

    assert reader.read({TYPE: text}).types == ("L4",)
    assert sys.getrefcount(text) == before


@pytest.mark.parametrize(
    "length", [pytest.param(129, id="a bit"), pytest.param(10**6, id="very much")]
)
def test_no_model_has_a_name_longer_than_a_label(length: int) -> None:
    key = "L4" + "(" * (length - 2)

    with pytest.raises(GpuRequirementsError):
        GPU_ANNOTATIONS.parse({TYPE: "L" * length})
    assert (
        GpuRequirementsReader(GPU_ANNOTATIONS).read({RULE_KEY: key})
        == NO_GPU_REQUIREMENTS
    )


# --- names that may be meant --------------------------------------------------


def test_a_misspelled_name_is_known_again() -> None:
    assert "H100" in near_names(default_table(), "H-10O")


def test_nothing_is_looked_for_that_is_like_a_name_too_long_to_be_one() -> None:
    assert near_names(default_table(), "H100" + "-" * MAX_NAME) == ()
