"""Requirements on labels from GPU requirements."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import pytest

from injector.fallback.simulation import MinimumGpu
from scoring.gpu.affinity import (
    MAX_VALUES,
    LabelRule,
    LabelTerm,
    RequestedGpus,
    refusing_terms,
    required_terms,
)
from scoring.gpu.models import (
    GIB,
    GpuModel,
    NameLists,
    build_table,
    default_table,
    extended_table,
)
from scoring.gpu.node_gpus import GpuLabelRules
from scoring.gpu.node_labels import GpuLabels
from scoring.gpu.requirements import GpuRequirements
from tests.builders import BUILDER, make_node, make_node_record

PRODUCT: Final = "nvidia.com/gpu.product"
MEMORY: Final = "nvidia.com/gpu.memory"
GKE: Final = "cloud.google.com/gke-accelerator"
AMD: Final = "beta.amd.com/gpu.product-name."
GPU: Final = (("nvidia.com/gpu", 1),)
SLICE: Final = (("nvidia.com/mig-3g.40gb", 1),)
RULES: Final = GpuLabelRules(default_table(), (PRODUCT,), (MEMORY,))
TWO_LABELS: Final = GpuLabelRules(default_table(), (PRODUCT, "accelerator"), (MEMORY,))
ALL_LABELS: Final = GpuLabelRules(default_table())


def alternatives_of(
    gpu_requirements: GpuRequirements,
    *nodes: Mapping[str, str],
    rules: GpuLabelRules = RULES,
    request: tuple[tuple[str, int], ...] = GPU,
) -> tuple[LabelTerm, ...]:
    labels = GpuLabels(rules)
    records = [make_node_record(make_node(gpus=8, labels=own)) for own in nodes]
    kinds = [labels.kind_of(record) for record in records]
    return required_terms(rules, RequestedGpus(gpu_requirements, request), kinds)


def values_of(alternatives: Sequence[LabelTerm], key: str = PRODUCT) -> set[str]:
    """Return the values of the one requirement on a label."""
    (rule,) = [rule for item in alternatives for rule in item if rule.key == key]
    assert list(rule.values) == sorted(set(rule.values))
    return set(rule.values)


def test_a_type_becomes_every_name_of_its_models() -> None:
    assert alternatives_of(GpuRequirements(types=("A30",))) == (
        (LabelRule(PRODUCT, "In", ("A30", "NVIDIA-A30")),),
    )


def test_each_label_has_names_as_its_writer_writes_them() -> None:
    found = alternatives_of(
        GpuRequirements(types=("H100-SXM5-80GB",)), rules=ALL_LABELS
    )

    assert {"NVIDIA-H100-80GB-HBM3", "H100-80GB-HBM3"} <= values_of(found)
    assert "nvidia-h100-80gb" in values_of(found, GKE)
    assert "h100" in values_of(found, "karpenter.k8s.aws/instance-gpu-name")
    # There it is the family's name, which takes in GPUs of another kind.
    assert "h100" not in values_of(found, "accelerator")
    assert "kubernetes.azure.com/accelerator" not in {rule.key for (rule,) in found}


def test_a_family_takes_in_its_models_and_an_exclusion_takes_one_out() -> None:
    family = values_of(alternatives_of(GpuRequirements(types=("A100",))))
    without = values_of(
        alternatives_of(GpuRequirements(types=("A100",), excluded=("A100-40GB",)))
    )

    assert {"A100-PCIE-40GB", "NVIDIA-A100-SXM4-80GB", "A100"} <= family
    assert "NVIDIA-A100-SXM4-80GB" in without
    assert not any("40GB" in value for value in without)
    # With a label that says 80 GB, a node with the family's name is taken.
    assert "A100" in without


def test_memory_narrows_the_types_down() -> None:
    gpu_requirements = GpuRequirements(types=("A100", "L4"), min_memory=80 * GIB)

    found = values_of(alternatives_of(gpu_requirements))

    assert "NVIDIA-A100-SXM4-80GB" in found
    assert not {"NVIDIA-A100-SXM4-40GB", "NVIDIA-L4"} & found


def test_of_a_type_whose_gpus_are_all_too_small_the_type_is_left() -> None:
    gpu_requirements = GpuRequirements(types=("L4",), min_memory=80 * GIB)

    assert "NVIDIA-L4" in values_of(alternatives_of(gpu_requirements))


def test_a_type_that_is_excluded_as_well_says_nothing_of_labels() -> None:
    assert alternatives_of(GpuRequirements(types=("L4",), excluded=("Tesla-L4",))) == ()


def test_names_of_the_settings_count() -> None:
    table = extended_table([GpuModel("X1", 8 * GIB)], {"X1": ("Team-Card",)})
    rules = GpuLabelRules(table, ("accelerator",), ())

    found = values_of(
        alternatives_of(GpuRequirements(types=("X1",)), rules=rules), "accelerator"
    )

    assert {"X1", "x1", "Team-Card", "team-card"} <= found


def test_a_gpu_that_no_table_has_goes_by_its_own_name() -> None:
    found = values_of(
        alternatives_of(GpuRequirements(types=("My Card",)), {PRODUCT: "my_card"})
    )

    assert found == {"My-Card", "NVIDIA-My-Card", "my_card"}


def test_values_on_nodes_count_however_they_are_spelled() -> None:
    seen = ({PRODUCT: "nvidia_a30"}, {PRODUCT: "NVIDIA-L4"}, {PRODUCT: "A30-SHARED"})

    found = values_of(alternatives_of(GpuRequirements(types=("A30",)), *seen))

    assert found == {"A30", "NVIDIA-A30", "nvidia_a30"}


def test_shared_and_sliced_forms_are_accepted_where_the_pod_takes_them() -> None:
    gpu_requirements = GpuRequirements(types=("A30",), is_sharing_allowed=True)

    assert {
        "NVIDIA-A30",
        "NVIDIA-A30-SHARED",
        "NVIDIA-A30-MIG-1g.6gb",
        "NVIDIA-A30-MIG-1g.6gb.me",
        "NVIDIA-A30-MIG-2g.12gb-SHARED",
    } <= values_of(alternatives_of(gpu_requirements))
    large = GpuRequirements(
        types=("A30",), is_sharing_allowed=True, min_memory=12 * GIB
    )
    found = values_of(alternatives_of(large))
    assert "NVIDIA-A30-MIG-2g.12gb" in found
    assert "NVIDIA-A30-MIG-1g.6gb" not in found
    # Slices that are asked by name stand on nodes with the plain product.
    sliced = values_of(alternatives_of(GpuRequirements(types=("A30",)), request=SLICE))
    assert sliced == {"A30", "A30-SHARED", "NVIDIA-A30", "NVIDIA-A30-SHARED"}


def test_a_list_that_is_too_long_asks_for_the_label_without_what_is_refused() -> None:
    gpu_requirements = GpuRequirements(types=("H100", "A100"), is_sharing_allowed=True)

    ((exists, *others),) = alternatives_of(gpu_requirements, {PRODUCT: "NVIDIA-L4"})

    assert exists == LabelRule(PRODUCT, "Exists")
    assert others == [LabelRule(PRODUCT, "NotIn", ("NVIDIA-L4",))]


def test_the_first_label_that_names_a_model_decides() -> None:
    contradicting = {PRODUCT: "Tesla-T4", "accelerator": "nvidia-a30"}

    _, by_hand = alternatives_of(
        GpuRequirements(types=("A30",)),
        contradicting,
        {PRODUCT: "nvidia", "accelerator": "A30"},
        rules=TWO_LABELS,
    )

    assert by_hand[0].key == "accelerator"
    assert by_hand[1:] == (LabelRule(PRODUCT, "NotIn", ("Tesla-T4",)),)


def test_exclusions_keep_out_their_names_and_leave_other_nodes_open() -> None:
    assert alternatives_of(
        GpuRequirements(excluded=("A30",)), {PRODUCT: "a30"}, {}
    ) == ((LabelRule(PRODUCT, "NotIn", ("A30", "NVIDIA-A30", "a30")),),)


def test_memory_keeps_out_the_nodes_that_are_known_to_be_too_small() -> None:
    nodes: tuple[dict[str, str], ...] = (
        {PRODUCT: "Tesla-T4", MEMORY: "15360"},
        {PRODUCT: "NVIDIA-H100-80GB-HBM3", MEMORY: "81559"},
        {PRODUCT: "NVIDIA-H100-80GB-HBM3-SHARED"},
        {PRODUCT: "pool-7", MEMORY: "16000"},
        {PRODUCT: "pool-8"},
        {PRODUCT: "nvidia"},
        {},
    )

    assert alternatives_of(GpuRequirements(min_memory=40 * GIB), *nodes) == (
        (
            LabelRule(PRODUCT, "NotIn", ("NVIDIA-H100-80GB-HBM3-SHARED", "Tesla-T4")),
            LabelRule(MEMORY, "NotIn", ("15360", "16000")),
        ),
    )


def test_where_no_node_is_known_to_be_too_small_memory_says_nothing() -> None:
    nodes = ({PRODUCT: "NVIDIA-H200"}, {PRODUCT: "pool-8"})

    assert alternatives_of(GpuRequirements(min_memory=40 * GIB), *nodes) == ()


def test_a_value_that_stands_on_a_node_to_be_taken_is_not_kept_out() -> None:
    contradicting = {PRODUCT: "NVIDIA-A30", "accelerator": "tesla-t4"}
    gpu_requirements = GpuRequirements(min_memory=24 * GIB)

    assert alternatives_of(gpu_requirements, contradicting, rules=TWO_LABELS) == ()


def test_a_memory_label_that_a_node_to_be_taken_carries_is_not_kept_out() -> None:
    wrongly_labelled = {PRODUCT: "NVIDIA-H100-80GB-HBM3", MEMORY: "65000"}
    gpu_requirements = GpuRequirements(min_memory=70 * GIB)

    assert alternatives_of(gpu_requirements, wrongly_labelled, {MEMORY: "60000"}) == (
        (LabelRule(MEMORY, "NotIn", ("60000",)),),
    )


KARPENTER_NAME: Final = "karpenter.k8s.aws/instance-gpu-name"
KARPENTER_MEMORY: Final = "karpenter.k8s.aws/instance-gpu-memory"


@pytest.mark.parametrize(
    ("gpu_requirements", "is_kept_out"),
    [
        pytest.param(GpuRequirements(types=("L4",)), True, id="type"),
        pytest.param(
            GpuRequirements(types=("L4", "H100"), min_memory=20 * GIB), True, id="both"
        ),
        pytest.param(GpuRequirements(min_memory=20 * GIB), True, id="memory"),
        pytest.param(GpuRequirements(types=("T4",)), False, id="another type"),
        pytest.param(
            GpuRequirements(types=("L4",), is_sharing_allowed=True), False, id="shares"
        ),
    ],
)
def test_a_memory_that_tells_of_a_part_is_kept_out(
    gpu_requirements: GpuRequirements, is_kept_out: bool
) -> None:
    part = {KARPENTER_NAME: "l4", KARPENTER_MEMORY: "5722"}
    whole = {KARPENTER_NAME: "l4", KARPENTER_MEMORY: "22888"}
    rules = GpuLabelRules(
        default_table(), (PRODUCT, KARPENTER_NAME), (KARPENTER_MEMORY,)
    )

    found = alternatives_of(gpu_requirements, part, whole, rules=rules)

    for term in found:
        kept_out = [rule for rule in term if rule.key == KARPENTER_MEMORY]
        expected = [LabelRule(KARPENTER_MEMORY, "NotIn", ("5722",))]
        assert kept_out == (expected if is_kept_out else [])


def test_a_memory_of_a_part_is_kept_out_beside_a_label_whose_key_has_the_name() -> None:
    name = f"{AMD}Instinct_MI300X"
    part, whole = ({name: "8", MEMORY: memory} for memory in ("49152", "196592"))
    rules = GpuLabelRules(default_table(), (f"{AMD}*",), (MEMORY,))

    found = alternatives_of(
        GpuRequirements(types=("MI300X",)),
        *(part, whole),
        rules=rules,
        request=(("amd.com/gpu", 1),),
    )

    assert (
        LabelRule(name, "Exists"),
        LabelRule(MEMORY, "NotIn", ("49152",)),
    ) in found


def test_a_node_is_open_whose_other_labels_make_up_for_its_type() -> None:
    sliced = {PRODUCT: "Tesla-T4", "cloud.google.com/gke-gpu-partition-size": "7g.80gb"}
    gpu_requirements = GpuRequirements(
        types=("T4", "A100"), min_memory=40 * GIB, is_sharing_allowed=True
    )
    any_type = GpuRequirements(min_memory=40 * GIB, is_sharing_allowed=True)

    assert LabelRule(PRODUCT, "Exists") in alternatives_of(gpu_requirements, sliced)[0]
    assert alternatives_of(gpu_requirements, sliced)[0][1:] == ()
    assert "Tesla-T4" in values_of(
        alternatives_of(replace(gpu_requirements, types=("T4", "L40S")), sliced)
    )
    assert alternatives_of(any_type, sliced) == ()


def test_a_name_that_means_something_under_one_label_only_is_written_there() -> None:
    lists = NameLists(label_names={"accelerator": {"large": "X1"}})
    table = build_table([GpuModel("X1", 8 * GIB)], lists)
    rules = GpuLabelRules(table, (PRODUCT, "accelerator"), ())

    found = alternatives_of(GpuRequirements(types=("X1",)), rules=rules)

    assert values_of(found) == {"X1", "NVIDIA-X1"}
    assert "large" in values_of(found, "accelerator")


def test_a_label_whose_key_has_the_name_is_asked_for_by_its_key() -> None:
    nodes = ({f"{AMD}Instinct_MI300X": "8"}, {f"{AMD}Instinct_MI210": "8"})
    rules = GpuLabelRules(default_table(), (f"{AMD}*",), ())
    request = (("amd.com/gpu", 1),)

    wanted = alternatives_of(
        GpuRequirements(types=("MI300X",)), *nodes, rules=rules, request=request
    )
    unwanted = alternatives_of(
        GpuRequirements(excluded=("MI210",)), *nodes, rules=rules, request=request
    )

    assert (LabelRule(f"{AMD}Instinct_MI300X", "Exists"),) in wanted
    assert {rule.operator for (rule,) in wanted} == {"Exists"}
    assert LabelRule(f"{AMD}Instinct_MI210", "DoesNotExist") in unwanted[0]


def test_a_requirement_has_a_limited_number_of_values() -> None:
    nodes = [
        {PRODUCT: f"A30-{'_' * number}-SHARED"} for number in range(MAX_VALUES + 9)
    ]

    found = values_of(alternatives_of(GpuRequirements(min_memory=GIB), *nodes))

    assert len(found) == MAX_VALUES


def test_a_pod_that_fell_is_kept_off_gpus_that_are_too_small_or_not_whole() -> None:
    labels = GpuLabels(RULES)
    kinds = [
        labels.kind_of(make_node_record(make_node(gpus=1, labels=own), builder=BUILDER))
        for own in (
            {PRODUCT: "Tesla-T4"},
            {PRODUCT: "NVIDIA-A30-SHARED"},
            {PRODUCT: "NVIDIA-A30"},
            {MEMORY: "8192"},
            {PRODUCT: "pool-7"},
        )
    ]
    found = refusing_terms(RULES, MinimumGpu(is_whole=True, memory_gib=20), kinds)

    assert found == (
        (
            LabelRule(PRODUCT, "NotIn", ("NVIDIA-A30-SHARED", "Tesla-T4")),
            LabelRule(MEMORY, "NotIn", ("8192",)),
        ),
    )
